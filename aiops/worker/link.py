"""The line to a server: dials, greets, keeps alive, redials, and sends again what was not answered.

Requests go in, their tickets are resolved; connections come and go underneath. Workers only dial out.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from aiops.errors import (
    AiopsError,
    Busy,
    ConnectFailed,
    ConnectionLost,
    DeadlineExceeded,
    LocalProtocolError,
    ProtocolError,
    Rejected,
    TransportError,
    VersionMismatch,
)
from aiops.transport.base import Connection, Outgoing, Receiver
from aiops.wire.frame import Frame, Header, Kind
from aiops.wire.message import MINOR, Bye, Hello, Leave, Ping, Reject, Welcome
from aiops.wire.reader import Landing
from aiops.wire.session import Event, Role, Session
from aiops.worker.request import Request

log = logging.getLogger("aiops.worker")

GREETING_S = 10.0
FIRST_BACKOFF_S = 0.1
LONGEST_BACKOFF_S = 5.0
LEAVING_S = 2.0


class Dial(Protocol):
    """Opens one connection to the server."""

    async def __call__(
        self, make_receiver: Callable[[], Receiver], *, idle_timeout_s: float
    ) -> Connection:
        """Return a connection whose frames go to the receiver.

        Raises:
            TransportError: There is none to be had now.
        """


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


class Link:
    """Keeps one worker connected.

    Args:
        dial: Opens connections.
        identity: Who this is.
        connect_timeout_s: How long the first connection may take to come about.
        give_up_s: How long a lost connection is tried to be replaced.
        rng: Spreads the redials of many workers.

    Attributes:
        welcome: What the server said at the last greeting; None before the first.
        connections: Connections made so far.
    """

    def __init__(
        self,
        dial: Dial,
        identity: Identity,
        *,
        connect_timeout_s: float,
        give_up_s: float,
        rng: random.Random,
    ) -> None:
        self.welcome: Welcome | None = None
        self.connections = 0
        self._dial = dial
        self._identity = identity
        self._connect_timeout_s = connect_timeout_s
        self._give_up_s = give_up_s
        self._rng = rng
        self._loop = asyncio.get_running_loop()
        self._requests: deque[Request] = deque()
        self._line: _Line | None = None
        self._greeted = self._loop.create_future()
        self._closing = False
        self._over: AiopsError | None = None

    async def run(self) -> None:
        """Keep the line up until it is cancelled, rejected, or cannot be had any more.

        Ends by itself, without an exception, after failing every open request.
        """
        try:
            await self._keep()
        except AiopsError as error:
            self._over = error
            if not self._greeted.done():
                self._greeted.set_exception(error)
        finally:
            why = self._over or ConnectionLost("the worker was closed")
            self._over = why
            while self._requests:
                self._requests.popleft().ticket.fail(why)

    async def greeted(self) -> Welcome:
        """Wait for the first greeting.

        Raises:
            ConnectFailed: No server answered in the connect timeout.
            Rejected: The server turned this worker away.
            VersionMismatch: The server speaks another protocol.
        """
        await asyncio.shield(self._greeted)
        assert self.welcome is not None
        return self.welcome

    def submit(self, request: Request) -> None:
        """Send a request, now and after every reconnect, until it is answered."""
        if self._over is not None:
            request.ticket.fail(self._over)
            return
        self._requests.append(request)
        if self._line is not None:
            self._line.enqueue(request)

    async def leave(self) -> None:
        """Tell the server not to wait for this worker any more; never raises."""
        self._closing = True
        line = self._line
        if line is None or line.connection.closed:
            return
        try:
            async with asyncio.timeout(LEAVING_S):
                await line.leave()
        except (AiopsError, TimeoutError):
            log.debug("left without the server's goodbye")

    def cut(self) -> None:
        """Abort the connection, as a broken network would; the link dials again."""
        if self._line is not None:
            self._line.connection.abort(ConnectionLost("cut"))

    @property
    def received_bytes(self) -> int:
        """Bytes received over the present connection."""
        return 0 if self._line is None else self._line.connection.received_bytes

    async def _keep(self) -> None:
        backoff, since, patience = FIRST_BACKOFF_S, self._loop.time(), self._connect_timeout_s
        while not self._closing:
            line = None
            try:
                line = await self._open()
                backoff, patience = FIRST_BACKOFF_S, self._give_up_s
                await line.serve()
            except (Rejected, VersionMismatch, LocalProtocolError):
                raise
            except (TransportError, DeadlineExceeded, ProtocolError, Busy) as error:
                if line is not None:
                    since = self._loop.time()
                waited = self._loop.time() - since
                if waited >= patience or self._closing:
                    raise _given_up(error, waited) from None
                log.info("no connection, dialling again in about %.1f s: %s", backoff, error)
                await asyncio.sleep(backoff * self._rng.uniform(0.5, 1.0))
                backoff = min(2 * backoff, LONGEST_BACKOFF_S)
            finally:
                self._line = None
                if line is not None:
                    line.connection.abort()

    async def _open(self) -> _Line:
        idle_s = self.welcome.idle_timeout_s if self.welcome else GREETING_S
        line: _Line | None = None

        def make() -> Receiver:
            nonlocal line
            line = _Line(self._requests)
            return line

        connection = await self._dial(make, idle_timeout_s=idle_s)
        assert line is not None
        line.connection = connection
        try:
            self.welcome = await line.greet(self._identity)
        except BaseException:
            connection.abort()
            raise
        self.connections += 1
        self._line = line
        for request in self._requests:
            line.enqueue(request)
        if not self._greeted.done():
            self._greeted.set_result(None)
        return line


class _Line:
    """One connection of a link: its session, and the requests that were sent on it."""

    connection: Connection

    def __init__(self, requests: deque[Request]) -> None:
        self._all = requests
        self._session = Session(Role.WORKER)
        self._loop = asyncio.get_running_loop()
        self._queue: asyncio.Queue[Request | list[Outgoing]] = asyncio.Queue()
        self._sent: dict[int, Request] = {}
        self._welcome: asyncio.Future[Welcome] = self._loop.create_future()
        self._lost: asyncio.Future[None] = self._loop.create_future()
        self._bye = self._loop.create_future()
        # Whoever asks is told; an error that nobody asks about is not an error.
        for future in (self._welcome, self._lost):
            future.add_done_callback(lambda done: done.cancelled() or done.exception())

    def enqueue(self, request: Request) -> None:
        """Send a request in its turn."""
        self._queue.put_nowait(request)

    async def greet(self, identity: Identity) -> Welcome:
        """Introduce the worker and return the server's answer."""
        hello = Hello(
            minor=MINOR,
            library=identity.library,
            features=0,
            identity=identity.identity,
            incarnation=identity.incarnation,
            token=identity.token,
            name=identity.name,
        )
        self.connection.post(self._session.send(Kind.HELLO, hello))
        try:
            async with asyncio.timeout(GREETING_S):
                return await self._welcome
        except TimeoutError:
            raise DeadlineExceeded(
                "the greeting", peer=self.connection.peer, waited_s=GREETING_S
            ) from None

    async def serve(self) -> None:
        """Send what is asked and keep the line alive until it is lost; raises how it was lost."""
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._send(), name="send")
                tasks.create_task(self._beat(), name="heartbeat")
                await self._lost
        except BaseExceptionGroup as group:
            raise group.exceptions[0] from None

    async def leave(self) -> None:
        """Say goodbye, hear it back, and close."""
        self.connection.post(self._session.send(Kind.LEAVE, Leave()))
        await self._bye
        await self.connection.close()

    def place(self, header: Header) -> Landing:
        """Land tensors where their request wants them."""
        self._session.admit(header)
        if header.kind is not Kind.TENSOR:
            return memoryview(bytearray(header.size)), None
        request = self._sent.get(header.request)
        return None if request is None else (request.land(header), None)

    def frame_received(self, frame: Frame) -> None:
        """Act on a completed message."""
        event = self._session.receive(frame)
        if event is None:
            return
        match event.body:
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

    def connection_lost(self, error: Exception | None) -> None:
        """Tell everybody who waits on this line."""
        greeted = self._welcome.done()
        self._session.close()
        lost = error or ConnectionLost("the connection was closed")
        if not greeted:
            # With TLS 1.3 a rejected certificate shows up only as this.
            self._welcome.set_exception(
                lost
                if isinstance(lost, ProtocolError | DeadlineExceeded)
                else ConnectionLost(f"{self.connection.peer} hung up before its welcome: {lost}")
            )
        for waiter in (self._lost, self._bye):
            if not waiter.done():
                waiter.set_exception(lost) if waiter is self._lost else waiter.set_result(None)

    def _answered(self, event: Event) -> None:
        request = self._sent[event.request]
        more = request.answered(self._session, event)
        if more is None:
            del self._sent[event.request]
            self._all.remove(request)
        elif more:
            self._queue.put_nowait(more)

    async def _send(self) -> None:
        while True:
            item = await self._queue.get()
            if isinstance(item, list):
                await self.connection.send(item)
                continue
            number = self._session.next_request()
            self._sent[number] = item
            await self.connection.send(item.frames(self._session, number))

    # Ping in every heartbeat, and give the line up when nothing at all comes back.
    async def _beat(self) -> None:
        welcome = self._welcome.result()
        while True:
            await asyncio.sleep(welcome.heartbeat_s)
            silent_s = self._loop.time() - self.connection.last_heard
            if silent_s > welcome.idle_timeout_s:
                error = DeadlineExceeded(
                    "any sign of life",
                    peer=self.connection.peer,
                    waited_s=welcome.idle_timeout_s,
                    moved_bytes=self.connection.received_bytes,
                )
                self.connection.abort(error)
                raise error
            self.connection.post(self._session.send(Kind.PING, Ping()))


def _given_up(error: AiopsError, waited_s: float) -> AiopsError:
    if isinstance(error, ConnectFailed):
        return error
    return ConnectFailed(f"no connection for {waited_s:.1f} s, the last try ended with: {error}")
