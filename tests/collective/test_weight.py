"""Gradients that count by their samples: nothing is lost, nobody differs, and nobody has to have any."""

import numpy as np
import pytest
import torch

from aiops.collective.learning_rate import scaled_learning_rate
from aiops.errors import ConfigError, NotFinite
from aiops.policy.learning_rate import LearningRate
from aiops.sim.ranks import converse
from tests.collective.kit import RANKS, gradients, reduce, reducers
from tests.collective.test_reducer import SPARSE, residuals


def streams(ranks, step):
    """What a second brings each rank: other batches each step, and every rank's stream stops at times."""
    batches = np.random.default_rng([7, step]).integers(8, 1024, ranks)
    batches[step % ranks] *= step % 2
    return batches.tolist()


def weigh(group, rows, batches):
    return converse(
        [each.reduce(row, samples=b) for each, row, b in zip(group, rows, batches, strict=True)]
    )


def shares(batches):
    total = sum(batches)
    return np.array([np.float32(b / total if total else 0) for b in batches])[:, None]


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("collective", [*SPARSE, "dense_ring"])
@pytest.mark.parametrize("values", ["fp32", "bf16", "fp16", "int8"])
def test_what_is_sent_and_what_is_left_are_the_weighted_gradients(ranks, collective, values):
    group = reducers(
        ranks, 1000, density=0.05, collectives=collective, values=values, weights="by_samples"
    )
    given, sent = np.zeros(1000), np.zeros(1000)
    for step in range(2 * ranks + 2):
        rows, batches = gradients(ranks, 1000, step=step), streams(ranks, step)
        given += (rows.astype(np.float64) * shares(batches)).sum(axis=0)
        outcomes, _ = weigh(group, rows, batches)
        assert (rows == rows[0]).all()
        assert [each.samples for each in outcomes] == [tuple(batches)] * ranks
        sent += rows[0]
    scale = np.abs(given).max()
    np.testing.assert_allclose(sent + residuals(group), given, rtol=0, atol=3e-6 * scale)


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("collective", ["dense_ring", "dense_tree", "dense_direct", "artopk_ring"])
def test_all_that_is_sent_is_the_weighted_sum_to_the_bit(ranks, collective):
    group = reducers(ranks, 500, density=1.0, collectives=collective, weights="by_samples")
    rows, batches = gradients(ranks, 500), [3 * rank + 1 for rank in range(ranks)]
    # Added in the order of the ranks, as the kit does.
    wanted = np.zeros(500, np.float32)
    for row in rows * shares(batches):
        wanted += row
    weigh(group, rows, batches)
    np.testing.assert_array_equal(rows, np.broadcast_to(wanted, rows.shape))


def test_equal_batches_are_the_mean():
    ours = reducers(4, 500, density=0.1, collectives="artopk_ring", weights="by_samples")
    plain = reducers(4, 500, density=0.1, collectives="artopk_ring")
    for step in range(5):
        rows, other = gradients(4, 500, step=step), gradients(4, 500, step=step)
        weigh(ours, rows, [64] * 4)
        reduce(plain, other)
        # A quarter is exact before the sum as after it.
        np.testing.assert_array_equal(rows, other)


@pytest.mark.parametrize("collective", [*SPARSE, "dense_ring"])
@pytest.mark.parametrize("momentum", [0.0, 0.5])
def test_a_rank_without_samples_is_not_looked_at_and_sends_what_it_had_left(collective, momentum):
    told = {"density": 0.05, "collectives": collective, "weights": "by_samples"}
    ours, theirs = (reducers(3, 200, momentum=momentum, **told) for _ in range(2))
    for group in (ours, theirs):
        weigh(group, gradients(3, 200), [5, 6, 7])
    rows, other = gradients(3, 200, step=1), gradients(3, 200, step=1)
    # The mean over no samples.
    rows[1], other[1] = np.nan, 0.0
    before = residuals(ours)
    weigh(ours, rows, [10, 0, 30])
    weigh(theirs, other, [10, 0, 30])
    np.testing.assert_array_equal(rows, other)
    if not momentum:
        fresh = gradients(3, 200, step=1)
        given = 0.25 * fresh[0].astype(np.float64) + 0.75 * fresh[2]
        np.testing.assert_allclose(rows[0] + residuals(ours), before + given, atol=1e-4)


def test_a_step_in_which_nobody_has_samples_sends_what_was_left():
    group = reducers(2, 100, density=0.1, collectives="allgather_ring", weights="by_samples")
    weigh(group, gradients(2, 100), [1, 1])
    before = residuals(group)
    rows = np.full((2, 100), np.nan, np.float32)
    (outcome, _), _ = weigh(group, rows, [0, 0])
    assert sum(outcome.samples) == 0
    assert np.count_nonzero(rows[0])
    np.testing.assert_allclose(rows[0] + residuals(group), before, atol=1e-5)


@pytest.mark.parametrize("collective", ["allgather_ring", "artopk_ring", "dense_ring"])
def test_a_gradient_that_is_not_finite_leaves_no_trace(collective):
    told = {"density": 0.05, "collectives": collective, "weights": "by_samples"}
    group, fresh = reducers(3, 200, **told), reducers(3, 200, **told)
    rows = gradients(3, 200)
    rows[1, 17] = np.nan
    kept = rows.copy()
    with pytest.raises(NotFinite, match="gradient of rank 1 is not finite"):
        weigh(group, rows, [3, 4, 5])
    np.testing.assert_array_equal(rows, kept)
    ours, theirs = gradients(3, 200, step=1), gradients(3, 200, step=1)
    weigh(group, ours, [1, 2, 3])
    weigh(fresh, theirs, [1, 2, 3])
    np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("bad", [None, -1, 2.0, True, "3", 2**53, np.bool_(True)])
def test_samples_that_make_no_sense_are_refused_on_every_rank_and_leave_no_trace(bad):
    group = reducers(3, 50, density=0.1, weights="by_samples")
    rows = gradients(3, 50)
    with pytest.raises(ConfigError, match=r"whole number of samples from 0 to .*, rank 2 did not"):
        weigh(group, rows, [1, 2, bad])
    np.testing.assert_array_equal(rows, gradients(3, 50))
    outcomes, _ = weigh(group, rows, [1, np.int64(2), 2**53 - 1])
    assert (outcomes[0].step, outcomes[0].samples) == (1, (1, 2, 2**53 - 1))


def test_samples_that_would_do_nothing_are_refused():
    group = reducers(1, 50, density=0.1)
    with pytest.raises(ConfigError, match="samples is 64, but weights is 'uniform'"):
        weigh(group, gradients(1, 50), [64])
    with pytest.raises(
        ConfigError, match=r"unknown weights 'by_sample', .*did you mean 'by_samples'"
    ):
        reducers(1, 50, weights="by_sample")


def test_ranks_that_weigh_differently_are_told_so():
    ours = reducers(2, 50, weights="by_samples")[0]
    theirs = reducers(2, 50)[1]
    with pytest.raises(ConfigError, match="rank 1 exchanges by other rules"):
        weigh([ours, theirs], gradients(2, 50), [1, None])


def test_the_count_is_part_of_what_a_step_costs():
    ours = reducers(4, 500, density=0.1, collectives="allgather_direct", weights="by_samples")
    plain = reducers(4, 500, density=0.1, collectives="allgather_direct")
    (one, *_), _ = weigh(ours, gradients(4, 500), [64] * 4)
    (other, *_), _ = reduce(plain, gradients(4, 500))
    assert one.path.hops == other.path.hops + 1
    assert one.path.n_bytes == other.path.n_bytes + 3 * 8
    assert other.samples == ()


@pytest.mark.parametrize("rate", [0.1, torch.tensor(0.1)])
def test_a_learning_rate_is_scaled_for_one_step(rate):
    parameters = [torch.nn.Parameter(torch.ones(1)) for _ in range(2)]
    groups = [{"params": [parameters[0]]}, {"params": [parameters[1]], "lr": 0.01}]
    optimizer = torch.optim.SGD(groups, lr=rate)
    for each in parameters:
        each.grad = torch.ones(1)
    with scaled_learning_rate(optimizer, LearningRate(100, warmup=0).factor(0, 300)):
        optimizer.step()
    assert [each.item() for each in parameters] == pytest.approx([0.7, 0.97])
    assert optimizer.param_groups[0]["lr"] is rate
    with pytest.raises(RuntimeError, match="it failed"), scaled_learning_rate(optimizer, 2.0):
        raise RuntimeError("it failed")
    assert [group["lr"] for group in optimizer.param_groups] == [rate, 0.01]


@pytest.mark.parametrize("bad", [-1.0, float("nan"), float("inf")])
def test_a_factor_that_is_none_is_refused(bad):
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=0.1)
    words = r"the learning rate's factor is .*, it must be finite"
    with pytest.raises(ConfigError, match=words), scaled_learning_rate(optimizer, bad):
        raise AssertionError("it was let in")
