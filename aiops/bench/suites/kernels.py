"""Kernels against numpy, torch and scipy, one thread each, with the memory's own speed as the bound."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from aiops.bench.kernel import coding, dense, histogram, index, select, sparse
from aiops.bench.kernel.base import BOUNDS, Data, KernelCase, Native, scipy_sparse, torch
from aiops.bench.machine import available_bytes
from aiops.bench.peers.base import Skipped
from aiops.bench.result import Miss
from aiops.bench.run import Bench

SUITE = "kernels"
QUICK_SIZE = 1_000_000

# numpy's argpartition and torch's topk of 1e8 values took 2.4 GB beside a gigabyte of vectors.
BYTES_PER_VALUE = 48

# Where others take seconds there are few: torch's topk at 1e8 values, numpy's argpartition among ties.
PASSES, LARGE_PASSES, QUICK_PASSES = 7, 3, 3
LARGE = 100_000_000

FAMILIES: tuple[tuple[tuple[int, ...], int, Callable[[Data], Iterator[KernelCase]]], ...] = (
    (select.SIZES, PASSES, select.cases),
    (select.WORST_SIZES, LARGE_PASSES, select.worst),
    (select.PUSH_SIZES, PASSES, select.push),
    (sparse.SIZES, PASSES, sparse.cases),
    (sparse.WIRE_SIZES, PASSES, sparse.wire),
    (index.SIZES, PASSES, index.cases),
    (histogram.SIZES, PASSES, histogram.cases),
    (dense.LERP_SIZES, PASSES, dense.interpolation),
    (dense.SIZES, PASSES, dense.cases),
    (coding.SIZES, PASSES, coding.cases),
)


async def run(bench: Bench, *, sizes: Sequence[int] = (), names: Sequence[str] = ()) -> None:
    """Measure every family at its sizes.

    Args:
        bench: Where results go.
        sizes: Other lengths of the vectors.
        names: Only cases with one of these in their names, and no sizes of codes.
    """
    native = prepare(bench)
    sizes = sizes or ((QUICK_SIZE,) if bench.quick else ())
    for own_sizes, passes, cases in FAMILIES:
        for n in sizes or own_sizes:
            if BYTES_PER_VALUE * n > available_bytes():
                reason = f"there are only {available_bytes() / 1e9:.0f} GB of memory"
                bench.put(Miss(bench=SUITE, case=f"n = {n:,}", peer="", reason=reason))
                continue
            most = QUICK_PASSES if bench.quick else LARGE_PASSES if n >= LARGE else passes
            for case in cases(Data(n, native)):
                if _chosen(case, names):
                    await measure(bench, case, n, most)
    if names:
        return
    for figure in index.sizes(Data(sizes[0] if sizes else index.SIZES[0], native)):
        bench.figure(SUITE, *figure)


def named(names: Sequence[str]) -> list[str]:
    """Return the cases that have one of these in their names."""
    # Nothing is made of the data until a case's turn comes.
    found = (case for _, _, cases in FAMILIES for case in cases(Data(1, None)))
    return [case.name for case in found if _chosen(case, names)]


def _chosen(case: KernelCase, names: Sequence[str]) -> bool:
    return not names or any(part in case.name for part in names)


def prepare(bench: Bench) -> Native | None:
    """Tell what is missing, let torch have one thread, and return the bounds."""
    for name, module in (("torch", torch), ("scipy", scipy_sparse)):
        if module is None:
            bench.put(Miss(bench=SUITE, case="", peer=name, reason=f"{name} is not installed"))
    if torch is not None:
        torch.set_num_threads(1)
    try:
        return Native(bench.scratch)
    except Skipped as error:
        bench.put(Miss(bench=SUITE, case="", peer="bounds", reason=str(error)))
        return None


async def measure(bench: Bench, case: KernelCase, n: int, passes: int) -> None:
    """Put a row for each contender."""
    contenders = case.make()
    await bench.time(
        SUITE,
        f"{case.name}, n = {n:,}",
        contenders,
        passes=passes,
        bound=next((name for name in BOUNDS if name in contenders), ""),
        goals=case.goals,
    )
