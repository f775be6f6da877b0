"""Our transport alone: frames with a tensor each, no server and no client around them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable

import numpy as np
from numpy.typing import NDArray

from aiops.bench.peers.base import HOST, AsyncRound, Case, announce
from aiops.bench.peers.total import Total
from aiops.buffers import BufferPool
from aiops.server.draft import CHUNK_BYTES, BucketDraft, Intake
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
        # Filled, so that its pages are there before anything is measured.
        self.array = np.full(n_values, 0, np.float32)
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


class Merger(Taker):
    """A taker that adds its payloads up chunk by chunk as they come: the next values are the old ones + the payload.

    That is what our server does with the push that completes a round.
    """

    def __init__(self, n_values: int, arrived: Callable[[Taker], None]) -> None:
        super().__init__(n_values, arrived)
        self._pool = BufferPool()
        self._next = self._pool.take(self.array.nbytes)
        self._next.float32().fill(0)
        self._draft: BucketDraft

    def place(self, header: Header) -> Landing:
        """Choose memory for one chunk."""
        intake = Intake(header.size, self._pool.take(CHUNK_BYTES), passing=True, lane=0)
        self._draft = BucketDraft(self.array, self._next, [intake], [1.0], 1.0)
        return intake

    def frame_received(self, frame: Frame) -> None:
        """See to it that everything was added."""
        assert self._draft.complete
        frame.release()
        super().frame_received(frame)


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

        kind = Merger if case.merging else Taker

        def take() -> Taker:
            return kind(case.n_values, arrived)

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
        lane.CALL_BYTES = case.segment_bytes
    return {
        "max_frame_bytes": 1 << 40,
        "idle_timeout_s": 60.0,
        "lanes": [lane.Lane(f"bench lane {number}") for number in range(case.lanes)],
        "congestion": None if case.congestion == "-" else case.congestion,
    }
