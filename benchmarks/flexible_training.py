"""Ranks that train in lockstep on one processor: real gradients of Fashion-MNIST, exchanged by the shipped reducer.

What the messages take is computed from a network that changes over the training (:mod:`benchmarks.flexible_network`).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace

import msgspec
import numpy as np
import torch

from aiops.collective.meter import Meter
from aiops.collective.reducer import Outcome, Reducer
from aiops.collective.request import ROUTES, Path, Request, path
from aiops.config.exchange import ExchangeConfig
from aiops.data.base import Dataset
from aiops.policy.exchange import Network
from benchmarks.lockstep import CLASSES, PIXELS, Flat, Floats, exchange, samples
from benchmarks.trainings import arrival

INSTANT = Network(0.0, 0.0)

# One look is noise: the target is reached when the mean of so many is.
LOOKS = 3


class Task(msgspec.Struct, frozen=True):
    """What is trained, and how.

    Attributes:
        hidden: Width of each hidden layer.
        batch: Samples of one rank's step.
        lr: Learning rate.
        momentum: Of the optimizer.
        epoch: Steps of what the network's schedules call an epoch.
        epochs: How many a training lasts.
        most: And how many if it has not reached the target by then; the network stays as it was at the last change.
        target: Test accuracy.
        evaluate: Steps between two looks at the test accuracy.
        n_test: Test samples that are looked at.
    """

    hidden: tuple[int, ...] = (128,)
    batch: int = 64
    lr: float = 0.05
    momentum: float = 0.9
    epoch: int = 30
    epochs: int = 50
    most: int = 90
    target: float = 0.86
    evaluate: int = 20
    n_test: int = 10_000

    @property
    def n(self) -> int:
        """Values of the gradient."""
        widths = (PIXELS, *self.hidden, CLASSES)
        return sum((before + 1) * width for before, width in itertools.pairwise(widths))


class Choice(msgspec.Struct, frozen=True):
    """How gradients are exchanged: a row of the table.

    Attributes:
        label: Its name.
        density: A density policy's spec.
        collectives: Names to choose from.
        select: Which values are selected.
    """

    label: str
    density: str
    collectives: tuple[str, ...]
    select: str = "largest"


class Step(msgspec.Struct, frozen=True):
    """What a step's exchange was.

    Attributes:
        collective: By which collective.
        density: k/n.
        gain: Energy sent over energy there.
        paths: What it costs the busiest link, hops and bytes, by its own route and by the others.
        reason: Why the next step's is another one; empty where it is not.
    """

    collective: str
    density: float
    gain: float
    paths: dict[str, tuple[int, float]]
    reason: str = ""

    @property
    def operator(self) -> str:
        """What was exchanged."""
        return self.collective.partition("_")[0]

    @property
    def route(self) -> str:
        """Along which edges."""
        return self.collective.partition("_")[2]


class Run(msgspec.Struct, frozen=True):
    """One training.

    Attributes:
        steps: Of each step.
        looks: Steps finished and test accuracy, at each look.
        n: Parameters.
    """

    steps: list[Step]
    looks: list[tuple[int, float]]
    n: int


class Replica(Flat):
    """The model that all ranks hold, and their gradients.

    Args:
        task: What is trained.
        source: Its samples.
        ranks: How many ranks there are; each has an equal share of the samples.
        seed: Of the parameters and of the order of the samples.
    """

    def __init__(self, task: Task, source: Dataset, ranks: int, seed: int) -> None:
        torch.manual_seed(seed)
        widths = (PIXELS, *task.hidden)
        layers: list[torch.nn.Module] = [torch.nn.Flatten()]
        for before, width in itertools.pairwise(widths):
            layers += [torch.nn.Linear(before, width), torch.nn.ReLU()]
        model = torch.nn.Sequential(*layers, torch.nn.Linear(widths[-1], CLASSES))
        super().__init__(model, source, momentum=task.momentum, n_test=task.n_test)
        self._batches = _batches(len(source.y_train), ranks, task.batch, seed)
        self._gradients = torch.func.vmap(
            torch.func.grad(self._loss), in_dims=(None, 0, 0), randomness="error"
        )

    def gradients(self) -> Floats:
        """Return the gradient of every rank's next batch, float32, shape (ranks, n); the caller's."""
        batch = next(self._batches)
        x, y = self._train
        rows = self._gradients(self.parameters, x[batch], y[batch])
        return np.ascontiguousarray(rows.numpy())


# Each rank's own samples in an order of their own, again and again: positions of shape (ranks, batch).
def _batches(samples: int, ranks: int, batch: int, seed: int) -> Iterator[torch.Tensor]:
    random = np.random.default_rng(seed)
    shards = random.permutation(samples)[: samples // ranks * ranks].reshape(ranks, -1)
    while True:
        order = random.permuted(shards, axis=1)
        for at in range(0, order.shape[1] - batch + 1, batch):
            yield torch.from_numpy(order[:, at : at + batch].copy())


def train(
    task: Task,
    choice: Choice,
    ranks: int,
    seed: int,
    *,
    network: Callable[[int], Network] = lambda step: INSTANT,
    compute_s: float = 0.0,
) -> Run:
    """Train once.

    Args:
        task: What.
        choice: How gradients are exchanged.
        ranks: How many ranks.
        seed: Of everything that is random.
        network: What the links are like in a step, counted from 0; only what follows the network sees it.
        compute_s: Virtual seconds of a step without its exchange.

    Raises:
        RuntimeError: The ranks' gradients differ after their exchange.
    """
    replica = Replica(task, samples(), ranks, seed)
    config = ExchangeConfig.parse(
        density=choice.density, collectives=choice.collectives, select=choice.select
    )
    n = replica.parameters.numel()
    group = [
        Reducer(config, n, rank=rank, ranks=ranks, layers=replica.sizes) for rank in range(ranks)
    ]
    steps: list[Step] = []
    seen: list[tuple[int, float]] = [(0, replica.accuracy())]
    for step in range(task.most * task.epoch):
        rows = replica.gradients()
        routes = Routes(ranks)
        dialogues = [
            each.reduce(row, compute_s=compute_s) for each, row in zip(group, rows, strict=True)
        ]
        dialogues[0] = routes.watch(dialogues[0])
        outcome, _ = exchange(dialogues, rows, network(step))
        replica.descend(rows[0], task.lr)
        steps.append(_step(outcome, routes.paths))
        if (step + 1) % task.evaluate == 0:
            seen.append((step + 1, replica.accuracy()))
            late = step + 1 >= task.epochs * task.epoch
            if late and arrival([accuracy for _, accuracy in seen], task.target, LOOKS) is not None:
                break
    return Run(steps, seen, n)


def _step(outcome: Outcome, paths: dict[str, Path]) -> Step:
    return Step(
        outcome.exchange.collective,
        outcome.exchange.density,
        outcome.gain,
        {route: (cost.hops, cost.n_bytes) for route, cost in paths.items()},
        outcome.change.reason if outcome.change is not None else "",
    )


class Routes(Meter):
    """Adds up what the requests of a step cost, by their own route and by the others."""

    def __init__(self, ranks: int) -> None:
        super().__init__(ranks)
        self.paths = dict.fromkeys(ROUTES, Path(0, 0.0))

    def add(self, request: Request, seconds: float) -> None:
        """Count one request."""
        for name, route in ROUTES.items():
            rerouted = replace(request, route=route) if hasattr(request, "route") else request
            self.paths[name] += path(rerouted, self._ranks)
