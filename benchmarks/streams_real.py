"""The same comparison by real processes: streams, buffers and intakes on the loop's clock, gradients over Gloo.

Three devices; everything is :data:`SPEED` times as fast as in the paper: the streams, what counts as a second's worth
of them, and the sleep that stands for what a large model takes longer than the small one that is trained. The exchange
is a real one over loopback, and takes what it takes.
"""

from __future__ import annotations

import asyncio
import datetime
import tempfile
from functools import partial
from pathlib import Path

import msgspec
import numpy as np
import torch
import torch.distributed as dist

from aiops.collective.hook import reduce_gradients
from aiops.collective.learning_rate import scaled_learning_rate
from aiops.collective.state import ArTopkState
from aiops.data.split import partition
from aiops.policy.batch import BASE
from aiops.policy.learning_rate import LearningRate
from aiops.policy.stream import Device
from aiops.stream.buffer import Persistence, Truncation
from aiops.stream.decode import Samples
from aiops.stream.intake import Intake
from aiops.stream.replay import replay_samples
from aiops.stream.tape import Labelled
from benchmarks.lockstep import PIXELS, samples
from benchmarks.streams_clock import RESNET152
from benchmarks.streams_method import Method, Task
from benchmarks.streams_training import module
from benchmarks.trainings import LOOKS, arrival, final, pool

SPEED = 20.0
# Of the paper's list S1': its fastest, one in the middle, and its slowest.
RATES = (92.0, 48.0, 22.0)
LR, TASK, TARGET = 0.05, Task(steps=240), 0.80
LIMIT_BYTES = 512 * 2**20
DEADLINE_S = 60.0


class Real(msgspec.Struct, frozen=True):
    """A training by real processes.

    Attributes:
        label: How.
        seconds: Of the whole training, without looks at the accuracy.
        reached_s: Until the target; None where it was not reached.
        wait_s: Of the rank that waited most for its samples.
        samples: Of a step, of all ranks, mean.
        compressed: Share of the steps.
        most: The most samples that all ranks held.
        buffer_bytes: Their size.
        dropped: Samples thrown away.
        accuracy: At the end, mean of the last five looks of rank 0.
    """

    label: str
    seconds: float
    reached_s: float | None
    wait_s: float
    samples: float
    compressed: float
    most: int
    buffer_bytes: int
    dropped: int
    accuracy: float


class Seen(msgspec.Struct):
    """What one rank saw.

    Attributes:
        seconds: Since the first step, at every look, without the looks.
        accuracy: At every look.
        wait_s: For samples.
        samples: Of all ranks and steps.
        compressed: Steps.
        most: The most samples that it held.
        most_bytes: Their size.
        dropped: Samples thrown away.
    """

    seconds: list[float]
    accuracy: list[float]
    wait_s: float = 0.0
    samples: int = 0
    compressed: int = 0
    most: int = 0
    most_bytes: int = 0
    dropped: int = 0


def compare(methods: list[Method], task: Task = TASK) -> list[Real]:
    """Train by each of these, one after the other, without injection."""
    return [_train(method, task) for method in methods]


def _train(method: Method, task: Task) -> Real:
    with (
        tempfile.TemporaryDirectory() as store,
        pool(len(RATES)) as ranks,
    ):
        rank = partial(_rank, store, method, task)
        seen = [each.result() for each in [ranks.submit(rank, at) for at in range(len(RATES))]]
    first = seen[0]
    at = arrival(first.accuracy, TARGET)
    return Real(
        label=method.label,
        seconds=first.seconds[-1],
        reached_s=None if at is None else first.seconds[at],
        wait_s=max(one.wait_s for one in seen),
        samples=first.samples / task.steps,
        compressed=first.compressed / task.steps,
        most=sum(one.most for one in seen),
        buffer_bytes=sum(one.most_bytes for one in seen),
        dropped=sum(one.dropped for one in seen),
        accuracy=final(first.accuracy[-LOOKS:]),
    )


def _rank(store: str, method: Method, task: Task, rank: int) -> Seen:
    dist.init_process_group(
        "gloo",
        init_method=f"file://{Path(store) / 'store'}",
        rank=rank,
        world_size=len(RATES),
        timeout=datetime.timedelta(seconds=DEADLINE_S),
    )
    try:
        return asyncio.run(_stream(method, task, rank))
    finally:
        dist.destroy_process_group()


async def _stream(method: Method, task: Task, rank: int) -> Seen:
    source = samples()
    own = partition(source.y_train, len(RATES))[rank]
    # A sample is a row of the data set: what travels is its number, at the size of its pixels.
    pixels = (source.x_train[own] * 255).round().astype(np.uint8)
    rows = np.concatenate([pixels.reshape(len(own), PIXELS), source.y_train[own, None]], 1)
    tape = Labelled(np.ascontiguousarray(rows, np.uint8), source.y_train[own])
    stream = replay_samples(tape, rate=RATES[rank] * SPEED, seed=rank)
    buffer = (
        Truncation(LIMIT_BYTES, window_s=1 / SPEED)
        if method.truncates
        else Persistence(LIMIT_BYTES)
    )
    intake = Intake(Samples(stream, _decode), buffer)
    async with asyncio.TaskGroup() as group:
        group.create_task(intake.run())
        seen = await _Trainer(method, task, rank, intake).run()
        await stream.aclose()
    seen.most, seen.most_bytes, seen.dropped = (
        buffer.most_samples,
        buffer.most_bytes,
        buffer.dropped,
    )
    return seen


def _decode(value: bytes) -> np.ndarray:
    return np.frombuffer(value, np.uint8)


class _Trainer:
    def __init__(self, method: Method, task: Task, rank: int, intake: Intake[np.ndarray]) -> None:
        torch.manual_seed(0)
        self._model = module(task.hidden)
        self._optimizer = torch.optim.SGD(self._model.parameters(), LR, momentum=task.momentum)
        config = method.config
        self._state = ArTopkState(
            self._model.parameters(),
            config.density,
            collectives=config.collectives,
            weights=config.weights,
            deadline_s=DEADLINE_S,
        )
        self._method, self._task, self._rank, self._intake = method, task, rank, intake
        self._rule = LearningRate(BASE * len(RATES))

    async def run(self) -> Seen:
        """Train, and look at the accuracy on rank 0 now and then, while the others wait at the next exchange."""
        loop = asyncio.get_running_loop()
        seen = Seen([0.0], [self._accuracy()])
        batch, spent = 0, 0.0
        for step in range(self._task.steps):
            began = loop.time()
            rate = self._intake.samples.source.rate() / SPEED
            batch = self._method.rule([Device(batch, rate or RATES[self._rank])])[0]
            taken = await self._intake.take(batch)
            ready = loop.time()
            # The small model's own computing is a part of what the large one takes.
            computing = asyncio.create_task(asyncio.to_thread(self._gradient, taken))
            await asyncio.sleep(RESNET152.compute_s(len(taken)) / SPEED)
            await computing
            await asyncio.to_thread(self._descend, step, len(taken), seen)
            seen.wait_s += ready - began
            spent += loop.time() - began
            if (step + 1) % self._task.evaluate == 0:
                seen.seconds.append(spent)
                seen.accuracy.append(await asyncio.to_thread(self._accuracy))
        return seen

    def _gradient(self, taken: list) -> None:
        rows = np.stack([sample.value for sample in taken])
        x = torch.from_numpy(rows[:, :PIXELS].astype(np.float32) / 255)
        y = torch.from_numpy(rows[:, PIXELS].astype(np.int64))
        self._optimizer.zero_grad()
        torch.nn.functional.cross_entropy(self._model(x), y).backward()

    def _descend(self, step: int, n_samples: int, seen: Seen) -> None:
        weighs = self._method.weighs
        outcome = reduce_gradients(self._state, samples=n_samples if weighs else None)
        total = sum(outcome.samples) if weighs else BASE * len(RATES)
        factor = self._rule.factor(step, total) * self._task.lr(1.0, step)
        with scaled_learning_rate(self._optimizer, factor):
            self._optimizer.step()
        seen.samples += total
        seen.compressed += outcome.exchange.density < 1

    def _accuracy(self) -> float:
        source = samples()
        self._model.eval()
        with torch.no_grad():
            found = self._model(torch.from_numpy(source.x_test)).argmax(1).numpy()
        self._model.train()
        return float((found == source.y_test).mean())
