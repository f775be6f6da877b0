"""When a plan is made, of what, and what is said again where a step was refused; ranks in lockstep."""

import numpy as np

from aiops.errors import NotFinite
from aiops.policy.exchange import Network
from tests.collective.kit import gradients, reduce, reducers

NETWORK = Network(0.05, 1e-6)
N = 4000


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


def test_a_plan_of_a_step_that_was_refused_comes_with_the_next_one():
    # The step in which it decides, were all well.
    planned = reducers(2, N, density="adaptive_knee")
    due = next(i for i, each in enumerate(steps(planned, 0, 12)) if each[0].change is not None)
    group = reducers(2, N, density="adaptive_knee")
    seen = steps(group, 0, due + 2, bad=(due,))
    assert seen[due] is None
    assert seen[due + 1][0].change is not None
    assert group[0].exchange == group[1].exchange == seen[due + 1][0].change.exchange
