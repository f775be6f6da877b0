"""Sparse accumulation and look-up, in numpy."""

from __future__ import annotations

import numpy as np

from aiops.kernels.reference._bits import F32, U32, first


def scatter_add(acc: F32, index: U32, value: F32, weight: float) -> int:
    """Add ``weight * value[i]`` to ``acc[index[i]]`` for every i, in place and in order.

    Args:
        acc: float32, shape (n,). Written.
        index: uint32, shape (k,).
        value: float32, shape (k,).
        weight: Factor of every value, rounded to float32.

    Returns:
        -1, or the position of the first index >= n; ``acc`` is untouched then.
    """
    bad = first(index >= acc.size)
    if bad < 0:
        with np.errstate(all="ignore"):
            np.add.at(acc, index, np.float32(weight) * value)
    return bad


def gather(x: F32, index: U32, out: F32) -> int:
    """Write ``x[index[i]]`` to ``out[i]`` for every i.

    Args:
        x: float32, shape (n,).
        index: uint32, shape (k,).
        out: float32, shape (k,). Written.

    Returns:
        -1, or the position of the first index >= n; ``out`` is untouched then.
    """
    bad = first(index >= x.size)
    if bad < 0:
        out[:] = x[index]
    return bad
