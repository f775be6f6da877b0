"""Checked face of a vector's energy by magnitude: what Top-k would keep, for every k at once."""

from __future__ import annotations

import operator

import numpy as np
import numpy.typing as npt

from aiops.kernels import _backend, _check
from aiops.kernels._check import F32, FLOAT32

# Exponent and four bits of the mantissa.
BUCKETS = 4096

# 4 KiB: a page, or 64 cache lines, are read at the speed of memory wherever they lie.
BLOCK = 1024

# Products of two such numbers stay positions.
MOST_BLOCK = 2**31 - 1


def energy_histogram(
    x: F32, *, block: int = BLOCK, every: int = 1, seed: int = 0
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
    """Count values by magnitude, and sum their squares.

    Bucket ``(bits & 0x7fffffff) >> 19`` of a float32 is its exponent and four bits of its mantissa,
    so that buckets ascend with the magnitude and are 3 to 6 % wide; the last 16 are empty. Sums are
    float64 and the same bits on every machine. ``aiops.policy.exchange.Spectrum`` sums the buckets
    up, to the share of the energy that the k largest values hold, for any k.

    With ``every`` above 1 a sample is looked at: of each stretch of ``every`` blocks one, at a place
    that ``seed`` and the number of the stretch decide. The last stretch may have fewer blocks, so
    some block of what is not empty is always looked at. Of 25e6 values one block of 1024 in 32 takes
    0.4 ms instead of 12. The share of energy read from it was off by 1 % (root mean square) at density
    .001 of normal values, but of heavy tails (normal times lognormal, sigma 1.5), where few values hold
    much of the energy, by 0.4 % at .1, 1.5 at .033, 3.6 at .011, 7 at .004 and 14 at .001.

    Releases the GIL. Takes 256 KiB of scratch while it runs.

    Args:
        x: float32, shape (n,), C-contiguous. Read only.
        block: How many consecutive values are looked at together, 1 <= block < 2**31.
        every: In a stretch of how many blocks one is looked at, 1 <= every < 2**31; 1 looks at all.
        seed: Decides which one, 0 <= seed < 2**64.

    Returns:
        int64, shape (4096,), how many of the values looked at each bucket holds, and float64, shape
        (4096,), the sum of their squares. Fresh arrays, which the caller owns.

    Raises:
        TypeError: An argument has the wrong type or dtype.
        ValueError: ``block``, ``every`` or ``seed`` is out of range, or a value that is looked at is
            NaN or infinite; the message names the first one.
        MemoryError: There is no room for the scratch.
    """
    _check.vector("x", x, FLOAT32)
    block = _within("block", block, 1, MOST_BLOCK)
    every = _within("every", every, 1, MOST_BLOCK)
    seed = _within("seed", seed, 0, 2**64 - 1)
    counts, energies = np.empty(BUCKETS, np.int64), np.empty(BUCKETS, np.float64)
    bad = _backend.histogram.energy_histogram(x, block, every, seed, counts, energies)
    if bad >= 0:
        raise ValueError(f"x[{bad}] is {x[bad]}, every value must be finite")
    return counts, energies


def _within(name: str, value: int, least: int, most: int) -> int:
    value = operator.index(value)
    if not least <= value <= most:
        raise ValueError(f"{name} is {value}, it must be between {least} and {most}")
    return value
