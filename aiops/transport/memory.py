"""Connections inside one process: the same frames, readers and loans, with a link between them that can be slow.

Everything is timed by the running loop's clock, so a cluster on this transport runs on virtual time. Users test
against it too.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from aiops.errors import ConfigError, ConnectFailed, ConnectionLost
from aiops.transport.base import Receiver
from aiops.transport.stream import StreamConnection

# What may be on its way to a peer that does not read: about what a kernel would hold.
WINDOW_BYTES = 1024 * 1024


@dataclass(slots=True)
class Link:
    """One direction of a connection.

    Attributes:
        delay_s: One-way delay.
        rate_bytes_s: Bytes per second; None is no limit.
        cut_after: Bytes after which the connection breaks; None is never. Counts down as bytes are delivered.
    """

    delay_s: float = 0.0
    rate_bytes_s: float | None = None
    cut_after: int | None = None


class MemoryConnection(StreamConnection):
    """One end of a connection inside the process; made by :class:`MemoryNetwork`."""

    _twin: MemoryConnection

    def join(self, twin: MemoryConnection, link: Link, *, peer: str) -> None:
        """Make ``twin`` the other end; what is written here reaches it over ``link``."""
        self._twin = twin
        self._link = link
        self.peer = peer
        self._wire: deque[tuple[float, bytes]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._line_free = 0.0
        self._undelivered = 0
        self._reading = True

    def pause_reading(self) -> None:
        """Stop taking bytes from the peer."""
        self._reading = False

    def resume_reading(self) -> None:
        """Take bytes from the peer again."""
        self._reading = True
        self._twin._schedule()

    def _write(self, data: bytes | memoryview) -> None:
        link, now = self._link, self._loop.time()
        line_time = 0.0 if link.rate_bytes_s is None else len(data) / link.rate_bytes_s
        self._line_free = max(now, self._line_free) + line_time
        self._wire.append((self._line_free + link.delay_s, bytes(data)))
        self._undelivered += len(data)
        if self._line_free > now:
            self._pause()
            self._loop.call_at(self._line_free, self._maybe_resume)
        elif self._undelivered > WINDOW_BYTES:
            self._pause()
        self._schedule()

    def _backlog(self) -> int:
        return self._undelivered

    def _schedule(self) -> None:
        if self._timer is None and self._wire:
            self._timer = self._loop.call_at(self._wire[0][0], self._deliver)

    def _deliver(self) -> None:
        self._timer = None
        twin = self._twin
        while self._wire and self._wire[0][0] <= self._loop.time():
            if twin.closed or not twin._reading:
                return
            _, data = self._wire.popleft()
            cut = self._link.cut_after
            if cut is not None:
                data = data[:cut]
                self._link.cut_after = cut - len(data)
            self._undelivered -= len(data)
            twin._feed(data)
            if cut is not None and cut == len(data):
                lost = f"connection to {self.peer} was cut"
                self._lost(ConnectionLost(lost))
                twin._lost(ConnectionLost(f"connection to {twin.peer} was cut"))
                return
        self._maybe_resume()
        self._schedule()

    def _feed(self, data: bytes) -> None:
        at = 0
        while at < len(data) and not self.closed:
            room = self._reader.get_buffer(-1)
            n = min(len(room), len(data) - at)
            room[:n] = data[at : at + n]
            at += n
            self._filled(n)

    def _maybe_resume(self) -> None:
        if (
            self._paused
            and self._line_free <= self._loop.time()
            and self._undelivered <= WINDOW_BYTES
        ):
            self._resume()

    def _shut(self, *, gently: bool) -> None:
        self._loop.call_soon(self._lost, None)
        # The last bytes travel as long as any others; the end of the stream comes behind them.
        arrival = self._loop.time() + self._link.delay_s
        if gently and self._wire:
            arrival = max(arrival, self._wire[-1][0])
        self._loop.call_at(arrival, self._announce_end)

    def _announce_end(self) -> None:
        twin = self._twin
        self._deliver()
        if not twin.closed:
            where = "in the middle of a frame" if twin._reader.mid_frame else "between frames"
            twin._lost(ConnectionLost(f"{twin.peer} closed the connection {where}"))


class MemoryListener:
    """A name inside a :class:`MemoryNetwork`."""

    def __init__(self, network: MemoryNetwork, name: str) -> None:
        self._network = network
        self._name = name
        self.addresses = [(name, 0)]

    async def close(self) -> None:
        """Stop accepting."""
        self._network.listeners.pop(self._name, None)


class MemoryNetwork:
    """Names that can be listened on and dialled, all inside one loop."""

    def __init__(self) -> None:
        self.listeners: dict[str, Callable[[], MemoryConnection]] = {}
        self._made: dict[str, Callable[[Receiver, MemoryConnection], None]] = {}

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
        self.listeners[name] = lambda: MemoryConnection(
            make_receiver(), max_frame_bytes=max_frame_bytes, idle_timeout_s=idle_timeout_s
        )
        self._made[name] = made
        return MemoryListener(self, name)

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
        accept = self.listeners.get(name)
        if accept is None:
            raise ConnectFailed(f"cannot connect to {name}: nobody listens there")
        near = MemoryConnection(
            make_receiver(), max_frame_bytes=max_frame_bytes, idle_timeout_s=idle_timeout_s
        )
        far = accept()
        near.join(far, up or Link(), peer=name)
        far.join(near, down or Link(), peer="memory")
        self._made[name](far._receiver, far)
        return near
