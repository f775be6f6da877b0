"""AR-Topk's way to know its gains: a few densities are tried, each for some steps from the same checkpoint.

What is tried is decided here; :mod:`aiops.collective.trials` does it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from aiops.policy.cost import cheapest, is_dense
from aiops.policy.exchange import Exchange, Load, Network

# The paper's: each candidate sends a third of the one before.
SCALE = 3.0

# Steps that a decision stands: ten times those of its five trials, which are a tenth of a training then, or less.
TRIALS_DWELL_STEPS = 500


def trial_densities(low: float, high: float) -> tuple[float, ...]:
    """Return the densities that are tried: ``high``, a third of it, a ninth, ..., and ``low`` in place of the last one.

    Of .001 and .1 they are .1, .033, .011, .0037 and .001 (Tyagi and Swany, 2023).

    Args:
        low: Smallest one, in (0, 1).
        high: Largest one, > ``low``.
    """
    steps = max(1, round(math.log(high / low, SCALE)))
    return (*(high / SCALE**step for step in range(steps)), low)


def trial_exchanges(
    load: Load, collectives: Sequence[str], densities: Sequence[float], network: Network | None
) -> tuple[Exchange, ...]:
    """Return by what each density is tried: the cheapest collective that is not dense, or the first such one.

    Args:
        load: What there is to exchange.
        collectives: Names of :data:`aiops.policy.cost.COSTS`; at least one is not dense.
        densities: Each in (0, 1].
        network: What the links are like; None where that is not known.
    """
    sparse = [name for name in collectives if not is_dense(name)]
    if network is None:
        return tuple(Exchange(sparse[0], density) for density in densities)
    return tuple(
        Exchange(cheapest(load, network, density, sparse)[0], density) for density in densities
    )
