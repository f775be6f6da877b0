"""Checked faces of the sparse kernels: scatter and gather. Positions are uint32."""

from __future__ import annotations

import numpy as np

from aiops.kernels import _backend, _check
from aiops.kernels._check import F32, FLOAT32, U32, UINT32


def scatter_add(acc: F32, index: U32, value: F32, weight: float = 1.0) -> None:
    """Add ``weight * value[i]`` to ``acc[index[i]]`` for every i, in place.

    Releases the GIL. Duplicate indices add up, in the order in which they stand.

    Args:
        acc: float32, shape (n,), C-contiguous, writable. One shard's accumulator.
        index: uint32, shape (k,). Positions in ``acc``; sorted ones are two to three times faster.
        value: float32, shape (k,).
        weight: Merge weight of this push, dimensionless; rounded to float32.

    Raises:
        TypeError: An argument has the wrong type or dtype.
        ValueError: ``index`` and ``value`` differ in length, arrays overlap, or the weight is not
            finite.
        IndexError: An index is >= n; the message names its position. ``acc`` is untouched.
    """
    n = _check.vector("acc", acc, FLOAT32, written=True)
    k = _check.vector("index", index, UINT32)
    _check.vector("value", value, FLOAT32, length=k, like="as in index")
    _check.apart("acc", acc, "index", index)
    _check.apart("acc", acc, "value", value)
    bad = _backend.sparse.scatter_add(acc, index, value, _check.weight(weight))
    if bad >= 0:
        raise IndexError(f"index[{bad}] is {index[bad]}, acc has {n} values")


def gather(x: F32, index: U32, *, out: F32 | None = None) -> F32:
    """Look up ``x[index[i]]`` for every i.

    Releases the GIL.

    Args:
        x: float32, shape (n,), C-contiguous. Read only.
        index: uint32, shape (k,). Positions in ``x``, in any order.
        out: float32, shape (k,). Receives the values; a fresh array if absent.

    Returns:
        ``out``, or the fresh array.

    Raises:
        TypeError: An argument has the wrong type or dtype.
        ValueError: ``index`` and ``out`` differ in length, or arrays overlap.
        IndexError: An index is >= n; the message names its position. ``out`` is untouched.
    """
    n = _check.vector("x", x, FLOAT32)
    k = _check.vector("index", index, UINT32)
    if out is None:
        out = np.empty(k, np.float32)
    else:
        _check.vector("out", out, FLOAT32, length=k, like="as in index", written=True)
        _check.apart("out", out, "x", x)
        _check.apart("out", out, "index", index)
    bad = _backend.sparse.gather(x, index, out)
    if bad >= 0:
        raise IndexError(f"index[{bad}] is {index[bad]}, x has {n} values")
    return out
