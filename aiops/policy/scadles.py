"""ScaDLES' adaptive compression: the largest values where they hold enough of the energy, else everything.

The published rule (Tyagi and Swany, 2022), voted on by all ranks.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from aiops.errors import ConfigError
from aiops.policy.choose import exchange_at
from aiops.policy.cost import check_collectives, check_some_sparse, is_dense
from aiops.policy.drift import Smoothed
from aiops.policy.exchange import Exchange, GainCurve, Load, Plan, Seen, Spectrum
from aiops.policy.number import check_share, is_real

# The paper's last setting.
DENSITY, DELTA = 0.1, 0.3
# About a plain mean of the last 25 steps, the window of the same authors' other systems; for this one none is
# published.
NEWEST = 2 / 26


@dataclass(frozen=True, slots=True)
class Scadles:
    """ScaDLES' adaptive compression (Tyagi and Swany, 2022).

    With G a rank's gradient plus residual, it is for compression while its loss of energy, 1 - ||Topk(G)||^2 / ||G||^2,
    smoothed, is at most ``delta``. Where more than half of the ranks are, ``density`` of the values are sent, else all,
    the residual with them. The votes of a step travel with its values, and decide on the step after the next one.

    Where the paper is silent, or its code at odds with it: the smoothing is ours, and a tie sends everything, which
    loses nothing; the code compresses with half of the votes. Everything is sent until there is a vote, by a dense
    collective if the job has one. Which collective is a matter of cost, compression is not: it is done also where
    links are so fast that it does not pay. ``delta`` of 1 compresses always, 0 hardly ever.

    Attributes:
        density: k/n of a compressed step, in (0, 1).
        delta: Loss of energy that is put up with, in [0, 1].
        newest: What the loss of a step counts in the smoothed one, in (0, 1].
    """

    density: float = DENSITY
    delta: float = DELTA
    newest: float = NEWEST

    def __post_init__(self) -> None:
        if self.density == 0:
            raise ConfigError("scadles's density is 0, it must be in (0, 1)")
        check_share("scadles's density", self.density)
        if not (is_real(self.delta) and 0 <= self.delta <= 1):
            raise ConfigError(f"scadles's delta is {self.delta!r}, it must be in [0, 1]")
        if not (is_real(self.newest) and 0 < self.newest <= 1):
            raise ConfigError(f"scadles's newest is {self.newest!r}, it must be in (0, 1]")

    def judge(self, load: Load, collectives: Sequence[str]) -> ScadlesJudge:
        """Return the decisions of one training, see :class:`aiops.policy.exchange.Density`.

        Raises:
            ConfigError: A collective is unknown, or all are dense.
        """
        check_collectives(collectives)
        check_some_sparse("scadles", collectives)
        return ScadlesJudge(self, load, collectives)


class ScadlesJudge:
    """The decisions of one training by :class:`Scadles`, see :class:`aiops.policy.exchange.VotingJudge`.

    Args:
        settings: How it decides.
        load: What there is to exchange.
        collectives: What the job can do.
    """

    __slots__ = ("_coming", "_dense", "_first", "_load", "_loss", "_plan", "_settings", "_sparse")

    def __init__(self, settings: Scadles, load: Load, collectives: Sequence[str]) -> None:
        self._settings = settings
        self._load = load
        self._loss = Smoothed(settings.newest)
        self._sparse = tuple(name for name in collectives if not is_dense(name))
        self._dense = tuple(name for name in collectives if is_dense(name)) or self._sparse
        self._first = Exchange(self._dense[0], 1.0)
        self._plan: Plan | None = None
        # What was decided in the step that comes next, and begins after it.
        self._coming: Exchange | None = None

    @property
    def first(self) -> Exchange:
        """Everything, by the first dense collective if there is one."""
        return self._first

    @property
    def probes(self) -> bool:
        """Whether there are several collectives to weigh, for either kind of step."""
        return len(self._sparse) > 1 or len(self._dense) > 1

    @property
    def trials(self) -> tuple[Exchange, ...]:
        """Nothing: each rank measures its own loss."""
        return ()

    @property
    def loss(self) -> float | None:
        """This rank's smoothed loss of energy at the density, in [0, 1]; None before the first vote."""
        return self._loss.value

    def vote(self, spectrum: Spectrum) -> bool:
        """Take a gradient's loss in, and return whether the smoothed one is small enough to compress.

        A gradient of zeros and one that is not finite are no measure: the vote stays what it was, at first against.
        """
        if 0.0 < spectrum.total < math.inf:
            self._loss.add(1.0 - spectrum.gain(self._settings.density))
        loss = self._loss.value
        return loss is not None and loss <= self._settings.delta

    def observe(self, seen: Seen) -> bool:
        """Note a step's votes; return whether they change what is done."""
        # A decision that a refused step did not pass on is made again by the step after it.
        coming, self._coming = self._coming, None
        ranks = self._load.ranks
        compresses = 2 * seen.votes > ranks
        density = self._settings.density if compresses else 1.0
        names = self._sparse if compresses else self._dense
        exchange = exchange_at(density, self._load, names, seen)
        changes = exchange != (seen.exchange if coming is None else coming)
        why = f"{seen.votes} of {ranks} ranks lose at most {self._settings.delta:g} of the energy"
        self._plan = Plan(exchange, why) if changes else None
        return changes

    def decide(self, curve: GainCurve) -> Plan | None:
        """Return what the votes came to."""
        plan, self._plan = self._plan, None
        self._coming = None if plan is None else plan.exchange
        return plan


def scadles(density: float = DENSITY, delta: float = DELTA, newest: float = NEWEST) -> Scadles:
    """Return ScaDLES: compress where most ranks lose little by it, else send everything.

    Args:
        density: k/n of a compressed step, in (0, 1).
        delta: Loss of energy that is put up with, in [0, 1].
        newest: What the loss of a step counts in the smoothed one, in (0, 1].
    """
    return Scadles(density, delta, newest)
