"""The nearest way to a server: shared memory where it is on this machine and of the same user, else TCP.

Beside each TCP address on which it can be reached from this machine a server keeps a door: a unix socket in the
abstract namespace, named after that address. So it is as unique as the address, and gone with its process.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import itertools
import logging
import socket
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Unpack

from aiops.errors import ConnectFailed
from aiops.transport import tcp
from aiops.transport.base import Connection, Receiver
from aiops.transport.handover import AVAILABLE, Link, check_peer, hand_over, take_over
from aiops.transport.shm import Options, ShmConnection

if sys.platform == "linux":
    import resource

if TYPE_CHECKING:
    import ssl

log = logging.getLogger("aiops.transport")

# Workers that may wait at a door for the loop to turn.
BACKLOG = 128

# A server gives no shared memory any more when so much of its descriptors are taken: each link needs six of them, a TCP
# connection one, and that needs some.
SHARE = 0.5

# A server of ours answers at its next turn; who has not by then is left to TCP.
GREETING_S = 1.0

# How long a door stays shut when the system is short of descriptors.
PAUSE_S = 1.0


class Listener:
    """A TCP listener and its doors."""

    def __init__(self, listener: tcp.TcpListener, doors: Sequence[Door]) -> None:
        self.addresses = listener.addresses
        self._listener = listener
        self._doors = doors

    async def close(self) -> None:
        """Stop accepting."""
        for door in self._doors:
            door.close()
        await self._listener.close()


class Door:
    """A listening unix socket: hands shared memory to every process of this user that connects.

    Args:
        name: The socket's, in the abstract namespace.
        accepted: Told of every link.

    Raises:
        OSError: The name is taken.
    """

    def __init__(self, name: str, accepted: Callable[[Link], None]) -> None:
        self._accepted = accepted
        self._loop = asyncio.get_running_loop()
        self._sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._sock.setblocking(False)
            self._sock.bind(name)
            self._sock.listen(BACKLOG)
        except BaseException:
            self._sock.close()
            raise
        self._open()

    def close(self) -> None:
        """Stop accepting; idempotent."""
        if self._sock.fileno() >= 0:
            self._loop.remove_reader(self._sock.fileno())
            self._sock.close()

    def _open(self) -> None:
        if self._sock.fileno() >= 0:
            self._loop.add_reader(self._sock.fileno(), self._accept)

    def _accept(self) -> None:
        try:
            sock, _ = self._sock.accept()
        except (BlockingIOError, ConnectionError):
            return  # whoever it was has gone again
        except OSError as error:
            log.warning("no shared memory for %g s: %s", PAUSE_S, error)
            self._loop.remove_reader(self._sock.fileno())
            self._loop.call_later(PAUSE_S, self._open)
            return
        try:
            _leave_some(sock)
            sock.setblocking(False)
            link = hand_over(sock)
        except (OSError, ConnectFailed) as error:
            # Who was turned away comes back by TCP. A log may keep what it is told, an error has the memory with it.
            log.info("no shared memory: %s", str(error))
            sock.close()
            return
        self._accepted(link)


async def connect(
    addresses: Sequence[tuple[str, int]],
    make_receiver: Callable[[], Receiver],
    *,
    shared_memory: bool = True,
    connect_timeout_s: float = 10.0,
    tls: ssl.SSLContext | None = None,
    **options: Unpack[tcp.Options],
) -> Connection:
    """Dial the addresses in order and return the first connection that stands.

    Args:
        addresses: Hosts and ports.
        make_receiver: Called once, when a connection stands.
        shared_memory: Whether to try it, at every address that is this machine's, before TCP. Under TLS it is not:
            who asks for certificates is not content with the same user.
        connect_timeout_s: How long each address may take to answer; in shared memory it has a second at most.
        tls: See :func:`aiops.transport.tcp.connect`.
        **options: See :class:`aiops.transport.tcp.TcpConnection`; shared memory has no congestion.

    Raises:
        ConnectFailed: None of them answered; the message says why for each.
        Rejected: See :func:`aiops.transport.tcp.connect`.
        BadHandshake: See there.
    """
    if not shared_memory or tls is not None:
        return await tcp.connect(
            addresses, make_receiver, connect_timeout_s=connect_timeout_s, tls=tls, **options
        )
    reasons = []
    for address in addresses:
        with contextlib.suppress(ConnectFailed):
            return await connect_shared(
                address, make_receiver, connect_timeout_s=connect_timeout_s, **_shared(options)
            )
        try:
            return await tcp.connect(
                [address], make_receiver, connect_timeout_s=connect_timeout_s, **options
            )
        except ConnectFailed as error:
            reasons.append(str(error).removeprefix("cannot connect to "))
    raise ConnectFailed("cannot connect to " + "; ".join(reasons))


async def connect_shared(
    address: tuple[str, int],
    make_receiver: Callable[[], Receiver],
    *,
    connect_timeout_s: float = 10.0,
    **options: Unpack[Options],
) -> ShmConnection:
    """Connect through shared memory.

    Raises:
        ConnectFailed: There is no server of ours and of this user at that address of this machine.
    """
    where = f"{address[0]}:{address[1]}"
    for name in await _names(*address) if AVAILABLE else ():
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            sock.setblocking(False)
            # A unix socket connects at once or not at all.
            sock.connect(name)
            # Anybody may have taken the name, to keep workers waiting.
            check_peer(sock)
            async with asyncio.timeout(min(GREETING_S, connect_timeout_s)):
                await _readable(sock)
            link = take_over(sock, f"{where} in shared memory")
        except (ConnectionRefusedError, BlockingIOError):
            sock.close()
            continue
        except OSError as error:
            sock.close()
            reason = error if str(error) else "no answer"
            raise ConnectFailed(f"cannot connect to {where} in shared memory: {reason}") from None
        except BaseException:
            sock.close()
            raise
        connection = ShmConnection(make_receiver(), link, **options)
        connection.start()
        return connection
    raise ConnectFailed(f"cannot connect to {where} in shared memory: no server of ours is there")


async def listen(
    host: str,
    port: int,
    make_receiver: Callable[[], Receiver],
    *,
    made: Callable[[Receiver, Connection], None],
    shared_memory: bool = True,
    tls: ssl.SSLContext | None = None,
    **options: Unpack[tcp.Options],
) -> Listener:
    """Bind and accept; port 0 takes a free one.

    Args:
        host: Address or name to bind.
        port: TCP port, 0..65535.
        make_receiver: Called for every accepted connection.
        made: Told of every accepted connection, with its receiver, before the first byte.
        shared_memory: Whether workers on this machine may come that way; under TLS they may not.
        tls: See :func:`aiops.transport.tcp.listen`.
        **options: See :func:`connect`.

    Raises:
        ConfigError: The address cannot be bound; the message names it.
    """
    turns = itertools.count()

    def accepted(link: Link) -> None:
        receiver = make_receiver()
        own: Options = {**_shared(options), "send_lane": next(turns)}
        connection = ShmConnection(receiver, link, **own)
        made(receiver, connection)
        connection.start()

    listener = await tcp.listen(host, port, make_receiver, made=made, tls=tls, **options)
    doors = []
    if AVAILABLE and shared_memory and tls is None:
        for at in listener.addresses:
            try:
                doors.append(Door(_name(*at), accepted))
            except OSError as error:
                log.warning("no shared memory at %s:%d: %s", *at, error)
    return Listener(listener, doors)


# A new descriptor has the lowest number that is free, so that its number says how many are taken at least.
def _leave_some(sock: socket.socket) -> None:
    most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if most != resource.RLIM_INFINITY and sock.fileno() >= SHARE * most:
        raise ConnectFailed(f"{sock.fileno()} of {most} descriptors are taken")


def _shared(options: tcp.Options) -> Options:
    own: Options = {
        "max_frame_bytes": options["max_frame_bytes"],
        "idle_timeout_s": options["idle_timeout_s"],
        "lanes": options.get("lanes", ()),
    }
    return own


def _name(host: str, port: int) -> str:
    return f"\0aiops {host} {port}"


# The doors that a server may have which TCP would find at an address: the address' own, then that of all addresses.
# What other names stand for is for TCP to find out.
async def _names(host: str, port: int) -> list[str]:
    hosts = [host]
    if host == "localhost":
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
        hosts = [str(address[0]) for *_, address in found]
    names = []
    for text in hosts:
        try:
            ip = ipaddress.ip_address(text)
        except ValueError:
            continue
        names.append(_name(text, port))
        if ip.is_loopback:
            names.append(_name("0.0.0.0" if ip.version == 4 else "::", port))
    return names


async def _readable(sock: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    loop.add_reader(sock.fileno(), ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(sock.fileno())
