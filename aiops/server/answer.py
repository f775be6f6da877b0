"""The model, sent in answer to a request."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiops.errors import NotMember, Refused
from aiops.server.members import Taken
from aiops.server.peer import Peer
from aiops.wire.frame import Kind
from aiops.wire.message import Model

if TYPE_CHECKING:
    from aiops.server.service import Service


def send_model(
    service: Service,
    peer: Peer,
    request: int,
    taken: Taken | None = None,
    fragment: int | None = None,
) -> None:
    """Send the newest model, or a fragment of it, in answer to a request, which a push opened if it was ``taken``.

    Who is no member is refused, and so is everybody while there are no parameters; a peer that is gone misses it.
    """
    if peer.connection.closed or peer.member is None:
        return
    engine, worker = service.engine, peer.member.worker
    try:
        table = service.store.require()
        if not engine.is_member(worker):
            raise NotMember(f"worker {worker} has left")
    except Refused as error:
        peer.refuse(request, error)
        return
    keys = None if fragment is None else table.fragment(fragment, service.config.fragments)
    version, work = engine.version, engine.work_of(worker)
    model = Model(
        version=version,
        staleness=taken.staleness if taken else 0,
        n_merged=taken.n_merged if taken else 0,
        parts=len(table.buckets if keys is None else keys),
        done=service.rounds is not None and version >= service.rounds,
        min_steps=work.min_steps,
        max_steps=work.max_steps,
        moved_steps=taken.moved_steps if taken else 0.0,
    )
    head = peer.session.send(Kind.MODEL, model, request=request)
    reply = service.store.model(peer.session, request, version, keys)
    reply.frames.insert(0, (head, ()))
    peer.queue(reply)
