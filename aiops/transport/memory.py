"""Connections inside one process: the same frames, readers and loans, with a link between them that can be slow.

Everything is timed by the running loop's clock, so a cluster on this transport runs on virtual time. Users test
against it too.
"""

from __future__ import annotations

import asyncio
import math
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from aiops.errors import ConfigError, ConnectFailed, ConnectionLost
from aiops.transport.base import Receiver
from aiops.transport.stream import StreamConnection

# What may lie before a peer that does not read: about what a kernel would hold. What a link with a delay carries on its
# way is not counted, so that only the rate limits what goes through.
WINDOW_BYTES = 1024 * 1024

# A slow line delivers at least this often, so that whoever waits for progress sees some.
PIECE_S = 0.1


@dataclass(slots=True)
class Link:
    """One direction of a connection.

    Attributes:
        delay_s: One-way delay.
        rate_bytes_s: Bytes per second; None is no limit.
        cut_after: Bytes after which the connection breaks; None is never. Counts down as bytes are delivered, and is
            None again once the connection is broken: the next one over this link stands.
        jitter_s: Each piece takes up to so much less or more, uniformly, but never less than nothing; pieces stay in
            order, so that one behind a late one is late, too.
        rng: Where that is drawn from; the same for the same seed.
    """

    delay_s: float = 0.0
    rate_bytes_s: float | None = None
    cut_after: int | None = None
    jitter_s: float = 0.0
    rng: random.Random = field(default_factory=lambda: random.Random(0), repr=False, compare=False)

    def draw_s(self) -> float:
        """Return how long the next piece is on its way once the line has taken it, in seconds."""
        if not self.jitter_s:
            return self.delay_s
        return max(0.0, self.delay_s + self.jitter_s * (2 * self.rng.random() - 1))


class MemoryConnection(StreamConnection):
    """One end of a connection inside the process; made by :class:`MemoryNetwork`.

    Loans are as strict as on the strictest loop: memory that is changed before ``send`` has returned arrives changed.
    """

    _twin: MemoryConnection

    def join(self, twin: MemoryConnection, link: Link, *, peer: str) -> None:
        """Make ``twin`` the other end; what is written here reaches it over ``link``."""
        self._twin = twin
        self._link = link
        self.peer = peer
        # When each piece arrives; None is the end of the stream.
        self._wire: deque[tuple[float, bytes | memoryview | None]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._line_timer: asyncio.TimerHandle | None = None
        self._line_free = 0.0
        self._undelivered = 0
        self._reading = True
        self._aborted = False

    def pause_reading(self) -> None:
        """Stop taking bytes from the peer."""
        self._reading = False

    def resume_reading(self) -> None:
        """Take bytes from the peer again."""
        self._reading = True
        self._look_again()
        self._twin._schedule()
        self._twin._maybe_resume()

    def _write(self, data: bytes | memoryview) -> None:
        rate, now = self._link.rate_bytes_s, self._loop.time()
        start = due = max(now, self._line_free)
        step = len(data) if rate is None else max(1, int(rate * PIECE_S))
        for at in range(0, len(data), step):
            piece = data[at : at + step]
            due = start if rate is None else start + (at + len(piece)) / rate
            self._wire.append((due + self._link.draw_s(), piece))
        self._line_free = due
        self._undelivered += len(data)
        if self._backlog():
            self._pause()
            self._maybe_resume()
        else:
            self._take()
        self._schedule()

    # What the line has not taken yet, and what lies before the peer beyond the window.
    def _backlog(self) -> int:
        now, on_line = self._loop.time(), 0
        if self._link.rate_bytes_s is not None:
            on_line = math.ceil(self._link.rate_bytes_s * (self._line_free - now))
        all_on_the_way = self._twin._reading and not (self._wire and self._wire[0][0] <= now)
        beyond = 0 if all_on_the_way else self._undelivered - WINDOW_BYTES
        return max(0, on_line) + max(0, beyond)

    # The loans end: what is still a view of the sender's memory becomes the network's own.
    def _take(self) -> None:
        wire = self._wire
        for at in range(len(wire) - 1, -1, -1):
            due, piece = wire[at]
            if not isinstance(piece, memoryview):
                break
            wire[at] = (due, bytes(piece))

    # A timer may fire a rounding error early, so that it is set again until the line is free.
    def _maybe_resume(self) -> None:
        if self._line_free > self._loop.time():
            if self._line_timer is None:
                self._line_timer = self._loop.call_at(self._line_free, self._line_ready)
        elif self._paused and not self._backlog():
            self._take()
            self._resume()

    def _line_ready(self) -> None:
        self._line_timer = None
        self._maybe_resume()

    def _schedule(self) -> None:
        if self._timer is None and self._wire and self._twin._reading:
            self._timer = self._loop.call_at(self._wire[0][0], self._deliver)

    def _deliver(self) -> None:
        self._timer = None
        twin = self._twin
        if twin.closed:
            self._wire.clear()
            self._hear_of_end()
        while self._wire and twin._reading and self._wire[0][0] <= self._loop.time():
            due, piece = self._wire.popleft()
            if piece is None:
                ended = "aborted" if self._aborted else "closed"
                twin._lost(ConnectionLost(f"{twin.peer} {ended} the connection {twin._where()}"))
                return
            n = self._carry(piece)
            if n is None:
                return
            self._undelivered -= n
            if n < len(piece):
                self._wire.appendleft((due, piece[n:]))
        self._maybe_resume()
        self._schedule()

    # What reaches an end that is gone comes back as a reset, which one hears of that does not read, too.
    def _hear_of_end(self) -> None:
        if not (self.closed or self._reading):
            lost = ConnectionLost(f"{self.peer} is gone {self._where()}")
            self._loop.call_later(self._twin._link.draw_s(), self._lost, lost)

    # Hand a piece to the other end; returns how much of it that takes, or None where the connection is cut.
    def _carry(self, piece: bytes | memoryview) -> int | None:
        twin, left = self._twin, self._link.cut_after
        n = twin._feed(memoryview(piece)[:left])
        if left is None:
            return n
        if left > n:
            self._link.cut_after = left - n
            return n
        self._link.cut_after = None
        self._lost(ConnectionLost(f"connection to {self.peer} was cut"))
        twin._lost(ConnectionLost(f"connection to {twin.peer} was cut {twin._where()}"))
        return None

    # Take bytes in, and say how many; all but what comes after the receiver has no memory. What is for an end that is
    # closed is taken by nobody.
    def _feed(self, data: memoryview) -> int:
        at = 0
        while at < len(data) and not (self.closed or self._reader.held):
            room = self._reader.get_buffer(-1)
            n = min(len(room), len(data) - at)
            room[:n] = data[at : at + n]
            self._filled(n)
            at += n
        return len(data) if self.closed else at

    def _shut(self, *, gently: bool) -> None:
        if not gently:
            self._aborted = True
            self._wire.clear()
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
        # The end of the stream travels as long as any bytes, and stays behind the last of them.
        self._wire.append((self._loop.time() + self._link.draw_s(), None))
        self._schedule()
        self._loop.call_soon(self._lost, None)


class MemoryListener:
    """A name inside a :class:`MemoryNetwork`."""

    def __init__(
        self,
        network: MemoryNetwork,
        name: str,
        accept: Callable[[], MemoryConnection],
        made: Callable[[Receiver, MemoryConnection], None],
    ) -> None:
        self.addresses = [(name, 0)]
        self.accept = accept
        self.made = made
        self._network = network
        self._name = name

    async def close(self) -> None:
        """Stop accepting."""
        if self._network.listeners.get(self._name) is self:
            del self._network.listeners[self._name]


class MemoryNetwork:
    """Names that can be listened on and dialled, all inside one loop."""

    def __init__(self) -> None:
        self.listeners: dict[str, MemoryListener] = {}

    async def listen(
        self,
        name: str,
        make_receiver: Callable[[], Receiver],
        *,
        max_frame_bytes: int,
        idle_timeout_s: float,
        made: Callable[[Receiver, MemoryConnection], None],
    ) -> MemoryListener:
        """Accept connections under ``name``; the arguments are those of :func:`aiops.transport.tcp.listen`.

        Raises:
            ConfigError: The name is taken.
        """
        if name in self.listeners:
            raise ConfigError(f"cannot bind {name!r}: it is taken")

        def accept() -> MemoryConnection:
            return MemoryConnection(
                make_receiver(), max_frame_bytes=max_frame_bytes, idle_timeout_s=idle_timeout_s
            )

        listener = MemoryListener(self, name, accept, made)
        self.listeners[name] = listener
        return listener

    async def connect(
        self,
        name: str,
        make_receiver: Callable[[], Receiver],
        *,
        max_frame_bytes: int,
        idle_timeout_s: float,
        up: Link | None = None,
        down: Link | None = None,
    ) -> MemoryConnection:
        """Dial ``name`` over two links (``up`` carries what this end sends).

        Raises:
            ConnectFailed: Nobody listens there.
        """
        listener = self.listeners.get(name)
        if listener is None:
            raise ConnectFailed(f"cannot connect to {name}: nobody listens there")
        near = MemoryConnection(
            make_receiver(), max_frame_bytes=max_frame_bytes, idle_timeout_s=idle_timeout_s
        )
        far = listener.accept()
        near.join(far, up or Link(), peer=name)
        far.join(near, down or Link(), peer="memory")
        listener.made(far._receiver, far)
        return near
