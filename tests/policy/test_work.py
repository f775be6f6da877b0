"""Work policies by table."""

from __future__ import annotations

import pytest

from aiops.errors import ConfigError
from aiops.policy.base import Work, WorkerView
from aiops.policy.work import fixed, fragments, until_model

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
