"""The workers that the engine knows: since when, how far they are, and what was measured of them."""

from __future__ import annotations

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


@dataclass(slots=True)
class Roster:
    """The members by worker.

    Attributes:
        clocks: Local steps of the active ones, which have pushed: a round waits for them until they leave.
    """

    clocks: dict[WorkerId, Clock] = field(default_factory=dict)
    _members: dict[WorkerId, Member] = field(default_factory=dict)

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
        self._members[worker] = Member(version, self._slowest(), Pace(now))

    def leave(self, worker: WorkerId) -> None:
        """Let a worker go, if it is here."""
        self._members.pop(worker, None)
        self.clocks.pop(worker, None)

    def pushed(self, push: Pushed, now: float) -> Pace:
        """Count the steps of a member's push and its measurements in; return its pace."""
        member = self._members[push.worker]
        member.clock = Clock(member.clock + push.n_steps)
        if push.worker not in self.clocks:
            # A newcomer is at least level with the slowest, so that nobody is held up by its past.
            member.clock = max(member.clock, self._slowest())
        self.clocks[push.worker] = member.clock
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
        return {worker: member.pace.view(member.clock) for worker, member in self._members.items()}

    def times(self) -> dict[WorkerId, PushTimes]:
        """Return when each active member pushed."""
        return {worker: self._members[worker].pace.times() for worker in self.clocks}

    def _slowest(self) -> Clock:
        return min(self.clocks.values(), default=Clock(0))
