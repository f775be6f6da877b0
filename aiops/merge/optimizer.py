"""Server optimizers: what a round's update does to the parameters (Reddi et al., 2021).

Updates point downhill already, so all of them add. With delta the update, w the parameters and a state that starts from
the values named. There is no correction of the first steps' bias, as in the paper.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from aiops import kernels
from aiops.kernels import first_nonfinite
from aiops.merge.base import Vector
from aiops.policy.number import check_positive, check_share


@dataclass(frozen=True, slots=True)
class Sgd:
    """The update as it is, ``w + delta``, scaled by the server's ``server_lr`` alone."""

    @property
    def name(self) -> str:
        """The name it is configured by."""
        return "sgd"

    @property
    def initial(self) -> Sequence[float]:
        """Nothing is kept."""
        return ()

    def step(self, params: Vector, update: Vector, state: Sequence[Vector], out: Vector) -> int:
        """Write ``params + update``."""
        return kernels.sgd(params, update, rate=1.0, out=out)


@dataclass(frozen=True, slots=True)
class Momentum:
    """Server momentum, FedAvgM (Hsu et al., 2019): ``v = beta * v + delta; w += lr * v``.

    With ``nesterov`` it is DiLoCo's outer step (Douillard et al., 2023): ``w += lr * (delta + beta * v)``.

    Attributes:
        lr: Server learning rate, > 0.
        beta: Share of the velocity that stays, in [0, 1).
        nesterov: Whether to look ahead.
    """

    lr: float
    beta: float
    nesterov: bool = False

    def __post_init__(self) -> None:
        check_positive(f"{self._kind}'s lr", self.lr)
        check_share(f"{self._kind}'s beta", self.beta)

    @property
    def _kind(self) -> str:
        return "nesterov" if self.nesterov else "momentum"

    @property
    def name(self) -> str:
        """The text it is configured by."""
        return f"{self._kind}:{self.lr!r},{self.beta!r}"

    @property
    def initial(self) -> Sequence[float]:
        """A velocity of 0."""
        return (0.0,)

    def step(self, params: Vector, update: Vector, state: Sequence[Vector], out: Vector) -> int:
        """Write the new parameters and move the velocity on.

        A velocity that overflows shows in the parameters, since it is in what is added to them.
        """
        return kernels.momentum(
            params, state[0], update, rate=self.lr, beta=self.beta, nesterov=self.nesterov, out=out
        )


@dataclass(frozen=True, slots=True)
class Adagrad:
    """FedAdagrad (Reddi et al., 2021, algorithm 2): ``v += delta^2``, and the step that all adaptive ones share.

    The step is ``m = beta1 * m + (1 - beta1) * delta; w += lr * m / (sqrt(v) + tau)``, from m = 0 and v = tau^2.

    Attributes:
        lr: Server learning rate, > 0.
        beta1: Share of the mean that stays, in [0, 1); the paper's experiments have 0.
        tau: Degree of adaptivity, > 0: the size below which updates are small.
    """

    lr: float
    beta1: float
    tau: float

    def __post_init__(self) -> None:
        _check_adaptive("adagrad", self.lr, self.beta1, self.tau)

    @property
    def name(self) -> str:
        """The text it is configured by."""
        return f"adagrad:{self.lr!r},{self.beta1!r},{self.tau!r}"

    @property
    def initial(self) -> Sequence[float]:
        """A mean of 0 and a second moment of tau^2."""
        return (0.0, self.tau**2)

    def step(self, params: Vector, update: Vector, state: Sequence[Vector], out: Vector) -> int:
        """Write the new parameters and move both moments on."""
        mean, second = state
        with np.errstate(all="ignore"):
            second += np.square(update)
            return _adapt(params, update, mean, second, self.lr, self.beta1, self.tau, out)


@dataclass(frozen=True, slots=True)
class Adam:
    """FedAdam (Reddi et al., 2021, algorithm 2): ``v = beta2 * v + (1 - beta2) * delta^2``, else as FedAdagrad.

    With ``yogi`` it is their FedYogi: ``v -= (1 - beta2) * delta^2 * sign(v - delta^2)``.

    Attributes:
        lr: Server learning rate, > 0.
        beta1: Share of the mean that stays, in [0, 1).
        beta2: Share of the second moment that stays, in [0, 1).
        tau: Degree of adaptivity, > 0.
        yogi: Whether the second moment follows additively.
    """

    lr: float
    beta1: float
    beta2: float
    tau: float
    yogi: bool = False

    def __post_init__(self) -> None:
        _check_adaptive(self._kind, self.lr, self.beta1, self.tau)
        check_share(f"{self._kind}'s beta2", self.beta2)

    @property
    def _kind(self) -> str:
        return "yogi" if self.yogi else "adam"

    @property
    def name(self) -> str:
        """The text it is configured by."""
        return f"{self._kind}:{self.lr!r},{self.beta1!r},{self.beta2!r},{self.tau!r}"

    @property
    def initial(self) -> Sequence[float]:
        """A mean of 0 and a second moment of tau^2."""
        return (0.0, self.tau**2)

    def step(self, params: Vector, update: Vector, state: Sequence[Vector], out: Vector) -> int:
        """Write the new parameters and move both moments on."""
        mean, second = state
        with np.errstate(all="ignore"):
            square = np.square(update)
            if self.yogi:
                sign = np.sign(second - square)
                square *= np.float32(1.0 - self.beta2)
                square *= sign
                second -= square
            else:
                square *= np.float32(1.0 - self.beta2)
                second *= np.float32(self.beta2)
                second += square
            return _adapt(params, update, mean, second, self.lr, self.beta1, self.tau, out)


def _check_adaptive(kind: str, lr: float, beta1: float, tau: float) -> None:
    check_positive(f"{kind}'s lr", lr)
    check_share(f"{kind}'s beta1", beta1)
    check_positive(f"{kind}'s tau", tau)


# The second moment is new already. Where it is infinite the parameters are finite all the same, and would stay as they
# are from then on: so it is looked at, too.
def _adapt(
    params: Vector,
    update: Vector,
    mean: Vector,
    second: Vector,
    lr: float,
    beta1: float,
    tau: float,
    out: Vector,
) -> int:
    mean *= np.float32(beta1)
    np.multiply(update, np.float32(1.0 - beta1), out=out)
    mean += out
    scale = np.sqrt(second)
    scale += np.float32(tau)
    np.divide(mean, scale, out=out)
    out *= np.float32(lr)
    out += params
    position = first_nonfinite(out)
    return position if position >= 0 else first_nonfinite(second)


def sgd() -> Sgd:
    """Return the plain step, scaled by ``server_lr``."""
    return Sgd()


def momentum(lr: float = 1.0, beta: float = 0.9) -> Momentum:
    """Return server momentum (FedAvgM).

    Args:
        lr: Server learning rate, > 0.
        beta: Share of the velocity that stays, in [0, 1).
    """
    return Momentum(lr, beta)


def nesterov(lr: float = 0.7, beta: float = 0.9) -> Momentum:
    """Return Nesterov momentum, DiLoCo's outer optimizer.

    Args:
        lr: Server learning rate, > 0.
        beta: Share of the velocity that stays, in [0, 1).
    """
    return Momentum(lr, beta, nesterov=True)


def adam(lr: float = 0.01, beta1: float = 0.9, beta2: float = 0.99, tau: float = 1e-3) -> Adam:
    """Return FedAdam; its arguments are those of :class:`Adam`."""
    return Adam(lr, beta1, beta2, tau)


def yogi(lr: float = 0.01, beta1: float = 0.9, beta2: float = 0.99, tau: float = 1e-3) -> Adam:
    """Return FedYogi; its arguments are those of :class:`Adam`."""
    return Adam(lr, beta1, beta2, tau, yogi=True)


def adagrad(lr: float = 0.01, beta1: float = 0.0, tau: float = 1e-3) -> Adagrad:
    """Return FedAdagrad; its arguments are those of :class:`Adagrad`."""
    return Adagrad(lr, beta1, tau)
