"""NBSync's state machine by itself: what is pushed, and where computing goes on."""

import math

import numpy as np
import pytest

from aiops.errors import ConfigError
from aiops.worker.machine import Move, Overlap, Rule
from aiops.worker.ticket import Snapshot


def vector(*values):
    return np.array(values, np.float32)


def machine(x, rule=None, **steps):
    return Overlap(x, 0, rule or Rule(), **steps)


def arrive(overlap, version, flat, *, n_merged=2, merged=True, **more):
    overlap.deliver(Snapshot(version, flat, n_merged=n_merged, **more), merged=merged)


def test_the_first_push_comes_after_min_steps_and_the_next_when_the_model_is_there():
    x = vector(0.0)
    overlap = machine(x, min_steps=2)
    assert overlap.stepped() is Move.COMPUTE
    assert overlap.stepped() is Move.PUSH
    overlap.push(x)
    assert [overlap.stepped() for _ in range(50)] == [Move.COMPUTE] * 50
    arrive(overlap, 1, vector(7.0), min_steps=2)
    assert overlap.stepped() is Move.PUSH


def test_a_model_that_comes_before_min_steps_waits_for_them():
    x = vector(0.0)
    overlap = machine(x, min_steps=3)
    for _ in range(3):
        overlap.stepped()
    overlap.push(x)
    arrive(overlap, 1, vector(7.0), min_steps=3)
    assert [overlap.stepped() for _ in range(3)] == [Move.COMPUTE, Move.COMPUTE, Move.PUSH]


def test_a_worker_waits_at_max_steps_and_not_before():
    x = vector(0.0)
    overlap = machine(x, max_steps=3)
    overlap.stepped()
    overlap.push(x)
    assert [overlap.stepped() for _ in range(3)] == [Move.COMPUTE, Move.COMPUTE, Move.WAIT]


@pytest.mark.parametrize(
    ("rule", "x_after"),
    [
        pytest.param(Rule("reset"), 10.0, id="reset drops the progress"),
        pytest.param(Rule("carry"), 14.0, id="carry keeps it"),
        pytest.param(Rule("eager"), 12.0, id="eager keeps one share of two"),
        pytest.param(Rule("partial", beta=0.25), 11.0, id="partial keeps beta of it"),
        pytest.param(Rule("partial", beta=0.0), 10.0, id="partial 0 is reset"),
        pytest.param(Rule("partial", beta=1.0), 14.0, id="partial 1 is carry"),
        pytest.param(Rule("mix", alpha=0.5), 7.5, id="mix averages the models"),
        pytest.param(Rule("mix", alpha=0.0), 10.0, id="mix 0 is the global model"),
    ],
)
def test_a_merge_rule_decides_where_computing_goes_on_and_the_whole_progress_is_pushed(
    rule, x_after
):
    x = vector(0.0)
    overlap = machine(x, rule)
    x += 1
    overlap.stepped()
    assert overlap.push(x).values == vector(1.0)
    x += 4
    overlap.stepped(n_samples=8, loss=0.5)
    arrive(overlap, 1, vector(10.0))
    update = overlap.push(x)
    assert update.values == vector(4.0)
    assert (update.base, update.n_steps, update.n_samples, update.loss) == (0, 1, 8, 0.5)
    assert x == vector(x_after)
    # The next progress is counted from where computing goes on.
    x += 2
    overlap.stepped()
    arrive(overlap, 2, vector(20.0))
    assert overlap.push(x).values == vector(2.0)


def test_a_push_names_the_version_its_phase_started_from():
    x = vector(0.0)
    overlap = machine(x)
    bases = []
    for version in range(1, 5):
        overlap.stepped()
        bases.append(overlap.push(x).base)
        arrive(overlap, version, vector(float(version)))
    assert bases == [0, 0, 1, 2]


def test_the_authors_bootstrap_pushes_the_first_steps_twice():
    x = vector(0.0)
    overlap = machine(x, Rule(bootstrap="authors"))
    x += 1
    overlap.stepped()
    overlap.push(x)
    x += 2
    overlap.stepped()
    arrive(overlap, 1, vector(0.0))
    assert overlap.push(x).values == vector(3.0)


def test_a_worker_whose_push_came_too_late_begins_anew_from_the_model():
    x = vector(0.0)
    overlap = machine(x)
    x += 1
    overlap.stepped()
    overlap.push(x)
    x += 5
    overlap.stepped()
    arrive(overlap, 9, vector(3.0), merged=False)
    assert overlap.push(x) is None
    assert (x, overlap.version, overlap.n_steps, overlap.restarts) == (vector(3.0), 9, 0, 1)
    x += 2
    assert overlap.stepped() is Move.PUSH
    update = overlap.push(x)
    assert (update.values, update.base) == (vector(2.0), 9)


def test_a_loss_that_nobody_told_is_nan():
    overlap = machine(vector(0.0))
    overlap.stepped()
    assert math.isnan(overlap.push(vector(1.0)).loss)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"merge": "rest"}, "merge is 'rest', known are reset, carry, eager, mix, partial"),
        ({"bootstrap": "x"}, "bootstrap is 'x', known are fixed, authors"),
        ({"alpha": 1.0}, r"alpha of merge 'mix' is 1.0, it must be in \[0, 1\)"),
        ({"beta": 1.5}, r"beta of merge 'partial' is 1.5, it must be in \[0, 1\]"),
    ],
)
def test_a_senseless_rule_is_refused(options, message):
    with pytest.raises(ConfigError, match=message):
        Rule(**options)


@pytest.mark.parametrize("merge", ["reset", "carry", "partial", "mix"])
def test_of_a_statistic_its_distance_to_the_model_is_pushed(merge):
    # Value 0 is learned, value 1 is a running statistic.
    x = vector(0.0, 5.0)
    overlap = machine(x, Rule(merge), accumulated=1)
    x += vector(1.0, 1.0)
    overlap.stepped()
    np.testing.assert_array_equal(overlap.push(x).values, vector(1.0, 1.0))
    x += vector(2.0, 0.5)
    overlap.stepped()
    arrive(overlap, 1, vector(10.0, 6.25))
    # What is merged into 6.25 makes it this worker's 6.5.
    np.testing.assert_array_equal(overlap.push(x).values, vector(2.0, 0.25))


def test_eager_is_the_published_outer_step_of_each_worker():
    """Each worker's model takes its fresh share, and the mean of the last round without its own stale share.

    Eager updates (Kale et al., 2025): D_i(t) = d_i(t) / N + (mean d(t-1) - d_i(t-1) / N), with outer SGD of rate 1
    theta_i(t+1) = theta_i(t) + D_i(t), and d_i(t) is what worker i did since theta_i(t). By hand, for two workers:
    d(0) = (4, 8), theta(1) = (2, 4); d(1) = (2, 6), theta(2) = (2 + 1 + 6 - 2, 4 + 3 + 6 - 4) = (7, 9);
    d(2) = (-2, 4), theta(3) = (7 - 1 + 4 - 1, 9 + 2 + 4 - 3) = (9, 12).
    """
    done = [(4.0, 8.0), (2.0, 6.0), (-2.0, 4.0)]
    starts = [(2.0, 4.0), (7.0, 9.0), (9.0, 12.0)]
    models = [vector(0.0), vector(6.0), vector(10.0)]
    xs = [vector(0.0), vector(0.0)]
    workers = [machine(x, Rule("eager")) for x in xs]
    # The outer model of time 0 is a model that arrives before anything is pushed.
    for overlap in workers:
        overlap.deliver(Snapshot(0, models[0], n_merged=2))
    for t, changes in enumerate(done):
        for i, change in enumerate(changes):
            xs[i] += change
            workers[i].stepped()
            if t:
                arrive(workers[i], t, models[t])
            assert workers[i].push(xs[i]).values == vector(change)
            assert xs[i] == vector(starts[t][i])
