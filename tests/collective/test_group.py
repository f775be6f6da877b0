"""The driver over Gloo, in real processes: what it answers, and who is named when a rank is gone."""

import os
import signal
import time

import numpy as np
import pytest
import torch

from aiops.collective.group import Group
from aiops.collective.hook import artopk_hook, reduce_gradients
from aiops.collective.request import Broadcast, Deal, Gather, Ping, Sum
from aiops.collective.rollcall import RankLost
from aiops.collective.state import ArTopkState
from aiops.errors import ConfigError, LocalProtocolError, NotFinite
from tests.collective.kit import gradients
from tests.collective.processes import Killed, run

COLLECTIVES = [
    "dense_ring", "dense_tree", "dense_direct", "allgather_ring", "allgather_direct", "artopk_ring", "artopk_tree",
    "artopk_direct", "var_ring", "vote_direct",
]  # fmt: skip
RANKS = [1, 2, 3, 4]
DEADLINE_S = 6.0


def ask(request):
    return (yield request)


def answers(rank, ranks):
    """Ask for everything by every route; returns what came back, by name."""
    group, seen = Group(deadline_s=60), {}
    for route in ("ring", "tree", "direct"):
        whole = np.arange(7, dtype=np.float32) * (rank + 1)
        seen["sum", route] = group.run(ask(Sum(whole, route))).data
        data = np.full(5, rank, np.uint8)
        seen["broadcast", route] = group.run(ask(Broadcast(data, ranks - 1, route))).data
        seen["gather", route] = group.run(ask(Gather(np.array([rank, 2**40]), route))).data
    rows = np.full((ranks, 3), rank, np.uint8)
    seen["deal", "direct"] = group.run(ask(Deal(rows))).data
    for turn in (0, 1):
        reply = group.run(ask(Ping(turn, 3)))
        starts = rank % 2 == turn and rank + 1 < ranks
        assert reply.data.shape == (3 if starts else 0,)
        assert (reply.data > 0).all()
        assert reply.seconds >= reply.data.sum()
    group.close()
    return seen


@pytest.mark.parametrize("ranks", RANKS)
def test_every_request_is_answered_by_every_route(ranks, tmp_path):
    for rank, seen in enumerate(run(answers, ranks, tmp_path)):
        for (what, _), data in seen.items():
            wanted = {
                "sum": np.arange(7) * sum(range(1, ranks + 1)),
                "broadcast": np.full(5, ranks - 1),
                "gather": np.array([[each, 2**40] for each in range(ranks)]),
                "deal": np.repeat(np.arange(ranks), 3).reshape(ranks, 3),
            }[what]
            np.testing.assert_array_equal(data, wanted, err_msg=f"{what} on rank {rank}")


def train(rank, ranks, collective, values):
    """Exchange a few gradients; returns what came of them, and what is left."""
    parameter = torch.nn.Parameter(torch.zeros(600))
    state = ArTopkState([parameter], 0.05, collectives=collective, values=values)
    sent = np.zeros(600)
    for step in range(5):
        parameter.grad = torch.from_numpy(gradients(ranks, 600, step=step)[rank].copy())
        reduce_gradients(state)
        sent += parameter.grad.numpy().astype(np.float64)
    left = state.state_dict()["residual"].numpy()
    state.close()
    return parameter.grad.numpy(), sent, left


@pytest.mark.parametrize("collective", COLLECTIVES)
def test_replicas_are_the_same_bits_and_nothing_is_lost(collective, tmp_path):
    results = run(train, 3, tmp_path, collective, "bf16")
    for grad, _, _ in results:
        np.testing.assert_array_equal(grad, results[0][0])
    given = sum(gradients(3, 600, step=step).sum(0, dtype=np.float64) for step in range(5))
    kept = results[0][1] * 3 + sum(left.astype(np.float64) for _, _, left in results)
    np.testing.assert_allclose(kept, given, atol=1e-5 * np.abs(given).max())


def lose(rank, ranks, collective, how):
    parameter = torch.nn.Parameter(torch.zeros(50_000))
    state = ArTopkState([parameter], 0.05, collectives=collective, deadline_s=DEADLINE_S)
    for step in range(100):
        parameter.grad = torch.full((50_000,), float(rank + step))
        if rank == 2 and step == 3:
            os.kill(os.getpid(), how)
        begun = time.monotonic()
        try:
            reduce_gradients(state)
        except RankLost as error:
            with pytest.raises(LocalProtocolError, match="cannot be used any more"):
                reduce_gradients(state)
            return error.ranks, str(error), time.monotonic() - begun
    raise AssertionError("nobody noticed")


@pytest.mark.parametrize(
    ("collective", "how"),
    [
        ("artopk_ring", signal.SIGKILL),
        ("artopk_ring", signal.SIGSTOP),
        ("allgather_direct", signal.SIGKILL),
        ("dense_tree", signal.SIGKILL),
    ],
)
def test_a_lost_rank_is_named_by_the_others_within_the_deadline(collective, how, tmp_path):
    results = run(lose, 4, tmp_path, collective, how, killed=[2])
    for ranks, words, seconds in (each for each in results if each is not Killed):
        assert ranks == (2,), words
        assert "rank 2 is gone or does not answer" in words
        assert "in step 4" in words
        assert seconds < DEADLINE_S + 1


def poison(rank, ranks):
    parameter = torch.nn.Parameter(torch.zeros(40))
    state = ArTopkState([parameter], 0.1)
    seen = []
    for step in range(6):
        parameter.grad = torch.from_numpy(gradients(ranks, 40, step=step)[rank].copy())
        if step == 2 and rank == 1:
            parameter.grad[5] = float("nan")
        try:
            reduce_gradients(state)
        except NotFinite as error:
            seen.append((step, str(error).partition(" (here")[0]))
    return seen, parameter.grad.numpy()


def test_a_gradient_that_is_not_finite_is_refused_on_every_rank(tmp_path):
    results = run(poison, 3, tmp_path)
    for seen, grad in results:
        assert seen == [(2, "the gradient of rank 1 is not finite")]
        np.testing.assert_array_equal(grad, results[0][1])


def model():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(20, 400), torch.nn.ReLU(), torch.nn.Linear(400, 5))


def data(rank, step):
    random = torch.Generator().manual_seed(100 * step + rank)
    return torch.randn(8, 20, generator=random), torch.randn(8, 5, generator=random)


def parallel(rank, ranks, hooked):
    net = model()
    # One collective: what is cheapest is a matter of measured times.
    state = ArTopkState(net.parameters(), 0.02, collectives="artopk_ring", values="int8")
    outer = net
    if hooked:
        # So small that there are several buckets, which DDP lays out anew after the first step.
        outer = torch.nn.parallel.DistributedDataParallel(net, bucket_cap_mb=0.01)
        outer.register_comm_hook(state, artopk_hook)
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    for step in range(6):
        x, y = data(rank, step)
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(outer(x), y).backward()
        if not hooked:
            reduce_gradients(state)
        optimizer.step()
    return [each.detach().numpy() for each in net.parameters()], state.last.step


def test_the_hook_trains_as_the_plain_function_does(tmp_path):
    (tmp_path / "hooked").mkdir()
    (tmp_path / "plain").mkdir()
    hooked = run(parallel, 2, tmp_path / "hooked", True)
    plain = run(parallel, 2, tmp_path / "plain", False)
    for tensors, steps in (*hooked, *plain):
        assert steps == 6
        for one, other in zip(tensors, plain[0][0], strict=True):
            np.testing.assert_array_equal(one, other)


def poison_hook(rank, ranks):
    net = model()
    outer = torch.nn.parallel.DistributedDataParallel(net, bucket_cap_mb=0.01)
    state = ArTopkState(net.parameters(), 0.02)
    outer.register_comm_hook(state, artopk_hook)
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    errors = []
    for step in range(4):
        x, y = data(rank, step)
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(outer(x), y)
        if step == 1 and rank == 1:
            loss = loss * float("nan")
        try:
            loss.backward()
        except NotFinite as error:
            errors.append((step, str(error).partition(" (here")[0]))
            continue
        optimizer.step()
    return errors, [each.detach().numpy() for each in net.parameters()]


def test_the_hook_refuses_what_is_not_finite_and_goes_on(tmp_path):
    results = run(poison_hook, 2, tmp_path)
    for errors, tensors in results:
        assert errors == [(1, "the gradient of rank 1 is not finite")]
        for one, other in zip(tensors, results[0][1], strict=True):
            np.testing.assert_array_equal(one, other)


def share(rank, ranks):
    tensors = [torch.full((3,), rank), torch.tensor(float(rank)), torch.tensor([2**62 + rank])]
    state = ArTopkState([torch.nn.Parameter(torch.zeros(2))])
    state.broadcast(tensors, source=1)
    return [each.tolist() for each in tensors]


def test_parameters_are_given_to_all(tmp_path):
    assert run(share, 2, tmp_path) == [[[1, 1, 1], 1.0, [2**62 + 1]]] * 2


def test_without_a_job_the_state_says_what_is_missing():
    with pytest.raises(ConfigError, match="call init_process_group first"):
        ArTopkState([torch.nn.Parameter(torch.zeros(2))])


def odd(rank, ranks):
    parameter = torch.nn.Parameter(torch.zeros(2))
    words = []
    for make in (
        lambda: ArTopkState([]),
        lambda: ArTopkState([parameter], 0.0),
        lambda: ArTopkState([parameter], collectives="ring_dense"),
        lambda: ArTopkState([parameter], values="fp8"),
        lambda: ArTopkState([parameter], deadline_s=0),
        lambda: ArTopkState([parameter]).view(torch.zeros(4)),
    ):
        with pytest.raises(ConfigError) as caught:
            make()
        words.append(str(caught.value))
    return words


def test_what_makes_no_sense_is_refused_in_a_sentence(tmp_path):
    (words,) = run(odd, 1, tmp_path)
    assert "no parameters that need a gradient" in words[0]
    assert "density is 0" in words[1]
    assert "unknown collective 'ring_dense'" in words[2]
    assert "unknown values 'fp8', known are fp32, bf16, fp16, int8" in words[3]
    assert "deadline_s is 0, it must be above 0" in words[4]
    assert "a parameter of shape (4,) is trained that the state was not made with" in words[5]
