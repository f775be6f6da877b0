"""The 16-bit codecs: rounding, range, refusal."""

from __future__ import annotations

import numpy as np
import pytest

from aiops.codec.half import Half, bf16, fp16
from aiops.errors import ConfigError, NotFinite, ShapeMismatch


def sent(codec, values):
    """Return what arrives of ``values``."""
    (bits,), residual = codec.encode(np.array(values, np.float32), None)
    assert residual is None
    acc = np.zeros(len(values), np.float32)
    codec.add_to(acc, memoryview(bits).cast("B"), 1.0)
    return acc.tolist()


@pytest.mark.parametrize(
    ("codec", "value", "arrives"),
    [
        pytest.param(fp16(), 1.0, 1.0, id="fp16 exact"),
        pytest.param(fp16(), 65504.0, 65504.0, id="fp16 largest"),
        pytest.param(fp16(), 65519.0, 65504.0, id="fp16 rounds down to the largest"),
        pytest.param(fp16(), 1.0 + 2**-11, 1.0, id="fp16 tie to even, down"),
        pytest.param(fp16(), 1.0 + 3 * 2**-11, 1.0 + 2**-9, id="fp16 tie to even, up"),
        pytest.param(fp16(), 2.0**-24, 2.0**-24, id="fp16 smallest"),
        pytest.param(fp16(), 2.0**-26, 0.0, id="fp16 underflow"),
        pytest.param(bf16(), 1.0, 1.0, id="bf16 exact"),
        pytest.param(bf16(), 1.0 + 2**-8, 1.0, id="bf16 tie to even, down"),
        pytest.param(bf16(), 1.0 + 3 * 2**-8, 1.0 + 2**-6, id="bf16 tie to even, up"),
        pytest.param(bf16(), 2.0**100, 2.0**100, id="bf16 has the range of float32"),
        pytest.param(bf16(), 2.0**-133, 2.0**-133, id="bf16 smallest"),
    ],
)
def test_rounding(codec, value, arrives):
    assert sent(codec, [value, -value]) == [arrives, -arrives]


@pytest.mark.parametrize(
    ("codec", "value", "sentence"),
    [
        (fp16(), 65520.0, "value 65520 at position 2 does not fit float16, the largest is 65504"),
        (fp16(), -1e30, r"value -1e\+30 at position 2 does not fit float16"),
        (bf16(), 3.4e38, r"value 3.4e\+38 at position 2 does not fit bfloat16, .* 3.3895e\+38"),
        (fp16(), np.nan, "value nan at position 2"),
        (bf16(), np.inf, "value inf at position 2"),
    ],
)
def test_what_does_not_fit_is_refused_before_it_is_sent(codec, value, sentence):
    update = np.array([0.5, -1.0, value, value], np.float32)
    with pytest.raises(NotFinite, match=sentence):
        codec.encode(update, None)


def test_fp16_words_are_ieee_and_little_endian():
    (bits,), _ = fp16().encode(np.array([1.0, -2.0], np.float32), None)
    assert bits.tobytes() == b"\x00\x3c\x00\xc0"
    (bits,), _ = bf16().encode(np.array([1.0, -2.0], np.float32), None)
    assert bits.tobytes() == b"\x80\x3f\x00\xc0"


def test_a_payload_is_added_in_float32():
    # 2048 + 0.5 is no float16, so the sum must not be one either.
    acc = np.array([2048.0], np.float32)
    fp16().add_to(acc, memoryview(b"\x00\x3c"), 0.5)
    assert acc.tolist() == [2048.5]


@pytest.mark.parametrize("codec", [fp16(), bf16()], ids=["fp16", "bf16"])
@pytest.mark.parametrize("size", [0, 2, 3, 5, 8])
def test_another_size_is_refused_with_both_sizes(codec, size):
    with pytest.raises(
        ShapeMismatch,
        match=f"^{codec.name} payload has {size} bytes, a bucket of 2 values needs 4$",
    ):
        codec.check(memoryview(bytes(size)), 2)


def test_other_halves_do_not_exist():
    with pytest.raises(ConfigError, match="half's dtype is 'float8', known are float16, bfloat16"):
        Half("float8")
