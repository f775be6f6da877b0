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
KINDS = {"float32": np.float32, "float16": np.uint16, "bfloat16": np.uint16, "int8": np.int8}
NUMBERS = {kind: number for number, kind in enumerate(KINDS)}

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
    nothing = np.empty(0, np.float32)
    assert reference.scatter_add(twin, index, value.view(np.uint8), 0, nothing, weight) == -1
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


def raw_values(k, kind, seed=0):
    """Values of a kind as they travel, their scales, and what they stand for."""
    generator = np.random.default_rng([seed, k])
    if kind == "float32":
        value = generator.standard_normal(k, dtype=np.float32)
        return value, None, value
    if kind == "int8":
        value = generator.integers(-127, 128, k).astype(np.int8)
        scale = generator.random(-(-k // 4096), dtype=np.float32)
        return value, scale, np.repeat(scale, 4096)[:k] * value
    bits = kernels.to_half(generator.standard_normal(k, dtype=np.float32), kind)
    return bits, None, kernels.from_half(bits, kind)


def positions(k, n, seed=0):
    return np.sort(np.random.default_rng([seed, k, n]).permutation(n)[:k]).astype(np.uint32)


def twins(name):
    yield getattr(reference, name)
    for level in LEVELS:
        yield partial(getattr(_backend.sparse, name), level=level)


def assert_same_bits(got, want):
    number = ~np.isnan(want)
    np.testing.assert_array_equal(np.isnan(got), ~number)
    np.testing.assert_array_equal(got.view(np.uint32)[number], want.view(np.uint32)[number])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("k", "n"),
    [
        *[(0, 0), (0, 5), (1, 1), (1, 9), (15, 100), (16, 16), (17, 1000), (511, 9000), (512, 600)],
        *[(513, 10**6), (1100, 3300), (4097, 40_000), (9000, 10**6), (5000, 5000)],
    ],
)
def test_every_kind_of_value_is_added_at_listed_and_at_coded_positions(k, n, kind):
    value, scale, decoded = raw_values(k, kind)
    index, start = positions(k, n), np.random.default_rng(n).standard_normal(n, dtype=np.float32)
    want = start.copy()
    want[index] += np.float32(0.3) * decoded
    code = kernels.encode_index(index, n)
    acc, other = start.copy(), start.copy()
    kernels.scatter_add(acc, index, value, 0.3, kind=kind, scale=scale)
    kernels.scatter_add_coded(other, code, value, 0.3, kind=kind, scale=scale)
    assert_same_bits(acc, want)
    assert_same_bits(other, want)
    scales = np.empty(0, np.float32) if scale is None else scale
    bytes_in = value.view(np.uint8), NUMBERS[kind], scales, 0.3
    for listed, coded in zip(twins("scatter_add"), twins("scatter_add_coded"), strict=True):
        acc, other = start.copy(), start.copy()
        assert listed(acc, index, *bytes_in) == coded(other, code, k, *bytes_in) == -1
        assert_same_bits(acc, want)
        assert_same_bits(other, want)


@pytest.mark.parametrize("gap", [1, 3, 20, 30, 200])
def test_positions_of_any_order_are_added_whatever_is_fetched_ahead(gap):
    generator = np.random.default_rng(gap)
    n = 3000 * gap
    for index in (
        generator.integers(0, n, 3000).astype(np.uint32),
        np.repeat(positions(1500, n), 2),
        positions(3000, n)[::-1].copy(),
        np.concatenate([positions(1500, n), positions(1500, n, 1)]),
    ):
        value, acc, want = raw_values(3000, "float32")[0], np.ones(n, "f4"), np.ones(n, "f4")
        kernels.scatter_add(acc, index, value, 0.7)
        np.add.at(want, index, np.float32(0.7) * value)
        assert_same_bits(acc, want)


@pytest.mark.parametrize(
    "special", [np.nan, np.inf, -np.inf, -0.0, 1e-45, -1e-40, 3.4028235e38, 6e-8]
)
@pytest.mark.parametrize("kind", ["float32", "float16", "bfloat16"])
def test_special_values_are_added_as_numpy_adds_them(special, kind):
    value = np.tile(np.array([special, 1, -0.0], np.float32), 10)
    if kind != "float32":
        value = kernels.to_half(value, kind)
    index, scales = positions(30, 100), np.empty(0, np.float32)
    code, results = kernels.encode_index(index, 100), []
    for add in twins("scatter_add_coded"):
        acc = np.zeros(100, np.float32)
        add(acc, code, 30, value.view(np.uint8), NUMBERS[kind], scales, 0.5)
        results.append(acc)
    for acc in results:
        assert_same_bits(acc, results[0])


def test_a_code_that_leads_outside_is_refused_and_nothing_is_written():
    index = np.arange(0, 91, 9, dtype=np.uint32)
    code, value = kernels.encode_index(index, 91), np.ones(11, np.float32)
    wrong = {"position 10 of the index code is wrong": code.copy()}
    last = 3 * (index.size - 1)
    wrong["position 10 of the index code is wrong"][
        reference.index.lay(11, 91).packed + last // 8
    ] ^= 1 << last % 8
    wrong["the index code does not hold 11 positions"] = np.zeros_like(code)
    wrong["the index code has bits set where none may be"] = code | np.array([0] * 15 + [128], "u1")
    for sentence, hostile in wrong.items():
        acc = np.zeros(91, np.float32)
        with pytest.raises(ValueError, match=sentence):
            kernels.scatter_add_coded(acc, hostile, value)
        assert not acc.any()


def test_random_bitmaps_never_lead_outside():
    generator = np.random.default_rng(5)
    for _ in range(200):
        n = int(generator.integers(1, 3000))
        k = int(generator.integers(1, n + 1))
        at = reference.index.lay(k, n)
        code = generator.integers(0, 256, at.size).astype(np.uint8)
        bitmap = np.zeros(8 * at.packed, np.uint8)
        bitmap[generator.permutation(at.bits)[:k]] = 1
        code[: at.packed] = np.packbits(bitmap, bitorder="little")
        value, scales, results = np.ones(k, np.float32), np.empty(0, np.float32), []
        for add in twins("scatter_add_coded"):
            memory = np.zeros(n + 64, np.float32)
            verdict = add(memory[32:-32], code, k, value.view(np.uint8), 0, scales, 1.0)
            assert not memory[:32].any()
            assert not memory[-32:].any()
            results.append((verdict, memory.tobytes()))
        assert len(set(results)) == 1


def test_values_and_their_kind_must_fit():
    acc, index, value = np.zeros(9, "f4"), np.zeros(3, np.uint32), np.zeros(3, np.float32)
    code = kernels.encode_index(np.arange(3, dtype=np.uint32), 9)
    codes, scale = np.zeros(3, np.int8), np.ones(1, np.float32)
    for call in (
        lambda *args, **kinds: kernels.scatter_add(acc, index, *args, **kinds),
        lambda *args, **kinds: kernels.scatter_add_coded(acc, code, *args, **kinds),
    ):
        with pytest.raises(
            ValueError, match="kind is 'float64', it must be one of float32, float1"
        ):
            call(value, kind="float64")
        with pytest.raises(TypeError, match="value has dtype float32, it must be uint16"):
            call(value, kind="bfloat16")
        with pytest.raises(
            ValueError, match="scale is missing, int8 values need one for each 4096"
        ):
            call(codes, kind="int8")
        with pytest.raises(ValueError, match="scale is given, float32 values have none"):
            call(value, scale=scale)
        with pytest.raises(
            ValueError, match="scale has 2 values, it must have 1, one for each 4096"
        ):
            call(codes, kind="int8", scale=np.ones(2, np.float32))
    with pytest.raises(ValueError, match="there are 10 values for 9 positions"):
        kernels.scatter_add_coded(acc, code, np.zeros(10, np.float32))
    with pytest.raises(
        ValueError, match="code has 24 values, it must have 16, as 3 positions below"
    ):
        kernels.scatter_add_coded(acc, np.zeros(24, np.uint8), value)


@pytest.mark.big
@pytest.mark.timeout(300)
def test_positions_beyond_two_to_the_31_are_reached():
    # Untouched zeros take no memory, so only the pages that are written count.
    n = 2**31 + 8
    acc = np.zeros(n, np.float32)
    index = np.array([0, 5, 2**30, 2**31 - 1, 2**31, 2**31 + 7], np.uint32)
    value = np.arange(1, 7, dtype=np.float32)
    kernels.scatter_add(acc, index, value)
    kernels.scatter_add_coded(acc, kernels.encode_index(index, n), value)
    assert acc[index].tolist() == [2, 4, 6, 8, 10, 12]
    many = np.arange(0, n, 2**20, dtype=np.uint32)
    kernels.scatter_add_coded(acc, kernels.encode_index(many, n), np.ones(many.size, np.float32))
    assert acc[2**20] == 1
    assert acc[2**31] == 11
