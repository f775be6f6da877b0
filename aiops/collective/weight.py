"""What each rank's gradient is worth: the same, or its share of the step's samples.

Shares are those of ScaDLES (Tyagi and Swany, 2022, Eqn 4), r_i = b_i / sum(b) of the real batches: a rank's mean
gradient is scaled before anything is selected or left behind, and sums are not divided by the ranks. So a residual
stays worth what it was when the batches change.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence

import numpy as np

from aiops.collective.request import Dialogue, Floats, Gather, Route
from aiops.errors import ConfigError

# Above it a float64 share is not that of the whole number any more.
MOST_SAMPLES = 2**53 - 1


def count(samples: int | None, route: Route) -> Dialogue[tuple[int, ...]]:
    """Return how many samples each rank has, in the order of the ranks; 8 bytes of each.

    A sum would say less and take no fewer messages; the tails of the step's values come too late to scale by.

    Raises:
        ConfigError: A rank's number is missing or makes no sense; raised alike on every rank, naming it.
    """
    rows = (yield Gather(np.array([_sensible(samples)], np.int64), route)).data
    counts = tuple(rows[:, 0].tolist())
    if min(counts) < 0:
        which = ", ".join(str(rank) for rank, each in enumerate(counts) if each < 0)
        raise ConfigError(
            f"with weights by_samples every rank gives a whole number of samples from 0 to {MOST_SAMPLES}, "
            f"rank {which} did not (here it is {samples!r})"
        )
    return counts


# What numpy counts in is a whole number, too; what is none becomes -1.
def _sensible(samples: object) -> int:
    if isinstance(samples, bool | np.bool_) or not hasattr(samples, "__index__"):
        return -1
    number = operator.index(samples)
    return number if 0 <= number <= MOST_SAMPLES else -1


def weigh(gradient: Floats, samples: Sequence[int], rank: int, *, out: Floats) -> Floats:
    """Let ``out`` be this rank's share of the samples times its mean gradient, and return it.

    Args:
        gradient: float32, shape (n,). Read only, and not even that where the rank has no samples: the mean over none is
            NaN.
        samples: What each rank has.
        rank: This rank.
        out: float32, shape (n,), overwritten.
    """
    if not samples[rank]:
        out.fill(0.0)
        return out
    return np.multiply(gradient, np.float32(samples[rank] / sum(samples)), out=out)
