"""The round machine: events in, actions out, no await in the file.

One engine decides for all shards of a process: a push is admitted or refused whole, so every shard closes the same
rounds and one version number speaks for all of them. The engine never opens a payload; it holds opaque handles and
hands them back inside the actions.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import msgspec

from aiops.errors import Busy, NotMember, Refused, StalePush, ZeroWeight
from aiops.policy.base import (
    PushView,
    RoundView,
    SyncPolicy,
    WeightRule,
    Work,
    WorkPolicy,
)
from aiops.server.event import (
    Action,
    Answer,
    Decline,
    Event,
    Handle,
    Joined,
    Left,
    Merge,
    Merged,
    MergeFailed,
    Pushed,
)
from aiops.server.monitor import Pace
from aiops.types import Clock, Version, WorkerId


@dataclass(slots=True)
class _Member:
    joined: Version
    clock: Clock
    pace: Pace


class _Held(msgspec.Struct):
    view: PushView
    handle: Handle
    pace: Pace


@dataclass(slots=True)
class Engine:
    """Decides when rounds close, what pushes weigh and who is answered.

    Attributes:
        sync: When a round is closed.
        weights: What each push of a round is worth.
        work: How much each worker computes.
        min_workers: No round closes before so many workers have pushed at least once.
        version: Rounds closed.
        started: Whether ``min_workers`` was reached.
    """

    sync: SyncPolicy
    weights: WeightRule
    work: WorkPolicy
    min_workers: int = 1
    version: Version = field(default=Version(0))
    started: bool = False
    _members: dict[WorkerId, _Member] = field(default_factory=dict)
    _held: dict[WorkerId, _Held] = field(default_factory=dict)
    _merging: dict[WorkerId, _Held] = field(default_factory=dict)
    # When the round of the merge that is under way, or was the last one, was closed.
    _closed: float = 0.0
    # The clocks of active members, which have pushed: a round waits for them. Kept by _hold, until they leave.
    _clocks: dict[WorkerId, Clock] = field(default_factory=dict)
    _parked: dict[WorkerId, Answer] = field(default_factory=dict)
    # Pushes of workers whose earlier life has one in the open round.
    _early: dict[WorkerId, Pushed] = field(default_factory=dict)
    _plan: dict[WorkerId, Work] = field(default_factory=dict)

    def handle(self, event: Event, now: float) -> list[Action]:
        """Take one event at time ``now`` (seconds of the loop's clock); return what is to be done, in order."""
        match event:
            case Pushed():
                return self._pushed(event, now)
            case Merged():
                return self._merged(now)
            case Joined(worker):
                self._members[worker] = _Member(self.version, self._slowest(), Pace(now))
                self._replan()
                return []
            case Left(worker):
                # What is held or merged of it still counts, and a parked answer is free now.
                self._members.pop(worker, None)
                self._clocks.pop(worker, None)
                self._replan()
                return self._turned_away(worker) + self._advance(now)
            case MergeFailed(error):
                failed, self._merging = self._merging, {}
                declined = [Decline(held.handle, error) for held in failed.values()]
                return declined + self._advance(now)

    def preview(
        self, coming: Sequence[Pushed], now: float
    ) -> tuple[list[WorkerId], tuple[float, ...]] | None:
        """Return what the open round closes with if these pushes come, and no other: workers in order and weights.

        None when it would not close with all that is held and coming then, or when the policy does not wait for them.
        """
        if self._merging or self._early or not self.sync.barrier:
            return None
        views = {worker: held.view for worker, held in self._held.items()}
        clocks = self.clocks()
        for push in coming:
            if self._objection(push) is not None or push.worker in views:
                return None
            views[push.worker] = self._view_of(push, now)
            clocks.setdefault(push.worker, Clock(0))
        live = self._clocks.keys()
        present = live | (views.keys() & self._members.keys())
        if not self.started and len(present) < self.min_workers:
            return None
        # The round does not wait for somebody who never pushed, unless it is the last one of min_workers.
        waited_for = not self.started and len(present) == self.min_workers
        if len(coming) > 1 and not waited_for and any(push.worker not in live for push in coming):
            return None
        view = RoundView(version=self.version, held=views, clocks=clocks, now=now)
        if not views or set(self.sync.ready(view)) != views.keys():
            return None
        workers = sorted(views)
        weights = tuple(self.weights([views[worker] for worker in workers]))
        return (workers, weights) if any(weights) else None

    def work_of(self, worker: WorkerId) -> Work:
        """Return how much ``worker`` computes before its next push."""
        return self._plan[worker]

    def is_member(self, worker: WorkerId) -> bool:
        """Return whether ``worker`` has joined and not left."""
        return worker in self._members

    @property
    def n_pushed(self) -> int:
        """Members that have pushed, in this life or before they came back, which ``min_workers`` counts."""
        held = self._held.keys() | self._early.keys()
        return len(self._clocks.keys() | (held & self._members.keys()))

    def waiting_for(self) -> list[WorkerId]:
        """Return the active members whose push the open round lacks, in order; for status reports."""
        if not self._held or self._merging:
            return []
        return sorted(self._clocks.keys() - self._held.keys())

    def clocks(self) -> dict[WorkerId, Clock]:
        """Return the local steps of every active member."""
        return self._clocks.copy()

    def _turned_away(self, worker: WorkerId) -> list[Action]:
        early = self._early.pop(worker, None)
        if early is None:
            return []
        return [Decline(early.handle, NotMember(f"worker {worker} left before its push was held"))]

    def _slowest(self) -> Clock:
        return min(self._clocks.values(), default=Clock(0))

    def _pushed(self, push: Pushed, now: float) -> list[Action]:
        error = self._objection(push)
        if error is not None:
            if push.worker in self._members:
                self._members[push.worker].pace.declined()
            return [Decline(push.handle, error)]
        # Of an active worker it would have been an objection.
        if push.worker not in self._clocks and self._has_push(push.worker):
            self._early[push.worker] = push
        else:
            self._hold(push, now)
        return self._advance(now)

    def _hold(self, push: Pushed, now: float) -> None:
        member = self._members[push.worker]
        member.clock = Clock(member.clock + push.n_steps)
        if push.worker not in self._clocks:
            # A newcomer is at least level with the slowest, so that nobody is held up by its past.
            member.clock = max(member.clock, self._slowest())
        self._clocks[push.worker] = member.clock
        member.pace.pushed(push, now)
        self._held[push.worker] = _Held(self._view_of(push, now), push.handle, member.pace)

    def _view_of(self, push: Pushed, now: float) -> PushView:
        return PushView(
            worker=push.worker,
            base=push.base,
            staleness=self.version - push.base,
            n_samples=push.n_samples,
            n_steps=push.n_steps,
            loss=push.loss,
            arrived=now,
        )

    def _has_push(self, worker: WorkerId) -> bool:
        return worker in self._held or worker in self._merging

    def _objection(self, push: Pushed) -> Refused | None:
        member = self._members.get(push.worker)
        if member is None:
            return NotMember(f"worker {push.worker} is not a member, its lease has ended")
        if push.base > self.version:
            return Refused(f"push starts from version {push.base}, the server is at {self.version}")
        active = push.worker in self._clocks
        # A worker that came back may find a push of its earlier life in the round; its own waits for the next.
        if push.worker in self._early or (active and self._has_push(push.worker)):
            return Busy(f"worker {push.worker} has a push in the open round, one is the limit")
        staleness, bound = self.version - push.base, self.sync.max_staleness
        # A newcomer's first push may be late however slow it is, or it could never get in.
        newcomer = not active and push.base >= member.joined
        if bound is not None and staleness > bound and not newcomer:
            return StalePush(staleness, bound)
        return None

    # Ask the policy whether a round closes now; at most one merge is under way.
    def _advance(self, now: float) -> list[Action]:
        actions = self._answers(now) if self._parked else []
        while not self._merging:
            if self._early:
                self._admit_early(now)
            if not self.started:
                self.started = self.n_pushed >= self.min_workers
                if not self.started:
                    break
            ready = self.sync.ready(self._view(now)) if self._held else ()
            if not ready:
                break
            # In worker order: float sums come out the same whoever was first.
            chosen = {worker: self._held.pop(worker) for worker in sorted(ready)}
            weights = tuple(self.weights([held.view for held in chosen.values()]))
            handles = tuple([held.handle for held in chosen.values()])
            if not any(weights):
                error = ZeroWeight(f"all {len(chosen)} pushes of the round weigh 0")
                actions += [Decline(handle, error) for handle in handles]
                continue
            self._merging, self._closed = chosen, now
            actions.append(Merge(handles, weights))
        return actions

    def _admit_early(self, now: float) -> None:
        for worker in sorted(self._early.keys() - self._held.keys()):
            self._hold(self._early.pop(worker), now)

    def _merged(self, now: float) -> list[Action]:
        self.version = Version(self.version + 1)
        merged, self._merging = self._merging, {}
        for worker, held in merged.items():
            held.pace.merged(self._closed - held.view.arrived, now)
            self._parked[worker] = Answer(
                held.handle, worker, self.version, held.view.staleness, len(merged)
            )
        self._replan()
        return self._advance(now)

    def _answers(self, now: float) -> list[Action]:
        view = self._view(now)
        free = [
            worker
            for worker in sorted(self._parked)
            if worker not in view.clocks or self.sync.may_proceed(worker, view)
        ]
        for worker in free:
            if worker in self._members:
                self._members[worker].pace.answered(now)
        return [self._parked.pop(worker) for worker in free]

    def _view(self, now: float) -> RoundView:
        return RoundView(
            version=self.version,
            held={worker: held.view for worker, held in self._held.items()},
            clocks=self._clocks.copy(),
            now=now,
        )

    def _replan(self) -> None:
        monitor = {
            worker: member.pace.view(member.clock) for worker, member in self._members.items()
        }
        self._plan = dict(self.work.plan(monitor))


def worker_names(workers: Iterable[WorkerId]) -> str:
    """Return worker numbers as a phrase for people."""
    return ", ".join(f"worker {worker}" for worker in workers)
