"""The agreed key table as a value."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from aiops.types import TensorSpec
from aiops.wire.table import BucketEntry, Table, TensorEntry


def laid_out(sizes):
    entries, offset = [], 0
    for number, size in enumerate(sizes):
        entries.append(TensorEntry(f"t{number}", (size,), "float32", offset, size))
        offset += size
    return Table(tuple(entries), (BucketEntry(0, offset, 0),) if offset else ())


def test_an_empty_table_has_no_values():
    assert laid_out([]).size == 0
    assert laid_out([0, 0]).size == 0


def test_a_bucket_counts_its_values():
    assert BucketEntry(10, 25, 3).size == 15


def test_a_table_gives_back_the_tensors_it_was_laid_out_from():
    assert laid_out([2, 0]).specs() == (
        TensorSpec("t0", (2,), "float32"),
        TensorSpec("t1", (0,), "float32"),
    )


@given(st.lists(st.integers(0, 4), min_size=1, max_size=12).filter(any))
def test_every_position_belongs_to_the_tensor_that_covers_it_and_never_to_an_empty_one(sizes):
    table = laid_out(sizes)
    owners = [number for number, size in enumerate(sizes) for _ in range(size)]
    found = [table.tensor_at(position).name for position in range(table.size)]
    assert found == [f"t{number}" for number in owners]


@given(st.lists(st.integers(0, 4), max_size=8))
def test_a_table_comes_back_from_its_bytes(sizes):
    table = laid_out(sizes)
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(table), type=Table) == table
