"""How the learning rate follows a batch that changes from step to step."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from aiops.errors import ConfigError
from aiops.policy.base import PushView
from aiops.policy.number import is_count, is_real

# More samples in one update than anybody has.
MOST = 2**53
# Ours: without a cap a flood of samples would end a training. As many steps as that are a minute of one a second.
CAP = 8.0
WARMUP_STEPS = 60


@dataclass(frozen=True, slots=True)
class LearningRate:
    """The linear scaling of ScaDLES (Tyagi and Swany, 2022, Eqn 4c): eta times a step's samples over ``base_batch``.

    The paper has neither cap nor warm-up: ``LearningRate(base_batch, cap=None, warmup=0)``. Warm-up is the gradual one
    of Goyal et al. (2017): the factor goes from 1 to its value in equal steps. A factor below 1 has none.

    Attributes:
        base_batch: Samples of a step, of all devices together, that eta is meant for, from 1 to 2**53.
        cap: Largest factor, >= 1; None or inf is no limit.
        warmup: Steps until a factor above 1 has its full value, >= 0.
    """

    base_batch: int
    cap: float | None = CAP
    warmup: int = WARMUP_STEPS

    def __post_init__(self) -> None:
        if not is_count(self.base_batch, 1) or self.base_batch > MOST:
            raise ConfigError(
                f"the learning rate's base_batch is {self.base_batch!r}, it must be a whole number from 1 to {MOST}"
            )
        unlimited = self.cap is None or self.cap == math.inf
        if not (unlimited or (is_real(self.cap) and self.cap >= 1)):
            raise ConfigError(
                f"the learning rate's cap is {self.cap!r}, it must be >= 1, or inf for no limit"
            )
        if not is_count(self.warmup):
            raise ConfigError(
                f"the learning rate's warmup is {self.warmup!r}, it must be a whole number >= 0"
            )

    def factor(self, step: int, total_batch: int) -> float:
        """Return what eta is multiplied by in a step.

        Args:
            step: Steps finished before it.
            total_batch: Samples of it, of all devices together.
        """
        full = total_batch / self.base_batch
        if self.cap is not None:
            full = min(full, self.cap)
        if full <= 1 or step >= self.warmup:
            return full
        return 1.0 + (full - 1.0) * (step / self.warmup)


@dataclass(frozen=True, slots=True)
class LinearScaling:
    """:class:`LearningRate` of a server's updates: a factor of weights, the same for all pushes of an update.

    ``by_samples*linear_scaling:640`` is ScaDLES through a parameter server. Steps are versions of the model. Where
    workers wait for each step of plain SGD, it is their learning rate that is scaled. Over several local steps, or
    overlapped ones, it scales what they came to, as a server's learning rate does: there a factor far above 1
    diverges sooner than so large a learning rate would.

    Attributes:
        rate: The factor of an update.
    """

    rate: LearningRate

    def __call__(self, pushes: Sequence[PushView]) -> Sequence[float]:
        """Return the factor of these pushes' samples together, for each of them."""
        return [self.scale(pushes)] * len(pushes)

    def raw(self, push: PushView) -> float:
        """Return 1."""
        return 1.0

    def scale(self, pushes: Sequence[PushView]) -> float:
        """Return the factor; 0 of no push."""
        version = max((push.base + push.staleness for push in pushes), default=0)
        return self.rate.factor(version, sum(push.n_samples for push in pushes))


def linear_scaling(
    base_batch: int, cap: float | None = CAP, warmup: int = WARMUP_STEPS
) -> LinearScaling:
    """Return the factor by which an update follows its samples.

    Args:
        base_batch: Samples of an update, of all workers and local steps together, that the learning rate is meant
            for, from 1 to 2**53.
        cap: Largest factor, >= 1; None or inf is no limit.
        warmup: Versions until a factor above 1 has its full value, >= 0.
    """
    return LinearScaling(LearningRate(base_batch, cap, warmup))
