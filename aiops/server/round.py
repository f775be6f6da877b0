"""The pushes that wait for a version, and those in the merge that makes one: at most one merge is under way."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import msgspec

from aiops.errors import Refused
from aiops.policy.base import BufferPolicy, PushView
from aiops.server.event import Action, Decline, Drop, Handle, Pushed
from aiops.server.monitor import Pace
from aiops.types import Version, WorkerId


class Held(msgspec.Struct):
    """A push on its way into a version.

    Attributes:
        view: What a policy may know of it.
        handle: The push itself.
        pace: The measurements of whose push it is.
        answered: Whether its worker was answered while it waited.
    """

    view: PushView
    handle: Handle
    pace: Pace
    answered: bool = False


@dataclass(slots=True)
class Round:
    """The open round and the merge under way.

    Attributes:
        held: The push of each worker that waits for its answer and its round, in order of arrival; changed here alone.
        views: What a policy may know of each of them, in the same order. Kept beside what is held, because a policy is
            asked at every push and there may be a thousand of them.
        merging: Those whose merge is under way and that are not answered.
        busy: Whether a merge is under way.
        closed: When the merge that is under way, or was the last one, was asked for.
    """

    held: dict[WorkerId, Held] = field(default_factory=dict)
    views: dict[WorkerId, PushView] = field(default_factory=dict)
    merging: dict[WorkerId, Held] = field(default_factory=dict)
    busy: bool = False
    closed: float = 0.0
    # What was answered on arrival and waits, all of it older than what is held, or is being merged.
    _buffer: list[Held] = field(default_factory=list)
    _sinking: list[Held] = field(default_factory=list)

    def hold(self, worker: WorkerId, held: Held) -> None:
        """Let a push wait for its round."""
        self.held[worker] = held
        self.views[worker] = held.view

    def has_push(self, worker: WorkerId) -> bool:
        """Return whether a push of ``worker`` is not answered yet, but for a merged one that is parked."""
        return worker in self.held or worker in self.merging

    def take(self, workers: Iterable[WorkerId]) -> list[Held]:
        """Take out what these workers hold, in worker order: float sums come out the same whoever was first."""
        return [self._drop(worker) for worker in sorted(workers)]

    def _drop(self, worker: WorkerId) -> Held:
        del self.views[worker]
        return self.held.pop(worker)

    def take_oldest(self, sync: BufferPolicy, version: Version) -> list[Held]:
        """Take out what a buffer merges now into the version after ``version``, in worker order."""
        waiting = [*self._buffer, *self.held.values()]
        chosen = waiting[: sync.take([held.view for held in waiting])]
        self._buffer = self._buffer[len(chosen) :]
        for held in chosen:
            if not held.answered:
                self._drop(held.view.worker)
            # A version may have been made since it came.
            staleness = version - held.view.base
            held.view = msgspec.structs.replace(held.view, staleness=staleness)
        return sorted(chosen, key=lambda held: held.view.worker)

    def begin(self, chosen: Sequence[Held], now: float) -> None:
        """Note that the merge of these pushes is asked for."""
        self.merging = {held.view.worker: held for held in chosen if not held.answered}
        if len(self.merging) < len(chosen):
            self._sinking = [held for held in chosen if held.answered]
        self.busy, self.closed = True, now

    def end(self) -> list[Held]:
        """Note that the merge is over; return its pushes."""
        over = list(self.merging.values())
        if self._sinking:
            over, self._sinking = self._sinking + over, []
        self.merging, self.busy = {}, False
        return over

    def answer_waiting(self, sync: BufferPolicy) -> list[Held]:
        """Return what is held and must wait for others to come, which is why it is answered now.

        What makes up a version by itself, as soon as it can be merged, is answered with that version.
        """
        waiting = [*self._buffer, *self.held.values()]
        if sync.take([held.view for held in waiting]):
            return []
        answered = list(self.held.values())
        for held in answered:
            held.answered = True
        self._buffer = waiting
        self.held.clear()
        self.views.clear()
        return answered


def view_of(push: Pushed, version: Version, now: float) -> PushView:
    """Return what a policy may know of a push that came ``now``, at this version."""
    return PushView(
        push.worker,
        push.base,
        version - push.base,
        push.n_samples,
        push.n_steps,
        push.loss,
        now,
        push.n_data,
    )


def given_up(pushes: Sequence[Held], error: Refused) -> list[Action]:
    """Return what is to be done with pushes that will not be merged."""
    return [
        Drop(held.handle, error) if held.answered else Decline(held.handle, error)
        for held in pushes
    ]
