"""Checked faces of the 16-bit float kernels. Half-precision values travel as raw bits in uint16."""

from __future__ import annotations

import numpy as np

from aiops.kernels import _backend, _check
from aiops.kernels._check import F32, FLOAT32, U16, UINT16
from aiops.types import HalfName


def to_half(x: F32, kind: HalfName, *, out: U16 | None = None) -> U16:
    """Round float32 to 16 bits, to nearest and half to even.

    Equals numpy's ``astype(float16)`` and torch's ``to(bfloat16)``. What is too large becomes
    infinity; NaN stays NaN, its payload is not specified. Releases the GIL.

    Args:
        x: float32, shape (n,), C-contiguous. Read only.
        kind: ``float16`` or ``bfloat16``.
        out: uint16, shape (n,). Receives the bits; a fresh array if absent.

    Returns:
        ``out``, or the fresh array.

    Raises:
        TypeError: An argument has the wrong type or dtype.
        ValueError: ``kind`` is unknown, lengths differ, or the arrays overlap.
    """
    bfloat = _is_bfloat(kind)
    n = _check.vector("x", x, FLOAT32)
    if out is None:
        out = np.empty(n, np.uint16)
    else:
        _check.vector("out", out, UINT16, length=n, like="as in x", written=True)
        _check.apart("out", out, "x", x)
    _backend.half.to_half(x, bfloat, out)
    return out


def from_half(bits: U16, kind: HalfName, *, out: F32 | None = None) -> F32:
    """Widen 16-bit floats to float32; exact.

    Releases the GIL.

    Args:
        bits: uint16, shape (n,), C-contiguous. Read only.
        kind: ``float16`` or ``bfloat16``.
        out: float32, shape (n,). Receives the values; a fresh array if absent.

    Returns:
        ``out``, or the fresh array.

    Raises:
        TypeError: An argument has the wrong type or dtype.
        ValueError: ``kind`` is unknown, lengths differ, or the arrays overlap.
    """
    bfloat = _is_bfloat(kind)
    n = _check.vector("bits", bits, UINT16)
    if out is None:
        out = np.empty(n, np.float32)
    else:
        _check.vector("out", out, FLOAT32, length=n, like="as in bits", written=True)
        _check.apart("out", out, "bits", bits)
    _backend.half.from_half(bits, bfloat, out)
    return out


def add_half(acc: F32, bits: U16, weight: float, kind: HalfName) -> None:
    """Add ``weight`` times the values that ``bits`` stand for to ``acc``, in place.

    Nothing is materialised in between, and the result is that of decoding first. Releases the GIL.

    Args:
        acc: float32, shape (n,), C-contiguous, writable. One shard's accumulator.
        bits: uint16, shape (n,). Read only.
        weight: Merge weight of this push, dimensionless; rounded to float32.
        kind: ``float16`` or ``bfloat16``.

    Raises:
        TypeError: An argument has the wrong type or dtype.
        ValueError: ``kind`` is unknown, lengths differ, the arrays overlap, or the weight is not
            finite.
    """
    bfloat = _is_bfloat(kind)
    n = _check.vector("acc", acc, FLOAT32, written=True)
    _check.vector("bits", bits, UINT16, length=n, like="as in acc")
    _check.apart("acc", acc, "bits", bits)
    _backend.half.add_half(acc, bits, _check.weight(weight), bfloat)


def first_nonfinite_half(bits: U16, kind: HalfName) -> int:
    """Return the position of the first NaN or infinity in ``bits``, or -1 if all is finite.

    One pass that stops there. Releases the GIL.

    Args:
        bits: uint16, shape (n,), C-contiguous. Read only.
        kind: ``float16`` or ``bfloat16``.

    Raises:
        TypeError: ``bits`` is no numpy array or not uint16.
        ValueError: ``kind`` is unknown, or ``bits`` is not a contiguous vector.
    """
    bfloat = _is_bfloat(kind)
    _check.vector("bits", bits, UINT16)
    return _backend.half.first_nonfinite_half(bits, bfloat)


def _is_bfloat(kind: str) -> bool:
    if kind not in ("float16", "bfloat16"):
        raise ValueError(f"kind is {kind!r}, it must be 'float16' or 'bfloat16'")
    return kind == "bfloat16"
