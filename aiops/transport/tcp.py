"""TCP: dialling and accepting.

TLS is one more argument to the two functions below: a layer slips in between the connection and its socket
(:mod:`aiops.transport.tls`), and nothing else knows.
"""

from __future__ import annotations

import asyncio
import errno
import itertools
import socket
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Unpack

from aiops.errors import (
    AiopsError,
    BadHandshake,
    ConfigError,
    ConnectFailed,
    Rejected,
)
from aiops.transport.base import Receiver, address, reason
from aiops.transport.connection import Options as Options
from aiops.transport.connection import TcpConnection as TcpConnection

if TYPE_CHECKING:
    import ssl

    from aiops.transport.secure import Door


class _Accepted(TcpConnection):
    def __init__(
        self,
        receiver: Receiver,
        made: Callable[[Receiver, TcpConnection], None],
        **options: Unpack[Options],
    ) -> None:
        super().__init__(receiver, **options)
        self._made = made

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._made(self._receiver, self)


class TcpListener:
    """A listening TCP socket (one per address family)."""

    def __init__(self, server: asyncio.Server, door: Door | None = None) -> None:
        self._server = server
        self._door = door
        self.addresses = [sock.getsockname()[:2] for sock in server.sockets]

    async def close(self) -> None:
        """Stop accepting, and end what is still shaking hands."""
        self._server.close()
        if self._door is not None:
            self._door.close()


async def connect(
    addresses: Sequence[tuple[str, int]],
    make_receiver: Callable[[], Receiver],
    *,
    connect_timeout_s: float = 10.0,
    tls: ssl.SSLContext | None = None,
    **options: Unpack[Options],
) -> TcpConnection:
    """Dial the addresses in order and return the first connection that stands.

    Args:
        addresses: Hosts and ports. A name that stands for several addresses is tried at each of them.
        make_receiver: Called once, when a connection stands.
        connect_timeout_s: How long each address may take to answer, and then to shake hands.
        tls: Which servers to trust, and whom to show oneself as; None does without TLS.
        **options: See :class:`TcpConnection`.

    Raises:
        ConnectFailed: None of them answered; the message says why for each.
        Rejected: At none of them did both ends accept the other's certificate.
        BadHandshake: They do not speak TLS.
    """
    own = _without_lanes(options) if tls else options

    def make() -> TcpConnection:
        return TcpConnection(make_receiver(), **own)

    errors: list[AiopsError] = []
    for host, port in addresses:
        try:
            sock = await _dial(host, port, connect_timeout_s)
        except ConnectFailed as error:
            errors.append(error)
            continue
        try:
            return await _adopt(sock, make, tls, host=host, timeout_s=connect_timeout_s)
        except (ConnectFailed, Rejected, BadHandshake) as error:
            errors.append(type(error)(f"{address((host, port))}: {error}"))
    # One that may answer later is worth another try, whatever the others said.
    if any(isinstance(error, ConnectFailed) for error in errors):
        raise ConnectFailed("cannot connect to " + "; ".join(map(str, errors)))
    raise type(errors[0])("cannot connect to " + "; ".join(map(str, errors)))


async def listen(
    host: str,
    port: int,
    make_receiver: Callable[[], Receiver],
    *,
    made: Callable[[Receiver, TcpConnection], None],
    tls: ssl.SSLContext | None = None,
    **options: Unpack[Options],
) -> TcpListener:
    """Bind and accept; port 0 takes a free one.

    Args:
        host: Address or name to bind.
        port: Port, 0..65535.
        make_receiver: Called for every accepted connection, under TLS once the hands are shaken.
        made: Told of every accepted connection, with its receiver, before the first byte.
        tls: What to show oneself as, and whom to let in; None does without TLS.
        **options: See :class:`TcpConnection`.

    Raises:
        ConfigError: The address cannot be bound; the message names it.
    """
    turns = itertools.count()
    common = _without_lanes(options) if tls else options

    def accept() -> TcpConnection:
        # Each connection sends on another lane than the last one does.
        own: Options = {**common, "send_lane": next(turns)}
        return _Accepted(make_receiver(), made, **own)

    door = None if tls is None else _door(accept, tls)
    try:
        server = await asyncio.get_running_loop().create_server(door or accept, host, port)
    except OSError as error:
        hint = ", is another server running there?" if error.errno == errno.EADDRINUSE else ""
        where = address((host, port))
        raise ConfigError(f"cannot bind {where}: {reason(error)}{hint}") from None
    return TcpListener(server, door)


def _door(accept: Callable[[], TcpConnection], tls: ssl.SSLContext) -> Door:
    from aiops.transport.secure import Door

    return Door(accept, tls)


# A lane reads and writes the socket itself, which holds nothing but ciphertext.
def _without_lanes(options: Options) -> Options:
    return {**options, "lanes": ()}


# Open a socket to the first address of a host that answers.
async def _dial(host: str, port: int, timeout_s: float) -> socket.socket:
    where, reasons = address((host, port)), []
    try:
        async with asyncio.timeout(timeout_s):
            found = await asyncio.get_running_loop().getaddrinfo(
                host, port, type=socket.SOCK_STREAM
            )
    except OSError as error:
        raise ConnectFailed(f"{where}: {reason(error, timeout_s)}") from None
    for family, kind, proto, _, name in found:
        try:
            return await _open(family, kind, proto, name, timeout_s)
        except OSError as error:
            at = "" if name[0] == host else f" at {name[0]}"
            reasons.append(f"{where}{at}: {reason(error, timeout_s)}")
    raise ConnectFailed("; ".join(reasons))


async def _open(
    family: int, kind: int, proto: int, name: tuple[object, ...], timeout_s: float
) -> socket.socket:
    sock = socket.socket(family, kind, proto)
    try:
        sock.setblocking(False)
        async with asyncio.timeout(timeout_s):
            await asyncio.get_running_loop().sock_connect(sock, name)
    except BaseException:
        sock.close()
        raise
    return sock


async def _adopt(
    sock: socket.socket,
    make: Callable[[], TcpConnection],
    tls: ssl.SSLContext | None,
    *,
    host: str,
    timeout_s: float,
) -> TcpConnection:
    if tls is not None:
        from aiops.transport.secure import adopt

        return await adopt(sock, make, tls, host=host, timeout_s=timeout_s)
    try:
        _, connection = await asyncio.get_running_loop().create_connection(make, sock=sock)
    except BaseException:
        sock.close()
        raise
    return connection
