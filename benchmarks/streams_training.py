"""Devices that train on streams in lockstep: real gradients of Fashion-MNIST, by the shipped rules and reducer.

Which records a device trains on follows from its virtual clock (:mod:`benchmarks.streams_clock`): where what is left is
thrown away it never sees it. The network has a batch normalisation, whose means and variances each device takes from
its own batch, as those of the paper do; it is what devices with other labels disagree on (Hsieh et al., 2020). Test
images are normalised by means and variances over all devices' samples.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec
import numpy as np
import torch

from aiops.collective.reducer import Reducer
from aiops.data.base import Dataset
from aiops.data.split import partition
from aiops.policy.batch import BASE
from aiops.policy.injection import Injection
from aiops.policy.learning_rate import LearningRate
from aiops.policy.stream import Device, Draw
from benchmarks.lockstep import CLASSES, PIXELS, Buffers, Flat, Floats, exchange, samples
from benchmarks.streams_clock import Clock, Span, shipping
from benchmarks.streams_method import Method, Setting, Task


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """One training.

    Attributes:
        setting: Devices and streams.
        label: How it was trained.
        lr: At which learning rate, of :data:`aiops.policy.batch.BASE` samples of each device.
        seed: Of everything that is random.
        slowest: Rate of the slowest stream, in samples/s.
        looks: Steps finished, at every look.
        accuracy: Of the test samples, at every look.
        seconds: Virtual ones, at every look.
        spans: Wait, compute and exchange of the devices on which the others waited, seconds of the whole training.
        samples: Of a step, of all devices, mean.
        compressed: Share of the steps that sent a part of the gradient only.
        megabytes: Through the busiest link in a step, of a gradient of full size, mean.
        injected_bytes: Of records through that link in a step, mean.
        held: Samples that all devices had waiting at the end, those that they train on among them.
        most: Samples that the devices had waiting at most.
        dropped: Share of the samples that was thrown away.
    """

    setting: str
    label: str
    lr: float
    seed: int
    slowest: float
    looks: list[int]
    accuracy: list[float]
    seconds: list[float]
    spans: Span
    samples: float
    compressed: float
    megabytes: float
    injected_bytes: float
    held: float
    most: float
    dropped: float


def module(hidden: int) -> torch.nn.Module:
    """Return the network, with torch's start values."""
    return torch.nn.Sequential(
        torch.nn.Flatten(),
        torch.nn.Linear(PIXELS, hidden, bias=False),
        torch.nn.BatchNorm1d(hidden),
        torch.nn.ReLU(),
        torch.nn.Linear(hidden, CLASSES),
    )


class Fleet(Flat):
    """The model that all devices hold, what each knows of its own samples, and their gradients.

    Args:
        task: What is trained.
        source: Its samples.
        setting: The devices.
        seed: Of the parameters and of the order of the samples.
    """

    def __init__(self, task: Task, source: Dataset, setting: Setting, seed: int) -> None:
        torch.manual_seed(seed)
        model = module(task.hidden)
        super().__init__(model, source, momentum=task.momentum, n_test=task.n_test)
        self._statistics = [
            {name: each.clone() for name, each in model.named_buffers()}
            for _ in range(setting.devices)
        ]
        self._shards = shards(source.y_train, setting, seed)
        self._seed = seed
        self._orders: dict[int, tuple[int, np.ndarray]] = {}

    def records(self, device: int, begin: int, count: int) -> np.ndarray:
        """Return which samples a device's stream brings as records ``begin`` and after it: its own again and again."""
        return np.array([self._record(device, place) for place in range(begin, begin + count)])

    def gradient(self, device: int, batch: np.ndarray) -> Floats:
        """Return a device's gradient at these samples, float32, shape (n,); the caller's."""
        x, y = self._train
        at = torch.from_numpy(batch)
        flat = self.parameters.requires_grad_()
        loss = self._loss(flat, x[at], y[at], self._statistics[device])
        (found,) = torch.autograd.grad(loss, flat)
        self.parameters.requires_grad_(False)
        return found.numpy()

    def look(self) -> float:
        """Return the accuracy with means and variances over the samples of all devices together."""
        return self.accuracy(pooled(self._statistics))

    def _record(self, device: int, place: int) -> int:
        shard = self._shards[device]
        turn, at = divmod(place, len(shard))
        if self._orders.get(device, (-1,))[0] != turn:
            rng = np.random.default_rng([self._seed, device, turn])
            self._orders[device] = turn, rng.permutation(shard)
        return int(self._orders[device][1][at])


def pooled(statistics: Sequence[Buffers]) -> dict[str, torch.Tensor]:
    """Return what a normalisation would know that had seen all devices' samples, as many of each."""
    names = statistics[0]
    whole = {name: torch.stack([one[name] for one in statistics]) for name in names}
    found = {name: each.double().mean(0).to(each.dtype) for name, each in whole.items()}
    for name in names:
        if name.endswith("running_var"):
            means = whole[name.replace("running_var", "running_mean")]
            found[name] += means.var(0, correction=0)
    return found


def shards(labels: np.ndarray, setting: Setting, seed: int) -> list[np.ndarray]:
    """Return the samples of each device: of all labels alike, or device r's of label r modulo their number."""
    if not setting.skewed:
        return list(partition(labels, setting.devices, seed=seed))
    return [np.flatnonzero(labels == device % CLASSES) for device in range(setting.devices)]


def train(task: Task, setting: Setting, method: Method, lr: float, seed: int) -> Result:
    """Train once.

    Args:
        task: What.
        setting: On which streams.
        method: How.
        lr: Learning rate of :data:`aiops.policy.batch.BASE` samples of each device.
        seed: Of everything that is random, the rates among it.
    """
    fleet, ranks = Fleet(task, samples(), setting, seed), setting.devices
    n = fleet.parameters.numel()
    group = [Reducer(method.config, n, rank=rank, ranks=ranks) for rank in range(ranks)]
    rates, link = setting.drawn(seed), setting.machine.link(n)
    clock = Clock(rates, truncates=method.truncates)
    injection = Injection(method.alpha, method.beta, seed)
    schedule = LearningRate(BASE * ranks)
    batches: Sequence[int] = [0] * ranks
    notes: list[Note] = []
    looks = [(0, fleet.look(), 0.0)]
    for step in range(task.steps):
        batches = method.rule(
            [Device(batch, rate) for batch, rate in zip(batches, rates, strict=True)]
        )
        draws = [injection.plan(step, batches, rank) for rank in range(ranks)]
        rows = [
            fleet.gradient(rank, batch)
            for rank, batch in enumerate(dealt(fleet, draws, clock.take(draws[0].own)))
        ]
        sizes = draws[0].batches
        dialogues = [
            each.reduce(row, samples=size if method.weighs else None)
            for each, row, size in zip(group, rows, sizes, strict=True)
        ]
        outcome, exchange_s = exchange(dialogues, rows, link)
        shipped_s, shipped_bytes = shipping(draws[0].shares)
        span = clock.step(
            [setting.machine.compute_s(size) for size in sizes], exchange_s + shipped_s
        )
        fleet.descend(rows[0], task.lr(lr, step) * schedule.factor(step, sum(sizes)))
        n_bytes = outcome.path.n_bytes * setting.machine.n / n
        notes.append(Note(span, sum(sizes), outcome.exchange.density < 1, n_bytes, shipped_bytes))
        if (step + 1) % task.evaluate == 0:
            looks.append((step + 1, fleet.look(), clock.now))
    return _result(setting, method, lr, seed, looks, notes, clock)


class Note(msgspec.Struct, frozen=True):
    """What is remembered of a step.

    Attributes:
        span: Its seconds.
        samples: Of all devices.
        compressed: Whether a part of the gradient was sent only.
        n_bytes: Of the gradient, through the busiest link.
        shipped_bytes: Of records, through that link.
    """

    span: Span
    samples: int
    compressed: bool
    n_bytes: float
    shipped_bytes: int


def dealt(fleet: Fleet, draws: Sequence[Draw], begins: Sequence[int]) -> list[np.ndarray]:
    """Return the samples that each device trains on: its own, and what others give.

    Args:
        fleet: Whose samples.
        draws: Of each device.
        begins: Which record of its stream is each one's first.
    """
    own = [
        fleet.records(rank, begin, draw.own[rank])
        for rank, (draw, begin) in enumerate(zip(draws, begins, strict=True))
    ]
    given = [each[list(draw.picks)] for each, draw in zip(own, draws, strict=True)]
    return [
        np.concatenate([mine, *(theirs for other, theirs in enumerate(given) if other != rank)])
        for rank, mine in enumerate(own)
    ]


def _result(
    setting: Setting,
    method: Method,
    lr: float,
    seed: int,
    looks: Sequence[tuple[int, float, float]],
    notes: Sequence[Note],
    clock: Clock,
) -> Result:
    steps = len(notes)
    trained = sum(note.samples for note in notes)
    dropped = sum(clock.dropped)
    return Result(
        setting=setting.name,
        label=method.label,
        lr=lr,
        seed=seed,
        slowest=min(setting.drawn(seed)),
        looks=[step for step, _, _ in looks],
        accuracy=[round(accuracy, 4) for _, accuracy, _ in looks],
        seconds=[round(seconds, 3) for _, _, seconds in looks],
        spans=Span(
            math.fsum(note.span.wait_s for note in notes),
            math.fsum(note.span.compute_s for note in notes),
            math.fsum(note.span.exchange_s for note in notes),
        ),
        samples=trained / steps,
        compressed=sum(note.compressed for note in notes) / steps,
        megabytes=math.fsum(note.n_bytes for note in notes) / steps / 1e6,
        injected_bytes=sum(note.shipped_bytes for note in notes) / steps,
        held=sum(clock.held),
        most=sum(clock.most),
        dropped=dropped / (dropped + trained),
    )
