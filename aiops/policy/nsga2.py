"""AR-Topk's search for a density, NSGA-II (Deb et al., 2002) by pymoo, beside the grid that finds no less, and sooner.

pymoo is an optional extra, and loaded by the first search: whoever does not ask for it does not need it.
"""

from __future__ import annotations

import math

import numpy as np

from aiops.policy.exchange import Network
from aiops.policy.front import LEAST_GAIN, Candidate, Gains, Prices

# The paper's: simulated binary crossover and polynomial mutation, and the seed that makes it say the same each time.
CROSSOVER_SHARE, CROSSOVER_ETA, MUTATION_ETA = 0.9, 15, 20
POPULATION, OFFSPRING, GENERATIONS, SEED = 40, 10, 40, 1


def search(prices: Prices, network: Network, gains: Gains) -> list[Candidate]:
    """Return a front of time and 1/gain over all densities of the range and all operators, and everything.

    Args:
        prices: What the candidates cost; at least one operator is not dense.
        network: What a link is like.
        gains: The gain of an operator at a density.
    """
    from pymoo.algorithms.moo.nsga2 import NSGA2
    from pymoo.operators.crossover.sbx import SBX
    from pymoo.operators.mutation.pm import PM
    from pymoo.optimize import minimize
    from pymoo.problems.functional import FunctionalProblem

    operators = prices.operators

    # A point is the logarithm of a density and the place of an operator.
    def candidate(point: list[float]) -> Candidate:
        density = min(max(math.exp(point[0]), prices.low), prices.high)
        place = min(int(point[1]), len(operators) - 1)
        return prices.at(operators[place], density, network, gains)

    problem = FunctionalProblem(
        2,
        [
            lambda point: candidate(point).sync_s,
            lambda point: 1.0 / max(candidate(point).gain, LEAST_GAIN),
        ],
        xl=[math.log(prices.low), 0.0],
        xu=[math.log(prices.high), float(len(operators))],
    )
    algorithm = NSGA2(
        pop_size=POPULATION,
        n_offsprings=OFFSPRING,
        crossover=SBX(prob=CROSSOVER_SHARE, eta=CROSSOVER_ETA),
        mutation=PM(eta=MUTATION_ETA),
    )
    result = minimize(problem, algorithm, ("n_gen", GENERATIONS), seed=SEED, verbose=False)
    return prices.dense(network, gains) + [
        candidate(list(point)) for point in np.atleast_2d(result.X)
    ]
