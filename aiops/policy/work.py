"""Work policies: how much each worker computes between two pushes, and whether it waits for the model."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from aiops.errors import ConfigError
from aiops.policy.base import Work, WorkerView
from aiops.policy.number import is_count
from aiops.types import WorkerId

# More local steps than this between two pushes are nobody's plan, but the outcome of a step time that is none.
MOST_STEPS = 1_000_000


@dataclass(frozen=True, slots=True)
class Fixed:
    """A fixed number of local steps, then wait for the model.

    One step is synchronous SGD; more are FedAvg (McMahan et al., 2017) and local SGD (Stich, 2019).

    Attributes:
        steps: Local steps per push, >= 1.
    """

    steps: int

    def __post_init__(self) -> None:
        if not is_count(self.steps, 1):
            raise ConfigError(f"fixed's steps is {self.steps!r}, it must be a whole number >= 1")

    @property
    def overlap(self) -> bool:
        """False: a worker waits for the model before it goes on."""
        return False

    @property
    def each(self) -> Work:
        """So many steps, then wait."""
        return Work(self.steps, self.steps)

    def plan(self, monitor: Mapping[WorkerId, WorkerView]) -> Mapping[WorkerId, Work]:
        """Return the same number of steps for everybody."""
        return dict.fromkeys(monitor, self.each)


@dataclass(frozen=True, slots=True)
class UntilModel:
    """NBSync's flexible computing (Zhou et al., 2023): go on until the new model is there.

    The number of local steps then follows each worker's speed and link by itself, round by round.

    Attributes:
        min_steps: Local steps before a push, >= 1.
        max_steps: Local steps at which a worker waits after all, >= ``min_steps``; None means never.
    """

    min_steps: int = 1
    max_steps: int | None = None

    def __post_init__(self) -> None:
        if not is_count(self.min_steps, 1):
            raise ConfigError(
                f"until_model's min_steps is {self.min_steps!r}, it must be a whole number >= 1"
            )
        if self.max_steps is not None and not (
            is_count(self.max_steps, 1) and self.max_steps >= self.min_steps
        ):
            raise ConfigError(
                f"until_model's max_steps is {self.max_steps!r}, "
                f"it must be a whole number >= min_steps = {self.min_steps}"
            )

    @property
    def overlap(self) -> bool:
        """True: a worker computes while its push and the model travel."""
        return True

    @property
    def each(self) -> Work:
        """The limits; what is done within them differs."""
        return Work(self.min_steps, self.max_steps)

    def plan(self, monitor: Mapping[WorkerId, WorkerView]) -> Mapping[WorkerId, Work]:
        """Return the same limits for everybody; what is done within them differs."""
        return dict.fromkeys(monitor, self.each)


@dataclass(frozen=True, slots=True)
class FillTheSync:
    """Overlapped rounds of one length for everybody, long enough to hide every worker's synchronization.

    With c_k the step time of worker k and S_k its link time (up, merge and down, without the wait for others), all in
    seconds and measured, a round lasts L = max(max S_k, ``floor`` * min c_k, max c_k), and worker k makes
    max(1, round(L / c_k)) local steps before it pushes; while the model travels it goes on computing. So nobody waits
    for anybody, nobody pushes before the last model has come, and where links are fast the rounds are still as long
    as ``floor`` asks. A worker that is not measured yet, and everybody until one link is, works as under
    :class:`UntilModel`. Times are those that the worker loops of this library report with each push.

    ``cap`` bounds a worker's steps per round. It is what keeps long phases stable: an update is merged one version
    late, and with rho the factor by which one local phase shrinks the distance to its optimum and g the server's
    learning rate, identical quadratics oscillate once g * (1 - rho) > 1/4, the more the nearer rho is to 0. Where a
    step shrinks it by (1 - lr * curvature), rho is that to the power of the steps. Nothing that the server sees tells
    rho, so it is not guessed: if the global loss swings from round to round, lower the cap (or the server's learning
    rate, to 0.25 to 0.5) until it does not.

    Attributes:
        floor: Shortest round, in local steps of the fastest worker, >= 1.
        cap: Most local steps of a worker per round, at which it waits for the model, >= ``floor``; None is no limit.
    """

    floor: int = 8
    cap: int | None = None

    def __post_init__(self) -> None:
        if not is_count(self.floor, 1):
            raise ConfigError(
                f"fill_the_sync's floor is {self.floor!r}, it must be a whole number >= 1"
            )
        if self.cap is not None and not (is_count(self.cap, 1) and self.cap >= self.floor):
            raise ConfigError(
                f"fill_the_sync's cap is {self.cap!r}, "
                f"it must be a whole number >= floor = {self.floor}"
            )

    @property
    def overlap(self) -> bool:
        """True: a worker computes while its push and the model travel."""
        return True

    def plan(self, monitor: Mapping[WorkerId, WorkerView]) -> Mapping[WorkerId, Work]:
        """Return as many steps for each worker as fill the round."""
        times = [view.step_s for view in monitor.values() if _is_measured(view.step_s)]
        link_s = max((v.link_s for v in monitor.values() if _is_measured(v.link_s)), default=0.0)
        window_s = max(link_s, self.floor * min(times), *times) if times and link_s else 0.0
        most = MOST_STEPS if self.cap is None else self.cap
        return {
            worker: Work(_fitting(window_s, view.step_s, most=most), self.cap)
            for worker, view in monitor.items()
        }


def _is_measured(seconds: float) -> bool:
    return 0.0 < seconds < math.inf


def _fitting(window_s: float, step_s: float, *, most: int) -> int:
    if not _is_measured(step_s):
        return 1
    return max(1, round(min(window_s / step_s, most)))


@dataclass(frozen=True, slots=True)
class Fragments:
    """Streaming DiLoCo (Douillard et al., 2025): the model goes in fragments, one after the other, while steps go on.

    Attributes:
        count: Fragments of the model, >= 1.
        steps: Local steps in which each of them is pushed once, a multiple of ``count``.
        delay: Local steps between a push and the adoption of its answer, less than ``steps / count``.
    """

    count: int
    steps: int
    delay: int

    def __post_init__(self) -> None:
        for name in ("count", "steps"):
            if not is_count(getattr(self, name), 1):
                raise ConfigError(
                    f"fragments' {name} is {getattr(self, name)!r}, it must be a whole number >= 1"
                )
        if self.steps % self.count:
            raise ConfigError(
                f"fragments' steps are {self.steps}, they must be a multiple of the {self.count} fragments"
            )
        between = self.steps // self.count
        if self.delay != 0 and not (is_count(self.delay, 1) and self.delay < between):
            raise ConfigError(
                f"fragments' delay is {self.delay!r}, it must be a whole number of 0 or more steps and less than "
                f"the {between} between two pushes"
            )

    @property
    def overlap(self) -> bool:
        """True: a worker computes while its push and the answer travel."""
        return True

    @property
    def each(self) -> Work:
        """The steps between two pushes."""
        return Work(self.steps // self.count, None)

    def plan(self, monitor: Mapping[WorkerId, WorkerView]) -> Mapping[WorkerId, Work]:
        """Return the steps between two pushes for everybody."""
        return dict.fromkeys(monitor, self.each)


def fixed(steps: int) -> Fixed:
    """Return blocking rounds of ``steps`` local steps: 1 is synchronous SGD, more are FedAvg.

    Args:
        steps: Local steps per push, >= 1.
    """
    return Fixed(steps)


def until_model(min_steps: int = 1, max_steps: int | None = None) -> UntilModel:
    """Return NBSync's overlapped work: local steps until the new model has arrived.

    Args:
        min_steps: Local steps before a push, >= 1.
        max_steps: Local steps at which a worker waits, >= ``min_steps``; None means that it never waits.
    """
    return UntilModel(min_steps, max_steps)


def fill_the_sync(floor: int = 8, cap: int | None = None) -> FillTheSync:
    """Return overlapped rounds that all workers fill, planned from measured step and link times.

    Args:
        floor: Shortest round, in local steps of the fastest worker, >= 1.
        cap: Most local steps of a worker per round, >= ``floor``; None is no limit. See :class:`FillTheSync`.
    """
    return FillTheSync(floor, cap)


def fragments(count: int, steps: int, delay: int = 1) -> Fragments:
    """Return Streaming DiLoCo's work: a fragment of the model is pushed every ``steps / count`` local steps.

    Args:
        count: Fragments of the model, >= 1.
        steps: Local steps in which each of them is pushed once, a multiple of ``count``.
        delay: Local steps between a push and the adoption of its answer, less than ``steps / count``.
    """
    return Fragments(count, steps, delay)
