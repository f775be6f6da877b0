"""What :mod:`benchmarks.streams` measured: rows over seeds, learning rates that were tried, and buffers that grow."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import msgspec

from aiops.lab.statistic import Interval, geometric
from aiops.policy.batch import BASE, ByRate
from aiops.policy.stream import Device
from benchmarks.streams_clock import RECORD_BYTES, pile
from benchmarks.streams_method import Setting
from benchmarks.streams_real import Real
from benchmarks.streams_training import Result
from benchmarks.trainings import arrival, final, mean

BASELINE, OURS = "DDL", "ScaDLES"
# How long buffers are let grow: the paper's Table II.
HORIZONS = (1_000, 10_000, 100_000)


class Tuned(msgspec.Struct, frozen=True):
    """A learning rate that was chosen.

    Attributes:
        lr: It.
        seconds: By learning rate, to the target; None where it was not reached.
        accuracy: By learning rate, at the end.
    """

    lr: float
    seconds: dict[str, float | None]
    accuracy: dict[str, float]


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One way to train, over all its seeds.

    Attributes:
        setting: Devices and streams.
        label: The way.
        lr: Its learning rate.
        runs: How many.
        reached: How many of them came to the target.
        steps: Steps to the target, mean of those that came.
        seconds: To the target; None unless all came.
        ratio: The baseline's time over this one's, paired by seed; a run that did not come counts with all its time.
            None where the baseline or this one never came.
        ratios: The same by the rate of the slowest stream of each seed, in samples/s.
        wait_s: Of a step, of the devices on which the others waited, mean.
        compute_s: The same.
        exchange_s: The same.
        samples: Of a step, of all devices, mean.
        megabytes: Of a gradient in a step, through the busiest link, mean.
        injected_kilobytes: Of records, the same.
        compressed: Share of the steps.
        most: Samples that the devices had waiting at most, mean.
        buffer_megabytes: Their size.
        dropped: Share of the samples that was thrown away.
        accuracy: At the end, mean of the last five looks.
    """

    setting: str
    label: str
    lr: float
    runs: int
    reached: int
    steps: float | None
    seconds: Interval | None
    ratio: Interval | None
    ratios: list[tuple[float, float]]
    wait_s: float
    compute_s: float
    exchange_s: float
    samples: float
    megabytes: float
    injected_kilobytes: float
    compressed: float
    most: float
    buffer_megabytes: float
    dropped: float
    accuracy: float


class Pile(msgspec.Struct, frozen=True):
    """What waits before all devices after so many steps.

    Attributes:
        setting: Devices and streams.
        iterations: How many.
        baseline: Samples, where batches are 64 and all is kept.
        kept: Samples, where batches follow the rates and all is kept.
        truncated: Samples, where what is left is thrown away.
    """

    setting: str
    iterations: int
    baseline: float
    kept: float
    truncated: float


class Report(msgspec.Struct):
    """All that was measured.

    Attributes:
        rows: The table.
        tuning: By setting: each method's learning rates.
        piles: Buffers.
        real: By real processes.
    """

    rows: list[Row]
    tuning: list[tuple[str, float, dict[str, Tuned]]]
    piles: list[Pile]
    real: list[Real]

    def add(
        self, setting: Setting, results: Sequence[Result], tuned: Mapping[str, Tuned], target: float
    ) -> None:
        """Take in the trainings of a setting."""
        self.tuning.append((setting.name, target, dict(tuned)))
        self.rows += rows(results, target)
        self.piles += piles(setting, results)


def best(results: Sequence[Result], target: float) -> Tuned:
    """Return the learning rate that was soonest at the target; where none was, the one that ended best."""
    spent = {one.lr: _reached(one, target) for one in results}
    accuracy = {one.lr: final(one.accuracy) for one in results}
    lr = min(spent, key=lambda each: (spent[each] or math.inf, -accuracy[each]))
    return Tuned(
        lr,
        {f"{each:g}": seconds for each, seconds in spent.items()},
        {f"{each:g}": round(value, 4) for each, value in accuracy.items()},
    )


def rows(results: Sequence[Result], target: float) -> list[Row]:
    """Return a row for every way to train, in the order given."""
    theirs = {one.seed: one for one in results if one.label == BASELINE}
    return [
        _row([one for one in results if one.label == label], theirs, target)
        for label in dict.fromkeys(one.label for one in results)
    ]


def _row(runs: Sequence[Result], theirs: Mapping[int, Result], target: float) -> Row:
    looks = [arrival(one.accuracy, target) for one in runs]
    at = [look for look in looks if look is not None]
    came = [_reached(one, target) for one in theirs.values()]
    every = len(at) == len(runs)
    spent = [_spent(one, target) for one in runs]
    pairs = [_spent(theirs[one.seed], target) / mine for one, mine in zip(runs, spent, strict=True)]
    n_steps = [one.looks[-1] for one in runs]
    return Row(
        setting=runs[0].setting,
        label=runs[0].label,
        lr=runs[0].lr,
        runs=len(runs),
        reached=len(at),
        steps=mean([runs[0].looks[look] for look in at]) if at else None,
        seconds=geometric(spent) if every else None,
        ratio=geometric(pairs) if at and any(came) else None,
        ratios=[
            (round(one.slowest, 1), round(ratio, 3)) for one, ratio in zip(runs, pairs, strict=True)
        ],
        wait_s=mean([one.spans.wait_s / n for one, n in zip(runs, n_steps, strict=True)]),
        compute_s=mean([one.spans.compute_s / n for one, n in zip(runs, n_steps, strict=True)]),
        exchange_s=mean([one.spans.exchange_s / n for one, n in zip(runs, n_steps, strict=True)]),
        samples=mean([one.samples for one in runs]),
        megabytes=mean([one.megabytes for one in runs]),
        injected_kilobytes=mean([one.injected_bytes / 1e3 for one in runs]),
        compressed=mean([one.compressed for one in runs]),
        most=mean([one.most for one in runs]),
        buffer_megabytes=mean([one.most * RECORD_BYTES / 1e6 for one in runs]),
        dropped=mean([one.dropped for one in runs]),
        accuracy=mean([final(one.accuracy) for one in runs]),
    )


def _reached(one: Result, target: float) -> float | None:
    at = arrival(one.accuracy, target)
    return None if at is None else one.seconds[at]


# Seconds to the target, or of the whole training.
def _spent(one: Result, target: float) -> float:
    reached = _reached(one, target)
    return one.seconds[-1] if reached is None else reached


def piles(setting: Setting, results: Sequence[Result]) -> list[Pile]:
    """Return what would wait before the devices of the first seed, at the exchange times that were measured."""
    rates = setting.drawn(0)
    even = [BASE] * len(rates)
    own = ByRate()([Device(0, rate) for rate in rates])
    machine = setting.machine
    times = {one.label: one.spans.exchange_s / one.looks[-1] for one in results if one.seed == 0}

    def grown(batches: Sequence[int], label: str, iterations: int, *, truncates: bool) -> float:
        compute_s = [machine.compute_s(batch) for batch in batches]
        return pile(rates, batches, compute_s, times[label], iterations, truncates=truncates)

    return [
        Pile(
            setting.name,
            iterations,
            grown(even, BASELINE, iterations, truncates=False),
            grown(own, OURS, iterations, truncates=False),
            grown(own, OURS, iterations, truncates=True),
        )
        for iterations in HORIZONS
    ]
