"""Pushes that are merged while they come, told twice, in parts, or by a peer that is not ours: the server lives on."""

import asyncio
from contextlib import AsyncExitStack

import numpy as np
import pytest

from aiops.codec.topk import topk
from aiops.sim.cluster import Cluster
from aiops.wire.frame import Kind
from tests.server.drafting import (
    BUCKETS,
    PAIR,
    answer,
    drafted,
    home,
    parts,
    rests,
    slow,
    under_way,
    update,
    values,
)
from tests.server.kit import LEASE, MANY, settle

pytestmark = [pytest.mark.virtual, pytest.mark.usefixtures("small_chunks")]

WEIGHTY = {"w": np.zeros(600, np.float32)}


def coded(value, key):
    """A bucket of an update in another coding."""
    index, values = topk(1.0).encode(np.full(300, value, np.float32), None)[0]
    return {
        "data": np.concatenate([index.view(np.uint8), values.view(np.uint8)]),
        "key": key,
        "codec": 4,
    }


async def test_a_push_sent_again_while_it_comes_is_merged_once(hand):
    async with home(**LEASE) as house:
        old = await hand(house, "a", 1, up=slow())
        under_way(old.push(1, *parts(1)))
        await asyncio.sleep(1.5)
        new = await hand(house, "a", 1, up=slow())
        assert (await answer(new.push(1, *parts(1)))).body.version == 1
        assert values(house) == [1.0]
        assert rests(house)


async def test_a_held_push_sent_again_beside_one_that_passes_is_merged_once(hand):
    async with home(**PAIR) as house:
        a, b = await hand(house, "a", 1), await hand(house, "b", up=slow())
        await a.send_push(1, *parts(2))
        second = under_way(b.push(1, *parts(4)))
        await asyncio.sleep(1.5)
        again = await hand(house, "a", 1)
        first = under_way(again.push(1, *parts(2)))
        assert (await answer(second)).body.version == 1
        assert (await answer(first)).body.version == 1
        assert values(house) == [3.0]
        assert rests(house)


async def test_a_newcomer_beside_a_push_that_was_answered_long_ago_does_not_hang(hand):
    async with home() as house:
        a, b = await hand(house, "a", up=slow()), await hand(house, "b")
        await answer(a.push(1, *parts(1)))
        again = under_way(a.push(1, *parts(1)))
        await asyncio.sleep(1.5)
        newcomer = under_way(b.push(1, *parts(10), base=1))
        assert (await answer(again)).body.version == 1
        # It is held now, and waits for the one that is there.
        await settle()
        assert house.server.service.engine.waiting_for() == [a.worker]
        await answer(a.push(2, *parts(2), base=1))
        assert (await answer(newcomer)).body.version == 2
        assert values(house) == [1.0 + 6.0]


async def test_the_same_request_number_used_again_spoils_nothing(hand):
    async with home(**PAIR) as house:
        a, b = await hand(house, "a"), await hand(house, "b", up=slow())
        number = await a.send_push(1, *parts(2))
        second = under_way(b.push(1, *parts(4)))
        await asyncio.sleep(0.5)
        await a.send_push(1, *parts(99), number=number)
        assert (await answer(second)).body.version == 1
        assert values(house) == [3.0]
        assert rests(house)


@pytest.mark.parametrize("missing", range(BUCKETS))
async def test_a_push_that_lacks_a_bucket_counts_for_the_others(hand, missing):
    async with home(**PAIR) as house:
        a, b = await hand(house, "a"), await hand(house, "b", up=slow())
        some = [{"data": p, "key": k} for k, p in enumerate(parts(2)) if k != missing]
        await a.send_push(1, *some)
        assert (await answer(b.push(1, *parts(4)))).body.version == 1
        expected = np.repeat([2.0 if key == missing else 3.0 for key in range(BUCKETS)], 300)
        np.testing.assert_array_equal(house.server.params()["w"], expected)
        assert drafted(house) == BUCKETS - 1
        assert rests(house)


@pytest.mark.parametrize("key", range(BUCKETS))
@pytest.mark.parametrize("first", [True, False], ids=["before a plain push", "after a plain push"])
async def test_a_bucket_in_another_coding_is_merged_with_the_rest(hand, key, first):
    async with home(**PAIR) as house:
        a, b = await hand(house, "a", up=slow()), await hand(house, "b", up=slow())
        mixed = parts(2)
        mixed[key] = coded(2, key)
        pushes = (mixed, parts(4)) if first else (parts(4), mixed)
        one = under_way(a.push(1, *pushes[0]))
        await asyncio.sleep(2.2)
        two = under_way(b.push(1, *pushes[1]))
        assert (await answer(one)).body.version == 1
        assert (await answer(two)).body.version == 1
        assert values(house) == [3.0]
        assert rests(house)


async def test_a_push_of_no_large_bucket_beside_one_that_comes_is_merged_with_it(hand):
    async with home(**PAIR) as house:
        a, b, c = [
            await hand(house, name, up=up)
            for name, up in zip("abc", [slow(), slow(), None], strict=True)
        ]
        await asyncio.gather(a.push(1, *parts(0)), b.push(1, *parts(0)))
        one = under_way(a.push(2, *parts(3), base=1))
        await asyncio.sleep(1)
        two = under_way(b.push(2, *parts(6), base=1))
        await asyncio.sleep(1.5)
        # The round was foreseen without this one, and two of b's buckets are on their way into it.
        three = under_way(c.push(1, coded(3, 0), base=1))
        for push in (one, two, three):
            assert (await answer(push)).body.version == 2
        expected = np.repeat([4.0, 3.0, 3.0], 300)
        np.testing.assert_allclose(house.server.params()["w"], expected, rtol=1e-6)
        assert rests(house)


@pytest.mark.parametrize("cut", [False, True], ids=["connected", "cut"])
async def test_a_passing_push_is_still_good_after_its_other_tensors_were_checked(
    hand, threads, cut
):
    # The averaged tensor is large enough to be checked in a thread, and what has passed is in the draft alone.
    async with Cluster(bucket_bytes=4 * MANY) as house:
        a = await hand(house, "a", 1)
        specs = ("w", (600,), "float32"), ("mean", (MANY,), "float32", True)
        asked = await a.init(*specs)
        zeros = np.zeros(600, np.float32), np.zeros(MANY, np.float32)
        assert (await a.seed(asked.request, *zeros)).kind is Kind.ACK
        push = np.ones(600, np.float32), np.full(MANY, 5, np.float32)
        pending = under_way(a.push(1, *push))
        await settle()
        assert len(threads.waiting) == 1
        if cut:
            a.connection.abort()
            await settle()
            a = await hand(house, "a", 1)
            pending = under_way(a.push(1, *push))
            await settle()
        for _ in range(2):
            await threads.go()
        assert (await answer(pending)).body.version == 1
        assert (values(house), values(house, "mean")) == ([1.0], [5.0])
        assert rests(house, 2)


@pytest.mark.parametrize("gone", ["before", "while the other passes"])
async def test_a_held_push_of_one_that_left_does_not_count_as_present(hand, gone):
    async with home(**PAIR) as house, house.worker("b", up=slow()) as b:
        a, c = await hand(house, "a"), await hand(house, "c")
        await b.init()
        await a.send_push(1, *parts(3))
        if gone == "before":
            await a.leave()
        second = b.sync(update(6))
        await asyncio.sleep(1.5)
        if gone != "before":
            # The other is asked again for what is nowhere any more.
            await a.leave()
        await asyncio.sleep(7)
        assert house.server.version == 0
        third = under_way(c.push(1, *parts(9)))
        await answer(second)
        assert (await answer(third)).body.version == 1
        assert values(house) == [6.0]
        assert b.connections == (1 if gone == "before" else 2)
        assert rests(house)


class Fading:
    """A weight that is known when the push has come, and not before."""

    def __call__(self, pushes):
        return [1 / (1 + push.arrived) for push in pushes]


@pytest.mark.parametrize("workers", [1, 2])
async def test_weights_that_nobody_foresees_are_those_that_count(workers):
    async with home(min_workers=workers) as house, AsyncExitStack() as stack:
        house.server.service.engine.weights = Fading()
        all_ = [house.worker(f"w{i}", up=slow()) for i in range(workers)]
        for each in all_:
            await (await stack.enter_async_context(each)).init()
        for version in (1, 2):
            for ticket in [each.sync(update(1)) for each in all_]:
                await answer(ticket)
            assert house.server.version == version
        assert len(values(house)) == 1
        assert 0 < values(house)[0] < 2 * workers
        assert rests(house)


@pytest.mark.parametrize("sync", ["asynchronous", "ssp:2"])
async def test_where_nobody_waits_for_others_nothing_is_drafted(hand, sync):
    async with home(sync=sync) as house:
        a, b = await hand(house, "a", up=slow()), await hand(house, "b", up=slow())
        await answer(asyncio.gather(a.push(1, *parts(1)), b.push(1, *parts(2))))
        assert (values(house), drafted(house)) == ([3.0], 0)
        assert rests(house)
