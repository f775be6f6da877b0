"""One TCP connection on any asyncio loop: ``asyncio.BufferedProtocol`` around a FrameReader, with lanes for bulk."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import sys
from collections.abc import Sequence
from typing import NotRequired, TypedDict, cast

from aiops.errors import BadHandshake, ConnectionLost
from aiops.transport.base import Receiver, address, translated
from aiops.transport.congestion import bound_queue, choose, in_force
from aiops.transport.lane import Lane, Receive, Send
from aiops.transport.laned import LANE_BYTES, LanedConnection
from aiops.wire.frame import TLS_ALERT

if sys.platform == "linux":
    import fcntl
    import termios


class Options(TypedDict):
    """What both ends of a connection are told; see :class:`TcpConnection`."""

    max_frame_bytes: int
    idle_timeout_s: float
    lanes: NotRequired[Sequence[Lane]]
    send_lane: NotRequired[int]
    congestion: NotRequired[str | None]


class TcpConnection(LanedConnection, asyncio.BufferedProtocol):
    """A TCP connection; made by :func:`connect` and :func:`listen`.

    Args:
        lanes: See :class:`LanedConnection`.
        send_lane: See :class:`LanedConnection`.
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
        super().__init__(
            receiver,
            max_frame_bytes=max_frame_bytes,
            idle_timeout_s=idle_timeout_s,
            lanes=lanes,
            send_lane=send_lane,
        )
        self.congestion = "unknown"
        self._congestion = congestion

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

    def resume_reading(self) -> None:
        """Take bytes from the peer again."""
        self._asked_to_pause = False
        self._look_again()
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
        sock = self._own_socket()
        if sock is None:
            return
        move = Receive(sock, landing, left, self._from_lane(self._came))
        self._begin_incoming(self._lane_of(landing), move)

    def _came(self, error: Exception | None) -> None:
        assert self._incoming is not None
        size = self._reader.bulk[1] if self._reader.bulk else 0
        self._account()
        self._incoming = None
        if error is not None:
            self._fail(error)
            return
        self._dispatch(self._reader.landed(size))
        self._hand_over()
        self._read_or_not()

    def _write(self, data: bytes | memoryview) -> None:
        if not self._takes_lane(data):
            self._transport.write(data)
            return
        sock = self._own_socket()
        if sock is None:
            return
        move = Send(sock, memoryview(data), self._from_lane(self._went))
        self._begin_outgoing(self._own_lane(), move)

    def _went(self, error: Exception | None) -> None:
        self._outgoing = None
        if error is not None:
            self._fail(error)
            return
        self._resume()

    def _backlog(self) -> int:
        waiting = self._transport.get_write_buffer_size() + self._outgoing_bytes()
        return waiting + _unacknowledged(self._transport.get_extra_info("socket").fileno())

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
            self._parting = True
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
