"""Kernels against numpy and torch, one thread each, with the memory's own speed as the bound."""

from __future__ import annotations

from aiops.bench.kernel_cases import cases
from aiops.bench.run import Bench

SUITE = "kernels"
SIZES = (100_000, 1_000_000, 10_000_000)
QUICK_SIZES = (100_000,)

# Names of contenders that are no library but what the memory allows.
BOUNDS = ("read", "copy", "axpy", "stream")


async def run(bench: Bench) -> None:
    """Measure every case at every size."""
    for n in QUICK_SIZES if bench.quick else SIZES:
        for name, contenders in cases(n):
            bound = next((name for name in BOUNDS if name in contenders), "")
            await bench.time(
                SUITE,
                f"{name}, n = {n:,}",
                contenders,
                passes=5 if bench.quick else 11,
                bound=bound,
            )
