"""Large pushes are checked and merged by the shard's thread, and anything may happen meanwhile."""

import asyncio

import numpy as np
import pytest

from aiops.errors import StalePush
from tests.server.kit import LEASE, MANY, cluster, count, settle, value

pytestmark = pytest.mark.virtual


async def test_a_large_push_is_checked_and_merged_as_a_small_one_is(hand):
    async with cluster(MANY, shards=3) as house:
        worker = await hand(house)
        table = house.server.service.store.table
        parts = [np.ones(bucket.size, np.float32) for bucket in table.buckets]
        assert (await worker.push(1, *parts)).body.version == 1
        assert value(house) == 1.0
        parts[1][5] = np.nan
        assert "tensor 'w'" in (await worker.push(2, *parts, base=1)).body.message
        assert (value(house), house.server.version) == (1.0, 1)


async def test_the_same_push_on_a_new_connection_while_it_is_checked_is_one_push(hand, threads):
    async with cluster(MANY) as house:
        big = np.ones(MANY, np.float32)
        old = await hand(house, "a")
        await old.send_push(1, big)
        await asyncio.sleep(1)
        new = await hand(house, "a")
        await new.send_push(1, big)
        await asyncio.sleep(1)
        await threads.go()  # the check
        await threads.go()  # the merge
        assert (await new.events.get()).body.version == 1
        assert (value(house), count(house, "pushes_repeated")) == (1.0, 1)


async def test_an_eviction_during_the_check_is_noticed_and_the_push_may_come_again(hand, threads):
    async with cluster(MANY, **LEASE) as house:
        big = np.ones(MANY, np.float32)
        old = await hand(house, "a")
        await old.send_push(1, big)
        await settle()
        old.connection.abort()
        await asyncio.sleep(10)
        assert count(house, "left_lease") == 1
        await threads.go()
        assert (count(house, "refused_NotMember"), house.server.version) == (1, 0)
        new = await hand(house, "a")
        await new.send_push(1, big)
        await threads.go()
        await threads.go()
        assert (await new.events.get()).body.version == 1
        assert value(house) == 1.0


async def test_a_worker_back_before_its_check_is_done_is_merged(hand, threads):
    async with cluster(MANY, **LEASE) as house:
        big = np.ones(MANY, np.float32)
        old = await hand(house, "a")
        await old.send_push(1, big)
        await settle()
        old.connection.abort()
        await asyncio.sleep(10)
        new = await hand(house, "a")
        await new.send_push(1, big)
        await threads.go()
        await threads.go()
        assert (await new.events.get()).body.version == 1
        assert value(house) == 1.0


async def test_another_life_during_the_check_takes_no_push_of_the_earlier_one(hand, threads):
    async with cluster(MANY) as house:
        old = await hand(house, "a", 1)
        await old.send_push(1, np.ones(MANY, np.float32))
        await asyncio.sleep(0.1)
        new = await hand(house, "a", 2)
        await threads.go()
        assert (count(house, "refused_NotMember"), house.server.version) == (1, 0)
        await new.send_push(1, np.full(MANY, 3, np.float32))
        await threads.go()
        await threads.go()
        assert (await new.events.get()).body.version == 1
        assert value(house) == 3.0


async def test_a_push_and_a_leave_during_a_merge_find_their_round(hand, threads):
    async with cluster(MANY) as house:
        first, second = [await hand(house) for _ in range(2)]
        await first.send_push(1, np.ones(MANY, np.float32), want=True)
        await threads.go()
        # An empty push is neither checked nor merged in a thread: all keys keep their memory.
        await second.send_push(1)
        await first.leave()
        await threads.go()
        assert (await second.events.get()).body.version == 2
        assert value(house) == 1.0


async def test_a_server_that_stops_during_a_check_and_a_merge_leaves_nothing_behind(hand, threads):
    house = cluster(MANY)
    await house.start()
    first, second = [await hand(house) for _ in range(2)]
    await first.send_push(1, np.ones(MANY, np.float32))
    await threads.go()
    await second.send_push(1, np.ones(MANY, np.float32))
    await asyncio.sleep(0.1)
    stopping = asyncio.ensure_future(house.server.stop())
    await asyncio.sleep(0.1)
    await threads.go(2)
    await stopping


async def test_an_old_base_is_stale_whatever_the_size(hand):
    async with cluster(MANY, sync="bulk:0", work="fixed:1") as house:
        worker = await hand(house)
        big = np.ones(MANY, np.float32)
        for base in (0, 1):
            await worker.push(base + 1, big, base=base)
        answer = await worker.push(3, big, base=0)
        assert (answer.body.code, answer.body.args) == (StalePush.code, (2, 0))
