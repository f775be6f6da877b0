"""One TCP connection on any asyncio loop: ``asyncio.BufferedProtocol`` around a FrameReader, with lanes for bulk.

The one place where OSError becomes TransportError.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import sys
from collections.abc import Callable, Sequence
from typing import NotRequired, TypedDict, cast

from aiops.errors import BadHandshake, ConnectionLost, TransportError
from aiops.transport.base import Receiver, address
from aiops.transport.congestion import bound_queue, choose, in_force
from aiops.transport.lane import Lane, Receive, Send
from aiops.transport.stream import SEGMENT_BYTES, StreamConnection
from aiops.wire.frame import TLS_ALERT

if sys.platform == "linux":
    import fcntl
    import termios

# From here on a payload goes through a lane. Below, waking another thread costs more than moving the bytes: measure
# with `aiops bench round`.
LANE_BYTES = 1024 * 1024


class Options(TypedDict):
    """What both ends of a connection are told; see :class:`TcpConnection`."""

    max_frame_bytes: int
    idle_timeout_s: float
    lanes: NotRequired[Sequence[Lane]]
    send_lane: NotRequired[int]
    congestion: NotRequired[str | None]


class TcpConnection(StreamConnection, asyncio.BufferedProtocol):
    """A TCP connection; made by :func:`connect` and :func:`listen`.

    Args:
        lanes: Threads for bulk payloads; without them everything happens on the loop. What comes in says which of them
            takes it.
        send_lane: Number of the lane that sends.
        congestion: Congestion control to ask the system for; None leaves it, except on loopback (see
            :mod:`aiops.transport.congestion`).
    """

    _transport: asyncio.Transport

    def __init__(
        self,
        receiver: Receiver,
        *,
        max_frame_bytes: int,
        idle_timeout_s: float,
        lanes: Sequence[Lane] = (),
        send_lane: int = 0,
        congestion: str | None = None,
    ) -> None:
        super().__init__(receiver, max_frame_bytes=max_frame_bytes, idle_timeout_s=idle_timeout_s)
        self.congestion = "unknown"
        self._lanes = lanes
        self._send_lane = send_lane
        self._congestion = congestion
        self._segment_bytes = sys.maxsize if lanes else SEGMENT_BYTES
        # The lane at work on each direction, and how much of the incoming move is accounted for.
        self._incoming: tuple[Lane, Receive] | None = None
        self._outgoing: tuple[Lane, Send] | None = None
        self._due = 0
        self._asked_to_pause = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Set the socket up so that "may write again" means "the kernel has taken everything"."""
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=0)
        self.peer = address(transport.get_extra_info("peername"))
        sock = transport.get_extra_info("socket")
        if sock is not None:
            with contextlib.suppress(OSError):
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            choose(sock, self._congestion)
            bound_queue(sock)
            self.congestion = in_force(sock)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Hand out the reader's memory."""
        return self._reader.get_buffer(sizehint)

    def buffer_updated(self, nbytes: int) -> None:
        """Parse what came."""
        self._filled(nbytes)
        self._hand_over()

    def eof_received(self) -> bool:
        """Treat the peer's end of stream as the end of the connection, whatever this end has yet to send."""
        self.abort(ConnectionLost(f"{self.peer} closed the connection {self._where()}"))
        return False

    def pause_writing(self) -> None:
        """Note that the kernel's buffer is full."""
        self._pause()

    def resume_writing(self) -> None:
        """Note that the kernel has taken everything."""
        self._resume()

    def connection_lost(self, exc: Exception | None) -> None:
        """Translate how it ended."""
        lost = f"connection to {self.peer} was lost {self._where()}"
        self._lost(ConnectionLost(lost) if exc is None else translated(exc, lost))

    @property
    def received_bytes(self) -> int:
        """Bytes received so far."""
        self._account()
        return self._received_bytes

    @property
    def last_heard(self) -> float:
        """When bytes last came in, in seconds of the loop's clock; a lane's are noted when somebody asks."""
        self._account()
        return self._last_heard

    def pause_reading(self) -> None:
        """Stop taking bytes from the peer, once a payload that a lane is at has come."""
        self._asked_to_pause = True
        self._read_or_not()

    def resume_reading(self) -> None:
        """Take bytes from the peer again."""
        self._asked_to_pause = False
        self._read_or_not()
        self._hand_over()

    def abort(self, error: Exception | None = None) -> None:
        """End the connection at once; a peer that wants TLS is told in TLS that there is none."""
        if isinstance(error, BadHandshake) and error.tls and not self.closed:
            with (
                contextlib.suppress(OSError),
                self._transport.get_extra_info("socket").dup() as sock,
            ):
                sock.setblocking(False)
                sock.send(TLS_ALERT)
        super().abort(error)

    def _read_or_not(self) -> None:
        wanted = not self._asked_to_pause and self._incoming is None
        if not self.closed and self._transport.is_reading() != wanted:
            (self._transport.resume_reading if wanted else self._transport.pause_reading)()

    # Give what is missing of a large payload to its lane; the loop reads on when it has come.
    def _hand_over(self) -> None:
        bulk = self._reader.bulk
        if bulk is None or self.closed or self._asked_to_pause or self._incoming is not None:
            return
        landing, left = bulk
        if not self._lanes or left < LANE_BYTES:
            return
        lane = self._lanes[landing.lane % len(self._lanes)]
        sock = self._own_socket()
        if sock is None:
            return
        move = Receive(sock, landing, left, self._from_lane(self._came))
        self._incoming, self._due = (lane, move), left
        self._read_or_not()
        lane.start(move)

    def _came(self, error: Exception | None) -> None:
        assert self._incoming is not None
        size = self._reader.bulk[1] if self._reader.bulk else 0
        self._account()
        self._incoming = None
        if error is not None:
            lost = f"connection to {self.peer} was lost {self._where()}"
            closed = f"{self.peer} closed the connection {self._where()}"
            self.abort(
                ConnectionLost(closed) if isinstance(error, EOFError) else translated(error, lost)
            )
            if not isinstance(error, EOFError | OSError):
                # A bug of the receiver's, as in what it does with a frame: the loop reports it.
                raise error
            return
        self._dispatch(self._reader.landed(size))
        self._hand_over()
        self._read_or_not()

    # Note what the incoming lane has moved since somebody last looked.
    def _account(self) -> None:
        if self._incoming is not None:
            left = self._incoming[1].left
            if left != self._due:
                self._heard(self._due - left)
                self._due = left

    def _write(self, data: bytes | memoryview) -> None:
        if not self._lanes or len(data) < LANE_BYTES or not isinstance(data, memoryview):
            self._transport.write(data)
            return
        lane = self._lanes[self._send_lane % len(self._lanes)]
        sock = self._own_socket()
        if sock is None:
            return
        move = Send(sock, data, self._from_lane(self._went))
        self._outgoing = (lane, move)
        self._pause()
        lane.start(move)

    def _went(self, error: Exception | None) -> None:
        self._outgoing = None
        if error is not None:
            self.abort(translated(error, f"connection to {self.peer} was lost"))
            return
        self._resume()

    def _backlog(self) -> int:
        waiting = self._transport.get_write_buffer_size()
        if self._outgoing is not None:
            waiting += self._outgoing[1].left
        return waiting + _unacknowledged(self._transport.get_extra_info("socket").fileno())

    def _stop_moving(self) -> None:
        for moving in (self._incoming, self._outgoing):
            if moving is not None:
                lane, move = moving
                lane.stop(move)
        self._account()
        self._incoming = self._outgoing = None

    # A lane tells the loop, unless the connection has ended meanwhile and nobody waits to hear.
    def _from_lane(
        self, heard: Callable[[Exception | None], None]
    ) -> Callable[[Exception | None], None]:
        def on_loop(error: Exception | None) -> None:
            if not self.closed:
                heard(error)

        def tell(error: Exception | None) -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(on_loop, error)

        return tell

    # A second descriptor, which the lane closes; None ends the connection, where the process may have no more of them.
    def _own_socket(self) -> socket.socket | None:
        try:
            sock: socket.socket = self._transport.get_extra_info("socket").dup()
        except OSError as error:
            self.abort(translated(error, f"connection to {self.peer} cannot move bulk"))
            return None
        sock.setblocking(False)
        return sock

    def _shut(self, *, gently: bool) -> None:
        if gently:
            self._transport.close()
            return
        # Loans end with an abort, but uvloop goes on writing from them until its next turn. Those bytes would be of
        # whoever has the memory by then: the kernel must not take them.
        with (
            contextlib.suppress(OSError),
            self._transport.get_extra_info("socket").dup() as sock,
        ):
            sock.shutdown(socket.SHUT_WR)
        self._transport.abort()


# What the kernel keeps until the peer acknowledges it. With a few megabytes of it a slow link is not writable for
# minutes, and only this tells that it moves; 0 where the system does not say.
def _unacknowledged(fd: int) -> int:
    if sys.platform != "linux":
        return 0
    try:
        return int.from_bytes(fcntl.ioctl(fd, termios.TIOCOUTQ, bytes(4)), sys.byteorder)
    except OSError:
        return 0


def reason(error: OSError, timeout_s: float = 0.0) -> str:
    """Return why the system refused something, plainly; ``timeout_s`` is how long we waited for nothing."""
    if error.errno is None:
        ours = isinstance(error, TimeoutError)
        return f"no answer in {timeout_s:g} s" if ours else str(error)
    # Loops add to the text of an error; the number says it plainly. A failed look-up numbers its reasons by itself.
    plain = error.strerror if isinstance(error, socket.gaierror) else os.strerror(error.errno)
    return plain or str(error)


def translated(error: Exception, what: str) -> Exception:
    """Return an OSError as the TransportError that it is to our users, and other errors as they are."""
    if isinstance(error, OSError) and not isinstance(error, TransportError):
        return ConnectionLost(f"{what}: {reason(error)}")
    return error
