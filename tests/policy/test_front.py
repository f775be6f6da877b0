"""Candidates, what of them nothing beats, and both ways to pick one."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiops.policy.cost import COSTS, cheapest
from aiops.policy.exchange import Exchange, Load, Network
from aiops.policy.front import GRID_POINTS, Candidate, Prices, knee, pareto, quickest, steps_needed

NETWORK = Network(1e-3, 8e-9)


def at(sync_s, gain, name="allgather_ring"):
    return Candidate(Exchange(name), sync_s, gain)


def root(operator, density):
    return 1.0 if operator == "dense" else density**0.5 * (0.5 if operator == "vote" else 1.0)


def test_the_front_leaves_out_what_another_beats():
    assert pareto([at(3, 0.5), at(1, 0.2), at(2, 0.2), at(2, 0.1), at(4, 0.5), at(3, 0.6)]) == [
        at(1, 0.2),
        at(3, 0.6),
    ]
    first, second = at(1, 0.5, "vote_ring"), at(1, 0.5, "vote_tree")
    assert pareto([first, second]) == [first]
    assert pareto([]) == []


@given(st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9)), min_size=1, max_size=30))
def test_the_front_is_what_nothing_beats(pairs):
    candidates = [at(float(sync_s), gain / 10) for sync_s, gain in pairs]

    def beats(one, other):
        no_worse = one.sync_s <= other.sync_s and one.gain >= other.gain
        return no_worse and (one.sync_s < other.sync_s or one.gain > other.gain)

    best = {c for c in candidates if not any(beats(other, c) for other in candidates)}
    front = pareto(candidates)
    assert set(front) == best
    assert all(a.sync_s < b.sync_s and a.gain < b.gain for a, b in itertools.pairwise(front))


def test_the_steps_needed_grow_as_gain_is_lost():
    assert steps_needed(1.0, 0.4) == 1.0
    assert steps_needed(0.25, 0.5) == pytest.approx(2.0)
    assert steps_needed(0.01, 1.0) == pytest.approx(100.0)
    assert 1e6 <= steps_needed(0.0, 0.5) < math.inf
    assert steps_needed(0.0, 0.0) == 1.0


# 1 s of computing; seconds to the accuracy at an exponent of 1/2 and of 1.
@pytest.mark.parametrize(
    ("candidate", "little", "much"),
    [
        (at(0.1, 0.01), 11.0, 110.0),
        (at(0.5, 0.25), 3.0, 6.0),
        (at(3.0, 1.0), 4.0, 4.0),
    ],
)
def test_the_quickest_weighs_time_against_steps(candidate, little, much):
    assert quickest(1.0, 0.5)(candidate) == pytest.approx(little)
    assert quickest(1.0, 1.0)(candidate) == pytest.approx(much)


# Times 1 to 5 s, 1/gain 5 to 1.
@pytest.mark.parametrize(
    ("candidate", "achieved"),
    [
        (at(1.0, 0.2), 0.4),
        (at(2.0, 0.25), 0.3),
        (at(2.0, 0.5), 0.15),
        (at(3.0, 0.5), 0.3),
        (at(5.0, 1.0), 0.6),
        (at(9.0, 1.0, "dense_ring"), 1.2),
        (at(1.5, 1.0, "dense_ring"), 0.075),
        (at(0.5, 1.0, "dense_ring"), 0.0),
    ],
)
def test_the_knee_takes_the_worse_of_both_objectives(candidate, achieved):
    front = [at(1.0, 0.2), at(2.0, 0.5), at(5.0, 1.0), at(6.0, 0.4)]
    # What is dense does not move the scale.
    for candidates in (front, [*front, at(99.0, 1.0, "dense_ring"), at(0.5, 1.0, "dense_tree")]):
        assert knee(candidates)(candidate) == pytest.approx(achieved, abs=1e-12)


def test_on_a_front_of_one_it_is_the_knee():
    achieved = knee([at(1.0, 0.5), at(2.0, 0.5)])
    assert achieved(at(1.0, 0.5)) == 0.0
    assert achieved(at(2.0, 0.5)) == 0.6
    assert achieved(at(1.0, 0.4)) == 0.4
    assert achieved(at(0.5, 1.0, "dense_ring")) == 0.0


def test_the_grid_has_every_operator_by_its_cheapest_route():
    load, names = Load(1_000_000, 8), list(COSTS)
    prices = Prices(load, names, 0.001, 0.1)
    assert prices.operators == ("allgather", "artopk", "var", "vote", "topk")
    grid = prices.grid(NETWORK, root)
    assert len(grid) == 1 + 5 * GRID_POINTS
    for candidate in grid:
        exchange, operator = candidate.exchange, candidate.exchange.operator
        routes = [name for name in names if name.startswith(operator + "_")]
        name, seconds = cheapest(load, NETWORK, exchange.density, routes)
        assert (exchange.collective, candidate.sync_s) == (name, pytest.approx(seconds, rel=1e-12))
        assert candidate.gain == root(operator, exchange.density)
        assert prices.of(exchange, NETWORK, root) == pytest.approx(candidate)
    densities = [c.exchange.density for c in grid if c.exchange.operator == "vote"]
    assert densities[0] == 0.001
    assert densities[-1] == 0.1
    assert {round(b / a, 9) for a, b in itertools.pairwise(densities)} == {
        round(100 ** (1 / 199), 9)
    }


def test_without_a_dense_collective_no_candidate_is_dense():
    prices = Prices(Load(1000, 8), ["artopk_ring"], 0.01, 1.0)
    assert prices.dense(NETWORK, root) == []
    assert len(prices.grid(NETWORK, root)) == GRID_POINTS


def test_a_pick_from_the_grid_is_the_best_of_a_finer_one():
    load, names = Load(10_000_000, 8), ["dense_ring", "allgather_ring", "artopk_ring"]
    grid = Prices(load, names, 0.001, 0.1).grid(NETWORK, root)
    better = quickest(0.05, 0.07)
    best = min(pareto(grid), key=better)
    finer = [
        Candidate(Exchange(name, d), COSTS[name](load, NETWORK, d), root("allgather", d))
        for name in names[1:]
        for d in (0.001 * 100 ** (i / 5000) for i in range(5001))
    ]
    assert better(best) <= min(map(better, finer)) * 1.001
    assert best == min(grid, key=better)
