"""What is tried where gains are measured, what the trials say of other densities, and what is decided on them."""

from __future__ import annotations

import pytest

from aiops.errors import ConfigError
from aiops.policy.cost import COSTS
from aiops.policy.density import Adaptive, Fixed, adaptive_trials
from aiops.policy.exchange import Exchange, Load, Network, Seen, TriedGains
from aiops.policy.gravac import Gravac
from aiops.policy.trials import trial_densities, trial_exchanges

LOAD = Load(10_000_000, 8)
NAMES = ("dense_ring", "allgather_ring", "artopk_ring")
NETWORK = Network(1e-3, 8e-9)
GAINS = TriedGains({0.1: 0.8, 0.01: 0.5, 0.001: 0.1})


@pytest.mark.parametrize(
    ("density", "gain"),
    [
        (0.1, 0.8),
        (0.01, 0.5),
        (0.001, 0.1),
        # Half of a decade: 10 ** -1.5, 10 ** -2.5, and up to all, 10 ** -0.5.
        (0.03162277660168379, 0.65),
        (0.0031622776601683795, 0.3),
        (0.31622776601683794, 0.9),
        (1.0, 1.0),
        (0.0001, 0.1),
    ],
)
def test_between_two_trials_a_gain_grows_with_the_logarithm_of_the_density(density, gain):
    assert GAINS.gain(density) == pytest.approx(gain, rel=1e-12)
    assert GAINS.total == 1.0


def test_one_trial_and_the_whole_are_a_curve():
    assert TriedGains({0.01: 0.4}).gain(0.1) == pytest.approx(0.7)
    # Everything is everything, whatever was measured of it.
    assert TriedGains({1.0: 0.9, 0.01: 0.4}).gain(1.0) == 1.0


@pytest.mark.parametrize(
    ("low", "high", "tried"),
    [
        (0.001, 0.1, [0.1, 0.1 / 3, 0.1 / 9, 0.1 / 27, 0.001]),
        (0.01, 0.1, [0.1, 0.1 / 3, 0.01]),
        (0.05, 0.1, [0.1, 0.05]),
        (0.09, 0.1, [0.1, 0.09]),
        (0.1, 1.0, [1.0, 1 / 3, 0.1]),
    ],
)
def test_each_candidate_is_a_third_of_the_one_before(low, high, tried):
    assert trial_densities(low, high) == pytest.approx(tried, rel=1e-15)


def test_they_are_the_papers():
    rounded = [round(each, 3) for each in trial_densities(0.001, 0.1)]
    assert rounded == [0.1, 0.033, 0.011, 0.004, 0.001]


def test_a_density_is_tried_by_what_is_cheapest_for_it_and_never_by_a_dense_exchange():
    densities = (0.1, 0.001)
    # No latency: fewer bytes win, everywhere. No bytes: fewer hops.
    free, far = Network(0.0, 8e-9), Network(0.1, 0.0)
    assert trial_exchanges(LOAD, NAMES, densities, free) == (
        Exchange("artopk_ring", 0.1),
        Exchange("artopk_ring", 0.001),
    )
    assert {one.collective for one in trial_exchanges(LOAD, NAMES, densities, far)} == {
        "allgather_ring"
    }
    for network in (NETWORK, free, far, Network(1e-3, 1e-12)):
        for one in trial_exchanges(LOAD, NAMES, densities, network):
            least = min(COSTS[name](LOAD, network, one.density) for name in NAMES[1:])
            assert COSTS[one.collective](LOAD, network, one.density) == least
    first = trial_exchanges(LOAD, NAMES, densities, None)
    assert [str(one) for one in first] == ["allgather_ring:0.1", "allgather_ring:0.001"]


def asked(policy, names=NAMES, network=NETWORK):
    judge = policy.judge(LOAD, names)
    assert judge.observe(Seen(1, judge.first, network, 0.1, 0.5))
    return judge


def test_who_knows_its_gains_by_trials_says_what_to_try():
    judge = adaptive_trials().judge(LOAD, NAMES)
    before = judge.trials
    assert [one.density for one in before] == list(trial_densities(0.001, 0.1))
    far = asked(adaptive_trials(), network=Network(0.1, 1e-12)).trials
    near = asked(adaptive_trials(), network=Network(1e-9, 1e-6)).trials
    for trials in (far, near):
        assert [one.density for one in trials] == [one.density for one in before]
    assert {one.operator for one in far} == {"allgather"}
    assert {one.operator for one in near} == {"artopk"}


@pytest.mark.parametrize("policy", [Adaptive(), Fixed(0.1), Gravac()])
def test_who_needs_none_has_none(policy):
    assert policy.judge(LOAD, NAMES).trials == ()


@pytest.mark.parametrize("takes", ["knee", "quickest"])
def test_a_measured_gain_counts_for_whatever_operator(takes):
    names = ("allgather_ring", "artopk_ring")
    judge = asked(Adaptive(takes=takes, exponent=2.0, gains="trials"), names)
    plan = judge.decide(GAINS)
    density = plan.exchange.density
    # Half of the bytes at the same gain: nothing that gathers is left on the front.
    assert plan.exchange.operator == "artopk"
    assert f"at a gain of {GAINS.gain(density):.3g} where allgather_ring:0.1 takes" in plan.reason
    assert plan.reason.endswith("at 0.8")


def test_what_a_followed_leader_sent_teaches_nothing_that_trials_do_not():
    names = ("allgather_ring", "artopk_ring")
    plans = []
    for gain in (0.01, 0.9):
        judge = asked(Adaptive(takes="knee", gains="trials", dwell=1), names)
        held = judge.decide(GAINS).exchange
        assert held.operator == "artopk"
        for step in range(2, 20):
            judge.observe(Seen(step, held, NETWORK, 0.1, gain))
        plans.append(judge.decide(TriedGains({0.1: 0.2, 0.001: 0.15})))
    assert plans[0].exchange == plans[1].exchange


def test_its_spec_is_the_papers_pick_on_what_trials_said():
    assert adaptive_trials(0.01, 0.5) == Adaptive(
        0.01, 0.5, takes="knee", gains="trials", dwell=500
    )
    # Trials of a decision are a tenth of its steps, at most.
    assert 10 * len(trial_densities(0.001, 0.1)) * 10 <= adaptive_trials().dwell
    with pytest.raises(ConfigError, match="gains are 'guess', known are spectrum, trials"):
        Adaptive(gains="guess")
