"""Devices with a label each, and streams of their own, train one model through a real server as ScaDLES has it."""

import asyncio

import numpy as np
import pytest

from aiops import connect, serve
from aiops.policy.batch import by_rate
from aiops.policy.learning_rate import LearningRate
from aiops.policy.stream import Device
from aiops.stream.buffer import Truncation
from aiops.stream.decode import Samples
from aiops.stream.intake import Intake
from aiops.stream.replay import replay_samples
from aiops.stream.tape import Labelled
from tests.stream.streams import RedisStream

STEPS, WIDTH = 12, 5
# Samples in a second, on streams that are as unequal as the batches that come of them.
RATES = (600.0, 150.0)
SCALING = LearningRate(30, cap=1.3, warmup=4)


class Feed:
    """A stream of one label that brings samples for as long as a test lasts."""

    def __init__(self, label, rate):
        rows = np.random.default_rng(label).normal(2.0 * label, 1.0, (512, WIDTH))
        self.tape = Labelled(rows.astype(np.float32), np.full(512, label))
        self.rate = rate
        self.publishing = None

    async def open(self, port):
        if port is None:
            return replay_samples(self.tape, rate=self.rate, seed=0)
        self.stream = RedisStream(port, f"trained-{self.rate:.0f}")
        await self.stream.begin()
        self.publishing = asyncio.create_task(self.publish())
        return await self.stream.open()

    async def publish(self):
        source = replay_samples(self.tape, rate=self.rate, seed=0)
        batch = []
        async for record in source:
            batch.append(record.value)
            if len(batch) == 25:
                await self.stream.publish(batch)
                batch.clear()

    async def close(self):
        if self.publishing is not None:
            self.publishing.cancel()
            await asyncio.gather(self.publishing, return_exceptions=True)
            await self.stream.end()


class Trainer:
    def __init__(self, label, feed):
        self.label, self.feed = label, feed
        self.steps, self.given, self.params = [], 0, None

    async def run(self, url, port):
        try:
            await self.train(url, port)
        finally:
            await self.feed.close()

    async def train(self, url, port):
        source = await self.feed.open(port)
        intake = Intake(Samples(source, self.decode), Truncation(1 << 16, window_s=0.1))
        async with connect(url, name=f"of {self.label}") as ps, asyncio.TaskGroup() as group:
            group.create_task(intake.run())
            params = await ps.init({"w": np.zeros(WIDTH, np.float32)})
            size, rule = 0, by_rate(low=8, high=48)
            for _ in range(STEPS):
                # A tenth of a second's worth of a rate that is known: how it is measured, others test.
                (size,) = rule([Device(size, self.feed.rate / 10)])
                batch = await intake.take(size)
                y = np.full(len(batch), self.label)
                x, y = await ps.share(np.stack([sample.value for sample in batch]), y)
                self.given += np.count_nonzero(y != self.label)
                # Not "@": on a few columns BLAS may set the flag of an invalid value where there is none.
                chance = 1 / (1 + np.exp(-(x * params["w"]).sum(1)))
                update = -0.1 * (x * (chance - y)[:, None]).mean(0)
                self.steps.append((len(y), update))
                params = await ps.sync({"w": update.astype(np.float32)}, n_samples=len(y))
                await intake.ack(batch[-1].record.cursor)
            await source.aclose()
        self.params = params["w"]

    @staticmethod
    def decode(value):
        return np.frombuffer(value, np.float32)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("kind", ["replay", "redis"])
async def test_pushes_count_by_their_samples_and_the_learning_rate_follows_them_all(kind, request):
    port = request.getfixturevalue("redis_port") if kind == "redis" else None
    trainers = [Trainer(label, Feed(label, rate)) for label, rate in enumerate(RATES)]
    async with (
        serve(
            port=0,
            min_workers=2,
            sync="bulk:0",
            work="fixed:1",
            injection="random:1,0.5",
            weights="by_samples*linear_scaling:30,1.3,4",
        ) as server,
        asyncio.TaskGroup() as group,
    ):
        for trainer in trainers:
            group.create_task(trainer.run(server.url, port))
    want = np.zeros(WIDTH)
    for step, pushes in enumerate(zip(*[trainer.steps for trainer in trainers], strict=True)):
        total = sum(n for n, _ in pushes)
        factor = SCALING.factor(step, total)
        want += factor * sum(n / total * update for n, update in pushes)
    for trainer in trainers:
        np.testing.assert_allclose(trainer.params, want, rtol=1e-4)
        # Each has seen the other's label, which its own stream never brings.
        assert trainer.given >= 2 * (STEPS - 1)
    fast, slow = ([n for n, _ in trainer.steps] for trainer in trainers)
    # b' = b / 2, and a half of the other's: of 48 and 15.
    assert (fast[1:], slow[1:]) == ([24 + 3] * (STEPS - 1), [7 + 12] * (STEPS - 1))
