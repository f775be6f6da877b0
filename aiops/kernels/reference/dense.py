"""Dense merges, in numpy."""

from __future__ import annotations

import numpy as np

from aiops.kernels.reference._bits import F32, first


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
    return first(~np.isfinite(x))
