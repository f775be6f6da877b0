"""Checked faces of exact selection by magnitude, alone and with error feedback.

Positions are uint32.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass

import numpy as np

from aiops.kernels import _backend, _check
from aiops.kernels._check import F32, FLOAT32, U32, UINT32

# Positions are uint32, on the wire too.
MOST_VALUES = 2**32


@dataclass(frozen=True, slots=True, eq=False)
class Feedback:
    """What a step of error feedback moved out, and how much of the whole that is.

    Attributes:
        index: uint32, shape (k,), ascending. Positions of what was moved.
        value: float32, shape (k,). What was moved.
        energy: Sum of the squares of all n sums, before anything was moved.
        moved_energy: Sum of the squares of ``value``.
    """

    index: U32
    value: F32
    energy: float
    moved_energy: float


def select_topk(
    x: F32, k: int, *, index: U32 | None = None, value: F32 | None = None
) -> tuple[U32, F32]:
    """Select the k values of largest magnitude, in order of position.

    Exact: of equal magnitudes the one at the lower position wins. Releases the GIL. Takes some 16
    bytes of scratch per selected value while it runs, none that matter where k is above n / 4.

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
        MemoryError: There is no room for the scratch. The outputs are untouched.
    """
    n = _check.vector("x", x, FLOAT32)
    k = _wanted(k, n, "x")
    index, value = _outputs(k, index, value, x=x)
    bad = _backend.topk.select_topk(x, k, index, value)
    if bad >= 0:
        raise ValueError(f"x[{bad}] is {x[bad]}, every value must be finite")
    return index, value


def feedback_topk(
    residual: F32,
    update: F32,
    k: int,
    *,
    out: F32 | None = None,
    index: U32 | None = None,
    value: F32 | None = None,
) -> Feedback:
    """Add an update to what was left behind, and move the k sums of largest magnitude out.

    One step of error feedback (Stich et al., 2018): ``out`` becomes ``residual + update``, in
    float32, but zero where a sum was moved. The same as adding, :func:`select_topk` and setting to
    zero, in one pass over memory. Exact: of equal magnitudes the one at the lower position is
    moved. Releases the GIL; takes scratch as :func:`select_topk` does.

    Args:
        residual: float32, shape (n,), C-contiguous, n <= 2**32. What was left behind so far.
        update: float32, shape (n,), C-contiguous.
        k: How many sums to move, 0 <= k <= n.
        out: float32, shape (n,), writable: what is left behind now. May be ``residual`` or
            ``update`` itself, which is the faster; a fresh array if absent.
        index: uint32, shape (k,). Receives the positions, ascending; a fresh array if absent.
        value: float32, shape (k,). Receives the sums at ``index``; a fresh array if absent.

    Returns:
        ``index`` and ``value``, the caller's own arrays where given, and the energies: they show
        the share that was moved without another pass.

    Raises:
        TypeError: An argument has the wrong type or dtype.
        ValueError: k is out of range, an array has the wrong shape or overlaps another; nothing is
            written. Or a sum is NaN or infinite, an overflow included (the message names the first
            position): ``index`` and ``value`` are untouched and ``out`` is the whole sum, nothing
            moved. So where ``out`` is ``residual``, the old residual is lost: a caller that has to
            go on from it needs an ``out`` of its own, which leaves ``residual`` untouched always.
        MemoryError: There is no room for the scratch. Nothing is written.
    """
    n = _check.vector("residual", residual, FLOAT32)
    _check.vector("update", update, FLOAT32, length=n, like="as in residual")
    k = _wanted(k, n, "residual")
    if out is None:
        out = np.empty(n, np.float32)
    else:
        _check.vector("out", out, FLOAT32, length=n, like="as in residual", written=True)
        for name, other in (("residual", residual), ("update", update)):
            if out is not other:
                _check.apart("out", out, name, other, same=True)
    index, value = _outputs(k, index, value, residual=residual, update=update, out=out)
    bad, energy, moved_energy = _backend.topk.feedback_topk(residual, update, out, k, index, value)
    if bad >= 0:
        raise ValueError(f"residual plus update is {out[bad]} at position {bad}, not finite")
    return Feedback(index, value, energy, moved_energy)


# k as an int, if that many of the n values of `name` can be selected.
def _wanted(k: int, n: int, name: str) -> int:
    k = operator.index(k)
    if not 0 <= k <= n:
        raise ValueError(f"k is {k}, it must be between 0 and the {n} values of {name}")
    if n > MOST_VALUES:
        raise ValueError(f"{name} has {n} values, positions in 32 bits reach {MOST_VALUES}")
    return k


# The arrays that receive the selection, apart from each other and from all others.
def _outputs(k: int, index: U32 | None, value: F32 | None, **others: F32) -> tuple[U32, F32]:
    if index is None:
        index = np.empty(k, np.uint32)
    else:
        _check.vector("index", index, UINT32, length=k, like="which is k", written=True)
        for name, other in others.items():
            _check.apart("index", index, name, other)
    if value is None:
        return index, np.empty(k, np.float32)
    _check.vector("value", value, FLOAT32, length=k, like="which is k", written=True)
    for name, other in others.items():
        _check.apart("value", value, name, other)
    _check.apart("value", value, "index", index)
    return index, value
