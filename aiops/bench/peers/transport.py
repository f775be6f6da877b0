"""Our transport alone: frames with a tensor each, no server and no client around them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable

import numpy as np
from numpy.typing import NDArray

from aiops.bench.peers.base import HOST, AsyncRound, Case, announce
from aiops.bench.peers.total import Total
from aiops.sync.thread import loop_factory
from aiops.transport import lane, tcp
from aiops.transport.base import Connection, Receiver
from aiops.wire.frame import Frame, Header, Kind
from aiops.wire.reader import Landing


class Taker:
    """A receiver whose payloads land in one array that stays.

    Args:
        n_values: float32 values of a frame.
        arrived: Told of every frame.
    """

    def __init__(self, n_values: int, arrived: Callable[[Taker], None]) -> None:
        self.array = np.empty(n_values, np.float32)
        self.connection: Connection
        self._arrived = arrived

    def place(self, header: Header) -> Landing:
        """Choose the array."""
        return Landing(self.array.data.cast("B")[: header.size])

    def frame_received(self, frame: Frame) -> None:
        """Pass the news on."""
        self._arrived(self)

    def connection_lost(self, error: Exception | None) -> None:
        """Leave it to whoever measures."""

    async def send(self, array: NDArray[np.float32]) -> None:
        """Send an array as one frame."""
        view = array.data.cast("B")
        head = Header(Kind.TENSOR, 1, 1, 1, 0, 0, len(view)).pack()
        await self.connection.send([(head, [view])])


class Transport:
    """A tensor each way through ``aiops.transport.tcp``."""

    name = "our transport"
    spins = False

    def versions(self) -> str:
        """Return the loop's name."""
        return f"aiops.transport.tcp on {loop_factory().__module__.partition('.')[0]}"

    def serve(self, case: Case) -> None:
        """Serve on a loop."""
        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            runner.run(self._serve(case))

    async def _serve(self, case: Case) -> None:
        total, takers = Total(case.n_workers, case.n_values), list[Taker]()
        answer = np.zeros(1, np.float32) if case.one_way else None

        def arrived(taker: Taker) -> None:
            takers.append(taker)
            merged = total.add(taker.array)
            if merged is not None:
                for each in takers:
                    tasks.create_task(each.send(merged if answer is None else answer))
                takers.clear()

        def made(taker: Receiver, connection: Connection) -> None:
            assert isinstance(taker, Taker)
            taker.connection = connection

        def take() -> Taker:
            return Taker(case.n_values, arrived)

        async with asyncio.TaskGroup() as tasks:
            listener = await tcp.listen(HOST, 0, take, made=made, **options(case))
            announce(str(listener.addresses[0][1]))
            await asyncio.get_running_loop().create_future()

    @contextlib.asynccontextmanager
    async def connect(self, case: Case, address: str, rank: int) -> AsyncIterator[AsyncRound]:
        """Send, and wait until the answer is whole."""
        update, news = case.update(rank), asyncio.Event()
        taker = Taker(case.n_values, lambda taker: news.set())
        where = [(HOST, int(address))]
        taker.connection = await tcp.connect(where, lambda: taker, **options(case))

        async def do_round() -> float:
            news.clear()
            await taker.send(update)
            await news.wait()
            return case.total if case.one_way else float(taker.array[-1])

        yield do_round
        await taker.connection.close()


def options(case: Case) -> tcp.Options:
    """Return what both ends are told: what ``aiops.connect`` and ``aiops.serve`` tell them, unless the case differs."""
    if case.segment_bytes:
        lane.SEND_BYTES = case.segment_bytes
    return {
        "max_frame_bytes": 1 << 40,
        "idle_timeout_s": 60.0,
        "lanes": [lane.Lane(f"bench lane {number}") for number in range(case.lanes)],
        "congestion": None if case.congestion == "-" else case.congestion,
    }
