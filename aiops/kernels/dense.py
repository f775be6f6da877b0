"""Checked faces of the dense float32 kernels: merges, and the check for finite values."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from aiops.kernels import _backend, _check
from aiops.kernels._check import F32, FLOAT32


def weighted_add(acc: F32, x: F32, weight: float = 1.0) -> None:
    """Add ``weight * x`` to ``acc`` in place.

    Releases the GIL. Product and sum are rounded one after the other (no FMA), as numpy does it.

    Args:
        acc: float32, shape (n,), C-contiguous, writable.
        x: float32, shape (n,). May be ``acc`` itself.
        weight: Merge weight, dimensionless; rounded to float32.

    Raises:
        TypeError: An argument has the wrong type or dtype.
        ValueError: Lengths differ, the arrays overlap in part, or the weight is not finite.
    """
    n = _check.vector("acc", acc, FLOAT32, written=True)
    _check.vector("x", x, FLOAT32, length=n, like="as in acc")
    _check.apart("acc", acc, "x", x, same=True)
    _backend.merge.weighted_add(acc, x, _check.weight(weight))


def merge(arrays: Sequence[F32], weights: Sequence[float], *, out: F32 | None = None) -> F32:
    """Sum ``weights[i] * arrays[i]`` in the given order, starting from zero.

    The result depends on the order and on nothing else: it equals, bit for bit,
    ``out = 0; out += float32(w) * a`` for each pair. Releases the GIL.

    Args:
        arrays: float32 vectors of one shape (n,), C-contiguous. Read only.
        weights: One finite weight per array, rounded to float32. Nothing is normalised here.
        out: float32, shape (n,). Receives the sum; a fresh array if absent.

    Returns:
        ``out``, or the fresh array.

    Raises:
        TypeError: An argument has the wrong type or dtype.
        ValueError: The numbers of arrays and weights differ, there are no arrays and no ``out``,
            lengths differ, ``out`` overlaps an array, or a weight is not finite.
    """
    sources = tuple(arrays)
    factors = [_check.weight(weight, f"weights[{i}]") for i, weight in enumerate(weights)]
    if len(factors) != len(sources):
        raise ValueError(f"there are {len(factors)} weights, the arrays are {len(sources)}")
    if out is not None:
        n, like = _check.vector("out", out, FLOAT32, written=True), "as in out"
    elif sources:
        n, like = _check.vector("arrays[0]", sources[0], FLOAT32), "as in arrays[0]"
    else:
        raise ValueError("there are 0 arrays and no out, one of them must give the length")
    for i, source in enumerate(sources):
        _check.vector(f"arrays[{i}]", source, FLOAT32, length=n, like=like)
        if out is not None:
            _check.apart("out", out, f"arrays[{i}]", source)
    if out is None:
        out = np.empty(n, np.float32)
    _backend.merge.merge(sources, np.array(factors, np.float32), out)
    return out


def merge_checked(
    base: F32,
    arrays: Sequence[F32],
    weights: Sequence[float],
    *,
    gain: float = 1.0,
    out: F32,
    bypass: bool = False,
) -> int:
    """Write ``base + gain * merge(arrays, weights)`` to ``out`` and say where it is not finite."""
    acc = np.zeros_like(out)
    for array, weight in zip(arrays, weights, strict=True):
        weighted_add(acc, array, weight)
    np.copyto(out, base)
    weighted_add(out, acc, gain)
    return first_nonfinite(out)


def swap_update(x: F32, base: F32, new: F32, *, out: F32) -> None:
    """Take the update out and the new model in: ``out = x - base; x = new; base = new``.

    One pass over memory. Releases the GIL.

    Args:
        x: float32, shape (n,), C-contiguous, writable. The parameters after local steps; holds
            ``new`` afterwards.
        base: float32, shape (n,), writable. The parameters they started from; holds ``new``
            afterwards.
        new: float32, shape (n,). The parameters to go on from.
        out: float32, shape (n,). Receives the update.

    Raises:
        TypeError: An argument has the wrong type or dtype.
        ValueError: Lengths differ, an output is read-only, or two of the arrays overlap.
    """
    n = _check.vector("x", x, FLOAT32, written=True)
    _check.vector("base", base, FLOAT32, length=n, like="as in x", written=True)
    _check.vector("new", new, FLOAT32, length=n, like="as in x")
    _check.vector("out", out, FLOAT32, length=n, like="as in x", written=True)
    _check.apart("x", x, "base", base)
    _check.apart("x", x, "new", new)
    _check.apart("base", base, "new", new)
    _check.apart("out", out, "x", x)
    _check.apart("out", out, "base", base)
    _check.apart("out", out, "new", new)
    _backend.merge.swap_update(x, base, new, out)


def first_nonfinite(x: F32) -> int:
    """Return the position of the first NaN or infinity in ``x``, or -1 if all is finite.

    One pass that stops there. Releases the GIL.

    Args:
        x: float32, shape (n,), C-contiguous. Read only.

    Raises:
        TypeError: ``x`` is no numpy array or not float32.
        ValueError: ``x`` is not a contiguous vector.
    """
    _check.vector("x", x, FLOAT32)
    return _backend.merge.first_nonfinite(x)
