"""When a plan is made, of what, and what is said again where a step was refused; ranks in lockstep."""

import logging

import numpy as np
import pytest

from aiops.collective.control import Control
from aiops.collective.memory import Draft
from aiops.errors import NotFinite
from aiops.policy.exchange import Exchange, Network, Seen, TriedGains
from aiops.policy.trials import trial_densities
from tests.collective.kit import gradients, reduce, reducers

NETWORK = Network(0.05, 1e-6)
N = 4000
GAINS = dict(zip(trial_densities(0.001, 0.1), (0.9, 0.8, 0.7, 0.6, 0.1), strict=True))


def steps(group, first, n, *, bad=()):
    """Train some steps; returns the outcomes of all ranks, step by step, None for a step that was refused."""
    seen = []
    for step in range(first, first + n):
        rows = gradients(len(group), N, step=step)
        if step in bad:
            rows[1, 7] = np.nan
        try:
            seen.append(reduce(group, rows, compute_s=0.01, network=NETWORK)[0])
        except NotFinite:
            seen.append(None)
    return seen


def test_what_is_to_be_tried_is_told_to_all_each_step_until_it_was():
    group = reducers(4, N, density="adaptive_trials")
    seen = steps(group, 0, 8)
    due = [step for step, outcomes in enumerate(seen) if outcomes[0].trials]
    assert due == list(range(due[0], 8))
    for outcomes in seen[due[0] :]:
        for outcome in outcomes:
            assert outcome.trials == outcomes[0].trials
            assert [each.density for each in outcome.trials] == list(GAINS)
            assert outcome.change is None
    for each in group:
        each.tried(GAINS)
    decided, *later = steps(group, 8, 5)
    for outcome, reducer in zip(decided, group, strict=True):
        assert outcome.trials == ()
        assert outcome.change.exchange == reducer.exchange
        assert reducer.exchange == decided[0].change.exchange
    # The knee of these gains: all but nothing is lost down to a ninth, and then much.
    assert 0.001 < group[0].exchange.density < 0.1
    assert not any(outcome.trials or outcome.change for outcomes in later for outcome in outcomes)


def test_a_plan_is_made_of_the_gains_that_were_tried():
    densities = []
    # Much is lost with the last third, or with the first.
    for gains in ((0.9, 0.89, 0.88, 0.87, 0.1), (0.9, 0.1, 0.09, 0.08, 0.07)):
        group = reducers(2, N, density="adaptive_trials")
        steps(group, 0, 6)
        for each in group:
            each.tried(dict(zip(GAINS, gains, strict=True)))
        steps(group, 6, 1)
        densities.append(group[0].exchange.density)
    assert densities[0] < densities[1]


@pytest.mark.parametrize("density", ["adaptive", "fixed:0.01", "gravac:0.001,0.1,0.7,5"])
def test_who_tries_nothing_is_told_nothing(density):
    group = reducers(2, N, density=density)
    assert not any(outcomes[0].trials for outcomes in steps(group, 0, 12))


def test_a_plan_of_a_step_that_was_refused_comes_with_the_next_one():
    # The step in which it decides, were all well.
    planned = reducers(2, N, density="adaptive_knee")
    due = next(i for i, each in enumerate(steps(planned, 0, 12)) if each[0].change is not None)
    group = reducers(2, N, density="adaptive_knee")
    seen = steps(group, 0, due + 2, bad=(due,))
    assert seen[due] is None
    assert seen[due + 1][0].change is not None
    assert group[0].exchange == group[1].exchange == seen[due + 1][0].change.exchange


def test_gains_that_were_tried_outlive_a_step_that_was_refused():
    group = reducers(2, N, density="adaptive_trials")
    steps(group, 0, 6)
    for each in group:
        each.tried(GAINS)
    refused, decided = steps(group, 6, 2, bad=(6,))
    assert refused is None
    assert decided[1].change is not None
    assert decided[1].trials == ()


def test_who_never_tries_trains_on_and_is_told_so_once(caplog):
    group = reducers(2, N, density="adaptive_trials")
    with caplog.at_level(logging.WARNING, "aiops.collective"):
        first = steps(group, 0, 20)
        assert caplog.messages == []
        seen = steps(group, 20, 40)
    (message,) = caplog.messages
    assert "trials have been due for 20 steps and nobody does them" in message
    assert all(outcomes[1].trials for outcomes in seen)
    assert len({str(outcomes[0].exchange) for outcomes in first + seen}) == 1


class Eager:
    """Wants trials after every step."""

    first = Exchange("artopk_ring", 0.1)
    probes = False
    trials = (Exchange("artopk_ring", 0.01),)

    def observe(self, seen):
        return True

    def decide(self, curve):
        return None


def test_who_tries_in_time_is_told_nothing_however_often_it_tries(caplog):
    control = Control(Eager(), ("artopk_ring",))
    draft = Draft(np.ones(3, np.float32), np.empty(0, np.uint32), np.empty(0), 3.0, 0.0)
    for step in range(1, 100):
        control.look(Seen(step, Eager.first, None, 0.0, 0.5))
        assert control.trials == Eager.trials
        if step % 7 == 0:
            control.tried(TriedGains({0.01: 0.5}))
        assert control.decide(draft) is None
    assert caplog.messages == []
