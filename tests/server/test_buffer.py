"""A server whose pushes wait in a buffer after they are answered: numbers, memory, and nothing twice."""

import asyncio

import numpy as np
import pytest

from aiops.sim.cluster import Cluster
from aiops.wire.frame import Kind
from tests.server.kit import LEASE, MANY, ONES, cluster, count, settle, value

pytestmark = pytest.mark.virtual

FEDBUFF = {"sync": "buffered:2", "weights": "uniform*by_staleness:1", "work": "fixed:1"}


def told(answer):
    return answer.body.version, answer.body.staleness, answer.body.n_merged


async def test_a_version_is_the_mean_of_faded_pushes(hand):
    async with cluster(**FEDBUFF) as house:
        a, b = await hand(house), await hand(house)
        assert told(await a.push(1, 1 * ONES, want=True)) == (0, 0, 0)
        assert value(house) == 0.0
        assert told(await a.push(2, 2 * ONES, want=True)) == (1, 0, 2)
        assert value(house) == 1.5  # (1 + 2) / 2
        assert told(await b.push(1, 8 * ONES, want=True)) == (1, 1, 0)
        assert told(await a.push(3, 4 * ONES, base=1, want=True)) == (2, 0, 2)
        assert value(house) == 5.5  # 1.5 + (8 / (1 + 1) + 4) / 2
        assert count(house, "pushes_merged") == 4
        assert [member["merged"] for member in house.server.status()["members"]] == [3, 1]


async def test_server_lr_scales_the_mean(hand):
    async with cluster(server_lr=0.5, **FEDBUFF) as house:
        worker = await hand(house)
        for sequence in (1, 2):
            await worker.push(sequence, 6 * ONES)
        assert value(house) == 3.0


async def test_a_push_that_waits_is_merged_once_however_often_it_is_sent(hand):
    async with cluster(**FEDBUFF, **LEASE) as house:
        a, b = await hand(house, "a"), await hand(house, "b")
        for _ in range(3):
            answer = await a.push(1, ONES)
            assert (answer.kind, answer.body.version, answer.body.staleness) == (Kind.ACK, 0, 0)
        a.connection.abort()
        await asyncio.sleep(10)
        assert count(house, "left_lease") >= 1
        a = await hand(house, "a")
        assert (await a.push(1, ONES)).body.version == 0
        b = await hand(house, "b")
        assert (await b.push(1, 3 * ONES)).body.version == 1
        # After its merge the same words again: what it was answered with.
        assert (await a.push(1, ONES)).body.version == 0
        assert told(await b.push(1, 3 * ONES, want=True)) == (1, 0, 2)
        assert (value(house), house.server.version) == (2.0, 1)


async def test_a_refused_base_is_refused_again(hand):
    async with cluster(**{**FEDBUFF, "sync": "buffered:1,0"}) as house:
        a, b = await hand(house), await hand(house)
        await b.push(1, ONES)
        await a.push(1, ONES)
        for _ in range(2):
            answer = await b.push(2, ONES, base=0)
            assert (answer.kind, answer.body.args) == (Kind.REFUSE, (2, 0))
        assert (value(house), house.server.version) == (
            1.5,
            2,
        )  # 1 + 1 / (1 + 1): a newcomer may be late


async def test_a_sum_that_is_not_finite_is_told_to_who_filled_the_buffer(hand):
    async with cluster(**{**FEDBUFF, "weights": "uniform"}, server_lr=4.0) as house:
        a, b = await hand(house), await hand(house)
        huge = np.full(4, 3e38, np.float32)
        assert (await a.push(1, huge)).kind is Kind.ACK
        answer = await b.push(1, huge)
        assert answer.kind is Kind.REFUSE
        assert "the update is too large" in answer.body.message
        assert (count(house, "pushes_dropped"), count(house, "refused_NotFinite")) == (1, 1)
        assert (value(house), house.server.version) == (0.0, 0)
        # The lost one was answered, and is not asked for again.
        assert (await a.push(1, huge)).kind is Kind.ACK
        await a.push(2, ONES)
        assert (await b.push(2, ONES)).body.version == 1
        assert value(house) == 4.0


@pytest.mark.parametrize("n", [4, MANY])
async def test_memory_is_held_until_the_merge_and_no_longer(hand, n):
    async with cluster(n, **FEDBUFF) as house:
        a, b = await hand(house), await hand(house)
        pool = house.server.service.pool
        update = np.ones(n, np.float32)
        at_rest = pool.outstanding
        for version in range(3):
            await a.push(2 * version, update, base=version)
            assert pool.outstanding == at_rest + 1
            await b.push(version, update, base=version)
            await settle()
            assert pool.outstanding == at_rest
        await a.push(99, update, base=3)
        assert pool.outstanding == at_rest + 1
    # What still waits when the server ends is given back as well; conftest looks.


async def test_a_worker_cut_in_the_middle_of_a_push_leaves_nothing_in_the_buffer(hand):
    async with cluster(MANY, **FEDBUFF) as house:
        a, b = await hand(house), await hand(house)
        pool = house.server.service.pool
        at_rest = pool.outstanding
        update = np.ones(MANY, np.float32)
        sending = asyncio.ensure_future(a.send_push(1, update))
        await asyncio.sleep(0)
        a.connection.abort()
        await asyncio.gather(sending, return_exceptions=True)
        await settle()
        assert pool.outstanding == at_rest
        await b.push(1, update)
        await b.push(2, update)
        assert value(house) == 1.0


async def test_workers_of_different_speed_train_without_waiting_for_each_other():
    done = {"fast": 0, "slow": 0}

    async def work(house, name, step_s):
        async with house.worker(name) as ps:
            params = await ps.init({"w": np.zeros(4, np.float32)})
            while True:
                await asyncio.sleep(step_s)
                if house.server.version >= 20:
                    return
                params = await ps.sync({"w": 0.1 * (1.0 - params["w"])})
                done[name] += 1

    async with Cluster(sync="buffered:3", weights="uniform*by_staleness:0.5") as house:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(work(house, "fast", 1.0))
            tasks.create_task(work(house, "slow", 7.0))
        final = house.server.params()["w"]
    assert done["fast"] >= 6 * done["slow"] > 0
    assert sum(done.values()) >= 60
    assert np.all((final > 0.7) & (final < 1.05))
