"""Selection by magnitude, in numpy."""

from __future__ import annotations

import numpy as np

from aiops.kernels.reference._bits import F32, SIGN, U32
from aiops.kernels.reference.dense import first_nonfinite

PLACES = 64


def select_topk(x: F32, k: int, index: U32, value: F32) -> int:
    """Write the k largest magnitudes of ``x``, in order of position; ties go to the lower one.

    Args:
        x: float32, shape (n,).
        k: How many to select, 0 <= k <= n.
        index: uint32, shape (k,). Written.
        value: float32, shape (k,). Written.

    Returns:
        -1, or the position of the first value that is not finite; nothing is written then.
    """
    bad = first_nonfinite(x)
    if bad >= 0 or k == 0:
        return bad
    # For finite floats the order of |x| is the order of their bits without the sign.
    magnitude = x.view(np.uint32) & ~SIGN
    threshold = np.partition(magnitude, x.size - k)[x.size - k]
    keep = magnitude > threshold
    ties = np.flatnonzero(magnitude == threshold)
    keep[ties[: k - np.count_nonzero(keep)]] = True
    index[:] = np.flatnonzero(keep)
    value[:] = x[index]
    return -1


def feedback_topk(
    residual: F32, update: F32, out: F32, k: int, index: U32, value: F32
) -> tuple[int, float, float]:
    """Write ``residual + update`` to ``out``, and move its k largest magnitudes out of it.

    Args:
        residual: float32, shape (n,).
        update: float32, shape (n,).
        out: float32, shape (n,). Written; may be ``residual`` or ``update``.
        k: How many to select, 0 <= k <= n.
        index: uint32, shape (k,). Written.
        value: float32, shape (k,). Written.

    Returns:
        -1 or the position of the first sum that is not finite, where ``out`` is the sum and nothing
        else is written; and the sums of squares of all sums and of those moved.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        np.add(residual, update, out=out)
    bad = select_topk(out, k, index, value)
    if bad >= 0:
        return bad, 0.0, 0.0
    total = _energy(out)
    out[index] = 0.0
    return -1, total, _energy(value)


def _energy(x: F32) -> float:
    # Every 64th square is added in order, then the 64 sums: the compiled twin adds in lanes.
    whole = x.size // PLACES * PLACES
    squares = np.square(x, dtype=np.float64)
    lanes = np.add.reduce(squares[:whole].reshape(-1, PLACES), axis=0)
    lanes[: x.size - whole] += squares[whole:]
    total = 0.0
    for lane in lanes.tolist():
        total += lane
    return total
