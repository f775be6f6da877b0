"""Drafts that come to nothing: what is lost with them costs no more than that it is sent again."""

import asyncio
import contextlib
import math

import pytest

from aiops.buffers import BufferPool
from aiops.policy.sync import bulk
from aiops.server.draft import BucketDraft
from aiops.wire.frame import Kind
from aiops.wire.message import Push
from tests.server.drafting import (
    BUCKET_BYTES,
    BUCKETS,
    PAIR,
    answer,
    drafted,
    home,
    parts,
    rests,
    slow,
    under_way,
    values,
)
from tests.server.kit import settle

pytestmark = [pytest.mark.virtual, pytest.mark.usefixtures("small_chunks")]

# What a push that is used up as it comes takes for each bucket, with small chunks.
CHUNK_BYTES = 256


def bounded(monkeypatch, takes):
    """A system that has memory for so many more blocks."""
    take, left = BufferPool.take, iter(range(takes))

    def take_or_not(pool, size_bytes):
        if next(left, None) is None:
            raise MemoryError(f"no system has a block of {size_bytes} bytes")
        return take(pool, size_bytes)

    monkeypatch.setattr(BufferPool, "take", take_or_not)


def taken(monkeypatch):
    """The sizes of the blocks that are taken from here on."""
    take, sizes = BufferPool.take, []

    def noted(pool, size_bytes):
        sizes.append(size_bytes)
        return take(pool, size_bytes)

    monkeypatch.setattr(BufferPool, "take", noted)
    return sizes


# Each bucket takes a block to land in and one for what it is merged into.
@pytest.mark.parametrize("takes", range(2 * BUCKETS))
@pytest.mark.parametrize("beside", [False, True], ids=["alone", "last of two"])
async def test_memory_that_is_not_there_costs_one_connection(hand, monkeypatch, beside, takes):
    async with home(min_workers=2 if beside else 1, weights="uniform") as house:
        a, b = await hand(house, "a", 1), await hand(house, "b")
        other = under_way(b.push(1, *parts(3))) if beside else None
        await settle()
        with monkeypatch.context() as patch:
            bounded(patch, takes)
            under_way(a.push(1, *parts(1)))
            await settle()
        await answer(a.lost)
        assert not b.lost.done()
        again = await hand(house, "a", 1)
        assert (await answer(again.push(1, *parts(1)))).body.version == 1
        if other is not None:
            await answer(other)
        assert values(house) == [2.0 if beside else 1.0]
        assert drafted(house) == BUCKETS
        assert rests(house)


async def part_of_a_push(hand, sequence, value, *, base):
    """Send the first bucket of a push of three, and no more of it for now; return the frames that are due."""
    number = hand.session.next_request()
    push = Push(
        sequence=sequence,
        base=base,
        clock=0,
        n_samples=1,
        n_steps=1,
        loss=math.nan,
        parts=BUCKETS,
        want=False,
    )
    head = hand.session.send(Kind.PUSH, push, request=number)
    first, *rest = hand.tensors(number, parts(value))
    await hand.connection.send([(head, ()), first])
    await settle()
    return rest


@pytest.mark.parametrize("life", [1, 2], ids=["the same life", "another life"])
async def test_values_that_are_lost_are_in_no_later_plan(hand, life):
    async with home(**PAIR, sync=bulk(max_staleness=None)) as house:
        a, b = await hand(house, "a"), await hand(house, "b", 1, down=slow())
        one = under_way(b.push(1, *parts(1)))
        await answer(a.push(1, *parts(1)))
        await answer(one)
        # Answers that keep the connection open after its worker has left.
        for _ in range(8):
            b.send_pull()
        await settle()
        two = under_way(a.push(2, *parts(1), base=1))
        await settle()
        rest = await part_of_a_push(b, 2, 100, base=1)
        b.send_leave()
        await answer(two)
        back = await hand(house, "b", life)
        three = under_way(back.push(3, *parts(1), base=2))
        await settle()
        await answer(a.push(3, *parts(1), base=2))
        await answer(three)
        four = under_way(a.push(4, *parts(1), base=3))
        await settle()
        assert not b.lost.done()
        assert not a.lost.done()
        # What is left of it comes after all, and counts for nothing.
        await b.connection.send(rest)
        await answer(back.push(4, *parts(1), base=3))
        await answer(four)
        assert values(house) == [4.0]
        # The second round was closed without what had passed.
        assert drafted(house) == 3 * BUCKETS
        await answer(b.lost)
        await settle()
        assert rests(house)


async def test_weights_that_change_while_pushes_come_are_those_of_the_end(hand):
    now = {"weight": 0.5}

    def rule(pushes):
        return [now["weight"]] * len(pushes)

    async with home(min_workers=2, weights=rule) as house:
        a, b = await hand(house, "a", up=slow()), await hand(house, "b", up=slow())
        one, two = under_way(a.push(1, *parts(2))), under_way(b.push(1, *parts(4)))
        await asyncio.sleep(1.5)
        now["weight"] = 1.0
        await answer(one)
        await answer(two)
        assert values(house) == [6.0]
        assert drafted(house) == 0
        assert rests(house)


async def test_a_push_with_the_number_of_one_that_was_lost_rounds_ago_is_used_up_as_it_comes(
    hand, monkeypatch
):
    async with home(**PAIR) as house:
        a, b, c = [await hand(house, name, 1) for name in "abc"]
        await a.send_push(1, *parts(3))
        await settle()
        rest = await part_of_a_push(b, 1, 6, base=0)
        # The round will not close as it was foreseen, and what has passed is nowhere else.
        await a.leave()
        await b.connection.send(rest)
        await answer(b.lost)
        again = await hand(house, "b", 1)
        second = under_way(again.push(1, *parts(6)))
        await answer(c.push(1, *parts(9)))
        await answer(second)
        await c.leave()
        assert values(house) == [6.0]
        sizes = taken(monkeypatch)
        another = await hand(house, "b", 2)
        await answer(another.push(1, *parts(1), base=1))
        assert sizes == [CHUNK_BYTES, BUCKET_BYTES] * BUCKETS
        assert values(house) == [7.0]
        assert rests(house)


class Quiet:
    """A lane that knows whether it is kept quiet."""

    def __init__(self):
        self.is_quiet = False

    @contextlib.contextmanager
    def quiet(self):
        self.is_quiet = True
        yield
        self.is_quiet = False


async def test_a_draft_begins_and_ends_while_the_lane_of_its_bucket_is_quiet(hand, monkeypatch):
    lanes, seen = [Quiet(), Quiet()], []

    def noting(name):
        method = getattr(BucketDraft, name)

        def noted(*args):
            seen.append((name, [lane.is_quiet for lane in lanes]))
            return method(*args)

        monkeypatch.setattr(BucketDraft, name, noted)

    async with home(shards=2) as house:
        service = house.server.service
        service._arrivals._lanes = lanes
        shards = [bucket.shard for bucket in service.table.buckets]
        assert set(shards) == {0, 1}
        noting("__init__")
        noting("stop")
        a = await hand(house, "a")
        await answer(a.push(1, *parts(1)))
        assert seen == [
            (name, [shard == 0, shard == 1]) for name in ("__init__", "stop") for shard in shards
        ]
