"""Top-k in few bytes: positions in an index code, values as float32, 16-bit floats or int8."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aiops.codec.base import Payload, Residual, Vector
from aiops.codec.int8 import check_scaled, scaled_bytes, split_scaled
from aiops.codec.payload import as_array
from aiops.codec.topk import check_density, kept, move_largest
from aiops.errors import ConfigError, NotFinite, ShapeMismatch
from aiops.kernels import (
    INT8_BLOCK,
    check_index,
    decode_index,
    encode_index,
    first_nonfinite,
    first_nonfinite_half,
    from_half,
    index_bytes,
    scatter_add,
    scatter_add_coded,
    to_half,
    to_int8,
)
from aiops.kernels.sparse import ValueName

# The number of values, which the codes that follow do not tell.
COUNT_BYTES = 8

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


@dataclass(frozen=True, slots=True)
class CodedTopK:
    """The choice and the memory of :class:`aiops.codec.topk.TopK`, sent in a third to a half of its bytes.

    Positions take about as few bits as they can (see :mod:`aiops.kernels.index`), at density 0.01 8.6 instead of 32.
    What a value loses when it is rounded to 16 or 8 bits stays in the residual at its position: that difference is
    exact in float32 (Sterbenz), so what is sent plus the new residual is, bit for bit, update plus old residual.

    Of int8 values 4096 in a row share a scale, as in :mod:`aiops.codec.int8`.

    The payload, little endian: uint64 k; the index code, a multiple of 8 bytes; for int8 the scales; k values.

    Attributes:
        density: k/n, in (0, 1].
        kind: What the values are on the wire: ``"float32"``, ``"float16"``, ``"bfloat16"`` or ``"int8"``.
    """

    density: float
    kind: ValueName

    def __post_init__(self) -> None:
        check_density(self.density)
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
        """Element type of the values on the wire."""
        return self.kind

    def init(self, n: int) -> Residual | None:
        """Return ``n`` zeros."""
        return np.zeros(n, np.float32)

    def encode(
        self, update: Vector, residual: Residual | None, *, spare: Residual | None = None
    ) -> tuple[Sequence[NDArray[np.generic]], Residual | None]:
        """Return count, index code and values of the k largest of update plus residual, and the rest.

        All are in memory of their own, or the rest in ``spare``. Of equal magnitudes the lower index is sent.

        Args:
            update: float32, shape (n,), finite; left untouched.
            residual: float32, shape (n,); left untouched. None counts as zeros.
            spare: float32, shape (n,), apart from both; receives the rest.

        Raises:
            NotFinite: Update plus residual overflows float32, or a value that is to be sent overflows a 16-bit
                float; the message names the position.
        """
        step, rest = move_largest(update, residual, kept(self.density, update.size), spare)
        values, lost = self._pack(step.index, step.value)
        if lost is not None:
            # There is zero where a value was moved from.
            scatter_add(rest, step.index, lost)
        count = np.array([step.index.size], "<u8")
        return (count, encode_index(step.index, update.size), *values), rest

    def check(self, payload: Payload, n: int) -> int:
        """Return the position in the bucket of the first value that is not finite, or -1.

        Raises:
            ShapeMismatch: The payload is too short, has another size than its count of values needs, that count is
                not 1..``n`` (0 for an empty bucket), the index code is not one of ascending positions below ``n``,
                or scales or codes are none of int8.
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
        code, value, scale = self._split(payload, k, n)
        try:
            check_index(code, k, n)
        except ValueError as error:
            raise ShapeMismatch(f"{_NAMES[self.kind]} payload: {error}") from None
        bad = self._first_nonfinite(value, scale)
        return bad if bad < 0 else int(decode_index(code, k, n)[bad])

    def add_to(self, acc: Vector, payload: Payload, weight: float) -> None:
        """Add ``weight`` times each value to ``acc`` at its position, in place and in one pass."""
        code, value, scale = self._split(payload, _count(payload), acc.size)
        scatter_add_coded(acc, code, value, weight, kind=self.kind, scale=scale)

    def payload_bytes(self, n: int) -> int:
        """Return the size of the code and the values of k positions, for a bucket of ``n`` values."""
        return self._size(kept(self.density, n), n)

    def _size(self, k: int, n: int) -> int:
        values = (
            scaled_bytes(k) if self.kind == "int8" else k * np.dtype(_ITEMS[self.kind]).itemsize
        )
        return COUNT_BYTES + index_bytes(k, n) + values

    # Index code, values and, of int8, scales of a payload that holds k of n values.
    def _split(
        self, payload: Payload, k: int, n: int
    ) -> tuple[NDArray[np.uint8], NDArray[Any], NDArray[np.float32] | None]:
        values_at = COUNT_BYTES + index_bytes(k, n)
        code = as_array(payload[COUNT_BYTES:values_at], np.uint8)
        if self.kind == "int8":
            scale, value = split_scaled(payload[values_at:], k)
            return code, value, scale
        return code, as_array(payload[values_at:], _ITEMS[self.kind]), None

    # The arrays that carry the values, and what they lose; None if nothing.
    def _pack(
        self, index: NDArray[np.uint32], value: Vector
    ) -> tuple[tuple[NDArray[Any], ...], Vector | None]:
        if self.kind == "float32":
            return (value,), None
        if self.kind == "int8":
            scale = np.empty(-(-value.size // INT8_BLOCK), np.float32)
            code, lost = np.empty(value.size, np.int8), np.zeros_like(value)
            to_int8(value, scales=scale, codes=code, residual=lost, left=lost)
            return (scale, code), lost
        bits = to_half(value, self.kind)
        at = first_nonfinite_half(bits, self.kind)
        if at >= 0:
            raise NotFinite(
                f"update plus residual is {value[at]:g} at position {index[at]}, "
                f"which does not fit {self.kind}"
            )
        return (bits,), value - from_half(bits, self.kind)

    def _first_nonfinite(self, value: NDArray[Any], scale: NDArray[np.float32] | None) -> int:
        if scale is not None:
            return check_scaled(_NAMES[self.kind], scale, value)
        if self.kind == "float32" or self.kind == "int8":
            return first_nonfinite(value)
        return first_nonfinite_half(value, self.kind)


def _count(payload: Payload) -> int:
    return int.from_bytes(payload[:COUNT_BYTES], "little")


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
