"""The model, sent in answer to a request: at once, or bucket by bucket ahead of the version it becomes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from aiops.buffers import Block
from aiops.codec.base import ChosenCodec, Codec
from aiops.errors import ConnectionLost, NotMember, Refused
from aiops.server.members import Member, Taken
from aiops.server.peer import Peer, Reply
from aiops.server.reply import (
    add_change,
    add_newest_change,
    add_values,
    change_of,
    model_of,
)
from aiops.server.store import Store
from aiops.server.told import policy_of
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
        down: How what the round changes is coded; None sends values.
    """

    __slots__ = ("_down", "_head", "_keys", "_model", "_peer", "_reply", "_request")

    def __init__(self, peer: Peer, request: int, model: Model, down: Codec | None) -> None:
        self._peer = peer
        self._request = request
        self._model = model
        self._down = down
        self._keys: set[Key] = set()
        self._head: list[Outgoing] = [(peer.session.send(Kind.MODEL, model, request=request), ())]
        # What was handed over last: there is room for more in it until it is being sent.
        self._reply: Reply | None = None
        peer.ahead[request] = self

    @property
    def version(self) -> Version:
        """The version it is part of."""
        return Version(self._model.version)

    def add(self, key: Key, block: Block, change: memoryview | None) -> None:
        """Send one more bucket, unless it is the last one.

        Args:
            key: Which it is.
            block: Its values; lent until they have left.
            change: What the round changes in them, coded, which never changes itself; None where values travel.
        """
        peer, request, down = self._peer, self._request, self._down
        if peer.connection.closed or len(self._keys) + 1 == self._model.parts:
            return

        def put(reply: Reply) -> None:
            if down is None or change is None:
                add_values(reply, block.lend(), key, peer.session, request, self.version)
            else:
                add_change(reply, change, down, key, peer.session, request, self.version)

        self._put(key, put)

    def finish(self, store: Store) -> None:
        """Send what is missing, from the version that is published."""
        peer, request, version = self._peer, self._request, self.version
        del peer.ahead[request]

        def put(reply: Reply) -> None:
            if self._down is None:
                add_values(reply, store.lend(key), key, peer.session, request, version)
            else:
                add_newest_change(reply, store, key, peer.session, request, version)

        for key in [key for shard in store.shards for key in shard.keys if key not in self._keys]:
            if not peer.connection.closed:
                self._put(key, put)

    def cut(self, reason: str) -> None:
        """End the connection: half an answer cannot be unsent, and the push is sent again over the next one."""
        self._peer.ahead.pop(self._request, None)
        self._peer.connection.abort(ConnectionLost(f"what was sent ahead is void, {reason}"))

    def _put(self, key: Key, put: Callable[[Reply], None]) -> None:
        self._keys.add(key)
        if self._reply is not None and not self._reply.begun:
            put(self._reply)
            return
        self._reply, self._head = Reply(self._head), []
        put(self._reply)
        self._peer.queue(self._reply)


def send_ahead(
    service: Service, peer: Peer, request: int, taken: Taken, *, holds: int | None
) -> Tentative | None:
    """Begin to answer a push that the open round will have ``taken``; None if nobody is there to hear it."""
    member = peer.member
    if peer.connection.closed or member is None or not service.engine.is_member(member.worker):
        return None
    ahead = service.store.down is not None
    changed = ahead and _can_add(peer, member, holds, taken.version)
    model = _model(service, member.worker, taken.version, taken, changed=changed)
    return Tentative(peer, request, model, service.store.down if changed else None)


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
    version = engine.version
    if peer.ahead and request in peer.ahead:
        _finish(service, peer, peer.ahead[request])
        return
    keys = None if fragment is None else table.fragment(fragment, service.config.fragments)
    changed = service.store.changed and _can_add(peer, peer.member, holds, version)
    if changed and isinstance(service.config.down, ChosenCodec):
        # The positions are known to whoever has pushed at them.
        changed = taken is not None and taken.version == version
    model = _model(service, worker, version, taken, changed=changed, keys=keys)
    head = peer.session.send(Kind.MODEL, model, request=request)
    if changed:
        reply = change_of(service.store, peer.session, request, version)
    else:
        reply = model_of(service.store, peer.session, request, version, keys)
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


# One version per answer: it may have become part of an older one than the newest, which the next connection brings.
def _finish(service: Service, peer: Peer, ahead: Tentative) -> None:
    version = service.engine.version
    if ahead.version != version:
        ahead.cut(f"it was of version {ahead.version}, the newest is {version}")
        return
    handed(service.store, peer, version, answer=True)
    ahead.finish(service.store)


def _model(
    service: Service,
    worker: WorkerId,
    version: Version,
    taken: Taken | None,
    *,
    changed: bool,
    keys: range | None = None,
) -> Model:
    work = service.engine.work_of(worker)
    return Model(
        version=version,
        staleness=taken.staleness if taken else 0,
        n_merged=taken.n_merged if taken else 0,
        parts=len(service.store.require().buckets if keys is None else keys),
        done=service.rounds is not None and version >= service.rounds,
        min_steps=work.min_steps,
        max_steps=work.max_steps,
        moved_steps=taken.moved_steps if taken else 0.0,
        since=version - 1 if changed else None,
        policy=None if service.autopilot is None else policy_of(service, worker, version),
        lead=taken is not None and service.leads(worker),
    )


# A worker says what it holds when it sends a push. What was sent to it on this connection afterwards is what it will
# hold when the answer comes, and a version that it never had of this server is one of another server's life.
def _can_add(peer: Peer, member: Member, holds: int | None, version: Version) -> bool:
    lacks_one = holds is not None and holds == version - 1 and holds <= member.sent
    return lacks_one and peer.sent in (None, holds)
