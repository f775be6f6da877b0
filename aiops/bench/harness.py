"""Interleaved timing: contenders take turns, so that a noisy neighbour slows all of them alike.

Ratios are formed pass by pass and summed up by median and quartiles; absolute times of a shared
machine mean little.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Self, TypeVar

T = TypeVar("T")

# A shorter sample would measure the clock and the call as well.
SHORTEST_SAMPLE_S = 1e-3

# A call this long is a sample, and warm after one.
LONG_CALL_S = 0.1


@dataclass(frozen=True, slots=True)
class Spread:
    """Median and quartiles of one quantity over all passes."""

    median: float
    q25: float
    q75: float

    @classmethod
    def of(cls, samples: Iterable[float]) -> Self:
        """Return the spread of at least one sample."""
        values = list(samples)
        if len(values) == 1:
            return cls(values[0], values[0], values[0])
        q25, median, q75 = statistics.quantiles(values, n=4, method="inclusive")
        return cls(median, q25, q75)


def interleave(
    contenders: Mapping[str, Callable[[], object]], *, passes: int = 15
) -> dict[str, list[float]]:
    """Time every contender once a pass, in turn, and return seconds per call.

    Args:
        contenders: Name -> what is timed. Each is called a few times first, to warm up.
        passes: Samples per contender, at least 2. The one that starts changes from pass to pass.
    """
    calls = {name: _calls_per_sample(run) for name, run in contenders.items()}
    samples: dict[str, list[float]] = {name: [] for name in contenders}
    for turn in range(passes):
        for name in rotated(list(contenders), turn):
            samples[name].append(_sample(contenders[name], calls[name]))
    return samples


def speedup(ours: list[float], theirs: list[float]) -> Spread:
    """How many times as long ``theirs`` took as ``ours`` in the same pass."""
    return Spread.of(their / our for our, their in zip(ours, theirs, strict=True))


def rotated(names: Sequence[T], turn: int) -> list[T]:
    """Return the order of one pass: another one starts each time."""
    first = turn % len(names) if names else 0
    return [*names[first:], *names[:first]]


def _sample(run: Callable[[], object], calls: int) -> float:
    start = time.perf_counter()
    for _ in range(calls):
        run()
    return (time.perf_counter() - start) / calls


def _calls_per_sample(run: Callable[[], object]) -> int:
    once = _sample(run, 1)
    if once > LONG_CALL_S:
        return 1
    once = min(_sample(run, 1) for _ in range(3))
    return max(1, round(SHORTEST_SAMPLE_S / once))
