"""Workers' questions how far a round goes: from the wire to the engine, and the answers back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiops.errors import NotMember, Refused
from aiops.server.advice import AdvisedEngine
from aiops.server.event import Advise, Handle, Queried
from aiops.server.peer import Peer
from aiops.types import Version
from aiops.wire.frame import Kind
from aiops.wire.message import Advice, Query
from aiops.wire.session import Event

if TYPE_CHECKING:
    from aiops.server.service import Service


class Question(Handle):
    """A request on the wire that is answered later.

    Args:
        peer: Who asks.
        request: Its number on that connection.
    """

    __slots__ = ("peer", "request")

    def __init__(self, peer: Peer, request: int) -> None:
        self.peer = peer
        self.request = request


def ask(service: Service, peer: Peer, event: Event) -> tuple[AdvisedEngine, Queried] | None:
    """Return what the engine is told of a question, and that engine; None where the question is refused.

    It is refused where the work policy is not one that is asked, where its worker is no member, and where its round
    does not exist. What is no request cannot be refused and is left out.
    """
    assert peer.member is not None
    assert isinstance(event.body, Query)
    engine, worker, query = service.engine, peer.member.worker, event.body
    service.counters["queries"] += 1
    try:
        if not isinstance(engine, AdvisedEngine):
            raise Refused(
                f"work {service.config.work!r} says beforehand how many steps a round has, "
                "it is not asked"
            )
        if not engine.is_member(worker):
            raise NotMember(f"worker {worker} is not a member, its lease has ended")
        if query.version > engine.version:
            raise Refused(
                f"query is about version {query.version}, the server is at {engine.version}"
            )
    except Refused as error:
        service.counters[f"refused_{type(error).__name__}"] += 1
        if event.request:
            peer.refuse(event.request, error)
        return None
    handle = Question(peer, event.request) if event.request else None
    return engine, Queried(
        worker, handle, Version(query.version), query.n_steps, query.step_s, query.rtt_s
    )


def answer(advise: Advise) -> None:
    """Send an answer; a worker that is gone misses it."""
    question = advise.handle
    assert isinstance(question, Question)
    advice = Advice(advise.version, advise.n_steps, advise.held_s)
    question.peer.post(Kind.ADVICE, advice, question.request)
