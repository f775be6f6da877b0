"""Weight rules: what each push of one update is worth.

Shares (``uniform``, ``by_samples``, ``by_steps``) depend on the other pushes of the update and sum to 1 where
stated; factors (``constant``, ``by_staleness``, ``hinge``) look at one push alone and are <= 1. A share times
factors is a ``product``. All of them are a number of each push's own, ``raw``, times a factor of the update, ``scale``
(:class:`aiops.policy.base.FoldableRule`), if the rules are that they are made of.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

from aiops.errors import ConfigError
from aiops.policy.base import FoldableRule, PushView, WeightRule
from aiops.policy.factor import ByStaleness as ByStaleness
from aiops.policy.factor import Constant as Constant
from aiops.policy.factor import Hinge as Hinge
from aiops.policy.factor import by_staleness as by_staleness
from aiops.policy.factor import constant as constant
from aiops.policy.factor import hinge as hinge


def _shares(values: Sequence[float]) -> list[float]:
    # All zero stays all zero: the engine refuses such a round, a rule raises nothing.
    total = math.fsum(values)
    return [value / total for value in values] if total > 0 else [0.0] * len(values)


def _inverse(total: float) -> float:
    return 1.0 / total if total > 0 else 0.0


# A part of a rule that is asked for raw weights; combination.py has refused the parts that have none.
def _rule(rule: WeightRule) -> FoldableRule:
    return cast(FoldableRule, rule)


@dataclass(frozen=True, slots=True)
class Uniform:
    """The plain mean of bulk SGD and of NBSync's prototype (Zhou et al., 2023); sums to 1."""

    def __call__(self, pushes: Sequence[PushView]) -> Sequence[float]:
        """Return 1/n for each of n pushes."""
        return [1.0 / len(pushes)] * len(pushes) if pushes else []

    def raw(self, push: PushView) -> float:
        """Return 1."""
        return 1.0

    def scale(self, pushes: Sequence[PushView]) -> float:
        """Return 1/n."""
        return 1.0 / len(pushes) if pushes else 0.0


@dataclass(frozen=True, slots=True)
class BySamples:
    """FedAvg's mean over samples (McMahan et al., 2017); sums to 1, or to 0 when nobody has a sample."""

    def __call__(self, pushes: Sequence[PushView]) -> Sequence[float]:
        """Return n_i / sum(n), where n_i is the number of samples behind push i."""
        return _shares([float(push.n_samples) for push in pushes])

    def raw(self, push: PushView) -> float:
        """Return the number of samples."""
        return float(push.n_samples)

    def scale(self, pushes: Sequence[PushView]) -> float:
        """Return 1 over all samples, 0 when there are none."""
        return _inverse(math.fsum([float(push.n_samples) for push in pushes]))


@dataclass(frozen=True, slots=True)
class ByData:
    """Shares by the size of the workers' data (n_k / n of McMahan et al., 2017, and of ESync); sums to 1.

    It differs from :class:`BySamples` where workers do other than whole epochs: in rounds of so many steps, or of so
    long a time, a worker counts for the data it stands for, however much of it was used in this round.
    """

    def __call__(self, pushes: Sequence[PushView]) -> Sequence[float]:
        """Return n_i / sum(n), where n_i is the number of training samples that the sender of push i has."""
        return _shares([float(push.n_data) for push in pushes])

    def raw(self, push: PushView) -> float:
        """Return the number of training samples."""
        return float(push.n_data)

    def scale(self, pushes: Sequence[PushView]) -> float:
        """Return 1 over all of them."""
        return _inverse(math.fsum([float(push.n_data) for push in pushes]))


@dataclass(frozen=True, slots=True)
class BySteps:
    """FedNova's normalized averaging (Wang et al., 2020): fast workers do not pull the model to their data.

    With shares p summing to P and M_i local steps, tau = sum(p_j * M_j) / P and w_i = (p_i / P) * tau / M_i. So
    sum(w_i * M_i) = tau; the weights themselves sum to 1 for equal steps and to more for unequal ones. A push
    of 0 steps weighs 0.

    Attributes:
        shares: Rule that gives p.
    """

    shares: WeightRule

    def __call__(self, pushes: Sequence[PushView]) -> Sequence[float]:
        """Return one weight per push, all zero when the shares are."""
        shares = _shares(self.shares(pushes))
        tau = math.fsum(p * push.n_steps for p, push in zip(shares, pushes, strict=True))
        return [
            p * tau / push.n_steps if push.n_steps > 0 else 0.0
            for p, push in zip(shares, pushes, strict=True)
        ]

    def raw(self, push: PushView) -> float:
        """Return the share per local step, before it is scaled."""
        return _rule(self.shares).raw(push) / push.n_steps if push.n_steps > 0 else 0.0

    def scale(self, pushes: Sequence[PushView]) -> float:
        """Return tau over the sum of the shares, which cancels their own scale."""
        shares = [_rule(self.shares).raw(push) for push in pushes]
        share = _inverse(math.fsum(shares))
        steps = zip(shares, pushes, strict=True)
        return share * math.fsum(p * share * push.n_steps for p, push in steps)


@dataclass(frozen=True, slots=True)
class Product:
    """Rules multiplied push by push, as in staleness-aware averaging (FedBuff, Nguyen et al., 2022).

    Attributes:
        rules: The factors, at least one.
    """

    rules: tuple[WeightRule, ...]

    def __post_init__(self) -> None:
        if not self.rules:
            raise ConfigError("product has 0 rules, it needs at least 1")

    def __call__(self, pushes: Sequence[PushView]) -> Sequence[float]:
        """Return the product of all rules' weights for each push."""
        columns = [rule(pushes) for rule in self.rules]
        return [math.prod(row) for row in zip(*columns, strict=True)]

    def raw(self, push: PushView) -> float:
        """Return the product of all rules' raw weights."""
        return math.prod(_rule(rule).raw(push) for rule in self.rules)

    def scale(self, pushes: Sequence[PushView]) -> float:
        """Return the product of all rules' scales."""
        return math.prod(_rule(rule).scale(pushes) for rule in self.rules)


@dataclass(frozen=True, slots=True)
class Normalized:
    """A rule divided by its sum over the update, so that it sums to 1; all zero stays all zero.

    Attributes:
        rule: The rule to scale.
    """

    rule: WeightRule

    def __call__(self, pushes: Sequence[PushView]) -> Sequence[float]:
        """Return the rule's weights divided by their sum."""
        return _shares(self.rule(pushes))

    def raw(self, push: PushView) -> float:
        """Return the rule's raw weight."""
        return _rule(self.rule).raw(push)

    def scale(self, pushes: Sequence[PushView]) -> float:
        """Return 1 over the sum of the raw weights, 0 when it is 0."""
        return _inverse(math.fsum([_rule(self.rule).raw(push) for push in pushes]))


def uniform() -> Uniform:
    """Return the plain mean, 1/n each."""
    return Uniform()


def by_samples() -> BySamples:
    """Return the mean over training samples, n_i / sum(n)."""
    return BySamples()


def by_data() -> ByData:
    """Return the mean over the workers' data, n_i / sum(n); every worker has to say how much it has."""
    return ByData()


def by_steps(shares: WeightRule | None = None) -> BySteps:
    """Return FedNova's rule: each push counts per local step, times the mean number of steps.

    Args:
        shares: Rule for the workers' shares; None means uniform.
    """
    return BySteps(Uniform() if shares is None else shares)


def product(*rules: WeightRule) -> Product:
    """Return rules multiplied push by push; the usual form is one share times any number of factors."""
    return Product(rules)


def normalized(rule: WeightRule) -> Normalized:
    """Return ``rule`` scaled to sum to 1 over each update."""
    return Normalized(rule)
