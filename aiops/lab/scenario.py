"""One scenario file for both labs: who trains what over which links, by which methods, and how often.

A scenario is a TOML file or the same as structs. It is checked whole before anything runs. Times are in seconds unless
a name says otherwise.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from aiops.errors import ConfigError
from aiops.lab.method import Method, get
from aiops.sim.relay import LINE_OVERHEAD as LINE_OVERHEAD

Positive = Annotated[float, msgspec.Meta(gt=0)]
Nonnegative = Annotated[float, msgspec.Meta(ge=0)]
Share = Annotated[float, msgspec.Meta(ge=0, lt=1)]
Count = Annotated[int, msgspec.Meta(ge=1)]
Index = Annotated[int, msgspec.Meta(ge=0)]


class _Table(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of a scenario's tables: a key that is not known is an error, and so is a number that is none."""

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if isinstance(value, float) and not math.isfinite(value):
                raise ConfigError(f"{name} is {value}, it must be a finite number")


class Data(_Table, frozen=True):
    """What is trained on.

    Attributes:
        name: Data set, see :mod:`aiops.data`.
        n_train: Training samples, the first ones; None takes all.
        n_test: Test samples, the first ones; None takes all.
        alpha: Dirichlet concentration of the label skew; "iid" or None deals the samples out evenly.
        split_seed: Seed of the partition, which stays the same for every seed and method.
        batch: Samples per local step.
    """

    name: str = "fashion-mnist"
    n_train: Count | None = None
    n_test: Count | None = None
    alpha: Positive | Literal["iid"] | None = 0.3
    split_seed: Index = 0
    batch: Count = 32

    @property
    def skew(self) -> float | None:
        """The concentration; None for an even deal."""
        return None if self.alpha == "iid" else self.alpha


class Model(_Table, frozen=True):
    """What is trained.

    Attributes:
        name: "mlp" (numpy) or "cnn" (torch).
        hidden: Widths of the hidden layers of "mlp".
    """

    name: Literal["mlp", "cnn"] = "mlp"
    hidden: tuple[Count, ...] = (64,)


class Workers(_Table, frozen=True):
    """Who trains.

    Attributes:
        count: Workers.
        step_s: A local step of the fastest worker, in seconds.
        slowdown: Step time of each worker over ``step_s``, >= 1; shorter lists are filled up with 1.
        jitter: Standard deviation of the logarithm of a step's time; 0 is none.
    """

    count: Count = 6
    step_s: Positive = 0.02
    slowdown: tuple[Annotated[float, msgspec.Meta(ge=1)], ...] = ()
    jitter: Nonnegative = 0.0


class Link(_Table, frozen=True):
    """One worker's line to the server.

    Attributes:
        up_mbit: Rate towards the server in Mbit/s, packet headers included.
        down_mbit: Rate from the server; the same as up unless given.
        delay_ms: One-way delay.
        jitter_ms: The delay is up to so much shorter or longer, uniformly, and at most doubled; packets stay in order.
        loss: Share of packets that are lost; real lab only.
        congestion: TCP congestion control; "" is the system's. Real lab only.
    """

    up_mbit: Positive = 20.0
    down_mbit: Positive | None = None
    delay_ms: Nonnegative = 25.0
    jitter_ms: Nonnegative = 0.0
    loss: Share = 0.0
    congestion: str = "bbr"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.jitter_ms > self.delay_ms:
            raise ConfigError(
                f"jitter_ms is {self.jitter_ms:g}, it must be at most delay_ms, {self.delay_ms:g}"
            )

    @property
    def rates_mbit(self) -> tuple[float, float]:
        """Rates up and down in Mbit/s."""
        return self.up_mbit, self.up_mbit if self.down_mbit is None else self.down_mbit


class Change(_Table, frozen=True):
    """What becomes different during a run.

    Attributes:
        at_s: When, in seconds since the start.
        workers: For whom; empty is everybody.
        slowdown: Step time over ``step_s`` from then on.
        up_mbit: Rate towards the server from then on.
        down_mbit: Rate from the server from then on.
        delay_ms: One-way delay from then on.
        jitter_ms: By how much the delay varies from then on.
        loss: Loss from then on.
    """

    at_s: Nonnegative
    workers: tuple[Index, ...] = ()
    slowdown: Annotated[float, msgspec.Meta(ge=1)] | None = None
    up_mbit: Positive | None = None
    down_mbit: Positive | None = None
    delay_ms: Nonnegative | None = None
    jitter_ms: Nonnegative | None = None
    loss: Share | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        effects = set(self.__struct_fields__) - {"at_s", "workers"}
        if all(getattr(self, name) is None for name in effects):
            raise ConfigError(
                f"change at {self.at_s:g} s changes nothing, it may set {', '.join(sorted(effects))}"
            )

    def applies_to(self, worker: int) -> bool:
        """Return whether it is about this worker."""
        return not self.workers or worker in self.workers


class Scenario(_Table, frozen=True):
    """Everything that decides a result.

    Attributes:
        name: For tables and pictures.
        seeds: Seeds of model and batches; runs of one seed are paired across methods.
        target: Test accuracy that is waited for.
        budget_s: Longest run, in seconds.
        eval_s: Test accuracy is looked at so often, in seconds, if there is a newer version.
        stop_at_target: Whether a run ends once its target is confirmed.
        data: What is trained on.
        model: What is trained.
        workers: Who trains.
        link: Every worker's line.
        links: Lines of single workers, by number (as text), in place of ``link``.
        changes: What becomes different during a run, in order of time.
        methods: What is compared.
    """

    name: str = "scenario"
    seeds: tuple[Index, ...] = (0,)
    target: Annotated[float, msgspec.Meta(gt=0, lt=1)] = 0.8
    budget_s: Positive = 60.0
    eval_s: Positive = 0.5
    stop_at_target: bool = True
    data: Data = Data()
    model: Model = Model()
    workers: Workers = Workers()
    link: Link = Link()
    links: dict[str, Link] = {}
    changes: tuple[Change, ...] = ()
    methods: tuple[str | Method, ...] = ("fedavg", "nbsync")

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_workers()
        for one, other in itertools.pairwise(change.at_s for change in self.changes):
            if other < one:
                raise ConfigError(
                    f"change at {other:g} s stands behind one at {one:g} s, they must be in order of time"
                )
        if self.eval_s > self.budget_s:
            raise ConfigError(f"eval_s is {self.eval_s:g}, budget_s only {self.budget_s:g}")
        if not self.seeds or not self.methods:
            raise ConfigError("a scenario needs at least one seed and one method")
        if len(set(self.seeds)) < len(self.seeds):
            raise ConfigError(
                f"seed {_twice(self.seeds)} stands there twice, it gives the same run"
            )
        labels = [method.label for method in self.chosen]
        if len(set(labels)) < len(labels):
            raise ConfigError(f"two methods are called {_twice(labels)!r}, rename one of them")

    def _check_workers(self) -> None:
        count = self.workers.count
        if len(self.workers.slowdown) > count:
            raise ConfigError(
                f"slowdown names {len(self.workers.slowdown)} workers, there are {count}"
            )
        known = {str(worker) for worker in range(count)}
        strangers = [name for name in self.links if name not in known]
        strangers += [str(w) for change in self.changes for w in change.workers if w >= count]
        if strangers:
            raise ConfigError(
                f"worker {strangers[0]!r} has a link or a change, workers are 0 to {count - 1}"
            )

    @property
    def chosen(self) -> tuple[Method, ...]:
        """The methods, names looked up."""
        return tuple(get(method) if isinstance(method, str) else method for method in self.methods)

    def link_of(self, worker: int) -> Link:
        """Return a worker's line at the start."""
        return self.links.get(str(worker), self.link)

    def slowdown_of(self, worker: int) -> float:
        """Return a worker's step time over ``step_s`` at the start."""
        factors = self.workers.slowdown
        return factors[worker] if worker < len(factors) else 1.0

    def sync_s(self, n_values: int) -> float:
        """Return what a dense push and pull take on the slowest line at the start, in seconds."""
        links = [self.link_of(worker) for worker in range(self.workers.count)]
        return max(dense_sync_s(n_values, link.rates_mbit, link.delay_ms) for link in links)


def dense_sync_s(n_values: int, rates_mbit: Sequence[float], delay_ms: float) -> float:
    """Return what a push and a pull of so many float32 values take on an idle line, in seconds.

    Rates are up and down, headers included. Measured right to 0.5 % after a connection has warmed up.
    """
    bits = 4 * n_values * 8 * LINE_OVERHEAD
    return sum(bits / (rate * 1e6) for rate in rates_mbit) + 2 * delay_ms / 1e3


def _twice(values: Sequence[object]) -> object:
    return next(value for at, value in enumerate(values) if value in values[:at])


def read(path: Path) -> Scenario:
    """Read a scenario file.

    Raises:
        ConfigError: It cannot be read, or says something that makes no sense; the sentence names the place.
    """
    try:
        text = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"cannot read scenario {path}: {error.strerror or error}") from error
    try:
        return msgspec.toml.decode(text, type=Scenario)
    except (msgspec.DecodeError, ValueError) as error:
        raise ConfigError(f"scenario {path}: {error}") from error


def only(scenario: Scenario, labels: Sequence[str]) -> Scenario:
    """Return the scenario with these of its methods; all if none is named.

    Raises:
        ConfigError: It has no method of that name.
    """
    if not labels:
        return scenario
    by_label = {method.label: method for method in scenario.chosen}
    for label in {*labels} - {*by_label}:
        known = ", ".join(by_label)
        raise ConfigError(f"scenario {scenario.name!r} has no method {label!r}, only {known}")
    return msgspec.structs.replace(scenario, methods=tuple(by_label[label] for label in labels))


def speed_ratio(scenario: Scenario, n_values: int) -> float:
    """Return S/c: dense sync time over the fastest worker's step time."""
    fastest = min(scenario.slowdown_of(worker) for worker in range(scenario.workers.count))
    return scenario.sync_s(n_values) / (scenario.workers.step_s * fastest)


def heterogeneity(scenario: Scenario) -> float:
    """Return the slowest worker's step time over the fastest one's, at the start."""
    factors = [scenario.slowdown_of(worker) for worker in range(scenario.workers.count)]
    return max(factors) / min(factors)
