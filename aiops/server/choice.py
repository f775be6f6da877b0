"""Whose turn it is to choose a round's positions, and who waits to hear them: sans-IO, beside the engine.

Rounds stay the engine's. Here its workers ask what the positions of the open round are; one of them, another one each
round, chooses them (STAR-Topk, Tyagi and Swany, 2023: round robin). Who asks enters the round, so that it does not
close without the push that is then made. What a choice is made of is not known here.
"""

from __future__ import annotations

from collections.abc import Collection

from aiops.server.engine import Engine
from aiops.server.event import Action, Handle, Lead, Show
from aiops.types import WorkerId


class Choices:
    """The leader of the open round of one engine.

    Nobody is waited for who cannot choose: a leader that leaves, or whose line is lost, is followed by whoever asks
    already, in turn, else by the next one to ask. The first choice that comes from one who was told to lead counts.

    Args:
        engine: Whose rounds; a policy with a barrier closes them. After every event of its :meth:`follow` is called.

    Attributes:
        made: Whether the open round's positions are chosen.
    """

    def __init__(self, engine: Engine) -> None:
        self.made = False
        self._engine = engine
        self._turn = engine.turn
        # Who is to choose now, who else was told so in this round, and who was the last one.
        self._leader: WorkerId | None = None
        self._told: set[WorkerId] = set()
        self._last = WorkerId(-1)
        # Questions that wait, in order of arrival: one of a worker at a time.
        self._asked: dict[WorkerId, Handle] = {}
        # Members whose line is lost and that were not heard of since.
        self._away: set[WorkerId] = set()

    def leads(self, worker: WorkerId) -> bool:
        """Return whether ``worker`` is to choose the positions of the open round, with its next push."""
        return not self.made and self._leader == worker

    def ask(self, worker: WorkerId, handle: Handle) -> list[Action]:
        """Take a member's question which the positions of its round are; return what is to be answered now."""
        self._asked[worker] = handle
        self._away.discard(worker)
        return self.follow()

    def waits(self, worker: WorkerId) -> bool:
        """Return whether a member waits to hear the positions of its round."""
        return worker in self._asked

    def may_choose(self, worker: WorkerId) -> bool:
        """Return whether a choice of this member would count now; what does not count is a question."""
        return not self.made and worker in self._told and self._engine.may_enter(worker)

    def choose(self, worker: WorkerId, handle: Handle) -> list[Action]:
        """Count a member's choice, which :meth:`may_choose`; return what is to be answered now."""
        assert self.may_choose(worker), "a choice that does not count is a question"
        self.made = True
        return self.ask(worker, handle)

    def declined(self, worker: WorkerId) -> list[Action]:
        """Note that a member's choice was none; somebody else is to choose."""
        self._told.discard(worker)
        return self._passed_on(worker)

    def lost(self, worker: WorkerId) -> list[Action]:
        """Note that a member's line is lost: its question is gone, and somebody else is to choose."""
        self._asked.pop(worker, None)
        self._away.add(worker)
        return self._passed_on(worker)

    def follow(self) -> list[Action]:
        """Look at what the engine has made of its rounds and members; return what is to be answered now."""
        engine = self._engine
        for gone in [worker for worker in self._asked if not engine.is_member(worker)]:
            del self._asked[gone]
        self._away = {worker for worker in self._away if engine.is_member(worker)}
        self._told = {worker for worker in self._told if engine.is_member(worker)}
        if engine.turn != self._turn:
            self._begin()
        if self._leader is not None and not engine.is_member(self._leader):
            self._leader = None
        asking = [worker for worker in self._asked if engine.may_enter(worker)]
        for worker in asking:
            engine.enter(worker)
        if self.made:
            return [Show(self._asked.pop(worker)) for worker in asking]
        if self._leader is None and asking:
            self._elect(asking)
        if self._leader in asking:
            return [Lead(self._asked.pop(self._leader))]
        return []

    # The open round is a new one. Its leader is told with the answer to its push, and who knows needs not ask first.
    def _begin(self) -> None:
        self._turn = self._engine.turn
        self.made = False
        self._told.clear()
        self._leader = None
        present = self._engine.active - self._away
        if present:
            self._elect(present)

    def _passed_on(self, worker: WorkerId) -> list[Action]:
        if self._leader == worker and not self.made:
            self._leader = None
        return self.follow()

    def _elect(self, workers: Collection[WorkerId]) -> None:
        later = [worker for worker in workers if worker > self._last]
        self._leader = self._last = min(later or workers)
        self._told.add(self._leader)
