"""Eight bits per value, with a scale for every 4096 and error feedback for what that loses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from aiops.codec.base import Payload, Residual, Vector
from aiops.codec.payload import as_array, require_bytes
from aiops.errors import NotFinite, ShapeMismatch
from aiops.kernels import INT8_BLOCK, add_int8, first_code, first_nonfinite, to_int8

SCALE_BYTES = 4

# An encoder uses -127..127, so that every value and its negative have codes of one magnitude.
UNUSED_CODE = -128


@dataclass(frozen=True, slots=True)
class Int8:
    """All values, each as a multiple of 1/127 of the largest magnitude in its block of 4096.

    After Dettmers (2016) and Seide et al. (2014): what rounding loses stays in the residual and is added to the next
    update, so that over many rounds nothing is lost. The difference is exact: what is sent plus the new residual is
    update plus old residual in float32, bit for bit. How scales and codes are rounded is defined in
    :mod:`aiops.kernels.quantize`.

    The payload is ceil(n / 4096) little-endian float32 scales, finite and not negative, then n codes in -127..127.
    """

    @property
    def name(self) -> str:
        """The name it is configured by."""
        return "int8"

    @property
    def wire_id(self) -> int:
        """Its number in the frame header."""
        return 9

    @property
    def dtype(self) -> str:
        """Element type of the values on the wire."""
        return "int8"

    def init(self, n: int) -> Residual | None:
        """Return ``n`` zeros."""
        return np.zeros(n, np.float32)

    def encode(
        self, update: Vector, residual: Residual | None, *, spare: Residual | None = None
    ) -> tuple[Sequence[NDArray[np.generic]], Residual | None]:
        """Return scales and codes of update plus residual, and what they lose of it.

        All three are in memory of their own, or the loss in ``spare``.

        Args:
            update: float32, shape (n,), finite; left untouched.
            residual: float32, shape (n,); left untouched. None counts as zeros.
            spare: float32, shape (n,), apart from both; receives the loss.

        Raises:
            NotFinite: Update plus residual overflows float32; the message names the position.
        """
        n = update.size
        old = np.zeros(n, np.float32) if residual is None else residual
        scales, codes = np.empty(_blocks(n), np.float32), np.empty(n, np.int8)
        left = np.empty(n, np.float32) if spare is None else spare
        at = to_int8(update, scales=scales, codes=codes, residual=old, left=left)
        if at >= 0:
            with np.errstate(over="ignore", invalid="ignore"):
                total = update[at] + old[at]
            raise NotFinite(
                f"update plus residual is {total:g} at position {at}, the largest float32 is 3.4028e+38"
            )
        return (scales, codes), left

    def check(self, payload: Payload, n: int) -> int:
        """Return the position in the bucket of the first value that is not finite, or -1.

        A scale is shared, so that is the first value of a block: its scale is not finite or so large that 127 times
        it would not be.

        Raises:
            ShapeMismatch: The payload is not as long as ``n`` codes and their scales, a scale is negative, or a code
                is -128.
        """
        require_bytes("int8", payload, n, self.payload_bytes(n))
        return check_scaled("int8", *split_scaled(payload, n))

    def add_to(self, acc: Vector, payload: Payload, weight: float) -> None:
        """Add ``weight`` times the payload's values to ``acc``, in place and in float32."""
        add_int8(acc, *split_scaled(payload, acc.size), weight)

    def payload_bytes(self, n: int) -> int:
        """Return ``n`` + 4 for every begun 4096."""
        return scaled_bytes(n)


def _blocks(n: int) -> int:
    return -(-n // INT8_BLOCK)


def scaled_bytes(k: int) -> int:
    """Return the size of the scales and the codes of ``k`` values."""
    return k + SCALE_BYTES * _blocks(k)


def split_scaled(payload: Payload, k: int) -> tuple[NDArray[np.float32], NDArray[np.int8]]:
    """Return views of the scales and of the codes of ``k`` values, which follow each other."""
    end = SCALE_BYTES * _blocks(k)
    return as_array(payload[:end], np.float32), as_array(payload[end:], np.int8)


def check_scaled(name: str, scales: NDArray[np.float32], codes: NDArray[np.int8]) -> int:
    """Return the number of the first value that is not finite, or -1.

    Args:
        name: The codec that is to be named if something is wrong.
        scales: float32, shape (ceil(k / 4096),).
        codes: int8, shape (k,).

    Raises:
        ShapeMismatch: A scale is negative, or a code is -128.
    """
    negative = scales < 0
    if negative.any():
        at = int(np.argmax(negative))
        raise ShapeMismatch(f"{name} scale[{at}] is {scales[at]:g}, scales are not negative")
    at = first_code(codes, UNUSED_CODE)
    if at >= 0:
        raise ShapeMismatch(f"{name} code[{at}] is {UNUSED_CODE}, codes are -127 to 127")
    with np.errstate(over="ignore", invalid="ignore"):
        block = first_nonfinite(scales * np.float32(127))
    return block if block < 0 else block * INT8_BLOCK


def int8() -> Int8:
    """Return the codec that sends every value in eight bits and remembers what that loses."""
    return Int8()
