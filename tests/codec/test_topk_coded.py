"""Coded top-k: exact memory whatever the values travel in, few bytes, hostile payloads."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from aiops.codec.int8 import int8
from aiops.codec.topk import topk
from aiops.codec.topk_coded import CodedTopK, topk_bf16, topk_fp16, topk_fp32, topk_int8
from aiops.errors import ConfigError, NotFinite, ShapeMismatch
from aiops.kernels import encode_index, index_bytes

F32 = np.float32
MAKERS = [topk_fp32, topk_fp16, topk_bf16, topk_int8]
each = pytest.mark.parametrize("make", MAKERS, ids=lambda make: make.__name__)
# Sums of two stay below 65504.
moderate = st.floats(-30_000, 30_000, width=32)


def payload_of(parts):
    return memoryview(b"".join(part.tobytes() for part in parts))


def sent(codec, parts, n):
    acc = np.zeros(n, F32)
    payload = payload_of(parts)
    assert codec.check(payload, n) == -1
    codec.add_to(acc, payload, 1.0)
    return acc


def payload(k, code, *values):
    return memoryview(
        k.to_bytes(8, "little") + b"".join(part.tobytes() for part in (code, *values))
    )


def code_of(index, n):
    return encode_index(np.array(index, np.uint32), n)


@each
@pytest.mark.parametrize("density", [0.01, 0.3, 1.0])
@given(
    pair=st.integers(0, 60).flatmap(
        lambda n: st.tuples(*[hnp.arrays("f4", n, elements=moderate) for _ in range(2)])
    )
)
def test_what_is_sent_plus_the_residual_is_the_total_bit_for_bit(make, density, pair):
    update, old = pair
    codec, total = make(density), update + old
    parts, residual = codec.encode(update, old)
    np.testing.assert_array_equal(sent(codec, parts, update.size) + residual, total)


@each
@pytest.mark.parametrize("scale", [1e-44, 1e-38, 1e-8, 6e-5, 1.0, 1e4])
def test_nothing_is_lost_at_any_magnitude(make, scale):
    n, codec = 10_000, make(0.9)
    generator = np.random.default_rng(3)
    update = (scale * generator.standard_normal(n) ** 3).astype(F32)
    if scale == 1e4:
        update = update.clip(-6e4, 6e4)
    parts, residual = codec.encode(update, codec.init(n))
    np.testing.assert_array_equal(sent(codec, parts, n) + residual, update)


@each
def test_the_same_values_are_chosen_as_by_plain_top_k(make):
    update = np.random.default_rng(1).standard_normal(5000, dtype=F32)
    (index, value), _ = topk(0.02).encode(update, None)
    parts, residual = make(0.02).encode(update, None)
    got = sent(make(0.02), parts, 5000)
    np.testing.assert_array_equal(np.flatnonzero(got), index)
    np.testing.assert_allclose(got[index], value, atol=np.abs(value).max() / 250)
    np.testing.assert_array_equal(got[index] + residual[index], value)


def test_what_is_lost_by_rounding_is_sent_later():
    codec, residual, acc = topk_bf16(1.0), None, np.zeros(1, F32)
    for _ in range(3):
        parts, residual = codec.encode(np.array([1 + 2**-9], F32), residual)
        acc += sent(codec, parts, 1)
    assert acc[0] + residual[0] == 3 + 3 * 2**-9
    assert abs(residual[0]) <= 2**-7


@pytest.mark.parametrize(
    ("make", "most"),
    [(topk_fp32, 5.08), (topk_fp16, 3.08), (topk_bf16, 3.08), (topk_int8, 2.08)],
)
def test_a_value_of_a_hundred_takes_few_bytes(make, most):
    n = 10**6
    assert make(0.01).payload_bytes(n) < most * n / 100
    assert topk(0.01).payload_bytes(n) == 8 * n / 100


@each
def test_no_bucket_takes_more_than_the_server_expects(make):
    for n in range(1, 300):
        for density in (1e-9, 0.1, 0.34, 0.5, 1.0):
            assert make(density).payload_bytes(n) <= 8 * n + 32


def test_the_payload_is_count_code_values_little_endian():
    update = np.array([0.0, 1.0, 0.0, -2.0], F32)
    code = code_of([1, 3], 4)
    head = (2).to_bytes(8, "little") + code.tobytes()
    assert payload_of(topk_fp32(0.5).encode(update, None)[0]) == head + b"\0\0\x80\x3f\0\0\0\xc0"
    assert payload_of(topk_fp16(0.5).encode(update, None)[0]) == head + b"\0\x3c\0\xc0"
    assert payload_of(topk_bf16(0.5).encode(update, None)[0]) == head + b"\x80\x3f\0\xc0"
    scale = F32(2 / 127).tobytes()
    assert payload_of(topk_int8(0.5).encode(update, None)[0]) == head + scale + b"\x40\x81"


def test_int8_blocks_have_scales_of_their_own():
    update = np.concatenate([np.full(4096, 127, F32), np.full(4000, 1e-3, F32), [F32(0)]])
    (_, _, scale, code), residual = topk_int8(1.0).encode(update, None)
    assert scale.tolist() == [1.0, F32(1e-3) / F32(127)]
    assert code.tolist() == [127] * 8096 + [0]
    assert not residual[:4096].any()


@pytest.mark.parametrize("largest", [3.4028235e38, 3.4e38, 1e-38, 1e-45, 0.0])
def test_int8_scales_at_the_ends_of_the_range_stay_exact(largest):
    update = np.array([largest, -largest / 3, 0, largest / 254], F32)
    parts, residual = topk_int8(1.0).encode(update, None)
    got = sent(topk_int8(1.0), parts, 4)
    assert np.isfinite(got).all()
    np.testing.assert_array_equal(got + residual, update)


@pytest.mark.parametrize(("make", "large"), [(topk_fp16, 65520.0), (topk_bf16, 3.4e38)])
def test_a_value_beyond_the_16_bit_range_is_named(make, large):
    update = np.array([1.0, 0.0, -large], F32)
    with pytest.raises(NotFinite, match=r"is -.* at position 2, which does not fit b?float16"):
        make(0.5).encode(update, None)
    with pytest.raises(NotFinite, match="update plus residual is inf at position 1"):
        make(0.5).encode(np.array([0, 3e38], F32), np.array([0, 3e38], F32))


CODE = code_of([1, 4, 6], 10)
VALUE = np.ones(3, F32)


@pytest.mark.parametrize(
    ("bytes_in", "sentence"),
    [
        (memoryview(b""), "topk_fp32 payload has 0 bytes, a bucket of 10 values needs at least 8"),
        (memoryview(bytes(7)), "has 7 bytes, a bucket of 10 values needs at least 8"),
        (
            memoryview(bytes(8)),
            "has 8 bytes and counts 0 values, a bucket of 10 values needs 1 to 1",
        ),
        (payload(11, CODE, VALUE), "counts 11 values, a bucket of 10 values needs 1 to 10"),
        (payload(2**64 - 1, CODE, VALUE), "counts 18446744073709551615 values, a bucket of 10"),
        (payload(2, CODE, VALUE), "has 36 bytes, 2 of a bucket of 10 values need 32"),
        (payload(3, CODE, VALUE, VALUE), "has 48 bytes, 3 of a bucket of 10 values need 36"),
        (payload(3, CODE[:-1], VALUE), "has 35 bytes, 3 of a bucket of 10 values need 36"),
        (payload(3, np.zeros_like(CODE), VALUE), "the index code does not hold 3 positions"),
        (payload(3, ~CODE, VALUE), "the index code does not hold 3 positions"),
        (payload(3, CODE ^ np.array([0] * 15 + [1], "u1"), VALUE), "bits set where none may be"),
        (payload(3, CODE ^ np.array([0] * 8 + [4, *[0] * 7], "u1"), VALUE), None),
    ],
)
def test_payloads_that_lie_are_refused(bytes_in, sentence):
    if sentence is None:
        assert topk_fp32(0.5).check(bytes_in, 10) == -1
        return
    with pytest.raises(ShapeMismatch, match=sentence):
        topk_fp32(0.5).check(bytes_in, 10)


def test_positions_that_do_not_ascend_are_refused():
    code = code_of([8, 9], 16)
    code[8] = 0
    with pytest.raises(
        ShapeMismatch, match="topk_fp32 payload: position 1 of the index code is wrong, it must be"
    ):
        topk_fp32(0.5).check(payload(2, code, VALUE[:2]), 16)


@each
def test_code_that_slipped_through_touches_nothing(make):
    codec, acc = make(1.0), np.ones(100, F32)
    data = bytearray(payload_of(codec.encode(np.ones(100, F32), None)[0]))
    data[8 : 8 + index_bytes(100, 100)] = bytes(index_bytes(100, 100))
    with pytest.raises(ValueError, match="the index code does not hold 100 positions"):
        codec.add_to(acc, memoryview(data), 1.0)
    assert (acc == 1).all()


def int8_payload(scale, *values):
    code = code_of([2, 5, 7], 10)
    return payload(3, code, np.array([scale], F32), np.array(values, np.int8))


@pytest.mark.parametrize("scale", [np.nan, np.inf, 3e38, 2.7e36])
def test_int8_scales_that_overflow_are_found(scale):
    assert topk_int8(0.5).check(int8_payload(scale, 0, 127, -127), 10) == 2
    assert topk_int8(0.5).check(int8_payload(2.6e36, 0, 127, -127), 10) == -1


def test_int8_scales_and_codes_that_no_encoder_makes_are_refused():
    with pytest.raises(ShapeMismatch, match=r"topk_int8 scale\[0\] is -1, scales are not negative"):
        topk_int8(0.5).check(int8_payload(-1, 0, 1, 2), 10)
    with pytest.raises(ShapeMismatch, match=r"topk_int8 code\[1\] is -128, codes are -127 to 127"):
        topk_int8(0.5).check(int8_payload(1, 0, -128, 2), 10)


@pytest.mark.parametrize("k", [1, 4095, 4096, 4097, 9000])
def test_int8_values_are_those_of_the_int8_codec(k):
    update = np.random.default_rng(k).standard_normal(k, dtype=F32) ** 3
    (_, _, *coded), rest = topk_int8(1.0).encode(update, None)
    plain, left = int8().encode(update, None)
    assert payload_of(coded) == payload_of(plain)
    np.testing.assert_array_equal(rest, left)


@given(st.data())
def test_random_payloads_of_the_right_size_never_get_past_check_into_the_heap(data):
    make, n = data.draw(st.sampled_from(MAKERS)), data.draw(st.integers(1, 40))
    k = data.draw(st.integers(1, n))
    size = make(k / n)._size(k, n) - 8
    bytes_in = k.to_bytes(8, "little") + data.draw(st.binary(min_size=size, max_size=size))
    memory = np.zeros(n + 32, F32)
    try:
        if make(1.0).check(memoryview(bytes_in), n) == -1:
            make(1.0).add_to(memory[16:-16], memoryview(bytes_in), 1.0)
    except ShapeMismatch:
        pass
    assert not memory[:16].any()
    assert not memory[-16:].any()


@pytest.mark.parametrize("bad", [0, -0.1, 1.01, float("nan"), True, "0.1"])
def test_density_is_a_share(bad):
    with pytest.raises(ConfigError, match=r"topk's density is .*, it must be in \(0, 1\]"):
        topk_int8(bad)


def test_an_unknown_kind_is_refused():
    with pytest.raises(ConfigError, match="topk's kind is 'int4', known are float32, float16"):
        CodedTopK(0.1, "int4")
