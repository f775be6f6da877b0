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


def lerp(x: F32, y: F32, a: float) -> None:
    """Move ``x`` towards ``y``: ``x += a * (y - x)``, in place.

    A staleness-weighted merge of a whole model (Xie et al., 2019). Every operation is rounded by
    itself (no FMA), so the result is that of the numpy expression bit for bit; ``torch.lerp_``
    fuses two of them and differs in the last bit of about a tenth of the values. With ``a`` = 1 the
    result may differ from ``y`` in its last bit. Releases the GIL.

    Args:
        x: float32, shape (n,), C-contiguous, writable.
        y: float32, shape (n,). May be ``x`` itself.
        a: Share of the way, dimensionless; rounded to float32.

    Raises:
        TypeError: An argument has the wrong type or dtype.
        ValueError: Lengths differ, the arrays overlap in part, or ``a`` is not finite.
    """
    n = _check.vector("x", x, FLOAT32, written=True)
    _check.vector("y", y, FLOAT32, length=n, like="as in x")
    _check.apart("x", x, "y", y, same=True)
    _backend.merge.lerp(x, y, _check.weight(a, "a"))


def merge(arrays: Sequence[F32], weights: Sequence[float], *, out: F32 | None = None) -> F32:
    """Sum ``weights[i] * arrays[i]`` in the given order, starting from zero.

    The result depends on the order and on nothing else: it equals, bit for bit,
    ``out = 0; out += float32(w) * a`` for each pair. One pass, which writes past the caches what
    they could not hold. Releases the GIL.

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
    if out is not None:
        n, like = _check.vector("out", out, FLOAT32, written=True), "as in out"
    elif sources:
        n, like = _check.vector("arrays[0]", sources[0], FLOAT32), "as in arrays[0]"
    else:
        raise ValueError("there are 0 arrays and no out, one of them must give the length")
    factors = _factors(sources, weights, n, like, out)
    if out is None:
        out = np.empty(n, np.float32)
    _backend.merge.merge(sources, factors, out)
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
    """Write ``base + gain * merge(arrays, weights)`` to ``out`` and say where it is not finite.

    One pass, and the same bits as the three of ``merge``, ``weighted_add`` to a copy of ``base``
    and ``first_nonfinite``. Since NaN and infinity survive every sum and product (0 times infinity
    is NaN), the results are all finite only if all inputs were: one check answers for both. All
    values are written even if one is not finite. Releases the GIL.

    Args:
        base: float32, shape (n,), C-contiguous. May be ``out`` itself.
        arrays: float32 vectors of shape (n,); may be none. Read only.
        weights: One finite weight per array, rounded to float32.
        gain: Factor of the sum, dimensionless; rounded to float32.
        out: float32, shape (n,), writable. Receives the results.
        bypass: Whether to write past the caches. Right for a piece of a vector that is larger than
            they are (0.63 of the time), wrong for what is read again soon.

    Returns:
        The position of the first result that is NaN or infinite, or -1.

    Raises:
        TypeError: An argument has the wrong type or dtype.
        ValueError: The numbers of arrays and weights differ, lengths differ, ``out`` overlaps an
            array or part of ``base``, or a weight or ``gain`` is not finite.
    """
    sources = tuple(arrays)
    n = _check.vector("out", out, FLOAT32, written=True)
    _check.vector("base", base, FLOAT32, length=n, like="as in out")
    if base is not out:
        _check.apart("out", out, "base", base, same=True)
    factors = _factors(sources, weights, n, "as in out", out)
    factor = _check.weight(gain, "gain")
    return _backend.merge.merge_checked(base, sources, factors, factor, out, bypass)


def copy_checked(x: F32, *, out: F32, bypass: bool = False) -> int:
    """Copy ``x`` to ``out`` and say where it is not finite, in one pass.

    All values are copied even if one is not finite. Releases the GIL.

    Args:
        x: float32, shape (n,), C-contiguous. Read only.
        out: float32, shape (n,), writable. Receives the copy.
        bypass: Whether to write past the caches: right for a piece of a vector that is larger than
            they are, wrong for what is read again soon.

    Returns:
        The position of the first NaN or infinity, or -1.

    Raises:
        TypeError: An argument has the wrong type or dtype.
        ValueError: Lengths differ, ``out`` is read-only, or the arrays overlap.
    """
    n = _check.vector("x", x, FLOAT32)
    _check.vector("out", out, FLOAT32, length=n, like="as in x", written=True)
    _check.apart("out", out, "x", x)
    return _backend.merge.copy_checked(x, out, bypass)


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


# Checks the sources of a merge, and returns their weights as plain floats.
def _factors(
    sources: tuple[F32, ...], weights: Sequence[float], n: int, like: str, out: F32 | None
) -> tuple[float, ...]:
    factors = _check.weights("weights", weights)
    if len(factors) != len(sources):
        raise ValueError(f"there are {len(factors)} weights, the arrays are {len(sources)}")
    _check.vectors("arrays", sources, FLOAT32, length=n, like=like, apart_from=out)
    return factors
