"""Pushes that are merged while they come: whatever happens on the way, each counts once, whole, and nobody hangs."""

import asyncio
import contextlib

import numpy as np
import pytest

from aiops.errors import AiopsError, NotFinite
from aiops.policy.sync import bulk
from aiops.transport.memory import Link
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
from tests.server.kit import LEASE, settle

pytestmark = [pytest.mark.virtual, pytest.mark.usefixtures("small_chunks")]


async def test_a_lone_workers_push_is_not_stored(hand):
    async with home() as house:
        a = await hand(house, "a", up=slow())
        push = under_way(a.push(1, *parts(1)))
        await asyncio.sleep(2.5)
        # Two whole buckets and half of one: the old values, the new ones, and a chunk of each.
        pool = house.server.service.pool
        assert pool.outstanding == BUCKETS + BUCKETS + 3
        assert (await answer(push)).body.version == 1
        assert (values(house), drafted(house)) == ([1.0], BUCKETS)
        assert rests(house)


async def test_a_newcomer_beside_a_push_that_passes_waits_for_the_next_round(hand):
    async with home() as house:
        a, b = await hand(house, "a", up=slow()), await hand(house, "b")
        first = under_way(a.push(1, *parts(1)))
        await asyncio.sleep(1.5)
        second = under_way(b.push(1, *parts(10)))
        assert (await answer(first)).body.version == 1
        assert values(house) == [1.0]
        assert not second.done()
        await answer(a.push(2, *parts(2), base=1))
        assert (await answer(second)).body.version == 2
        assert values(house) == [1.0 + 6.0]
        assert rests(house)


async def test_a_newcomer_that_was_held_back_goes_on_when_the_other_is_cut(hand):
    async with home(**LEASE) as house:
        a, b = await hand(house, "a", up=slow()), await hand(house, "b")
        under_way(a.push(1, *parts(1)))
        await asyncio.sleep(1.5)
        second = under_way(b.push(1, *parts(10)))
        await settle()
        a.connection.abort()
        assert (await answer(second)).body.version == 1
        assert values(house) == [10.0]
        assert rests(house)


async def test_a_newcomer_that_was_held_back_and_leaves_is_declined(hand):
    async with home() as house:
        a, b = await hand(house, "a", up=slow()), await hand(house, "b")
        first = under_way(a.push(1, *parts(1)))
        await asyncio.sleep(1.5)
        await b.send_push(1, *parts(10))
        b.send_leave()
        assert (await answer(first)).body.version == 1
        await answer(b.lost)
        assert values(house) == [1.0]
        assert (await answer(a.push(2, *parts(1), base=1))).body.version == 2
        assert rests(house)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("at", [0, 299, 300, 470, 899], ids=lambda at: f"value {at}")
@pytest.mark.parametrize("beside", [False, True], ids=["alone", "last of two"])
async def test_a_passing_push_that_is_not_finite_changes_nothing(hand, beside, at, bad):
    async with home(min_workers=2 if beside else 1, weights="uniform") as house:
        a = await hand(house, "a")
        other = None
        if beside:
            b = await hand(house, "b")
            other = under_way(b.push(1, *parts(3)))
            await settle()
        push = parts(1)
        push[at // 300][at % 300] = bad
        reply = await answer(a.push(1, *push))
        assert reply.body.code == NotFinite.code
        assert f"tensor 'w' (value {at} of 900)" in reply.body.message
        assert (house.server.version, values(house)) == (0, [0.0])
        assert rests(house) or beside
        assert (await answer(a.push(2, *parts(1)))).body.version == 1
        if beside:
            assert (await answer(other)).body.version == 1
        assert values(house) == [2.0 if beside else 1.0]
        assert rests(house)


@pytest.mark.parametrize("at", [0, 500, 899])
async def test_a_result_that_would_overflow_changes_nothing(hand, at):
    async with home() as house:
        a = await hand(house, "a")
        large = parts(0)
        large[at // 300][at % 300] = 3e38
        await a.push(1, *large)
        before = house.server.params()["w"]
        reply = await answer(a.push(2, *large, base=1))
        assert reply.body.code == NotFinite.code
        assert f"merging would make tensor 'w' (value {at} of 900) not finite" in reply.body.message
        np.testing.assert_array_equal(house.server.params()["w"], before)
        assert rests(house)
        assert (await answer(a.push(3, *parts(1), base=1))).body.version == 2


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("start", range(0, 3800, 380))
async def test_a_passing_push_that_is_cut_anywhere_is_sent_again_and_merged_once(workers, start):
    for offset in range(start, start + 380, 76):
        up = Link(0.01)
        async with (
            home(min_workers=workers, weights="uniform") as house,
            contextlib.AsyncExitStack() as stack,
        ):
            a = await stack.enter_async_context(house.worker("a", up=up))
            others = [
                await stack.enter_async_context(house.worker(f"b{i}")) for i in range(workers - 1)
            ]
            for each in (a, *others):
                await each.init()
            for version in (1, 2):
                tickets = [other.sync(update(1)) for other in others]
                await asyncio.sleep(0.1)
                if version == 1:
                    up.cut_after = offset
                for ticket in (a.sync(update(1)), *tickets):
                    np.testing.assert_array_equal((await ticket)["w"], float(version))
            assert values(house) == [2.0]
            assert drafted(house) >= BUCKETS
            assert rests(house)


@pytest.mark.parametrize("how", ["leaves", "is cut and stays away", "begins another life"])
@pytest.mark.parametrize("after_s", [0.5, 1.5, 1.9])
async def test_who_goes_while_its_push_passes_is_waited_for_no_longer(hand, how, after_s):
    async with home(**PAIR, **LEASE) as house, house.worker("a") as a:
        await a.init()
        b = await hand(house, "b", up=slow())
        first = a.sync(update(1))
        await answer(b.push(1, *parts(1)))
        await first
        kept = a.sync(update(10))
        under_way(b.push(2, *parts(100), base=1, split=True))
        await asyncio.sleep(after_s)
        if how == "is cut and stays away":
            b.connection.abort()
        elif how == "leaves":
            b.send_leave()
        else:
            await hand(house, "b", 2)
        await answer(kept)
        assert (kept.version, values(house)) == (2, [11.0])
        await settle()
        assert rests(house)


@pytest.mark.parametrize("after_s", [0.3, 1.5, 2.5, 2.9])
@pytest.mark.parametrize("beside", ["alone", "last of two", "a newcomer is held back"])
async def test_a_server_may_stop_in_the_middle(hand, beside, after_s):
    house = home(min_workers=2 if beside == "last of two" else 1, weights="uniform")
    await house.start()
    a, b = await hand(house, "a", up=slow()), await hand(house, "b")
    if beside == "last of two":
        await b.send_push(1, *parts(1))
    under_way(a.push(1, *parts(1)))
    await asyncio.sleep(after_s)
    if beside == "a newcomer is held back":
        await b.send_push(1, *parts(1))
        await settle()
    assert house.server.version == 0
    await house.server.stop()
    # That nothing is on loan any more is looked at after every test.
    assert a.lost.done()
    assert b.lost.done()


class Broken:
    """A policy that works as long as no round is looked at beforehand."""

    barrier = True
    max_staleness = None

    def __init__(self):
        self.armed = False

    def ready(self, view):
        if self.armed:
            raise ZeroDivisionError("a bug in a policy")
        return bulk().ready(view)

    def may_proceed(self, worker, view):
        return True


async def test_a_policy_that_raises_when_it_is_asked_beforehand_takes_the_server_down():
    policy = Broken()
    house = home(sync=policy)
    await house.start()
    async with house.worker("a", give_up_s=1.0) as ps:
        await ps.init()
        await ps.sync(update(1))
        policy.armed = True
        ticket = ps.sync(update(1))
        with pytest.raises(ZeroDivisionError, match="a bug in a policy"):
            await answer(house.server.wait())
        assert ps.connections == 1  # at once, and not when somebody comes or goes
        with pytest.raises(AiopsError):
            await ticket
    with pytest.raises(ZeroDivisionError):
        await house.server.stop()
