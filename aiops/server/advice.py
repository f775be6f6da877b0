"""The round machine of a queried work policy (ESync): it also answers workers that ask how far a round goes.

Sans-IO as the engine is. Rounds close and pushes weigh as ever; the policy's table is told what happens, and a question
that it cannot answer yet waits here until it can, which a worker takes as "go on".
"""

from __future__ import annotations

import msgspec

from aiops.policy.base import Progress, QueriedWork, SyncPolicy, WeightRule, Work, WorkPolicy
from aiops.server.engine import Engine
from aiops.server.event import Action, Advise, Decline, Event, Handle, Left, Merged, Pushed, Queried
from aiops.types import Version, WorkerId

# A round trip that a worker speaks of is believed up to here: it is taken off the server's clock.
LONGEST_RTT_S = 60.0


class _Question(msgspec.Struct):
    handle: Handle
    version: Version
    n_steps: int
    at: float


class AdvisedEngine(Engine):
    """An engine whose workers ask.

    Args:
        sync: When a round is closed; a policy with a barrier.
        weights: What each push of a round is worth.
        work: How far a round goes for each worker.
        min_workers: No round closes before so many workers have pushed at least once.
        needs_data: Whether ``weights`` look at how many training samples a worker has.
        fold: Whether pushes are added to their round's sum as they come.
    """

    def __init__(
        self,
        sync: SyncPolicy,
        weights: WeightRule,
        work: QueriedWork,
        *,
        min_workers: int = 1,
        needs_data: bool = False,
        fold: bool = False,
    ) -> None:
        super().__init__(
            sync, weights, work, min_workers=min_workers, needs_data=needs_data, fold=fold
        )
        self._table = work.table()
        # One question of a worker at a time.
        self._questions: dict[WorkerId, _Question] = {}

    def handle(self, event: Event, now: float) -> list[Action]:
        """Take one event, as :meth:`Engine.handle` does; what comes of it for those who asked is among the actions."""
        actions = super().handle(event, now)
        match event:
            case Pushed(worker, handle) if not _declines(actions, handle):
                self._table.pushed(worker, now)
                actions += self._answer(worker, None, now)
            case Merged():
                self._table.reset(self.version, now, self._roster.clocks.keys())
                # Their round has closed without them, who were not waited for.
                for worker in list(self._questions):
                    actions += self._answer(worker, self._least(worker), now)
            case Left(worker):
                self._table.drop(worker)
                self._questions.pop(worker, None)
        return actions + self._decide(now)

    def queried(self, event: Queried, now: float) -> list[Action]:
        """Take a member's question at time ``now`` (seconds of the loop's clock); return what is to be answered now."""
        worker = event.worker
        rtt_s = event.rtt_s if 0.0 <= event.rtt_s <= LONGEST_RTT_S else 0.0
        progress = Progress(
            event.version,
            event.n_steps,
            now - rtt_s / 2,
            step_s=event.step_s,
            rtt_s=rtt_s,
            stopped=event.handle is None and event.n_steps > 0,
            waited_for=worker in self._roster.clocks or not self.started,
        )
        self._table.record(worker, progress)
        # One that came over a connection that is lost by now, or whose worker goes on without the answer.
        actions = self._answer(worker, None, now)
        if event.handle is not None:
            self._questions[worker] = _Question(event.handle, event.version, event.n_steps, now)
            more = self._table.decide(worker)
            if more is not None:
                actions += self._answer(worker, event.n_steps + more, now)
            elif not self._table.is_timed(worker):
                # It has to speak again before anything can be said.
                actions += self._answer(worker, None, now)
        return actions + self._decide(now)

    def work_of(self, worker: WorkerId) -> Work:
        """Return at least one step, and as the largest number the one that is foreseen."""
        return Work(1, self._table.foresee(worker))

    def _least(self, worker: WorkerId) -> int:
        return max(1, self._questions[worker].n_steps)

    # What could not be said before: none of those who wait is untimed, so that one condition is that of all.
    def _decide(self, now: float) -> list[Action]:
        actions: list[Action] = []
        if self._questions and self._table.decidable:
            for worker, question in list(self._questions.items()):
                more = self._table.decide(worker)
                assert more is not None
                actions += self._answer(worker, question.n_steps + more, now)
        return actions

    def _answer(self, worker: WorkerId, n_steps: int | None, now: float) -> list[Action]:
        question = self._questions.pop(worker, None)
        if question is None:
            return []
        return [Advise(question.handle, question.version, n_steps, now - question.at)]


def make_engine(
    sync: SyncPolicy,
    weights: WeightRule,
    work: WorkPolicy,
    *,
    min_workers: int = 1,
    needs_data: bool = False,
    fold: bool = False,
) -> Engine:
    """Return the engine that a work policy needs; the arguments are :class:`Engine`'s."""
    if isinstance(work, QueriedWork):
        return AdvisedEngine(
            sync, weights, work, min_workers=min_workers, needs_data=needs_data, fold=fold
        )
    return Engine(sync, weights, work, min_workers=min_workers, needs_data=needs_data, fold=fold)


def _declines(actions: list[Action], handle: Handle) -> bool:
    return any(isinstance(action, Decline) and action.handle is handle for action in actions)
