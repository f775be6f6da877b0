"""Work policies by table."""

from __future__ import annotations

import math

import pytest

from aiops.errors import ConfigError
from aiops.policy.base import Work, WorkerView
from aiops.policy.work import MOST_STEPS, fill_the_sync, fixed, fragments, until_model

FAST_AND_SLOW = {
    0: WorkerView(clock=40, step_s=0.1, sync_s=2.0),
    1: WorkerView(clock=4, step_s=1.0, sync_s=2.0),
}


@pytest.mark.parametrize(
    ("policy", "work", "overlap"),
    [
        pytest.param(fixed(1), Work(1, 1), False, id="synchronous sgd"),
        pytest.param(fixed(10), Work(10, 10), False, id="fedavg"),
        pytest.param(until_model(), Work(1, None), True, id="nbsync"),
        pytest.param(until_model(2, 50), Work(2, 50), True, id="nbsync with limits"),
        pytest.param(until_model(3, 3), Work(3, 3), True, id="overlapped rounds of fixed length"),
        pytest.param(fragments(4, 100, 5), Work(25, None), True, id="streaming diloco"),
    ],
)
def test_plan(policy, work, overlap):
    assert policy.plan(FAST_AND_SLOW) == {0: work, 1: work}
    assert policy.plan({}) == {}
    assert policy.overlap is overlap


@pytest.mark.parametrize("bad", [0, -1, 2.0, True, "5"])
def test_steps_are_whole_and_positive(bad):
    for make in (fixed, until_model):
        with pytest.raises(ConfigError, match="it must be a whole number >= 1"):
            make(bad)


@pytest.mark.parametrize("bad", [4, 0, 7.5, False])
def test_max_steps_is_not_below_min_steps(bad):
    with pytest.raises(ConfigError, match=f"max_steps is {bad}, .* >= min_steps = 5"):
        until_model(5, bad)


def measured(*times):
    return {
        worker: WorkerView(clock=0, step_s=step_s, sync_s=99.0, link_s=link_s)
        for worker, (step_s, link_s) in enumerate(times)
    }


@pytest.mark.parametrize(
    ("policy", "times", "steps"),
    [
        # L = 3 s, the longest link time: 3 / 0.1, 3 / 0.4, 3 / 1.
        pytest.param(fill_the_sync(), [(0.1, 1.0), (0.4, 3.0), (1.0, 2.0)], [30, 8, 3], id="link"),
        # L = 8 * 0.1 s; the slower one makes 0.8 / 0.3 = 2.67.
        pytest.param(fill_the_sync(), [(0.1, 0.2), (0.3, 0.1)], [8, 3], id="floor"),
        pytest.param(fill_the_sync(20), [(0.1, 0.2), (0.3, 0.1)], [20, 7], id="another floor"),
        # L = 2 s, one step of the slowest.
        pytest.param(fill_the_sync(), [(0.1, 0.2), (2.0, 0.1)], [20, 1], id="the slowest"),
        # Who is faster than its share rounds up, who is slower down, and nobody makes none.
        pytest.param(fill_the_sync(1), [(1.0, 1.6), (1.2, 0.1), (1.6, 0.1)], [2, 1, 1], id="round"),
        pytest.param(fill_the_sync(4, 12), [(0.1, 3.0), (0.5, 1.0)], [12, 6], id="cap"),
        pytest.param(fill_the_sync(), [(0.1, 0.0), (0.4, 0.0)], [1, 1], id="no link measured"),
        pytest.param(fill_the_sync(), [(0.0, 0.0)], [1], id="nothing measured"),
        pytest.param(fill_the_sync(), [(0.0, 2.0), (0.5, 2.0)], [1, 8], id="one not measured"),
        pytest.param(fill_the_sync(), [(0.1, 0.0), (0.5, 2.0)], [20, 4], id="one link measured"),
    ],
)
def test_rounds_that_everybody_fills(policy, times, steps):
    plan = policy.plan(measured(*times))
    assert [plan[worker].min_steps for worker in range(len(times))] == steps
    assert {work.max_steps for work in plan.values()} == {policy.cap}
    assert policy.overlap is True
    assert policy.plan({}) == {}


@pytest.mark.parametrize("absurd", [math.nan, math.inf, -1.0, 5e-324, 1e308])
def test_no_measured_time_breaks_a_plan(absurd):
    for times in [(absurd, absurd), (absurd, 1.0), (1.0, absurd)]:
        for work in fill_the_sync().plan(measured(times, (0.5, 2.0))).values():
            assert 1 <= work.min_steps <= MOST_STEPS


@pytest.mark.parametrize("bad", [0, -1, 2.0, True])
def test_the_floor_and_the_cap_are_whole_and_in_order(bad):
    with pytest.raises(ConfigError, match=r"fill_the_sync's floor is .* whole number >= 1"):
        fill_the_sync(bad)
    with pytest.raises(ConfigError, match=r"fill_the_sync's cap is .* >= floor = 8"):
        fill_the_sync(8, bad)
    with pytest.raises(ConfigError, match="cap is 7, it must be a whole number >= floor = 8"):
        fill_the_sync(8, 7)


@pytest.mark.parametrize(
    ("count", "steps", "delay", "message"),
    [
        (0, 4, 1, "fragments' count is 0, it must be a whole number >= 1"),
        (2, 4.0, 1, "fragments' steps is 4.0, it must be a whole number >= 1"),
        (3, 100, 5, "fragments' steps are 100, they must be a multiple of the 3 fragments"),
        (4, 100, 25, "fragments' delay is 25, it must be .* less than the 25 between two pushes"),
        (4, 100, -1, "fragments' delay is -1"),
        (4, 100, 1.5, "fragments' delay is 1.5"),
    ],
)
def test_fragments_take_turns_within_their_steps(count, steps, delay, message):
    with pytest.raises(ConfigError, match=message):
        fragments(count, steps, delay)
    assert fragments(4, 100, 24).plan(FAST_AND_SLOW)[1] == Work(25, None)
    assert fragments(1, 1, 0).overlap
