"""Energy by magnitude, of all values and of a sample, beside two bincounts of numpy."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from aiops import kernels
from aiops.bench.kernel.base import Contenders, Data, KernelCase

SIZES = (25_000_000,)

# What judges densities each few steps may look at so little.
EVERY = 32


def cases(data: Data) -> Iterator[KernelCase]:
    """Yield the pass over all values, and over one block of many."""
    yield KernelCase("energy_histogram", lambda: histogram(data, 1), {"numpy": ">= 10"})
    yield KernelCase(
        f"energy_histogram of one block in {EVERY}",
        lambda: histogram(data, EVERY),
        {"numpy": ">= 2.5"},
    )


def histogram(data: Data, every: int) -> Contenders:
    """Count values and sum squares by magnitude; numpy's sample is one piece, the first."""
    x = data.normal()
    part = x[: -(-x.size // every)]

    def by_numpy() -> object:
        bucket = part.view(np.uint32) >> 19 & 4095
        counts = np.bincount(bucket, minlength=4096)
        return counts, np.bincount(bucket, np.square(part, dtype=np.float64), minlength=4096)

    found: Contenders = {
        "ours": lambda: kernels.energy_histogram(x, every=every),
        "numpy": by_numpy,
    }
    return found | data.read(x) if every == 1 else found
