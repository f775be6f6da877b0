"""GraVAC: compress ever more, as long as enough of the gradient's energy gets through.

The published rule (Tyagi and Swany, 2023) with our spectrum in place of its trial compressions, which say the same.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from aiops.errors import ConfigError
from aiops.policy.choose import exchange_at, first_exchange
from aiops.policy.cost import COSTS, check_collectives, check_some_sparse, is_dense
from aiops.policy.drift import Smoothed
from aiops.policy.exchange import Exchange, GainCurve, Load, Plan, Seen
from aiops.policy.number import check_density, check_share, is_count

# Its exponential policy: how many times stronger than at first each window's candidate compresses.
SCALES = (2, 4, 16, 256)


@dataclass(frozen=True, slots=True)
class Gravac:
    """GraVAC's adaptive compression (Tyagi and Swany, 2023).

    Each step sends the candidate density if its gain, smoothed, is at least ``eps``; else the largest density, if that
    one's is; else everything. After each window the next candidate is stronger. If the candidate's gain was within
    ``omega`` of the largest density's, it takes that one's place. If the two best throughputs, gain over time of a
    step, are within ``omega``, the denser of the two stays the candidate.

    Where the paper is silent: steps of its scale are taken from the first density on; after the last candidate's window
    the one with the best throughput stays; the time of a step is what the cost model says, since nothing here has a
    clock; the collective is the cheapest at the density. A gain that decides is the spectrum's: of what follows leaders
    it promises too much.

    Attributes:
        low: Smallest density, in (0, 1).
        high: Density of the weakest compression, > ``low`` and <= 1.
        eps: Gain that is enough, in [0, 1).
        window: Steps of a candidate, >= 1.
        omega: Share within which two numbers are as good as the same, in [0, 1).
    """

    low: float = 0.001
    high: float = 0.1
    eps: float = 0.7
    window: int = 500
    omega: float = 0.01

    def __post_init__(self) -> None:
        check_density("gravac's low", self.low)
        check_density("gravac's high", self.high)
        if self.low >= self.high:
            raise ConfigError(f"gravac's low is {self.low!r}, it must be < high = {self.high!r}")
        check_share("gravac's eps", self.eps)
        if not is_count(self.window, 1):
            raise ConfigError(f"gravac's window is {self.window!r}, it must be a whole number >= 1")
        check_share("gravac's omega", self.omega)

    def judge(self, load: Load, collectives: Sequence[str]) -> GravacJudge:
        """Return the decisions of one training, see :class:`aiops.policy.exchange.Density`.

        Raises:
            ConfigError: A collective is unknown, or all are dense.
        """
        check_collectives(collectives)
        check_some_sparse("gravac", collectives)
        return GravacJudge(self, load, collectives)


class GravacJudge:
    """The decisions of one training by :class:`Gravac`; each step is one, so that each step's spectrum is asked for.

    Args:
        settings: How it decides.
        load: What there is to exchange.
        collectives: What the job can do.
    """

    __slots__ = (
        "_ahead", "_collectives", "_dense", "_first", "_gains", "_in_window", "_load", "_newest", "_seen", "_settings",
        "_throughputs", "candidate", "largest", "searching",
    )  # fmt: skip

    def __init__(self, settings: Gravac, load: Load, collectives: Sequence[str]) -> None:
        self._settings = settings
        self._load = load
        self._collectives = tuple(collectives)
        self._dense = tuple(name for name in collectives if is_dense(name)) or self._collectives
        self._first = first_exchange(self._collectives, settings.high)
        # The paper's factor of smoothing.
        self._newest = min(load.ranks / 100, 1.0)
        self._gains: dict[float, Smoothed] = {}
        self._throughputs: dict[float, Smoothed] = {}
        self._in_window = 0
        self._seen: Seen | None = None
        densities = dict.fromkeys(max(settings.high / scale, settings.low) for scale in SCALES)
        self.candidate, *self._ahead = densities
        self.largest = settings.high
        self.searching = True

    @property
    def first(self) -> Exchange:
        """The largest density, by a collective that gathers if there is one."""
        return self._first

    @property
    def probes(self) -> bool:
        """Always: its decisions weigh times."""
        return True

    @property
    def trials(self) -> tuple[Exchange, ...]:
        """Nothing: a spectrum says what its trial compressions would."""
        return ()

    def observe(self, seen: Seen) -> bool:
        """Note a step and its throughput; return that a plan is wanted, always."""
        self._seen = seen
        exchange, network = seen.exchange, seen.network
        if network is not None and seen.compute_s > 0 and not is_dense(exchange.collective):
            sync_s = COSTS[exchange.collective](self._load, network, exchange.density)
            known = self._throughputs.setdefault(exchange.density, Smoothed(self._newest))
            known.add(seen.gain / (seen.compute_s + sync_s))
        return True

    def decide(self, curve: GainCurve) -> Plan | None:
        """Return the exchange by the gains of this gradient; None where it is the last step's already."""
        seen = self._seen
        if seen is None or not 0.0 < curve.total < math.inf:
            return None
        of_candidate = self._gain(curve, self.candidate)
        # Once the candidate has become the largest density there is one mean, and this gradient is in it.
        same = self.largest == self.candidate
        of_largest = of_candidate if same else self._gain(curve, self.largest)
        eps = self._settings.eps
        if of_candidate >= eps:
            density, why = (
                self.candidate,
                f"density {self.candidate:g} has a gain of {of_candidate:.3g}",
            )
        elif of_largest >= eps:
            density, why = self.largest, f"density {self.largest:g} has a gain of {of_largest:.3g}"
        else:
            density, why = (
                1.0,
                f"density {self.largest:g} has a gain of no more than {of_largest:.3g}",
            )
        self._advance(of_candidate, of_largest)
        names = self._dense if density == 1.0 else self._collectives
        exchange = exchange_at(density, self._load, names, seen)
        if exchange == seen.exchange:
            return None
        return Plan(exchange, f"{why}, and {eps:g} is enough")

    def _gain(self, curve: GainCurve, density: float) -> float:
        known = self._gains.setdefault(density, Smoothed(self._newest))
        return known.add(curve.gain(density)) or 0.0

    # The end of a window: another candidate, another largest density, or the end of the search.
    def _advance(self, of_candidate: float, of_largest: float) -> None:
        self._in_window += 1
        if not self.searching or self._in_window < self._settings.window:
            return
        self._in_window = 0
        if of_largest - of_candidate <= self._settings.omega * of_largest:
            self.largest = self.candidate
        best = sorted(self._throughputs, key=self._throughput, reverse=True)[:2]
        if len(best) == 2 and self._alike(*best):
            self.candidate, self.searching = max(best), False
        elif self._ahead:
            self.candidate = self._ahead.pop(0)
        else:
            self.candidate, self.searching = best[0] if best else self.candidate, False

    def _throughput(self, density: float) -> float:
        return self._throughputs[density].value or 0.0

    def _alike(self, best: float, second: float) -> bool:
        most = self._throughput(best)
        return most - self._throughput(second) <= self._settings.omega * most


def gravac(
    low: float = 0.001,
    high: float = 0.1,
    eps: float = 0.7,
    window: int = 500,
    omega: float = 0.01,
) -> Gravac:
    """Return GraVAC: the strongest compression that keeps a gain.

    Args:
        low: Smallest density, in (0, 1).
        high: Density of the weakest compression, > ``low`` and <= 1.
        eps: Gain that is enough, in [0, 1); the paper uses 0.7 and 0.9.
        window: Steps of a candidate, >= 1.
        omega: Share within which two numbers are as good as the same, in [0, 1).
    """
    return Gravac(low, high, eps, window, omega)
