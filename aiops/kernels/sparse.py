"""Checked faces of the sparse kernels: select, scatter, gather. Positions are uint32."""

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
