"""The model, sent in answer to a request."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiops.errors import NotMember, Refused
from aiops.server.members import Member, Taken
from aiops.server.peer import Peer
from aiops.server.store import Store
from aiops.types import Version
from aiops.wire.frame import Kind
from aiops.wire.message import Model

if TYPE_CHECKING:
    from aiops.server.service import Service


def send_model(
    service: Service,
    peer: Peer,
    request: int,
    taken: Taken | None = None,
    *,
    holds: int | None = None,
    fragment: int | None = None,
) -> None:
    """Send the newest model, or a fragment of it, in answer to a request, which a push opened if it was ``taken``.

    Who is no member is refused, and so is everybody while there are no parameters; a peer that is gone misses it. Who
    ``holds`` the version before gets what has changed since, where that is coded.
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
    changed = service.store.codes and _can_add(peer, peer.member, holds, version)
    model = Model(
        version=version,
        staleness=taken.staleness if taken else 0,
        n_merged=taken.n_merged if taken else 0,
        parts=len(table.buckets if keys is None else keys),
        done=service.rounds is not None and version >= service.rounds,
        min_steps=work.min_steps,
        max_steps=work.max_steps,
        moved_steps=taken.moved_steps if taken else 0.0,
        since=version - 1 if changed else None,
    )
    head = peer.session.send(Kind.MODEL, model, request=request)
    if changed:
        reply = service.store.change(peer.session, request, version)
    else:
        reply = service.store.model(peer.session, request, version, keys)
    reply.frames.insert(0, (head, ()))
    handed(service.store, peer, version, answer=taken is not None)
    peer.queue(reply)


def handed(store: Store, peer: Peer, version: Version, *, answer: bool = False) -> None:
    """Note that a worker has got the newest version, in ``answer`` to a push or not, or has given it."""
    assert peer.member is not None
    peer.sent = version
    peer.member.sent = max(peer.member.sent, version)
    if store.history is not None:
        store.history.handed(peer.member.worker, version, answer=answer)


# A worker says what it holds when it sends a push. What was sent to it on this connection afterwards is what it will
# hold when the answer comes, and a version that it never had of this server is one of another server's life.
def _can_add(peer: Peer, member: Member, holds: int | None, version: Version) -> bool:
    return holds == version - 1 and holds <= member.sent and peer.sent in (None, holds)
