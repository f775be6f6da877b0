"""One worker's connection, seen from the server: frames to events, answers to frames, loans to their end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

import msgspec

from aiops.buffers import Block, BufferPool
from aiops.errors import AiopsError, ProtocolError, Refused, RemoteProtocolError, StalePush
from aiops.server.members import Member
from aiops.transport.base import Connection, Outgoing
from aiops.types import Version
from aiops.wire.frame import Frame, Header, Kind
from aiops.wire.message import Agreed, Bye, Message, Push, Refuse, Share
from aiops.wire.reader import Landing
from aiops.wire.session import Event, Role, Session
from aiops.wire.table import Table

if TYPE_CHECKING:
    from aiops.server.answer import Tentative

# Bulk answers that may wait on one connection. A worker has one sync and one pull under way; more is a flood.
MAX_QUEUED = 16


class Reply(msgspec.Struct):
    """Frames to send, and the loans that end when they are sent.

    ``begun`` says that it is being sent, or will not be: more frames would be lost.
    """

    frames: list[Outgoing]
    loans: list[Block] = []
    begun: bool = False

    def release(self) -> None:
        """End the loans."""
        self.begun = True
        for block in self.loans:
            block.release()
        self.loans.clear()


class Owner(Protocol):
    """What a peer needs of its service."""

    @property
    def table(self) -> Table | None:
        """The agreed key table."""

    def land(self, peer: Peer, header: Header, message: Push) -> Landing | None:
        """Choose where a bucket of a push goes; None leaves it to the peer, HOLD has it wait.

        MemoryError and RemoteProtocolError end its connection.
        """

    def wants(self, peer: Peer, header: Header, share: Share) -> bool:
        """Return whether memory is taken for a part of a share; others are read and dropped."""

    def dispatch(self, peer: Peer, event: Event) -> None:
        """Act on a whole message."""

    def lost(self, peer: Peer, error: Exception | None) -> None:
        """Hear that the connection is over."""

    def fail(self, error: BaseException) -> None:
        """Take the whole server down: a bug of ours showed."""


class Peer:
    """A connection and its session; ``member`` is set by the handshake.

    Args:
        owner: Whose it is.
        pool: Where payloads go.
        part: Told of every TENSOR frame, after what it completes was acted on.

    Attributes:
        session: The protocol state.
        connection: The live link.
        member: Who is at the other end; None before the handshake.
        since: When the connection was made, in seconds of the loop's clock.
        ahead: Answers that are sent before their round is closed, by request.
        sent: Version of the newest model sent on it; None before the first.
    """

    def __init__(
        self,
        owner: Owner,
        pool: BufferPool,
        *,
        part: Callable[[Peer, Frame], None] | None = None,
    ) -> None:
        self.session = Session(Role.SERVER)
        self.connection: Connection
        self.member: Member | None = None
        self.since = asyncio.get_running_loop().time()
        self.ahead: dict[int, Tentative] = {}
        self.sent: Version | None = None
        self._owner = owner
        self._pool = pool
        self._part = part
        self._writing = False
        self._replies: asyncio.Queue[Reply | None] = asyncio.Queue(MAX_QUEUED)

    def place(self, header: Header) -> Landing | None:
        """Take a block for a bulk payload; none for what will be refused anyway."""
        announced = self.session.admit(header)
        if self.member is None:
            raise RemoteProtocolError(f"{header.kind.name} frame before HELLO")
        table = self._owner.table
        if isinstance(announced, Share):
            if not self._owner.wants(self, header, announced):
                return None
        elif announced is not None and (table is None or header.size > _most(table, header.key)):
            return None
        if isinstance(announced, Push):
            try:
                landing = self._owner.land(self, header, announced)
            except (MemoryError, ProtocolError):
                # It ends this connection, as it does where a block is taken below.
                raise
            except Exception as error:
                # Of a policy's, which is asked beforehand.
                self._owner.fail(error)
                return None
            if landing is not None:
                return landing
        block = self._pool.take(header.size)
        return Landing(block.view, block)

    def frame_received(self, frame: Frame) -> None:
        """Hand a completed message on; a bug of ours takes the server down instead of one connection."""
        try:
            event = self.session.receive(frame)
            if event is not None:
                self._owner.dispatch(self, event)
            if self._part is not None and frame.header.kind is Kind.TENSOR:
                self._part(self, frame)
        except ProtocolError:
            raise
        except Exception as error:
            self._owner.fail(error)

    def connection_lost(self, error: Exception | None) -> None:
        """End everything that hangs on this connection."""
        self.session.close()
        self.ahead.clear()
        try:
            self._owner.lost(self, error)
        except Exception as bug:
            self._owner.fail(bug)
        while not self._replies.empty():
            reply = self._replies.get_nowait()
            if reply is not None:
                reply.release()
        self._replies.put_nowait(None)

    def post(self, kind: Kind, body: Message, request: int = 0) -> None:
        """Send a control message; a peer that is gone misses it."""
        if not self.connection.closed:
            self.connection.post(self.session.send(kind, body, request=request))

    def send_table(self, agreed: Agreed, request: int) -> None:
        """Send the key table, which may be larger than a control message."""
        if not self.connection.closed:
            self.queue(Reply([(self.session.send(Kind.TABLE, agreed, request=request), ())]))

    def refuse(self, request: int, error: Refused) -> None:
        """Decline a request; one that is half answered already ends the connection, and is declined on the next."""
        if self.ahead and request in self.ahead:
            self.ahead[request].cut(str(error))
            return
        args = (error.staleness, error.bound) if isinstance(error, StalePush) else ()
        self.post(Kind.REFUSE, Refuse(error.code, str(error)[:4000], args), request)

    def queue(self, reply: Reply) -> None:
        """Send a bulk reply in its turn; its loans end when it is sent, or cannot be."""
        if self.connection.closed:
            reply.release()
            return
        if not self._writing and self._replies.empty() and self.connection.send_now(reply.frames):
            reply.release()
            return
        try:
            self._replies.put_nowait(reply)
        except asyncio.QueueFull:
            reply.release()
            self.connection.abort(RemoteProtocolError(f"more than {MAX_QUEUED} answers unread"))

    async def write(self) -> None:
        """Send the queued replies, one after the other, until the connection is over."""
        while True:
            reply = await self._replies.get()
            if reply is None:
                return
            self._writing = reply.begun = True
            try:
                await self.connection.send(reply.frames)
            except (AiopsError, OSError):
                # The connection is over, and connection_lost tells why.
                continue
            finally:
                self._writing = False
                reply.release()

    async def bye(self, reason: str) -> None:
        """Say goodbye, to whom has said hello, and close once it has left."""
        if self.member is not None:
            self.post(Kind.BYE, Bye(reason))
        try:
            await self.connection.close()
        except (AiopsError, OSError):
            # It is over all the same, and connection_lost tells why.
            return


def most_bytes(size: int) -> int:
    """Return the size of the widest payload of a bucket of ``size`` values.

    An index and a value for each of them, or the head of a coded payload where they are few.
    """
    return 8 * size + 32


def _most(table: Table, key: int) -> int:
    return most_bytes(table.buckets[key].size) if key < len(table.buckets) else -1


def whole_table(keys: Sequence[int], table: Table) -> bool:
    """Return whether ``keys`` names every bucket exactly once."""
    return sorted(keys) == list(range(len(table.buckets)))
