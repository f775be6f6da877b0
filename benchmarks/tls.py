"""What mutual TLS costs: our connections against a pair of blocking ssl sockets, with the same certificates.

``python -m benchmarks.tls``. Each contender sends a payload to a process of its own, which receives it into one buffer
and answers with a few bytes; a pass takes as long as that whole round. The same without TLS stands beside it: what a
loop costs by itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
import socket
import ssl
import statistics
import tempfile
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection as Pipe
from pathlib import Path
from typing import TypeAlias

from aiops.bench.harness import interleave, speedup
from aiops.bench.machine import fingerprint
from aiops.sync.thread import LoopName, loop_factory
from aiops.transport import tcp
from aiops.transport.certificate import Tls, client_context, server_context
from aiops.wire.frame import Frame, Header, Kind, frame_bytes
from aiops.wire.reader import Landing
from tests.certificates import Authority

# Name -> bytes, and rounds in a sample.
SIZES = {"100 MB": (100_000_000, 1), "1 MB": (1_000_000, 20), "4 KB": (4_000, 300)}
LOOPS: tuple[LoopName, ...] = ("uvloop", "asyncio")
OPTIONS: tcp.Options = {"max_frame_bytes": 2**40, "idle_timeout_s": 60.0}
# What the two ends are told; a pair of Nones goes without TLS.
Pair: TypeAlias = "tuple[Tls, Tls] | tuple[None, None]"
ANSWER = frame_bytes(Kind.PONG)


class End:
    """One end of our connection: receives into one buffer, and lets somebody know."""

    connection: tcp.TcpConnection

    def __init__(self, size: int, act: Callable[[End], None]) -> None:
        self._memory = memoryview(bytearray(size))
        self._act = act

    def place(self, header: Header) -> Landing:
        return Landing(self._memory)

    def frame_received(self, frame: Frame) -> None:
        self._act(self)

    def connection_lost(self, error: Exception | None) -> None:
        return


async def take(pipe: Pipe, size: int, tls: Tls | None) -> None:
    """Receive over a connection of ours, until the process is ended."""

    def made(end: End, connection: tcp.TcpConnection) -> None:
        end.connection = connection

    def make() -> End:
        return End(size, lambda end: end.connection.post(ANSWER))

    context = None if tls is None else server_context(tls)
    listener = await tcp.listen("127.0.0.1", 0, make, made=made, tls=context, **OPTIONS)
    pipe.send(listener.addresses[0])
    await asyncio.Event().wait()


def take_ours(pipe: Pipe, size: int, loop: LoopName, tls: Tls | None) -> None:
    with asyncio.Runner(loop_factory=loop_factory(loop)) as runner:
        runner.run(take(pipe, size, tls))


def take_bare(pipe: Pipe, size: int, tls: Tls | None) -> None:
    """Receive over a blocking socket, until the process is ended."""
    memory = memoryview(bytearray(size))
    with socket.create_server(("127.0.0.1", 0)) as port:
        pipe.send(port.getsockname())
        peer = port.accept()[0]
    if tls is not None:
        peer = server_context(tls).wrap_socket(peer, server_side=True)
    peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    while True:
        receive(peer, memory)
        peer.sendall(ANSWER)


def receive(sock: socket.socket, memory: memoryview) -> None:
    at = 0
    while at < len(memory):
        at += sock.recv_into(memory[at:])


@contextlib.contextmanager
def apart(target: Callable[..., None], *rest: object) -> Iterator[tuple[str, int]]:
    """Run a taker in a process of its own; gives its address."""
    near, far = multiprocessing.Pipe()
    child = multiprocessing.get_context("spawn").Process(target=target, args=(far, *rest))
    child.start()
    try:
        yield near.recv()
    finally:
        child.kill()
        child.join()


@contextlib.contextmanager
def ours(size: int, rounds: int, loop: LoopName, tls: Pair) -> Iterator[Callable[[], object]]:
    payload = memoryview(bytearray(size))
    with (
        apart(take_ours, size, loop, tls[0]) as address,
        asyncio.Runner(loop_factory=loop_factory(loop)) as runner,
    ):

        async def begin() -> tcp.TcpConnection:
            context = None if tls[1] is None else client_context(tls[1])
            return await tcp.connect([address], make, tls=context, **OPTIONS)

        async def send() -> None:
            head = Header(Kind.TENSOR, 1, 1, 1, 1, 0, size).pack()
            for _ in range(rounds):
                answered.clear()
                if not connection.send_now([(head, [payload])]):
                    await connection.send([(head, [payload])])
                await answered.wait()

        def make() -> End:
            return End(size, lambda _: answered.set())

        answered = asyncio.Event()
        connection = runner.run(begin())
        yield lambda: runner.run(send())
        runner.run(connection.close())


@contextlib.contextmanager
def bare(size: int, rounds: int, tls: Pair) -> Iterator[Callable[[], object]]:
    payload, answer = memoryview(bytearray(size)), memoryview(bytearray(len(ANSWER)))
    with contextlib.ExitStack() as stack:
        address = stack.enter_context(apart(take_bare, size, tls[0]))
        sock = stack.enter_context(socket.create_connection(address))
        if tls[1] is not None:
            context = client_context(tls[1])
            sock = stack.enter_context(context.wrap_socket(sock, server_hostname=address[0]))

        def send() -> None:
            for _ in range(rounds):
                sock.sendall(payload)
                receive(sock, answer)

        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        yield send


def row(name: str, size: int, rounds: int, authority: Authority) -> str:
    pairs: dict[str, Pair] = {
        "TLS": (authority.server(), authority.worker()),
        "without": (None, None),
    }
    with contextlib.ExitStack() as stack:
        contenders = {}
        for how, tls in pairs.items():
            for loop in LOOPS:
                contenders[how + loop] = stack.enter_context(ours(size, rounds, loop, tls))
            contenders[how] = stack.enter_context(bare(size, rounds, tls))
        samples = interleave(contenders, passes=31)
    text = f"{name:10s}{statistics.median(samples['TLS']) / rounds * 1e3:10.3f}   "
    for how in pairs:
        for loop in LOOPS:
            spread = speedup(samples[how + loop], samples[how])
            text += f"{f'{spread.median:.2f} ({spread.q25:.2f}-{spread.q75:.2f})':20s}"
    return text


def main() -> None:
    print(*fingerprint().lines(), ssl.OPENSSL_VERSION, sep="\n")
    print("times as long as ours a pair of blocking sockets takes: median (quartiles)\n")
    columns = [f"{loop}{how}" for how in (", TLS", ", without") for loop in LOOPS]
    print(f"{'':10s}{'their ms':>10s}   " + "".join(f"{column:20s}" for column in columns))
    with tempfile.TemporaryDirectory() as place:
        authority = Authority(Path(place))
        for name, (size, rounds) in SIZES.items():
            print(row(name, size, rounds, authority))


if __name__ == "__main__":
    main()
