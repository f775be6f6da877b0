"""Only so many bytes of pushes are on their way in at once: who waits for whom, and what takes how much room."""

import asyncio

import numpy as np
import pytest

from aiops.sim.cluster import Cluster
from aiops.transport.memory import Link
from aiops.wire.frame import Kind
from tests.server.kit import LEASE, MANY, count, settle
from tests.server.landing import (
    LINE,
    MODEL_BYTES,
    VALUES,
    announce,
    answered,
    bounded,
    heard,
    landing,
    sparse,
    starting,
)

pytestmark = pytest.mark.virtual


async def trained(models, n, *, rounds=3, **spec):
    """Train with ``n`` workers at once; return the parameters and the server's last state."""
    async with Cluster(
        params={"w": np.zeros(VALUES, np.float32)},
        min_workers=n,
        fold="arrival",
        weights="uniform",
        landing_bytes=None if models is None else models * MODEL_BYTES,
        **spec,
    ) as house:

        async def train(i):
            update = {"w": np.arange(VALUES, dtype=np.float32) % 7 + i}
            async with house.worker(f"w{i}", up=Link(rate_bytes_s=MODEL_BYTES)) as ps:
                await ps.init()
                for _ in range(rounds):
                    await ps.sync(update)
            assert ps.connections == 1

        await asyncio.gather(*[train(i) for i in range(n)])
        assert house.server.version == rounds
        return house.server.params()["w"], house.server.status()


@pytest.mark.parametrize("models", [1, 3, 8])
async def test_rounds_close_with_what_they_close_with_without_a_limit(models):
    # Whole numbers and a mean of eight: the order of the sum does not matter.
    free, _ = await trained(None, 8)
    params, status = await trained(models, 8)
    np.testing.assert_array_equal(params, free)
    assert status["landing"]["peak_bytes"] == models * MODEL_BYTES
    assert status["landing"] | {"bytes": 0, "waiting": 0} == status["landing"]
    assert status["counters"].get("pushes_waited", 0) == 3 * (8 - models)
    # The parameters twice, two sums, and what is at them.
    assert status["pool"]["peak_bytes"] <= (models + 5) * MODEL_BYTES


@pytest.mark.parametrize("n", [VALUES, 6 * VALUES], ids=["sent", "half sent"])
async def test_workers_that_wait_longer_than_a_lease_and_an_idle_timeout_are_kept(n):
    # With the larger model what is sent of a push that waits is more than the network takes.
    async with bounded(1, n=n, min_workers=3, idle_timeout_s=4.0, **LEASE) as house:
        slow = Link(rate_bytes_s=4 * n / 60)
        async with (
            house.worker("a", up=slow) as a,
            house.worker("b") as b,
            house.worker("c", up=Link(delay_s=1.0, **LINE), down=Link(delay_s=1.0)) as c,
        ):
            for ps in (a, b, c):
                await ps.init()
            update = {"w": np.full(n, 3.0, np.float32)}
            first = a.sync(update)
            await asyncio.sleep(5.0)
            await asyncio.gather(first, b.sync(update), c.sync(update))
            assert [ps.connections for ps in (a, b, c)] == [1, 1, 1]
        assert (house.server.params()["w"] == 3.0).all()
        assert count(house, "left_lease") == 0
        assert landing(house)["peak_bytes"] == 4 * n


async def test_a_small_push_that_waits_is_kept_though_all_of_it_is_sent():
    # Its worker hears no answer to its pings, which nobody reads.
    async with bounded(1, min_workers=2, idle_timeout_s=4.0, **LEASE) as house:
        slow = Link(rate_bytes_s=MODEL_BYTES / 60)
        async with house.worker("a", up=slow) as a, house.worker("b") as b:
            await a.init()
            await b.init()
            first = a.push({"w": np.ones(VALUES, np.float32)})
            await asyncio.sleep(5.0)
            # It does not say how large it is, so that it could have all that a model can.
            later = b.push({"w": np.ones(VALUES, np.float32)})
            await asyncio.gather(first, later)
            assert (a.connections, b.connections) == (1, 1)


async def test_who_waits_comes_in_the_order_of_asking_and_a_large_one_is_not_overtaken(hand):
    async with bounded(1.5, min_workers=3) as house:
        a, b, c = [await hand(house, name, up=Link(**LINE)) for name in "abc"]
        starting(a, house)
        await asyncio.sleep(0.3)
        starting(b, house)
        await asyncio.sleep(0.1)
        # It would fit.
        starting(c, house, made=sparse)
        await asyncio.sleep(0.3)
        assert landing(house) == {
            "bytes": MODEL_BYTES,
            "peak_bytes": MODEL_BYTES,
            "limit_bytes": 1.5 * MODEL_BYTES,
            "waiting": 2,
        }
        assert count(house, "pushes") == 0
        await asyncio.sleep(0.4)
        assert count(house, "pushes") == 2
        assert landing(house) | {"bytes": MODEL_BYTES, "waiting": 0} == landing(house)
        assert await answered(a, b, c) == [1, 1, 1]


async def test_a_push_that_is_larger_than_the_limit_lands_alone(hand):
    async with bounded(0.25, min_workers=3) as house:
        workers = [await hand(house, name, up=Link(**LINE)) for name in "abc"]
        for worker in workers:
            starting(worker, house)
        peak = 0
        while house.server.version == 0:
            await asyncio.sleep(0.05)
            peak = max(peak, landing(house)["bytes"])
        assert peak == landing(house)["peak_bytes"] == MODEL_BYTES
        assert await answered(*workers) == [1, 1, 1]


async def test_a_push_that_does_not_say_its_size_has_room_for_all_that_there_can_be(hand):
    async with bounded(3) as house:
        a = await hand(house, "a", up=Link(**LINE))
        starting(a, house, payload_bytes=0)
        await asyncio.sleep(0.5)
        assert landing(house)["bytes"] == 2 * MODEL_BYTES + 32 * 4
        assert await answered(a) == [1]
        assert landing(house)["bytes"] == 0


async def test_a_push_that_says_more_than_there_can_be_takes_no_more_room_than_that(hand):
    async with bounded(3) as house:
        a = await hand(house, "a", up=Link(**LINE))
        starting(a, house, payload_bytes=2**60)
        await asyncio.sleep(0.5)
        assert landing(house)["bytes"] == 2 * MODEL_BYTES + 32 * 4
        assert await answered(a) == [1]


async def test_a_push_with_more_bytes_than_it_said_ends_its_connection(hand):
    async with bounded(3) as house:
        a = await hand(house, "a")
        starting(a, house, payload_bytes=MODEL_BYTES - 4).add_done_callback(heard)
        await a.lost
        await settle()
        assert landing(house)["bytes"] == 0
        assert house.server.version == 0


async def test_a_push_inside_another_one_ends_their_connection(hand):
    # It could wait for room that only the end of the first one makes.
    async with bounded(3) as house:
        a = await hand(house, "a")
        table = house.server.service.store.table
        half = {"key": 0, "data": np.ones(table.buckets[0].size, np.float32)}
        outer = await announce(a, 0, len(table.buckets), payload_bytes=MODEL_BYTES)
        await a.connection.send(list(a.tensors(outer, [half])))
        await settle()
        assert landing(house)["bytes"] == MODEL_BYTES
        starting(a, house, 1).add_done_callback(heard)
        await a.lost
        await settle()
        assert landing(house)["bytes"] == 0


async def test_one_push_after_the_other_of_a_connection_waits_like_any(hand, threads):
    async with bounded(1, n=MANY, min_workers=1) as house:
        a = await hand(house, "a")
        starting(a, house, 0)
        await threads.go()
        assert landing(house)["bytes"] == 4 * MANY
        # The first is here, and not added up; the second waits for that.
        starting(a, house, 1)
        await settle()
        assert landing(house)["waiting"] == 1
        # Two shards add it up, and two publish it; by then the second has come, one too many of a worker.
        await threads.go(2)
        await settle()
        assert landing(house) | {"bytes": 0, "waiting": 0} == landing(house)
        await threads.go(2)
        assert {(await a.events.get()).kind for _ in range(2)} == {Kind.ACK, Kind.REFUSE}
        assert landing(house)["peak_bytes"] == 4 * MANY


async def test_a_push_that_is_refused_makes_room(hand):
    async with bounded(1, **LEASE) as house:
        a, b = [await hand(house, name, up=Link(**LINE)) for name in "ab"]
        starting(a, house, value=np.nan)
        starting(b, house)
        assert (await a.events.get()).kind is Kind.REFUSE
        assert await answered(b) == [1]
        assert landing(house) | {"bytes": 0, "waiting": 0} == landing(house)
        assert count(house, "pushes_waited") == 1


async def test_a_push_for_the_next_round_takes_no_room_from_those_of_the_open_one(hand):
    async with bounded(1, min_workers=2, **LEASE) as house:
        a = await hand(house, "a", up=Link(**LINE))
        starting(a, house)
        await asyncio.sleep(1.5)
        # Another life of it pushes while what the first has pushed is in the open round.
        again = await hand(house, "a", incarnation=2, up=Link(**LINE))
        starting(again, house)
        await asyncio.sleep(1.5)
        assert landing(house)["bytes"] == 0
        b = await hand(house, "b", up=Link(**LINE))
        starting(b, house)
        assert await asyncio.wait_for(answered(b), 5.0) == [1]


async def test_without_a_limit_nothing_is_said_of_it_and_nobody_waits(hand):
    async with Cluster(params={"w": np.zeros(4, np.float32)}, fold="arrival") as house:
        assert "landing" not in house.server.status()
        assert "pushes_waited" not in house.server.status()["counters"]
