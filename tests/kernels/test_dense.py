import ctypes

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from aiops import kernels
from aiops.kernels import reference

SIZES = [0, 1, 15, 16, 17, 1023, 4096, 4097, 10_000]

finite = st.floats(width=32, allow_nan=False, allow_infinity=False)
anything = st.floats(width=32)
weights = st.floats(-2, 2, width=32)


def rounded(number):
    """A double rounded to float32: with it, plain Python arithmetic is float32 arithmetic."""
    return ctypes.c_float(number).value


def assert_same_bits(got, want):
    """Equal bit for bit, but for the payload of NaN."""
    got, want = np.asarray(got, np.float32), np.asarray(want, np.float32)
    number = ~np.isnan(want)
    np.testing.assert_array_equal(np.isnan(got), ~number)
    np.testing.assert_array_equal(got.view(np.uint32)[number], want.view(np.uint32)[number])


def vectors(count, elements=anything):
    shape = st.integers(0, 70)
    return shape.flatmap(
        lambda n: st.tuples(*[hnp.arrays("f4", n, elements=elements) for _ in range(count)])
    )


def noise(n, seed=0):
    return np.random.default_rng(seed).standard_normal(n, dtype=np.float32)


# -- weighted_add --------------------------------------------------------------------------------


@given(vectors(2), weights)
def test_weighted_add_rounds_the_product_and_then_the_sum(pair, weight):
    acc, x = pair
    want = [rounded(a + rounded(weight * b)) for a, b in zip(acc.tolist(), x.tolist(), strict=True)]
    twin = acc.copy()
    kernels.weighted_add(acc, x, weight)
    reference.weighted_add(twin, x, weight)
    assert_same_bits(acc, want)
    assert_same_bits(twin, want)


@pytest.mark.parametrize("n", SIZES)
def test_weighted_add_equals_the_reference_at_every_size(n):
    acc, x = noise(n, 1), noise(n, 2)
    twin = acc.copy()
    kernels.weighted_add(acc, x, 0.3)
    reference.weighted_add(twin, x, 0.3)
    assert_same_bits(acc, twin)


def test_weighted_add_without_a_weight_adds():
    acc = np.array([1, 2], np.float32)
    kernels.weighted_add(acc, np.array([10, 20], np.float32))
    assert acc.tolist() == [11, 22]


def test_an_accumulator_may_be_added_to_itself():
    acc = noise(1000)
    want = acc + np.float32(0.5) * acc
    kernels.weighted_add(acc, acc, 0.5)
    assert_same_bits(acc, want)


# -- merge ---------------------------------------------------------------------------------------


@given(st.integers(0, 9).flatmap(vectors), st.data())
def test_merge_adds_in_the_given_order_from_zero(arrays, data):
    factors = [data.draw(weights) for _ in arrays]
    n = arrays[0].size if arrays else 3
    want = [0.0] * n
    for factor, array in zip(factors, arrays, strict=True):
        want = [rounded(w + rounded(factor * a)) for w, a in zip(want, array.tolist(), strict=True)]
    out, twin = np.full(n, 7, np.float32), np.full(n, 7, np.float32)
    assert kernels.merge(arrays, factors, out=out) is out
    reference.merge(arrays, np.array(factors, np.float32), twin)
    assert_same_bits(out, want)
    assert_same_bits(twin, want)


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("count", [1, 3, 4, 5, 64, 65, 130])
def test_merge_equals_the_numpy_loop_for_any_number_of_sources(n, count):
    if n * count > 10**6:
        n //= 10
    arrays = [noise(n, seed) for seed in range(count)]
    factors = [0.3 / (seed + 1) for seed in range(count)]
    want = np.zeros(n, np.float32)
    for factor, array in zip(factors, arrays, strict=True):
        want += np.float32(factor) * array
    assert_same_bits(kernels.merge(arrays, factors), want)


def test_a_merge_of_negative_zeros_starts_from_positive_zero():
    assert not np.signbit(kernels.merge([np.array([-0.0], np.float32)], [1.0]))[0]


def test_a_merge_of_nothing_fills_zeros_into_out():
    out = np.ones(3, np.float32)
    assert kernels.merge([], [], out=out).tolist() == [0, 0, 0]


def test_a_merge_of_nothing_without_out_has_no_length():
    with pytest.raises(ValueError, match="there are 0 arrays and no out"):
        kernels.merge([], [])


def test_every_array_needs_a_weight():
    with pytest.raises(ValueError, match="there are 1 weights, the arrays are 2"):
        kernels.merge([np.ones(2, np.float32)] * 2, [0.5])


def test_the_same_array_may_be_merged_twice():
    x = noise(100)
    assert_same_bits(kernels.merge([x, x], [0.5, 0.5]), x)


# -- swap_update ---------------------------------------------------------------------------------


@given(vectors(3))
def test_swap_update_takes_the_update_out_and_the_new_model_in(arrays):
    x, base, new = arrays
    want = [rounded(a - b) for a, b in zip(x.tolist(), base.tolist(), strict=True)]
    twins, kept = [a.copy() for a in arrays], new.copy()
    out, twin = np.empty_like(x), np.empty_like(x)
    kernels.swap_update(x, base, new, out=out)
    reference.swap_update(*twins, twin)
    for update, mine, theirs in ((out, x, base), (twin, twins[0], twins[1])):
        assert_same_bits(update, want)
        assert_same_bits(mine, kept)
        assert_same_bits(theirs, kept)
    assert_same_bits(new, kept)


@pytest.mark.parametrize("n", SIZES)
def test_swap_update_reaches_every_value_at_every_size(n):
    x, base, new, out = (noise(n, seed) for seed in range(4))
    want = x - base
    kernels.swap_update(x, base, new, out=out)
    assert_same_bits(out, want)
    assert_same_bits(x, new)
    assert_same_bits(base, new)


# -- first_nonfinite -----------------------------------------------------------------------------


@given(vectors(1))
def test_first_nonfinite_is_where_a_plain_search_finds_it(arrays):
    (x,) = arrays
    want = next((i for i, v in enumerate(x.tolist()) if v - v != 0), -1)
    assert kernels.first_nonfinite(x) == want
    assert reference.first_nonfinite(x) == want


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("at", [0, 1, 511, 512, 1023, 1024, 1029])
def test_the_first_of_several_is_named(at, bad):
    x = np.full(1030, np.finfo(np.float32).max)
    x[at:] = bad
    assert kernels.first_nonfinite(x) == at


def test_the_largest_and_smallest_numbers_are_finite():
    x = np.tile(np.array([3.4028235e38, -3.4028235e38, 1e-45, -0.0], np.float32), 1000)
    assert kernels.first_nonfinite(x) == -1
