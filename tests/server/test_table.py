"""From tensors to buckets on shards."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiops.errors import ShapeMismatch
from aiops.policy.place import by_bytes
from aiops.server.table import MAX_BUCKETS, build_table, check_same
from aiops.types import TensorSpec


def spec(name, *shape, dtype="float32"):
    return TensorSpec(name, shape, dtype)


def layout(*specs, shards=1, bucket_bytes=1 << 20):
    return build_table(specs, shards=shards, bucket_bytes=bucket_bytes, place=by_bytes())


def test_tensors_lie_one_after_the_other_in_the_order_given():
    table = layout(spec("w", 3, 4), spec("scalar"), spec("nothing", 0, 7), spec("b", 2))
    assert [(entry.name, entry.offset, entry.size) for entry in table.tensors] == [
        ("w", 0, 12),
        ("scalar", 12, 1),
        ("nothing", 13, 0),
        ("b", 13, 2),
    ]
    assert table.size == 15
    assert table.specs() == (spec("w", 3, 4), spec("scalar"), spec("nothing", 0, 7), spec("b", 2))
    assert [table.tensor_at(i).name for i in (0, 11, 12, 13, 14)] == ["w", "w", "scalar", "b", "b"]


@given(
    sizes=st.lists(st.integers(0, 300), max_size=6),
    shards=st.integers(1, 5),
    bucket_values=st.integers(1, 200),
)
def test_buckets_cover_the_vector_without_gap_or_overlap(sizes, shards, bucket_values):
    specs = [spec(f"t{i}", size) for i, size in enumerate(sizes)]
    table = layout(*specs, shards=shards, bucket_bytes=4 * bucket_values)
    at = 0
    for bucket in table.buckets:
        assert bucket.start == at
        assert 0 < bucket.size <= bucket_values
        assert 0 <= bucket.shard < shards
        at = bucket.stop
    assert at == sum(sizes) == table.size


def test_shards_carry_the_same_number_of_bytes_whatever_the_model_looks_like():
    table = layout(spec("huge", 1000, 1000), *[spec(f"b{i}", 10) for i in range(50)], shards=4)
    loads = [sum(b.size for b in table.buckets if b.shard == shard) for shard in range(4)]
    assert max(loads) - min(loads) <= 16


@pytest.mark.parametrize(
    ("specs", "told"),
    [
        pytest.param([spec("w", 1), spec("w", 1)], "'w' is named twice", id="a name twice"),
        pytest.param([spec("w", 1, dtype="int64")], "'w' is int64", id="integers"),
        pytest.param([spec("w", -1)], "'w' has shape", id="a negative extent"),
        pytest.param([spec("w", 10**18)], "the limit is", id="more than anybody has"),
        pytest.param([spec("w", 2**64 - 1, 2**64 - 1)], "the limit is", id="beyond 64 bits"),
    ],
)
def test_what_cannot_be_held_is_refused(specs, told):
    with pytest.raises(ShapeMismatch) as refused:
        layout(*specs, bucket_bytes=64 << 20)
    assert told in str(refused.value)


def test_the_number_of_buckets_is_bounded():
    assert len(layout(spec("w", MAX_BUCKETS), bucket_bytes=4).buckets) == MAX_BUCKETS
    with pytest.raises(ShapeMismatch):
        layout(spec("w", MAX_BUCKETS + 1), bucket_bytes=4)


@pytest.mark.parametrize(
    ("theirs", "told"),
    [
        pytest.param([spec("v", 2, 3), spec("b", 1)], "'v' stands where 'w'", id="name"),
        pytest.param([spec("w", 3, 2), spec("b", 1)], "'w' has shape (3, 2)", id="shape"),
        pytest.param([spec("w", 6), spec("b", 1)], "'w' has shape (6,)", id="rank"),
        pytest.param(
            [spec("w", 2, 3), spec("b", 1, dtype="float16")], "'b' is float16", id="dtype"
        ),
        pytest.param([spec("w", 2, 3)], "1 tensors, 2", id="fewer"),
        pytest.param([spec("w", 2, 3), spec("b", 1), spec("c")], "3 tensors, 2", id="more"),
        pytest.param([spec("b", 1), spec("w", 2, 3)], "'b' stands where 'w'", id="order"),
    ],
)
def test_another_model_is_refused_and_the_first_difference_named(theirs, told):
    table = layout(spec("w", 2, 3), spec("b", 1))
    check_same(table, table.specs())
    with pytest.raises(ShapeMismatch) as refused:
        check_same(table, theirs)
    assert told in str(refused.value)


def test_an_empty_model_has_no_buckets():
    table = layout(spec("nothing", 0), shards=3)
    assert (table.size, table.buckets) == (0, ())
    assert math.prod(table.tensors[0].shape) == 0


def test_averaged_tensors_have_buckets_of_their_own_behind_all_others():
    specs = [
        TensorSpec("w", (100,), "float32"),
        TensorSpec("mean", (7,), "float32", averaged=True),
        TensorSpec("var", (7,), "float32", averaged=True),
    ]
    table = build_table(specs, shards=2, bucket_bytes=1 << 20, place=by_bytes())
    assert [(b.start, b.stop, b.averaged) for b in table.buckets] == [
        (0, 64, False),
        (64, 100, False),
        (100, 114, True),
    ]
    assert table.accumulated == 100
    assert table.specs() == tuple(specs)


def test_an_averaged_tensor_before_another_one_is_refused():
    specs = [TensorSpec("mean", (7,), "float32", averaged=True), TensorSpec("w", (1,), "float32")]
    with pytest.raises(ShapeMismatch, match="tensor 'w' stands behind averaged ones"):
        build_table(specs, shards=1, bucket_bytes=1 << 20, place=by_bytes())


def test_a_worker_that_averages_what_others_learn_is_refused():
    table = build_table(
        [TensorSpec("w", (7,), "float32")], shards=1, bucket_bytes=1 << 20, place=by_bytes()
    )
    with pytest.raises(ShapeMismatch, match="tensor 'w' has averaged=True, False was agreed"):
        check_same(table, [TensorSpec("w", (7,), "float32", averaged=True)])


def cut(*sizes, fragments, shards=1, bucket_values=16, averaged=0):
    specs = [spec(f"t{i}", size) for i, size in enumerate(sizes)]
    if averaged:
        specs.append(TensorSpec("mean", (averaged,), "float32", averaged=True))
    table = build_table(
        specs, shards=shards, bucket_bytes=4 * bucket_values, place=by_bytes(), fragments=fragments
    )
    return table, [table.fragment(number, fragments) for number in range(fragments)]


def test_fragments_have_as_many_buckets_each_and_the_last_one_the_statistics():
    table, keys = cut(1000, fragments=4, bucket_values=160, averaged=3)
    # Seven buckets would do, eight are a multiple of four.
    assert len(table.buckets) == 9
    assert keys == [range(2), range(2, 4), range(4, 6), range(6, 9)]
    assert len({bucket.size for bucket in table.buckets[:7]}) == 1
    # Each of a fragment's buckets is on another shard, so that all shards have to do.
    table, keys = cut(1000, fragments=2, shards=2)
    for one in keys:
        assert {table.buckets[key].shard for key in one} == {0, 1}


@given(size=st.integers(1, 500), fragments=st.integers(1, 6), averaged=st.integers(0, 40))
def test_fragments_cover_the_table_in_order_and_none_is_empty(size, fragments, averaged):
    try:
        table, keys = cut(size, fragments=fragments, averaged=averaged)
    except ShapeMismatch:
        assert size <= 16 * fragments
        return
    assert [key for one in keys for key in one] == list(range(len(table.buckets)))
    assert all(keys)


def test_a_model_too_small_for_its_fragments_is_refused():
    with pytest.raises(
        ShapeMismatch, match="40 values make 3 buckets of 16, fewer than the 4 fragments"
    ):
        cut(40, fragments=4, bucket_values=1024)
