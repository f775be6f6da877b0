"""Compensations: what makes a late push fit the parameters that it is merged into."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from aiops.kernels import first_nonfinite
from aiops.merge.base import Vector
from aiops.policy.number import check_positive, check_share

# Keeps the root away from 0 (Zheng et al., 2017).
EPSILON = 1e-7


@dataclass(frozen=True, slots=True)
class Mixing:
    """FedAsync's merge (Xie et al., 2019): the model that a push leads to is mixed in, ``w = (1 - a) * w + a * x``.

    With x = w_base + delta that is ``w += a * delta'`` for ``delta' = delta + (w_base - w)``. The share a, alpha times
    a function of the staleness, is the push's weight, such as ``constant:0.6*by_staleness:0.5``.
    """

    @property
    def name(self) -> str:
        """The name it is configured by."""
        return "mixing"

    @property
    def initial(self) -> Sequence[float]:
        """Nothing is kept."""
        return ()

    @property
    def averages(self) -> bool:
        """True: a model is mixed in with all that belongs to it."""
        return True

    @property
    def local_steps(self) -> int | None:
        """None: of any number."""
        return None

    def correct(
        self, update: Vector, params: Vector, base: Vector, state: Sequence[Vector], out: Vector
    ) -> int:
        """Write ``update + (base - params)``."""
        np.subtract(base, params, out=out)
        out += update
        return -1


@dataclass(frozen=True, slots=True)
class DelayCompensated:
    """DC-ASGD with a constant lambda (Zheng et al., 2017).

    A push is one step of plain SGD, ``delta = -lr * g``, so that ``g = -delta / lr`` and
    ``delta' = -lr * (g + lam * g * g * (w - w_base))``, element by element.

    Attributes:
        lam: Strength of the compensation, > 0; 0.04 is usual.
        lr: Learning rate of the workers, > 0.
    """

    lam: float
    lr: float

    def __post_init__(self) -> None:
        check_positive("dcasgd's lam", self.lam)
        check_positive("dcasgd's lr", self.lr)

    @property
    def name(self) -> str:
        """The text it is configured by."""
        return f"dcasgd:{self.lam!r},{self.lr!r}"

    @property
    def initial(self) -> Sequence[float]:
        """Nothing is kept."""
        return ()

    @property
    def averages(self) -> bool:
        """False: running statistics have no gradient."""
        return False

    @property
    def local_steps(self) -> int | None:
        """1: of several, the change is no gradient."""
        return 1

    def correct(
        self, update: Vector, params: Vector, base: Vector, state: Sequence[Vector], out: Vector
    ) -> int:
        """Write the compensated step."""
        gradient = update / np.float32(-self.lr)
        np.subtract(params, base, out=out)
        out *= gradient
        out *= gradient
        out *= np.float32(self.lam)
        out += gradient
        out *= np.float32(-self.lr)
        return -1


@dataclass(frozen=True, slots=True)
class DelayCompensatedAdaptive:
    """DC-ASGD with an adaptive lambda (Zheng et al., 2017).

    As :class:`DelayCompensated`, with ``lam / sqrt(MS + 1e-7)`` in place of ``lam``, where each worker's mean square of
    the gradient is ``MS = decay * MS + (1 - decay) * g * g``, from 0.

    Attributes:
        lam: Strength of the compensation, > 0; 2 is usual.
        decay: Share of the mean square that stays, in [0, 1); 0.95 is usual.
        lr: Learning rate of the workers, > 0.
    """

    lam: float
    decay: float
    lr: float

    def __post_init__(self) -> None:
        check_positive("dcasgd_adaptive's lam", self.lam)
        check_positive("dcasgd_adaptive's lr", self.lr)
        check_share("dcasgd_adaptive's decay", self.decay)

    @property
    def name(self) -> str:
        """The text it is configured by."""
        return f"dcasgd_adaptive:{self.lam!r},{self.decay!r},{self.lr!r}"

    @property
    def initial(self) -> Sequence[float]:
        """A mean square of 0."""
        return (0.0,)

    @property
    def averages(self) -> bool:
        """False: running statistics have no gradient."""
        return False

    @property
    def local_steps(self) -> int | None:
        """1: of several, the change is no gradient."""
        return 1

    def correct(
        self, update: Vector, params: Vector, base: Vector, state: Sequence[Vector], out: Vector
    ) -> int:
        """Write the compensated step and move the mean square on."""
        (square,) = state
        gradient = update / np.float32(-self.lr)
        np.multiply(gradient, gradient, out=out)
        square *= np.float32(self.decay)
        square += np.float32(1.0 - self.decay) * out
        # The gradient's square goes on in out: times lambda, times the way that the parameters have gone.
        out *= np.float32(self.lam)
        out /= np.sqrt(square + np.float32(EPSILON))
        out *= params - base
        out += gradient
        out *= np.float32(-self.lr)
        # Where it is infinite nothing would be compensated from then on, and the parameters would not show it.
        return first_nonfinite(square)


def none() -> None:
    """Return None: pushes are merged as they are."""


def mixing() -> Mixing:
    """Return FedAsync's merge of models."""
    return Mixing()


def dcasgd(lam: float, lr: float) -> DelayCompensated:
    """Return DC-ASGD with a constant lambda; the arguments are those of :class:`DelayCompensated`."""
    return DelayCompensated(lam, lr)


def dcasgd_adaptive(lam: float, decay: float, lr: float) -> DelayCompensatedAdaptive:
    """Return DC-ASGD with an adaptive lambda; the arguments are those of :class:`DelayCompensatedAdaptive`."""
    return DelayCompensatedAdaptive(lam, decay, lr)
