"""The model, sent in answer to a request: at once, or bucket by bucket ahead of the version it becomes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiops.buffers import Block
from aiops.errors import ConnectionLost, NotMember, Refused
from aiops.server.members import Taken
from aiops.server.peer import Peer, Reply
from aiops.server.store import Store, model_frame
from aiops.transport.base import Outgoing
from aiops.types import Key, Version, WorkerId
from aiops.wire.frame import Kind
from aiops.wire.message import Model

if TYPE_CHECKING:
    from aiops.server.service import Service


class Tentative:
    """The answer to one push, sent while its round is open.

    The last bucket stays here until :meth:`finish`, and a worker adopts nothing before it has all of them: what was
    foreseen wrongly is void once the connection is cut.

    Args:
        peer: Where it goes.
        request: The push it answers.
        model: What it says of itself; ``version`` is the one that the open round makes.
    """

    __slots__ = ("_head", "_keys", "_model", "_peer", "_reply", "_request")

    def __init__(self, peer: Peer, request: int, model: Model) -> None:
        self._peer = peer
        self._request = request
        self._model = model
        self._keys: set[Key] = set()
        self._head: list[Outgoing] = [(peer.session.send(Kind.MODEL, model, request=request), ())]
        # What was handed over last: there is room for more in it until it is being sent.
        self._reply: Reply | None = None
        peer.ahead[request] = self

    @property
    def version(self) -> int:
        """The version it is part of."""
        return self._model.version

    def add(self, key: Key, block: Block) -> None:
        """Send one more bucket, unless it is the last one, and lend its block until it has left."""
        if self._peer.connection.closed or len(self._keys) + 1 == self._model.parts:
            return
        self._put(key, block.lend())

    def finish(self, store: Store) -> None:
        """Send what is missing, from the version that is published."""
        for shard in store.shards:
            for key in shard.keys:
                if key not in self._keys and not self._peer.connection.closed:
                    self._put(key, shard.lend(key))

    def cut(self, reason: str) -> None:
        """End the connection: half an answer cannot be unsent, and the push is sent again over the next one."""
        self._peer.ahead.pop(self._request, None)
        self._peer.connection.abort(ConnectionLost(f"what was sent ahead is void, {reason}"))

    def _put(self, key: Key, block: Block) -> None:
        peer, reply = self._peer, self._reply
        frame = model_frame(peer.session, self._request, key, block, Version(self._model.version))
        self._keys.add(key)
        if reply is not None and not reply.begun:
            reply.frames.append(frame)
            reply.loans.append(block)
            return
        self._reply = Reply([*self._head, frame], [block])
        self._head = []
        peer.queue(self._reply)


def send_ahead(
    service: Service, peer: Peer, request: int, *, staleness: int, n_merged: int
) -> Tentative | None:
    """Begin to answer a push with the version that the open round makes; None if nobody is there to hear it."""
    if peer.connection.closed or peer.member is None:
        return None
    worker, version = peer.member.worker, Version(service.engine.version + 1)
    if not service.engine.is_member(worker):
        return None
    taken = Taken(version, staleness, n_merged)
    return Tentative(peer, request, _model(service, worker, version, taken))


def send_model(service: Service, peer: Peer, request: int, taken: Taken | None = None) -> None:
    """Send the newest model in answer to a request, which a push opened if it was ``taken``.

    Who is no member is refused, and so is everybody while there are no parameters; a peer that is gone misses it.
    """
    if peer.connection.closed or peer.member is None:
        return
    engine, worker = service.engine, peer.member.worker
    try:
        service.store.require()
        if not engine.is_member(worker):
            raise NotMember(f"worker {worker} has left")
    except Refused as error:
        peer.refuse(request, error)
        return
    version = engine.version
    if peer.ahead:
        ahead = peer.ahead.get(request)
        if ahead is not None and ahead.version != version:
            # One version per answer: this one became part of an older one than the newest.
            ahead.cut(f"it was of version {ahead.version}, the newest is {version}")
            return
        if ahead is not None:
            del peer.ahead[request]
            ahead.finish(service.store)
            return
    model = _model(service, worker, version, taken)
    head = peer.session.send(Kind.MODEL, model, request=request)
    reply = service.store.model(peer.session, request, version)
    reply.frames.insert(0, (head, ()))
    peer.queue(reply)


def _model(service: Service, worker: WorkerId, version: Version, taken: Taken | None) -> Model:
    work = service.engine.work_of(worker)
    return Model(
        version=version,
        staleness=taken.staleness if taken else 0,
        n_merged=taken.n_merged if taken else 0,
        parts=len(service.store.require().buckets),
        done=service.rounds is not None and version >= service.rounds,
        min_steps=work.min_steps,
        max_steps=work.max_steps,
    )
