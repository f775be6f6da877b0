"""Rounds that everybody fills, on a cluster in virtual time: what is measured, and how soon a change is planned for."""

import asyncio
import math
from contextlib import AsyncExitStack

import numpy as np
import pytest

from aiops.sim.cluster import Cluster
from aiops.transport.memory import Link
from aiops.worker.overlap import Step, overlapped

pytestmark = pytest.mark.virtual

# The model takes a second up and a second down, and each way has a delay.
VALUES, RATE, DELAY_S = 1000, 4000.0, 0.1
SYNC_S = 2 * (1.0 + DELAY_S)


class Fleet:
    """Workers whose step times and links may change in the middle of a run."""

    def __init__(self, *step_s, rounds=30, lie=None, **spec):
        self.step_s, self.rounds, self.lie = list(step_s), rounds, lie
        self.links = [(Link(DELAY_S, RATE), Link(DELAY_S, RATE)) for _ in step_s]
        self.spec = {"work": "fill_the_sync", "weights": "uniform", **spec}
        self.steps = [[] for _ in step_s]  # of each push
        self.plans, self.closed, self.waits = {}, [], 0
        self.changes = {}

    async def run(self):
        n = len(self.step_s)
        async with (
            Cluster(rounds=self.rounds, min_workers=n, **self.spec) as self.cluster,
            AsyncExitStack() as stack,
        ):
            clients = []
            for i, (up, down) in enumerate(self.links):
                clients.append(self.cluster.worker(f"w{i}", up=up, down=down))
                await stack.enter_async_context(clients[-1])
                await clients[-1].init({"w": np.zeros(VALUES, np.float32)})
            watch = asyncio.ensure_future(self.watch())
            await asyncio.gather(*(self.work(i, ps) for i, ps in enumerate(clients)))
            watch.cancel()
        return self

    async def watch(self):
        server, loop = self.cluster.server, asyncio.get_running_loop()
        version = 0
        while True:
            version = await server.version_after(version)
            self.closed.append(loop.time())
            plan = server.service.engine._plan
            self.plans[version] = [plan[i].min_steps for i in range(len(self.step_s))]
            for change in self.changes.pop(version, ()):
                change(self)

    async def work(self, i, ps):
        async def step(x):
            await asyncio.sleep(self.step_s[i])
            x += 1e-3
            return Step()

        push = ps.push_flat

        def spy(update, **options):
            self.steps[i].append(options["n_steps"])
            return push(update, **{**options, **(self.lie or {})} if i == 0 else options)

        ps.push_flat = spy
        await overlapped(ps, np.zeros(VALUES, np.float32), step)

    def duration(self, version):
        """How long the round that made a version took."""
        return self.closed[version - 1] - self.closed[version - 2]


def steps(window_s, *step_s):
    return [round(window_s / s) for s in step_s]


async def test_every_worker_fills_the_longest_sync_and_no_more():
    fleet = await Fleet(0.1, 0.2, 0.4, rounds=12).run()
    # Frame headers make the sync a little longer than its payload.
    assert fleet.plans[1] == [1, 1, 1], "nothing is measured before the first sync is over"
    for version in range(4, 13):
        for planned, due in zip(fleet.plans[version], steps(SYNC_S, 0.1, 0.2, 0.4), strict=True):
            assert 0 <= planned - due <= 1
        assert fleet.duration(version) == pytest.approx(SYNC_S, rel=0.15)
    for made, step_s in zip(fleet.steps, fleet.step_s, strict=True):
        assert all(abs(n - SYNC_S / step_s) <= 2.5 for n in made[4:])


async def test_a_fast_link_leaves_the_floor_and_a_cap_makes_workers_wait():
    fleet = Fleet(0.1, 0.2, rounds=10)
    fleet.links = [(Link(0.01), Link(0.01)) for _ in range(2)]
    await fleet.run()
    assert fleet.plans[9] == [8, 4]
    assert set(fleet.steps[0][4:]) <= {8, 9}
    capped = await Fleet(0.1, 0.2, rounds=10, work="fill_the_sync:4,6").run()
    assert capped.plans[9] == [6, 6]
    assert max(map(max, capped.steps)) == 6


async def test_a_worker_or_a_link_that_changes_is_planned_for_within_two_rounds():
    fleet = Fleet(0.1, 0.2, 0.4)

    def slow_down(fleet):
        fleet.step_s[1] *= 4

    def narrow(fleet):
        for link in fleet.links[2]:
            link.rate_bytes_s = RATE / 5

    fleet.changes = {10: [slow_down], 20: [narrow]}
    await fleet.run()
    before, slower = steps(SYNC_S, 0.1, 0.2, 0.4), steps(SYNC_S, 0.1, 0.8, 0.4)
    narrower = steps(2 * (5.0 + DELAY_S), 0.1, 0.8, 0.4)
    for versions, due in (
        (range(4, 11), before),
        (range(12, 21), slower),
        (range(22, 30), narrower),
    ):
        for version in versions:
            for planned, wanted in zip(fleet.plans[version], due, strict=True):
                assert abs(planned - wanted) <= max(1, 0.05 * wanted), version
    assert fleet.plans[10] != fleet.plans[12]
    # The slower worker has two phases to end that were planned at its old speed.
    for version in range(14, 20):
        assert fleet.duration(version) == pytest.approx(SYNC_S, rel=0.15)
    for version in range(23, 30):
        assert fleet.duration(version) == pytest.approx(2 * (5.0 + DELAY_S), rel=0.15)


async def test_a_link_that_recovers_is_planned_for_as_soon():
    fleet = Fleet(0.1, 0.2)

    def narrow(fleet):
        for link in fleet.links[0]:
            link.rate_bytes_s = RATE / 5

    def widen(fleet):
        for link in fleet.links[0]:
            link.rate_bytes_s = RATE

    fleet.changes = {8: [narrow], 16: [widen]}
    await fleet.run()
    assert max(fleet.plans[12]) > 3 * max(fleet.plans[8])
    for version in range(18, 30):
        assert fleet.plans[version] == pytest.approx(fleet.plans[8], abs=1)


@pytest.mark.parametrize("nonsense", [math.nan, math.inf, -1.0, 1e300, 1e9])
async def test_a_worker_that_measures_nonsense_does_not_lengthen_the_others_rounds(nonsense):
    lie = {"step_s": nonsense, "sync_s": nonsense}
    fleet = await Fleet(0.1, 0.2, 0.4, rounds=12, lie=lie).run()
    for version in range(4, 13):
        assert fleet.plans[version][1:] == pytest.approx(steps(SYNC_S, 0.2, 0.4), abs=1)
        assert fleet.plans[version][0] == 1


async def test_a_step_time_of_nothing_costs_the_worker_that_claims_it():
    fleet = await Fleet(0.1, 0.2, rounds=3, lie={"step_s": 5e-324}, work="fill_the_sync:1,9").run()
    assert fleet.plans[3] == [9, 9]
