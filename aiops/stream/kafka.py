"""Records from the partitions of a Kafka topic.

Partitions are assigned by the URL and not by the group's coordinator: no worker's coming or going takes another's
records away. The group is where offsets are committed.
"""

from __future__ import annotations

import random
from collections import deque
from typing import Any

from aiops.errors import ConfigError, ConnectionLost
from aiops.stream.address import KafkaAddress
from aiops.stream.backoff import Backoff
from aiops.stream.base import Backlog, Record
from aiops.stream.kafka_link import KafkaLink, Offsets
from aiops.stream.meter import RateMeter
from aiops.stream.served import ServedSource

LOOK_S = 1.0
LEAVING_S = 2.0


async def open_kafka(
    address: KafkaAddress, *, cursor: str, give_up_s: float, smoothing_s: float, rng: random.Random
) -> KafkaSource:
    """Open a topic; arguments, result and errors as for :func:`aiops.stream.opening.open_source`."""
    wanted = parse_cursor(cursor)
    link = KafkaLink(address)
    try:
        await link.open()
        begin = await link.begin()
        unknown = sorted(wanted.keys() - begin.keys())
        if unknown:
            raise ConfigError(
                f"cursor {cursor!r} names partition {unknown[0]}, of {link.name} are read {sorted(begin)}"
            )
        begin |= wanted
        link.seek(begin)
        source = KafkaSource(
            link,
            begin,
            cursor=cursor,
            backoff=Backoff(give_up_s=give_up_s, rng=rng),
            meter=RateMeter(smoothing_s),
        )
        await source.look()
    except BaseException:
        await link.close()
        raise
    return source


class KafkaSource(ServedSource):
    """A :class:`aiops.stream.base.StreamSource` over partitions of a topic.

    A cursor is the next offset of every partition that is read, ``"0:17,1:5"``. Without one it begins with what the
    group has committed. Records are in the order of their partition; those of several come as they arrive.

    ``lost`` counts the offsets that are skipped: records that the broker deleted by age before they were read, but
    also those that compaction or transactions took out.

    Args:
        link: To the brokers; closed with this.
        begin: The first offset to read of every partition.
        cursor: Where to go on; empty for what the group has committed.
        backoff: When to try again.
        meter: Measures the rate.
    """

    def __init__(
        self,
        link: KafkaLink,
        begin: Offsets,
        *,
        cursor: str,
        backoff: Backoff,
        meter: RateMeter,
    ) -> None:
        super().__init__(
            link, server="the broker", leaving_s=LEAVING_S, backoff=backoff, meter=meter
        )
        self.cursor = cursor
        self.lost = 0
        self._link = link
        self._handed = dict(begin)  # next offset to hand out
        self._done = dict(begin)  # next offset that is not acknowledged
        self._owed: Offsets = {}  # acknowledged, and not committed
        self._ready: deque[Any] = deque()
        self._n = 0
        self._n_bytes = 0

    def __aiter__(self) -> KafkaSource:
        """Return itself."""
        return self

    async def __anext__(self) -> Record:
        """Wait for the next record; see :class:`aiops.stream.base.StreamSource`."""
        while not self._closed:
            if self._ready and not self._paused:
                return self._hand_out()
            try:
                if self._loop.time() >= self._look_at:
                    await self.look()
                    await self._pay()
                    self._back()
                left_s = max(0.0, self._look_at - self._loop.time())
                if self._paused:
                    await self._wait(left_s)
                else:
                    self._ready.extend(await self._link.read(left_s))
            except ConnectionLost as error:
                await self._outage(error)
        raise StopAsyncIteration

    async def backlog(self) -> Backlog:
        """Return what lies between what was handed out and the ends; bytes from the mean of what was read."""
        ends = await self._link.ends()
        waiting = sum(max(0, ends[each] - offset) for each, offset in self._handed.items())
        mean = self._n_bytes / self._n if self._n else 0.0
        return Backlog(waiting, round(waiting * mean))

    async def ack(self, cursor: str) -> None:
        """Declare everything up to that record done."""
        offsets = parse_cursor(cursor)
        if offsets.keys() != self._handed.keys() or any(
            offset > self._handed[each] for each, offset in offsets.items()
        ):
            last = make_cursor(self._handed)
            raise ConfigError(f"cursor {cursor!r} was not handed out, the last was {last!r}")
        fresh = {each: at for each, at in offsets.items() if at > self._done[each]}
        if not fresh:
            return
        self._done |= fresh
        self._owed |= fresh
        self.cursor = make_cursor(self._done)
        await self._pay_if_reached()

    async def look(self) -> None:
        """Measure how fast records are added."""
        self._look_at = self._loop.time() + LOOK_S
        ends = await self._link.ends()
        self._meter.observe(sum(ends.values()), self._loop.time())

    def _hand_out(self) -> Record:
        found = self._ready.popleft()
        self.lost += max(0, found.offset - self._handed[found.partition])
        self._handed[found.partition] = found.offset + 1
        value = found.value or b""
        self._n += 1
        self._n_bytes += len(value)
        return Record(
            make_cursor(self._handed),
            found.key or b"",
            value,
            max(0, found.timestamp) / 1000,
            fault="the record has no value" if found.value is None else "",
        )

    async def _pay(self) -> None:
        while self._owed:
            paid = dict(self._owed)
            await self._link.commit(paid)
            self._owed = {each: at for each, at in self._owed.items() if at > paid.get(each, -1)}


def make_cursor(offsets: Offsets) -> str:
    """Return the text that stands for the next offsets of partitions."""
    return ",".join(f"{each}:{offsets[each]}" for each in sorted(offsets))


def parse_cursor(cursor: str) -> Offsets:
    """Return the offsets that a cursor stands for; none for an empty one.

    Raises:
        ConfigError: It is none of ours.
    """
    offsets: Offsets = {}
    for part in cursor.split(",") if cursor else ():
        partition, colon, offset = part.partition(":")
        if not (colon and all(each.isascii() and each.isdigit() for each in (partition, offset))):
            raise ConfigError(f"cursor {cursor!r} is none of a kafka topic")
        offsets[int(partition)] = int(offset)
    return offsets
