"""A counter's smoothed slope."""

import math

import pytest

from aiops.errors import ConfigError
from aiops.stream.meter import RateMeter


def test_nothing_is_known_before_two_counts():
    meter = RateMeter()
    assert meter.observe(1000, 5.0) == 0.0
    assert meter.rate == 0.0


def test_a_steady_stream_has_its_rate_from_the_first_second():
    meter = RateMeter(smoothing_s=5.0)
    meter.observe(0, 0.0)
    assert meter.observe(64, 1.0) == pytest.approx(64)
    assert meter.observe(128, 2.0) == pytest.approx(64)


def test_a_change_enters_with_its_time():
    meter = RateMeter(smoothing_s=5.0)
    meter.observe(0, 0.0)
    meter.observe(100, 10.0)
    kept = math.exp(-2.0 / 5.0)
    weight = 1 - math.exp(-12.0 / 5.0)
    by_hand = ((1 - math.exp(-10.0 / 5.0)) * 10 * kept + 50 * (1 - kept)) / weight
    assert meter.observe(200, 12.0) == pytest.approx(by_hand)


def test_it_does_not_matter_how_often_it_is_looked():
    often, seldom = RateMeter(), RateMeter()
    for meter, step in ((often, 1), (seldom, 10)):
        for tenth in range(0, 101, step):
            meter.observe(3 * tenth, tenth / 10)
    assert often.rate == pytest.approx(seldom.rate) == pytest.approx(30)


def test_a_stream_that_stops_has_no_rate_in_the_end():
    meter = RateMeter(smoothing_s=5.0)
    meter.observe(0, 0.0)
    meter.observe(500, 5.0)
    assert meter.observe(500, 60.0) < 0.01


def test_looks_at_the_same_moment_are_taken_together():
    meter = RateMeter()
    meter.observe(0, 0.0)
    meter.observe(1, 0.001)
    meter.observe(2, 0.002)
    assert meter.rate == 0.0
    assert meter.observe(50, 1.0) == pytest.approx(50)


def test_a_counter_that_falls_begins_anew():
    meter = RateMeter()
    meter.observe(0, 0.0)
    meter.observe(100, 1.0)
    assert meter.observe(3, 2.0) == pytest.approx(100)
    assert meter.observe(103, 3.0) == pytest.approx(100)


@pytest.mark.parametrize("smoothing_s", [0.0, -1.0, math.inf, math.nan])
def test_a_smoothing_that_is_no_time_is_refused(smoothing_s):
    with pytest.raises(ConfigError, match=r"smoothing_s is .*, it must be finite and > 0"):
        RateMeter(smoothing_s)
