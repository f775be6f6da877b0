"""Sockets under TLS: those that are dialled, and those that are accepted."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable
from typing import TYPE_CHECKING
from weakref import WeakSet

from aiops.errors import AiopsError
from aiops.transport.tls import TlsStream

if TYPE_CHECKING:
    from aiops.transport.connection import TcpConnection

log = logging.getLogger("aiops.transport")

# A peer that is not through with its handshake by then is dropped; generous, for a loaded machine.
HANDSHAKE_S = 10.0


class Door:
    """Makes connections of accepted sockets once hands are shaken; who fails to is told to the log.

    Args:
        make: Makes the connection.
        context: What we show, and whom we let in.
    """

    def __init__(self, make: Callable[[], TcpConnection], context: ssl.SSLContext) -> None:
        self._make = make
        self._context = context
        self._streams: WeakSet[TlsStream] = WeakSet()

    def __call__(self) -> TlsStream:
        """Return the protocol of the next accepted socket."""

        def done(error: AiopsError | None) -> None:
            if error is not None:
                log.warning("%s is turned away: %s", stream.peer, error)

        stream = TlsStream(self._make, self._context, timeout_s=HANDSHAKE_S, done=done)
        self._streams.add(stream)
        return stream

    def close(self) -> None:
        """Drop whoever is still shaking hands."""
        for stream in list(self._streams):
            stream.give_up()


async def adopt(
    sock: socket.socket,
    make: Callable[[], TcpConnection],
    context: ssl.SSLContext,
    *,
    host: str,
    timeout_s: float,
) -> TcpConnection:
    """Return the connection over a connected socket whose server is ``host``.

    Raises:
        Rejected: One of the two does not accept the other's certificate.
        BadHandshake: The server does not speak TLS.
        ConnectFailed: It hung up, or did not answer in time.
    """
    loop = asyncio.get_running_loop()
    shaken: asyncio.Future[AiopsError | None] = loop.create_future()
    connections: list[TcpConnection] = []

    def make_one() -> TcpConnection:
        connections.append(make())
        return connections[0]

    def done(error: AiopsError | None) -> None:
        if not shaken.done():
            shaken.set_result(error)

    def protocol() -> TlsStream:
        # A scope is a matter of this machine's, no certificate has it.
        name = host.partition("%")[0]
        return TlsStream(make_one, context, server_hostname=name, timeout_s=timeout_s, done=done)

    try:
        transport, _ = await loop.create_connection(protocol, sock=sock)
    except BaseException:
        sock.close()
        raise
    try:
        error = await shaken
    except BaseException:
        transport.abort()
        raise
    if error is not None:
        raise error
    return connections[0]
