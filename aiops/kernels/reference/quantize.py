"""Blocks of 8-bit codes, in numpy."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from aiops.kernels.reference._bits import F32, I8, first
from aiops.kernels.reference.dense import first_nonfinite, weighted_add

INT8_BLOCK = 4096
SMALLEST_SCALE = np.finfo(np.float32).smallest_normal
# The largest of which 127 are still finite.
LARGEST_SCALE = np.float32(float.fromhex("0x1.020406p+121"))


def to_int8(x: F32, residual: F32 | None, scales: F32, codes: I8, left: F32 | None) -> int:
    """Encode ``x``, or ``x + residual`` and write what the codes lose of it to ``left``.

    Args:
        x: float32, shape (n,).
        residual: float32, shape (n,), or None. May be ``left`` itself.
        scales: float32, shape (ceil(n / 4096),). Written.
        codes: int8, shape (n,). Written.
        left: float32, shape (n,), written; None if ``residual`` is.

    Returns:
        The position of the first value (or sum) that is NaN or infinite, from whose block on
        nothing is encoded; or -1.
    """
    total = x
    if residual is not None and left is not None:
        with np.errstate(all="ignore"):
            total = np.add(x, residual, out=left)
    for block, part in _blocks(x.size):
        values = total[part]
        bad = first_nonfinite(values)
        if bad >= 0:
            return bad + block * INT8_BLOCK
        scale = min(np.abs(values).max() / np.float32(127), LARGEST_SCALE)
        if scale < SMALLEST_SCALE:
            scales[block], codes[part] = 0, 0
        else:
            # float32 division, correctly rounded; then to the nearest integer, half to even.
            scales[block], codes[part] = scale, np.rint(values / scale)
    if left is not None:
        add_int8(left, scales, codes, -1.0)
    return -1


def add_int8(acc: F32, scales: F32, codes: I8, weight: float) -> None:
    """Add ``weight`` times the values that the codes stand for to ``acc``, in place.

    Args:
        acc: float32, shape (n,). Written.
        scales: float32, shape (ceil(n / 4096),).
        codes: int8, shape (n,).
        weight: Factor of every value, rounded to float32.
    """
    with np.errstate(all="ignore"):
        for block, part in _blocks(acc.size):
            weighted_add(acc[part], scales[block] * codes[part].astype(np.float32), weight)


def first_code(codes: I8, code: int) -> int:
    """Return the position of the first ``code``, or -1.

    Args:
        codes: int8, shape (n,).
        code: What is looked for.
    """
    return first(codes == code)


def _blocks(n: int) -> Iterator[tuple[int, slice]]:
    for block, start in enumerate(range(0, n, INT8_BLOCK)):
        yield block, slice(start, min(start + INT8_BLOCK, n))
