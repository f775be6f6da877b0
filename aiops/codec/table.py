"""Codecs by name, for configuration, and by number in the frame header, for whoever receives a payload."""

from __future__ import annotations

from collections.abc import Callable

from aiops.codec.artopk import artopk
from aiops.codec.base import Codec
from aiops.codec.dense import dense
from aiops.codec.half import bf16, fp16
from aiops.codec.int8 import int8
from aiops.codec.topk import topk
from aiops.codec.topk_coded import topk_bf16, topk_fp16, topk_fp32, topk_int8
from aiops.errors import ShapeMismatch

CODEC: dict[str, Callable[..., Codec]] = {
    "dense": dense,
    "fp16": fp16,
    "bf16": bf16,
    "int8": int8,
    "topk": topk,
    "topk_fp32": topk_fp32,
    "topk_fp16": topk_fp16,
    "topk_bf16": topk_bf16,
    "topk_int8": topk_int8,
    "artopk": artopk,
}

# Decoding takes k from the payload, so that one density serves for all.
_DECODERS: tuple[Codec, ...] = (
    dense(),
    fp16(),
    bf16(),
    topk(1.0),
    topk_fp32(1.0),
    topk_fp16(1.0),
    topk_bf16(1.0),
    topk_int8(1.0),
    int8(),
    artopk(1.0),
)
WIRE_IDS: dict[int, Codec] = {codec.wire_id: codec for codec in _DECODERS}


def by_wire_id(wire_id: int) -> Codec:
    """Return a codec that checks and adds payloads of this number; it is not meant to encode.

    Raises:
        ShapeMismatch: No codec of ours has this number.
    """
    codec = WIRE_IDS.get(wire_id)
    if codec is None:
        known = ", ".join(
            f"{number} ({codec.name.partition(':')[0]})" for number, codec in WIRE_IDS.items()
        )
        raise ShapeMismatch(f"codec number {wire_id} is unknown, known are {known}")
    return codec
