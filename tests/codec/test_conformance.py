"""What every codec promises, swept over sizes and over where the numbers came from."""

from __future__ import annotations

import contextlib
import copy
import pickle
from dataclasses import FrozenInstanceError, fields

import numpy as np
import pytest

from aiops.codec.dense import dense
from aiops.codec.half import bf16, fp16
from aiops.codec.int8 import int8
from aiops.codec.table import CODEC, by_wire_id
from aiops.codec.topk import topk
from aiops.codec.topk_coded import topk_bf16, topk_fp16, topk_fp32, topk_int8
from aiops.config import parse_codec
from aiops.errors import NotFinite, ShapeMismatch
from aiops.kernels import decode_index, from_half, index_bytes, to_half
from aiops.types import DTYPE_IDS

CODED = [topk_fp32, topk_fp16, topk_bf16, topk_int8]
CODECS = [
    *[dense(), fp16(), bf16(), int8()],
    *[make(density) for make in (topk, *CODED) for density in (1.0, 0.3, 0.01)],
]
SIZES = [0, 1, 2, 17, 1000, 5000]
# Largest error of what is sent and kept, relative to it and absolute; what remembers is exact, and so is dense.
TOLERANCE = {"fp16": (2**-11, 2**-25), "bf16": (2**-8, 0.0)}

each_codec = pytest.mark.parametrize("codec", CODECS, ids=lambda codec: codec.name)
each_size = pytest.mark.parametrize("n", SIZES)


def kind(codec):
    return codec.name.partition(":")[0]


def tolerance(codec, values):
    relative, absolute = TOLERANCE.get(kind(codec), (0.0, 0.0))
    return np.abs(values) * relative + absolute


def update_of(n, origin="float32", seed=11):
    """Return an update as the worker gets it from tensors of another type, and flat even from a 0-d one."""
    values = np.random.default_rng([seed, n]).normal(size=n).astype(np.float32)
    if origin == "float16":
        return values.astype(np.float16).astype(np.float32)
    if origin == "bfloat16":
        return from_half(to_half(values, "bfloat16"), "bfloat16")
    return values


def payload_of(parts):
    return memoryview(b"".join(part.tobytes() for part in parts))


def decoded(codec, payload, n, weight=1.0):
    acc = np.zeros(n, np.float32)
    codec.add_to(acc, payload, weight)
    return acc


@each_codec
def test_a_codec_is_a_frozen_value_that_knows_its_names(codec):
    assert codec.dtype in DTYPE_IDS
    assert 1 <= codec.wire_id <= 255
    assert parse_codec(codec.name) == codec, "the name is what it is configured by"
    assert type(by_wire_id(codec.wire_id)) is type(codec)
    assert pickle.loads(pickle.dumps(codec)) == codec
    assert copy.deepcopy(codec) == codec
    assert hash(codec) == hash(copy.deepcopy(codec))
    assert not hasattr(codec, "__dict__")
    for part in fields(codec):
        with pytest.raises(FrozenInstanceError):
            setattr(codec, part.name, None)


def test_every_name_is_swept():
    # What sends values at positions that another one has chosen is swept in test_artopk.
    assert {kind(codec) for codec in CODECS} == set(CODEC) - {"artopk"}


@each_codec
@each_size
@pytest.mark.parametrize("origin", ["float32", "float16", "bfloat16"])
def test_round_trip(codec, n, origin):
    update = update_of(n, origin)
    parts, residual = codec.encode(update, codec.init(n))
    payload = payload_of(parts)
    assert codec.check(payload, n) == -1
    sent = decoded(codec, payload, n)
    left = np.zeros(n, np.float32) if residual is None else residual
    error = np.abs(sent + left - update)
    assert (error <= tolerance(codec, update)).all()
    if codec.dtype == origin:
        np.testing.assert_array_equal(sent + left, update)


@each_codec
def test_a_zero_dimensional_tensor_is_one_value(codec):
    update = np.array(0.75, np.float32).reshape(-1)
    parts, _ = codec.encode(update, codec.init(1))
    assert decoded(codec, payload_of(parts), 1).tolist() == [0.75]


@each_codec
@each_size
def test_sent_plus_residual_is_update_plus_old_residual(codec, n):
    residual = codec.init(n)
    for turn in range(5):
        update = update_of(n, seed=turn)
        total = update if residual is None else update + residual
        parts, residual = codec.encode(update, residual)
        sent = decoded(codec, payload_of(parts), n)
        left = np.zeros(n, np.float32) if residual is None else residual
        assert (np.abs(sent + left - total) <= tolerance(codec, total)).all()
        if kind(codec) not in TOLERANCE:
            np.testing.assert_array_equal(sent + left, total)


@each_codec
@each_size
def test_nothing_is_lost_over_many_rounds(codec, n):
    rounds, residual = 200, codec.init(n)
    acc, total, allowed = np.zeros(n, np.float64), np.zeros(n, np.float64), np.zeros(n)
    for turn in range(rounds):
        update = update_of(n, seed=turn)
        parts, residual = codec.encode(update, residual)
        acc += decoded(codec, payload_of(parts), n)
        total += update
        allowed += tolerance(codec, update)
    if residual is not None:
        acc += residual
        # Each round adds the update to the residual in float32, which rounds once; all sums stay below 64.
        allowed += rounds * 2**-24 * 64
    assert (np.abs(acc - total) <= allowed + 1e-9).all()


@each_codec
@each_size
def test_inputs_are_left_untouched(codec, n):
    update, residual = update_of(n), codec.init(n)
    if residual is not None:
        residual += update_of(n, seed=3)
    before = update.copy(), None if residual is None else residual.copy()
    update.flags.writeable = False
    if residual is not None:
        residual.flags.writeable = False
    parts, new = codec.encode(update, residual)
    payload = payload_of(parts)
    frozen = bytes(payload)
    codec.check(payload, n)
    decoded(codec, payload, n, 0.5)
    assert bytes(payload) == frozen
    np.testing.assert_array_equal(update, before[0])
    if residual is not None:
        np.testing.assert_array_equal(residual, before[1])
        assert not np.shares_memory(new, residual)
        assert not np.shares_memory(new, update)


@each_codec
@each_size
def test_a_spare_changes_where_the_residual_lies_and_nothing_else(codec, n):
    update, residual = update_of(n), codec.init(n)
    if residual is not None:
        residual += update_of(n, seed=3)
    before = update.copy(), None if residual is None else residual.copy()
    spare = None if residual is None else np.full(n, np.nan, np.float32)
    parts, rest = codec.encode(update, residual, spare=spare)
    fresh_parts, fresh = codec.encode(update, residual)
    assert payload_of(parts) == payload_of(fresh_parts)
    np.testing.assert_array_equal(update, before[0])
    if residual is not None:
        np.testing.assert_array_equal(residual, before[1])
        np.testing.assert_array_equal(rest, fresh)
        assert not any(np.shares_memory(part, spare) for part in parts)


@each_codec
@each_size
def test_payload_bytes_is_the_truth(codec, n):
    parts, _ = codec.encode(update_of(n), codec.init(n))
    assert codec.payload_bytes(n) == sum(part.nbytes for part in parts)
    for part in parts:
        assert part.ndim == 1
        assert part.flags.c_contiguous


@each_codec
@each_size
def test_encoding_is_deterministic(codec, n):
    first, _ = codec.encode(update_of(n), codec.init(n))
    second, _ = codec.encode(update_of(n), codec.init(n))
    assert payload_of(first) == payload_of(second)


@each_codec
@each_size
def test_add_to_multiplies_by_the_weight_and_adds(codec, n):
    parts, _ = codec.encode(update_of(n), codec.init(n))
    payload = payload_of(parts)
    acc = np.full(n, 2.0, np.float32)
    codec.add_to(acc, payload, 0.25)
    codec.add_to(acc, payload, 0.5)
    np.testing.assert_allclose(acc, 2 + 0.75 * decoded(codec, payload, n), rtol=1e-6, atol=1e-6)
    codec.add_to(acc, payload, 0.0)
    np.testing.assert_allclose(acc, 2 + 0.75 * decoded(codec, payload, n), rtol=1e-6, atol=1e-6)


@each_codec
@pytest.mark.parametrize("n", [1, 2, 17])
def test_payloads_at_an_odd_address_decode_alike(codec, n):
    parts, _ = codec.encode(update_of(n), codec.init(n))
    payload = payload_of(parts)
    for offset in (1, 2, 3):
        shifted = memoryview(bytes(offset) + bytes(payload))[offset:]
        assert codec.check(shifted, n) == -1
        np.testing.assert_array_equal(decoded(codec, shifted, n), decoded(codec, payload, n))


@each_codec
def test_writable_and_read_only_payloads_are_both_taken(codec):
    parts, _ = codec.encode(update_of(17), codec.init(17))
    payload = payload_of(parts)
    writable = memoryview(bytearray(payload))
    assert codec.check(writable, 17) == codec.check(payload, 17) == -1
    np.testing.assert_array_equal(decoded(codec, writable, 17), decoded(codec, payload, 17))


@each_codec
@each_size
def test_payloads_of_another_size_are_refused(codec, n):
    parts, _ = codec.encode(update_of(n), codec.init(n))
    payload = bytes(payload_of(parts))
    wrong = [payload + b"\0", payload + bytes(8 * n + 8)]
    if payload:
        wrong += [payload[:-1], b""]
    for data in wrong:
        with pytest.raises(ShapeMismatch, match=rf"{len(data)} bytes.* {n} values"):
            codec.check(memoryview(data), n)


@each_codec
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("at", [0, 8, 16])
def test_the_first_value_that_is_not_finite_is_found(codec, bad, at):
    # The one value that is not 0 is among those that every density sends.
    update = np.zeros(17, np.float32)
    update[at] = 1.0
    parts, _ = codec.encode(update, codec.init(17))
    data = bytearray(payload_of(parts))
    if kind(codec) == "topk":
        k = len(data) // 8
        place = np.frombuffer(data[: 4 * k], np.uint32).tolist().index(at)
        values = data[4 * k :]
        values[4 * place : 4 * place + 4] = np.float32(bad).tobytes()
        data[4 * k :] = values
    elif kind(codec).startswith("topk_"):
        k = int.from_bytes(data[:8], "little")
        values_at = 8 + index_bytes(k, 17)
        place = decode_index(np.frombuffer(data[8:values_at], np.uint8), k, 17).tolist().index(at)
        word = np.array([bad], np.float32)
        if codec.dtype == "int8":
            # All of them share a scale, so the first is not finite.
            word, at, place = abs(word), 0 if k > 1 else at, 0
        elif codec.dtype != "float32":
            word = to_half(word, codec.dtype)
        start = values_at + word.nbytes * place
        data[start : start + word.nbytes] = word.tobytes()
    elif codec.dtype == "float32":
        data[4 * at : 4 * at + 4] = np.float32(bad).tobytes()
    elif kind(codec) == "int8":
        # A scale is shared: no value of its block is finite then.
        data[:4] = np.float32(abs(bad)).tobytes()
        at = 0
    else:
        word = to_half(np.array([bad], np.float32), codec.dtype)
        data[2 * at : 2 * at + 2] = word.tobytes()
    for offset in (0, 1):
        assert codec.check(memoryview(bytes(offset) + bytes(data))[offset:], 17) == at


@pytest.mark.parametrize(
    "codec", [fp16(), bf16(), topk_fp16(1.0), topk_bf16(0.4)], ids=lambda codec: codec.name
)
def test_an_update_that_overflows_on_the_wire_is_not_sent(codec):
    update = np.full(5, np.finfo(np.float32).max, np.float32)
    update[:3] = 1.0
    with pytest.raises(NotFinite, match="at position 3"):
        codec.encode(update, None)


# numpy warns of a sum only where it makes the NaN, of a signalling one wherever it meets it.
SIGNALLING = np.array(0x7FA00000, np.uint32).view(np.float32)


@each_codec
@pytest.mark.parametrize(
    ("value", "rest"),
    [(np.inf, -np.inf), (-np.inf, np.inf), (SIGNALLING, 0), (0, SIGNALLING), (np.nan, 1)],
    ids=["inf - inf", "-inf + inf", "signalling", "signalling rest", "nan"],
)
def test_what_is_no_number_is_found_without_a_warning(codec, value, rest):
    update, residual = update_of(17), codec.init(17)
    update[3:4] = value
    if residual is not None:
        residual[3:4] = rest
    elif not value:
        pytest.skip("nothing is left behind")
    if codec.name == "dense":
        parts, _ = codec.encode(update, residual)
        assert codec.check(payload_of(parts), 17) == 3
        return
    with pytest.raises(NotFinite, match="at position 3"):
        codec.encode(update, residual)


@each_codec
def test_a_signalling_nan_on_the_wire_is_no_warning_either(codec):
    data = payload_of(codec.encode(np.ones(17, np.float32), codec.init(17))[0]).tobytes()
    found = set()
    for at in range(len(data) - 3):
        with contextlib.suppress(ShapeMismatch):
            spoilt = data[:at] + SIGNALLING.tobytes() + data[at + 4 :]
            found.add(codec.check(memoryview(spoilt), 17))
    assert found - {-1}


@each_codec
def test_random_bytes_never_get_past_check_into_the_heap(codec):
    generator = np.random.default_rng(29)
    acc = np.zeros(64, np.float32)
    for _ in range(300):
        payload = memoryview(generator.bytes(int(generator.integers(0, 300))))
        try:
            position = codec.check(payload, 64)
        except ShapeMismatch:
            continue
        assert -1 <= position < 64
        if position == -1:
            codec.add_to(acc, payload, 0.0)
    assert acc.shape == (64,)
