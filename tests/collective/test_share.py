"""Samples that ranks share: who trains on what, what it costs on the wire, and what every rank refuses alike."""

import numpy as np
import pytest
import torch

from aiops.collective.injection import Injector
from aiops.collective.meter import Meter
from aiops.collective.request import Broadcast
from aiops.collective.share import share
from aiops.collective.state import ArTopkState
from aiops.errors import ConfigError, RemoteProtocolError
from aiops.policy.injection import Injection
from aiops.sim.ranks import converse
from aiops.wire.record import Records
from tests.collective.processes import run

RULE = Injection(0.5, 0.5, seed=3)
# Uniform with mean 38 and deviation 24, or mean 300 and deviation 112; from 8 samples on.
S1, S2 = (-3.6, 79.6), (106, 494)
CIFAR = (32, 32, 3)


def batch(rank, n, *, shape=(2,), dtype=np.float32):
    """Samples that tell whose they are and which."""
    x = np.full((n, *shape), rank, dtype)
    return Records.of(x, 1000 * rank + np.arange(n))


def shared(batches, rule=RULE, step=0, **options):
    """Share one step's batches in lockstep; returns what came of it on each rank."""
    ranks = len(batches)
    dialogues = [
        share(own, rule, step, rank=rank, ranks=ranks, **options)
        for rank, own in enumerate(batches)
    ]
    return converse(dialogues)[0]


@pytest.mark.parametrize("sizes", [[24] * 4, [100, 8, 0, 77, 1], [0, 0, 5], [0, 0], [9], [64] * 10])
def test_every_rank_trains_on_its_first_samples_and_on_what_donors_picked(sizes):
    ranks = len(sizes)
    for step in range(4):
        found = shared([batch(rank, n) for rank, n in enumerate(sizes)], step=step)
        draws = [RULE.plan(step, sizes, rank) for rank in range(ranks)]
        for rank, came in enumerate(found):
            assert came.draw == draws[rank]
            wanted = [1000 * rank + at for at in range(draws[rank].own[rank])]
            for donor in draws[rank].donors:
                if donor != rank:
                    wanted += [1000 * donor + at for at in draws[donor].picks]
            assert came.records.labels.tolist() == wanted
            np.testing.assert_array_equal(
                came.records.samples, np.repeat(came.records.labels // 1000, 2).reshape(-1, 2)
            )
            assert len(came.records) == draws[rank].batches[rank]


def test_a_step_costs_what_it_did():
    for step in range(20):
        found = shared([batch(rank, 70) for rank in range(10)], step=step)
        assert sum(len(came.records) for came in found) == pytest.approx(700, rel=0.08)
        assert max(len(came.records) for came in found) <= 70


def test_what_a_donor_gives_is_all_that_is_on_the_wire():
    sizes, ranks = [40, 8, 64, 0], 4
    meters = [Meter(ranks) for _ in sizes]
    dialogues = [
        meters[rank].watch(share(batch(rank, n), RULE, 2, rank=rank, ranks=ranks))
        for rank, n in enumerate(sizes)
    ]
    found, _ = converse(dialogues)
    draw = found[0].draw
    # Head and one axis, then a label and two float32 for each sample.
    given = [16 + 16 * n if n else 0 for n in draw.shares]
    assert [came.gave_bytes for came in found] == given
    assert [came.took_bytes for came in found] == [sum(given) - each for each in given]
    # Each travels along a binomial tree of two rounds, and 13 numbers of each rank around a ring.
    assert {meter.total.n_bytes for meter in meters} == {2 * sum(given) + 3 * 13 * 8}


@pytest.mark.parametrize(
    ("low", "high", "mean_kb", "most_kb"), [(*S1, 330, 500), (*S2, 2250, 2800)], ids=["S1", "S2"]
)
def test_the_bytes_of_an_iteration_are_those_of_the_paper(low, high, mean_kb, most_kb):
    # Fig 9 of ScaDLES, ten devices and (.5, .5): about 330 KB under S1, up to 2800 KB under S2, at 3 KB a sample. There
    # batches do not shrink: these are as much larger as injection makes them smaller.
    random, shipped = np.random.default_rng(7), []
    for step in range(25):
        rates = np.maximum(np.rint(random.uniform(low, high, 10)), 8).astype(int)
        own = [
            batch(rank, int(3.5 * n + 1), shape=CIFAR, dtype=np.uint8)
            for rank, n in enumerate(rates)
        ]
        found = shared(own, step=step)
        assert [came.draw.own[rank] for rank, came in enumerate(found)] == rates.tolist()
        shipped.append(sum(came.gave_bytes for came in found) / 1e3)
        assert found[0].gave_bytes + found[0].took_bytes == sum(came.gave_bytes for came in found)
    assert np.mean(shipped) == pytest.approx(mean_kb, rel=0.15)
    assert max(shipped) < 1.1 * most_kb
    # With batches that stay what they were it is 1 + .5 * 5 times less.
    small = shared(
        [batch(rank, int(n), shape=CIFAR, dtype=np.uint8) for rank, n in enumerate(rates)]
    )
    same = shared(own)
    ratio = sum(came.gave_bytes for came in same) / sum(came.gave_bytes for came in small)
    assert ratio == pytest.approx(3.5, rel=0.1)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"own": ConfigError("samples are bool")}, "the batch of rank 1 cannot be shared"),
        ({"own": batch(1, 4, shape=(3,))}, r"samples of rank 1 are float32 of shape \(3,\), those of rank 0"),
        ({"own": batch(1, 4, dtype=np.uint8)}, "samples of rank 1 are uint8"),
        ({"step": 3}, "ranks share by different steps: 2, 3, 2"),
        ({"rule": Injection(0.5, 0.25)}, "ranks share by different injections"),
    ],
)  # fmt: skip
def test_what_one_rank_has_wrong_every_rank_refuses(change, sentence):
    told = [{"own": batch(rank, 4), "rule": RULE, "step": 2} for rank in range(3)]
    told[1] |= change
    with pytest.raises(ConfigError, match=sentence):
        converse([share(**each, rank=rank, ranks=3) for rank, each in enumerate(told)])


def test_a_rank_without_samples_need_not_know_what_they_look_like():
    found = shared([batch(0, 8), Records.of([], []), batch(2, 8)], Injection(1, 0.5))
    assert [len(came.records) for came in found] == [3 + 1, 2, 3 + 1]
    assert found[1].records.samples.dtype == np.float32


def test_a_donor_that_sends_something_else_is_not_believed():
    def forge(dialogue):
        reply = None
        while True:
            try:
                request = dialogue.send(reply)
            except StopIteration as end:
                return end.value
            if isinstance(request, Broadcast):
                request.data[0] = 250
            reply = yield request

    dialogues = [share(batch(rank, 8), Injection(1, 0.5), 0, rank=rank, ranks=2) for rank in (0, 1)]
    with pytest.raises(ExceptionGroup) as caught:
        converse([forge(dialogues[0]), dialogues[1]])
    (error,) = caught.value.exceptions
    assert isinstance(error, RemoteProtocolError)
    assert "what rank 0 gave: records say dtype 250" in str(error)


def train(rank, ranks):
    """Share three steps and go on from a checkpoint; returns the labels of each, as they came."""
    state = ArTopkState([torch.nn.Parameter(torch.zeros(4))], 0.5, weights="by_samples")
    first, second = Injector(state, RULE), Injector(state, RULE)
    words, labels = [], []
    for step in range(4):
        n = [12, 0][rank] + step
        x = torch.full((n, 3, 2), rank, dtype=torch.uint8)
        y = torch.arange(n, dtype=torch.int32) + 1000 * rank
        if step == 1:
            try:
                first.share(x, y.float() if rank else y)
            except ConfigError as error:
                words.append(str(error))
            second.load_state_dict(first.state_dict())
        use = first if step == 0 else second
        x, y = use.share(x, y)
        assert (x.dtype, y.dtype, x.shape[1:]) == (torch.uint8, torch.int64, (3, 2))
        assert (x[:, 0, 0] == y // 1000).all()
        labels.append((use.step, y.tolist(), use.last.gave_bytes))
    x, y = second.share(np.zeros((1, 2)), np.zeros(1, int))
    assert isinstance(x, np.ndarray)
    state.close()
    return words, labels


def test_real_processes_share_what_ranks_in_lockstep_do(tmp_path):
    results = run(train, 2, tmp_path)
    for rank, (words, _) in enumerate(results):
        assert words[0].startswith("the batch of rank 1 cannot be shared")
        assert ("labels are float32" in words[0]) == (rank == 1)
    for step in range(4):
        sizes = [12 + step, step]
        found = shared(
            [batch(rank, n, shape=(3, 2), dtype=np.uint8) for rank, n in enumerate(sizes)],
            step=step,
        )
        for rank, (_, labels) in enumerate(results):
            wanted = found[rank].records.labels.tolist()
            assert labels[step] == (step + 1, wanted, found[rank].gave_bytes)


def test_a_checkpoint_without_a_step_is_refused():
    injector = Injector(None, RULE)
    with pytest.raises(ConfigError, match="the injector's step is None"):
        injector.load_state_dict({})
