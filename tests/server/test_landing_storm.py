"""Random storms with little room: links of any speed that are cut, workers that are killed, leave and come again."""

import asyncio
import random

import numpy as np
import pytest

from aiops.errors import AiopsError, StalePush
from aiops.transport.memory import Link
from tests.server.kit import LEASE, count
from tests.server.landing import bounded, landing

pytestmark = pytest.mark.virtual

# More than is read ahead, in buckets of which the last is smaller.
VALUES = 70_001
MODEL_BYTES = 4 * VALUES

PUSHES = 6
CODECS = ["dense", "dense", "fp16", "topk:0.1"]


class Storm:
    """Workers that push, each of them so often, whatever happens to them meanwhile.

    Attributes:
        pushed: Pushes that were answered as merged.
    """

    def __init__(self, rng, house):
        self.rng, self.house = rng, house
        self.pushed = 0
        self.calm = False

    async def work(self, name):
        """Push until enough is pushed, over one life or several."""
        rng, left, life = self.rng, PUSHES, 0
        while left:
            life += 1
            rate = rng.choice([None, MODEL_BYTES * 10, MODEL_BYTES, MODEL_BYTES, MODEL_BYTES / 5])
            up = Link(delay_s=rng.choice([0.0, 0.2]), rate_bytes_s=rate)
            async with self.house.worker(name, up=up, incarnation=life) as ps:
                disturbing = asyncio.create_task(self.disturb(ps, up))
                try:
                    await ps.init()
                    while left and (self.calm or rng.random() < 0.8):
                        await asyncio.sleep(rng.choice([0.0, 0.0, 0.5, 3.0]))
                        await ps.push({"w": np.ones(VALUES, np.float32)})
                        self.pushed += 1
                        left -= 1
                    if left and rng.random() < 0.5:
                        # Leave in the middle of a push, maybe while it waits.
                        ps.push({"w": np.ones(VALUES, np.float32)})
                        await asyncio.sleep(rng.choice([0.0, 0.1, 1.0]))
                except StalePush:
                    # Its lease had ended, and rounds went on without it: its next life starts from the newest.
                    pass
                except AiopsError:
                    assert not self.calm
                finally:
                    disturbing.cancel()
            await asyncio.sleep(rng.choice([0.0, 1.0, 8.0]))

    async def disturb(self, ps, up):
        """Break the line now and then, at once or after some bytes."""
        rng = self.rng
        while not self.calm:
            await asyncio.sleep(rng.expovariate(0.2))
            if rng.random() < 0.5:
                ps._link.cut()
            else:
                up.cut_after = rng.randrange(MODEL_BYTES)


@pytest.mark.parametrize("seed", range(24))
async def test_every_push_comes_in_whatever_happens_and_never_more_than_fit(seed):
    rng = random.Random(seed)
    models, n = rng.choice([0.5, 1, 1, 1.5, 2]), rng.randint(2, 7)
    spec = {"bucket_bytes": rng.choice([4096 * 10, MODEL_BYTES]), "codec": rng.choice(CODECS)}
    async with bounded(models, n=VALUES, idle_timeout_s=4.0, **spec, **LEASE) as house:
        storm = Storm(rng, house)
        async with asyncio.timeout(3600):
            async with asyncio.TaskGroup() as tasks:
                for i in range(n):
                    tasks.create_task(storm.work(f"w{i}"))
                await asyncio.sleep(60.0)
                storm.calm = True
        assert storm.pushed == n * PUSHES
        assert count(house, "pushes_merged") >= storm.pushed
        await asyncio.sleep(2 * LEASE["lease_s"])
        now = landing(house)
        assert (now["bytes"], now["waiting"]) == (0, 0)
        assert now["peak_bytes"] <= max(now["limit_bytes"], MODEL_BYTES)
        assert house.server.service.landings._half == {}
