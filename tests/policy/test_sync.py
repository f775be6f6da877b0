"""Sync policies by table: whose pushes are merged, and who may go on."""

from __future__ import annotations

import pytest

from aiops.errors import ConfigError
from aiops.policy.base import PushView, RoundView
from aiops.policy.sync import asynchronous, buffered, bulk, ssp

A, B, C = 0, 1, 2


def view(held=(), clocks=(), version=3):
    pushes = {
        worker: PushView(
            worker=worker,
            base=version,
            staleness=0,
            n_samples=32,
            n_steps=1,
            loss=0.5,
            arrived=1.0,
        )
        for worker in held
    }
    return RoundView(version=version, held=pushes, clocks=dict(clocks), now=2.0)


ALL = {A: 4, B: 4, C: 3}


@pytest.mark.parametrize(
    ("policy", "held", "clocks", "ready"),
    [
        pytest.param(bulk(), (), ALL, set(), id="bulk waits for the first push"),
        pytest.param(bulk(), (A, B), ALL, set(), id="bulk waits for the straggler"),
        pytest.param(bulk(), (C, A, B), ALL, {A, B, C}, id="bulk closes a full round"),
        pytest.param(bulk(), (A,), {A: 9}, {A}, id="bulk of one worker merges on arrival"),
        pytest.param(bulk(), (), {}, set(), id="bulk of nobody has nothing to merge"),
        pytest.param(bulk(), (A,), {}, {A}, id="bulk merges the push of the last one that left"),
        pytest.param(bulk(), (A, B), {A: 4, C: 3}, set(), id="bulk waits for those who stayed"),
        pytest.param(bulk(), (A, B), {A: 4}, {A, B}, id="bulk merges a push whose sender left"),
        pytest.param(asynchronous(), (), ALL, set(), id="asynchronous has nothing to merge"),
        pytest.param(asynchronous(), (B,), ALL, {B}, id="asynchronous merges on arrival"),
        pytest.param(asynchronous(), (B, A), ALL, {B}, id="asynchronous merges one at a time"),
        pytest.param(ssp(2), (C, A), ALL, {C}, id="ssp merges the first to come"),
        pytest.param(ssp(2), (B,), ALL, {B}, id="ssp merges on arrival"),
        pytest.param(ssp(0), (B,), ALL, {B}, id="ssp merges the push of a worker that must wait"),
        pytest.param(buffered(3), (B, A), ALL, set(), id="buffered waits for more"),
        pytest.param(buffered(2), (B, C, A), ALL, {B, C}, id="buffered merges the oldest"),
        pytest.param(buffered(1), (C, A), ALL, {C}, id="buffered of one merges on arrival"),
    ],
)
def test_ready(policy, held, clocks, ready):
    assert policy.ready(view(held, clocks)) == ready


@pytest.mark.parametrize(
    ("size", "waiting", "taken"), [(1, 0, 0), (1, 1, 1), (3, 2, 0), (3, 3, 3), (3, 7, 3)]
)
def test_a_buffer_is_taken_when_it_is_full(size, waiting, taken):
    (push,) = view((A,)).held.values()
    assert buffered(size).take([push] * waiting) == taken


def test_a_leave_closes_the_round_it_was_holding_up():
    held = (A, B)
    assert bulk().ready(view(held, ALL)) == set()
    assert bulk().ready(view(held, {A: 4, B: 4})) == {A, B}


def test_a_join_opens_the_round_again():
    assert bulk().ready(view((A, B), {A: 4, B: 4})) == {A, B}
    assert bulk().ready(view((A, B), ALL)) == set()


@pytest.mark.parametrize(
    ("policy", "clocks", "may"),
    [
        pytest.param(bulk(), {A: 4, B: 0}, True, id="bulk answers with the closed round"),
        pytest.param(asynchronous(), {A: 99, B: 0}, True, id="asynchronous never waits"),
        pytest.param(buffered(3), {A: 99, B: 0}, True, id="buffered never waits"),
        pytest.param(ssp(0), {A: 1, B: 1}, True, id="ssp of 0 lets equals go on"),
        pytest.param(ssp(0), {A: 1, B: 0}, False, id="ssp of 0 is lock-step"),
        pytest.param(ssp(2), {A: 5, B: 3}, True, id="a lead of the bound is allowed"),
        pytest.param(ssp(2), {A: 6, B: 3}, False, id="a lead beyond the bound is not"),
        pytest.param(ssp(2), {A: 6, B: 4, C: 3}, False, id="the slowest counts"),
        pytest.param(ssp(2), {A: 3, B: 9}, True, id="the slowest may always go on"),
        pytest.param(ssp(2), {A: 6}, True, id="a worker alone may go on"),
        pytest.param(ssp(2), {B: 6}, True, id="a worker that left is not held back"),
    ],
)
def test_may_proceed(policy, clocks, may):
    assert policy.may_proceed(A, view(clocks=clocks)) is may


def test_ssp_wakes_the_fast_worker_when_the_slow_one_leaves():
    assert not ssp(2).may_proceed(A, view(clocks={A: 6, B: 5, C: 3}))
    assert ssp(2).may_proceed(A, view(clocks={A: 6, B: 5}))


@pytest.mark.parametrize("bound", [0, 1, 3])
def test_ssp_never_lets_a_clock_run_further_ahead_than_the_bound_plus_one(bound):
    clocks = {A: 0, B: 0, C: 0}
    for turn in range(60):
        # Worker A tries each turn, B each second, C each seventh.
        for worker in (A, B, C):
            due = turn % {A: 1, B: 2, C: 7}[worker] == 0
            if due and ssp(bound).may_proceed(worker, view(clocks=clocks)):
                clocks[worker] += 1
        assert max(clocks.values()) - min(clocks.values()) <= bound + 1
    assert clocks[C] >= 8


def test_staleness_limits():
    assert bulk().max_staleness == 1
    assert bulk(max_staleness=0).max_staleness == 0
    assert bulk(max_staleness=None).max_staleness is None
    assert asynchronous().max_staleness is None
    assert ssp(1).max_staleness is None


@pytest.mark.parametrize("bad", [-1, 1.5, True, "2", float("nan")])
def test_limits_are_whole_and_not_negative(bad):
    with pytest.raises(ConfigError, match="it must be a whole number >= 0"):
        ssp(bad)
    with pytest.raises(ConfigError, match="it must be a whole number >= 0"):
        bulk(max_staleness=bad)
    with pytest.raises(ConfigError, match="it must be a whole number >= 0"):
        buffered(3, bad)


@pytest.mark.parametrize("bad", [0, -1, 1.5, True, "2"])
def test_a_buffer_holds_a_push_at_least(bad):
    with pytest.raises(ConfigError, match=r"buffered's size is .* whole number >= 1"):
        buffered(bad)
