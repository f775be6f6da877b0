"""Times to a target over seeds: geometric means, and bootstrap intervals of ratios that are paired by seed."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import msgspec
import numpy as np

from aiops.lab.record import Record

# Resamples of a bootstrap interval; its ends then move by well under a percent.
RESAMPLES = 4000


class Interval(msgspec.Struct, frozen=True, array_like=True):
    """A geometric mean and the ends of its 95 % bootstrap interval."""

    mean: float
    low: float
    high: float


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """One method over all its seeds.

    Attributes:
        label: The method.
        n_runs: Valid runs.
        n_reached: Those that reached the target.
        time_s: Time to target; None unless every run reached it.
        speedup: Time of the reference over this one's, paired by seed; above 1 this one is faster. None where a run
            of either did not reach the target.
        rounds: Mean versions until the target, or the end.
        steps: Mean local steps of all workers until the end.
        overlap_ratio: Mean.
        utilisation: Mean.
        megabytes: Mean traffic, both ways, all links, in 10^6 bytes.
        accuracy: Mean final accuracy.
        best: Mean best accuracy.
        rejected: Runs that a validity gate rejected.
    """

    label: str
    n_runs: int
    n_reached: int
    time_s: Interval | None
    speedup: Interval | None
    rounds: float
    steps: float
    overlap_ratio: float
    utilisation: float
    megabytes: float
    accuracy: float
    best: float
    rejected: int


def geometric(values: Sequence[float]) -> Interval:
    """Return the geometric mean of positive numbers and its interval; the ends are the mean for a single number."""
    logs = np.log(np.asarray(values, np.float64))
    picks = np.random.default_rng(0).integers(len(logs), size=(RESAMPLES, len(logs)))
    low, high = np.quantile(logs[picks].mean(axis=1), [0.025, 0.975])
    return Interval(math.exp(float(logs.mean())), math.exp(float(low)), math.exp(float(high)))


def times(records: Sequence[Record]) -> dict[int, float]:
    """Return the time to target by seed, of valid runs; infinite where it was not reached."""
    return {
        record.seed: math.inf if record.reached_s is None else record.reached_s
        for record in records
        if not record.rejected
    }


def speedup(slow: Sequence[Record], fast: Sequence[Record]) -> Interval | None:
    """Return how much faster ``fast`` reached the target, paired by seed; None where a run of either did not."""
    ours, theirs = times(fast), times(slow)
    shared = sorted(ours.keys() & theirs.keys())
    ratios = [theirs[seed] / ours[seed] for seed in shared if math.isfinite(ours[seed])]
    if not ratios or len(ratios) < len(shared) or not all(map(math.isfinite, ratios)):
        return None
    return geometric(ratios)


def summarize(
    records: Mapping[str, Sequence[Record]], reference: str | None = None
) -> list[Summary]:
    """Return one summary per method, in the order given.

    Args:
        records: Runs by method.
        reference: Method whose time is the numerator of the speed-ups; the first one unless given.
    """
    first = next(iter(records)) if reference is None else reference
    summaries = []
    for label, runs in records.items():
        valid = [record for record in runs if not record.rejected]
        reached = [record.reached_s for record in valid if record.reached_s is not None]
        summaries.append(
            Summary(
                label=label,
                n_runs=len(valid),
                n_reached=len(reached),
                time_s=geometric(reached) if reached and len(reached) == len(valid) else None,
                speedup=speedup(records[first], runs),
                rounds=_mean([float(record.reached_version or record.rounds) for record in valid]),
                steps=_mean([float(record.n_steps) for record in valid]),
                overlap_ratio=_mean([record.overlap_ratio for record in valid]),
                utilisation=_mean([record.utilisation for record in valid]),
                megabytes=_mean([(r.up_bytes + r.down_bytes) / 1e6 for r in valid]),
                accuracy=_mean([record.final_accuracy for record in valid]),
                best=_mean([record.best_accuracy for record in valid]),
                rejected=len(runs) - len(valid),
            )
        )
    return summaries


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values) if values else 0.0
