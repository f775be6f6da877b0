"""What mutual TLS costs: our connections against a bare pair of blocking ssl sockets, with the same certificates.

``python -m benchmarks.tls [MiB]``. Each contender sends a payload to a process of its own, which receives it into one
buffer and answers with a byte: the time of a pass is that of the whole round.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import socket
import ssl
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from aiops.sync.thread import LoopName, loop_factory
from aiops.transport import tcp
from aiops.transport.base import Receiver
from aiops.transport.certificate import Tls, client_context, server_context
from aiops.wire.frame import Frame, Header, Kind, frame_bytes
from aiops.wire.reader import Landing
from benchmarks._harness import interleave, machine, speedup
from tests.certificates import Authority

MIB = 1024 * 1024
OPTIONS: tcp.Options = {"max_frame_bytes": 2**40, "idle_timeout_s": 60.0}
LOOPS: tuple[LoopName, ...] = ("uvloop", "asyncio")


class Taker:
    """Receives into one buffer and answers each payload."""

    connection: tcp.TcpConnection

    def __init__(self, size: int) -> None:
        self._memory = memoryview(bytearray(size))

    def place(self, header: Header) -> Landing:
        return Landing(self._memory[: header.size])

    def frame_received(self, frame: Frame) -> None:
        self.connection.post(frame_bytes(Kind.PONG))

    def connection_lost(self, error: Exception | None) -> None:
        asyncio.get_running_loop().stop()


class Giver:
    """Waits for the answers."""

    def __init__(self) -> None:
        self.answered = asyncio.Event()

    def place(self, header: Header) -> None:
        return None

    def frame_received(self, frame: Frame) -> None:
        self.answered.set()

    def connection_lost(self, error: Exception | None) -> None:
        return


def take(port: socket.socket, loop: LoopName, size: int, tls: Tls | None) -> None:
    """Serve one of our connections in this process."""
    with asyncio.Runner(loop_factory=loop_factory(loop)) as runner:
        address = port.getsockname()
        port.close()

        def made(receiver: Receiver, connection: tcp.TcpConnection) -> None:
            assert isinstance(receiver, Taker)
            receiver.connection = connection

        context = None if tls is None else server_context(tls)
        runner.run(tcp.listen(*address, lambda: Taker(size), made=made, tls=context, **OPTIONS))
        runner.get_loop().run_forever()


def take_bare(port: socket.socket, size: int, tls: Tls) -> None:
    """Serve one bare ssl socket in this process."""
    memory = memoryview(bytearray(size))
    with server_context(tls).wrap_socket(port.accept()[0], server_side=True) as peer:
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while True:
            at = 0
            while at < size:
                n = peer.recv_into(memory[at:])
                if not n:
                    return
                at += n
            peer.sendall(b"\0")


class Contender:
    """A taker in a process of its own, and how to send to it.

    Args:
        target: What that process does, given the listening socket and the rest.
        rest: What else it is given.
    """

    def __init__(self, target: Callable[..., None], *rest: object) -> None:
        self.port = socket.create_server(("127.0.0.1", 0), reuse_port=True)
        self.child = multiprocessing.get_context("fork").Process(
            target=target, args=(self.port, *rest), daemon=True
        )
        self.child.start()
