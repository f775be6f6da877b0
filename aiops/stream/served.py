"""What sources over a server have in common: a reader that pauses, outages that are waited out, and leaving."""

from __future__ import annotations

import abc
import asyncio
import logging
from typing import Protocol

from aiops.errors import AiopsError, ConnectionLost
from aiops.stream.backoff import Backoff
from aiops.stream.meter import RateMeter

log = logging.getLogger("aiops.stream")


class Link(Protocol):
    """A way to a server.

    Attributes:
        name: The stream, for people.
    """

    name: str

    async def close(self) -> None:
        """Let go of the server."""


class ServedSource(abc.ABC):
    """A source whose records wait at a server.

    Args:
        link: To the server; closed with this.
        server: What people call it.
        leaving_s: How long the server may take to hear of the last acknowledgements, in seconds.
        backoff: When to try again.
        meter: Measures the rate.

    Attributes:
        name: The stream, for people.
        reconnects: How often the server went away and came back.
    """

    def __init__(
        self, link: Link, *, server: str, leaving_s: float, backoff: Backoff, meter: RateMeter
    ) -> None:
        self.name = link.name
        self.reconnects = 0
        self._server = server
        self._leaving_s = leaving_s
        self._leave = link.close
        self._backoff = backoff
        self._meter = meter
        self._loop = asyncio.get_running_loop()
        self._look_at = 0.0
        self._paused = False
        self._closed = False
        self._changed = asyncio.Event()

    def rate(self) -> float:
        """Return how fast records are added to what is read, smoothed, in records/s."""
        return self._meter.rate

    def pause(self) -> None:
        """Hand out nothing until `resume`; what is fetched already waits here."""
        if not self._paused:
            self._paused = True
            self._changed.set()

    def resume(self) -> None:
        """Hand out records again."""
        if self._paused:
            self._paused = False
            self._changed.set()

    async def aclose(self) -> None:
        """End the iteration; the server hears of what is acknowledged, if it answers soon."""
        if self._closed:
            return
        self._closed = True
        self._changed.set()
        try:
            async with asyncio.timeout(self._leaving_s):
                await self._pay()
        except (AiopsError, TimeoutError) as error:
            log.info("%s: the last acknowledgements were not heard: %s", self.name, error)
        finally:
            await self._leave()

    # Tells the server what is acknowledged.
    @abc.abstractmethod
    async def _pay(self) -> None: ...

    async def _pay_if_reached(self) -> None:
        if self._backoff.failing:
            return
        try:
            await self._pay()
        except AiopsError as error:
            log.debug("%s: acknowledged later: %s", self.name, error)

    def _back(self) -> None:
        if self._backoff.failing:
            self.reconnects += 1
            log.warning("%s: %s is back", self.name, self._server)
        self._backoff.reached()

    # Waits for the next try; the rate is looked at again with it.
    async def _outage(self, error: ConnectionLost) -> None:
        if self._closed:
            return
        level = logging.INFO if self._backoff.failing else logging.WARNING
        wait_s = self._backoff.failed(self._loop.time())
        if wait_s is None:
            raise ConnectionLost(f"{self.name} did not come back in time: {error}") from error
        log.log(level, "no connection, trying again in %.1f s: %s", wait_s, error)
        self._look_at = 0.0
        await self._wait(wait_s)

    async def _wait(self, seconds: float) -> None:
        self._changed.clear()
        try:
            async with asyncio.timeout(max(0.0, seconds)):
                await self._changed.wait()
        except TimeoutError:
            return
