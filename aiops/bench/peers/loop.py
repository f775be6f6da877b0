"""A ``BufferedProtocol`` written by hand (on uvloop where it is installed), with all bytes moved on the loop itself.

The least that an asyncio program can do: no frames of several kinds, no checks, no versions. Control messages of the
same server show what bulk on the loop does to whoever shares it.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections.abc import AsyncIterator, Callable
from typing import cast

import numpy as np

from aiops.bench.peers.base import HOST, AsyncRound, Case, announce
from aiops.bench.peers.total import Total
from aiops.sync.thread import loop_factory

# The length of what follows; 0 is a control message, to be sent back as it is.
HEAD = struct.Struct("<Q")


class Pipe(asyncio.BufferedProtocol):
    """Messages into one array that stays.

    Args:
        n_values: float32 values of a message.
        arrived: Told of every whole message: this pipe, and whether it was a control message.
    """

    def __init__(self, n_values: int, arrived: Callable[[Pipe, bool], None]) -> None:
        self.array = np.empty(n_values, np.float32)
        self._body = self.array.data.cast("B")
        self._head = memoryview(bytearray(HEAD.size))
        self._into, self._filled = self._head, 0
        self._arrived = arrived
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send small messages at once."""
        self._transport = cast(asyncio.Transport, transport)
        sock: socket.socket = transport.get_extra_info("socket")
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Hand out the rest of the head, or of the array."""
        return self._into[self._filled :]

    def buffer_updated(self, nbytes: int) -> None:
        """Go on from head to array and from array to head."""
        self._filled += nbytes
        if self._filled < len(self._into):
            return
        body = self._into is self._body
        self._filled = 0
        if not body and HEAD.unpack(self._head)[0]:
            self._into = self._body
            return
        self._into = self._head
        self._arrived(self, not body)

    def send(self, body: memoryview | None) -> None:
        """Send a message; None is a control message."""
        if body is None:
            self._transport.write(HEAD.pack(0))
        else:
            self._transport.writelines((HEAD.pack(len(body)), body))


class Loop:
    """Received straight into the array, added up when whole, sent from the array."""

    name = "bare loop"
    spins = False

    def versions(self) -> str:
        """Return the loop's name."""
        return f"BufferedProtocol on {loop_factory().__module__.partition('.')[0]}"

    def serve(self, case: Case) -> None:
        """Serve on a loop."""
        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            runner.run(self._serve(case))

    async def _serve(self, case: Case) -> None:
        total, pipes = Total(case.n_workers, case.n_values), list[Pipe]()

        def arrived(pipe: Pipe, control: bool) -> None:
            if control:
                pipe.send(None)
                return
            pipes.append(pipe)
            merged = total.add(pipe.array)
            if merged is not None:
                for each in pipes:
                    each.send(merged.data.cast("B"))
                pipes.clear()

        loop = asyncio.get_running_loop()
        server = await loop.create_server(lambda: Pipe(case.n_values, arrived), HOST, 0)
        announce(str(server.sockets[0].getsockname()[1]))
        await server.serve_forever()

    @contextlib.asynccontextmanager
    async def connect(self, case: Case, address: str, rank: int) -> AsyncIterator[AsyncRound]:
        """Send, and wait until the answer is whole."""
        pipe, done = await self.dial(case, address)
        update = case.update(rank).data.cast("B")

        async def do_round() -> float:
            pipe.send(update)
            await done()
            return float(pipe.array[-1])

        yield do_round

    @staticmethod
    async def dial(case: Case, address: str) -> tuple[Pipe, Callable[[], asyncio.Future[None]]]:
        """Return a connection, and what to await after each ``send``."""
        loop = asyncio.get_running_loop()
        waiting: list[asyncio.Future[None]] = []

        def arrived(pipe: Pipe, control: bool) -> None:
            waiting.pop().set_result(None)

        def done() -> asyncio.Future[None]:
            waiting.append(loop.create_future())
            return waiting[0]

        _, pipe = await loop.create_connection(
            lambda: Pipe(case.n_values, arrived), HOST, int(address)
        )
        return pipe, done
