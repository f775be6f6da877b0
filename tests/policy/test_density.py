"""A fixed density and its collective, and what is refused of an adaptive one."""

from __future__ import annotations

import importlib.util

import numpy as np
import pytest

from aiops.errors import ConfigError
from aiops.policy.density import Adaptive, Fixed, adaptive, adaptive_knee, adaptive_nsga2, fixed
from aiops.policy.exchange import Exchange, Load, Network, Seen, Spectrum

LOAD = Load(1_000_000, 8)
NAMES = ("allgather_ring", "artopk_ring", "dense_ring")
ANY = Spectrum(np.array([9, 1]), np.array([1.0, 1.0]))


def seen(step, exchange, network):
    return Seen(step, exchange, network, 0.1, 0.5)


def test_a_given_collective_is_never_left():
    judge = Fixed(0.01, "allgather_ring").judge(LOAD, NAMES)
    assert judge.first == Exchange("allgather_ring", 0.01)
    for step in range(1, 50):
        assert not judge.observe(seen(step, judge.first, Network(1e-6, 1e-6)))


def test_without_one_the_cheapest_is_taken_once_the_network_is_known():
    judge = fixed(0.1).judge(LOAD, NAMES)
    assert judge.first == Exchange("allgather_ring", 0.1)
    assert not judge.observe(seen(1, judge.first, None))
    assert judge.observe(seen(2, judge.first, Network(1e-6, 1e-8)))
    # Asked twice before it is fetched, the plan is the same one.
    assert judge.observe(seen(3, judge.first, Network(1e-6, 1e-8)))
    plan = judge.decide(ANY)
    assert plan.exchange == Exchange("artopk_ring", 0.1)
    assert judge.first == Exchange("allgather_ring", 0.1)
    assert judge.decide(ANY) is None
    assert not any(judge.observe(seen(s, plan.exchange, Network(1.0, 1e-8))) for s in range(4, 22))
    assert judge.observe(seen(22, plan.exchange, Network(1.0, 1e-8)))
    assert judge.decide(ANY).exchange == Exchange("allgather_ring", 0.1)


def test_a_single_collective_leaves_no_choice():
    judge = fixed(0.1).judge(LOAD, ["artopk_tree"])
    assert judge.first == Exchange("artopk_tree", 0.1)
    assert not judge.observe(seen(1, judge.first, Network(1.0, 1e-8)))


def test_a_fixed_density_of_one_is_a_dense_exchange():
    judge = fixed(1).judge(LOAD, ["dense_ring", "allgather_ring"])
    assert judge.first == Exchange("dense_ring", 1.0)
    assert not judge.observe(seen(1, judge.first, Network(1e-6, 1e-8)))


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: Fixed(0), r"fixed's density is 0, it must be in \(0, 1\]"),
        (lambda: Fixed(1.5), r"fixed's density is 1.5, it must be in \(0, 1\]"),
        (lambda: Fixed(True), r"fixed's density is True"),
        (lambda: Fixed(0.1, "ring"), "unknown collective 'ring', known are dense_ring"),
        (
            lambda: Fixed(0.1, "vote_tree").judge(LOAD, NAMES),
            "fixed is to use vote_tree, this job can do allgather_ring, artopk_ring, dense_ring",
        ),
        (lambda: Fixed(0.1).judge(LOAD, []), "there are 0 collectives to choose from"),
        (lambda: Fixed(0.1).judge(LOAD, ["gossip"]), "unknown collective 'gossip'"),
        (lambda: Adaptive(0.0), r"adaptive's low is 0.0, it must be in \(0, 1\]"),
        (lambda: Adaptive(0.1, 2.0), r"adaptive's high is 2.0, it must be in \(0, 1\]"),
        (lambda: Adaptive(0.2, 0.1), "adaptive's low is 0.2, it must be < high = 0.1"),
        (lambda: Adaptive(0.1, 0.1), "adaptive's low is 0.1, it must be < high = 0.1"),
        (lambda: Adaptive(collectives=()), "there are 0 collectives to choose from"),
        (lambda: Adaptive(collectives=("x",)), "unknown collective 'x'"),
        (
            lambda: Adaptive(collectives=("dense_ring",)),
            "adaptive has dense_ring to choose from, which all send everything: use fixed:1",
        ),
        (lambda: Adaptive().judge(LOAD, ["dense_ring"]), "which all send everything"),
        (
            lambda: Adaptive(collectives=("vote_tree",)).judge(LOAD, NAMES),
            "adaptive is to use vote_tree, this job can do allgather_ring, artopk_ring, dense_ring",
        ),
        (lambda: Adaptive(takes="best"), "adaptive takes 'best', known are quickest, knee"),
        (lambda: Adaptive(exponent=-1), "adaptive's exponent is -1, it must be finite and >= 0"),
        (
            lambda: Adaptive(exponent=float("nan")),
            "adaptive's exponent is nan, it must be finite and >= 0",
        ),
        (lambda: Adaptive(moo="moead"), "adaptive's moo is 'moead', known are grid, nsga2"),
        (lambda: Adaptive(dwell=0), "adaptive's dwell is 0, it must be a whole number >= 1"),
        (lambda: Adaptive(dwell=2.5), "adaptive's dwell is 2.5, it must be a whole number >= 1"),
    ],
)
def test_what_is_refused(make, sentence):
    with pytest.raises(ConfigError, match=sentence) as caught:
        make()
    assert "\n" not in str(caught.value)


def test_a_search_by_pymoo_needs_pymoo(monkeypatch):
    assert adaptive_nsga2().moo == "nsga2"
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(
        ConfigError, match=r"needs pymoo, which is not installed: pip install 'aiops"
    ):
        adaptive_nsga2()
    assert adaptive_knee().moo == "grid"


def test_the_names_of_the_command_line():
    assert adaptive(exponent=0) == Adaptive(exponent=0)
    assert adaptive(0.01, 0.5, 0.3) == Adaptive(0.01, 0.5, exponent=0.3)
    assert adaptive_knee(0.01, 0.5) == Adaptive(0.01, 0.5, takes="knee")
    assert adaptive_nsga2(0.01, 0.5) == Adaptive(0.01, 0.5, takes="knee", moo="nsga2")
