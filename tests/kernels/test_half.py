import math
import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from aiops import kernels
from aiops.kernels import _backend, reference
from tests.kernels.kit import LEVELS, noise, on_level, rounded, shifted

KINDS = ["float16", "bfloat16"]
EVERY_HALF = np.arange(2**16, dtype=np.uint16)

# Widened halves and what lies just beside them, where rounding decides, besides arbitrary floats.
near_halves = st.integers(0, 2**16 - 1).flatmap(
    lambda h: st.sampled_from([h << 16, (h << 16) + 0x8000, (h << 16) + 0x7FFF, (h << 16) + 0x8001])
)
near_float16 = st.tuples(st.integers(0, 2**19 - 1), st.integers(-1, 1)).map(
    lambda pair: (0x33000000 + (pair[0] << 12) + pair[1]) % 2**32
)
raw = hnp.arrays(
    "u4", st.integers(0, 50), elements=near_halves | near_float16 | st.integers(0, 2**32 - 1)
)


def number_of(half, kind):
    """What 16 bits stand for, by the rules of Python's struct module."""
    if kind == "float16":
        return struct.unpack("<e", struct.pack("<H", half))[0]
    return struct.unpack("<f", struct.pack("<I", half << 16))[0]


def half_of(number, kind):
    """The 16 bits nearest to a float32, half to even, found without numpy; None for NaN."""
    if math.isnan(number):
        return None
    if kind == "float16":
        # struct refuses what rounds to infinity: half a unit above the largest half, and more.
        number = math.copysign(math.inf, number) if abs(number) >= 65520 else number
        return struct.unpack("<H", struct.pack("<e", number))[0]
    below = struct.unpack("<I", struct.pack("<f", number))[0] >> 16
    above = below + 1
    if number_of(below, kind) == number:
        return below
    upper = abs(number_of(above, kind))
    upper = 2.0**128 if math.isinf(upper) else upper
    down, up = abs(number) - abs(number_of(below, kind)), upper - abs(number)
    return below if down < up or (down == up and below % 2 == 0) else above


def assert_halves(got, want, kind):
    """Equal, but for the payload of NaN."""
    nan = [w is None for w in want]
    assert [math.isnan(number_of(g, kind)) for g in got.tolist()] == nan
    assert [g for g, n in zip(got.tolist(), nan, strict=True) if not n] == [
        w for w in want if w is not None
    ]


def encoded(x, kind, level):
    if level is None:
        return kernels.to_half(x, kind)
    out = np.empty(x.size, np.uint16)
    _backend.half.to_half(x, kind == "bfloat16", out, level)
    return out


def decoded(half, kind, level):
    if level is None:
        return kernels.from_half(half, kind)
    out = np.empty(half.size, np.float32)
    _backend.half.from_half(half, kind == "bfloat16", out, level)
    return out


@pytest.mark.parametrize("kind", KINDS)
@given(raw)
def test_encoding_rounds_to_nearest_and_half_to_even(kind, bits):
    x = bits.view(np.float32)
    want = [half_of(number, kind) for number in x.tolist()]
    for level in LEVELS:
        assert_halves(encoded(x, kind, level), want, kind)
    twin = np.empty(x.size, np.uint16)
    reference.to_half(x, kind == "bfloat16", twin)
    assert_halves(twin, want, kind)


@pytest.mark.parametrize("kind", KINDS)
def test_every_half_decodes_to_the_number_it_stands_for(kind):
    want = np.array([number_of(h, kind) for h in EVERY_HALF.tolist()], np.float32)
    for level in LEVELS:
        np.testing.assert_array_equal(decoded(EVERY_HALF, kind, level), want)
    twin = np.empty(want.size, np.float32)
    reference.from_half(EVERY_HALF, kind == "bfloat16", twin)
    np.testing.assert_array_equal(twin, want)
    np.testing.assert_array_equal(np.signbit(twin), np.signbit(want))


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("kind", KINDS)
def test_every_half_survives_the_way_there_and_back(kind, level):
    back = encoded(decoded(EVERY_HALF, kind, level), kind, level)
    number = ~np.isnan(kernels.from_half(EVERY_HALF, kind))
    np.testing.assert_array_equal(back[number], EVERY_HALF[number])
    assert np.isnan(kernels.from_half(back, kind)[~number]).all()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("level", LEVELS)
def test_nan_of_any_payload_stays_nan_in_every_lane(level, kind):
    for bits in (0x7F800001, 0x7FBFFFFF, 0x7FC00000, 0x7FFFFFFF, 0xFF800001, 0xFFFFFFFF):
        x = np.full(17, bits, np.uint32).view(np.float32)
        assert np.isnan(kernels.from_half(encoded(x, kind, level), kind)).all()


@pytest.mark.parametrize("n", [0, 1, 7, 8, 15, 16, 17, 1000])
@pytest.mark.parametrize("kind", KINDS)
def test_every_instruction_set_gives_the_same_bits_at_every_size(kind, n):
    x = np.random.default_rng(n).standard_normal(n, dtype=np.float32) * np.float32(1e-4)
    want = np.empty(n, np.uint16)
    reference.to_half(x, kind == "bfloat16", want)
    for level in LEVELS:
        np.testing.assert_array_equal(encoded(x, kind, level), want)


@pytest.mark.parametrize("shift", [0, 1, 8, 13])
@pytest.mark.parametrize("n", [100, 8 * 2**20 // 6 + 21])
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("kind", KINDS)
def test_every_alignment_gives_the_same_bits_within_the_caches_and_beyond(kind, level, n, shift):
    x = shifted(noise(n), shift)
    bits, back = np.empty(n, np.uint16), np.empty(n, np.float32)
    reference.to_half(x, kind == "bfloat16", bits)
    reference.from_half(bits, kind == "bfloat16", back)
    mine, widened = shifted(np.zeros_like(bits), shift), shifted(np.zeros_like(x), shift)
    on_level(_backend.half.to_half, x, kind == "bfloat16", mine, level=level)
    on_level(_backend.half.from_half, mine, kind == "bfloat16", widened, level=level)
    np.testing.assert_array_equal(mine, bits)
    np.testing.assert_array_equal(widened, back)


@pytest.mark.parametrize("kind", KINDS)
def test_encoding_equals_that_of_torch(kind):
    torch = pytest.importorskip("torch")
    bits = np.random.default_rng(3).integers(0, 2**32, 100_000, np.uint32)
    x = bits.view(np.float32)
    want = torch.from_numpy(x).to(getattr(torch, kind)).view(torch.int16).numpy().view(np.uint16)
    number = ~np.isnan(x)
    got = kernels.to_half(x, kind)
    np.testing.assert_array_equal(got[number], want[number])
    assert kernels.first_nonfinite_half(got[~number], kind) == 0


def test_float16_encoding_equals_the_cast_of_numpy():
    bits = np.random.default_rng(4).integers(0, 2**32, 100_000, np.uint32)
    x = bits.view(np.float32)[~np.isnan(bits.view(np.float32))]
    with np.errstate(all="ignore"):
        want = x.astype(np.float16).view(np.uint16)
    np.testing.assert_array_equal(kernels.to_half(x, "float16"), want)


@pytest.mark.parametrize("kind", KINDS)
@given(
    hnp.arrays("u2", st.integers(0, 40), elements=st.integers(0, 2**16 - 1)),
    st.floats(-2, 2, width=32),
    st.floats(width=32),
)
def test_adding_halves_is_decoding_and_then_adding(kind, half, weight, start):
    numbers = [number_of(h, kind) for h in half.tolist()]
    want = np.array([rounded(start + rounded(weight * v)) for v in numbers], np.float32)
    results = []
    for level in LEVELS:
        acc = np.full(half.size, start, np.float32)
        if level is None:
            kernels.add_half(acc, half, weight, kind)
        else:
            _backend.half.add_half(acc, half, weight, kind == "bfloat16", level)
        results.append(acc)
    twin = np.full(half.size, start, np.float32)
    reference.add_half(twin, half, weight, kind == "bfloat16")
    for acc in [*results, twin]:
        np.testing.assert_array_equal(acc, want)


@pytest.mark.parametrize("kind", KINDS)
def test_the_face_adds_in_place(kind):
    acc = np.array([1, 2], np.float32)
    kernels.add_half(acc, kernels.to_half(np.array([4, -8], np.float32), kind), 0.5, kind)
    assert acc.tolist() == [3, -2]


@pytest.mark.parametrize("kind", KINDS)
def test_the_faces_fill_and_return_the_arrays_they_are_given(kind):
    x = np.array([0.5, -3], np.float32)
    bits, back = np.empty(2, np.uint16), np.empty(2, np.float32)
    assert kernels.to_half(x, kind, out=bits) is bits
    assert kernels.from_half(bits, kind, out=back) is back
    assert back.tolist() == [0.5, -3]


@pytest.mark.parametrize("kind", KINDS)
@given(hnp.arrays("u2", st.integers(0, 40), elements=st.integers(0, 2**16 - 1)))
def test_first_nonfinite_half_is_where_a_plain_search_finds_it(kind, half):
    numbers = [number_of(h, kind) for h in half.tolist()]
    want = next((i for i, v in enumerate(numbers) if not math.isfinite(v)), -1)
    assert kernels.first_nonfinite_half(half, kind) == want
    assert reference.first_nonfinite_half(half, kind == "bfloat16") == want


@pytest.mark.parametrize(("kind", "infinity"), [("float16", 0x7C00), ("bfloat16", 0x7F80)])
@pytest.mark.parametrize("at", [0, 511, 512, 1029])
def test_the_first_of_several_halves_is_named(at, kind, infinity):
    half = np.full(1030, infinity - 1, np.uint16)
    assert kernels.first_nonfinite_half(half, kind) == -1
    half[at:] = infinity | 0x8000
    assert kernels.first_nonfinite_half(half, kind) == at


def test_an_unknown_kind_is_refused():
    with pytest.raises(ValueError, match="kind is 'float8', it must be 'float16' or 'bfloat16'"):
        kernels.to_half(np.ones(1, np.float32), "float8")
