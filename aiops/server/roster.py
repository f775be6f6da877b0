"""The workers that the engine knows: since when, how far they are, and what was measured of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from aiops.policy.base import PushTimes, WorkerView
from aiops.server.event import Pushed
from aiops.server.monitor import Pace
from aiops.types import Clock, Version, WorkerId


@dataclass(slots=True)
class Member:
    """One life of a worker.

    Attributes:
        joined: Rounds that were closed when it came.
        clock: Its local steps, and those of the slowest before it came.
        pace: What was measured of it.
    """

    joined: Version
    clock: Clock
    pace: Pace


class Times(Mapping[WorkerId, PushTimes]):
    """When each active member pushed, made for those that are asked about.

    Args:
        active: The active ones.
        members: All members.
    """

    def __init__(
        self, active: Mapping[WorkerId, Clock], members: Mapping[WorkerId, Member]
    ) -> None:
        self._active, self._members = active, members

    def __getitem__(self, worker: WorkerId) -> PushTimes:
        """Return one's; KeyError where it is not active."""
        if worker not in self._active:
            raise KeyError(worker)
        return self._members[worker].pace.times()

    def __iter__(self) -> Iterator[WorkerId]:
        """Iterate over the active members."""
        return iter(self._active)

    def __len__(self) -> int:
        """Return how many are active."""
        return len(self._active)


@dataclass(slots=True)
class Roster:
    """The members by worker.

    Attributes:
        clocks: Local steps of the active ones, which have pushed: a round waits for them until they leave. Changed
            here alone.
        granted: How far those may go that a policy lets go on for several pushes.
        entered: The active ones that have not pushed: they have asked for what their first push has to be like.
    """

    clocks: dict[WorkerId, Clock] = field(default_factory=dict)
    granted: dict[WorkerId, Clock] = field(default_factory=dict)
    entered: set[WorkerId] = field(default_factory=set)
    _members: dict[WorkerId, Member] = field(default_factory=dict)
    # The least of the clocks and how many have it, so that it is looked for only once all of them have gone on: a
    # look takes time for every member. Clocks never fall, and a newcomer's is no smaller; -1 is nobody's.
    _least: Clock = field(default=Clock(-1))
    _n_least: int = 0

    def __contains__(self, worker: WorkerId) -> bool:
        """Return whether ``worker`` has joined and not left."""
        return worker in self._members

    def get(self, worker: WorkerId) -> Member | None:
        """Return a member; None if the worker is none."""
        return self._members.get(worker)

    def here(self, workers: set[WorkerId]) -> set[WorkerId]:
        """Return those of the workers that are members."""
        return workers & self._members.keys()

    def join(self, worker: WorkerId, version: Version, now: float) -> None:
        """Let a worker in, level with the slowest."""
        self._members[worker] = Member(version, self.slowest(), Pace(now))

    def leave(self, worker: WorkerId) -> None:
        """Let a worker go, if it is here."""
        self._members.pop(worker, None)
        self.granted.pop(worker, None)
        self.entered.discard(worker)
        if self.clocks.pop(worker, None) == self._least:
            self._n_least -= 1
        if not self.clocks:
            self._least, self._n_least = Clock(-1), 0

    def enter(self, worker: WorkerId) -> None:
        """Have rounds wait for a member that has not pushed yet; nothing happens where they do already."""
        if worker in self.clocks:
            return
        member = self._members[worker]
        self.clocks[worker] = member.clock = max(member.clock, self.slowest())
        self._n_least += member.clock == self._least
        self.entered.add(worker)

    def pushed(self, push: Pushed, now: float) -> Pace:
        """Count the steps of a member's push and its measurements in; return its pace."""
        member, clocks = self._members[push.worker], self.clocks
        before, clock = clocks.get(push.worker), Clock(member.clock + push.n_steps)
        if before is None:
            # A newcomer is at least level with the slowest, so that nobody is held up by its past.
            clock = max(clock, self.slowest())
        clocks[push.worker] = member.clock = clock
        if clock != before:
            self._n_least += (clock == self._least) - (before == self._least)
        self.entered.discard(push.worker)
        member.pace.pushed(push, now)
        return member.pace

    def declined(self, worker: WorkerId) -> None:
        """Note that a push was not taken."""
        member = self._members.get(worker)
        if member is not None:
            member.pace.declined()

    def answered(self, worker: WorkerId, now: float) -> None:
        """Note that a merged push is answered."""
        member = self._members.get(worker)
        if member is not None:
            member.pace.answered(now)

    def views(self) -> dict[WorkerId, WorkerView]:
        """Return what a work policy may see of every member."""
        views = {}
        for worker, member in self._members.items():
            pace = member.pace
            views[worker] = WorkerView(member.clock, pace.step_s, pace.sync_s, pace.link_s)
        return views

    def times(self) -> Times:
        """Return when each active member pushed; it goes with what happens here."""
        return Times(self.clocks, self._members)

    def slowest(self) -> Clock:
        """Return the least clock of the active members, 0 where nobody is."""
        if not self.clocks:
            return Clock(0)
        if not self._n_least:
            clocks = list(self.clocks.values())
            self._least = min(clocks)
            self._n_least = clocks.count(self._least)
        return self._least
