"""asyncio's streams (on uvloop where it is installed): what most people would write."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import numpy as np

from aiops.bench.peers.base import HOST, AsyncRound, Case, announce
from aiops.bench.peers.total import Total
from aiops.sync.thread import loop_factory

# Enough for libraries that read ahead; readexactly works with any.
LIMIT_BYTES = 1 << 20


class Streams:
    """``readexactly`` and ``write``, with no frame around the bytes at all."""

    name = "asyncio streams"
    spins = False

    def versions(self) -> str:
        """Return the loop's name."""
        return f"streams on {loop_factory().__module__.partition('.')[0]}"

    def serve(self, case: Case) -> None:
        """Serve on a loop."""
        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            runner.run(self._serve(case))

    async def _serve(self, case: Case) -> None:
        total, writers = Total(case.n_workers, case.n_values), list[asyncio.StreamWriter]()

        async def adopt(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            with contextlib.suppress(asyncio.IncompleteReadError):
                while data := await reader.readexactly(case.n_bytes):
                    writers.append(writer)
                    merged = total.add(np.frombuffer(data, np.float32))
                    if merged is not None:
                        answered = writers.copy()
                        writers.clear()
                        for each in answered:
                            each.write(merged.data.cast("B"))
                        await asyncio.gather(*(each.drain() for each in answered))

        server = await asyncio.start_server(adopt, HOST, 0, limit=LIMIT_BYTES)
        announce(str(server.sockets[0].getsockname()[1]))
        await server.serve_forever()

    @contextlib.asynccontextmanager
    async def connect(self, case: Case, address: str, rank: int) -> AsyncIterator[AsyncRound]:
        """Write, drain, read."""
        reader, writer = await asyncio.open_connection(HOST, int(address), limit=LIMIT_BYTES)
        update = case.update(rank).data.cast("B")

        async def do_round() -> float:
            writer.write(update)
            await writer.drain()
            data = await reader.readexactly(case.n_bytes)
            return float(np.frombuffer(data, np.float32)[-1])

        yield do_round
        writer.close()
