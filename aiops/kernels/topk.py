"""Checked face of exact selection by magnitude. Positions are uint32."""

from __future__ import annotations

import operator

import numpy as np

from aiops.kernels import _backend, _check
from aiops.kernels._check import F32, FLOAT32, U32, UINT32

# Positions are uint32, on the wire too.
MOST_VALUES = 2**32


def select_topk(
    x: F32, k: int, *, index: U32 | None = None, value: F32 | None = None
) -> tuple[U32, F32]:
    """Select the k values of largest magnitude, in order of position.

    Exact: of equal magnitudes the one at the lower position wins. Releases the GIL.

    Args:
        x: float32, shape (n,), C-contiguous, n <= 2**32. Read only.
        k: How many values to select, 0 <= k <= n.
        index: uint32, shape (k,). Receives the positions, ascending; a fresh array if absent.
        value: float32, shape (k,). Receives ``x[index]``; a fresh array if absent.

    Returns:
        ``index`` and ``value``, the caller's own arrays where given.

    Raises:
        TypeError: An argument has the wrong type or dtype.
        ValueError: k is out of range, ``x`` holds NaN or infinity (the message names the position),
            an array has the wrong shape or overlaps another. The outputs are untouched.
    """
    n = _check.vector("x", x, FLOAT32)
    k = operator.index(k)
    if not 0 <= k <= n:
        raise ValueError(f"k is {k}, it must be between 0 and the {n} values of x")
    if n > MOST_VALUES:
        raise ValueError(f"x has {n} values, positions in 32 bits reach {MOST_VALUES}")
    if index is None:
        index = np.empty(k, np.uint32)
    else:
        _check.vector("index", index, UINT32, length=k, like="which is k", written=True)
        _check.apart("index", index, "x", x)
    if value is None:
        value = np.empty(k, np.float32)
    else:
        _check.vector("value", value, FLOAT32, length=k, like="which is k", written=True)
        _check.apart("value", value, "x", x)
        _check.apart("value", value, "index", index)
    bad = _backend.topk.select_topk(x, k, index, value)
    if bad >= 0:
        raise ValueError(f"x[{bad}] is {x[bad]}, every value must be finite")
    return index, value
