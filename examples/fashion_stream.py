"""Ten devices that see a kind of clothes each learn all ten from what streams into them, over a parameter server.

Fashion-MNIST is replayed at the rates of the scripts of "ScaDLES: Scalable Deep Learning over Streaming data at the
Edge" (Tyagi and Swany, 2022), and device r sees label r alone. A batch is what a stream brings in a second, within
bounds (`by_rate`); what a device leaves of its stream is thrown away (`Truncation`); a push counts by its samples and
the learning rate follows those of all (`by_samples*linear_scaling`). Between two syncs devices make ten local steps,
in which each drifts towards its own label, unless they give samples to each other in every step (`ps.share`, and a
server with an injection).

    python examples/fashion_stream.py                     # a quarter of an hour of streams, in about a minute
    python examples/fashion_stream.py --rates "S2'"       # streams that bring four times as much as is trained on

There are three trainings: of devices that see all labels, which the others are measured by; of devices that see one
each; and of these with injection. The clock is virtual. It jumps from event to event, as fast as the core computes.
"""

from __future__ import annotations

import argparse
import asyncio
import math
import sys
import time
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

import aiops.data
from aiops.data.base import Dataset
from aiops.data.split import partition
from aiops.errors import ConfigError
from aiops.policy.batch import by_rate
from aiops.policy.stream import Device
from aiops.sim.cluster import Cluster
from aiops.sim.virtual import VirtualLoop
from aiops.stream.buffer import Truncation
from aiops.stream.decode import Sample, Samples
from aiops.stream.intake import Intake
from aiops.stream.rates import LISTS
from aiops.stream.replay import replay_samples
from aiops.stream.tape import Labelled
from aiops.transport.memory import Link
from aiops.worker.client import Client

Array = NDArray[np.float32]
Images = NDArray[np.uint8]
Labels = NDArray[np.int64]
Params = dict[str, Array]

DEVICES = 10
ROUNDS, LOCAL_STEPS = 60, 10
HIDDEN = 64
LEARNING_RATE, DECAY, MILESTONES = 0.3, 0.2, (0.6, 0.8)
# Bounds of a batch: one of 8 samples of a label would have nothing to give to nine others.
LOW, HIGH = 32, 64
# What a step takes to compute, and a link of 50 Mbit/s.
STEP_S = 0.4
DELAY_S, RATE_BYTES_S = 0.02, 6.25e6
BUFFER_BYTES = 1 << 20
# Every device gives half of what it keeps.
INJECTION = "random:1,0.5"


def initial() -> Params:
    """Return a network with one hidden layer to start from."""
    rng = np.random.default_rng(0)
    hidden = rng.normal(0, math.sqrt(2 / 784), (784, HIDDEN))
    out = rng.normal(0, math.sqrt(1 / HIDDEN), (HIDDEN, 10))
    return {
        "hidden": hidden.astype(np.float32),
        "hidden_bias": np.zeros(HIDDEN, np.float32),
        "out": out.astype(np.float32),
        "out_bias": np.zeros(10, np.float32),
    }


def inputs(images: Images) -> Array:
    """Return grey levels 0 to 255 as rows of numbers in [0, 1]."""
    return images.reshape(len(images), -1).astype(np.float32) / 255


def forward(params: Params, x: Array) -> tuple[Array, Array]:
    """Return the hidden layer, and a score of each label."""
    hidden = np.maximum(x @ params["hidden"] + params["hidden_bias"], 0)
    return hidden, hidden @ params["out"] + params["out_bias"]


def gradient(params: Params, x: Array, labels: Labels) -> Params:
    """Return the gradient of the mean cross-entropy."""
    hidden, score = forward(params, x)
    error = np.exp(score - score.max(1, keepdims=True))
    error /= error.sum(1, keepdims=True)
    error[np.arange(len(labels)), labels] -= 1
    error /= np.float32(len(labels))
    back = (error @ params["out"].T) * (hidden > 0)
    return {
        "hidden": x.T @ back,
        "hidden_bias": back.sum(0),
        "out": hidden.T @ error,
        "out_bias": error.sum(0),
    }


def learning_rate(round_: int, rounds: int) -> float:
    """Return the learning rate of a round: it falls twice, as the paper's does."""
    return LEARNING_RATE * DECAY ** sum(round_ >= share * rounds for share in MILESTONES)


class Trainer:
    """A device, its stream, and what it has seen.

    Args:
        name: Its name.
        images: What streams into it, again and again in random order.
        labels: Theirs.
        rate: How many of them in a second.

    Attributes:
        rate: The same.
        labels: How many kinds there are among them.
        n_samples: How many it has trained on, with those that others gave.
        n_own: How many of them were its own.
        dropped: Samples of its stream that it left.
        most_bytes: The most that it held.
        n_bytes: Samples that it gave and was given.
    """

    def __init__(self, name: str, images: Images, labels: Labels, rate: float) -> None:
        self.rate = rate
        self.labels = len(np.unique(labels))
        self.n_samples = 0
        self.n_own = 0
        self.dropped = 0
        self.most_bytes = 0
        self.n_bytes = 0
        self._name = name
        self._tape = Labelled(images, labels)
        self._rule = by_rate(LOW, HIGH)
        self._size = 0
        self._left: list[Sample[Images]] = []

    async def run(self, cluster: Cluster, rounds: int) -> None:
        """Train for so many rounds."""
        source = replay_samples(self._tape, rate=self.rate, seed=0)
        intake = Intake(Samples(source, decode), Truncation(BUFFER_BYTES))
        up, down = (Link(delay_s=DELAY_S, rate_bytes_s=RATE_BYTES_S) for _ in range(2))
        async with (
            cluster.worker(self._name, up=up, down=down) as ps,
            asyncio.TaskGroup() as group,
        ):
            group.create_task(intake.run())
            params = await ps.init()
            for round_ in range(rounds):
                update, n_samples = await self._round(ps, intake, params, rounds, round_)
                params = await ps.sync(update, n_samples=n_samples, n_steps=LOCAL_STEPS)
            await source.aclose()
        self.dropped, self.most_bytes = intake.buffer.dropped, intake.buffer.most_bytes

    # The local steps of a round: how they change the model, and the samples behind that.
    async def _round(
        self, ps: Client, intake: Intake[Images], params: Params, rounds: int, round_: int
    ) -> tuple[Params, int]:
        before = self.n_samples
        local = {name: value.copy() for name, value in params.items()}
        step = np.float32(-learning_rate(round_, rounds))
        for _ in range(LOCAL_STEPS):
            images, labels = await self._batch(ps, intake)
            self.n_samples += len(labels)
            for name, value in gradient(local, inputs(images), labels).items():
                local[name] += step * value
            await asyncio.sleep(STEP_S)
        change = {name: value - params[name] for name, value in local.items()}
        return change, self.n_samples - before

    async def _batch(self, ps: Client, intake: Intake[Images]) -> tuple[Images, Labels]:
        # Before the first sample no rate is known, and the rule says its least.
        (self._size,) = self._rule([Device(self._size, intake.samples.source.rate())])
        batch, self._left = self._left[: self._size], []
        if len(batch) < self._size:
            batch += await intake.take(self._size - len(batch))
        if not ps.policy.injection:
            self.n_own += len(batch)
            return arrays(batch)
        mixed = await ps.share(*arrays(batch))
        shared = ps.shared
        assert shared is not None
        # The batch shrinks by as much as others give. What it has no room for is for the next one.
        self._left = batch[shared.own :]
        self.n_own += shared.own
        self.n_bytes += shared.gave_bytes + shared.took_bytes
        return mixed


def decode(value: bytes) -> Images:
    """Return the image of a record."""
    return np.frombuffer(value, np.uint8)


def arrays(batch: Sequence[Sample[Images]]) -> tuple[Images, Labels]:
    """Return images and labels of a batch; a record's key is its label."""
    return (
        np.stack([sample.value for sample in batch]),
        np.array([int(sample.record.key) for sample in batch]),
    )


class Evaluation:
    """How good a model is.

    Args:
        data: Whose.
    """

    def __init__(self, data: Dataset) -> None:
        self._x = data.x_test.reshape(len(data.x_test), -1)
        self._labels = data.y_test

    def accuracy(self, params: Params) -> float:
        """Return the share of test images whose label a model finds."""
        return float((forward(params, self._x)[1].argmax(1) == self._labels).mean())


async def watch(cluster: Cluster, evaluation: Evaluation, rounds: int) -> float:
    """Print a line now and then until the last round is over; return the accuracy then."""
    loop, accuracy, version = asyncio.get_running_loop(), math.nan, 0
    while version < rounds:
        version = await cluster.server.version_after(version)
        if version % max(1, rounds // 6) and version != rounds:
            continue
        accuracy = evaluation.accuracy(cluster.server.params())
        print(f"  {loop.time():6.0f} s  round {version:3}  accuracy {accuracy:.4f}", flush=True)
    return accuracy


async def train(
    trainers: Sequence[Trainer], evaluation: Evaluation, rounds: int, injection: str | None
) -> float:
    """Train on these devices; return the accuracy at the end."""
    base = len(trainers) * HIGH * LOCAL_STEPS
    async with (
        Cluster(
            params=initial(),
            sync="bulk:0",
            weights=f"by_samples*linear_scaling:{base}",
            work=f"fixed:{LOCAL_STEPS}",
            injection=injection,
            min_workers=len(trainers),
        ) as cluster,
        asyncio.TaskGroup() as group,
    ):
        watching = group.create_task(watch(cluster, evaluation, rounds))
        for trainer in trainers:
            group.create_task(trainer.run(cluster, rounds))
    return watching.result()


def report(what: str, trainers: Sequence[Trainer], seconds: float) -> None:
    """Print a line about what devices did in these seconds of the virtual clock."""
    own = sum(one.n_own for one in trainers)
    total = sum(one.n_samples for one in trainers)
    held = max(one.most_bytes for one in trainers)
    shared = sum(one.n_bytes for one in trainers) / len(trainers) / seconds
    print(
        f"{what}: {own:,} samples of {sum(one.rate for one in trainers) * seconds:,.0f} that came, a device held "
        f"{held / 1e3:.0f} KB at most; {(total - own) / total:.0%} of a batch was given by others, "
        f"{shared / 1e3:.0f} KB/s a device\n"
    )


def devices(data: Dataset, rates: Sequence[float], *, skewed: bool) -> list[Trainer]:
    """Return a device per rate: with a label each, or all with like shares of all labels."""
    images = (data.x_train * 255).round().astype(np.uint8)
    shards = (
        [np.flatnonzero(data.y_train == rank) for rank in range(len(rates))]
        if skewed
        else partition(data.y_train, len(rates))
    )
    return [
        Trainer(f"device {rank}", images[shard], data.y_train[shard], rate)
        for rank, (shard, rate) in enumerate(zip(shards, rates, strict=True))
    ]


def arguments(given: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description="Ten devices learn all kinds of clothes from streams of one kind each."
    )
    lists = [name for name, rates in LISTS.items() if len(rates) == DEVICES]
    parser.add_argument(
        "--rates", choices=lists, default="S1'", help="the paper's list of rates (%(default)s)"
    )
    parser.add_argument(
        "--rounds", type=int, default=ROUNDS, help="of ten local steps each (%(default)s)"
    )
    told = parser.parse_args(given)
    if told.rounds < 1:
        parser.error(f"--rounds is {told.rounds}, it must be >= 1")
    return told


def main(given: Sequence[str] | None = None) -> list[float]:
    """Train three times; return the three accuracies: of all labels, of one each, and of one each with injection."""
    told = arguments(given)
    data = aiops.data.load("fashion-mnist")
    evaluation, found, begun = Evaluation(data), [], time.monotonic()
    print("records/s of the devices:", *LISTS[told.rates], flush=True)
    for what, skewed, injection in (
        ("all labels", False, None),
        ("one label each", True, None),
        ("one label each, injection", True, INJECTION),
    ):
        print(what)
        trainers = devices(data, LISTS[told.rates], skewed=skewed)
        with asyncio.Runner(loop_factory=VirtualLoop) as runner:
            found.append(runner.run(train(trainers, evaluation, told.rounds, injection)))
            report(what, trainers, runner.get_loop().time())
    mixed, alone, injected = found
    print(
        f"one label each ends {100 * (mixed - alone):.1f} points below all labels, with injection "
        f"{100 * (mixed - injected):.1f}; {time.monotonic() - begun:.0f} s"
    )
    return found


if __name__ == "__main__":
    try:
        main()
    except ConfigError as error:
        print(f"fashion_stream: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)
