"""Which share of the gradient is sent: always the same, or what suits the links and the gradient."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from aiops.errors import ConfigError
from aiops.policy.adaptive import AdaptiveJudge, Settings
from aiops.policy.choose import DWELL_STEPS, Chooser
from aiops.policy.cost import check_collectives, check_some_sparse
from aiops.policy.exchange import Exchange, GainCurve, Load, Plan, Seen
from aiops.policy.front import Prices
from aiops.policy.number import check_density, is_count, is_real
from aiops.policy.trials import TRIALS_DWELL_STEPS, trial_densities

Takes = Literal["quickest", "knee"]
Moo = Literal["grid", "nsga2"]
Knows = Literal["spectrum", "trials"]

# AR-Topk's range.
LOW, HIGH = 0.001, 0.1
# See aiops.policy.front.steps_needed.
EXPONENT = 0.3


class FixedJudge:
    """The decisions of :class:`Fixed`: none but on the collective, and that only where it may be chosen.

    It asks for a plan only where there is one, since nothing here needs a spectrum.

    Args:
        chooser: Chooses the collective.
        chooses: Whether it may.
    """

    __slots__ = ("_chooser", "_chooses", "_first", "_plan")

    def __init__(self, chooser: Chooser, *, chooses: bool) -> None:
        self._chooser = chooser
        self._chooses = chooses
        self._first = chooser.current
        self._plan: Plan | None = None

    @property
    def first(self) -> Exchange:
        """The given density, by the first collective."""
        return self._first

    @property
    def probes(self) -> bool:
        """Whether there is a choice to make."""
        return self._chooses

    @property
    def trials(self) -> tuple[Exchange, ...]:
        """Nothing: no gain is needed here."""
        return ()

    def observe(self, seen: Seen) -> bool:
        """Note a step; return whether another collective has become cheaper."""
        if self._chooses and seen.network is not None and self._plan is None:
            self._plan = self._chooser.choose(seen.step, seen.network)
        return self._plan is not None

    def decide(self, curve: GainCurve) -> Plan | None:
        """Return the change of the collective."""
        plan, self._plan = self._plan, None
        return plan


@dataclass(frozen=True, slots=True)
class Fixed:
    """Always the same density, by the collective that takes the least for it, or by a given one.

    Where a dense collective is cheaper than all others, everything is sent: the gain is larger, too.

    Attributes:
        density: k/n, in (0, 1].
        collective: A name of :data:`aiops.policy.cost.COSTS`; None: what is cheapest.
    """

    density: float
    collective: str | None = None

    def __post_init__(self) -> None:
        check_density("fixed's density", self.density)
        if self.collective is not None:
            check_collectives([self.collective])

    def judge(self, load: Load, collectives: Sequence[str]) -> FixedJudge:
        """Return the decisions of one training, see :class:`aiops.policy.exchange.Density`.

        Raises:
            ConfigError: A collective is unknown, or the given one is not among them.
        """
        wanted = None if self.collective is None else (self.collective,)
        usable = _usable("fixed", collectives, wanted)
        return FixedJudge(Chooser(load, usable, self.density), chooses=len(usable) > 1)


@dataclass(frozen=True, slots=True)
class Adaptive:
    """AR-Topk's flexible communication (Tyagi and Swany, 2023): density and collective follow links and gain.

    Candidates are all densities between two, each by the cheapest collective, and everything. They are weighed when
    the links and the compute time of a step are known, and again where the gain has moved by 10 % or one of these by
    20 %, see :class:`aiops.policy.adaptive.AdaptiveJudge`.

    Attributes:
        low: Smallest density, in (0, 1).
        high: Largest one but 1, > ``low`` and <= 1.
        collectives: Names of :data:`aiops.policy.cost.COSTS` to choose from; None: all that the job can do.
        takes: ``"quickest"``: the least time to the same accuracy, by :func:`aiops.policy.front.quickest`. It is ours.
            ``"knee"``: the paper's pick, :func:`aiops.policy.front.knee`, which needs no ``exponent``.
        exponent: What a lost gain costs in steps, >= 0, see :func:`aiops.policy.front.steps_needed`. Inferred from our
            own trainings.
        moo: ``"grid"``: every candidate of a grid is looked at. ``"nsga2"``: the paper's genetic search, by pymoo; it
            finds nearly the same, in 100 ms for 1.
        dwell: Steps that a decision stands, >= 1.
        gains: How the gains are known. ``"spectrum"``: from one histogram of the next gradient. ``"trials"``: the
            paper's way, some densities are tried for ten steps each, see :func:`aiops.policy.trials.trial_densities`;
            the training loop has to do them, by :class:`aiops.collective.trials.Trials`.
    """

    low: float = LOW
    high: float = HIGH
    collectives: tuple[str, ...] | None = None
    takes: Takes = "quickest"
    exponent: float = EXPONENT
    moo: Moo = "grid"
    dwell: int = DWELL_STEPS
    gains: Knows = "spectrum"

    def __post_init__(self) -> None:
        check_density("adaptive's low", self.low)
        check_density("adaptive's high", self.high)
        if self.low >= self.high:
            raise ConfigError(f"adaptive's low is {self.low!r}, it must be < high = {self.high!r}")
        if self.collectives is not None:
            check_collectives(self.collectives)
            check_some_sparse("adaptive", self.collectives)
        if self.takes not in get_args(Takes):
            raise ConfigError(
                f"adaptive takes {self.takes!r}, known are {', '.join(get_args(Takes))}"
            )
        if not (is_real(self.exponent) and self.exponent >= 0):
            raise ConfigError(
                f"adaptive's exponent is {self.exponent!r}, it must be finite and >= 0"
            )
        if self.moo not in get_args(Moo):
            raise ConfigError(
                f"adaptive's moo is {self.moo!r}, known are {', '.join(get_args(Moo))}"
            )
        if self.moo == "nsga2" and importlib.util.find_spec("pymoo") is None:
            raise ConfigError(
                "adaptive's moo 'nsga2' needs pymoo, which is not installed: pip install 'aiops-ps[moo]', or use "
                "'grid', which finds no less"
            )
        if not is_count(self.dwell, 1):
            raise ConfigError(f"adaptive's dwell is {self.dwell!r}, it must be a whole number >= 1")
        if self.gains not in get_args(Knows):
            raise ConfigError(
                f"adaptive's gains are {self.gains!r}, known are {', '.join(get_args(Knows))}"
            )

    def judge(self, load: Load, collectives: Sequence[str]) -> AdaptiveJudge:
        """Return the decisions of one training, see :class:`aiops.policy.exchange.Density`.

        Raises:
            ConfigError: A collective is unknown, or there is none to choose but dense ones.
        """
        usable = _usable("adaptive", collectives, self.collectives)
        check_some_sparse("adaptive", usable)
        trials = trial_densities(self.low, self.high) if self.gains == "trials" else ()
        settings = Settings(
            self.takes == "knee", self.exponent, self.moo == "nsga2", self.dwell, trials
        )
        return AdaptiveJudge(settings, Prices(load, usable, self.low, self.high))


# What both the job can do and the policy wants, in the job's order.
def _usable(
    policy: str, collectives: Sequence[str], wanted: Sequence[str] | None
) -> tuple[str, ...]:
    check_collectives(collectives)
    usable = tuple(name for name in collectives if wanted is None or name in wanted)
    if not usable:
        raise ConfigError(
            f"{policy} is to use {', '.join(wanted or ())}, this job can do {', '.join(collectives)}"
        )
    return usable


def fixed(density: float) -> Fixed:
    """Return always the same density, by the cheapest collective.

    Args:
        density: k/n, in (0, 1].
    """
    return Fixed(density)


def adaptive(low: float = LOW, high: float = HIGH, exponent: float = EXPONENT) -> Adaptive:
    """Return the density with the least time to the same accuracy.

    Args:
        low: Smallest density, in (0, 1).
        high: Largest one but 1, > ``low`` and <= 1.
        exponent: What a lost gain costs in steps, >= 0: they grow as gain ** -exponent.
    """
    return Adaptive(low, high, exponent=exponent)


def adaptive_knee(low: float = LOW, high: float = HIGH) -> Adaptive:
    """Return AR-Topk's pick between time and gain, its knee, found on a grid.

    Args:
        low: Smallest density, in (0, 1).
        high: Largest one but 1, > ``low`` and <= 1.
    """
    return Adaptive(low, high, takes="knee")


def adaptive_nsga2(low: float = LOW, high: float = HIGH) -> Adaptive:
    """Return AR-Topk's pick between time and gain, found by its genetic search; needs pymoo.

    Args:
        low: Smallest density, in (0, 1).
        high: Largest one but 1, > ``low`` and <= 1.
    """
    return Adaptive(low, high, takes="knee", moo="nsga2")


def adaptive_trials(low: float = LOW, high: float = HIGH) -> Adaptive:
    """Return AR-Topk's pick between time and gain, where gains are what densities came to that were tried.

    Args:
        low: Smallest density, in (0, 1).
        high: Largest one but 1, > ``low`` and <= 1.
    """
    return Adaptive(low, high, takes="knee", gains="trials", dwell=TRIALS_DWELL_STEPS)
