"""What a training took under each network: seconds at every look at its accuracy, and when it was at the target."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from aiops.config.exchange import POSITION_BYTES
from aiops.policy.cost import COSTS
from aiops.policy.exchange import Load, Network
from benchmarks.flexible_network import SCHEDULES, link
from benchmarks.flexible_training import Choice, Run, Step, Task, train

# What is meant: the paper's ResNet50, whose steps take about 60 ms beside their exchange (its Tables III and IV).
FULL_N = 25_557_032
COMPUTE_S = 0.06
MEGABYTE = 1e6


class Track(msgspec.Struct, frozen=True):
    """A training under one network.

    Attributes:
        schedule: Which.
        route: By which route all was sent; empty where routes were chosen.
        seconds: At every look: as computed from the messages that were sent, each as much larger as the model is.
        modelled: At every look: by the cost model for a gradient of that size.
    """

    schedule: str
    route: str
    seconds: list[float]
    modelled: list[float]


class Result(msgspec.Struct, frozen=True):
    """A training.

    Attributes:
        label: The row.
        ranks: How many.
        seed: Its seed.
        looks: Steps finished, at every look.
        accuracy: Of the test samples, at every look.
        gain: Mean share of the energy that was sent.
        megabytes: Mean of a step through the busiest link, by route, of a gradient of full size.
        tracks: Under each network.
        plans: From which step on by which collective at which density, and why.
    """

    label: str
    ranks: int
    seed: int
    looks: list[int]
    accuracy: list[float]
    gain: float
    megabytes: dict[str, float]
    tracks: list[Track]
    plans: list[tuple[int, str, float, str]]


def fixed(task: Task, choice: Choice, ranks: int, seed: int) -> Result:
    """Train with one collective and one density, which is the same under every network, and see what it takes."""
    run = train(task, choice, ranks, seed)
    tracks = [
        _track(run, task, ranks, schedule, route)
        for schedule in SCHEDULES
        for route in run.steps[0].paths
        if f"{run.steps[0].operator}_{route}" in COSTS
    ]
    return _result(run, choice.label, ranks, seed, tracks)


def adaptive(task: Task, choice: Choice, ranks: int, seed: int, schedule: str) -> Result:
    """Train with what follows the network, under one of them."""
    network = _links(task, schedule)
    run = train(task, choice, ranks, seed, network=network, compute_s=COMPUTE_S)
    return _result(run, choice.label, ranks, seed, [_track(run, task, ranks, schedule, "")])


# The network of a step when there is a message of the trained model's size, or of the full one.
def _links(task: Task, schedule: str, scale: float | None = None) -> Callable[[int], Network]:
    larger = FULL_N / task.n if scale is None else scale
    return lambda step: link(schedule, step / task.epoch, larger)


def _track(run: Run, task: Task, ranks: int, schedule: str, route: str) -> Track:
    network, full = _links(task, schedule), _links(task, schedule, 1.0)
    load = Load(FULL_N, ranks, POSITION_BYTES["elias"])
    sent, modelled = [0.0], [0.0]
    for at, step in enumerate(run.steps):
        hops, n_bytes = step.paths[route or step.route]
        here = network(at)
        sent.append(COMPUTE_S + hops * here.latency_s + n_bytes * here.byte_s)
        cost = COSTS[f"{step.operator}_{route or step.route}"]
        modelled.append(COMPUTE_S + cost(load, full(at), step.density))
    looks = [step for step, _ in run.looks]
    return Track(schedule, route, _at(sent, looks), _at(modelled, looks))


def _at(seconds: Sequence[float], looks: Sequence[int]) -> list[float]:
    total: NDArray[np.float64] = np.cumsum(seconds)
    return [round(float(total[step]), 3) for step in looks]


def _result(run: Run, label: str, ranks: int, seed: int, tracks: list[Track]) -> Result:
    routes = run.steps[0].paths
    scale = FULL_N / run.n / MEGABYTE
    return Result(
        label=label,
        ranks=ranks,
        seed=seed,
        looks=[step for step, _ in run.looks],
        accuracy=[round(accuracy, 4) for _, accuracy in run.looks],
        gain=round(math.fsum(step.gain for step in run.steps) / len(run.steps), 4),
        megabytes={route: round(_mean(run.steps, route) * scale, 3) for route in ("", *routes)},
        tracks=tracks,
        plans=_plans(run.steps),
    )


def _mean(steps: Sequence[Step], route: str) -> float:
    return math.fsum(step.paths[route or step.route][1] for step in steps) / len(steps)


def _plans(steps: Sequence[Step]) -> list[tuple[int, str, float, str]]:
    plans: list[tuple[int, str, float, str]] = []
    reason = "at first"
    for at, step in enumerate(steps):
        if not plans or plans[-1][1:3] != (step.collective, round(step.density, 6)):
            plans.append((at, step.collective, round(step.density, 6), reason))
        reason = step.reason or reason
    return plans
