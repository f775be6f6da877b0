"""Who comes in: the answer to HELLO."""

from __future__ import annotations

import asyncio
import hmac
import logging
from typing import TYPE_CHECKING

from aiops.errors import BadHandshake
from aiops.server.event import Joined
from aiops.server.peer import Peer
from aiops.server.told import policy_of
from aiops.types import WorkerId
from aiops.wire.frame import Kind
from aiops.wire.message import IN_ORDER, MINOR, Hello, Reject, Welcome
from aiops.wire.session import Event

if TYPE_CHECKING:
    from aiops.server.service import Service

log = logging.getLogger("aiops.server")

# A connection that has not introduced itself by then is dropped; generous, for a loaded machine.
HANDSHAKE_S = 10.0

# Characters of a worker's name that go into a message about it.
MAX_NAME = 64


class Handshake:
    """Checks a worker's greeting and makes it a member.

    Args:
        service: Whose members they become.
        library: Version of this library, told to the worker.
    """

    def __init__(self, service: Service, library: str) -> None:
        self._service = service
        self._library = library
        self._loop = asyncio.get_running_loop()

    def greet(self, peer: Peer, event: Event) -> None:
        """Answer a connection's first message."""
        hello = event.body
        if not isinstance(hello, Hello) or peer.member is not None:
            event.release()
            due = "HELLO" if peer.member is None else "no second HELLO"
            raise BadHandshake(f"{event.kind.name} frame where {due} is due")
        service = self._service
        objection = self._objection(hello)
        if objection is not None:
            service.counters["rejected"] += 1
            log.warning("%s is rejected: %s", peer.connection.peer, objection.reason)
            peer.post(Kind.REJECT, objection)
            service.close(peer)
            return
        old = service.members.get(hello.identity)
        if old is not None and old.incarnation < hello.incarnation:
            service.drop(old, "replaced")
        elif old is not None and old.peer is not None:
            # The same worker dials again before we noticed that its old connection is dead.
            old.peer.connection.abort()
        member, new = service.members.join(
            hello.identity, hello.incarnation, hello.name, self._loop.time()
        )
        peer.member, member.peer = member, peer
        if new:
            service.counters["joined"] += 1
            log.info("worker %d joins from %s", member.worker, peer.connection.peer)
            service.feed(Joined(member.worker))
        peer.post(Kind.WELCOME, self._welcome(member.worker))

    def hurry(self, peer: Peer, now: float) -> None:
        """Drop a connection that has not introduced itself in time."""
        if now - peer.since > HANDSHAKE_S:
            peer.connection.abort(BadHandshake(f"no HELLO in {HANDSHAKE_S:g} s"))

    def _objection(self, hello: Hello) -> Reject | None:
        config, members = self._service.config, self._service.members
        if config.token is not None and not hmac.compare_digest(
            config.token.encode(), (hello.token or "").encode()
        ):
            return Reject("the token is wrong" if hello.token else "this server asks for a token")
        member = members.get(hello.identity)
        if member is not None and member.incarnation > hello.incarnation:
            return Reject(
                f"{hello.identity[:MAX_NAME]!r} has come back as incarnation {member.incarnation}, "
                f"incarnation {hello.incarnation} is over"
            )
        if member is None and len(members) >= config.max_members:
            return Reject(f"the server has {len(members)} members, that is its limit", retry=True)
        return None

    def _welcome(self, worker: WorkerId) -> Welcome:
        service, config = self._service, self._service.config
        return Welcome(
            minor=MINOR,
            library=self._library,
            features=IN_ORDER if config.streams else 0,
            worker=worker,
            lease_s=config.lease_s,
            heartbeat_s=config.heartbeat_s,
            idle_timeout_s=config.idle_timeout_s,
            policy=policy_of(service, worker, service.engine.version),
            version=service.engine.version,
        )
