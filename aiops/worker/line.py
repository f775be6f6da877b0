"""One connection of a worker: its session, and the requests that were sent on it."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from dataclasses import dataclass
from typing import Any

from aiops.errors import (
    AiopsError,
    Busy,
    ConnectionLost,
    DeadlineExceeded,
    ProtocolError,
    Rejected,
)
from aiops.transport.base import Connection, Outgoing
from aiops.wire.frame import Frame, Header, Kind
from aiops.wire.message import (
    MINOR,
    Ack,
    Bye,
    Hello,
    Leave,
    Message,
    Model,
    Ping,
    Reject,
    Welcome,
)
from aiops.wire.reader import Landing
from aiops.wire.session import Event, Role, Session
from aiops.worker.request import Request

log = logging.getLogger("aiops.worker")


@dataclass(frozen=True, slots=True)
class Identity:
    """What a worker calls itself across reconnects.

    Attributes:
        identity: Unique name of the worker.
        incarnation: Which life of it this is; a higher one replaces a lower one.
        name: For people.
        token: Secret to show; None has none.
        library: Version of this library.
    """

    identity: str
    incarnation: int
    name: str
    token: str | None
    library: str


class Line:
    """Sends requests over one connection and hands their answers back, until it is lost.

    Args:
        requests: All open requests of the link; what is answered here is taken out of it.

    Attributes:
        connection: The live link, set by whoever dialled it.
        answers: Requests answered on this line.
    """

    connection: Connection

    def __init__(self, requests: deque[Request]) -> None:
        self.answers = 0
        self._all = requests
        self._session = Session(Role.WORKER)
        self._loop = asyncio.get_running_loop()
        self._queue: asyncio.Queue[Request | list[Outgoing]] = asyncio.Queue()
        self._sent: dict[int, Request] = {}
        self._sending = False
        self._sent_at = self._loop.time()
        self._welcome: asyncio.Future[Welcome] = self._loop.create_future()
        self._lost: asyncio.Future[None] = self._loop.create_future()
        self._bye: asyncio.Future[None] = self._loop.create_future()
        for future in (self._welcome, self._lost):
            future.add_done_callback(heard)

    def enqueue(self, request: Request) -> None:
        """Send a request in its turn, which for a small one is now if nobody else has it."""
        if self._sending or self._queue.qsize() or self.connection.closed:
            self._queue.put_nowait(request)
            return
        try:
            frames = self._frames(request)
        except AiopsError as error:
            self._fail(error)
            return
        if self.connection.send_now(frames):
            self._sent_at = self._loop.time()
        else:
            self._queue.put_nowait(frames)

    def post(self, kind: Kind, body: Message) -> None:
        """Send what is no request at the next frame boundary."""
        if not self.connection.closed:
            self.connection.post(self._session.send(kind, body))

    async def greet(self, identity: Identity, *, timeout_s: float) -> Welcome:
        """Introduce the worker and return the server's answer.

        Raises:
            Rejected: The server turned it away for good.
            Busy: The server is full.
            DeadlineExceeded: There is no answer.
            TransportError: The connection is lost.
            ProtocolError: There is no server of ours at the other end.
        """
        hello = Hello(
            minor=MINOR,
            library=identity.library,
            features=0,
            identity=identity.identity,
            incarnation=identity.incarnation,
            token=identity.token,
            name=identity.name,
        )
        if not self.connection.closed:
            self.connection.post(self._session.send(Kind.HELLO, hello))
        try:
            async with asyncio.timeout(timeout_s):
                return await self._welcome
        except TimeoutError as error:
            if isinstance(error, DeadlineExceeded):
                raise
            raise DeadlineExceeded(
                "the greeting", peer=self.connection.peer, waited_s=timeout_s
            ) from None

    async def serve(self) -> None:
        """Send what is asked and keep the line alive until it is lost; raises how it was lost."""
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._send(), name="send")
                tasks.create_task(self._beat(), name="heartbeat")
                await asyncio.wait([self._lost])
                self._lost.result()
        except BaseExceptionGroup as group:
            # How the line ended tells more than what failed because it had.
            lost = self._lost.exception() if self._lost.done() else None
            raise lost or group.exceptions[0] from None

    async def leave(self) -> None:
        """Say goodbye, hear it back, and close."""
        self.connection.post(self._session.send(Kind.LEAVE, Leave()))
        await asyncio.wait([self._bye])
        await self.connection.close()

    def place(self, header: Header) -> Landing | None:
        """Land tensors where their request wants them."""
        self._session.admit(header)
        if header.kind is not Kind.TENSOR:
            return Landing(memoryview(bytearray(header.size)))
        request = self._sent.get(header.request)
        return None if request is None else Landing(request.land(header))

    def frame_received(self, frame: Frame) -> None:
        """Act on a completed message; a bug ends the line with its exception instead of vanishing in the loop."""
        try:
            event = self._session.receive(frame)
            if event is not None:
                self._act(event)
        except ProtocolError:
            raise
        except Exception as error:
            self._fail(error)
            self.connection.abort()

    def connection_lost(self, error: Exception | None) -> None:
        """Tell everybody who waits on this line."""
        self._session.close()
        lost = error or ConnectionLost("the connection was closed")
        if not self._welcome.done():
            # With TLS 1.3 a rejected certificate shows up only here.
            self._welcome.set_exception(
                lost
                if isinstance(lost, ProtocolError | DeadlineExceeded | Rejected)
                else ConnectionLost(f"the server hung up before its welcome: {lost}")
            )
        self._fail(lost)
        if not self._bye.done():
            self._bye.set_result(None)

    def _fail(self, error: Exception) -> None:
        if not self._lost.done():
            self._lost.set_exception(error)

    def _act(self, event: Event) -> None:
        match event.body:
            case Model() | Ack():
                self._answered(event)
            case Welcome():
                self._welcome.set_result(event.body)
            case Reject(reason, retry):
                self._welcome.set_exception(Busy(reason) if retry else Rejected(reason))
            case Bye(reason):
                log.info("server says goodbye: %s", reason)
                if not self._bye.done():
                    self._bye.set_result(None)
            case Ping():
                if event.kind is Kind.PING:
                    self.connection.post(self._session.send(Kind.PONG, Ping()))
            case _:
                self._answered(event)

    def _answered(self, event: Event) -> None:
        request = self._sent[event.request]
        more = request.answered(self._session, event)
        if more is None:
            self.answers += 1
            del self._sent[event.request]
            self._all.remove(request)
        elif more:
            self._queue.put_nowait(more)

    def _frames(self, request: Request) -> list[Outgoing]:
        number = self._session.next_request()
        self._sent[number] = request
        return request.frames(self._session, number)

    async def _send(self) -> None:
        while True:
            item = await self._queue.get()
            self._sending = True
            await self.connection.send(item if isinstance(item, list) else self._frames(item))
            # No name holds on to a push while the next one is waited for: its vectors are used again.
            del item
            self._sending = False
            self._sent_at = self._loop.time()

    # Ping in every heartbeat, and give the line up when nothing at all comes back. While a request is being sent,
    # pings wait behind its bytes and the send itself watches whether the peer takes them.
    async def _beat(self) -> None:
        welcome = self._welcome.result()
        while True:
            await asyncio.sleep(welcome.heartbeat_s)
            silent_s = self._loop.time() - max(self.connection.last_heard, self._sent_at)
            if silent_s > welcome.idle_timeout_s and not self._sending:
                error = DeadlineExceeded(
                    "any sign of life",
                    peer=self.connection.peer,
                    waited_s=silent_s,
                    moved_bytes=self.connection.received_bytes,
                )
                self.connection.abort(error)
                raise error
            self.connection.post(self._session.send(Kind.PING, Ping()))


def heard(future: asyncio.Future[Any]) -> None:
    """Count a future's error as heard: one that nobody asks about is no error of anybody's."""
    if not future.cancelled():
        future.exception()
