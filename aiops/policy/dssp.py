"""Dynamic stale synchronous parallel: a bound on the lead that moves within a range, push by push.

The controller is a function of the view alone. What it grants lasts for several pushes, so that is state, and the
engine's: it asks once per push that would have to wait, and shows what it granted in every view.
"""

from __future__ import annotations

import itertools
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from aiops.errors import ConfigError
from aiops.policy.base import PushTimes, RoundView
from aiops.policy.number import is_count
from aiops.types import WorkerId

# A wider range bounds nothing any more, and the controller looks at each push in it.
MOST_RANGE = 1000


@dataclass(frozen=True, slots=True)
class DynamicStaleSynchronous:
    """Dynamic stale synchronous parallel, DSSP (Zhao et al., 2019): the fastest waits when that costs it the least.

    A worker that leads the slowest by at most ``low`` local steps goes on, as under SSP. If the fastest one leads by
    more, both are simulated with their last push intervals, the fastest from now on and the slowest from its last
    push: it is granted as many further pushes as bring one of its next pushes nearest to one of the slowest's, where
    it will wait the shortest, and waits at once if that is now. Whoever goes on leads by at most ``high``. Intervals
    leave out how long an answer was held back. Of several slowest ones the last to be expected counts.

    Attributes:
        low: Lead up to which everybody goes on, in local steps, >= 0.
        high: Largest lead with which a worker goes on, in local steps, > ``low``.
    """

    low: int
    high: int

    def __post_init__(self) -> None:
        if not is_count(self.low):
            raise ConfigError(f"dssp's low is {self.low!r}, it must be a whole number >= 0")
        if not (is_count(self.high) and 0 < self.high - self.low <= MOST_RANGE):
            raise ConfigError(
                f"dssp's high is {self.high!r}, it must be a whole number > low = {self.low} "
                f"and <= low + {MOST_RANGE} (ssp is the bound that does not move)"
            )

    @property
    def barrier(self) -> bool:
        """False: a push is merged on arrival, only its answer waits."""
        return False

    @property
    def max_staleness(self) -> int | None:
        """None: the bound is on clocks, which bounds the age of a base by itself."""
        return None

    def ready(self, view: RoundView) -> AbstractSet[WorkerId]:
        """Return whose push came first: each makes a version of its own, at its own weight."""
        return frozenset(itertools.islice(view.held, 1))

    def may_proceed(self, worker: WorkerId, view: RoundView) -> bool:
        """Return whether the worker's lead is at most ``low``, or what it was granted is not used up."""
        clock = view.clocks.get(worker)
        if clock is None or clock - view.least() <= self.low:
            return True
        return clock < view.granted.get(worker, 0)

    def grant(self, worker: WorkerId, view: RoundView) -> int:
        """Return how many local steps further the fastest worker may go, 0 for everybody else."""
        clock, slowest = view.clocks[worker], view.least()
        if clock < max(view.clocks.values()):
            return 0
        own = view.times.get(worker)
        others = [view.times.get(other) for other, at in view.clocks.items() if at == slowest]
        rivals = [times for times in others if times is not None and times.interval_s > 0.0]
        if own is None or not own.interval_s > 0.0 or not own.n_steps or len(rivals) < len(others):
            return 0
        rival = max(rivals, key=lambda times: times.last + times.interval_s)
        # The last of them is begun with a lead of at most ``high``.
        most = max(0, (self.high - (clock - slowest)) // own.n_steps + 1)
        return own.n_steps * _nearest(view.now, own.interval_s, rival, most=most)


# How many pushes from now on, at most so many, bring the fastest nearest to a push of its rival; the fewest of several.
def _nearest(now: float, interval_s: float, rival: PushTimes, *, most: int) -> int:
    def distance_s(pushes: int) -> float:
        at = now + pushes * interval_s
        first = rival.last + rival.interval_s
        earlier = min(max(0, int((at - first) / rival.interval_s)), most)
        return min(
            abs(first + k * rival.interval_s - at) for k in (earlier, min(earlier + 1, most))
        )

    return min(range(most + 1), key=distance_s)


def dssp(low: int, high: int) -> DynamicStaleSynchronous:
    """Return dynamic stale synchronous parallel: like ssp, with a bound between ``low`` and ``high``.

    Args:
        low: Lead over the slowest live member up to which everybody goes on, in local steps, >= 0.
        high: Largest lead with which a worker goes on, in local steps, > ``low``; the paper uses 3 and 15.
    """
    return DynamicStaleSynchronous(low, high)
