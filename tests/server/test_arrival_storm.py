"""The storm again over slow links, with buckets that are merged while they come."""

import asyncio
import contextlib
import random

import numpy as np
import pytest

from aiops.errors import Busy, NotMember
from aiops.policy.weight import constant
from aiops.transport.memory import Link
from aiops.wire.frame import Kind
from tests.server.kit import cluster, count
from tests.server.test_storm import N, Worker, calm, storm

pytestmark = pytest.mark.virtual

# Bytes per second: a push takes about as long as the storm waits between two actions.
RATE = 40_000


class Slow(Worker):
    """A worker whose pushes are under way while it does other things."""

    def __init__(self, house, hand, identity, rng):
        async def connect(house, identity, incarnation):
            up = Link(rate_bytes_s=RATE * rng.choice([0.3, 1, 3]))
            return await hand(house, identity, incarnation, up=up)

        super().__init__(house, connect, identity)
        self.tasks = []

    async def dial(self):
        await super().dial()
        self.requests = {}

    async def resend(self):
        number = self.hand.session.next_request()
        self.requests[number] = self.open
        self.tasks.append(asyncio.ensure_future(self.send(self.hand, number, *self.open)))

    async def send(self, hand, number, sequence, slot, base):
        update = np.zeros((3, N), np.float32)
        if slot is not None:
            update[:, slot] = 1
        buckets = self.house.server.service.table.buckets
        parts = [update.reshape(-1)[b.start : b.stop] for b in buckets]
        with contextlib.suppress(OSError):
            await hand.send_push(sequence, *parts, base=base, number=number, split=True)

    def hear(self, merged, refused):
        """Take the answers in: an earlier push's too, which was sent again while it was answered."""
        while not self.hand.events.empty():
            event = self.hand.events.get_nowait()
            asked = self.requests.get(event.request) if event is not None else None
            if asked is None:
                continue
            if event.kind is Kind.REFUSE and event.body.code in (Busy.code, NotMember.code):
                continue
            (merged if event.kind is Kind.ACK else refused).add(asked[1])
            if asked == self.open:
                self.open = None

    async def end(self):
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)


@pytest.mark.parametrize("sync", ["bulk:1", "bulk"])
@pytest.mark.parametrize("seed", range(12))
async def test_nothing_is_lost_or_merged_twice_on_its_way(hand, small_chunks, sync, seed):
    rng = random.Random(f"{sync} {seed}")
    spec = {"sync": sync, "work": "fixed:1", "lease_s": 5.0, "heartbeat_s": 1.0}
    spec |= {"bucket_bytes": 1200, "min_workers": rng.choice([1, 2])}
    async with cluster(3 * N, **spec) as house:
        house.server.service.engine.weights = constant()
        workers = [Slow(house, hand, f"w{i}", rng) for i in range(3)]
        merged, refused = set(), set()
        try:
            for worker in workers:
                await worker.dial()
            await storm(rng, house, workers, merged, refused)
            await calm(house, workers, merged, refused)
        finally:
            for worker in workers:
                await worker.end()
        # All three buckets of a push or none, once or never.
        times = house.server.params()["w"].reshape(3, N)
        assert (times == times[0]).all()
        assert set(times[0].tolist()) <= {0.0, 1.0}
        told = merged - {None}
        assert told
        assert all(times[0][slot] == 1 for slot in told)
        assert all(times[0][slot] == 0 for slot in refused - {None})
        assert count(house, "buckets_drafted") > 0
