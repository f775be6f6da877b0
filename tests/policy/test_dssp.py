"""DSSP's controller against simulations worked out by hand."""

from __future__ import annotations

import pytest

from aiops.errors import ConfigError
from aiops.policy.base import PushTimes, RoundView
from aiops.policy.dssp import MOST_RANGE, dssp

A, B, C = 0, 1, 2


def view(clocks, times, *, now, granted=None):
    return RoundView(
        version=9,
        held={},
        clocks=clocks,
        now=now,
        granted=granted or {},
        times={worker: PushTimes(*each, n_steps=1) for worker, each in times.items()},
    )


@pytest.mark.parametrize(
    ("high", "slow", "now", "extra"),
    [
        # The fastest pushes at 0, 1, 2, 3, 4 s, the slowest at 3.3, 6.6, ... s: 3 is 0.3 s off, 4 is 0.7 s.
        pytest.param(7, (0.0, 3.3), 0.0, 3, id="1.0 and 3.3 s give 3 further pushes"),
        # 3.6 s: 3 is 0.6 s off, 4 is 0.4 s.
        pytest.param(7, (0.0, 3.6), 0.0, 4, id="a push later"),
        # Only 0, 1 and 2 s are allowed: 2 is the nearest to 3.3 s.
        pytest.param(5, (0.0, 3.3), 0.0, 2, id="the range is an end"),
        # At 3 s now: 0 further ones are 0.3 s off the next push; 3 more (6 s) would be 0.6 s off the one after.
        pytest.param(7, (0.0, 3.3), 3.0, 0, id="wait for one that is about to come"),
        # 6.5 is expected at 0.5 + 2 * 3: from 2.5 s on 1 more is at 3.5 s, exactly at the first one.
        pytest.param(9, (0.5, 3.0), 2.5, 1, id="exactly at its next one"),
        # From 1.8 s on: 2.8 is 0.5 s off 3.3, 3.8 as much (but for rounding); 6.8 is 0.2 s off 6.6.
        pytest.param(9, (0.0, 3.3), 1.8, 5, id="the one after it fits better"),
        # Both 1 and 3 further ones are 0.5 s off (3.0 and 5.0): the fewest.
        pytest.param(5, (1.0, 2.0), 1.5, 1, id="the fewest of equals"),
        # Overdue: it was expected at 3.3, and so again at 6.6 s, 0.4 s off 7; now, at 5 s, is 1.6 s off.
        pytest.param(9, (0.0, 3.3), 5.0, 5, id="an overdue one"),
    ],
)
def test_the_fastest_is_granted_what_lets_it_wait_the_shortest(high, slow, now, extra):
    seen = view({A: 4, B: 0}, {A: (now, 1.0), B: slow}, now=now)
    assert not dssp(3, high).may_proceed(A, seen)
    assert dssp(3, high).grant(A, seen) == extra


def test_of_several_slowest_the_last_to_push_counts():
    times = {A: (0.0, 1.0), B: (0.0, 1.1), C: (0.0, 3.3)}
    assert dssp(3, 7).grant(A, view({A: 4, B: 0, C: 0}, times, now=0.0)) == 3
    # Whoever is further counts no more.
    assert dssp(3, 7).grant(A, view({A: 4, B: 0, C: 1}, times, now=0.0)) == 1


def test_who_is_not_the_fastest_is_granted_nothing():
    times = {A: (0.0, 1.0), B: (0.0, 3.3), C: (0.0, 1.0)}
    assert dssp(3, 7).grant(A, view({A: 4, B: 0, C: 5}, times, now=0.0)) == 0
    assert dssp(3, 7).grant(A, view({A: 5, B: 0, C: 5}, times, now=0.0)) > 0


@pytest.mark.parametrize(("own", "slow"), [((0.0, 0.0), (0.0, 3.3)), ((0.0, 1.0), (0.0, 0.0))])
def test_without_two_pushes_of_both_nothing_is_foreseen(own, slow):
    assert dssp(3, 7).grant(A, view({A: 4, B: 0}, {A: own, B: slow}, now=0.0)) == 0
    assert dssp(3, 7).grant(A, view({A: 4, B: 0}, {B: slow}, now=0.0)) == 0


@pytest.mark.parametrize(
    ("lead", "extra"), [(4, 4), (5, 3), (7, 1), (8, 0), (9, 0), (99, 0)], ids=str
)
def test_nobody_goes_on_with_a_lead_above_the_range(lead, extra):
    # The slowest is so slow that as many as are allowed come nearest.
    seen = view({A: lead, B: 0}, {A: (0.0, 1.0), B: (0.0, 1e3)}, now=0.0)
    assert dssp(3, 7).grant(A, seen) == extra


def test_a_push_of_several_steps_counts_as_one_push():
    # Pushes of 2 steps: leads of 4 and 6 are in the range up to 7, and 3.3 s is nearest to the second, at 2 s.
    seen = RoundView(
        version=9,
        held={},
        clocks={A: 4, B: 0},
        now=0.0,
        times={A: PushTimes(0.0, 1.0, 2), B: PushTimes(0.0, 3.3, 2)},
    )
    assert dssp(2, 7).grant(A, seen) == 4


@pytest.mark.parametrize(
    ("clocks", "granted", "may"),
    [
        pytest.param({A: 3, B: 0}, {}, True, id="a lead of low"),
        pytest.param({A: 4, B: 0}, {}, False, id="a lead above low"),
        pytest.param({A: 4, B: 0}, {A: 5}, True, id="one of a grant"),
        pytest.param({A: 5, B: 0}, {A: 5}, False, id="a grant used up"),
        pytest.param({A: 5, B: 0}, {B: 9}, False, id="another's grant"),
        pytest.param({A: 5, B: 2}, {A: 5}, True, id="the slowest has caught up"),
        pytest.param({B: 0}, {}, True, id="a worker that left"),
    ],
)
def test_may_proceed(clocks, granted, may):
    assert dssp(3, 7).may_proceed(A, view(clocks, {}, now=0.0, granted=granted)) is may


@pytest.mark.parametrize("bad", [-1, 1.5, True, "2"])
def test_limits_are_whole_and_in_order(bad):
    with pytest.raises(ConfigError, match=r"dssp's low is .* whole number >= 0"):
        dssp(bad, 9)
    with pytest.raises(ConfigError, match=r"dssp's high is .* whole number > low = 3"):
        dssp(3, bad)
    for high in (3, 2, 4 + MOST_RANGE):
        with pytest.raises(ConfigError, match=f"dssp's high is {high}, .* <= low . {MOST_RANGE}"):
            dssp(3, high)
