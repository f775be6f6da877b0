"""Who gives samples to whom through the server, round after round: sans-IO, what it is is not known here.

These rounds are not the engine's: one is over as soon as its donors have given. With every answer a worker hears which
round is open now, and whether it is one of its donors, so that what it gives comes with its next question.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence

import msgspec

from aiops.buffers import Block
from aiops.server.event import Handle
from aiops.types import WorkerId


class Tell(msgspec.Struct, frozen=True, eq=False):
    """Answer a worker's question what others have given.

    Attributes:
        handle: The question.
        gifts: What was given, by donor, the asker's own left out; good until the next event.
        round: The round that is open now.
        donors: How many are drawn to give in it.
        gives: Whether the asker is one of them.
        again: Whether it is to ask again, about this one: its question was about none that it can have part in.
    """

    handle: Handle
    gifts: Mapping[WorkerId, Block]
    round: int
    donors: int
    gives: bool
    again: bool


class Shares:
    """The open round of sharing, and what was given in the one before.

    A round's donors are drawn when it opens, among those who asked before and whose line holds. Who asks with the
    number of the open round waits until each of its donors has asked likewise, which is when it gives, or has left; for
    the round before there is an answer at once. Whoever comes with another number knows of no round, or has missed
    some: it hears which one is open, and is to ask again, so that it shares in the same round as all others do.

    A worker that waits for its model shares no more before that has come, if it does not overlap, and what it waits for
    may be the push of one that asks: it is not waited for, and has missed the rounds that are over meanwhile.

    Nothing is kept but what was given in the open round and in the one before.

    Args:
        draw: Returns the positions of a round's donors among so many workers, given its number and theirs.
        waits: Returns whether a worker waits for its model.
        patience_s: How long donors are waited for, in seconds from the first question on.

    Attributes:
        round: Number of the open round, from 1.
        n_donors: How many were drawn for it.
    """

    def __init__(
        self,
        draw: Callable[[int, int], Sequence[int]],
        waits: Callable[[WorkerId], bool],
        *,
        patience_s: float,
    ) -> None:
        self.round = 1
        self.n_donors = 0
        self._draw = draw
        self._waits = waits
        self._patience_s = patience_s
        self._takers: set[WorkerId] = set()
        self._drawn: frozenset[WorkerId] = frozenset()
        # Donors that have not given yet; the first is one that others wait for, if there is any.
        self._due: OrderedDict[WorkerId, None] = OrderedDict()
        self._given: dict[WorkerId, Block] = {}
        self._over: dict[WorkerId, Block] = {}
        # Who could not have part in the round before.
        self._missed: frozenset[WorkerId] = frozenset()
        # Questions that wait, in order of arrival: one of a worker at a time.
        self._asking: dict[WorkerId, Handle] = {}
        self._since: float | None = None

    @property
    def n_asking(self) -> int:
        """How many wait for the donors of the open round."""
        return len(self._asking)

    def due(self, worker: WorkerId, number: int) -> bool:
        """Return whether what a worker gives in round ``number`` is wanted, which it is once."""
        return number == self.round and worker in self._due

    def ask(
        self, worker: WorkerId, number: int, handle: Handle, gift: Block | None, now: float
    ) -> list[Tell]:
        """Take a question, and a gift that is due; return what is to be answered now.

        Args:
            worker: Who asks.
            number: The round it was told of, > 0; 0 before it was told of any.
            handle: The question.
            gift: What it gives, if it does; its loan goes over.
            now: The time, in seconds.
        """
        self._takers.add(worker)
        # Who asks again has given up the question before.
        before = self._asking.pop(worker, None)
        if before is not None:
            stale = self._tell(worker, before, {}, again=True)
            return [stale, *self.ask(worker, number, handle, gift, now)]
        if number != self.round:
            assert gift is None, "what is not due is not taken in"
            if 0 < number == self.round - 1 and worker not in self._missed:
                return [self._tell(worker, handle, self._over)]
            return [self._tell(worker, handle, {}, again=True)]
        if gift is not None:
            self._given[worker] = gift
        self._due.pop(worker, None)
        self._asking[worker] = handle
        self._since = now if self._since is None else self._since
        return self.settle()

    def declined(self, worker: WorkerId) -> list[Tell]:
        """Note that what a donor gave was not taken; it is waited for no longer."""
        self._due.pop(worker, None)
        return self.settle()

    def lost(self, worker: WorkerId) -> None:
        """Note that a worker's line is lost: its question is gone. What it owes is waited for, it may come back."""
        self._takers.discard(worker)
        self._asking.pop(worker, None)
        if not self._asking:
            self._since = None

    def left(self, worker: WorkerId) -> list[Tell]:
        """Note that a worker is gone for good; return what is to be answered now."""
        self.lost(worker)
        return self.declined(worker)

    def late(self, now: float) -> set[WorkerId]:
        """Return the donors that others have waited for too long."""
        if self._since is None or now - self._since <= self._patience_s:
            return set()
        return {worker for worker in self._due if not self._waits(worker)}

    def close(self) -> None:
        """Give all memory back."""
        for gift in (*self._given.values(), *self._over.values()):
            gift.release()
        self._given, self._over = {}, {}

    def settle(self) -> list[Tell]:
        """End the round if nobody who asks has to wait for anybody; return what is to be answered now."""
        if not self._asking or self._holds_up():
            return []
        for gift in self._over.values():
            gift.release()
        self._over, self._given = self._given, {}
        asking, self._asking, self._since = self._asking, {}, None
        self.round += 1
        takers = sorted(self._takers)
        self._missed = frozenset(one for one in takers if one not in asking and self._waits(one))
        self._drawn = frozenset(takers[at] for at in self._draw(self.round, len(takers)))
        self._due, self.n_donors = OrderedDict.fromkeys(self._drawn), len(self._drawn)
        return [self._tell(worker, handle, self._over) for worker, handle in asking.items()]

    # Whether there is a donor to wait for. It is asked with every push, so that the one that was found stays the first.
    def _holds_up(self) -> bool:
        for _ in range(len(self._due)):
            worker = next(iter(self._due))
            if not self._waits(worker):
                return True
            self._due.move_to_end(worker)
        return False

    def _tell(
        self,
        worker: WorkerId,
        handle: Handle,
        gifts: Mapping[WorkerId, Block],
        *,
        again: bool = False,
    ) -> Tell:
        others = {donor: gift for donor, gift in gifts.items() if donor != worker}
        return Tell(handle, others, self.round, self.n_donors, worker in self._drawn, again)
