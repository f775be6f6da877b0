"""What mutual TLS costs: our connections against a pair of blocking ssl sockets, with the same certificates.

``python -m benchmarks.tls``. Each contender sends a payload to a process of its own, which receives it into one buffer
and answers with a few bytes; a pass takes as long as that whole round.
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

from aiops.sync.thread import LoopName, loop_factory
from aiops.transport import tcp
from aiops.transport.certificate import Tls, client_context, server_context
from aiops.wire.frame import Frame, Header, Kind, frame_bytes
from aiops.wire.reader import Landing
from benchmarks._harness import interleave, machine, speedup
from tests.certificates import Authority

# Name -> bytes, and rounds in a sample.
SIZES = {"100 MB": (100_000_000, 1), "1 MB": (1_000_000, 20), "4 KB": (4_000, 300)}
LOOPS: tuple[LoopName, ...] = ("uvloop", "asyncio")
OPTIONS: tcp.Options = {"max_frame_bytes": 2**40, "idle_timeout_s": 60.0}
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


async def take(pipe: Pipe, size: int, tls: Tls) -> None:
    """Receive over a connection of ours, until the process is ended."""

    def made(end: End, connection: tcp.TcpConnection) -> None:
        end.connection = connection

    def make() -> End:
        return End(size, lambda end: end.connection.post(ANSWER))

    listener = await tcp.listen("127.0.0.1", 0, make, made=made, tls=server_context(tls), **OPTIONS)
    pipe.send(listener.addresses[0])
    await asyncio.Event().wait()


def take_ours(pipe: Pipe, size: int, loop: LoopName, tls: Tls) -> None:
    with asyncio.Runner(loop_factory=loop_factory(loop)) as runner:
        runner.run(take(pipe, size, tls))


def take_bare(pipe: Pipe, size: int, tls: Tls) -> None:
    """Receive over a blocking ssl socket, until the process is ended."""
    memory = memoryview(bytearray(size))
    with socket.create_server(("127.0.0.1", 0)) as port:
        pipe.send(port.getsockname())
        peer = server_context(tls).wrap_socket(port.accept()[0], server_side=True)
    while True:
        receive(peer, memory)
        peer.sendall(ANSWER)


def receive(sock: ssl.SSLSocket, memory: memoryview) -> None:
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
def ours(
    size: int, rounds: int, loop: LoopName, tls: tuple[Tls, Tls]
) -> Iterator[Callable[[], object]]:
    payload = memoryview(bytearray(size))
    with (
        apart(take_ours, size, loop, tls[0]) as address,
        asyncio.Runner(loop_factory=loop_factory(loop)) as runner,
    ):

        async def begin() -> tcp.TcpConnection:
            return await tcp.connect([address], make, tls=client_context(tls[1]), **OPTIONS)

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
def bare(size: int, rounds: int, tls: tuple[Tls, Tls]) -> Iterator[Callable[[], object]]:
    payload, answer = memoryview(bytearray(size)), memoryview(bytearray(len(ANSWER)))
    with (
        apart(take_bare, size, tls[0]) as address,
        socket.create_connection(address) as plain,
        client_context(tls[1]).wrap_socket(plain, server_hostname=address[0]) as sock,
    ):

        def send() -> None:
            for _ in range(rounds):
                sock.sendall(payload)
                receive(sock, answer)

        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        yield send


def main() -> None:
    print(f"{machine()}; {ssl.OPENSSL_VERSION}")
    print("times as long as ours a pair of blocking ssl sockets takes: median (quartiles)\n")
    print(f"{'':10s}{'bare, ms':>10s}   " + "".join(f"{name:20s}" for name in LOOPS))
    for name, (size, rounds) in SIZES.items():
        with tempfile.TemporaryDirectory() as place, contextlib.ExitStack() as stack:
            authority = Authority(Path(place))
            tls = authority.server(), authority.worker()
            contenders = {
                str(loop): stack.enter_context(ours(size, rounds, loop, tls)) for loop in LOOPS
            }
            contenders["bare"] = stack.enter_context(bare(size, rounds, tls))
            samples = interleave(contenders, passes=31)
        row = f"{name:10s}{statistics.median(samples['bare']) / rounds * 1e3:10.3f}   "
        for loop in LOOPS:
            spread = speedup(samples[loop], samples["bare"])
            row += f"{f'{spread.median:.2f} ({spread.q25:.2f}-{spread.q75:.2f})':20s}"
        print(row)


if __name__ == "__main__":
    main()
