"""Weights by samples over Gloo, in real processes, as a training loop says them."""

import numpy as np
import pytest
import torch

from aiops.collective.hook import artopk_hook, reduce_gradients
from aiops.collective.learning_rate import scaled_learning_rate
from aiops.collective.state import ArTopkState
from aiops.errors import ConfigError
from aiops.policy.learning_rate import LearningRate
from tests.collective.kit import gradients
from tests.collective.processes import run
from tests.collective.test_group import model

BATCHES = [4, 12, 0]


def exchange(rank, ranks, collective):
    """Exchange gradients of other batches each step; returns the sum of what came of them, and what is left."""
    parameter = torch.nn.Parameter(torch.zeros(600))
    state = ArTopkState([parameter], 0.05, collectives=collective, weights="by_samples")
    sent = np.zeros(600)
    for step in range(5):
        parameter.grad = torch.from_numpy(gradients(ranks, 600, step=step)[rank].copy())
        outcome = reduce_gradients(state, samples=BATCHES[rank] * (step + 1))
        sent += parameter.grad.numpy().astype(np.float64)
    left = state.state_dict()["residual"].numpy()
    state.close()
    return parameter.grad.numpy(), sent, left, outcome.samples


@pytest.mark.parametrize("collective", ["artopk_tree", "allgather_direct", "dense_ring"])
def test_replicas_are_the_same_and_nothing_is_lost(collective, tmp_path):
    results = run(exchange, 3, tmp_path, collective)
    for grad, _, _, samples in results:
        np.testing.assert_array_equal(grad, results[0][0])
        assert samples == (20, 60, 0)
    given = np.zeros(600)
    for step in range(5):
        rows = gradients(3, 600, step=step).astype(np.float64)
        given += 0.25 * rows[0] + 0.75 * rows[1]
    kept = results[0][1] + sum(left.astype(np.float64) for _, _, left, _ in results)
    np.testing.assert_allclose(kept, given, atol=1e-5 * np.abs(given).max())


def data(rank, step):
    random = torch.Generator().manual_seed(100 * step + rank)
    n = [8, 24][rank] + step
    return torch.randn(n, 20, generator=random), torch.randn(n, 5, generator=random)


def parallel(rank, ranks, how):
    """Train on batches of two sizes; alone on both of them at once where there is one rank."""
    net = outer = model()
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    state = ArTopkState(net.parameters(), 1.0, collectives="dense_ring", weights="by_samples")
    rate = LearningRate(16, warmup=2)
    if how == "hook":
        outer = torch.nn.parallel.DistributedDataParallel(net, bucket_cap_mb=0.01)
        outer.register_comm_hook(state, artopk_hook)
    for step in range(4):
        parts = [data(each, step) for each in ([rank] if ranks > 1 else [0, 1])]
        x, y = (torch.cat(part) for part in zip(*parts, strict=True))
        optimizer.zero_grad()
        if how == "hook":
            state.samples = len(x)
        torch.nn.functional.mse_loss(outer(x), y).backward()
        if how == "plain":
            reduce_gradients(state, samples=len(x))
        factor = rate.factor(step, sum(state.last.samples))
        with scaled_learning_rate(optimizer, factor):
            optimizer.step()
    return [each.detach().numpy() for each in net.parameters()], factor


def test_unequal_batches_train_as_one_large_batch(tmp_path):
    results = {}
    for how, ranks in (("hook", 2), ("plain", 2), ("plain", 1)):
        path = tmp_path / f"{how}{ranks}"
        path.mkdir()
        results[how, ranks] = run(parallel, ranks, path, how)
    ((whole, factor),) = results["plain", 1]
    # 8 + 24 samples, and 3 more of each rank, where 16 were meant.
    assert factor == 38 / 16
    for how in ("hook", "plain"):
        for tensors, _ in results[how, 2]:
            for one, other in zip(tensors, whole, strict=True):
                np.testing.assert_allclose(one, other, atol=1e-5)


def forget(rank, ranks):
    parameter = torch.nn.Parameter(torch.zeros(40))
    state = ArTopkState([parameter], 0.1, weights="by_samples")
    words = []
    for step in range(3):
        # What was said of one step is not taken for the next one.
        if step != 1 or rank == 0:
            state.samples = 5
        parameter.grad = torch.ones(40)
        try:
            reduce_gradients(state)
        except ConfigError as error:
            words.append((step, str(error).partition(" (here")[0]))
    return words, state.last.step


def test_samples_that_a_rank_forgets_are_missed_on_every_rank(tmp_path):
    for words, steps in run(forget, 2, tmp_path):
        ((step, sentence),) = words
        assert (step, steps) == (1, 2)
        assert sentence.endswith("rank 1 did not")
