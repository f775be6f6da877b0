"""Eight-bit codes: rounding, error feedback, hostile payloads."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from aiops.codec.int8 import int8
from aiops.errors import NotFinite, ShapeMismatch

LARGEST = np.finfo(np.float32).max
moderate = st.floats(-(2.0**100), 2.0**100, width=32)
pairs = st.integers(0, 60).flatmap(
    lambda n: st.tuples(*[hnp.arrays("f4", n, elements=moderate) for _ in range(2)])
)


def payload_of(parts):
    return memoryview(b"".join(part.tobytes() for part in parts))


def payload(scales, codes):
    return payload_of([np.array(scales, np.float32), np.array(codes, np.int8)])


def sent(parts, n):
    acc = np.zeros(n, np.float32)
    int8().add_to(acc, payload_of(parts), 1.0)
    return acc


@given(pairs)
def test_sent_plus_left_is_update_plus_residual_bit_for_bit(arrays):
    update, residual = arrays
    total = update + residual
    parts, left = int8().encode(update, residual)
    arrived = sent(parts, update.size)
    np.testing.assert_array_equal(arrived + left, total)
    # Not by luck of rounding: the sum is exact, so float64 sees the same.
    np.testing.assert_array_equal(arrived.astype(np.float64) + left, total.astype(np.float64))


def test_a_code_counts_127ths_of_the_largest_of_its_block():
    update = np.zeros(5000, np.float32)
    update[[0, 1, 2, 4096, 4097]] = 127.0, -3.0, 0.5, 254.0, -254.0
    (scales, codes), left = int8().encode(update, None)
    assert scales.tolist() == [1, 2]
    assert codes[[0, 1, 2, 4096, 4097]].tolist() == [127, -3, 0, 127, -127]
    assert np.flatnonzero(left).tolist() == [2]
    assert left[2] == 0.5


def test_a_value_too_small_for_a_code_is_sent_once_it_has_added_up():
    update = np.array([127.0, 0.4], np.float32)
    codec, residual, arrived = int8(), None, np.zeros(2, np.float32)
    for _ in range(5):
        parts, residual = codec.encode(update, residual)
        arrived += sent(parts, 2)
    np.testing.assert_array_equal(arrived, [635, 2])


def test_the_payload_is_scales_and_then_codes():
    parts, _ = int8().encode(np.array([2.0, -127.0], np.float32), None)
    assert bytes(payload_of(parts)) == b"\x00\x00\x80\x3f" + b"\x02\x81"


@pytest.mark.parametrize(
    ("n", "size"), [(0, 0), (1, 5), (4096, 4100), (4097, 4105), (10**7, 10_009_768)]
)
def test_four_bytes_are_added_for_every_begun_block(n, size):
    assert int8().payload_bytes(n) == size


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_an_update_that_is_not_finite_is_not_sent(bad):
    update = np.array([1, 2, bad, bad], np.float32)
    with pytest.raises(NotFinite, match=f"update plus residual is {bad} at position 2"):
        int8().encode(update, None)


def test_an_overflow_of_update_and_residual_is_not_sent():
    update = np.array([1, LARGEST], np.float32)
    with pytest.raises(NotFinite, match=r"inf at position 1, the largest float32 is 3.4028e\+38"):
        int8().encode(update, update)


def test_the_largest_update_arrives_finite():
    update = np.array([LARGEST, -LARGEST], np.float32)
    parts, left = int8().encode(update, None)
    assert int8().check(payload_of(parts), 2) == -1
    np.testing.assert_array_equal(sent(parts, 2) + left, update)


@pytest.mark.parametrize("size", [0, 2, 4, 5, 7])
def test_another_size_is_refused_with_both_sizes(size):
    with pytest.raises(
        ShapeMismatch, match=f"^int8 payload has {size} bytes, a bucket of 2 values needs 6$"
    ):
        int8().check(memoryview(bytes(size)), 2)


@pytest.mark.parametrize("at", [0, 1, 4999])
def test_a_code_that_no_encoder_makes_is_refused(at):
    codes = np.zeros(5000, np.int8)
    codes[at:] = -128
    with pytest.raises(ShapeMismatch, match=rf"int8 code\[{at}\] is -128, codes are -127 to 127"):
        int8().check(payload([1, 1], codes), 5000)


@pytest.mark.parametrize("scale", [-1.0, -np.inf, -1e-45])
def test_a_negative_scale_is_refused(scale):
    with pytest.raises(ShapeMismatch, match=r"int8 scale\[1\] is -.*, scales are not negative"):
        int8().check(payload([1, scale], [0] * 5000), 5000)


@pytest.mark.parametrize("scale", [np.nan, -np.nan, np.inf, LARGEST, LARGEST / 126])
def test_a_scale_that_makes_values_infinite_is_found(scale):
    assert int8().check(payload([1, scale], [0] * 5000), 5000) == 4096


def test_nan_does_not_hide_a_negative_scale():
    with pytest.raises(ShapeMismatch, match=r"scale\[1\] is -1"):
        int8().check(payload([np.nan, -1], [0] * 5000), 5000)
