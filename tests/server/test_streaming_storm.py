"""The storm again with chunk streaming: whatever was sent ahead of a round, nobody holds a model that never was."""

import asyncio
import contextlib
import random

import numpy as np
import pytest

from aiops.errors import Busy, NotMember
from aiops.policy.weight import constant
from aiops.transport.memory import Link
from aiops.wire.frame import Kind
from tests.server.kit import cluster
from tests.server.streaming import History, ahead
from tests.server.test_storm import N, Worker, calm, storm

pytestmark = pytest.mark.virtual

# Bytes per second: a push takes about as long as the storm waits between two actions.
RATE = 100_000
BUCKETS = 8


class Streamed(Worker):
    """A worker that wants the model, over slow links, and whose pushes are under way while it does other things."""

    def __init__(self, house, hand, identity, rng, history):
        async def connect(house, identity, incarnation):
            up, down = (Link(rate_bytes_s=RATE * rng.choice([0.3, 1, 3])) for _ in range(2))
            up.cut_after = rng.choice([None, None, None, rng.randrange(200, 20_000)])
            down.cut_after = rng.choice([None, None, None, rng.randrange(200, 20_000)])
            try:
                return await hand(house, identity, incarnation, up=up, down=down)
            except AttributeError:
                # Cut in the greeting.
                return await hand(house, identity, incarnation)

        super().__init__(house, connect, identity)
        self.tasks, self.history, self.rng = [], history, rng

    async def dial(self):
        await super().dial()
        self.requests = {}

    async def resend(self):
        number = self.hand.session.next_request()
        self.requests[number] = self.open
        self.tasks.append(asyncio.ensure_future(self.send(self.hand, number, *self.open)))

    async def send(self, hand, number, sequence, slot, base):
        update = np.zeros((BUCKETS, N), np.float32)
        if slot is not None:
            update[:, slot] = 1
        buckets = self.house.server.service.table.buckets
        parts = [update.reshape(-1)[b.start : b.stop] for b in buckets]
        if slot is not None and slot % 7 == 0:
            # Refused at its end: what was sent ahead of it is void.
            parts[-1] = np.full_like(parts[-1], np.nan)
        with contextlib.suppress(OSError):
            await hand.send_push(sequence, *parts, base=base, number=number, split=True, want=True)

    def hear(self, merged, refused):
        while not self.hand.events.empty():
            event = self.hand.events.get_nowait()
            asked = self.requests.get(event.request) if event is not None else None
            if asked is None:
                continue
            if event.kind is Kind.REFUSE and event.body.code in (Busy.code, NotMember.code):
                continue
            if event.kind is Kind.MODEL:
                assert self.history.holds(event)
                if asked[1] is not None:
                    model = self.history.versions[event.body.version].reshape(BUCKETS, N)
                    assert (model[:, asked[1]] == 1).all()
            (merged if event.kind is Kind.MODEL else refused).add(asked[1])
            if asked == self.open:
                self.open = None

    async def end(self):
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)


@pytest.mark.parametrize("sync", ["bulk:1", "bulk"])
@pytest.mark.parametrize("seed", range(16))
async def test_no_torn_model_and_no_push_lost_or_merged_twice_with_streaming(hand, sync, seed):
    rng = random.Random(f"{sync} {seed}")
    spec = {"sync": sync, "work": "fixed:1", "lease_s": 5.0, "heartbeat_s": 1.0}
    spec |= {"stream_bytes": 4 * N, "min_workers": rng.choice([1, 2])}
    async with cluster(BUCKETS * N, **spec) as house:
        house.server.service.engine.weights = constant()
        history = History(house)
        workers = [Streamed(house, hand, f"w{i}", rng, history) for i in range(3)]
        merged, refused = set(), set()
        try:
            for worker in workers:
                await worker.dial()
            await storm(rng, house, workers, merged, refused)
            await calm(house, workers, merged, refused)
        finally:
            for worker in workers:
                await worker.end()
        # All buckets of a push or none, once or never.
        times = house.server.params()["w"].reshape(BUCKETS, N)
        assert (times == times[0]).all()
        assert set(times[0].tolist()) <= {0.0, 1.0}
        told = merged - {None}
        assert told
        assert all(times[0][slot] == 1 for slot in told)
        assert all(times[0][slot] == 0 for slot in refused - {None})
        assert ahead(house)
