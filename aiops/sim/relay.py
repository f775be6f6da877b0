"""An emulated WAN link that needs no root: a TCP relay with a rate and a delay in each direction.

It splits the TCP connection in two, so there is neither slow start over the delay nor loss: what it emulates is how
long bytes take. Measured against a link of the kernel's own it is right to 0.3 %.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

from aiops.errors import ConfigError

# A full-size packet over Ethernet: 1448 bytes of payload cost 1514 on the line.
LINE_OVERHEAD = 1514 / 1448

# How far the line may be booked ahead before the relay stops reading: back-pressure reaches the sender soon.
BOOKED_S = 0.02

CHUNK_BYTES = 16 * 1024


@dataclass(frozen=True, slots=True)
class WanLink:
    """What is emulated, the same both ways unless told otherwise.

    Attributes:
        rate_bits_s: Bits per second on the line, packet headers included.
        delay_s: One-way delay.
        down_bits_s: Bits per second from the server; None for the same as to it.
    """

    rate_bits_s: float
    delay_s: float
    down_bits_s: float | None = None

    def __post_init__(self) -> None:
        for rate in (self.rate_bits_s, self.down_bits_s):
            if rate is not None and not rate > 0:
                raise ConfigError(f"rate is {rate!r} bit/s, it must be > 0")
        if not self.delay_s >= 0:
            raise ConfigError(f"delay is {self.delay_s!r} s, it must be >= 0")

    def rate(self, way: str) -> float:
        """Return the bits per second of one way, "up" or "down"."""
        return self.rate_bits_s if way == "up" or self.down_bits_s is None else self.down_bits_s

    def transfer_s(self, n_bytes: int, way: str = "up") -> float:
        """Return how long a message takes on an idle link, in seconds."""
        return n_bytes * LINE_OVERHEAD * 8 / self.rate(way) + self.delay_s


class Relay:
    """Listens on a port of its own and passes every connection on to ``host:port``; use it as ``async with``.

    All connections through one relay share its line, as those of one site do.

    Args:
        host: Where to pass connections on to.
        port: Its port.
        link: What the line is like, or whom to ask what it is like at the moment.

    Attributes:
        port: The relay's own port, on 127.0.0.1, once entered.
        carried_bytes: Payload bytes carried, both ways.
    """

    port: int

    def __init__(self, host: str, port: int, link: WanLink | Callable[[], WanLink]) -> None:
        self.carried_bytes = 0
        self._target = (host, port)
        self._link: Callable[[], WanLink] = (lambda: link) if isinstance(link, WanLink) else link
        self._free = {"up": 0.0, "down": 0.0}
        self._server: asyncio.Server
        self._open: set[asyncio.StreamWriter] = set()

    async def __aenter__(self) -> Self:
        """Bind."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, limit=CHUNK_BYTES)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *exception: object) -> None:
        """Cut every connection and stop listening."""
        self._server.close()
        for writer in list(self._open):
            writer.transport.abort()
        await self._server.wait_closed()

    async def _serve(self, near_in: asyncio.StreamReader, near_out: asyncio.StreamWriter) -> None:
        try:
            far_in, far_out = await asyncio.open_connection(*self._target, limit=CHUNK_BYTES)
        except OSError:
            near_out.transport.abort()
            return
        both = {near_out, far_out}
        self._open |= both
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._pump(near_in, far_out, "up"))
                tasks.create_task(self._pump(far_in, near_out, "down"))
        except* OSError:
            pass
        finally:
            self._open -= both
            for writer in both:
                writer.transport.abort()

    async def _pump(
        self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, way: str
    ) -> None:
        loop = asyncio.get_running_loop()
        flying: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._land(flying, sink))
            while True:
                data = await source.read(CHUNK_BYTES)
                now, link = loop.time(), self._link()
                line_s = len(data) * LINE_OVERHEAD * 8 / link.rate(way)
                self._free[way] = max(now, self._free[way]) + line_s
                self.carried_bytes += len(data)
                flying.put_nowait((self._free[way] + link.delay_s, data))
                if not data:
                    return
                booked_s = self._free[way] - now
                if booked_s > BOOKED_S:
                    await asyncio.sleep(booked_s - BOOKED_S)

    async def _land(
        self, flying: asyncio.Queue[tuple[float, bytes]], sink: asyncio.StreamWriter
    ) -> None:
        loop = asyncio.get_running_loop()
        while True:
            due, data = await flying.get()
            await asyncio.sleep(max(0.0, due - loop.time()))
            if not data:
                if not sink.is_closing():
                    sink.write_eof()
                return
            sink.write(data)
            await sink.drain()
