"""Everything a rank is told about the exchange of its gradients, as one frozen value."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, Self, get_args

from aiops.errors import ConfigError
from aiops.policy import table as policies
from aiops.policy.density import Fixed
from aiops.policy.exchange import Density, Exchange
from aiops.policy.table import unknown

ValueName = Literal["fp32", "bf16", "fp16", "int8"]
PositionName = Literal["raw", "elias", "packed", "rice"]
SelectName = Literal["largest", "layerwise", "mstopk"]
WeightName = Literal["uniform", "by_samples"]

# Bytes of a selected value and of its position, for the cost model; a position takes some bits more or less with the
# density, which moves no decision.
VALUE_BYTES: dict[ValueName, float] = {"fp32": 4.0, "bf16": 2.0, "fp16": 2.0, "int8": 1.001}
POSITION_BYTES: dict[PositionName, float] = {"raw": 4.0, "elias": 1.1, "packed": 1.2, "rice": 1.0}

# What a group can do, by operator; a chooser takes the cheapest. Leaders take turns unless told otherwise.
ROUTES = ("ring", "tree", "direct")
OPERATORS = ("dense", "allgather", "artopk", "var", "vote")
COLLECTIVES = tuple(
    f"{operator}_{route}"
    for operator in OPERATORS
    for route in ROUTES
    if (operator, route) != ("allgather", "tree")
)
DEFAULT = (
    "artopk_ring",
    "artopk_tree",
    "artopk_direct",
    "allgather_ring",
    "allgather_direct",
    "dense_ring",
    "dense_direct",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExchangeConfig:
    """How a group of ranks exchanges its gradients; the same on every rank, which is checked.

    Attributes:
        density: Which share of the values is sent, and by which of ``collectives``.
        collectives: What may be chosen from: names of :data:`COLLECTIVES`, the preferred ones first.
        values: How selected values are written; what that loses stays in the residual. Dense values are float32 always.
        positions: How positions are written.
        select: Which values are selected.
        momentum: Momentum correction with masking (Deep Gradient Compression), in [0, 1); the optimizer then has none.
        seed: Of what is random.
        weights: What a rank's gradient is worth: ``uniform``, 1 / ranks, or ``by_samples``, its share of the samples of
            the step, which every rank then has to say.
    """

    density: Density = field(default_factory=lambda: Fixed(0.01))
    collectives: tuple[str, ...] = DEFAULT
    values: ValueName = "fp32"
    positions: PositionName = "elias"
    select: SelectName = "largest"
    momentum: float = 0.0
    seed: int = 0
    weights: WeightName = "uniform"

    def __post_init__(self) -> None:
        _check_name("values", self.values, get_args(ValueName))
        _check_name("positions", self.positions, get_args(PositionName))
        _check_name("select", self.select, get_args(SelectName))
        _check_name("weights", self.weights, get_args(WeightName))
        if not self.collectives:
            raise ConfigError("collectives is empty, it must name at least one")
        for name in self.collectives:
            if name not in COLLECTIVES:
                unknown("collective", name, dict.fromkeys(COLLECTIVES))
        if len(set(self.collectives)) < len(self.collectives):
            raise ConfigError(f"collectives {', '.join(self.collectives)} name one twice")
        if not 0 <= self.momentum < 1:
            raise ConfigError(f"momentum is {self.momentum}, it must be at least 0 and below 1")

    @classmethod
    def parse(
        cls,
        *,
        density: str | float | Density = "fixed:0.01",
        collectives: str | Sequence[str] = DEFAULT,
        values: str = "fp32",
        positions: str = "elias",
        select: str = "largest",
        momentum: float = 0.0,
        seed: int = 0,
        weights: str = "uniform",
    ) -> Self:
        """Return the configuration that these names and numbers stand for.

        Args:
            density: A spec such as ``"adaptive"`` or ``"fixed:0.01"``, a plain k/n, or a policy.
            collectives: One name, or several that are chosen from.
            values: See the class.
            positions: See the class.
            select: See the class.
            momentum: See the class.
            seed: See the class.
            weights: See the class.

        Raises:
            ConfigError: A name is unknown or a number out of range; the message names it.
        """
        if isinstance(density, float | int):
            density = Fixed(density)
        elif isinstance(density, str):
            density = policies.parse_density(density)
        names = (collectives,) if isinstance(collectives, str) else tuple(collectives)
        return cls(
            density=density,
            collectives=names,
            values=values,  # type: ignore[arg-type]  # checked by __post_init__
            positions=positions,  # type: ignore[arg-type]
            select=select,  # type: ignore[arg-type]
            momentum=momentum,
            seed=seed,
            weights=weights,  # type: ignore[arg-type]
        )

    def only(self, exchange: Exchange) -> Self:
        """Return the same with nothing to decide: every step by ``exchange``."""
        density = Fixed(exchange.density, exchange.collective)
        return replace(self, density=density, collectives=(exchange.collective,))


def _check_name(what: str, name: str, known: tuple[str, ...]) -> None:
    if name not in known:
        unknown(what, name, dict.fromkeys(known))
