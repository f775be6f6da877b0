"""A vector's energy by magnitude, in numpy; see ``src_ext/histogram.h``."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from aiops.kernels.reference._bits import F32, SIGN
from aiops.kernels.reference.dense import first_nonfinite

SHIFT = 19
BUCKETS = 4096
LANES = 4


def energy_histogram(
    x: F32,
    block: int,
    every: int,
    seed: int,
    counts: npt.NDArray[np.int64],
    energies: npt.NDArray[np.float64],
) -> int:
    """Write how many values each of 4096 buckets holds, and the sum of their squares.

    Args:
        x: float32, shape (n,).
        block: How many consecutive values are looked at together.
        every: In a stretch of how many blocks one is looked at.
        seed: Decides which one.
        counts: int64, shape (4096,). Written.
        energies: float64, shape (4096,). Written.

    Returns:
        -1, or the position of the first value looked at that is not finite; nothing is written then.
    """
    position = looked_at(x.size, block, every, seed)
    seen = x[position]
    bad = first_nonfinite(seen)
    if bad >= 0:
        return int(position[bad])
    bucket = ((seen.view(np.uint32) & ~SIGN) >> SHIFT).astype(np.int64)
    counts[:] = np.bincount(bucket, minlength=BUCKETS)
    # The value at position i adds to lane i % 4, in order, and the lanes are added in pairs.
    lane = np.bincount(
        position % LANES * BUCKETS + bucket,
        np.square(seen, dtype=np.float64),
        minlength=LANES * BUCKETS,
    ).reshape(LANES, BUCKETS)
    energies[:] = (lane[0] + lane[1]) + (lane[2] + lane[3])
    return -1


def looked_at(n: int, block: int, every: int, seed: int) -> npt.NDArray[np.int64]:
    """Return the positions, ascending, of one block in each stretch of ``every`` blocks.

    Args:
        n: How many values there are; the last block and the last stretch may be shorter.
        block: Values of a block.
        every: Blocks of a stretch.
        seed: Decides which one.
    """
    start = np.arange(0, n, block * every)
    blocks = np.minimum(-(-(n - start) // block), every).astype(np.uint64)
    random = _split_mix(seed, np.arange(start.size, dtype=np.uint64)) >> np.uint64(32)
    place = start + (random * blocks >> np.uint64(32)).astype(np.int64) * block
    position = (place[:, np.newaxis] + np.arange(min(block, n))).ravel()
    return position[position < n]


# Number `count` of the numbers that a seed stands for (Steele et al., 2014).
def _split_mix(seed: int, count: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    z = np.uint64(seed) + (count + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ z >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ z >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    return z ^ z >> np.uint64(31)
