"""Work policies by table."""

from __future__ import annotations

import pytest

from aiops.errors import ConfigError
from aiops.policy.base import Work, WorkerView
from aiops.policy.work import fixed, until_model

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
