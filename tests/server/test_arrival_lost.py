"""Drafts that come to nothing: what is lost with them costs no more than that it is sent again."""

import pytest

from aiops.buffers import BufferPool
from tests.server.drafting import (
    BUCKETS,
    answer,
    drafted,
    home,
    parts,
    rests,
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
