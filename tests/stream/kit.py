"""Small streams for the tests of this room."""

from __future__ import annotations

import asyncio
import contextlib

from aiops.stream.tape import StampedSample


class Numbers:
    """Samples whose value is their number in text, filed under its last digit."""

    def __init__(self, count=10, *, size=0):
        self._count = count
        self._size = size

    def __len__(self):
        return self._count

    def __getitem__(self, index):
        text = b"%d" % index
        return text[-1:], text.ljust(self._size, b" ")


def stamped(*times):
    return [StampedSample(time_s, b"%d" % n, b"v%d" % n) for n, time_s in enumerate(times)]


async def read(source, count):
    return [await anext(source) for _ in range(count)]


async def read_for(source, seconds):
    """Read until the time is over, and cancel the read that is under way then."""
    records = []
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            while True:
                records.append(await anext(source))
    return records


def values(records):
    return [record.value for record in records]
