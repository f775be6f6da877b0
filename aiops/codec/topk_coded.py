"""Top-k in few bytes: positions in an index code, values as float32, 16-bit floats or int8."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aiops.codec.base import Payload, Residual, Vector
from aiops.codec.payload import as_array
from aiops.codec.topk import PAIR_BYTES, TopK
from aiops.errors import ConfigError, NotFinite, ShapeMismatch
from aiops.kernels import (
    check_index,
    decode_index,
    encode_index,
    first_nonfinite,
    first_nonfinite_half,
    from_half,
    index_bytes,
    scatter_add_coded,
    to_half,
)
from aiops.kernels.sparse import SCALE_BLOCK, ValueName

# The number of values, which the codes that follow do not tell.
COUNT_BYTES = 8

_FLOAT32 = np.float32
_NAMES: dict[str, str] = {
    "float32": "topk_fp32",
    "float16": "topk_fp16",
    "bfloat16": "topk_bf16",
    "int8": "topk_int8",
}
_WIRE_IDS: dict[str, int] = {"float32": 5, "float16": 6, "bfloat16": 7, "int8": 8}
_ITEMS: dict[str, type[Any]] = {
    "float32": np.float32,
    "float16": np.uint16,
    "bfloat16": np.uint16,
    "int8": np.int8,
}
# Below this no product with an int8 code overflows.
_SAFE_SCALE = np.finfo(np.float32).max / 128


@dataclass(frozen=True, slots=True)
class CodedTopK:
    """The choice and the memory of :class:`aiops.codec.topk.TopK`, sent in a third to a half of its bytes.

    Positions take about as few bits as they can (see :mod:`aiops.kernels.index`), at density 0.01 8.6 instead of 32.
    What a value loses when it is rounded to 16 or 8 bits stays in the residual at its position: that difference is
    exact in float32 (Sterbenz), so what is sent plus the new residual is, bit for bit, update plus old residual.

    Of int8 values 4096 in a row share a float32 scale, 1/127 of the largest magnitude among them.

    The payload, little endian: uint64 k; the index code, a multiple of 8 bytes; for int8 the scales; k values.

    Attributes:
        density: k/n, in (0, 1].
        kind: What the values are on the wire: ``"float32"``, ``"float16"``, ``"bfloat16"`` or ``"int8"``.
    """

    density: float
    kind: ValueName

    def __post_init__(self) -> None:
        TopK(self.density)
        if self.kind not in _NAMES:
            raise ConfigError(f"topk's kind is {self.kind!r}, known are {', '.join(_NAMES)}")

    @property
    def name(self) -> str:
        """The name it is configured by, with its density."""
        return f"{_NAMES[self.kind]}:{self.density!r}"

    @property
    def wire_id(self) -> int:
        """Its number in the frame header."""
        return _WIRE_IDS[self.kind]

    @property
    def dtype(self) -> str:
        """Element type of the values on the wire; int8 counts as float32, with the scales that make it so."""
        return "float32" if self.kind == "int8" else self.kind

    def init(self, n: int) -> Residual | None:
        """Return ``n`` zeros."""
        return TopK(self.density).init(n)

    def encode(
        self, update: Vector, residual: Residual | None
    ) -> tuple[Sequence[NDArray[np.generic]], Residual | None]:
        """Return count, index code and values of the k largest of update plus residual, and the rest.

        All are in memory of their own. Of equal magnitudes the lower index is sent.

        Args:
            update: float32, shape (n,), finite; left untouched.
            residual: float32, shape (n,); left untouched. None counts as zeros.

        Raises:
            NotFinite: Update plus residual overflows float32, or a value that is to be sent overflows a 16-bit
                float; the message names the position.
        """
        chosen, rest = TopK(self.density).encode(update, residual)
        index, value = (np.asarray(part) for part in chosen)
        values, decoded = self._pack(index, value)
        if rest is not None and decoded is not value:
            rest[index] = value - decoded
        count = np.array([index.size], "<u8")
        return (count, encode_index(index, update.size), *values), rest

    def check(self, payload: Payload, n: int) -> int:
        """Return the position in the bucket of the first value that is not finite, or -1.

        Raises:
            ShapeMismatch: The payload is too short, has another size than its count of values needs, that count is
                not 1..``n`` (0 for an empty bucket), or the index code is not one of ascending positions below ``n``.
        """
        if payload.nbytes < COUNT_BYTES:
            raise ShapeMismatch(
                f"{_NAMES[self.kind]} payload has {payload.nbytes} bytes, "
                f"a bucket of {n} values needs at least {COUNT_BYTES}"
            )
        k = _count(payload)
        if not min(n, 1) <= k <= n:
            raise ShapeMismatch(
                f"{_NAMES[self.kind]} payload has {payload.nbytes} bytes and counts {k} values, "
                f"a bucket of {n} values needs {min(n, 1)} to {n}"
            )
        if payload.nbytes != self._size(k, n):
            raise ShapeMismatch(
                f"{_NAMES[self.kind]} payload has {payload.nbytes} bytes, "
                f"{k} of a bucket of {n} values need {self._size(k, n)}"
            )
        code, scale, value = self._split(payload, k, n)
        try:
            check_index(code, k, n)
        except ValueError as error:
            raise ShapeMismatch(f"{_NAMES[self.kind]} payload: {error}") from None
        bad = self._first_nonfinite(scale, value)
        return bad if bad < 0 else int(decode_index(code, k, n)[bad])

    def add_to(self, acc: Vector, payload: Payload, weight: float) -> None:
        """Add ``weight`` times each value to ``acc`` at its position, in place and in one pass."""
        k = _count(payload)
        code, scale, value = self._split(payload, k, acc.size)
        scales = scale if self.kind == "int8" else None
        scatter_add_coded(acc, code, value, weight, kind=self.kind, scale=scales)

    def payload_bytes(self, n: int) -> int:
        """Return the size of the code and the values of k positions, for a bucket of ``n`` values."""
        return self._size(TopK(self.density).payload_bytes(n) // PAIR_BYTES, n)

    def _size(self, k: int, n: int) -> int:
        values = k * np.dtype(_ITEMS[self.kind]).itemsize
        return COUNT_BYTES + index_bytes(k, n) + self._scale_bytes(k) + values

    def _scale_bytes(self, k: int) -> int:
        return 4 * -(-k // SCALE_BLOCK) if self.kind == "int8" else 0

    # Index code, scales and values of a payload that holds k of n values.
    def _split(
        self, payload: Payload, k: int, n: int
    ) -> tuple[NDArray[np.uint8], NDArray[np.float32], NDArray[Any]]:
        scales_at = COUNT_BYTES + index_bytes(k, n)
        values_at = scales_at + self._scale_bytes(k)
        return (
            as_array(payload[COUNT_BYTES:scales_at], np.uint8),
            as_array(payload[scales_at:values_at], np.float32),
            as_array(payload[values_at:], _ITEMS[self.kind]),
        )

    # The arrays that carry the values, and what they stand for.
    def _pack(self, index: NDArray[Any], value: Vector) -> tuple[tuple[NDArray[Any], ...], Vector]:
        if self.kind == "float32":
            return (value,), value
        if self.kind == "int8":
            scale, code = _to_int8(value)
            return (scale, code), _from_int8(scale, code)
        bits = to_half(value, self.kind)
        at = first_nonfinite_half(bits, self.kind)
        if at >= 0:
            raise NotFinite(
                f"update plus residual is {value[at]:g} at position {index[at]}, "
                f"which does not fit {self.kind}"
            )
        return (bits,), from_half(bits, self.kind)

    def _first_nonfinite(self, scale: NDArray[np.float32], value: NDArray[Any]) -> int:
        if self.kind == "float32":
            return first_nonfinite(value)
        if self.kind != "int8":
            return first_nonfinite_half(value, self.kind)
        if (np.abs(scale) < _SAFE_SCALE).all():
            return -1
        return first_nonfinite(_from_int8(scale, value))


def _count(payload: Payload) -> int:
    return int.from_bytes(payload[:COUNT_BYTES], "little")


# Scales and codes: 1/127 of the largest magnitude of a block, and the nearest multiple, half to even. A scale below the
# smallest normal float32 would not be exact: then 0 stands for all. One that overflows when multiplied is made smaller.
def _to_int8(value: Vector) -> tuple[NDArray[np.float32], NDArray[np.int8]]:
    if value.size == 0:
        return np.empty(0, _FLOAT32), np.empty(0, np.int8)
    starts = np.arange(0, value.size, SCALE_BLOCK)
    largest: Vector = np.maximum.reduceat(np.abs(value), starts)
    scale = (largest / _FLOAT32(127)).astype(_FLOAT32, copy=False)
    scale[scale < np.finfo(_FLOAT32).tiny] = 0
    with np.errstate(over="ignore"):
        large = np.isinf(scale * _FLOAT32(127))
    scale[large] = np.nextafter(scale[large], _FLOAT32(0))
    divisor: Vector = np.where(scale > 0, scale, _FLOAT32(1))
    code = np.rint(value / np.repeat(divisor, SCALE_BLOCK)[: value.size])
    return scale, code.astype(np.int8)


def _from_int8(scale: NDArray[np.float32], code: NDArray[np.int8]) -> Vector:
    with np.errstate(all="ignore"):
        decoded: Vector = np.repeat(scale, SCALE_BLOCK)[: code.size] * code
    return decoded


def topk_fp32(density: float) -> CodedTopK:
    """Return the codec that sends the largest values as they are, at coded positions.

    Args:
        density: Share of the values that is sent, in (0, 1]; 0.01 is usual.
    """
    return CodedTopK(density, "float32")


def topk_fp16(density: float) -> CodedTopK:
    """Return the codec that sends the largest values as IEEE half precision, up to 65504.

    Args:
        density: Share of the values that is sent, in (0, 1]; 0.01 is usual.
    """
    return CodedTopK(density, "float16")


def topk_bf16(density: float) -> CodedTopK:
    """Return the codec that sends the largest values as bfloat16.

    Args:
        density: Share of the values that is sent, in (0, 1]; 0.01 is usual.
    """
    return CodedTopK(density, "bfloat16")


def topk_int8(density: float) -> CodedTopK:
    """Return the codec that sends the largest values in 8 bits, relative to the largest of 4096.

    Args:
        density: Share of the values that is sent, in (0, 1]; 0.01 is usual.
    """
    return CodedTopK(density, "int8")
