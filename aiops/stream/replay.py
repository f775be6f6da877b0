"""A stream inside the process: records that arrive by the loop's clock, real or virtual, without any server."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from typing import Protocol

from aiops.errors import ConfigError
from aiops.stream.arrival import Arrivals, Stamped, Steady
from aiops.stream.base import Backlog, Record
from aiops.stream.meter import SMOOTHING_S, RateMeter
from aiops.stream.tape import Around, Once, Samples, StampedSample


class _Tape(Protocol):
    def __getitem__(self, index: int, /) -> tuple[bytes, bytes]: ...


def replay_samples(
    samples: Samples,
    *,
    rate: float,
    count: int | None = None,
    seed: int | None = None,
    cursor: str = "",
    smoothing_s: float = SMOOTHING_S,
) -> Replayer:
    """Return a stream of samples again and again, at a rate. To be called in a running loop.

    A token bucket by deadlines: record n is due (n + 1) / rate seconds after the start, whatever the ones before it
    took. Event times are seconds since the start.

    Args:
        samples: Key and value by index; at least one.
        rate: Records/s, >= 0; :meth:`Replayer.set_pace` changes it.
        count: After how many records the stream ends; None for never.
        seed: Shuffles every pass; None keeps the order.
        cursor: Where an earlier replay of the same samples, seed and count had got to.
        smoothing_s: Time constant of the measured rate, in seconds.

    Raises:
        ConfigError: One of them is not as said.
    """
    if count is not None and count < 0:
        raise ConfigError(f"count is {count!r}, it must be >= 0")
    around = Around(samples, seed)
    return Replayer(around, Steady(rate), count=count, cursor=cursor, smoothing_s=smoothing_s)


def replay_stamped(
    records: Sequence[StampedSample],
    *,
    speed: float = 1.0,
    cursor: str = "",
    smoothing_s: float = SMOOTHING_S,
) -> Replayer:
    """Return a stream of records that arrive by their own times, ``speed`` times faster; it ends after the last.

    To be called in a running loop, where the first record arrives at once; after a restart, the first that is left.

    Args:
        records: At least one, in the order of their times.
        speed: >= 0; :meth:`Replayer.set_pace` changes it.
        cursor: Where an earlier replay of the same records had got to.
        smoothing_s: Time constant of the measured rate, in seconds.

    Raises:
        ConfigError: One of them is not as said.
    """
    arrivals = Stamped([record.time_s for record in records], speed)
    return Replayer(
        Once(records), arrivals, count=len(records), cursor=cursor, smoothing_s=smoothing_s
    )


class Replayer:
    """A :class:`aiops.stream.base.StreamSource` whose records arrive by a schedule and are made when they are read.

    So what waits costs no memory, however long nobody reads. Cursors count records, as text. While the process is down
    nothing arrives: a replay that goes on from a cursor begins with the record after it.

    Args:
        tape: Key and value of record n.
        arrivals: When it arrives.
        count: After how many records the stream ends; None for never.
        cursor: Where to go on; empty for the beginning.
        smoothing_s: Time constant of the measured rate, in seconds.
    """

    def __init__(
        self,
        tape: _Tape,
        arrivals: Arrivals,
        *,
        count: int | None,
        cursor: str,
        smoothing_s: float,
    ) -> None:
        self._next = _position(cursor, count)
        self.name = "replay"
        self.cursor = cursor
        self.lost = 0
        self.reconnects = 0
        self._tape = tape
        self._arrivals = arrivals
        self._count = count
        self._done = self._next
        self._meter = RateMeter(smoothing_s)
        self._read_bytes = 0
        self._read = 0
        self._paused = False
        self._closed = False
        # Set when a reader has to look again: another pace, pause, resume, or the end.
        self._changed = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        arrivals.start(self._loop.time(), self._next)
        self._meter.observe(self._next, self._loop.time())

    def __aiter__(self) -> Replayer:
        """Return itself."""
        return self

    async def __anext__(self) -> Record:
        """Wait for the next record; see :class:`aiops.stream.base.StreamSource`."""
        while not (self._closed or self._next == self._count):
            if self._paused:
                await self._wait(math.inf)
            elif self._next < self._arrivals.arrived(self._loop.time()):
                return self._hand_out()
            else:
                await self._wait(self._arrivals.due(self._next))
        raise StopAsyncIteration

    def rate(self) -> float:
        """Return the rate at which records arrive, smoothed, in records/s; 0 after the end."""
        return self._meter.observe(self._arrived(), self._loop.time())

    async def backlog(self) -> Backlog:
        """Return what has arrived and was not handed out; the bytes from the mean of what was."""
        waiting = self._arrived() - self._next
        mean = self._read_bytes / self._read if self._read else self._first_bytes(waiting)
        return Backlog(waiting, round(waiting * mean))

    async def ack(self, cursor: str) -> None:
        """Declare everything up to that record done."""
        position = _position(cursor, self._count)
        if position > self._next:
            raise ConfigError(
                f"cursor {cursor!r} was not handed out, the last was {str(self._next)!r}"
            )
        if position > self._done:
            self._done, self.cursor = position, cursor

    def pause(self) -> None:
        """Hand out nothing until `resume`; records go on arriving."""
        self._paused = True
        self._changed.set()

    def resume(self) -> None:
        """Hand out records again."""
        self._paused = False
        self._changed.set()

    def set_pace(self, pace: float) -> None:
        """Change the rate in records/s, or for stamped records the speed, from now on; 0 stops the stream.

        Raises:
            ConfigError: It is not finite and >= 0.
        """
        now = self._loop.time()
        self._meter.observe(self._arrived(), now)
        self._arrivals.set_pace(now, pace)
        self._changed.set()

    async def aclose(self) -> None:
        """End the iteration."""
        self._closed = True
        self._changed.set()

    def _arrived(self) -> int:
        arrived = self._arrivals.arrived(self._loop.time())
        return arrived if self._count is None else min(arrived, self._count)

    def _first_bytes(self, waiting: int) -> int:
        return len(self._tape[self._next][1]) if waiting else 0

    def _hand_out(self) -> Record:
        index = self._next
        key, value = self._tape[index]
        time_s = self._arrivals.event_time(index)
        self._arrivals.taken(index)
        self._next = index + 1
        self._read += 1
        self._read_bytes += len(value)
        return Record(str(self._next), key, value, time_s)

    async def _wait(self, until: float) -> None:
        self._changed.clear()
        try:
            async with asyncio.timeout_at(None if until == math.inf else until):
                await self._changed.wait()
        except TimeoutError:
            return


def _position(cursor: str, count: int | None) -> int:
    if not cursor:
        return 0
    position = int(cursor) if cursor.isascii() and cursor.isdigit() else -1
    if position < 0 or (count is not None and position > count):
        raise ConfigError(f"cursor {cursor!r} is none of this replay of {count} records")
    return position
