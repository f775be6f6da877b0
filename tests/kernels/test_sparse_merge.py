import ctypes
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from aiops import kernels
from aiops.kernels import _backend, reference

LEVELS = range(_backend.topk.simd_level() + 1) if kernels.COMPILED else []


def rounded(number):
    """A double rounded to float32: with it, plain Python arithmetic is float32 arithmetic."""
    return ctypes.c_float(number).value


def twins():
    yield reference.merge_sparse
    for level in LEVELS:
        yield partial(_backend.sparse_merge.merge_sparse, level=level)


def merged_by_all(indices, values, weights, n):
    """What every twin makes of the vectors: the same bits."""
    total, results = sum(map(len, indices)), []
    for merge in twins():
        index, value = np.full(total + 2, 7, np.uint32), np.full(total + 2, 7, np.float32)
        at, count = merge(
            tuple(indices), tuple(values), np.array(weights, "f4"), n, index[1:-1], value[1:-1]
        )
        assert at == -1
        assert index[0] == index[-1] == value[0] == value[-1] == 7, "written outside"
        results.append((index[1 : count + 1].copy(), value[1 : count + 1].copy()))
    for index, value in results:
        np.testing.assert_array_equal(index, results[0][0])
        np.testing.assert_array_equal(value.view(np.uint32), results[0][1].view(np.uint32))
    return results[0]


def vectors(count, density, n, seed=0):
    generator = np.random.default_rng([seed, count, n])
    for _ in range(count):
        index = np.flatnonzero(generator.random(n) < density).astype(np.uint32)
        yield index, generator.standard_normal(index.size, dtype=np.float32)


@st.composite
def some_vectors(draw):
    n = draw(st.sampled_from([1, 16, 70, 5000, 10**6, 2**32]))
    indices, values = [], []
    for _ in range(draw(st.integers(0, 5))):
        index = sorted(draw(st.sets(st.integers(0, n - 1), max_size=min(n, 40))))
        indices.append(np.array(index, np.uint32))
        finite = st.floats(-(2.0**90), 2.0**90, width=32)
        values.append(draw(hnp.arrays("f4", len(index), elements=finite)))
    weights = draw(
        st.lists(st.floats(-2, 2, width=32), min_size=len(indices), max_size=len(indices))
    )
    return indices, values, weights, n


@given(some_vectors())
def test_products_are_added_in_the_order_of_the_vectors_from_zero(case):
    indices, values, weights, _ = case
    want = {}
    for index, value, weight in zip(indices, values, weights, strict=True):
        for at, x in zip(index.tolist(), value.tolist(), strict=True):
            want[at] = rounded(want.get(at, 0.0) + rounded(weight * x))
    index, value = merged_by_all(*case)
    assert index.tolist() == sorted(want)
    np.testing.assert_array_equal(value, np.array([want[at] for at in sorted(want)], "f4"))


@pytest.mark.parametrize("count", [1, 2, 3, 8, 70])
@pytest.mark.parametrize("density", [0.0002, 0.01, 0.1, 0.6, 1.0])
@pytest.mark.parametrize("n", [1, 4095, 70_000, 300_000])
def test_every_number_and_density_of_vectors(count, density, n):
    if density * count * n > 500_000:
        n //= 30
    indices, values = zip(*vectors(count, density, n), strict=True)
    weights = np.linspace(-1, 2, count).tolist()
    index, value = merged_by_all(indices, values, weights, n)
    dense, seen = np.zeros(n, np.float32), np.zeros(n, bool)
    for positions, numbers, weight in zip(indices, values, weights, strict=True):
        dense[positions] += np.float32(weight) * numbers
        seen[positions] = True
    np.testing.assert_array_equal(index, np.flatnonzero(seen))
    np.testing.assert_array_equal(value.view(np.uint32), dense[seen].view(np.uint32))


@pytest.mark.parametrize("count", [2, 3])
def test_one_vector_far_behind_the_other(count):
    low, high = np.arange(700, dtype=np.uint32), np.arange(2**32 - 900, 2**32, dtype=np.int64)
    indices = [low, high.astype(np.uint32), np.array([], np.uint32)][:count]
    values = [np.ones(index.size, np.float32) for index in indices]
    index, value = merged_by_all(indices, values, [1.0] * count, 2**32)
    np.testing.assert_array_equal(index, np.concatenate([low, high]))
    assert (value == 1).all()


@pytest.mark.parametrize("count", [1, 2, 3])
@pytest.mark.parametrize("special", [np.nan, np.inf, -np.inf, 1e-45, 3e38])
def test_special_values_and_negative_zeros(count, special):
    index, value = np.arange(9, dtype=np.uint32), np.full(9, special, np.float32)
    value[3:] = -0.0
    _, sums = merged_by_all([index] * count, [value] * count, [1.0] * count, 20)
    assert not np.signbit(sums[3:]).any(), "a sum starts from positive zero"
    with np.errstate(all="ignore"):
        want = sum([np.float32(special)] * count, np.float32(0))
    np.testing.assert_array_equal(sums[0], want)


def test_a_merge_of_nothing_is_nothing():
    empty = np.empty(0, np.uint32), np.empty(0, np.float32)
    for count in range(4):
        merged = kernels.merge_sparse(
            [empty[0]] * count, [empty[1]] * count, [1.0] * count, 5, index=empty[0], value=empty[1]
        )
        assert merged == 0


@pytest.mark.parametrize("count", [1, 2, 3])
@pytest.mark.parametrize(
    ("index", "place", "rule"),
    [
        ([1, 1], 1, "above the one before it and below 9"),
        ([3, 2], 1, "above the one before it and below 9"),
        ([9], 0, "below 9"),
        ([0, 5, 9, 3], 2, "above the one before it and below 9"),
        ([2**32 - 1], 0, "below 9"),
    ],
)
def test_a_wrong_position_is_named_and_nothing_is_written(count, index, place, rule):
    index = np.array(index, np.uint32)
    good = np.array([0, 8], np.uint32), np.ones(2, np.float32)
    indices, values = [good[0]] * count, [good[1]] * count
    indices[-1], values[-1] = index, np.ones(index.size, np.float32)
    out = np.zeros(10, np.uint32), np.zeros(10, np.float32)
    for merge in twins():
        found = merge(tuple(indices), tuple(values), np.ones(count, np.float32), 9, *out)
        assert found == (count - 1, place)
    with pytest.raises(
        ValueError,
        match=rf"indices\[{count - 1}\]\[{place}\] is {index[place]}, it must be {rule}",
    ):
        kernels.merge_sparse(indices, values, [1.0] * count, 9, index=out[0], value=out[1])
    assert not out[0].any()
    assert not out[1].any()


def test_numbers_that_do_not_fit_are_refused():
    index, value = np.zeros(2, np.uint32), np.zeros(2, np.float32)
    one, two = np.array([3], np.uint32), np.array([1], np.float32)
    with pytest.raises(ValueError, match="there are 1 weights, the vectors are 2"):
        kernels.merge_sparse([one, one], [two, two], [1.0], 9, index=index, value=value)
    with pytest.raises(ValueError, match="index has 2 values, 3 may be needed"):
        kernels.merge_sparse([one] * 3, [two] * 3, [1.0] * 3, 9, index=index, value=value)
    with pytest.raises(ValueError, match="n is 4294967297, it must be between 0 and 4294967296"):
        kernels.merge_sparse([one], [two], [1.0], 2**32 + 1, index=index, value=value)
    with pytest.raises(ValueError, match=r"zip\(\)"):
        kernels.merge_sparse([one, one], [two], [1.0], 9, index=index, value=value)
    with pytest.raises(ValueError, match=r"index and indices\[0\] overlap in memory"):
        kernels.merge_sparse([index[:1]], [two], [1.0], 9, index=index, value=value)
