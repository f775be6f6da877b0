"""Statistics against numbers worked out by hand."""

import math

import pytest

from aiops.lab.statistic import Summary, geometric, speedup, summarize, times
from tests.lab.kit import record


def test_the_geometric_mean_by_hand():
    assert geometric([2.0, 8.0]).mean == pytest.approx(4.0)
    assert geometric([1.0, 10.0, 100.0]).mean == pytest.approx(10.0)


def test_one_number_is_its_own_interval():
    found = geometric([3.0])
    assert (found.mean, found.low, found.high) == pytest.approx((3.0, 3.0, 3.0))


def test_the_interval_of_two_numbers_is_both_of_them():
    # Of the resamples a quarter is (low, low) and a quarter (high, high), far more than the 2.5 % cut off.
    found = geometric([2.0, 8.0])
    assert (found.low, found.high) == pytest.approx((2.0, 8.0))


def test_the_interval_matches_the_normal_theory_for_many_numbers():
    # The logs of 4^(k/200) are evenly spread over log 4, with standard deviation log 4 / sqrt 12.
    found = geometric([4.0 ** (k / 200) for k in range(201)])
    half = 1.96 * math.log(4.0) / math.sqrt(12) / math.sqrt(201)
    assert math.log(found.high / found.mean) == pytest.approx(half, rel=0.08)
    assert math.log(found.mean / found.low) == pytest.approx(half, rel=0.08)


def test_speedups_are_paired_by_seed():
    slow = [record("a", 0, 10.0), record("a", 1, 40.0), record("a", 2, 5.0)]
    fast = [record("b", 1, 10.0), record("b", 0, 5.0)]
    found = speedup(slow, fast)
    # 10/5 and 40/10; seed 2 has no partner.
    assert found.mean == pytest.approx(math.sqrt(2 * 4))
    assert (found.low, found.high) == pytest.approx((2.0, 4.0))


@pytest.mark.parametrize(
    ("slow", "fast"),
    [
        ([record("a", 0, None)], [record("b", 0, 5.0)]),
        ([record("a", 0, 5.0)], [record("b", 0, None)]),
        ([record("a", 0, 5.0), record("a", 1, 5.0)], [record("b", 0, 5.0), record("b", 1, None)]),
        ([record("a", 0, 5.0)], [record("b", 1, 5.0)]),
        ([], [record("b", 0, 5.0)]),
    ],
)
def test_there_is_no_speedup_where_a_run_did_not_arrive(slow, fast):
    assert speedup(slow, fast) is None


def test_rejected_runs_do_not_count():
    runs = [record("a", 0, 5.0), record("a", 1, 1.0, rejected=("steps 9 % late",))]
    assert times(runs) == {0: 5.0}
    (found,) = summarize({"a": runs})
    assert (found.n_runs, found.rejected, found.time_s.mean) == (1, 1, pytest.approx(5.0))


def test_a_summary_by_hand():
    points = [(1.0, 1, 0.5, 1.0), (2.0, 2, 0.7, 0.8), (3.0, 4, 0.6, 0.9)]
    runs = {
        "a": [record("a", 0, 8.0, points=points), record("a", 1, 2.0, points=points)],
        "b": [record("b", 0, 2.0), record("b", 1, 1.0, reached_version=6)],
        "c": [record("c", 0, 2.0), record("c", 1, None)],
    }
    a, b, c = summarize(runs)
    assert a == Summary(
        label="a",
        n_runs=2,
        n_reached=2,
        time_s=a.time_s,
        speedup=a.speedup,
        rounds=4.0,
        steps=100.0,
        overlap_ratio=0.25,
        utilisation=0.5,
        megabytes=2.0,
        accuracy=pytest.approx(0.6),
        best=pytest.approx(0.7),
        rejected=0,
    )
    assert a.time_s.mean == pytest.approx(4.0)
    assert a.speedup.mean == pytest.approx(1.0)
    assert b.speedup.mean == pytest.approx(math.sqrt(4 * 2))
    assert b.rounds == 5.0
    assert (c.n_reached, c.time_s, c.speedup) == (1, None, None)
    # A run that did not arrive counts with all its rounds: (4 + 8) / 2.
    assert c.rounds == 6.0


def test_another_reference():
    runs = {"a": [record("a", 0, 8.0)], "b": [record("b", 0, 2.0)]}
    a, b = summarize(runs, "b")
    assert (a.speedup.mean, b.speedup.mean) == pytest.approx((0.25, 1.0))


def test_methods_without_a_run_yet_have_a_summary():
    a, b = summarize({"a": [], "b": [record("b", 0, 2.0)]})
    assert (a.n_runs, a.time_s, a.speedup, b.speedup) == (0, None, None, None)
