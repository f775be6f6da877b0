"""What a round of ours costs: against the kernel's bound, by tensors, keys and workers, in memory and in time.

"Cost grows as it should": time per round is fitted against bytes, workers and keys, and the exponents are printed.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping

import numpy as np

from aiops.bench.campaign import Campaign, Contender
from aiops.bench.control import control
from aiops.bench.harness import Spread
from aiops.bench.layout import RESNET50_VALUES
from aiops.bench.memory import push_memory
from aiops.bench.network import SAME
from aiops.bench.peers.table import peer
from aiops.bench.run import Bench, compared, moved_gb
from aiops.bench.suites.peers import SMALL_BYTES, contenders, workers

SUITE = "round"
OURS, BOUND, BARE = peer("ours").name, peer("sockets").name, peer("transport").name
SIZES = {
    "4 KB": 4096,
    "64 KB": 65_536,
    "1 MB": 1_000_000,
    "16 MB": 16_000_000,
    "100 MB": 100_000_000,
}
KEY_COUNTS = (1, 100, 10_000, 100_000)
KEYS_BYTES = 100_000_000


async def run(bench: Bench) -> None:
    """Measure sizes, workers, layouts, keys, control, and memory."""
    passes = 3 if bench.quick else 9
    by_bytes = await sizes(bench, passes)
    if not bench.quick:
        # A round of several workers has no median, so that one worker's is a mean here, too.
        by_workers = {1: mean(by_bytes["16 MB"])}
        for n_workers in (2, 4):
            for size in ("100 MB", "16 MB", "1 MB", "4 KB"):
                result = await against_bound(bench, size, n_workers, passes)
                if size == "16 MB":
                    by_workers[n_workers] = mean(result)
        await layouts(bench, passes)
        by_keys = await keys(bench, passes)
        # Below a megabyte a round's own cost outweighs its bytes.
        large = {SIZES[size]: median(by_bytes[size]) for size in ("1 MB", "16 MB", "100 MB")}
        slope(bench, "time against bytes from 1 MB on", large, "<= 1.05")
        slope(bench, "time against workers at 16 MB", by_workers, "<= 1.05")
        slope(bench, "time against keys at 100 MB", by_keys, "<= 0.1")
    n_bytes = 16_000_000 if bench.quick else 100_000_000
    await control(bench, SUITE, n_bytes=n_bytes, passes=passes)
    await push_memory(bench, SUITE, (1 << 26) if bench.quick else (1 << 30))


async def sizes(bench: Bench, passes: int) -> dict[str, Campaign | None]:
    """Measure one worker at every size; return what was measured by size."""
    found = {}
    for size in ("16 MB", "4 KB") if bench.quick else SIZES:
        result = await against_bound(bench, size, 1, passes)
        found[size] = result
        if result is not None and BARE in result.outcomes:
            ratio = compared(result, OURS, BARE)
            bench.figure(
                SUITE, f"client and server over our transport, {size}", ratio, "times as long"
            )
        if result is not None and size == "100 MB":
            copies(bench, result)
    return found


async def against_bound(bench: Bench, size: str, n_workers: int, passes: int) -> Campaign | None:
    """Measure ours, our transport alone, and the kernel alone."""
    case = bench.case(SIZES[size], n_workers)
    names = ["ours", "transport", "sockets", *["epoll"] * (case.n_bytes < SMALL_BYTES)]
    name = f"{size}, {workers(n_workers)}"
    taking_part = contenders(bench.available(SUITE, names), size, case, SAME)
    return await bench.compete(SUITE, name, taking_part, passes=passes, bound=BOUND)


async def layouts(bench: Bench, passes: int) -> None:
    """Measure ResNet-50's tensors against one tensor of the same bytes."""
    n_bytes = 4 * RESNET50_VALUES
    both = [
        Contender(label, "ours", bench.case(n_bytes, layout=layout), SAME)
        for label, layout in (("aiops, one tensor", "one"), ("aiops, 161 tensors", "resnet50"))
    ]
    one, many = (each.label for each in both)
    result = await bench.compete(SUITE, "ResNet-50, 102 MB", both, passes=passes, ours=one)
    if result is not None:
        ratio = compared(result, many, one)
        bench.figure(SUITE, "161 tensors against one", ratio, "times as long", "<= 1.1")


async def keys(bench: Bench, passes: int) -> dict[int, float]:
    """Measure the same bytes in ever more tensors; return seconds by number of tensors."""
    labels = {n: f"aiops, 10^{round(math.log10(n))} tensors" for n in KEY_COUNTS}
    by_count = [
        Contender(label, "ours", bench.case(KEYS_BYTES, layout=str(count)), SAME)
        for count, label in labels.items()
    ]
    first = labels[1]
    result = await bench.compete(SUITE, "keys, 100 MB", by_count, passes=passes, ours=first)
    if result is None:
        return {}
    return {
        count: Spread.of(result.outcomes[label].samples.values()).median
        for count, label in labels.items()
        if result.outcomes[label].samples
    }


def median(result: Campaign | None) -> float:
    """Return the median time of a round of ours, NaN where there is none."""
    samples = result.outcomes[OURS].samples if result is not None else {}
    return Spread.of(samples.values()).median if samples else math.nan


def mean(result: Campaign | None) -> float:
    """Return the mean time of a round of ours, the median over passes, NaN where there is none."""
    means = result.outcomes[OURS].means if result is not None else {}
    return Spread.of(means.values()).median if means else math.nan


def slope(bench: Bench, name: str, times: Mapping[int, float], goal: str) -> None:
    """Fit t = c * x^slope by least squares on logarithms, and put the slope."""
    points = [(math.log(x), math.log(t)) for x, t in times.items() if t > 0]
    found = math.nan
    if len(points) > 1:
        x, t = np.array(points).T
        found = float(np.polyfit(x, t, 1)[0])
    bench.figure(SUITE, name, found, "exponent", goal)


def copies(bench: Bench, result: Campaign) -> None:
    """Put what of ours' processor time is spent outside the kernel, in copies of what is moved."""
    outcome = result.outcomes[OURS]
    if outcome.failed or not outcome.rounds:
        return
    case = bench.case(SIZES["100 MB"])
    per_byte = outcome.user_s / moved_gb(case, outcome) / 1e9
    value = per_byte / copy_s_per_byte(case.n_values)
    bench.figure(SUITE, "user time of a 100 MB round", value, "memcpys of the bytes moved")


def copy_s_per_byte(n_values: int) -> float:
    """Return what copying one byte of a large array takes, in seconds."""
    source, target = np.zeros(n_values, np.float32), np.zeros(n_values, np.float32)
    times = []
    for _ in range(5):
        start = time.process_time()
        np.copyto(target, source)
        times.append(time.process_time() - start)
    return Spread.of(times).median / source.nbytes
