"""When density and collective are weighed again, and what is known of the gains then."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from aiops.policy import nsga2
from aiops.policy.choose import HYSTERESIS, LED, described, first_exchange, spoken
from aiops.policy.cost import is_dense
from aiops.policy.drift import GAIN_SHARE, LINK_SHARE, Drift, LinkDrift, Smoothed
from aiops.policy.exchange import Exchange, GainCurve, Network, Plan, Seen
from aiops.policy.front import LEAST_GAIN, Candidate, Prices, knee, pareto, quickest
from aiops.policy.trials import trial_exchanges

# What a rank's spectrum says of a gain is of positions it chose itself. At a leader's the others hold less: 2 to 4
# times less in our toy trainings with 8 ranks. This is the best of them, so that such an operator is tried, and then
# measured.
ALIGNMENT = 0.5

# An exchange of everything shows nothing of what would be lost by less, so it is looked at again after so many dwells.
DENSE_DWELLS = 5


@dataclass(frozen=True, slots=True)
class Settings:
    """How :class:`AdaptiveJudge` decides.

    Attributes:
        knee: AR-Topk's pick; else the least time to the same accuracy.
        exponent: See :func:`aiops.policy.front.steps_needed`.
        nsga2: Search by pymoo; else on the grid.
        dwell: Steps that a decision stands.
        trials: Densities whose gains are measured in trials; none where a spectrum says them.
    """

    knee: bool
    exponent: float
    nsga2: bool
    dwell: int
    trials: tuple[float, ...] = ()


class AdaptiveJudge:
    """The decisions of one training by :class:`aiops.policy.density.Adaptive`.

    The first one is made as soon as the links and the compute time of a step are known. It stands for the dwell, and
    then until the gain has moved by 10 %, or a link or the compute time by 20 %, three steps in a row; an exchange of
    everything, whose gain cannot move, until five dwells are over. After a change the gain is measured against what was
    expected of it, so that an expectation that was wrong is corrected. A decision changes nothing where the best
    candidate is not better by 10 %, in its objective, than what is done.

    The gain of what follows leaders is what the spectrum says, times how much of that was measured of the same operator
    before: its alignment, smoothed over the decisions made while it ran, and :data:`ALIGNMENT` until then.

    A spectrum is of a residual that has settled at the density in use. With fewer values it grows until as much goes as
    comes, and in the long run they hold energy in proportion to their number, whatever the spectrum promises for the
    next step: 8 ranks with Top-k + AllGather sent .26, .088, .027 and .0083 of it at densities .03, .01, .003 and .001.
    The paper's pick takes a spectrum at its word. A gain that was measured in trials counts for whatever operator, as
    in the paper.

    Args:
        settings: How it decides.
        prices: What the candidates cost.
    """

    __slots__ = (
        "_alignments", "_compute", "_decided", "_first", "_gain", "_links", "_prices", "_seen", "_settings", "_watched",
    )  # fmt: skip

    def __init__(self, settings: Settings, prices: Prices) -> None:
        self._settings = settings
        self._prices = prices
        self._first = first_exchange(prices.collectives, prices.high)
        self._links = LinkDrift()
        self._compute = Drift(LINK_SHARE)
        self._gain = Drift(GAIN_SHARE)
        self._alignments: dict[str, Smoothed] = {}
        self._decided: int | None = None
        self._seen: Seen | None = None
        self._watched = self._first

    @property
    def first(self) -> Exchange:
        """The largest density, by a collective that gathers if there is one: it teaches the most and loses little."""
        return self._first

    @property
    def probes(self) -> bool:
        """Always: its decisions weigh times."""
        return True

    @property
    def trials(self) -> tuple[Exchange, ...]:
        """The settings' densities, each by what is cheapest for it now; empty where there are none."""
        network = None if self._seen is None else self._seen.network
        prices = self._prices
        return trial_exchanges(prices.load, prices.collectives, self._settings.trials, network)

    def observe(self, seen: Seen) -> bool:
        """Note a step; return whether it is time to weigh the candidates again."""
        self._seen = seen
        # Steps between a plan and its start are of the exchange before.
        if seen.exchange == self._watched:
            self._gain.add(seen.gain)
        if seen.network is not None:
            self._links.add(seen.network)
        if seen.compute_s > 0:
            self._compute.add(seen.compute_s)
        if seen.network is None or not seen.compute_s > 0:
            return False
        if self._decided is None:
            return True
        stood = seen.step - self._decided
        return stood >= self._settings.dwell and bool(self._why(seen, stood))

    def decide(self, curve: GainCurve) -> Plan | None:
        """Return what is better by enough than what is done; None where nothing is, or the gradient is no measure."""
        seen = self._seen
        if seen is None or seen.network is None or not 0.0 < curve.total < math.inf:
            return None
        self._learn(seen, curve)
        gains = self._gains(seen, curve)
        candidates = self._candidates(seen.network, gains)
        better = self._objective(seen, candidates)
        best = min(pareto(candidates), key=better)
        now = self._prices.of(seen.exchange, seen.network, gains)
        if best.exchange == now.exchange or better(best) > (1.0 - HYSTERESIS) * better(now):
            self._settle(seen)
            return None
        why = self._why(seen, 0 if self._decided is None else seen.step - self._decided)
        self._settle(seen, best)
        return Plan(best.exchange, self._reason(best, now, seen, why or "all is known"))

    # What has moved, in words; empty where nothing has.
    def _why(self, seen: Seen, stood: int) -> str:
        if self._links.moved:
            return "the links have changed"
        if self._compute.moved:
            return "the time of a step has changed"
        if self._gain.moved:
            return "the gain is not what it was"
        if is_dense(seen.exchange.collective) and stood >= DENSE_DWELLS * self._settings.dwell:
            return "it is time to look again"
        return ""

    # How much of the gain that the spectrum promises an operator really has.
    def _learn(self, seen: Seen, curve: GainCurve) -> None:
        measured, operator = self._gain.value, seen.exchange.operator
        if not self._aligns(operator) or seen.exchange != self._watched or measured is None:
            return
        promised = max(curve.gain(seen.exchange.density), LEAST_GAIN)
        known = self._alignments.setdefault(operator, Smoothed())
        known.add(min(max(measured / promised, 0.0), 1.0))

    # Trials have measured what a spectrum can only promise.
    def _aligns(self, operator: str) -> bool:
        return operator in LED and not self._settings.trials

    def _gains(self, seen: Seen, curve: GainCurve) -> Callable[[str, float], float]:
        known: dict[float, float] = {}
        settings = self._settings
        as_it_is = settings.knee or bool(settings.trials)
        base = 0.0 if as_it_is else min(seen.exchange.density, self._prices.high)
        aligned = {
            operator: smoothed.value
            for operator, smoothed in self._alignments.items()
            if smoothed.value is not None
        }

        def whole(density: float) -> float:
            if density < base:
                return whole(base) * density / base
            if density not in known:
                known[density] = curve.gain(density)
            return known[density]

        def gain(operator: str, density: float) -> float:
            if operator == "dense":
                return 1.0
            follows = self._aligns(operator)
            return whole(density) * (aligned.get(operator, ALIGNMENT) if follows else 1.0)

        return gain

    def _candidates(
        self, network: Network, gains: Callable[[str, float], float]
    ) -> list[Candidate]:
        if self._settings.nsga2:
            return nsga2.search(self._prices, network, gains)
        return self._prices.grid(network, gains)

    def _objective(self, seen: Seen, candidates: list[Candidate]) -> Callable[[Candidate], float]:
        if self._settings.knee:
            return knee(candidates)
        return quickest(self._compute.value or seen.compute_s, self._settings.exponent)

    # After a change the gain is expected to be the candidate's.
    def _settle(self, seen: Seen, best: Candidate | None = None) -> None:
        self._decided = seen.step
        self._links.settle()
        self._compute.settle()
        if best is None:
            self._gain.settle()
        else:
            self._watched = best.exchange
            self._gain.settle(best.gain, forget=True)

    def _reason(self, best: Candidate, now: Candidate, seen: Seen, why: str) -> str:
        assert seen.network is not None
        aim = (
            "the knee of time and gain"
            if self._settings.knee
            else "the least time to the same accuracy"
        )
        return (
            f"{why}: over links of {described(seen.network)} {best.exchange} is {aim}, it takes "
            f"{spoken(best.sync_s)} at a gain of {best.gain:.3g} where {now.exchange} takes "
            f"{spoken(now.sync_s)} at {now.gain:.3g}"
        )
