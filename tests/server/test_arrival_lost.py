"""Drafts that come to nothing: what is lost with them costs no more than that it is sent again."""

import math

import pytest

from aiops.buffers import BufferPool
from aiops.policy.sync import bulk
from aiops.wire.frame import Kind
from aiops.wire.message import Push
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
    values,
)
from tests.server.kit import settle

pytestmark = [pytest.mark.virtual, pytest.mark.usefixtures("small_chunks")]


def bounded(monkeypatch, takes):
    """A system that has memory for so many more blocks."""
    take, left = BufferPool.take, iter(range(takes))

    def take_or_not(pool, size_bytes):
        if next(left, None) is None:
            raise MemoryError(f"no system has a block of {size_bytes} bytes")
        return take(pool, size_bytes)

    monkeypatch.setattr(BufferPool, "take", take_or_not)


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
