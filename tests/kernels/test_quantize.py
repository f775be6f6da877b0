import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from aiops import kernels
from aiops.kernels import INT8_BLOCK, _backend, reference
from tests.kernels.kit import BAD, LEVELS, assert_same_bits, noise, on_level, shifted

SIZES = [0, 1, 15, 16, 17, 1000, 4095, 4096, 4097, 10_000]
LARGEST = np.finfo(np.float32).max
TINY = np.finfo(np.float32).smallest_normal

each_level = pytest.mark.parametrize("level", LEVELS)
each_size = pytest.mark.parametrize("n", SIZES)


def blocks(n):
    return -(-n // INT8_BLOCK)


def encoded(x, level, residual=None):
    """Scales, codes and what is left, of finite values."""
    scales, codes = np.full(blocks(x.size), 7, np.float32), np.full(x.size, 7, np.int8)
    left = None if residual is None else np.full(x.size, 7, np.float32)
    to_int8 = _backend.quantize.to_int8
    assert on_level(to_int8, x, residual, scales, codes, left, level=level) == -1
    return scales, codes, left


def decoded(scales, codes):
    return np.repeat(scales, INT8_BLOCK)[: codes.size] * codes.astype(np.float32)


def twin_of(x, residual=None):
    scales, codes = np.empty(blocks(x.size), np.float32), np.empty(x.size, np.int8)
    left = None if residual is None else np.empty(x.size, np.float32)
    assert reference.to_int8(x, residual, scales, codes, left) == -1
    return scales, codes, left


def assert_same_encoding(got, want):
    assert_same_bits(got[0], want[0])
    np.testing.assert_array_equal(got[1], want[1])
    if want[2] is not None:
        assert_same_bits(got[2], want[2])


# Halves of a scale, where rounding decides, besides values of every size.
near_ties = st.tuples(st.integers(-254, 254), st.integers(-2, 2)).map(
    lambda pair: float(np.float32(pair[0] / 2) + np.float32(pair[1]) * np.float32(2**-17))
)
values = hnp.arrays(
    "f4",
    st.integers(0, 80),
    elements=near_ties | st.floats(width=32, allow_nan=False, allow_infinity=False),
)
tiny = hnp.arrays("u4", st.integers(0, 80), elements=st.integers(0, 2**24)).map(
    lambda bits: bits.view("f4")
)


@given(values | tiny)
def test_every_instruction_set_gives_the_codes_of_the_reference(x):
    want = twin_of(x)
    for level in LEVELS:
        assert_same_encoding(encoded(x, level), want)


@given(values | tiny, st.data())
def test_what_is_sent_plus_what_is_left_is_the_sum_bit_for_bit(x, data):
    element = st.floats(-1e3, 1e3, width=32)
    residual = data.draw(hnp.arrays("f4", x.size, elements=element))
    total = x + residual
    want = twin_of(x, residual)
    for level in LEVELS:
        scales, codes, left = encoded(x, level, residual)
        assert_same_encoding((scales, codes, left), want)
        back = decoded(scales, codes)
        np.testing.assert_array_equal(back + left, total)
        np.testing.assert_array_equal(back.astype("f8") + left, total.astype("f8"))


@each_level
@pytest.mark.parametrize("exponent", [-126, -100, 0, 7, 100, 120])
def test_values_beside_every_half_get_the_codes_of_the_division(exponent, level):
    # 31 scales of one size, and under each of them the floats next to every half of a code.
    mantissas = np.random.default_rng(exponent + 200).uniform(1, 2, 31)
    scales = np.ldexp(mantissas, exponent).astype(np.float32)
    halves = (np.arange(-253, 254, 2) / 2)[:, None] * scales.astype(np.float64)[:, None, None]
    beside = halves * (1 + np.arange(-7, 8) * 2.0**-24)
    x = np.zeros((31, INT8_BLOCK), np.float32)
    x[:, : beside[0].size] = beside.reshape(31, -1)
    x[:, -1] = scales * np.float32(127)
    assert_same_encoding(encoded(x.reshape(-1), level), twin_of(x.reshape(-1)))


@each_level
@each_size
@pytest.mark.parametrize("shift", [0, 1, 13])
def test_every_size_and_alignment(n, shift, level):
    x, residual = shifted(noise(n, 1), shift), shifted(noise(n, 2), shift)
    assert_same_encoding(encoded(x, level), twin_of(x))
    assert_same_encoding(encoded(x, level, residual), twin_of(x, residual))


@each_level
def test_every_block_has_the_scale_of_its_largest_value(level):
    x = np.ones(3 * INT8_BLOCK - 1, np.float32)
    x[5], x[INT8_BLOCK + 7], x[-1] = -127.0, 254.0, 12.7
    scales, codes, _ = encoded(x, level)
    np.testing.assert_array_equal(scales, np.array([127, 254, 12.7], "f4") / np.float32(127))
    assert codes[[5, INT8_BLOCK + 7, -1]].tolist() == [-127, 127, 127]
    assert codes[0] == 1
    assert codes[INT8_BLOCK] == 0, "0.5 is half-way between 0 and 1: the even one"


@each_level
def test_half_way_goes_to_the_even_code(level):
    halves = np.arange(-253, 254, 2, dtype=np.float32) / 2
    scales, codes, _ = encoded(np.append(halves, np.float32(127)), level)
    assert scales.tolist() == [1]
    assert codes.tolist() == [round(h) for h in halves.tolist()] + [127]


@each_level
@pytest.mark.parametrize("largest", [0.0, -0.0, 1e-45, 126 * TINY, 126.9999 * TINY])
def test_a_block_of_next_to_nothing_is_sent_as_zeros_and_stays_in_the_residual(largest, level):
    x = np.full(100, largest, np.float32)
    scales, codes, left = encoded(x, level, np.zeros_like(x))
    assert scales.tolist() == [0]
    assert not codes.any()
    np.testing.assert_array_equal(left, x)


@each_level
def test_the_smallest_and_the_largest_scale_stand_for_finite_values(level):
    for largest in (np.float32(127) * TINY, LARGEST, np.nextafter(LARGEST, np.float32(0))):
        x = np.array([largest, -largest, largest / 3], np.float32)
        scales, codes, left = encoded(x, level, np.zeros_like(x))
        assert scales[0] > 0
        assert codes[:2].tolist() == [127, -127]
        assert np.isfinite(decoded(scales, codes)).all()
        np.testing.assert_array_equal(decoded(scales, codes) + left, x)
        assert_same_encoding((scales, codes, left), twin_of(x, np.zeros_like(x)))


@each_level
@pytest.mark.parametrize("with_residual", [False, True])
@pytest.mark.parametrize("bad", BAD)
@pytest.mark.parametrize("at", [0, 15, 4095, 4096, 8191, 8200])
def test_the_first_value_that_is_not_finite_is_named(at, bad, with_residual, level):
    x, residual, left = noise(8201), noise(8201, 1), noise(8201, 2)
    (residual if with_residual else x)[at:] = bad
    scales, codes = np.empty(3, np.float32), np.empty(8201, np.int8)
    rest = (residual, left) if with_residual else (None, None)
    arguments = x, rest[0], scales, codes, rest[1]
    assert on_level(_backend.quantize.to_int8, *arguments, level=level) == at
    assert reference.to_int8(*arguments) == at


def test_a_sum_that_overflows_is_named():
    x = np.array([1, 3e38], np.float32)
    scales, codes, left = np.empty(1, "f4"), np.empty(2, "i1"), np.empty(2, "f4")
    assert kernels.to_int8(x, scales=scales, codes=codes, residual=x, left=left) == 1


def test_the_next_residual_may_take_the_place_of_the_old_one():
    x, residual = noise(5000, 1), noise(5000, 2)
    want = twin_of(x, residual)
    scales, codes = np.empty(2, np.float32), np.empty(5000, np.int8)
    kernels.to_int8(x, scales=scales, codes=codes, residual=residual, left=residual)
    assert_same_encoding((scales, codes, residual), want)


@pytest.mark.parametrize("given_name", ["residual", "left"])
def test_residual_and_left_go_together(given_name):
    out = {"scales": np.empty(1, "f4"), "codes": np.empty(3, "i1"), given_name: noise(3)}
    with pytest.raises(ValueError, match="residual and left go together"):
        kernels.to_int8(noise(3), **out)


@each_level
@each_size
@pytest.mark.parametrize("shift", [0, 3])
def test_adding_codes_is_decoding_and_then_adding(n, shift, level):
    scales = np.abs(noise(blocks(n)))
    codes = np.random.default_rng(n).integers(-128, 128, n, np.int8)
    acc = shifted(noise(n, 4), shift)
    want = acc + np.float32(0.3) * decoded(scales, codes)
    twin = acc.copy()
    on_level(_backend.quantize.add_int8, acc, scales, codes, 0.3, level=level)
    reference.add_int8(twin, scales, codes, 0.3)
    assert_same_bits(acc, want)
    assert_same_bits(twin, want)


def test_the_face_adds_in_place():
    acc = np.array([1, 2], np.float32)
    kernels.add_int8(acc, np.array([0.5], "f4"), np.array([4, -8], "i1"), 0.5)
    assert acc.tolist() == [2, 0]


@given(hnp.arrays("i1", st.integers(0, 40)), st.integers(-128, 127))
def test_first_code_is_where_a_plain_search_finds_it(codes, code):
    want = codes.tolist().index(code) if code in codes.tolist() else -1
    assert kernels.first_code(codes, code) == want
    assert reference.first_code(codes, code) == want


@pytest.mark.parametrize("code", [-129, 128])
def test_a_code_has_eight_bits(code):
    with pytest.raises(ValueError, match=f"code is {code}, it must be in -128..127"):
        kernels.first_code(np.zeros(3, "i1"), code)


@pytest.mark.big
@pytest.mark.timeout(600)
@pytest.mark.skipif(not kernels.COMPILED, reason="numpy would need several copies of 8 GiB")
def test_positions_beyond_31_bits():
    n = 2**31 + 8
    # Untouched zeros take no memory; the codes take 2 GiB.
    x, scales, codes = np.zeros(n, np.float32), np.empty(blocks(n), np.float32), np.empty(n, "i1")
    x[-2:] = 127, np.nan
    assert kernels.to_int8(x, scales=scales, codes=codes) == n - 1
    x[-1] = -2
    assert kernels.to_int8(x, scales=scales, codes=codes) == -1
    assert codes[-3:].tolist() == [0, 127, -2]
    assert kernels.first_code(codes, -2) == n - 1
