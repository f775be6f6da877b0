"""Random storms: workers push, resend, vanish, come back, change lives and leave, in any order.

Every push adds 1 to a value of its own, so that the parameters tell how often each one was merged.
"""

import asyncio
import random

import numpy as np
import pytest

from aiops.errors import Busy, NotMember
from aiops.policy.weight import constant
from aiops.wire.frame import Kind
from tests.server.kit import cluster, settle

pytestmark = pytest.mark.virtual

N = 300
STORM = 150
CALM = 60


class Worker:
    """A worker that keeps its promises: it sends a push again until it is answered, or begins another life."""

    def __init__(self, house, hand, identity):
        self.house, self.connect, self.identity = house, hand, identity
        self.incarnation = 0
        self.hand = None
        self.sequence = 0
        self.open = None  # sequence, slot and base of the push that is not answered yet
        self.requests = set()

    @property
    def connected(self):
        return self.hand is not None and not self.hand.lost.done()

    async def dial(self):
        self.hand = await self.connect(self.house, self.identity, self.incarnation)
        self.requests = set()

    async def another_life(self):
        self.incarnation += 1
        self.sequence, self.open = 0, None
        await self.dial()

    async def push(self, slot, base):
        self.sequence += 1
        self.open = self.sequence, slot, base
        await self.resend()

    async def resend(self):
        sequence, slot, base = self.open
        update = np.zeros(N, np.float32)
        if slot is not None:
            update[slot] = 1
        self.requests.add(await self.hand.send_push(sequence, update, base=base))

    def hear(self, merged, refused):
        """Take the answers in."""
        while not self.hand.events.empty():
            event = self.hand.events.get_nowait()
            if event is None or event.request not in self.requests or self.open is None:
                continue
            if event.kind is Kind.REFUSE and event.body.code in (Busy.code, NotMember.code):
                continue
            _, slot, _ = self.open
            (merged if event.kind is Kind.ACK else refused).add(slot)
            self.open = None


async def storm(rng, house, workers, merged, refused):
    slots = iter(range(N))
    for _ in range(STORM):
        worker = rng.choice(workers)
        action = rng.choice(["push", "push", "push", "resend", "abort", "life", "leave", "wait"])
        if action == "life":
            await worker.another_life()
        elif not worker.connected:
            await worker.dial()
        elif action == "push" and worker.open is None:
            version = house.server.version
            await worker.push(next(slots), rng.randint(max(0, version - 3), version))
        elif action == "resend" and worker.open is not None:
            await worker.resend()
        elif action == "abort":
            await asyncio.sleep(rng.choice([0, 0.1]))
            worker.hand.connection.abort()
        elif action == "leave":
            await worker.hand.leave()
        elif action == "wait":
            await asyncio.sleep(rng.choice([0.1, 1, 3, 7]))
        await asyncio.sleep(rng.choice([0, 0, 0.1]))
        for each in workers:
            each.hear(merged, refused) if each.hand else None
    return slots


async def calm(house, workers, merged, refused):
    """Resend what is open, and keep rounds going, until everything is answered."""
    for _ in range(CALM):
        if all(worker.open is None or worker.open[1] is None for worker in workers):
            return
        for worker in workers:
            if not worker.connected:
                await worker.dial()
            if worker.open is None:
                await worker.push(None, house.server.version)
            else:
                await worker.resend()
        await settle()
        for worker in workers:
            worker.hear(merged, refused)
    raise AssertionError(f"not answered: {[worker.open for worker in workers]}")


@pytest.mark.parametrize("sync", ["bulk:1", "bulk", "asynchronous", "ssp:1"])
@pytest.mark.parametrize("seed", range(12))
async def test_nothing_is_lost_or_merged_twice_whatever_happens(hand, sync, seed):
    rng = random.Random(f"{sync} {seed}")
    spec = {"sync": sync, "work": "fixed:1", "lease_s": 5.0, "heartbeat_s": 1.0}
    async with cluster(N, min_workers=rng.choice([1, 2]), **spec) as house:
        # Every push counts in full, also among others, so that a value is the number of merges.
        house.server.service.engine.weights = constant()
        workers = [Worker(house, hand, f"w{i}") for i in range(3)]
        merged, refused = set(), set()
        for worker in workers:
            await worker.dial()
        await storm(rng, house, workers, merged, refused)
        await calm(house, workers, merged, refused)
        times = house.server.params()["w"]
        assert set(times.tolist()) <= {0.0, 1.0}
        told = merged - {None}
        assert len(told) > 5
        assert all(times[slot] == 1 for slot in told)
        assert all(times[slot] == 0 for slot in refused - {None})
