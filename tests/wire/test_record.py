"""Records as bytes: what is packed comes back, and no other bytes are believed."""

import math
import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from aiops.errors import ConfigError, ShapeMismatch
from aiops.wire.record import RECORD_DTYPES, Form, Records, pack_records, unpack_records

HEAD = struct.Struct("<BBHI")


@st.composite
def batches(draw):
    dtype = draw(st.sampled_from(list(RECORD_DTYPES.values())))
    n = draw(st.integers(0, 5))
    shape = (n, *draw(arrays.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4)))
    samples = draw(arrays.arrays(dtype, shape))
    labels = draw(arrays.arrays(np.int64, n))
    return samples, labels


def same(found, samples, labels):
    assert found.samples.dtype == samples.dtype
    assert found.samples.shape == samples.shape
    assert found.samples.tobytes() == samples.tobytes()
    np.testing.assert_array_equal(found.labels, labels)


@given(batches())
def test_what_is_packed_comes_back(batch):
    data = pack_records(Records.of(*batch))
    same(unpack_records(data.data), *batch)


@given(batches(), st.data())
def test_no_other_length_is_believed(batch, data):
    packed = pack_records(Records.of(*batch)).tobytes()
    cut = data.draw(st.integers(0, len(packed) - 1))
    for forged in (packed[:cut], packed + b"\0"):
        with pytest.raises(ShapeMismatch, match="records have"):
            unpack_records(memoryview(forged))


@given(st.binary(max_size=80))
def test_any_bytes_are_records_of_exactly_their_length_or_none(data):
    try:
        found = unpack_records(memoryview(data))
    except ShapeMismatch:
        return
    assert pack_records(found).tobytes() == data


def test_the_layout_by_hand():
    x = np.arange(12, dtype=np.uint8).reshape(2, 3, 2)
    data = pack_records(Records.of(x, [7, -1])).tobytes()
    assert data == (
        bytes([1, 2, 0, 0, 2, 0, 0, 0])
        + struct.pack("<QQ", 3, 2)
        + struct.pack("<qq", 7, -1)
        + bytes(range(12))
    )
    assert Form(1, (3, 2)).size_bytes(2) == len(data)
    assert not unpack_records(memoryview(data)).samples.flags.writeable


def test_a_cifar_image_takes_3_kb_and_its_label_8_bytes():
    assert Form(1, (32, 32, 3)).size_bytes(1) == 8 + 3 * 8 + 8 + 3072


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (b"", "records have 0 bytes, the head alone has 8"),
        (HEAD.pack(0, 0, 0, 0), "records say dtype 0"),
        (HEAD.pack(12, 0, 0, 0), "records say dtype 12, 0 axes and 0, what there is are dtypes 1 to 11"),
        (HEAD.pack(1, 9, 0, 0) + bytes(72), "9 axes"),
        (HEAD.pack(1, 0, 5, 0), "0 axes and 5"),
        (HEAD.pack(1, 2, 0, 0) + bytes(8), "records have 16 bytes, their head has 24"),
        # 2^32 - 1 samples of 2^30 bytes: said, and not believed.
        (HEAD.pack(1, 1, 0, 2**32 - 1) + struct.pack("<Q", 2**30), f"take {16 + (2**32 - 1) * (8 + 2**30)}"),
        # No samples, or samples of no bytes, of a shape that no array has.
        (HEAD.pack(1, 1, 0, 0) + b"\xff" * 8, r"records are uint8 of shape \(18446744073709551615,\), the limit"),
        (HEAD.pack(1, 2, 0, 1) + struct.pack("<QQ", 0, 2**40) + bytes(8), "the limit is 1073741824 bytes"),
        # What wraps around to the right length in 64 bits.
        (HEAD.pack(1, 2, 0, 1) + struct.pack("<QQ", 2**32, 2**32) + bytes(8), "the limit is"),
    ],
)  # fmt: skip
def test_what_is_forged_is_refused_before_memory_is_taken(data, sentence):
    with pytest.raises(ShapeMismatch, match=sentence):
        unpack_records(memoryview(data))


@pytest.mark.parametrize(
    ("samples", "labels", "sentence"),
    [
        (np.zeros((2, 3), bool), [0, 1], "samples are bool, what can be shared is uint8"),
        (np.array(["a"]), [0], "samples are <U1"),
        (np.zeros(()), [0], "samples have 0 axes, it must be 1 to 9"),
        (np.zeros((1,) * 10), [0], "samples have 10 axes"),
        (np.zeros((2, 3)), [0], r"labels have shape \(1,\), for 2 samples it is \(2,\)"),
        (np.zeros((1, 0, 2**31)), [0], "the limit is 1073741824 bytes for one"),
        (np.zeros((1, 3)), [0.5], "labels are float64, they must be whole numbers"),
        (np.zeros((1, 3)), np.array([1], np.uint64), "labels are uint64"),
    ],
)
def test_what_is_no_batch_is_refused(samples, labels, sentence):
    with pytest.raises(ConfigError, match=sentence):
        Records.of(samples, labels)


def test_others_join_behind():
    x = np.arange(6, dtype=np.float32).reshape(3, 2)
    own = Records.of(x, [0, 1, 2])
    whole = own.first(1).join([own.take([2, 0]), own.first(0)])
    np.testing.assert_array_equal(whole.samples, x[[0, 2, 0]])
    assert whole.labels.tolist() == [0, 2, 0]
    assert not np.shares_memory(whole.samples, x)
    # Who has none takes what it gets, whatever it thought samples look like.
    nothing = Records.of([], [])
    same(nothing.join([own]), x, [0, 1, 2])
    assert len(nothing.join([])) == 0
    other = Records.of(np.zeros((1, 3), np.uint8), [4])
    with pytest.raises(ShapeMismatch, match=r"uint8 of shape \(3,\), those here are float32"):
        own.join([other])


def test_odd_memory_is_packed_as_it_reads():
    x = np.arange(24, dtype=">i4").reshape(2, 3, 4)[:, ::2].transpose(0, 2, 1)
    same(unpack_records(pack_records(Records.of(x, [1, 2])).data), x.astype("<i4"), [1, 2])
    assert math.prod(x.shape) == 16
