"""ESync's state server against numbers worked out by hand, and against the paper's rule asked step by step."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiops.policy.base import Progress, QueriedWork, Work, WorkerView
from aiops.policy.esync import MOST_STEPS, esync, esync_prototype
from aiops.policy.work import fixed, until_model

FAST, SLOW, THIRD = 0, 1, 2


def told(table, worker, at, n_steps=0, *, step_s=0.0, version=0, **rest):
    table.record(worker, Progress(version, n_steps, at, step_s=step_s, **rest))


def known(policy, **step_s):
    """A state server in round 1, which everybody of FAST, SLOW and THIRD in ``step_s`` has been timed for."""
    table, names = policy.table(), {"fast": FAST, "slow": SLOW, "third": THIRD}
    for name, took in step_s.items():
        told(table, names[name], 0.0, 1, step_s=took)
    table.reset(1, 10.0, {names[name] for name in step_s})
    return table


def pushing(table, worker, push_s, *, version=0):
    """Have a worker push for so long, in the round before."""
    told(table, worker, 5.0, 1, version=version, stopped=True)
    table.pushed(worker, 5.0 + push_s)


@pytest.mark.parametrize(
    ("fast_at", "fast_did", "more"),
    [
        # The straggler began at 10 and needs 0.08: its end is 10.08.
        pytest.param(10.0, 0, 4, id="four times 0.02 fit exactly, equality is train"),
        pytest.param(10.02, 1, 3, id="three are left after one"),
        pytest.param(10.06, 3, 1, id="one is left, exactly"),
        pytest.param(10.0601, 3, 0, id="a tenth of a millisecond too late"),
        pytest.param(10.08, 4, 0, id="the straggler's end"),
        pytest.param(10.5, 9, 0, id="long after it"),
        pytest.param(10.5, 0, 1, id="who has done none takes one"),
        pytest.param(9.97, 0, 5, id="who began earlier has time for more"),
    ],
)
def test_as_many_steps_as_fit(fast_at, fast_did, more):
    table = known(esync(), fast=0.02, slow=0.08)
    told(table, SLOW, 10.0, version=1)
    told(table, FAST, fast_at, fast_did, version=1)
    assert table.straggler() == SLOW
    assert table.decide(FAST) == more


def test_the_straggler_takes_one_step_and_then_synchronizes():
    table = known(esync(), fast=0.02, slow=0.08)
    told(table, SLOW, 10.0, version=1)
    assert table.decide(SLOW) == 1
    told(table, SLOW, 10.08, 1, step_s=0.08, version=1)
    assert table.decide(SLOW) == 0


def test_tau_steps_of_the_straggler_and_the_others_fill_the_same_time():
    table = known(esync(4), fast=0.03, slow=0.08)
    told(table, SLOW, 10.0, version=1)
    told(table, FAST, 10.0, version=1)
    # 4 * 0.08 = 0.32, and 10 * 0.03 <= 0.32.
    assert (table.decide(SLOW), table.decide(FAST)) == (4, 10)
    # One step of the straggler took 0.1: it has 3 more of those from 10.1 on, until 10.4.
    told(table, SLOW, 10.1, 1, step_s=0.1, version=1)
    told(table, FAST, 10.09, 3, version=1)
    assert (table.decide(SLOW), table.decide(FAST)) == (3, 10)


def test_push_times_count_on_both_sides():
    table = esync().table()
    told(table, FAST, 0.0, 1, step_s=0.02)
    told(table, SLOW, 0.0, 1, step_s=0.08)
    pushing(table, FAST, 0.3)
    pushing(table, SLOW, 0.5)
    table.reset(1, 10.0, {FAST, SLOW})
    told(table, SLOW, 10.0, version=1)
    told(table, FAST, 10.0, version=1)
    # (0.08 + 0.5 - 0.3) / 0.02 = 14.
    assert table.decide(FAST) == table.foresee(FAST) == 14
    # It still holds while the straggler's push is on its way, which began at 10.08 and will be there at 10.58.
    told(table, SLOW, 10.08, 1, version=1, stopped=True)
    told(table, FAST, 10.2, 10, version=1)
    assert table.decide(FAST) == 4
    # And no longer once it is there.
    table.pushed(SLOW, 10.4)
    assert table.decide(FAST) == 0


def test_who_pushes_longest_is_the_straggler_even_if_it_computes_faster():
    table = esync().table()
    told(table, FAST, 0.0, 1, step_s=0.02)
    told(table, SLOW, 0.0, 1, step_s=0.08)
    pushing(table, FAST, 0.5)
    pushing(table, SLOW, 0.1)
    table.reset(1, 10.0, {FAST, SLOW})
    # d: 0.52 and 0.18; (0.52 - 0.1) / 0.08 = 5.25.
    assert table.straggler() == FAST
    told(table, FAST, 10.0, version=1)
    told(table, SLOW, 10.0, version=1)
    assert (table.decide(FAST), table.decide(SLOW)) == (1, 5)


def test_half_of_a_round_trip_stands_for_a_push_that_was_never_timed():
    table = known(esync(), fast=0.02, slow=0.08)
    told(table, SLOW, 10.0, version=1, rtt_s=0.2)
    told(table, FAST, 10.0, version=1, rtt_s=0.08)
    # (0.08 + 0.1 - 0.04) / 0.02 = 7.
    assert table.decide(FAST) == 7


def test_a_push_that_was_held_up_once_does_not_count_and_a_slower_line_does():
    table = known(esync(), fast=0.02, slow=0.08)
    for version, (push_s, straggler) in enumerate(
        [(0.01, SLOW), (9.0, SLOW), (0.02, SLOW), (0.1, SLOW), (0.2, FAST), (0.01, SLOW)], 1
    ):
        pushing(table, FAST, push_s, version=version)
        table.reset(version + 1, 10.0 * version, {FAST, SLOW})
        # d of the slow one is 0.08; the fast one's is 0.02 and the shorter one of its last two pushes.
        assert table.straggler() == straggler


@pytest.mark.parametrize(
    ("eps", "more"),
    [
        pytest.param(0.0, 4, id="without a reserve as the paper without push times"),
        pytest.param(0.01, 3, id="3 * 0.02 + 0.01 <= 0.08"),
        pytest.param(0.02, 3, id="3 * 0.02 + 0.02 <= 0.08, exactly"),
        pytest.param(0.03, 2, id="2 * 0.02 + 0.03 <= 0.08"),
        pytest.param(0.5, 1, id="the default is too long for such steps: one is the least"),
    ],
)
def test_the_prototype_knows_no_push_times_and_keeps_a_reserve(eps, more):
    table = esync_prototype(1, eps).table()
    told(table, FAST, 0.0, 1, step_s=0.02)
    told(table, SLOW, 0.0, 1, step_s=0.08)
    pushing(table, FAST, 0.3)
    pushing(table, SLOW, 0.9)
    table.reset(1, 10.0, {FAST, SLOW})
    told(table, SLOW, 10.0, version=1)
    told(table, FAST, 10.0, version=1)
    assert table.decide(FAST) == more
    # Once the straggler has done its step there is no time left in its push.
    told(table, SLOW, 10.08, 1, version=1, stopped=True)
    told(table, FAST, 10.08, more, version=1)
    assert table.decide(FAST) == 0


def test_step_times_are_smoothed_but_the_stragglers_last_one_counts():
    table = known(esync(), fast=0.02, slow=0.08)
    told(table, SLOW, 10.16, 1, step_s=0.16, version=1)
    told(table, FAST, 10.04, 1, step_s=0.04, version=1)
    table.reset(2, 20.0, {FAST, SLOW})
    told(table, SLOW, 20.0, version=2)
    told(table, FAST, 20.0, version=2)
    # c_fast = 0.03; T = 20.16: 5 * 0.03 <= 0.16.
    assert table.decide(FAST) == 5


def test_a_slow_down_makes_another_straggler():
    table = known(esync(), fast=0.02, slow=0.08)
    told(table, FAST, 10.2, 1, step_s=0.2, version=1)
    # 0.02 + (0.2 - 0.02) / 2 = 0.11.
    assert table.straggler() == FAST
    assert table.decide(FAST) == 0


def test_until_the_straggler_begins_the_round_everybody_trains():
    table = known(esync(), fast=0.02, slow=0.08)
    told(table, FAST, 10.0, 30, version=1)
    assert not table.decidable
    assert table.decide(FAST) is None
    told(table, SLOW, 10.7, version=1)
    assert table.decidable
    # From 10.0 until 10.78.
    assert table.decide(FAST) == 39


def test_without_a_timed_step_there_is_no_straggler():
    table = esync().table()
    assert (table.straggler(), table.decidable) == (None, False)
    for worker in (FAST, SLOW):
        told(table, worker, 0.0)
        assert table.decide(worker) is None
        assert not table.is_timed(worker)
        assert table.foresee(worker) is None
    assert table.straggler() is None


def test_a_first_step_that_is_under_way_may_be_the_longest():
    table = esync().table()
    for worker in (FAST, SLOW):
        told(table, worker, 0.0)
    told(table, FAST, 0.02, 1, step_s=0.02)
    assert table.is_timed(FAST)
    assert table.straggler() is None
    assert table.decide(FAST) is None
    told(table, SLOW, 0.08, 1, step_s=0.08)
    assert (table.straggler(), table.decide(SLOW)) == (SLOW, 0)
    # Nothing is left of the straggler's time, counted from 0.02: until 0.08.
    assert table.decide(FAST) == 3


def test_a_push_of_a_worker_that_was_never_timed_holds_nobody_up():
    table = esync().table()
    for worker in (FAST, SLOW):
        told(table, worker, 0.0)
    told(table, FAST, 0.02, 1, step_s=0.02)
    table.pushed(SLOW, 0.05)
    assert (table.straggler(), table.decide(FAST)) == (FAST, 0)


def test_who_is_gone_is_not_the_straggler():
    table = known(esync(), fast=0.02, slow=0.08, third=0.04)
    told(table, FAST, 10.0, version=1)
    told(table, THIRD, 10.0, version=1)
    assert table.decide(FAST) is None
    table.drop(SLOW)
    assert table.straggler() == THIRD
    assert (table.decide(FAST), table.decide(THIRD)) == (2, 1)
    table.drop(SLOW)
    table.pushed(SLOW, 11.0)


def test_who_is_not_waited_for_is_not_the_straggler():
    table = known(esync(), fast=0.02, slow=0.08)
    told(table, FAST, 10.0, version=1)
    told(table, SLOW, 10.0, version=1, waited_for=False)
    assert table.straggler() == FAST
    # It still hears how it could be in time.
    assert table.decide(SLOW) == 1
    told(table, SLOW, 10.05, 1, version=1, waited_for=False)
    assert table.decide(SLOW) == 0
    table.reset(2, 20.0, {FAST, SLOW})
    assert table.straggler() == SLOW


def test_who_missed_the_end_of_its_round_synchronizes_after_one_step():
    table = known(esync(), fast=0.02, slow=0.08)
    told(table, FAST, 11.0, 0, version=0)
    assert table.decide(FAST) == 1
    told(table, FAST, 11.02, 7, version=0)
    assert table.decide(FAST) == 0


def test_a_reset_clears_steps_and_pushes():
    table = known(esync(), fast=0.02, slow=0.08)
    told(table, SLOW, 10.0, version=1)
    told(table, SLOW, 10.08, 1, version=1, stopped=True)
    table.pushed(SLOW, 10.1)
    told(table, FAST, 10.0, 2, version=1)
    assert table.decide(FAST) == 0
    table.reset(2, 20.0, {FAST, SLOW})
    told(table, FAST, 20.0, version=2)
    assert table.decide(FAST) is None


def test_what_is_foreseen_knows_who_begins_late():
    table = known(esync(), fast=0.02, slow=0.08)
    assert (table.foresee(SLOW), table.foresee(FAST)) == (1, 4)
    # The slow one got the model 0.2 after the close, the fast one 0.1.
    told(table, SLOW, 10.2, version=1)
    told(table, FAST, 10.1, version=1)
    table.reset(2, 20.0, {FAST, SLOW})
    # (0.2 + 0.08 - 0.1) / 0.02.
    assert (table.foresee(SLOW), table.foresee(FAST)) == (1, 9)
    assert table.foresee(THIRD) is None


@pytest.mark.parametrize("step_s", [0.0, -1.0, float("nan"), float("inf")])
def test_a_time_that_is_none_counts_as_very_short(step_s):
    table = known(esync(), slow=0.08)
    told(table, SLOW, 10.0, version=1)
    told(table, FAST, 10.0, 3, step_s=step_s, version=1)
    assert table.is_timed(FAST)
    assert table.straggler() == SLOW
    assert table.decide(FAST) == MOST_STEPS


def test_no_number_over_the_wire_breaks_the_arithmetic():
    table = known(esync(9), fast=5e-324, slow=1.7e308)
    told(table, SLOW, 10.0, version=1)
    told(table, FAST, 10.0, version=1)
    assert table.straggler() == SLOW
    assert (table.decide(FAST), table.decide(SLOW)) == (MOST_STEPS, 9)
    assert table.foresee(FAST) == MOST_STEPS


def test_the_work_itself_is_blocking_and_asked():
    policy = esync(3)
    assert policy.overlap is False
    view = WorkerView(clock=1, step_s=0.1, sync_s=1.0)
    assert policy.plan({4: view}) == {4: Work(1, None)}
    assert isinstance(policy, QueriedWork)
    assert not isinstance(fixed(1), QueriedWork)
    assert not isinstance(until_model(), QueriedWork)
    assert policy.table() is not policy.table()


# In whole milliseconds and 1/8 of them, which are exact, so that nothing is a matter of rounding.
millis = st.integers(1, 400).map(lambda n: n / 8)


@given(
    step_s=st.lists(millis, min_size=2, max_size=6),
    push_s=st.lists(millis, min_size=6, max_size=6),
    begin=st.lists(st.integers(0, 200), min_size=6, max_size=6),
    tau=st.integers(1, 5),
)
def test_counting_ahead_is_the_rule_asked_step_by_step(step_s, push_s, begin, tau):
    workers = range(len(step_s))
    table = esync(tau).table()
    for k in workers:
        told(table, k, 0.0, 1, step_s=step_s[k])
        told(table, k, 0.0, 1, stopped=True)
        table.pushed(k, push_s[k])
    table.reset(1, 1000.0, set(workers))
    for k in workers:
        told(table, k, 1000.0 + begin[k], version=1)
    takes = [tau * step_s[k] + push_s[k] for k in workers]
    s = takes.index(max(takes))
    assert table.straggler() == s
    end = 1000.0 + begin[s] + takes[s]
    for k in set(workers) - {s}:
        now, i = 1000.0 + begin[k], 0
        # The paper's answer before every step: SYNC or one step more.
        while i == 0 or now + step_s[k] + push_s[k] <= end:
            now, i = now + step_s[k], i + 1
        assert table.decide(k) == i
        # Asked again on the way, it says the same.
        told(table, k, 1000.0 + begin[k] + step_s[k], 1, version=1)
        assert table.decide(k) == i - 1
    assert table.decide(s) == tau
