"""Top-k: what is chosen, what is kept, what is refused."""

from __future__ import annotations

import numpy as np
import pytest

from aiops.codec.topk import topk
from aiops.errors import ConfigError, NotFinite, ShapeMismatch

F32 = np.float32


def payload(index, value):
    return memoryview(np.array(index, np.uint32).tobytes() + np.array(value, F32).tobytes())


@pytest.mark.parametrize(
    ("density", "n", "k"),
    [
        (0.01, 0, 0),
        (0.01, 1, 1),
        (0.01, 50, 1),
        (0.01, 149, 1),
        (0.01, 151, 2),
        (0.01, 1000, 10),
        (0.5, 5, 2),  # 2.5 goes to the even neighbour
        (0.5, 7, 4),  # 3.5 too
        (1.0, 17, 17),
        (1, 17, 17),
        (1e-12, 10**6, 1),
        (0.99999, 10, 10),
    ],
)
def test_how_many_values_are_sent(density, n, k):
    codec = topk(density)
    assert codec.payload_bytes(n) == 8 * k
    (index, value), _ = codec.encode(np.ones(min(n, 1000), F32), None)
    if n <= 1000:
        assert index.size == value.size == k


def test_the_largest_magnitudes_are_sent_and_the_rest_is_kept():
    update = np.array([0.5, -4.0, 1.0, 3.0, -0.25], F32)
    (index, value), residual = topk(0.4).encode(update, topk(0.4).init(5))
    assert index.tolist() == [1, 3]
    assert value.tolist() == [-4.0, 3.0]
    assert residual.tolist() == [0.5, 0.0, 1.0, 0.0, -0.25]
    assert index.dtype == np.uint32
    assert value.dtype == residual.dtype == np.float32


def test_of_equal_magnitudes_the_lower_index_is_sent():
    (index, _), _ = topk(0.5).encode(np.array([1.0, -1.0, 1.0, -1.0], F32), None)
    assert index.tolist() == [0, 1]


def test_what_was_kept_is_sent_when_it_has_grown():
    codec, residual, chosen = topk(0.25), None, []
    for _ in range(4):
        ((index,), (value,)), residual = codec.encode(np.array([4.0, 2.0, 0.0, 0.0], F32), residual)
        chosen.append((int(index), float(value)))
    # 4 of (4, 2); 4 of (4, 4), the lower index; 6 of (4, 6); 4 of (8, 2) with its own residual.
    assert chosen == [(0, 4.0), (0, 4.0), (1, 6.0), (0, 8.0)]
    assert residual.tolist() == [0.0, 2.0, 0.0, 0.0]


def test_without_a_residual_it_starts_from_zeros():
    update = np.arange(10, dtype=F32)
    (index, value), residual = topk(0.3).encode(update, None)
    (index_0, value_0), residual_0 = topk(0.3).encode(update, topk(0.3).init(10))
    np.testing.assert_array_equal(index, index_0)
    np.testing.assert_array_equal(value, value_0)
    np.testing.assert_array_equal(residual, residual_0)


def test_a_refused_push_is_repeated_from_the_old_residual():
    codec, update = topk(0.2), np.linspace(-1, 1, 10, dtype=F32)
    _, old = codec.encode(update, codec.init(10))
    first = codec.encode(update, old)
    second = codec.encode(update, old)
    for one, two in zip((*first[0], first[1]), (*second[0], second[1]), strict=True):
        np.testing.assert_array_equal(one, two)


def test_the_payload_is_indices_then_values_little_endian():
    parts, _ = topk(0.5).encode(np.array([0.0, 1.0, 0.0, -2.0], F32), None)
    sent = b"".join(part.tobytes() for part in parts)
    assert sent == b"\1\0\0\0\3\0\0\0" + b"\0\0\x80\x3f\0\0\0\xc0"


def test_foreign_order_and_duplicates_add_up():
    acc = np.ones(4, F32)
    bytes_in = payload([3, 0, 3], [2.0, 4.0, 6.0])
    assert topk(0.5).check(bytes_in, 4) == -1
    topk(0.5).add_to(acc, bytes_in, 0.5)
    assert acc.tolist() == [3.0, 1.0, 1.0, 5.0]


def test_any_density_decodes():
    acc = np.zeros(3, F32)
    topk(0.001).add_to(acc, payload([0, 1, 2], [1.0, 2.0, 3.0]), 1.0)
    assert acc.tolist() == [1.0, 2.0, 3.0]


@pytest.mark.parametrize(
    ("index", "sentence"),
    [
        ([3, 4, 0], r"^topk index\[1\] is 4, the bucket has 4 values$"),
        ([0, 4, 5], r"^topk index\[1\] is 4, the bucket has 4 values$"),
        ([0, 1, 2**32 - 1], r"index\[2\] is 4294967295, the bucket has 4 values"),
        ([2**31, 1, 0], r"index\[0\] is 2147483648"),
    ],
)
def test_every_index_is_range_checked(index, sentence):
    with pytest.raises(ShapeMismatch, match=sentence):
        topk(0.5).check(payload(index, [1.0] * 3), 4)


def test_an_index_that_slipped_through_touches_nothing():
    acc = np.ones(4, F32)
    with pytest.raises(IndexError):
        topk(0.5).add_to(acc, payload([0, 9], [1.0, 1.0]), 1.0)
    assert acc.tolist() == [1.0] * 4


@pytest.mark.parametrize(
    ("size", "n", "needed"),
    [
        (0, 4, "1 to 4"),
        (4, 4, "1 to 4"),
        (9, 4, "1 to 4"),
        (40, 4, "1 to 4"),
        (8, 0, "0 to 0"),
    ],
)
def test_another_size_is_refused(size, n, needed):
    with pytest.raises(
        ShapeMismatch,
        match=f"^topk payload has {size} bytes, a bucket of {n} values needs 8 each for {needed}",
    ):
        topk(0.5).check(memoryview(bytes(size)), n)


def test_a_value_that_is_not_finite_is_named_by_its_place_in_the_bucket():
    assert topk(0.5).check(payload([7, 2, 5], [1.0, np.nan, np.inf]), 8) == 2


def test_an_overflow_of_the_memory_is_refused():
    huge = np.array([0.0, 3e38], F32)
    with pytest.raises(NotFinite, match="update plus residual is inf at position 1, the largest"):
        topk(0.5).encode(huge, huge)
    assert huge.tolist() == [0.0, float(F32(3e38))]


def test_other_faults_of_the_kernel_are_not_disguised():
    with pytest.raises(ValueError, match="has 2 dimensions, it must have 1"):
        topk(0.5).encode(np.ones((2, 2), F32), None)


def test_a_spare_receives_the_residual():
    update, old, spare = np.array([1.0, 5.0, -2.0], F32), np.ones(3, F32), np.full(3, np.nan, F32)
    (index, value), residual = topk(0.3).encode(update, old, spare=spare)
    assert residual is spare
    assert (index.tolist(), value.tolist(), residual.tolist()) == ([1], [6.0], [2.0, 0.0, -1.0])
    assert (update.tolist(), old.tolist()) == ([1.0, 5.0, -2.0], [1.0] * 3)
    with pytest.raises(ValueError, match="out has 2 values, it must have 3"):
        topk(0.3).encode(update, old, spare=spare[:2])


@pytest.mark.parametrize("bad", [0, 0.0, -0.1, 1.01, float("nan"), float("inf"), True, "0.1", None])
def test_density_is_a_share(bad):
    with pytest.raises(ConfigError, match=r"topk's density is .*, it must be in \(0, 1\]"):
        topk(bad)
