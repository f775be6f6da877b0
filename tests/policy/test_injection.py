"""Data injection: who gives what to whom, and what a step costs then."""

from __future__ import annotations

import math
from collections import Counter

import pytest

from aiops.errors import ConfigError
from aiops.policy.injection import Injection, random
from aiops.policy.table import parse_injection


@pytest.mark.parametrize(
    ("alpha", "ranks", "count"),
    [
        (0.5, 10, 5), (0.25, 10, 3), (0.1, 10, 1), (0.05, 10, 1), (0.07, 100, 7), (1, 4, 4), (0, 4, 0), (1, 1, 0),
        (1e-3, 2, 1),
    ],
)  # fmt: skip
def test_so_many_ranks_donate(alpha, ranks, count):
    for step in range(20):
        donors = Injection(alpha, 0.5).donors(step, ranks)
        assert len(set(donors)) == len(donors) == count
        assert list(donors) == sorted(donors)
        assert set(donors) <= set(range(ranks))


def test_a_plan_by_hand():
    # Two of four donate a half: b' = 24 / (1 + .5 * 2) = 12, of which each gives 6.
    draw = Injection(0.5, 0.5, seed=3).plan(7, [24, 24, 24, 24], 0)
    assert draw.own == (12, 12, 12, 12)
    assert draw.shares == tuple(6 if rank in draw.donors else 0 for rank in range(4))
    # Who only receives trains on 24 as before, a donor on 6 less.
    assert draw.batches == tuple(18 if rank in draw.donors else 24 for rank in range(4))
    assert draw.weights == pytest.approx([batch / 84 for batch in draw.batches])


def test_streams_of_different_rates():
    # All three donate a quarter: b' = b / 1.75, rounded down, is 57, 4 and 0, and a quarter of that 14, 1 and 0.
    draw = Injection(1, 0.25).plan(0, [100, 8, 0], 1)
    assert (draw.donors, draw.own, draw.shares) == ((0, 1, 2), (57, 4, 0), (14, 1, 0))
    # Who has no samples of its own trains on the others'.
    assert draw.batches == (57 + 1, 4 + 14, 0 + 15)
    assert len(draw.picks) == 1


def test_shares_are_not_lost_to_rounding():
    # 1 + .25 * 4 = 2, and .29 * 100 is 28.999999999999996.
    assert Injection(1, 0.29).plan(0, [216, 216, 216, 216], 0).shares == (29, 29, 29, 29)


def test_who_has_a_sample_keeps_one():
    assert Injection(1, 1).plan(0, [1, 1, 2, 0], 0).own == (1, 1, 1, 0)


@pytest.mark.parametrize("batches", [[64] * 6, [8, 1024, 77, 0, 300, 64]])
def test_every_rank_draws_the_same_and_its_own_samples(batches):
    rule = Injection(0.4, 0.3, seed=11)
    for step in range(5):
        draws = [rule.plan(step, batches, rank) for rank in range(6)]
        for rank, draw in enumerate(draws):
            same = [(each.donors, each.own, each.shares, each.batches) for each in (draws[0], draw)]
            assert same[0] == same[1]
            assert draw.rank == rank
            assert len(set(draw.picks)) == len(draw.picks) == draw.shares[rank]
            assert list(draw.picks) == sorted(draw.picks)
            assert all(0 <= at < draw.own[rank] for at in draw.picks)
        shipped = sum(draws[0].batches) - sum(draws[0].own)
        assert shipped == 5 * sum(draws[0].shares)


def test_a_part_is_what_the_plan_says_of_one_rank():
    rule, batches = Injection(0.4, 0.3, seed=11), [8, 1024, 77, 0, 300, 1]
    for step in range(5):
        for rank, batch in enumerate(batches):
            draw = rule.plan(step, batches, rank)
            part = rule.part(step, batch, rank, donors=len(draw.donors), gives=rank in draw.donors)
            assert (part.own, part.picks) == (draw.own[rank], draw.picks)


def test_another_step_or_seed_is_another_draw_and_the_same_is_the_same():
    rule, batches = Injection(0.5, 0.5), [500] * 20
    first = rule.plan(0, batches, rule.donors(0, 20)[0])
    assert rule.plan(0, batches, first.rank) == first
    assert rule.plan(1, batches, 0).donors != first.donors
    other = Injection(0.5, 0.5, seed=1)
    assert other.donors(0, 20) != first.donors
    # Two donors of a step do not pick alike.
    second = rule.plan(0, batches, first.donors[1])
    assert second.picks != first.picks


def test_every_rank_and_every_sample_has_its_turn():
    rule = Injection(0.25, 0.5)
    donors = Counter(rank for step in range(2000) for rank in rule.donors(step, 8))
    # 500 times each, with a standard deviation of 19.
    assert all(abs(donors[rank] - 500) < 100 for rank in range(8))
    picks = Counter(at for step in range(2000) for at in rule.plan(step, [8] * 8, 0).picks)
    assert picks.keys() == set(range(4))
    assert max(picks.values()) < 1.4 * min(picks.values())


def test_draws_are_these_for_good():
    # Ranks with different versions of numpy have to draw alike, and a training that goes on as it would have.
    rule = Injection(0.5, 0.5, seed=42)
    drawn = [rule.donors(step, 8) for step in range(3)]
    assert drawn == [(1, 4, 6, 7), (0, 3, 4, 5), (0, 2, 6, 7)]


def test_nothing_shared_is_nothing_changed():
    for rule in (Injection(0, 0.5), Injection(0.5, 0)):
        draw = rule.plan(3, [10, 20], 1)
        assert (draw.donors, draw.own, draw.picks, draw.batches) == ((), (10, 20), (), (10, 20))
    alone = Injection(1, 1).plan(0, [10], 0)
    assert (alone.own, alone.batches) == ((10,), (10,))


def test_nobody_has_a_sample():
    assert Injection(1, 1).plan(0, [0, 0], 0).weights == (0.0, 0.0)


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: Injection(1.1, 0.5), r"injection's alpha is 1.1, it must be in \[0, 1\]"),
        (lambda: Injection(0.5, -0.1), r"injection's beta is -0.1, it must be in \[0, 1\]"),
        (lambda: Injection(math.nan, 0.5), "injection's alpha is nan"),
        (
            lambda: Injection(0.5, 0.5, -1),
            "injection's seed is -1, it must be a whole number from 0",
        ),
        (lambda: Injection(0.5, 0.5, 2**64), "injection's seed is 18446744073709551616"),
    ],
)
def test_what_is_refused(make, sentence):
    with pytest.raises(ConfigError, match=sentence):
        make()


def test_the_name_of_the_command_line():
    assert random(0.25, 0.5) == Injection(0.25, 0.5, 0)
    for rule in (Injection(0.25, 1e-7, 2**64 - 1), Injection(1, 0)):
        assert parse_injection(rule.name) == rule
