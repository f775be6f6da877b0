"""Methods under comparison: an algorithm, its settings, and what may be tuned."""

from __future__ import annotations

import contextlib
import itertools
import math
import string
from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any

import msgspec

from aiops.config import ServerConfig
from aiops.errors import ConfigError
from aiops.policy.preset import PRESETS, preset
from aiops.policy.table import unknown

Setting = str | int | float | bool
# A text stands for settings that only go together, such as "64,32" of fragments and their steps.
Number = int | float | str

# Connections beside the workers': who looks at the model from outside.
OBSERVERS = 8


class Method(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One contestant.

    Attributes:
        label: What it is called in tables.
        algorithm: A preset's name, whose settings are the start.
        lr: Learning rate of every worker's local SGD.
        settings: Settings of the server in place of the preset's; a text may hold ``{name}``, which ``values`` or the
            tuner fills in.
        values: Numbers, or texts, for the names in ``settings``.
        grid: What the tuner tries, by name; "lr" is the learning rate.
    """

    label: str
    algorithm: str
    lr: Annotated[float, msgspec.Meta(gt=0)] = 0.1
    settings: dict[str, Setting] = {}
    values: dict[str, Number] = {}
    grid: dict[str, tuple[Number, ...]] = {}

    def __post_init__(self) -> None:
        if self.algorithm not in PRESETS:
            unknown("algorithm", self.algorithm, PRESETS)
        self._check_numbers()
        self.config(n_workers=1)

    def _check_numbers(self) -> None:
        who = f"method {self.label!r}"
        if "lr" in self.values:
            raise ConfigError(f"{who} has lr among its values, it has a place of its own")
        used = {"lr", *_names(self.settings.values())}
        for name in (*self.values, *self.grid):
            if name not in used:
                raise ConfigError(f"{who} has numbers for {name!r}, but no setting with {{{name}}}")
        for name, numbers in self.grid.items():
            if not numbers:
                raise ConfigError(f"{who} has an empty grid for {name!r}")
        for lr in (self.lr, *self.grid.get("lr", ())):
            if isinstance(lr, str) or not 0 < lr < math.inf:
                raise ConfigError(f"{who} has a learning rate of {lr}, it must be > 0 and finite")

    def spec(self) -> dict[str, Any]:
        """Return the server's settings, as for ``ServerConfig.parse``.

        Raises:
            ConfigError: A setting has a name that no value is given for.
        """
        spec: dict[str, Any] = {**preset(self.algorithm), **self.settings}
        numbers = {**self._firsts(), **self.values, "lr": self.lr}
        try:
            return {
                name: value.format(**numbers) if isinstance(value, str) else value
                for name, value in spec.items()
            }
        except (KeyError, IndexError, AttributeError, ValueError) as error:
            raise ConfigError(
                f"a setting has a name in braces that stands for nothing ({error}), "
                f"numbers are given for {', '.join(numbers)}"
            ) from None

    def config(self, n_workers: int, others: Mapping[str, Any] | None = None) -> ServerConfig:
        """Return the server's configuration for so many workers, none of which starts alone.

        Args:
            n_workers: How many train.
            others: More settings, which the method's own go before.

        Raises:
            ConfigError: A setting is wrong, or two do not go together.
        """
        counts = {"min_workers": n_workers, "max_members": n_workers + OBSERVERS}
        try:
            return ServerConfig.parse(**{**counts, **(others or {}), **self.spec()})
        except ConfigError as error:
            raise ConfigError(f"method {self.label!r}: {error}") from None

    def points(self) -> Iterator[Method]:
        """Yield the method at every point of its grid, in order; itself where there is none."""
        for numbers in itertools.product(*self.grid.values()):
            yield self.at(dict(zip(self.grid, numbers, strict=True)))

    def at(self, numbers: Mapping[str, Number]) -> Method:
        """Return the method with these numbers, "lr" among them."""
        values = {**self.values, **{k: v for k, v in numbers.items() if k != "lr"}}
        return msgspec.structs.replace(self, lr=float(numbers.get("lr", self.lr)), values=values)

    def numbers(self) -> dict[str, Number]:
        """Return what was chosen for the names of the grid."""
        chosen = {**self._firsts(), **self.values, "lr": self.lr}
        return {name: chosen[name] for name in self.grid}

    def told(self) -> str:
        """Return the same for people."""
        return ", ".join(
            f"{name} {value}" if isinstance(value, str) else f"{name} {value:g}"
            for name, value in self.numbers().items()
        )

    # Until something is chosen, each name stands for the first number of its grid.
    def _firsts(self) -> dict[str, Number]:
        return {name: numbers[0] for name, numbers in self.grid.items()}


# The names in braces; what is no format at all is found when it is filled in.
def _names(settings: Iterable[Setting]) -> Iterator[str]:
    for value in settings:
        with contextlib.suppress(ValueError):
            parts = string.Formatter().parse(value) if isinstance(value, str) else ()
            yield from (name for _, name, _, _ in parts if name)


def get(name: str) -> Method:
    """Return a method by its preset's name, with the preset's settings.

    Raises:
        ConfigError: There is no such preset.
    """
    return Method(label=name, algorithm=name)
