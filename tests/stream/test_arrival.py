"""Schedules of arrivals: deadlines of their own, paces that change, and readings that agree."""

import math

import pytest

from aiops.errors import ConfigError
from aiops.stream.arrival import Progress, Stamped, Steady


def steady(rate, *, now=100.0, first=0):
    arrivals = Steady(rate)
    arrivals.start(now, first)
    return arrivals


def test_record_n_is_due_n_plus_one_intervals_after_the_start():
    arrivals = steady(64)
    assert [arrivals.due(n) for n in (0, 63, 6399)] == [100 + 1 / 64, 101.0, 200.0]


def test_no_error_adds_up_over_many_records():
    arrivals = steady(30.0)
    assert arrivals.due(30_000_000 - 1) == pytest.approx(100 + 1_000_000, abs=1e-6)


def test_what_is_due_has_arrived():
    arrivals = steady(30.0)
    for n in range(1000):
        assert arrivals.arrived(arrivals.due(n)) == n + 1
        assert arrivals.arrived(arrivals.due(n) - 0.01) == n


def test_a_start_in_the_middle_goes_on_with_the_next_record():
    arrivals = steady(10, first=7)
    assert arrivals.arrived(100.0) == 7
    assert arrivals.due(7) == pytest.approx(100.1)


def test_a_rate_of_zero_stops_and_another_goes_on():
    arrivals = steady(10)
    arrivals.set_pace(101.0, 0.0)
    assert arrivals.arrived(500.0) == 10
    assert arrivals.due(10) == math.inf
    arrivals.set_pace(500.0, 1000.0)
    assert arrivals.arrived(500.5) == 510
    assert arrivals.due(10) == pytest.approx(500.001)


def test_event_times_remember_the_rate_of_their_time():
    arrivals = steady(10)
    arrivals.set_pace(101.0, 1000.0)
    assert [arrivals.event_time(n) for n in (4, 9, 10, 1009)] == pytest.approx(
        [0.5, 1.0, 1.001, 2.0]
    )


def test_what_is_taken_is_forgotten():
    progress = Progress(0.0, 0.0, 10.0)
    for second in range(1, 5):
        progress.set_pace(float(second), 10.0 * (second + 1))
    # 10, 30, 60, 100 were passed at seconds 1 to 4.
    progress.forget(60.0)
    assert progress.when(99.0) == pytest.approx(3.975)
    assert progress.when(60.0) == 3.0
    assert progress.when(150.0) == pytest.approx(5.0)


def test_stamped_records_arrive_by_their_own_times_only_faster():
    arrivals = Stamped([50.0, 50.0, 110.0, 3650.0], speed=60.0)
    arrivals.start(1000.0, 0)
    assert [arrivals.due(n) for n in range(4)] == [1000.0, 1000.0, 1001.0, 1060.0]
    assert [arrivals.arrived(now) for now in (1000.0, 1000.99, 1001.0, 1060.0)] == [2, 2, 3, 4]
    assert arrivals.event_time(2) == 110.0


def test_a_stamped_start_in_the_middle_begins_with_the_next_record():
    arrivals = Stamped([0.0, 10.0, 40.0], speed=1.0)
    arrivals.start(1000.0, 1)
    assert arrivals.due(1) == 1000.0
    assert arrivals.due(2) == 1030.0


@pytest.mark.parametrize("pace", [-1.0, math.inf, math.nan])
def test_what_is_no_pace_is_refused(pace):
    with pytest.raises(ConfigError, match=r"rate is .*, it must be finite and >= 0"):
        Steady(pace)
    with pytest.raises(ConfigError, match=r"speed is .*, it must be finite and >= 0"):
        Stamped([0.0], pace)
    with pytest.raises(ConfigError, match="rate is"):
        steady(1.0).set_pace(200.0, pace)


@pytest.mark.parametrize(
    ("times", "sentence"),
    [
        ([], "there are no records to replay"),
        ([1.0, 3.0, 2.0], "time stamp 2 is 2.0, the one before it 3.0: sort them first"),
        ([1.0, math.nan], "time stamp 1 is nan"),
    ],
)
def test_times_that_are_not_in_order_are_refused(times, sentence):
    with pytest.raises(ConfigError, match=sentence):
        Stamped(times, 1.0)
