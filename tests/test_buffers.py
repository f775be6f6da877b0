"""Blocks come aligned, go back with their last loan, and are used again."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiops.buffers import ALIGN_BYTES, PAGE_BYTES, BufferPool

PAGE = PAGE_BYTES


def address(block):
    return np.frombuffer(block.view, np.uint8).ctypes.data


@pytest.mark.parametrize("size", [0, 1, 4, 4095, 4096, 4097, 1 << 20])
def test_a_block_has_exactly_the_size_that_was_asked_for_and_is_aligned(size):
    pool = BufferPool()
    block = pool.take(size)
    assert len(block) == len(block.view) == size
    assert block.view.format == "B"
    assert not block.view.readonly
    assert size == 0 or address(block) % ALIGN_BYTES == 0
    block.release()


def test_a_block_goes_back_with_its_last_loan_and_not_before():
    pool = BufferPool()
    block = pool.take(10)
    assert block.lend() is block
    block.release()
    assert pool.outstanding == 1
    block.release()
    assert pool.outstanding == 0


def test_a_block_that_went_back_can_neither_be_lent_nor_released():
    pool = BufferPool()
    block = pool.take(10)
    block.release()
    with pytest.raises(RuntimeError, match="cannot be lent"):
        block.lend()
    with pytest.raises(RuntimeError, match="more often than it was lent"):
        block.release()
    assert pool.outstanding == 0


def test_memory_that_came_back_is_used_again_for_a_block_of_the_same_pages():
    pool = BufferPool()
    first = pool.take(PAGE - 100)
    where = address(first)
    first.release()
    second = pool.take(PAGE)
    assert address(second) == where
    second.release()


def test_two_loans_never_share_memory():
    pool = BufferPool()
    blocks = [pool.take(PAGE) for _ in range(8)]
    for number, block in enumerate(blocks):
        block.view[:] = bytes([number]) * PAGE
    assert [set(block.view) for block in blocks] == [{number} for number in range(8)]
    for block in blocks:
        block.release()


def test_what_comes_back_beyond_the_limit_is_not_kept():
    pool = BufferPool(keep_bytes=2 * PAGE)
    blocks = [pool.take(PAGE) for _ in range(5)]
    for block in blocks:
        block.release()
    assert sum(map(len, pool._free.values())) == 2


def test_empty_blocks_do_not_pile_up_in_the_store():
    pool = BufferPool(keep_bytes=2 * PAGE)
    blocks = [pool.take(0) for _ in range(100)]
    for block in blocks:
        block.release()
    assert sum(map(len, pool._free.values())) == 2


def test_a_block_can_be_seen_as_float32_values_in_place():
    pool = BufferPool()
    block = pool.take(12)
    block.float32()[:] = [1, 2, 3]
    assert bytes(block.view) == np.array([1, 2, 3], np.float32).tobytes()
    block.release()


def test_an_empty_block_holds_no_float32_values():
    pool = BufferPool()
    block = pool.take(0)
    assert block.float32().shape == (0,)
    block.release()


@pytest.mark.parametrize("size", [1 << 62, (1 << 63) - 1, 1 << 63, (1 << 64) - 1])
def test_memory_that_no_system_has_is_a_memory_error_and_nothing_is_taken(size):
    pool = BufferPool()
    with pytest.raises(MemoryError):
        pool.take(size)
    assert (pool.outstanding, pool.outstanding_bytes) == (0, 0)


@given(st.lists(st.tuples(st.integers(0, 5 * PAGE), st.integers(0, 3)), max_size=30))
def test_the_pool_counts_what_is_out_whatever_is_lent_and_released(plan):
    pool = BufferPool(keep_bytes=8 * PAGE)
    held = []
    for size, releases in plan:
        held.append(pool.take(size))
        for _ in range(min(releases, len(held))):
            held.pop(0).release()
        assert pool.outstanding == len(held)
        assert pool.outstanding_bytes == sum(max(1, -(-len(b) // PAGE)) * PAGE for b in held)
    for block in held:
        block.release()
    assert (pool.outstanding, pool.outstanding_bytes) == (0, 0)
    assert pool._free_bytes <= 8 * PAGE


def test_the_most_that_was_out_at_once_is_noted():
    pool = BufferPool()
    first, second = pool.take(1), pool.take(PAGE + 1)
    first.release()
    pool.take(1).release()
    assert (pool.outstanding_bytes, pool.peak_bytes) == (2 * PAGE, 3 * PAGE)
    second.release()
    assert (pool.outstanding_bytes, pool.peak_bytes) == (0, 3 * PAGE)
