import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiops import kernels
from aiops.kernels import _backend, reference
from tests.kernels.kit import (
    BAD,
    LEVELS,
    assert_same_bits,
    noise,
    on_level,
    rounded,
    shifted,
    vectors,
    weights,
)

SIZES = [0, 1, 15, 16, 17, 1023, 4096, 4097, 10_000]

each_level = pytest.mark.parametrize("level", LEVELS)


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
    reference.merge(arrays, tuple(factors), twin)
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


# -- merge_checked -------------------------------------------------------------------------------


def merged_in_passes(base, arrays, factors, gain):
    """What a server does with whole pushes: accumulate, add to a copy of the model, look."""
    acc, out = np.zeros_like(base), base.copy()
    for array, factor in zip(arrays, factors, strict=True):
        kernels.weighted_add(acc, array, factor)
    kernels.weighted_add(out, acc, gain)
    return out, kernels.first_nonfinite(out)


@given(st.integers(1, 9).flatmap(vectors), st.data())
def test_merge_checked_is_merge_and_add_and_look(arrays, data):
    base, *sources = arrays
    factors = [data.draw(weights) for _ in sources]
    gain = data.draw(weights)
    want, bad = merged_in_passes(base, sources, factors, gain)
    out = np.full_like(base, 7)
    assert kernels.merge_checked(base, sources, factors, gain=gain, out=out) == bad
    assert_same_bits(out, want)
    assert kernels.merge_checked(base, sources, factors, gain=gain, out=base) == bad
    assert_same_bits(base, want)


@pytest.mark.parametrize("bypass", [False, True])
@pytest.mark.parametrize("count", [1, 8, 64, 65])
def test_chunks_merged_one_by_one_make_the_whole(count, bypass):
    base, sources = noise(10_000), [noise(10_000, seed) for seed in range(1, count + 1)]
    factors = [0.3 / seed for seed in range(1, count + 1)]
    want, _ = merged_in_passes(base, sources, factors, 0.5)
    out = np.empty_like(base)
    for at in range(0, 10_000, 3000):
        part = slice(at, at + 3000)
        bad = kernels.merge_checked(
            base[part], [s[part] for s in sources], factors, gain=0.5, out=out[part], bypass=bypass
        )
        assert bad == -1
    assert_same_bits(out, want)


def test_negative_zeros_come_out_as_from_the_passes():
    # The sum starts from positive zero, so a negative zero survives in neither.
    zeros = np.full(100, -0.0, np.float32)
    out = np.empty_like(zeros)
    kernels.merge_checked(zeros, [zeros], [1.0], out=out)
    assert not np.signbit(out).any()


@each_level
@pytest.mark.parametrize("bad", BAD)
@pytest.mark.parametrize("where", ["base", "first source", "last source"])
@pytest.mark.parametrize("at", [0, 3, 16, 63, 64, 130, 299])
def test_a_value_that_is_not_finite_is_found_wherever_it_comes_from(where, at, bad, level):
    base, first, last, out = (noise(300, seed) for seed in range(4))
    {"base": base, "first source": first, "last source": last}[where][at:] = bad
    arguments = base, (first, last), (0.5, 0.0), 0.0, shifted(out, 3), False
    assert on_level(_backend.merge.merge_checked, *arguments, level=level) == at


def test_a_sum_of_finite_values_that_overflows_is_found():
    big = np.array([1, 3e38, 1], np.float32)
    assert kernels.merge_checked(big, [big], [1.0], out=np.empty_like(big)) == 1
    assert kernels.merge_checked(big, [big], [-1.0], out=np.empty_like(big)) == -1


def test_merge_checked_needs_a_weight_for_every_array():
    with pytest.raises(ValueError, match="there are 1 weights, the arrays are 0"):
        kernels.merge_checked(noise(3), [], [0.5], out=noise(3))


@pytest.mark.big
@pytest.mark.timeout(600)
@pytest.mark.skipif(not kernels.COMPILED, reason="numpy would need several copies of 8 GiB")
def test_positions_beyond_31_bits():
    n = 2**31 + 8
    # Untouched zeros take no memory; `out` takes 8 GiB.
    x, out = np.zeros(n, np.float32), np.empty(n, np.float32)
    x[-2:] = 3, np.inf
    assert kernels.merge_checked(x, [x], [0.5], out=out, bypass=True) == n - 1
    assert out[-2] == 4.5
