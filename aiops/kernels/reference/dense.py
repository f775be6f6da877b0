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


def lerp(x: F32, y: F32, a: float) -> None:
    """Move ``x`` towards ``y``: ``x += a * (y - x)``, in place.

    Args:
        x: float32, shape (n,). Written.
        y: float32, shape (n,). May be ``x`` itself.
        a: Share of the way, rounded to float32.
    """
    with np.errstate(all="ignore"):
        x += np.float32(a) * (y - x)


def merge(arrays: tuple[F32, ...], weights: tuple[float, ...], out: F32) -> None:
    """Write the weighted sum of ``arrays`` to ``out``, added in the given order from zero.

    Args:
        arrays: float32 vectors of shape (n,), none overlapping ``out``.
        weights: One number for each, rounded to float32.
        out: float32, shape (n,). Written.
    """
    out[:] = 0
    for weight, array in zip(weights, arrays, strict=True):
        weighted_add(out, array, weight)


def merge_checked(
    base: F32,
    arrays: tuple[F32, ...],
    weights: tuple[float, ...],
    gain: float,
    out: F32,
    bypass: bool,
) -> int:
    """Write ``base + gain * sum`` to ``out``, where sum is what :func:`merge` writes.

    Args:
        base: float32, shape (n,). May be ``out`` itself.
        arrays: float32 vectors of shape (n,), none overlapping ``out``.
        weights: One number for each, rounded to float32.
        gain: Factor of the sum, rounded to float32.
        out: float32, shape (n,). Written.
        bypass: Has no effect here.

    Returns:
        The position of the first result that is NaN or infinite, or -1.
    """
    total = np.empty_like(out)
    merge(arrays, weights, total)
    with np.errstate(all="ignore"):
        np.add(base, np.float32(gain) * total, out=out)
    return first_nonfinite(out)


def copy_checked(x: F32, out: F32, bypass: bool) -> int:
    """Copy ``x`` to ``out`` and return the position of the first NaN or infinity, or -1.

    Args:
        x: float32, shape (n,).
        out: float32, shape (n,). Written.
        bypass: Has no effect here.
    """
    out[:] = x
    return first_nonfinite(x)


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
