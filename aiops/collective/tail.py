"""What every rank tells the others in the messages that carry its values: a few float32 numbers that are added up.

A rank writes only into its own row, so a sum holds what everybody said. Whole numbers stay exact because they are
below 2**24.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

import numpy as np

from aiops.collective.request import Floats

_ROW = 5
_SHARED = 2
_DIRECTIVE = 5


@dataclass(frozen=True, slots=True)
class Directive:
    """How rank 0 wants the next step's gradients exchanged.

    Attributes:
        collective: Position in the job's list of collectives.
        density: k/n, in (0, 1].
    """

    collective: int
    density: float


@dataclass(frozen=True, slots=True)
class Report:
    """What one rank says of its step.

    Attributes:
        bad: Whether its gradient was not finite.
        seconds: How long its largest request of the step before took; 0 where there was none.
        latency_s: What it measured by pings; 0 where it did not.
        compute_s: Time from the end of its last exchange to the beginning of this one; 0 where that is not known.
        sent: Energy of the values it sends.
        energy: Energy of its gradient plus residual.
        directive: Rank 0 only: what changes; None where nothing does.
        vote: Whether it is for what ranks vote on.
        trials: Rank 0 only: by which collectives each density is to be tried, as positions in the job's list of
            collectives; empty where nothing is.
    """

    bad: bool
    seconds: float
    latency_s: float
    compute_s: float
    sent: float
    energy: float
    directive: Directive | None = None
    vote: bool = False
    trials: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Tally:
    """What all ranks said.

    Attributes:
        bad: The ranks whose gradient was not finite.
        seconds: The least of what they said but 0: who comes last waits for nobody; 0 where nobody said anything.
        latency_s: The greatest.
        compute_s: The greatest.
        gain: Energy sent over energy there, of all ranks together; 1 where there was none.
        directive: What changes.
        votes: How many are for what ranks vote on.
        trials: What is to be tried.
    """

    bad: tuple[int, ...]
    seconds: float
    latency_s: float
    compute_s: float
    gain: float
    directive: Directive | None
    votes: int
    trials: tuple[int, ...]


def size(ranks: int, trials: int = 0) -> int:
    """Return how many float32 values a tail has.

    Args:
        ranks: How many there are.
        trials: How many densities the job tries when it does.
    """
    return ranks * _ROW + _SHARED + _DIRECTIVE + trials


def pack(report: Report, *, rank: int, ranks: int, trials: int = 0) -> Floats:
    """Return one rank's tail, float32, shape (size(ranks, trials),).

    Args:
        report: What it says; of ``trials`` all or nothing.
        rank: This rank.
        ranks: How many there are.
        trials: How many densities the job tries when it does.
    """
    tail = np.zeros(size(ranks, trials), np.float32)
    tail[rank * _ROW : (rank + 1) * _ROW] = (
        report.bad,
        report.seconds,
        report.latency_s,
        report.compute_s,
        report.vote,
    )
    at = ranks * _ROW
    # An energy above the largest float32 would make every rank's gain NaN.
    tail[at : at + _SHARED] = np.minimum((report.sent, report.energy), 1e37 / ranks)
    if report.directive is not None:
        halves = struct.unpack("<4H", struct.pack("<d", report.directive.density))
        tail[at + _SHARED : at + _SHARED + _DIRECTIVE] = (report.directive.collective + 1, *halves)
    if report.trials:
        tail[at + _SHARED + _DIRECTIVE :] = [number + 1 for number in report.trials]
    return tail


def read(total: Floats, *, ranks: int) -> Tally:
    """Return what the sum of all tails says.

    Args:
        total: float32, shape (size(ranks, trials),).
        ranks: How many there are.
    """
    bad, seconds, latency, compute, vote = total[: ranks * _ROW].reshape(ranks, _ROW).T
    said = seconds[seconds > 0]
    sent, energy, *told = (float(value) for value in total[ranks * _ROW :])
    collective, *halves = (int(value) for value in told[:_DIRECTIVE])
    directive = None
    if collective:
        (density,) = struct.unpack("<d", struct.pack("<4H", *halves))
        directive = Directive(collective - 1, density)
    trials = tuple(int(number) - 1 for number in told[_DIRECTIVE:])
    return Tally(
        bad=tuple(np.flatnonzero(bad).tolist()),
        seconds=float(said.min()) if said.size else 0.0,
        latency_s=float(latency.max()),
        compute_s=float(compute.max()),
        gain=min(sent / energy, 1.0) if energy > 0 else 1.0,
        directive=directive,
        votes=int(np.count_nonzero(vote)),
        trials=trials if any(told[_DIRECTIVE:]) else (),
    )
