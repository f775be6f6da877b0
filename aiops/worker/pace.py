"""How far a round goes for a worker whose server is asked that (ESync), and the question on the wire.

:class:`Pace` has no I/O, no threads and no clock; a training loop feeds it and sends its questions. Nobody waits for an
answer: a missing one means "go on". A step that is under way when the answer comes is finished, since a training loop's
step cannot be taken back; the paper breaks it off. It hardly ever comes to that: an answer counts steps ahead.
"""

from __future__ import annotations

from collections.abc import Callable

from aiops.errors import RemoteProtocolError
from aiops.transport.base import Outgoing
from aiops.wire.frame import Header, Kind
from aiops.wire.message import Advice, Policy, Query
from aiops.wire.session import Event, Session
from aiops.worker.answer import fail
from aiops.worker.machine import Move
from aiops.worker.ticket import Ticket

# How late an answer may be, in usual round trips, before its lateness says that the server holds it back.
LATE = 1.25


class Pace:
    """What a worker knows of its round's length.

    One thread computes and calls everything but :meth:`answered`, which may come from another one.

    Args:
        version: Version that the first round starts from.
        foreseen: Local steps that the server foresees in it; None when it does not know.

    Attributes:
        version: Version that the round started from.
        n_steps: Local steps done in it.
        rtt_s: Time from a question to its answer, without what the server held it back; 0 until there is one. The
            shorter one of the last two: one over a broken connection says nothing about the next.
    """

    def __init__(self, version: int, foreseen: int | None = None) -> None:
        self.rtt_s, self._last_rtt_s = 0.0, 0.0
        self._is_timed = False
        self._untold_s, self._untold = 0.0, 0
        self.enter(version, foreseen)

    def enter(self, version: int, foreseen: int | None) -> None:
        """Begin a round."""
        self.version = version
        self.n_steps = 0
        self._foreseen = foreseen
        # The version that is meant and its steps, in one assignment: an answer may come from another thread.
        self._limit: tuple[int, int] | None = None
        # The question under way, if any. One of an earlier round is not waited for.
        self._query: Query | None = None
        self._asked_at = 0.0

    def stepped(self, took_s: float, now: float) -> Move:
        """Note a local step, and say whether to take another one or to push.

        Args:
            took_s: Its duration.
            now: Seconds of the worker's clock.
        """
        self.n_steps += 1
        self._is_timed = True
        self._untold_s += took_s
        self._untold += 1
        limit = self._limit
        if limit is not None and limit[0] == self.version:
            return Move.PUSH if self.n_steps >= limit[1] else Move.COMPUTE
        if self._foreseen is None or self.n_steps < self._foreseen:
            return Move.COMPUTE
        # What is foreseen counts only where no answer can be here yet; one that is late is held back: "go on".
        too_early = self._query is not None and now - self._asked_at < LATE * self.rtt_s
        return Move.PUSH if too_early else Move.COMPUTE

    def query(self, now: float) -> Query | None:
        """Return the question to send before the next step; None while one is under way.

        None before the first step ever, too: there would be no answer yet. That training begins is a :meth:`report`.
        """
        if self._query is not None or not self._is_timed:
            return None
        self._asked_at = now
        self._query = self._told()
        return self._query

    def report(self) -> Query:
        """Return what to tell as training begins, and as each push does."""
        return self._told()

    def answered(self, query: Query, advice: Advice | None, now: float) -> None:
        """Take the answer to a question at ``now``, or None when there will be none."""
        if query is not self._query:
            return
        if advice is not None:
            if advice.n_steps is not None:
                self._limit = advice.version, advice.n_steps
            took_s = max(0.0, now - self._asked_at - advice.held_s)
            self.rtt_s = min(took_s, self._last_rtt_s or took_s)
            self._last_rtt_s = took_s
        self._query = None

    def _told(self) -> Query:
        step_s = self._untold_s / self._untold if self._untold else 0.0
        self._untold_s, self._untold = 0.0, 0
        return Query(self.version, self.n_steps, step_s, self.rtt_s)


def pace_of(policy: Policy, version: int) -> Pace | None:
    """Return what a worker needs that starts from ``version``; None where the server is not asked."""
    return Pace(version, policy.max_steps) if policy.query else None


class QueryRequest:
    """How many more local steps may I take?

    Args:
        query: The question.
        tell: Called with the answer, or with None when there will be none.
    """

    def __init__(self, query: Query, tell: Callable[[Advice | None], None]) -> None:
        self.ticket: Ticket[Advice] = Ticket()
        self._query = query
        self._tell = tell
        self.ticket.then(tell)
        self.ticket.heard(self._failed)

    def frames(self, session: Session, number: int) -> list[Outgoing]:
        """Return the QUERY frame."""
        return [(session.send(Kind.QUERY, self._query, request=number), ())]

    def land(self, header: Header) -> memoryview:
        """Refuse: an advice has no tensors."""
        raise RemoteProtocolError("an advice carries no tensors")

    def answered(self, session: Session, event: Event) -> list[Outgoing] | None:
        """Resolve with the advice."""
        if isinstance(event.body, Advice):
            self.ticket.resolve(event.body)
        else:
            fail(self.ticket, event)
        return None

    def _failed(self) -> None:
        if self.ticket.exception() is not None:
            self._tell(None)
