"""The line to a server: dials, greets, keeps alive, redials, and sends again what was not answered.

Requests go in, their tickets are resolved; connections come and go underneath. Workers only dial out.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections import deque
from collections.abc import Callable
from typing import Protocol

from aiops.errors import (
    AiopsError,
    Busy,
    ConnectFailed,
    ConnectionLost,
    DeadlineExceeded,
    TransportError,
)
from aiops.transport.base import Connection, Receiver
from aiops.wire.frame import Kind
from aiops.wire.message import Message, Welcome
from aiops.worker.line import Identity as Identity
from aiops.worker.line import Line, heard
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
        self._give_up_s = give_up_s
        self._rng = rng
        self._loop = asyncio.get_running_loop()
        self._requests: deque[Request] = deque()
        self._line: Line | None = None
        self._greeted: asyncio.Future[None] = self._loop.create_future()
        self._greeted.add_done_callback(heard)
        self._closing = asyncio.Event()
        self._over: Exception | None = None
        # How long it has been tried to get a line, how long it may be, and when to try again.
        self._since = self._loop.time()
        self._patience_s = connect_timeout_s
        self._backoff_s = FIRST_BACKOFF_S

    async def run(self) -> None:
        """Keep the line up until it is cancelled, turned away, or cannot be had any more.

        Ends after failing every open request with the reason, by itself and without an exception unless it is a bug.
        """
        why: Exception = ConnectionLost("the worker was closed")
        try:
            await self._keep()
        except AiopsError as error:
            why = error
        except Exception as error:
            why = error
            raise
        finally:
            self._over = why
            if not self._greeted.done():
                self._greeted.set_exception(why)
            while self._requests:
                self._requests.popleft().ticket.fail(why)

    async def greeted(self) -> Welcome:
        """Wait for the first greeting.

        Raises:
            ConnectFailed: No server answered in the connect timeout.
            Busy: The server was full all that time.
            Rejected: The server turned this worker away.
            ProtocolError: There is no server of ours, or it speaks another protocol version.
        """
        await asyncio.wait([self._greeted])
        self._greeted.result()
        return self.greeting

    @property
    def greeting(self) -> Welcome:
        """What the server said at the last greeting; there has been one."""
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

    def post(self, kind: Kind, body: Message) -> None:
        """Send what is no request, once, if there is a connection now."""
        if self._line is not None:
            self._line.post(kind, body)

    async def leave(self) -> None:
        """Tell the server not to wait for this worker any more, and dial no more; never raises."""
        self._closing.set()
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

    # Whoever turns us away, or does not speak our protocol, will do so again: only lost links are worth another try.
    async def _keep(self) -> None:
        error: AiopsError | None = None
        while not self._closing.is_set():
            try:
                await self._open_and_serve(error)
            except (TransportError, DeadlineExceeded, Busy) as lost:
                error = lost
            if self._closing.is_set():
                return
            assert error is not None
            left_s = self._left_s()
            if left_s <= 0:
                raise self._given_up(error)
            # The first loss is worth a line to whoever listens at all; the rest is for the curious.
            level = logging.WARNING if self._backoff_s == FIRST_BACKOFF_S else logging.INFO
            log.log(level, "no connection, dialling again for %.0f s: %s", left_s, error)
            await asyncio.sleep(min(left_s, self._backoff_s * self._rng.uniform(0.5, 1.0)))
            self._backoff_s = min(2 * self._backoff_s, LONGEST_BACKOFF_S)

    async def _open_and_serve(self, last: AiopsError | None) -> None:
        # The first try is bounded by the dial's own timeout, whose error names the address.
        deadline = None if last is None else self._since + self._patience_s
        try:
            async with asyncio.timeout_at(deadline):
                line = await self._open()
        except TimeoutError as error:
            if last is None or isinstance(error, AiopsError):
                raise
            raise last from None
        opened, self._patience_s = self._loop.time(), self._give_up_s
        try:
            await line.serve()
        finally:
            self._line = None
            line.connection.abort()
            # A line that is lost at once, again and again, is none: patience ends only with one that was of use.
            now = self._loop.time()
            if line.answers or now - opened >= self.greeting.heartbeat_s:
                self._since, self._backoff_s = now, FIRST_BACKOFF_S

    async def _open(self) -> Line:
        line: Line | None = None

        def make() -> Receiver:
            nonlocal line
            line = Line(self._requests)
            return line

        idle_s = self.welcome.idle_timeout_s if self.welcome else GREETING_S
        connection = await self._dial(make, idle_timeout_s=idle_s)
        assert line is not None
        line.connection = connection
        # Of a server that has no room for a push yet nothing but signs of life is to be had.
        connection.patient = True
        try:
            timeout_s = min(GREETING_S, max(0.0, self._left_s()))
            self.welcome = await line.greet(self._identity, timeout_s=timeout_s)
        except BaseException:
            connection.abort()
            raise
        self.connections += 1
        if self.connections > 1:
            log.warning("connected again to %s", line.connection.peer)
        self._line = line
        for request in self._requests:
            line.enqueue(request)
        if not self._greeted.done():
            self._greeted.set_result(None)
        return line

    def _left_s(self) -> float:
        return self._since + self._patience_s - self._loop.time()

    def _given_up(self, error: AiopsError) -> AiopsError:
        if isinstance(error, ConnectFailed | Busy):
            return error
        waited_s = self._loop.time() - self._since
        return ConnectFailed(
            f"no connection for {waited_s:.1f} s, the last try ended with: {error}"
        )
