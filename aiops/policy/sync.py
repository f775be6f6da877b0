"""Synchronization models: bulk (BSP), asynchronous (ASP), stale synchronous (SSP) and buffered (FedBuff).

They decide when held pushes become a new version and who is answered meanwhile; they know members, clocks and
versions, and no numbers of the model.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from aiops.errors import ConfigError
from aiops.policy.base import PushView, RoundView
from aiops.policy.number import is_count
from aiops.types import WorkerId

_NOBODY: frozenset[WorkerId] = frozenset()


@dataclass(frozen=True, slots=True)
class Bulk:
    """Bulk synchronous parallel (Valiant, 1990): a round closes when every live member has a push held.

    A push that was held when its sender left still counts: its work is done. A leave therefore closes the round
    at once when it was the last one missing.

    Attributes:
        max_staleness: Oldest base that is merged, in rounds behind the shard; None means any.
    """

    max_staleness: int | None = 1

    @property
    def barrier(self) -> bool:
        """True."""
        return True

    def __post_init__(self) -> None:
        if self.max_staleness is not None and not is_count(self.max_staleness):
            raise ConfigError(
                f"bulk's max_staleness is {self.max_staleness!r}, it must be a whole number >= 0"
            )

    def ready(self, view: RoundView) -> AbstractSet[WorkerId]:
        """Return everybody with a push, once no live member is without one."""
        if view.clocks.keys() <= view.held.keys():
            return frozenset(view.held)
        return _NOBODY

    def may_proceed(self, worker: WorkerId, view: RoundView) -> bool:
        """Return True: a merged push means that the round is closed."""
        return True


# The earliest push alone: what came while a merge was under way is not averaged with it.
def _first(view: RoundView) -> AbstractSet[WorkerId]:
    return frozenset(itertools.islice(view.held, 1))


@dataclass(frozen=True, slots=True)
class Asynchronous:
    """Asynchronous parallel (Downpour SGD, Dean et al., 2012): merge on arrival, answer at once."""

    @property
    def barrier(self) -> bool:
        """False."""
        return False

    @property
    def max_staleness(self) -> int | None:
        """None: every base is merged; a weight rule makes old ones count less."""
        return None

    def ready(self, view: RoundView) -> AbstractSet[WorkerId]:
        """Return whose push came first: each makes a version of its own, at its own weight."""
        return _first(view)

    def may_proceed(self, worker: WorkerId, view: RoundView) -> bool:
        """Return True: nobody waits."""
        return True


@dataclass(frozen=True, slots=True)
class StaleSynchronous:
    """Stale synchronous parallel (Ho et al., 2013): merge on arrival, answer who is not too far ahead.

    Attributes:
        bound: Largest lead over the slowest live member with which a worker may go on, in local steps, >= 0.
            0 is lock-step.
    """

    bound: int

    @property
    def barrier(self) -> bool:
        """False: a push is merged on arrival, only its answer waits."""
        return False

    def __post_init__(self) -> None:
        if not is_count(self.bound):
            raise ConfigError(f"ssp's bound is {self.bound!r}, it must be a whole number >= 0")

    @property
    def max_staleness(self) -> int | None:
        """None: the bound is on clocks, which bounds the age of a base by itself."""
        return None

    def ready(self, view: RoundView) -> AbstractSet[WorkerId]:
        """Return whose push came first: each makes a version of its own, at its own weight."""
        return _first(view)

    def may_proceed(self, worker: WorkerId, view: RoundView) -> bool:
        """Return whether the worker leads the slowest live member by at most ``bound`` steps."""
        clock = view.clocks.get(worker)
        # Whoever is no member any more holds nobody up.
        return clock is None or clock - view.least() <= self.bound


@dataclass(frozen=True, slots=True)
class Buffered:
    """Buffered asynchronous aggregation (FedBuff, Nguyen et al., 2022): every ``size`` pushes make a version.

    A push that waits for others is answered at once, with the newest model, which it is not part of; the one that
    fills the buffer is answered with the version that it makes. A worker may have several pushes in one buffer. The
    update is server_lr / size times the sum of s(staleness) * push, so the weights are ``uniform*by_staleness:0.5``:
    divided by the number of pushes, not by the sum of the weights. Staleness counts to the version before the one
    that a push becomes part of, also where that was made after it came.

    What was answered is gone for its worker: where the sum is not finite, or a run ends with a buffer half full, those
    pushes are lost without a word to who sent them.

    Attributes:
        size: Pushes that make a version (the paper's K), >= 1.
        max_staleness: Oldest base that is merged, in rounds behind the shard when the push comes; None means any.
    """

    size: int
    max_staleness: int | None = None

    def __post_init__(self) -> None:
        if not is_count(self.size, 1):
            raise ConfigError(f"buffered's size is {self.size!r}, it must be a whole number >= 1")
        if self.max_staleness is not None and not is_count(self.max_staleness):
            raise ConfigError(
                f"buffered's max_staleness is {self.max_staleness!r}, "
                "it must be a whole number >= 0"
            )

    @property
    def barrier(self) -> bool:
        """False: whose pushes come next is not known."""
        return False

    def take(self, pushes: Sequence[PushView]) -> int:
        """Return ``size`` as soon as so many pushes wait."""
        return self.size if len(pushes) >= self.size else 0

    def ready(self, view: RoundView) -> AbstractSet[WorkerId]:
        """Return whose pushes :meth:`take` means, where each worker has one."""
        return frozenset(itertools.islice(view.held, self.take(list(view.held.values()))))

    def may_proceed(self, worker: WorkerId, view: RoundView) -> bool:
        """Return True: nobody waits."""
        return True


def bulk(*, max_staleness: int | None = 1) -> Bulk:
    """Return bulk synchronous parallel: one push of every live member makes a version.

    Args:
        max_staleness: Oldest base that is merged, in rounds; None means any. 1 is what overlapped workers need,
            whose update is always one version old; blocking ones (FedAvg, SSGD) need only 0.
    """
    return Bulk(max_staleness)


def asynchronous() -> Asynchronous:
    """Return asynchronous parallel: every push makes a version on arrival."""
    return Asynchronous()


def ssp(bound: int) -> StaleSynchronous:
    """Return stale synchronous parallel: like asynchronous, but fast workers wait.

    Args:
        bound: Largest lead over the slowest live member, in local steps, >= 0; 3 to 10 is usual.
    """
    return StaleSynchronous(bound)


def buffered(size: int, max_staleness: int | None = None) -> Buffered:
    """Return FedBuff's rule: nobody waits, and every ``size`` pushes make a version.

    Args:
        size: Pushes that make a version, >= 1; 10 for many workers, 3 for a dozen.
        max_staleness: Oldest base that is merged, in rounds; None means any.
    """
    return Buffered(size, max_staleness)
