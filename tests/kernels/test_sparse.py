import ctypes

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from aiops import kernels
from aiops.kernels import reference

finite = st.floats(width=32, allow_nan=False, allow_infinity=False)


def bits(x):
    return x.view(np.uint32).tolist()


def rounded(number):
    """A double rounded to float32: with it, plain Python arithmetic is float32 arithmetic."""
    return ctypes.c_float(number).value


@st.composite
def scatters(draw):
    n = draw(st.integers(1, 100))
    k = draw(st.integers(0, 150))
    return (
        draw(hnp.arrays("f4", n, elements=finite)),
        draw(hnp.arrays("u4", k, elements=st.integers(0, n - 1))),
        draw(hnp.arrays("f4", k, elements=finite)),
        draw(st.floats(-2, 2, width=32)),
    )


@given(scatters())
def test_scatter_add_rounds_product_and_sum_in_order(case):
    acc, index, value, weight = case
    want = acc.tolist()
    for i, v in zip(index.tolist(), value.tolist(), strict=True):
        want[i] = rounded(want[i] + rounded(weight * v))
    twin = acc.copy()
    kernels.scatter_add(acc, index, value, weight)
    np.testing.assert_array_equal(acc, want)
    assert reference.scatter_add(twin, index, value, weight) == -1
    np.testing.assert_array_equal(twin, want)


@given(scatters())
def test_gather_looks_up_every_index(case):
    x, index, _, _ = case
    out = kernels.gather(x, index)
    assert bits(out) == [bits(x)[i] for i in index.tolist()]
    twin = np.empty_like(out)
    assert reference.gather(x, index, twin) == -1
    assert bits(twin) == bits(out)


def test_duplicate_unsorted_indices_add_up():
    acc = np.zeros(3, np.float32)
    kernels.scatter_add(acc, np.array([2, 0, 2], np.uint32), np.array([1, 2, 4], np.float32), 0.5)
    assert acc.tolist() == [1, 0, 2.5]


@pytest.mark.parametrize(
    ("n", "k", "at", "index"),
    [(0, 1, 0, 0), (1, 1, 0, 1), (4, 17, 16, 4), (4, 2000, 1999, 4), (9, 600, 511, 2**32 - 1)],
)
def test_an_index_outside_is_named_and_nothing_is_written(n, k, at, index):
    wrong = np.zeros(k, np.uint32)
    wrong[at] = index
    acc, out = np.zeros(n, np.float32), np.zeros(k, np.float32)
    with pytest.raises(IndexError, match=rf"index\[{at}\] is {index}, acc has {n} values"):
        kernels.scatter_add(acc, wrong, np.ones(k, np.float32))
    with pytest.raises(IndexError, match=rf"index\[{at}\] is {index}, x has {n} values"):
        kernels.gather(np.ones(n, np.float32), wrong, out=out)
    assert not acc.any()
    assert not out.any()


def test_no_index_is_fine_even_into_nothing():
    nothing = np.empty(0, np.float32)
    kernels.scatter_add(nothing, np.empty(0, np.uint32), np.empty(0, np.float32))
    assert kernels.gather(nothing, np.empty(0, np.uint32)).size == 0


def test_the_order_of_duplicates_counts_across_the_prefetched_part():
    # Added in any other order, the large terms swallow a different number of ones.
    value = np.tile(np.array([1, 2**24, 1, -(2**24)], np.float32), 50)
    acc, want = np.zeros(1, np.float32), 0.0
    kernels.scatter_add(acc, np.zeros(value.size, np.uint32), value)
    for v in value.tolist():
        want = rounded(want + v)
    assert acc[0] == want


def test_a_weight_is_rounded_to_float32_before_it_multiplies():
    acc, x = np.zeros(1, np.float32), np.array([3], np.float32)
    kernels.scatter_add(acc, np.zeros(1, np.uint32), x, 0.1)
    assert acc[0] == rounded(rounded(0.1) * 3)
