"""What the tests of drafts share: a model of three buckets, each of them drafted, and slow links to push it over.

They want the fixture ``small_chunks``.
"""

import asyncio

import numpy as np

from aiops.transport.memory import Link
from tests.server.kit import cluster, count

# Three buckets of 300 values; one takes a second on a slow link.
N, BUCKETS = 900, 3
BUCKET_BYTES = 1200
RATE = BUCKET_BYTES + 32
PAIR = {"min_workers": 2, "weights": "uniform"}


def home(**spec):
    return cluster(N, bucket_bytes=BUCKET_BYTES, **spec)


def parts(value):
    """An update of one value in buckets."""
    return [np.full(N // BUCKETS, value, np.float32) for _ in range(BUCKETS)]


def update(value):
    """The same by name."""
    return {"w": np.full(N, value, np.float32)}


def slow():
    return Link(rate_bytes_s=RATE)


def under_way(push):
    """A push that nobody waits for yet; its connection may be cut."""
    task = asyncio.ensure_future(push)
    task.add_done_callback(lambda task: task.cancelled() or task.exception())
    return task


async def answer(pending):
    """What a push was answered with: nobody may hang."""
    async with asyncio.timeout(30):
        return await pending


def rests(house, blocks=BUCKETS):
    """Whether nothing is on loan but the published parameters."""
    return house.server.service.pool.outstanding == blocks


def values(house, name="w"):
    return sorted(set(house.server.params()[name].tolist()))


def drafted(house):
    return count(house, "buckets_drafted")
