"""Ratios, quartiles, and the order of turns."""

import itertools

import pytest

from aiops.bench import harness
from aiops.bench.harness import Spread, interleave, rotated, speedup


def test_a_spread_is_the_median_and_the_quartiles():
    assert Spread.of([5, 1, 4, 2, 3]) == Spread(3, 2, 4)


def test_one_sample_is_its_own_spread():
    assert Spread.of([2.5]) == Spread(2.5, 2.5, 2.5)


def test_ratios_are_formed_pass_by_pass():
    # The noise of the second pass hits both and cancels out.
    assert speedup([1.0, 10.0, 1.0], [2.0, 20.0, 2.0]) == Spread(2.0, 2.0, 2.0)


def test_passes_of_different_number_are_no_ratio():
    with pytest.raises(ValueError, match="shorter"):
        speedup([1.0, 2.0], [1.0])


def test_another_contender_starts_each_pass():
    assert [rotated("abc", turn) for turn in range(4)] == [
        ["a", "b", "c"],
        ["b", "c", "a"],
        ["c", "a", "b"],
        ["a", "b", "c"],
    ]
    assert rotated([], 3) == []


def test_contenders_take_turns(monkeypatch):
    order, ticks = [], itertools.count()
    monkeypatch.setattr(harness.time, "perf_counter", lambda: float(next(ticks)))
    contenders = {name: lambda name=name: order.append(name) for name in "ab"}
    samples = interleave(contenders, passes=3)
    assert {name: len(times) for name, times in samples.items()} == {"a": 3, "b": 3}
    assert "".join(order[-6:]) == "abbaab"
