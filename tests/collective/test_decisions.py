"""Decisions in a whole job in lockstep: what the probe finds, who follows, and that costs are the cost model's."""

import numpy as np
import pytest

from aiops.config.exchange import POSITION_BYTES
from aiops.policy.cost import COSTS
from aiops.policy.density import Fixed
from aiops.policy.exchange import Load, Network
from tests.collective.kit import gradients, reduce, reducers

FAST = Network(0.001, 1e-9)
SLOW = Network(0.05, 1e-6)


def train(group, steps, network, *, n=4000, compute_s=0.01):
    """Train some steps; returns the outcomes of rank 0, and checks that all ranks agree."""
    seen = []
    for step in range(steps):
        rows = gradients(len(group), n, step=step)
        outcomes, _ = reduce(group, rows, compute_s=compute_s, network=network)
        assert len({each.exchange for each in group}) == 1
        assert (rows == rows[0]).all()
        seen.append(outcomes[0])
    return seen


@pytest.mark.parametrize(
    "collective",
    [
        "dense_ring", "dense_tree", "dense_direct", "allgather_ring", "allgather_direct", "artopk_ring", "artopk_tree",
        "artopk_direct", "var_ring", "var_direct", "vote_ring", "vote_direct",
    ],
)  # fmt: skip
@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_what_is_sent_costs_what_the_model_says(collective, ranks):
    n = 200_000
    group = reducers(ranks, n, density=0.05, collectives=collective, positions="raw")
    reduce(group, gradients(ranks, n))
    network = Network(0.01, 1e-7)
    (outcome, *_), seconds = reduce(group, gradients(ranks, n, step=1), network=network)
    load = Load(n, ranks, POSITION_BYTES["raw"], 4.0)
    assert seconds == pytest.approx(COSTS[collective](load, network, 0.05), rel=0.02)
    assert seconds == pytest.approx(outcome.seconds)


def test_the_probe_finds_the_network_that_there_is():
    group = reducers(4, 4000, density="adaptive")
    network = train(group, 30, SLOW)[-1].network
    assert network.latency_s == pytest.approx(0.05)
    assert network.byte_s == pytest.approx(1e-6, rel=0.02)


def test_all_ranks_follow_what_rank_0_decides():
    group = reducers(4, 4000, density="adaptive")
    changes = [each.change for each in train(group, 40, SLOW) if each.change is not None]
    assert changes
    assert changes[0].reason
    assert group[3].exchange == changes[-1].exchange


def test_rank_0_logs_what_changes_and_why(caplog):
    caplog.set_level("INFO", "aiops.collective")
    seen = train(reducers(4, 4000, density="adaptive"), 40, SLOW)
    changes = [each for each in seen if each.change is not None]
    assert [record.getMessage() for record in caplog.records] == [
        f"after step {each.step} by {each.change.exchange}: {each.change.reason}"
        for each in changes
    ]


def test_a_link_that_changes_changes_the_exchange():
    group = reducers(4, 40_000, density="adaptive:0.001,0.1,0.1")
    slow = train(group, 60, SLOW, n=40_000)[-1].exchange
    fast = train(group, 150, FAST, n=40_000)[-1].exchange
    assert slow != fast
    assert fast.density > slow.density


def test_a_fixed_density_takes_the_cheapest_collective():
    group = reducers(8, 40_000, density=Fixed(0.01))
    far = train(group, 60, Network(0.1, 1e-9), n=40_000)[-1].exchange
    assert str(far) == "allgather_direct:0.01"


def test_who_has_nothing_to_choose_sends_no_pings():
    group = reducers(2, 100, density=0.1, collectives="artopk_ring")
    outcome = train(group, 3, SLOW, n=100)[-1]
    assert outcome.network is None
    assert np.isfinite(outcome.gain)
