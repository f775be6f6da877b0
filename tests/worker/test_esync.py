"""ESync on a cluster in virtual time: who takes how many steps, who waits, and what the server makes of it."""

import asyncio
import itertools
import math
from contextlib import AsyncExitStack
from dataclasses import dataclass, field

import numpy as np
import pytest

from aiops.sim.cluster import Cluster
from aiops.transport.memory import Link
from aiops.worker.meter import Meter
from aiops.worker.overlap import Step
from aiops.worker.rounds import blocking

pytestmark = pytest.mark.virtual

FAST_S, SLOW_S = 0.02, 0.08
# 80 kB at 200 kB/s: 0.4 s either way, twenty steps of a fast worker.
N, RATE = 20_000, 200_000.0


@dataclass
class One:
    """A worker, and what became of it."""

    step_s: float
    up: Link = field(default_factory=Link)
    down: Link = field(default_factory=Link)
    n_samples: int = 4
    comes_at: float = 0.0
    goes_at: float = math.inf
    # From when on it takes so many times as long.
    slows_at: float = math.inf
    times: float = 1.0
    # (version, steps) of every push, and the update that was in it.
    pushes: list = field(default_factory=list)
    updates: list = field(default_factory=list)

    @property
    def steps(self):
        return [n for _, n in self.pushes]

    def steps_of(self, version):
        """Steps of the push from this version."""
        return dict(self.pushes)[version]


def same(step_s, *, delay_s=0.025, rate=None, **rest):
    return One(step_s, Link(delay_s, rate), Link(delay_s, rate), **rest)


def four(**link):
    return [same(step_s, **link) for step_s in (FAST_S, FAST_S, FAST_S, SLOW_S)]


async def train(workers, *, rounds=8, work="esync", n=10, **spec):
    """Train to the end; return the versions of the model, and when each was closed."""
    settings = {"sync": "bulk:0", "weights": "by_samples", "work": work, **spec}
    first = sum(one.comes_at == 0.0 for one in workers)
    models, closed = [np.zeros(n, np.float32)], [0.0]
    async with (
        Cluster(params={"w": models[0]}, rounds=rounds, min_workers=first, **settings) as house,
        AsyncExitStack() as stack,
    ):
        clients = [house.worker(f"w{i}", up=one.up, down=one.down) for i, one in enumerate(workers)]
        for one, ps in zip(workers, clients, strict=True):
            if not one.comes_at:
                await stack.enter_async_context(ps)
        watching = asyncio.ensure_future(_watch(house.server, models, closed))
        await asyncio.gather(*map(_work, workers, clients, range(len(workers))))
        watching.cancel()
    return models, closed


async def _watch(server, models, closed):
    while True:
        await server.version_after(len(models) - 1)
        models.append(server.params()["w"])
        closed.append(asyncio.get_running_loop().time())


async def _work(one, ps, i):
    loop, rng = asyncio.get_running_loop(), np.random.default_rng(i)
    async with AsyncExitStack() as stack:
        if one.comes_at:
            await asyncio.sleep(one.comes_at)
            await stack.enter_async_context(ps)
        x = (await ps.init())["w"].copy()
        push = ps.push_flat

        def spy(update, **options):
            one.pushes.append((options["base"], options["n_steps"]))
            one.updates.append((options["n_samples"], update.copy()))
            return push(update, **options)

        async def step(x):
            factor = one.times if loop.time() >= one.slows_at else 1.0
            await asyncio.sleep(one.step_s * factor)
            x += rng.standard_normal(x.size).astype(np.float32)
            return Step(n_samples=one.n_samples)

        ps.push_flat = spy
        one.meter = Meter(loop.time())
        await blocking(ps, x, step, meter=one.meter, stop=lambda: loop.time() >= one.goes_at)
        if one.goes_at < math.inf:
            await ps.leave()


async def test_fast_workers_take_four_steps_in_the_time_of_the_slow_ones_one():
    # Exactly: the fourth step of a fast worker ends with the only one of the slow worker.
    workers = four()
    _, closed = await train(workers)
    for one in workers[:3]:
        assert one.steps[1:] == [4] * 7
    assert workers[3].steps[1:] == [1] * 7
    # A round is the slow worker's step, a push and a model, and nobody waits for anything else.
    for start, stop in itertools.pairwise(closed[2:]):
        assert stop - start == pytest.approx(SLOW_S + 0.05)
    for one in workers:
        assert one.meter.last_sync_s == pytest.approx(0.05)


async def test_tau_steps_of_the_slow_worker():
    workers = four()
    await train(workers, work="esync:4")
    assert workers[0].steps[1:] == [16] * 7
    assert workers[3].steps[1:] == [4] * 7


async def test_the_prototypes_reserve_costs_a_step():
    workers = four()
    await train(workers, work="esync_prototype:1,0.005")
    assert workers[0].steps[1:] == [3] * 7
    assert workers[3].steps[1:] == [1] * 7


@pytest.mark.parametrize("rtt_s", [0.0, 0.03, 0.0799, 0.08, 0.085, 0.1, 0.16, 0.5, 2.0])
async def test_a_long_round_trip_changes_nothing_in_the_steady_state(rtt_s):
    workers = four(delay_s=rtt_s / 2)
    await train(workers)
    for one in workers[:3]:
        assert one.steps[2:] == [4] * 6
    assert workers[3].steps[2:] == [1] * 6


async def test_a_slow_link_takes_nothing_from_the_waiting_time_but_the_rest_of_a_step():
    workers = [same(s, rate=RATE) for s in (0.019, 0.03, 0.023, SLOW_S)]
    _, closed = await train(workers, n=N)
    # 0.08 / 0.019 = 4.2, 0.08 / 0.03 = 2.7, 0.08 / 0.023 = 3.5.
    assert [one.steps[2:] for one in workers] == [[n] * 6 for n in (4, 2, 3, 1)]
    sync_s = [one.meter.last_sync_s for one in workers]
    for one, took_s in zip(workers, sync_s, strict=True):
        # What a worker waits for the others is less than one more step of its own.
        assert -0.001 <= took_s - sync_s[3] < one.step_s
    for start, stop in itertools.pairwise(closed[2:]):
        assert stop - start == pytest.approx(SLOW_S + 2 * (0.4 + 0.025), abs=0.005)


async def test_the_push_times_of_unequal_links_are_made_up_for():
    # The first one is on a line that takes 0.8 s for a push; the others' take 0.4 s. Downlinks are equal.
    links = [RATE / 2, RATE, RATE]
    workers = [
        One(s, Link(0.025, rate), Link(0.025, RATE))
        for s, rate in zip((FAST_S, FAST_S, SLOW_S), links, strict=True)
    ]
    await train(workers, n=N)
    # d: 0.82, 0.42, 0.48. (0.02 + 0.8 - 0.4) / 0.02 = 21 and (0.02 + 0.8 - 0.4) / 0.08 = 5.25, but for a frame.
    assert workers[0].steps[2:] == [1] * 6
    assert set(workers[1].steps[2:]) <= {20, 21}
    assert workers[2].steps[2:] == [5] * 6


async def test_a_model_that_arrives_late_is_made_up_for():
    # The slow worker gets the model 0.4 s after the fast one, and the fast one goes on meanwhile.
    workers = [
        One(FAST_S, Link(0.025), Link(0.025)),
        One(SLOW_S, Link(0.025), Link(0.425)),
    ]
    await train(workers)
    # (0.4 + 0.08) / 0.02.
    assert set(workers[0].steps[2:]) <= {23, 24}
    assert workers[1].steps[2:] == [1] * 6


async def test_a_worker_that_leaves_is_not_waited_for():
    workers = four()
    workers[3].goes_at = 0.9
    _, closed = await train(workers, rounds=16)
    gone = max(version for version, _ in workers[3].pushes)
    for one in workers[:3]:
        assert one.steps_of(gone) == 4
        # In the round that it left they have begun to fill its time; then they are alone, and equally fast.
        assert [n for version, n in one.pushes if version > gone + 1] == [1] * (14 - gone)
    assert closed[-1] - closed[-2] == pytest.approx(FAST_S + 0.05)


async def test_a_slow_worker_that_slows_down_four_times_gives_the_others_four_times_the_steps():
    workers = four()
    workers[3].slows_at, workers[3].times = 1.0, 4.0
    await train(workers, rounds=16)
    for one in workers[:3]:
        assert one.steps[1:6] == [4] * 5
        # 0.32 / 0.02.
        assert one.steps[-3:] == [16] * 3
        # One round, in which it came as a surprise, is between the two.
        assert set(one.steps[1:]) == {4, 16}


async def test_a_fast_worker_that_slows_down_four_times_takes_a_fourth_of_the_steps():
    workers = four()
    workers[0].slows_at, workers[0].times = 1.0, 4.0
    _, closed = await train(workers, rounds=20)
    assert workers[0].steps[1:5] == [4] * 4
    assert workers[0].steps[-4:] == [1] * 4
    for one in workers[1:3]:
        assert one.steps[-4:] == [4] * 4
    assert closed[-1] - closed[-2] == pytest.approx(SLOW_S + 0.05)
    # The first slow steps are a surprise to all: no round of it took longer than two of them.
    longest = max(stop - start for start, stop in itertools.pairwise(closed[2:]))
    assert longest <= 2 * SLOW_S + 0.05 + FAST_S


async def test_a_worker_that_joins_late_gets_in_and_is_filled_up_to():
    workers = [*four(), same(0.2, comes_at=1.0)]
    await train(workers, rounds=20)
    late = workers[4]
    assert late.steps[-4:] == [1] * 4
    for one in workers[:3]:
        assert one.steps[1:6] == [4] * 5
        assert one.steps[-4:] == [10] * 4
    # 0.2 / 0.08 = 2.5.
    assert workers[3].steps[-4:] == [2] * 4


async def test_a_fast_worker_that_joins_late_fills_its_first_rounds_too():
    workers = [*four(), same(0.01, comes_at=1.0)]
    await train(workers, rounds=16)
    assert workers[4].steps[-5:] == [8] * 5
    assert workers[3].steps[-5:] == [1] * 5


async def test_one_worker_alone_takes_one_step_a_round():
    (one,) = workers = [same(FAST_S, delay_s=0.1)]
    await train(workers)
    assert one.steps[1:] == [1] * 7


@pytest.mark.parametrize("step_s", [0.0, 1e-9])
async def test_steps_that_take_no_time_end_all_the_same(step_s):
    workers = [same(step_s, delay_s=0.0), same(step_s, delay_s=0.0)]
    await train(workers, rounds=4)
    assert workers[0].pushes[-1][0] == 3


async def test_steps_that_never_let_the_loop_run_end_all_the_same():
    async with (
        Cluster(params={"w": np.zeros(3, np.float32)}, rounds=4, work="esync") as house,
        house.worker("w") as ps,
    ):
        await ps.init()

        async def step(x):
            x += 1

        assert (await blocking(ps, np.zeros(3, np.float32), step) > 0).all()
        assert house.server.version == 4


async def test_a_cut_connection_is_mended_and_the_rounds_go_on():
    workers = four()
    workers[1].up.cut_after = 3000
    workers[3].up.cut_after = 4000
    await train(workers, rounds=20)
    for one in workers[:3]:
        assert one.steps[-4:] == [4] * 4
    assert workers[3].steps[-4:] == [1] * 4


async def test_the_server_does_what_fedavg_does():
    workers = [
        same(FAST_S, n_samples=3),
        same(0.03, n_samples=5),
        same(SLOW_S, n_samples=2),
    ]
    models, _ = await train(workers, rounds=3)
    assert len(models) == 4
    want = np.zeros(10)
    for r in range(3):
        pushes = [one.updates[r] for one in workers]
        total = sum(n for n, _ in pushes)
        want = want + sum(n / total * update.astype(float) for n, update in pushes)
        np.testing.assert_allclose(models[r + 1], want, rtol=1e-5, atol=1e-5)
    for one in workers:
        assert [n for n, _ in one.updates] == [n * one.n_samples for n in one.steps]
