"""Selection by magnitude, in numpy."""

from __future__ import annotations

import numpy as np

from aiops.kernels.reference._bits import F32, SIGN, U32
from aiops.kernels.reference.dense import first_nonfinite


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
