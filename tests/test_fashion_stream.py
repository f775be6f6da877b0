"""examples/fashion_stream.py: what devices of one label each lose is what they get back from each other."""

import asyncio
import re

import numpy as np
import pytest

from aiops.data import is_available
from aiops.data.base import Dataset
from aiops.sim.virtual import VirtualLoop
from tests.example import interrupted, load

example = load("fashion_stream")

installed = pytest.mark.skipif(
    not is_available("fashion-mnist"), reason="Fashion-MNIST is not on this machine"
)


def test_the_gradient_is_that_of_the_mean_cross_entropy():
    rng = np.random.default_rng(1)
    x, labels = rng.normal(size=(5, 784)), np.array([0, 3, 9, 3, 1])
    params = {name: value.astype(np.float64) for name, value in example.initial().items()}

    def loss(params):
        _, score = example.forward(params, x)
        return np.mean(np.log(np.exp(score).sum(1)) - score[np.arange(5), labels])

    found = example.gradient(params, x, labels)
    assert found.keys() == params.keys()
    for name, value in params.items():
        for place in [tuple(rng.integers(n) for n in value.shape) for _ in range(20)]:
            up, down = ({**params, name: value.copy()} for _ in range(2))
            up[name][place] += 1e-6
            down[name][place] -= 1e-6
            slope = (loss(up) - loss(down)) / 2e-6
            assert found[name][place] == pytest.approx(slope, abs=1e-7)


def squares(n=400):
    """Images of ten labels, each a bright square in a place of its own."""
    rng = np.random.default_rng(0)
    x, y = rng.random((n, 28, 28), np.float32) / 2, np.arange(n) % 10
    for image, label in zip(x, y, strict=True):
        image[5 * (label // 5) :, 5 * (label % 5) :][:5, :5] = 1
    return Dataset("squares", 10, x, y, x, y)


def train(rates, injection, rounds=3):
    trainers = example.devices(squares(), rates, skewed=True)
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        evaluation = example.Evaluation(squares())
        accuracy = runner.run(example.train(trainers, evaluation, rounds, injection))
        return trainers, accuracy, runner.get_loop().time()


def test_batches_follow_the_streams_and_what_is_left_is_thrown_away(capsys):
    rates = [200.0, 100, 64, 50, 40, 32, 32, 32, 32, 16]
    trainers, _, seconds = train(rates, None)
    assert [one.labels for one in trainers] == [1] * 10
    assert all(one.n_own == one.n_samples for one in trainers)
    # A device whose stream brings 16/s waits two seconds for each of 30 batches of 32; the others wait for its push.
    assert 60 < seconds < 65
    a_step = [one.n_samples / 30 for one in trainers]
    assert a_step[:2] == pytest.approx([64, 64], abs=2)
    assert a_step[5:] == pytest.approx([32] * 5, abs=2)
    assert trainers[0].dropped > 200 * seconds - 64 * 30 - 300
    assert trainers[9].dropped == 0
    # A second's worth of the fastest is what is held at most.
    assert trainers[0].most_bytes <= 201 * 784
    printed = capsys.readouterr().out.splitlines()
    assert [line.split()[3] for line in printed] == ["1", "2", "3"]


def test_a_batch_is_made_of_what_all_give_and_streams_need_not_bring_it_all():
    trainers, _, seconds = train([64.0] * 10, "random:1,0.5")
    slow, _, slow_seconds = train([64.0] * 9 + [16.0], "random:1,0.5")
    # b' = 64 / 5.5 = 11, and five of each of nine others, but for the first time, when no rate is known.
    n_samples = [32 + 29 * (11 + 9 * 5)] * 10
    assert [one.n_samples for one in trainers] == pytest.approx(n_samples, abs=5)
    assert [one.n_own for one in trainers] == pytest.approx([32 + 29 * 11] * 10, abs=2)
    assert slow_seconds < seconds + 4
    # Of a batch of 32 the one needs 5, and five come from each of the others.
    assert 6 < slow[9].n_samples / slow[9].n_own < 10


@installed
@pytest.mark.timeout(120)
def test_injection_gives_back_most_of_what_label_skew_takes(capsys):
    mixed, alone, injected = example.main(["--rounds", "12"])
    assert mixed > 0.74
    assert mixed - injected < 0.05 < 0.15 < mixed - alone
    printed = capsys.readouterr().out
    assert "records/s of the devices: 92 38 62 42 48 88 90 22 44 28" in printed
    assert printed.count("round  12  accuracy") == 3


@installed
def test_the_rates_are_those_of_the_list_that_is_named(capsys):
    example.main(["--rates", "S2'", "--rounds", "1"])
    printed = capsys.readouterr().out
    assert "records/s of the devices: 270 218 300 246 232 284 284 236 274 228" in printed
    # Ten steps of 0.4 s, in which ten devices get 2,572 samples a second and train on 32 or 64 in each.
    line = re.search(r"all labels: (\S+) samples of (\S+) that came", printed)
    own, came = (int(each.replace(",", "")) for each in line.groups())
    assert 10_000 < came < 13_000
    assert 10 * 10 * 32 < own <= 10 * 10 * 64


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (["--rounds", "0"], "--rounds is 0, it must be >= 1"),
        (["--rates", "S1"], "invalid choice: 'S1'"),
    ],
)
def test_what_is_none_is_refused_in_one_sentence(capsys, given, sentence):
    with pytest.raises(SystemExit) as ended:
        example.main(given)
    assert ended.value.code == 2
    assert sentence in capsys.readouterr().err.splitlines()[-1]


@installed
@pytest.mark.timeout(60)
def test_an_interrupt_ends_it_without_a_traceback():
    code, _, errors = interrupted("fashion_stream", "accuracy", within_s=30)
    assert (code, errors) == (130, "")
