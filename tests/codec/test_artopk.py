"""Values at positions that were chosen for all: what is sent, what is kept, and which bytes are none."""

import numpy as np
import pytest

from aiops.codec.artopk import artopk
from aiops.codec.base import ChosenCodec, PlacedCodec
from aiops.codec.topk import kept, topk
from aiops.errors import ConfigError, LocalProtocolError, NotFinite, ShapeMismatch
from aiops.kernels import index_bytes

SIZES = [0, 1, 2, 17, 1000, 5000]
DENSITIES = [1.0, 0.3, 0.01]

each_size = pytest.mark.parametrize("n", SIZES)
each_density = pytest.mark.parametrize("density", DENSITIES)


def drawn(n, *seed):
    return np.random.default_rng([n, *seed]).normal(size=n).astype(np.float32)


def payload_of(arrays):
    return memoryview(b"".join(array.tobytes() for array in arrays))


@each_size
@each_density
def test_at_its_own_choice_it_sends_and_keeps_what_topk_does(n, density):
    codec, update, rest = artopk(density), drawn(n, 1), drawn(n, 2)
    (index, value), kept_back = topk(density).encode(update, rest)
    total = codec.total(update, rest)
    np.testing.assert_array_equal(codec.choose(total), index)
    (sent,), left = codec.at(index, n).encode(update, rest)
    np.testing.assert_array_equal(sent, value)
    np.testing.assert_array_equal(left, kept_back)


@each_size
@each_density
def test_at_anothers_choice_what_is_sent_and_what_is_kept_are_all_there_is(n, density):
    codec, update, rest = artopk(density), drawn(n, 1), drawn(n, 2)
    placed = codec.at(codec.choose(drawn(n, 3)), n)
    before = update.copy(), rest.copy()
    arrays, left = placed.encode(update, rest, spare=np.full(n, np.nan, np.float32))
    np.testing.assert_array_equal((update, rest), before)
    payload = payload_of(arrays)
    assert len(payload) == placed.payload_bytes(n) == codec.payload_bytes(n)
    assert placed.check(payload, n) == -1
    sent = np.zeros(n, np.float32)
    placed.add_to(sent, payload, 1.0)
    # One of the two is zero everywhere, so that their sum is exact.
    np.testing.assert_array_equal(sent + left, update + rest)
    assert not (sent * left).any()


@each_size
@each_density
def test_positions_come_back_from_the_wire(n, density):
    codec = artopk(density)
    index = codec.choose(drawn(n))
    code = codec.write(index, n)
    assert code.nbytes == codec.positions_bytes(n) == index_bytes(kept(density, n), n)
    np.testing.assert_array_equal(codec.read(memoryview(code.tobytes()), n), index)


def test_no_change_of_one_bit_of_positions_gets_through_as_anything_but_positions():
    n, codec = 300, artopk(0.05)
    good = codec.write(codec.choose(drawn(n)), n).tobytes()
    refused = 0
    for bit in range(8 * len(good)):
        bad = bytearray(good)
        bad[bit // 8] ^= 1 << bit % 8
        try:
            index = codec.read(memoryview(bad), n)
        except ShapeMismatch:
            refused += 1
            continue
        assert index.size == 15
        assert (np.diff(index.astype(np.int64)) > 0).all()
        assert index[-1] < n
    assert refused > len(good)


@pytest.mark.parametrize("size", [0, 1, 7, 9, 1000])
def test_positions_of_another_size_are_refused(size):
    with pytest.raises(ShapeMismatch, match=f"artopk positions' payload has {size} bytes"):
        artopk(0.01).read(memoryview(bytes(size)), 300)


def test_positions_that_are_too_few_for_their_size_are_refused():
    with pytest.raises(ShapeMismatch, match="artopk positions: "):
        artopk(0.1).read(memoryview(bytes(artopk(0.1).positions_bytes(100))), 100)


def test_values_of_another_number_or_another_bucket_are_refused():
    placed = artopk(0.1).at(np.arange(10, dtype=np.uint32), 100)
    with pytest.raises(ShapeMismatch, match=r"artopk payload has 44 bytes, .* needs 40"):
        placed.check(memoryview(bytes(44)), 100)
    with pytest.raises(ShapeMismatch, match="positions are of a bucket of 100 values"):
        placed.check(memoryview(bytes(40)), 99)


def test_a_value_that_is_not_finite_is_found_where_it_belongs():
    placed = artopk(0.1).at(np.array([3, 50], np.uint32), 100)
    values = np.array([1, np.nan], np.float32)
    assert placed.check(memoryview(values.tobytes()), 100) == 50
    assert placed.check(memoryview(b"\0" + values.tobytes())[1:], 100) == 50


def test_a_sum_that_overflows_is_refused_with_its_position():
    large = np.array([0, 3e38, 0], np.float32)
    with pytest.raises(NotFinite, match="update plus residual is inf at position 1"):
        artopk(1.0).total(large, large)
    with pytest.raises(NotFinite, match="update plus residual is nan at position 2"):
        artopk(1.0).total(np.array([0, 0, np.nan], np.float32), None)


def test_without_a_choice_nothing_is_sent_and_nothing_is_taken():
    codec, one = artopk(0.5), np.ones(1, np.float32)
    with pytest.raises(LocalProtocolError, match="no positions are chosen"):
        codec.encode(one, None)
    with pytest.raises(LocalProtocolError, match="no positions are chosen"):
        codec.add_to(one, memoryview(b""), 1.0)
    with pytest.raises(ShapeMismatch, match="artopk payload has 4 bytes, and no positions are"):
        codec.check(memoryview(bytes(4)), 1)


def test_who_chooses_and_who_is_placed_are_told_apart():
    codec = artopk(0.5)
    placed = codec.at(np.zeros(1, np.uint32), 2)
    assert isinstance(codec, ChosenCodec)
    assert not isinstance(codec, PlacedCodec)
    assert isinstance(placed, PlacedCodec)
    assert not isinstance(placed, ChosenCodec)
    assert not isinstance(topk(0.5), ChosenCodec | PlacedCodec)
    for one in (codec, placed):
        assert (one.name, one.wire_id, one.dtype) == ("artopk:0.5", 10, "float32")
        np.testing.assert_array_equal(one.init(2), [0, 0])


@pytest.mark.parametrize("density", [0, -1, 1.5, float("nan"), "0.1", True])
def test_a_density_that_is_none_is_refused(density):
    with pytest.raises(ConfigError, match="density is"):
        artopk(density)
