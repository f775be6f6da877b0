"""What could be exchanged next, what of it nothing else beats, and which of that is best.

A candidate is a density and a collective; its time comes from :mod:`aiops.policy.cost`, its gain is the share of the
energy that it sends. Both objectives, time and 1/gain, are AR-Topk's (Tyagi and Swany, 2023, Eqn 6).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from aiops.policy.choose import exchange_of
from aiops.policy.cost import COSTS, cheapest, is_dense
from aiops.policy.exchange import Exchange, Load, Network

# Neighbours on a grid over two decades are 2.3 % apart.
GRID_POINTS = 200

# AR-Topk's weights of time and 1/gain.
TIME_WEIGHT, GAIN_WEIGHT = 0.6, 0.4

# What a gain of nothing counts, so that 1/gain stays finite.
LEAST_GAIN = 1e-12

# The gain of an operator at a density.
Gains = Callable[[str, float], float]


class Candidate(NamedTuple):
    """One way to exchange a step.

    Attributes:
        exchange: Which.
        sync_s: What it takes.
        gain: Share of the energy that it sends, in (0, 1].
    """

    exchange: Exchange
    sync_s: float
    gain: float


class Prices:
    """What the candidates of one load cost, whatever the network is like.

    Every cost is linear in the latency and in the seconds a byte, so it is two numbers, which are computed once.

    Args:
        load: What there is to exchange.
        collectives: Names of :data:`aiops.policy.cost.COSTS`.
        low: Smallest density of those that are not dense, in (0, 1].
        high: Largest one, > ``low``.
    """

    __slots__ = (
        "_messages",
        "_routes",
        "_sizes",
        "collectives",
        "densities",
        "high",
        "load",
        "low",
    )

    def __init__(self, load: Load, collectives: Sequence[str], low: float, high: float) -> None:
        self.load = load
        self.collectives = tuple(collectives)
        self.low = low
        self.high = high
        self.densities = [float(density) for density in np.geomspace(low, high, GRID_POINTS)]
        self._routes: dict[str, tuple[str, ...]] = {}
        for name in self.collectives:
            operator = Exchange(name).operator
            self._routes[operator] = (*self._routes.get(operator, ()), name)
        latency, byte = Network(1.0, 0.0), Network(0.0, 1.0)
        self._messages = {name: self._priced(name, latency) for name in self.collectives}
        self._sizes = {name: self._priced(name, byte) for name in self.collectives}

    @property
    def operators(self) -> tuple[str, ...]:
        """What the collectives exchange, but everything, in their order."""
        return tuple(operator for operator in self._routes if operator != "dense")

    def at(self, operator: str, density: float, network: Network, gains: Gains) -> Candidate:
        """Return the operator's candidate at a density, by its cheapest route."""
        name, seconds = cheapest(self.load, network, density, self._routes[operator])
        exchange = exchange_of(name, density)
        return Candidate(exchange, seconds, gains(operator, exchange.density))

    def of(self, exchange: Exchange, network: Network, gains: Gains) -> Candidate:
        """Return what an exchange costs and sends now."""
        seconds = COSTS[exchange.collective](self.load, network, exchange.density)
        return Candidate(exchange, seconds, gains(exchange.operator, exchange.density))

    def dense(self, network: Network, gains: Gains) -> list[Candidate]:
        """Return the cheapest exchange of everything; nothing where no collective is dense."""
        return [self.at("dense", 1.0, network, gains)] if "dense" in self._routes else []

    def grid(self, network: Network, gains: Gains) -> list[Candidate]:
        """Return every operator's cheapest exchange at every density of the grid, and of everything.

        An operator's gain is its own, so that a dearer one may be the better one, and each has its candidates.
        """
        found = self.dense(network, gains)
        for operator in self.operators:
            names = self._routes[operator]
            costs = np.stack([self._seconds(name, network) for name in names])
            best, least = costs.argmin(axis=0).tolist(), costs.min(axis=0).tolist()
            found += [
                Candidate(Exchange(names[at], density), seconds, gains(operator, density))
                for density, at, seconds in zip(self.densities, best, least, strict=True)
            ]
        return found

    # One per density of the grid.
    def _priced(self, name: str, network: Network) -> NDArray[np.float64]:
        costs = [COSTS[name](self.load, network, density) for density in self.densities]
        return np.array(costs, dtype=np.float64)

    def _seconds(self, name: str, network: Network) -> NDArray[np.float64]:
        seconds: NDArray[np.float64] = (
            network.latency_s * self._messages[name] + network.byte_s * self._sizes[name]
        )
        return seconds


def pareto(candidates: Iterable[Candidate]) -> list[Candidate]:
    """Return the candidates that no other is better than in one and as good as in both, by ascending time and gain.

    Of equal ones the first stays.
    """
    front: list[Candidate] = []
    for candidate in sorted(candidates, key=lambda one: (one.sync_s, -one.gain)):
        if not front or candidate.gain > front[-1].gain:
            front.append(candidate)
    return front


def steps_needed(gain: float, exponent: float) -> float:
    """Return how many times the steps of a dense training the same accuracy takes, gain ** -exponent.

    Args:
        gain: Share of the energy that a step sends, of gradient and residual together.
        exponent: What a lost gain costs. 0: nothing, only the time of a step counts; 1: as much as in GraVAC's
            compression throughput, gain over time. Inferred from our own trainings, see docs/collective.md.
    """
    return float(max(gain, LEAST_GAIN) ** -exponent)


def quickest(compute_s: float, exponent: float) -> Callable[[Candidate], float]:
    """Return the time to a given accuracy, in steps of a dense training: what a step takes, times the steps it needs.

    Args:
        compute_s: What a step takes without its exchange.
        exponent: See :func:`steps_needed`.
    """

    def seconds(candidate: Candidate) -> float:
        return (compute_s + candidate.sync_s) * steps_needed(candidate.gain, exponent)

    return seconds


def knee(candidates: Iterable[Candidate]) -> Callable[[Candidate], float]:
    """Return AR-Topk's achievement of a candidate: the larger of its two weighted, normalised objectives.

    Time and 1/gain are normalised by their extremes on the front of what is not dense, as in the paper, whose search
    does not know the dense exchange. Measured by the same rule that one is taken where it is nearly as fast.

    Args:
        candidates: All there are; at least one is not dense.
    """
    sparse = pareto(one for one in candidates if not is_dense(one.exchange.collective))
    fastest, fullest = sparse[0], sparse[-1]
    time_s = fullest.sync_s - fastest.sync_s
    loss = _loss(fastest) - _loss(fullest)

    def achieved(candidate: Candidate) -> float:
        slow = _normalised(candidate.sync_s - fastest.sync_s, time_s)
        lossy = _normalised(_loss(candidate) - _loss(fullest), loss)
        return max(TIME_WEIGHT * slow, GAIN_WEIGHT * lossy)

    return achieved


def _loss(candidate: Candidate) -> float:
    return 1.0 / max(candidate.gain, LEAST_GAIN)


# A front of one point has no extent; then whatever is worse than it is as bad as the worst.
def _normalised(excess: float, extent: float) -> float:
    return excess / extent if extent > 0 else float(excess > 0)
