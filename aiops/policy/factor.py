"""Weight factors: what one push is worth by itself, <= 1, to be multiplied with a share of the update."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from aiops.errors import ConfigError
from aiops.policy.base import PushView
from aiops.policy.number import is_real


@dataclass(frozen=True, slots=True)
class Constant:
    """FedAsync's constant rule, s(t) = 1, or its alpha (Xie et al., 2019): every push counts the same. A factor.

    Attributes:
        value: What a push counts, in (0, 1].
    """

    value: float = 1.0

    def __post_init__(self) -> None:
        if not (is_real(self.value) and 0 < self.value <= 1):
            raise ConfigError(f"constant's value is {self.value!r}, it must be in (0, 1]")

    def __call__(self, pushes: Sequence[PushView]) -> Sequence[float]:
        """Return the value for each push."""
        return [float(self.value)] * len(pushes)

    def raw(self, push: PushView) -> float:
        """Return 1."""
        return 1.0

    def scale(self, pushes: Sequence[PushView]) -> float:
        """Return 1."""
        return 1.0


@dataclass(frozen=True, slots=True)
class ByStaleness:
    """FedAsync's polynomial rule, s(t) = (t + 1)^(-a), t in rounds (Xie et al., 2019). A factor.

    Attributes:
        a: How fast old pushes fade, >= 0.
    """

    a: float

    def __post_init__(self) -> None:
        if not (is_real(self.a) and self.a >= 0):
            raise ConfigError(f"by_staleness's a is {self.a!r}, it must be a finite number >= 0")

    def __call__(self, pushes: Sequence[PushView]) -> Sequence[float]:
        """Return (staleness + 1)^(-a) for each push."""
        return [(push.staleness + 1.0) ** -self.a for push in pushes]

    def raw(self, push: PushView) -> float:
        """Return (staleness + 1)^(-a)."""
        return float((push.staleness + 1.0) ** -self.a)

    def scale(self, pushes: Sequence[PushView]) -> float:
        """Return 1."""
        return 1.0


@dataclass(frozen=True, slots=True)
class Hinge:
    """FedAsync's hinge rule (Xie et al., 2019): s(t) = 1 for t <= b, else 1 / (a * (t - b) + 1). A factor.

    Attributes:
        a: How fast pushes beyond ``b`` fade, per round, >= 0.
        b: Staleness up to which a push counts in full, in rounds, >= 0.
    """

    a: float
    b: float

    def __post_init__(self) -> None:
        for name, value in (("a", self.a), ("b", self.b)):
            if not (is_real(value) and value >= 0):
                raise ConfigError(f"hinge's {name} is {value!r}, it must be a finite number >= 0")

    def __call__(self, pushes: Sequence[PushView]) -> Sequence[float]:
        """Return 1 up to ``b`` rounds of staleness and 1 / (a * (staleness - b) + 1) beyond."""
        return [1.0 / (self.a * max(push.staleness - self.b, 0.0) + 1.0) for push in pushes]

    def raw(self, push: PushView) -> float:
        """Return 1 up to ``b`` rounds of staleness and 1 / (a * (staleness - b) + 1) beyond."""
        return 1.0 / (self.a * max(push.staleness - self.b, 0.0) + 1.0)

    def scale(self, pushes: Sequence[PushView]) -> float:
        """Return 1."""
        return 1.0


def constant(value: float = 1.0) -> Constant:
    """Return the same weight for every push, whatever its age.

    Args:
        value: That weight, in (0, 1]; with other factors, FedAsync's alpha.
    """
    return Constant(value)


def by_staleness(a: float = 0.5) -> ByStaleness:
    """Return the polynomial staleness factor (staleness + 1)^(-a).

    Args:
        a: How fast old pushes fade, >= 0; 0 is ``constant``, 1 divides by the staleness plus one.
    """
    return ByStaleness(a)


def hinge(a: float = 10.0, b: float = 4) -> Hinge:
    """Return the hinge staleness factor: 1 up to ``b`` rounds, then 1 / (a * (staleness - b) + 1).

    Args:
        a: How fast pushes beyond ``b`` fade, per round, >= 0.
        b: Staleness up to which a push counts in full, in rounds, >= 0.
    """
    return Hinge(a, b)
