"""What piles up before a worker and how long it waits, as the ScaDLES paper and its simulation reckon it.

Pure functions of samples and seconds, for plans and simulated clocks; :mod:`aiops.stream.buffer` holds the real ones.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Turn:
    """How one iteration begins.

    Attributes:
        wait_s: How long the worker waits for its batch, in seconds.
        held: Samples that are left in the buffer once it has taken the batch.
    """

    wait_s: float
    held: float


def piled_up(*, rate: float, step_s: float, batch: float, iterations: float) -> float:
    """Return how many samples a device has waiting after some iterations: Eqn 2, ``(t S - b) T + S``.

    0 where the worker is at least as fast as its stream (``t S < b``), for which the equation does not hold.

    Args:
        rate: S, samples/s that arrive.
        step_s: t, seconds an iteration takes.
        batch: b, samples an iteration takes out.
        iterations: T.
    """
    surplus = step_s * rate - batch
    return surplus * iterations + rate if surplus >= 0 else 0.0


def piled_up_at_most(*, rate: float, step_s: float, iterations: float) -> float:
    """Return Eqn 3, ``t S T + S``: what Eqn 2 comes to where ``t S`` is far more than the batch. Arguments as there."""
    return piled_up(rate=rate, step_s=step_s, batch=0.0, iterations=iterations)


def persist(*, rate: float, last_step_s: float, batch: float, held: float) -> Turn:
    """Begin an iteration where all samples are kept.

    Args:
        rate: S, samples/s that arrive, > 0.
        last_step_s: Seconds that the iteration before took, computing and exchanging.
        batch: b, samples that the worker needs.
        held: Samples that the iteration before left.
    """
    queued = rate * last_step_s + held
    if queued >= batch:
        return Turn(wait_s=0.0, held=queued - batch)
    return Turn(wait_s=(batch - queued) / rate, held=0.0)


def truncate(*, rate: float, last_step_s: float, batch: float) -> Turn:
    """Begin an iteration where what an iteration leaves is thrown away. Arguments as for :func:`persist`."""
    queued = rate * last_step_s
    return Turn(wait_s=max(0.0, (batch - queued) / rate), held=0.0)
