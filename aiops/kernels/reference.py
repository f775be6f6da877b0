"""The kernels in numpy: their specification, the fall-back of an unbuilt tree, the tests' oracle.

Each function is the twin of the compiled one of the same name: it takes arguments that the faces
have checked, writes into what the caller hands in and gives the same bits. Clarity comes before
speed here.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

F32 = npt.NDArray[np.float32]
U32 = npt.NDArray[np.uint32]
U16 = npt.NDArray[np.uint16]

SIGN = np.uint32(0x8000_0000)
INFINITY = np.uint32(0x7F80_0000)


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
    bad = _first(index >= acc.size)
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
    bad = _first(index >= x.size)
    if bad < 0:
        out[:] = x[index]
    return bad


def weighted_add(acc: F32, x: F32, weight: float) -> None:
    """Add ``weight * x`` to ``acc`` in place.

    Args:
        acc: float32, shape (n,). Written.
        x: float32, shape (n,). May be ``acc`` itself.
        weight: Factor of every value, rounded to float32.
    """
    with np.errstate(all="ignore"):
        acc += np.float32(weight) * x


def merge(arrays: tuple[F32, ...], weights: F32, out: F32) -> None:
    """Write the weighted sum of ``arrays`` to ``out``, added in the given order from zero.

    Args:
        arrays: float32 vectors of shape (n,), none overlapping ``out``.
        weights: float32, shape (len(arrays),).
        out: float32, shape (n,). Written.
    """
    out[:] = 0
    with np.errstate(all="ignore"):
        for weight, array in zip(weights, arrays, strict=True):
            out += weight * array


def swap_update(x: F32, base: F32, fresh: F32, out: F32) -> None:
    """Write ``x - base`` to ``out`` and ``fresh`` to both ``x`` and ``base``.

    Args:
        x: float32, shape (n,). Read, then written.
        base: float32, shape (n,). Read, then written.
        fresh: float32, shape (n,).
        out: float32, shape (n,). Written.
    """
    with np.errstate(all="ignore"):
        np.subtract(x, base, out=out)
    x[:] = fresh
    base[:] = fresh


def first_nonfinite(x: F32) -> int:
    """Return the position of the first NaN or infinity in ``x``, or -1.

    Args:
        x: float32, shape (n,).
    """
    return _first(~np.isfinite(x))


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
    return _first((bits & infinity) == infinity)


# Position of the first true element, or -1. Faces count on a plain int.
def _first(condition: npt.NDArray[np.bool_]) -> int:
    position = int(condition.argmax()) if condition.size else 0
    return position if condition.size and condition[position] else -1
