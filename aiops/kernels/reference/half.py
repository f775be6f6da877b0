"""16-bit floats, in numpy."""

from __future__ import annotations

import numpy as np

from aiops.kernels.reference._bits import F32, U16, first
from aiops.kernels.reference.dense import weighted_add


def to_half(x: F32, bfloat: bool, out: U16) -> None:
    """Round ``x`` to 16 bits, half to even, and write the bits to ``out``.

    Args:
        x: float32, shape (n,).
        bfloat: Format of ``out``: bfloat16 if true, else float16.
        out: uint16, shape (n,). Written.
    """
    if not bfloat:
        with np.errstate(all="ignore"):
            out[:] = x.astype(np.float16).view(np.uint16)
        return
    bits = x.view(np.uint32)
    # Just under half a unit, and the last kept bit on top: half-way goes to the even side.
    rounded = bits + (np.uint32(0x7FFF) + ((bits >> 16) & 1))
    # Rounding could carry a NaN into infinity, so NaN keeps its sign and is made quiet instead.
    quiet = bits | np.uint32(0x0040_0000)
    out[:] = np.where(np.isnan(x), quiet, rounded) >> 16


def from_half(bits: U16, bfloat: bool, out: F32) -> None:
    """Write the values that ``bits`` stand for to ``out``; exact.

    Args:
        bits: uint16, shape (n,).
        bfloat: Format of ``bits``: bfloat16 if true, else float16.
        out: float32, shape (n,). Written.
    """
    if bfloat:
        out[:] = (bits.astype(np.uint32) << 16).view(np.float32)
    else:
        with np.errstate(all="ignore"):
            out[:] = bits.view(np.float16)


def add_half(acc: F32, bits: U16, weight: float, bfloat: bool) -> None:
    """Add ``weight`` times the values that ``bits`` stand for to ``acc``, in place.

    Args:
        acc: float32, shape (n,). Written.
        bits: uint16, shape (n,).
        weight: Factor of every value, rounded to float32.
        bfloat: Format of ``bits``: bfloat16 if true, else float16.
    """
    decoded = np.empty(bits.size, np.float32)
    from_half(bits, bfloat, decoded)
    weighted_add(acc, decoded, weight)


def first_nonfinite_half(bits: U16, bfloat: bool) -> int:
    """Return the position of the first NaN or infinity in ``bits``, or -1.

    Args:
        bits: uint16, shape (n,).
        bfloat: Format of ``bits``: bfloat16 if true, else float16.
    """
    infinity = np.uint16(0x7F80 if bfloat else 0x7C00)
    return first((bits & infinity) == infinity)


# Position of the first true element, or -1. Faces count on a plain int.
