"""The round machine: events in, actions out, no await in the file.

One engine decides for all shards of a process: a push is admitted or refused whole, so every shard closes the same
rounds and one version number speaks for all of them. The engine never opens a payload; it holds opaque handles and
hands them back inside the actions.
"""

# Longer than 300 lines: one state decides all of it, and halves would hand each other every attribute.

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from types import MappingProxyType as Seen

from aiops.errors import Busy, NotMember, Refused, StalePush, ZeroWeight
from aiops.policy.base import (
    BufferPolicy,
    EvenWork,
    FoldableRule,
    GrantPolicy,
    RoundView,
    SyncPolicy,
    WeightRule,
    Work,
    WorkerView,
    WorkPolicy,
)
from aiops.server.event import (
    Action,
    Answer,
    Decline,
    Event,
    Fold,
    Joined,
    Left,
    Merge,
    Merged,
    MergeFailed,
    Pushed,
)
from aiops.server.roster import Roster
from aiops.server.round import Held, Round, given_up, view_of
from aiops.types import Clock, Version, WorkerId

# Added to a sum of float32 values with a larger weight, what others have pushed would be lost in the rounding.
MOST_RAW = 1e30


@dataclass(slots=True)
class Engine:
    """Decides when rounds close, what pushes weigh and who is answered.

    Attributes:
        sync: When a round is closed.
        weights: What each push of a round is worth.
        work: How much each worker computes.
        min_workers: No round closes before so many workers have pushed at least once.
        needs_data: Whether ``weights`` look at how many training samples a worker has.
        fold: Whether pushes are added to their round's sum as they come; the weights are a foldable rule then.
        version: Rounds closed.
        started: Whether ``min_workers`` was reached.
        turn: Rounds that were closed, and rounds that were given up.
    """

    sync: SyncPolicy
    weights: WeightRule
    work: WorkPolicy
    min_workers: int = 1
    needs_data: bool = False
    fold: bool = False
    version: Version = field(default=Version(0))
    started: bool = False
    turn: int = 0
    _roster: Roster = field(default_factory=Roster)
    _round: Round = field(default_factory=Round)
    _parked: dict[WorkerId, Answer] = field(default_factory=dict)
    # Pushes of workers whose earlier life has one in the open round.
    _early: dict[WorkerId, Pushed] = field(default_factory=dict)
    _plan: dict[WorkerId, Work] = field(default_factory=dict)
    _merged_at: float = 0.0
    # The policies as what they are beside: asked for once, since asking takes longer than a small push does.
    _buffer: BufferPolicy | None = None
    _granting: GrantPolicy | None = None
    _folding: FoldableRule | None = None
    # What everybody does, where that is the same for all.
    _each: Work | None = None
    # Workers that left with a push in the open round: they may come back before it closes.
    _departed: set[WorkerId] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._each = self.work.each if isinstance(self.work, EvenWork) else None
        self._buffer = self.sync if isinstance(self.sync, BufferPolicy) else None
        self._granting = self.sync if isinstance(self.sync, GrantPolicy) else None
        if self.fold:
            assert isinstance(self.weights, FoldableRule), "config has refused other rules"
            self._folding = self.weights

    def handle(self, event: Event, now: float) -> list[Action]:
        """Take one event at time ``now`` (seconds of the loop's clock); return what is to be done, in order."""
        match event:
            case Pushed():
                return self._pushed(event, now)
            case Merged():
                return self._merged(now)
            case Joined(worker):
                self._roster.join(worker, self.version, now)
                self._replan()
                return []
            case Left(worker):
                # What is held or merged of it still counts, and a parked answer is free now.
                self._roster.leave(worker)
                self._departed = {
                    one for one in (*self._departed, worker) if one in self._round.held
                }
                self._replan()
                return self._turned_away(worker) + self._advance(now)
            case MergeFailed(error):
                self.turn += 1
                return given_up(self._round.end(), error) + self._advance(now)

    def preview(
        self, coming: Sequence[Pushed], now: float
    ) -> tuple[list[WorkerId], tuple[float, ...]] | None:
        """Return what the open round closes with if these pushes come, and no other: workers in order and weights.

        None when it would not close with all that is held and coming then, or when the policy does not wait for them.
        """
        if self._round.busy or self._early or not self.sync.barrier or self.fold:
            return None
        held, here = self._round.views, self._roster
        # The round waits for every live member, so that most answers are told from numbers alone.
        missing = len(here.clocks) - len(held) if self.started else self.min_workers - self.n_pushed
        if len(coming) < missing:
            return None
        views, clocks = dict(held), self.clocks()
        for push in coming:
            if self._objection(push) is not None or push.worker in views:
                return None
            views[push.worker] = view_of(push, self.version, now)
            clocks.setdefault(push.worker, Clock(0))
        live = here.clocks.keys()
        present = live | here.here(set(views))
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
        return self._plan[worker] if self._each is None else self._each

    def views(self) -> dict[WorkerId, WorkerView]:
        """Return what was measured of every member."""
        return self._roster.views()

    def is_member(self, worker: WorkerId) -> bool:
        """Return whether ``worker`` has joined and not left."""
        return worker in self._roster

    @property
    def n_pushed(self) -> int:
        """Members that have pushed, in this life or before they came back, which ``min_workers`` counts."""
        held = self._departed & self._round.held.keys()
        back = self._roster.here(held | self._early.keys())
        active = self._roster.clocks.keys()
        return len(active) - len(self._roster.entered) + len(back - active)

    @property
    def active(self) -> AbstractSet[WorkerId]:
        """Members that rounds wait for."""
        return self._roster.clocks.keys()

    def may_enter(self, worker: WorkerId) -> bool:
        """Return whether a member's next push can be one of the open round: that is not closing, nor has one of it."""
        return not (self._round.busy or self._round.has_push(worker) or worker in self._early)

    def enter(self, worker: WorkerId) -> None:
        """Have the open round wait for the push of a member that may enter it."""
        self._roster.enter(worker)

    def waiting_for(self) -> list[WorkerId]:
        """Return the active members whose push the open round lacks, in order; for status reports."""
        if not self._round.held or self._round.busy:
            return []
        return sorted(self._roster.clocks.keys() - self._round.held.keys())

    def waits(self, worker: WorkerId) -> bool:
        """Return whether a push of ``worker`` waits for those of others."""
        return worker in self._round.held or worker in self._parked

    def clocks(self) -> dict[WorkerId, Clock]:
        """Return the local steps of every active member."""
        return self._roster.clocks.copy()

    def _turned_away(self, worker: WorkerId) -> list[Action]:
        early = self._early.pop(worker, None)
        if early is None:
            return []
        return [Decline(early.handle, NotMember(f"worker {worker} left before its push was held"))]

    def _pushed(self, push: Pushed, now: float) -> list[Action]:
        error = self._objection(push)
        if error is not None:
            self._roster.declined(push.worker)
            return [Decline(push.handle, error)]
        # Of an active worker it would have been an objection.
        if push.worker not in self._roster.clocks and self._round.has_push(push.worker):
            self._early[push.worker] = push
            return self._advance(now)
        return self._hold(push, now) + self._advance(now)

    def _hold(self, push: Pushed, now: float) -> list[Action]:
        pace, view = self._roster.pushed(push, now), view_of(push, self.version, now)
        first = not self._round.held
        self._round.hold(push.worker, Held(view, push.handle, pace))
        if self._folding is None:
            return []
        return [Fold(push.handle, self._folding.raw(view), first)]

    def _objection(self, push: Pushed) -> Refused | None:
        member = self._roster.get(push.worker)
        if member is None:
            return NotMember(f"worker {push.worker} is not a member, its lease has ended")
        if self.needs_data and not push.n_data:
            return Refused(
                f"weights {self.weights!r} need to know how many training samples a worker has, and worker "
                f"{push.worker} says 0: give n_data to connect() or attach()"
            )
        if push.base > self.version:
            return Refused(f"push starts from version {push.base}, the server is at {self.version}")
        active = push.worker in self._roster.clocks
        # A worker that came back may find a push of its earlier life in the round; its own waits for the next.
        if push.worker in self._early or (active and self._round.has_push(push.worker)):
            return Busy(f"worker {push.worker} has a push in the open round, one is the limit")
        staleness, bound = self.version - push.base, self.sync.max_staleness
        # A newcomer's first push may be late however slow it is, or it could never get in.
        fresh = not active or push.worker in self._roster.entered
        newcomer = fresh and push.base >= member.joined
        if bound is not None and staleness > bound and not newcomer:
            return StalePush(staleness, bound)
        if self._folding is not None:
            raw = self._folding.raw(view_of(push, self.version, 0.0))
            if not raw <= MOST_RAW:
                return Refused(f"push weighs {raw:g} by itself, the limit is {MOST_RAW:g}")
        return None

    # Ask the policy whether a round closes now; at most one merge is under way.
    def _advance(self, now: float) -> list[Action]:
        actions = self._answers(now) if self._parked else []
        while not self._round.busy:
            if self._early:
                actions += self._admit_early(now)
            if not self.started:
                self.started = self.n_pushed >= self.min_workers
                if not self.started:
                    break
            chosen = self._chosen(now)
            if not chosen:
                break
            views = [held.view for held in chosen]
            weights = tuple(self.weights(views))
            if not any(weights):
                error = ZeroWeight(f"all {len(chosen)} pushes of the round weigh 0")
                self.turn += 1
                actions += given_up(chosen, error)
                continue
            self._round.begin(chosen, now)
            scale = None if self._folding is None else self._folding.scale(views)
            actions.append(Merge(tuple([held.handle for held in chosen]), weights, scale))
        if self._buffer is not None and self.started:
            actions += self._answer_waiting(self._buffer, now)
        return actions

    def _chosen(self, now: float) -> list[Held]:
        if self._buffer is not None:
            return self._round.take_oldest(self._buffer, self.version)
        return self._round.take(self.sync.ready(self._view(now))) if self._round.held else []

    def _answer_waiting(self, sync: BufferPolicy, now: float) -> list[Action]:
        answers: list[Action] = []
        for held in self._round.answer_waiting(sync):
            worker, staleness = held.view.worker, held.view.staleness
            held.pace.merged(now - held.view.arrived, now)
            answers.append(Answer(held.handle, worker, self.version, staleness, 0))
        return answers

    def _admit_early(self, now: float) -> list[Action]:
        free = sorted(self._early.keys() - self._round.held.keys())
        return [action for worker in free for action in self._hold(self._early.pop(worker), now)]

    def _merged(self, now: float) -> list[Action]:
        self.version, self._merged_at = Version(self.version + 1), now
        self.turn += 1
        merged = self._round.end()
        for held in merged:
            if held.answered:
                continue
            worker, staleness = held.view.worker, held.view.staleness
            held.pace.merged(self._round.closed - held.view.arrived, now)
            self._parked[worker] = Answer(held.handle, worker, self.version, staleness, len(merged))
        self._replan()
        if self._granting is not None:
            self._grant(self._granting, [held.view.worker for held in merged], now)
        return self._advance(now)

    # Decided once for each push, when it is merged: whoever is to wait then waits for the slowest.
    def _grant(self, sync: GrantPolicy, workers: Sequence[WorkerId], now: float) -> None:
        for worker in workers:
            view = self._view(now, self._roster.slowest())
            if worker in view.clocks and not sync.may_proceed(worker, view):
                further = sync.grant(worker, view)
                self._roster.granted[worker] = Clock(view.clocks[worker] + further)

    def _answers(self, now: float) -> list[Action]:
        view = self._view(now, self._roster.slowest())
        free = [
            worker
            for worker in sorted(self._parked)
            if worker not in view.clocks or self.sync.may_proceed(worker, view)
        ]
        if now > self._merged_at:
            for worker in free:
                self._roster.answered(worker, now)
        return [self._parked.pop(worker) for worker in free]

    # No copies are made: a thousand members would make them anew for every push of theirs.
    def _view(self, now: float, slowest: Clock | None = None) -> RoundView:
        views, clocks = Seen(self._round.views), Seen(self._roster.clocks)
        if self._granting is None:
            return RoundView(self.version, views, clocks, now, slowest=slowest)
        granted, times = Seen(self._roster.granted), self._roster.times()
        return RoundView(self.version, views, clocks, now, granted, times, slowest)

    def _replan(self) -> None:
        if self._each is None:
            self._plan = dict(self.work.plan(self._roster.views()))
