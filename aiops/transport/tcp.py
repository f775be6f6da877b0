"""TCP on any asyncio loop: ``asyncio.BufferedProtocol`` around a FrameReader.

The one place where OSError becomes TransportError. TLS would be one more argument to the two functions below
(``ssl=``), and nothing else would know.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import socket
import sys
from collections.abc import Callable, Sequence
from typing import cast

from aiops.errors import ConfigError, ConnectFailed, ConnectionLost, TransportError
from aiops.transport.base import Receiver
from aiops.transport.stream import StreamConnection

if sys.platform == "linux":
    import fcntl
    import termios


class TcpConnection(StreamConnection, asyncio.BufferedProtocol):
    """A TCP connection; made by :func:`connect` and :func:`listen`."""

    _transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Set the socket up so that "may write again" means "the kernel has taken everything"."""
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=0)
        self.peer = _address(transport.get_extra_info("peername"))
        sock = transport.get_extra_info("socket")
        if sock is not None:
            with contextlib.suppress(OSError):
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Hand out the reader's memory."""
        return self._reader.get_buffer(sizehint)

    def buffer_updated(self, nbytes: int) -> None:
        """Parse what came."""
        self._filled(nbytes)

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
        self._lost(ConnectionLost(lost) if exc is None else _translated(exc, lost))

    def pause_reading(self) -> None:
        """Stop taking bytes from the peer."""
        if not self.closed and self._transport.is_reading():
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Take bytes from the peer again."""
        if not self.closed and not self._transport.is_reading():
            self._transport.resume_reading()

    def _write(self, data: bytes | memoryview) -> None:
        self._transport.write(data)

    def _backlog(self) -> int:
        waiting = self._transport.get_write_buffer_size()
        return waiting + _unacknowledged(self._transport.get_extra_info("socket").fileno())

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


class _Accepted(TcpConnection):
    def __init__(
        self,
        receiver: Receiver,
        made: Callable[[Receiver, TcpConnection], None],
        *,
        max_frame_bytes: int,
        idle_timeout_s: float,
    ) -> None:
        super().__init__(receiver, max_frame_bytes=max_frame_bytes, idle_timeout_s=idle_timeout_s)
        self._made = made

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._made(self._receiver, self)


class TcpListener:
    """A listening TCP socket (one per address family)."""

    def __init__(self, server: asyncio.Server) -> None:
        self._server = server
        self.addresses = [sock.getsockname()[:2] for sock in server.sockets]

    async def close(self) -> None:
        """Stop accepting."""
        self._server.close()


async def connect(
    addresses: Sequence[tuple[str, int]],
    make_receiver: Callable[[], Receiver],
    *,
    max_frame_bytes: int,
    idle_timeout_s: float,
    connect_timeout_s: float = 10.0,
) -> TcpConnection:
    """Dial the addresses in order and return the first connection that stands.

    Args:
        addresses: Hosts and ports. A name that stands for several addresses is tried at each of them.
        make_receiver: Called once, when a connection stands.
        max_frame_bytes: See :class:`StreamConnection`.
        idle_timeout_s: See :class:`StreamConnection`.
        connect_timeout_s: How long each address may take to answer.

    Raises:
        ConnectFailed: None of them answered; the message says why for each.
    """
    reasons = []
    for host, port in addresses:
        try:
            sock = await _dial(host, port, connect_timeout_s)
        except ConnectFailed as error:
            reasons.append(str(error))
            continue
        return await _adopt(
            sock,
            lambda: TcpConnection(
                make_receiver(), max_frame_bytes=max_frame_bytes, idle_timeout_s=idle_timeout_s
            ),
        )
    raise ConnectFailed("cannot connect to " + "; ".join(reasons))


async def listen(
    host: str,
    port: int,
    make_receiver: Callable[[], Receiver],
    *,
    max_frame_bytes: int,
    idle_timeout_s: float,
    made: Callable[[Receiver, TcpConnection], None],
) -> TcpListener:
    """Bind and accept; port 0 takes a free one.

    Args:
        host: Address or name to bind.
        port: Port, 0..65535.
        make_receiver: Called for every accepted connection.
        max_frame_bytes: See :class:`StreamConnection`.
        idle_timeout_s: See :class:`StreamConnection`.
        made: Told of every accepted connection, with its receiver, before the first byte.

    Raises:
        ConfigError: The address cannot be bound; the message names it.
    """

    def accept() -> TcpConnection:
        return _Accepted(
            make_receiver(), made, max_frame_bytes=max_frame_bytes, idle_timeout_s=idle_timeout_s
        )

    try:
        server = await asyncio.get_running_loop().create_server(accept, host, port)
    except OSError as error:
        hint = ", is another server running there?" if error.errno == errno.EADDRINUSE else ""
        where = _address((host, port))
        raise ConfigError(f"cannot bind {where}: {_reason(error)}{hint}") from None
    return TcpListener(server)


# Open a socket to the first address of a host that answers.
async def _dial(host: str, port: int, timeout_s: float) -> socket.socket:
    where, reasons = _address((host, port)), []
    try:
        async with asyncio.timeout(timeout_s):
            found = await asyncio.get_running_loop().getaddrinfo(
                host, port, type=socket.SOCK_STREAM
            )
    except OSError as error:
        raise ConnectFailed(f"{where}: {_reason(error, timeout_s)}") from None
    for family, kind, proto, _, address in found:
        try:
            return await _open(family, kind, proto, address, timeout_s)
        except OSError as error:
            at = "" if address[0] == host else f" at {address[0]}"
            reasons.append(f"{where}{at}: {_reason(error, timeout_s)}")
    raise ConnectFailed("; ".join(reasons))


async def _open(
    family: int, kind: int, proto: int, address: tuple[object, ...], timeout_s: float
) -> socket.socket:
    sock = socket.socket(family, kind, proto)
    try:
        sock.setblocking(False)
        async with asyncio.timeout(timeout_s):
            await asyncio.get_running_loop().sock_connect(sock, address)
    except BaseException:
        sock.close()
        raise
    return sock


async def _adopt(sock: socket.socket, make: Callable[[], TcpConnection]) -> TcpConnection:
    try:
        _, connection = await asyncio.get_running_loop().create_connection(make, sock=sock)
    except BaseException:
        sock.close()
        raise
    return connection


# What the kernel keeps until the peer acknowledges it. With a few megabytes of it a slow link is not writable for
# minutes, and only this tells that it moves; 0 where the system does not say.
def _unacknowledged(fd: int) -> int:
    if sys.platform != "linux":
        return 0
    try:
        return int.from_bytes(fcntl.ioctl(fd, termios.TIOCOUTQ, bytes(4)), sys.byteorder)
    except OSError:
        return 0


def _address(name: object) -> str:
    if isinstance(name, tuple) and len(name) >= 2:
        host, port = name[0], name[1]
        return f"[{host}]:{port}" if ":" in str(host) else f"{host}:{port}"
    return "unknown peer"


def _reason(error: OSError, timeout_s: float = 0.0) -> str:
    if error.errno is None:
        ours = isinstance(error, TimeoutError)
        return f"no answer in {timeout_s:g} s" if ours else str(error)
    # Loops add to the text of an error; the number says it plainly. A failed look-up numbers its reasons by itself.
    plain = error.strerror if isinstance(error, socket.gaierror) else os.strerror(error.errno)
    return plain or str(error)


def _translated(error: Exception, what: str) -> Exception:
    if isinstance(error, OSError) and not isinstance(error, TransportError):
        return ConnectionLost(f"{what}: {_reason(error)}")
    return error
