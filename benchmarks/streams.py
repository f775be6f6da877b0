"""Does training that follows its streams reach an accuracy sooner than plain synchronous SGD, and which part does it?

``python -m benchmarks.streams [--quick] [--json] [--seeds 3] [--rates S1 S2 S1' S2' VGG19] [--out DIR] [--processes N]
[--real]``: devices train on Fashion-MNIST as it streams in, at the rates of "ScaDLES: Scalable Deep Learning over
Streaming data at the Edge" (Tyagi and Swany, 2022), in lockstep with the shipped rules and reducer; seconds are
virtual, as if the model were the paper's ResNet152 or VGG19. "DDL" is the paper's baseline: 64 samples a device,
gradients that count alike and are sent whole, and everything that streams in is kept. Then ScaDLES, ScaDLES with one
part off, and with batches no larger than the baseline's.

These three are tuned on a seed of its own over the same learning rates; rows that lack a part have ScaDLES' rate.
Results that are in ``--out`` already are not run again. ``--real`` is nothing but three processes that train over Gloo
on streams twenty times as fast, which the full run does as well. ``--quick`` is one seed of S1' unless told otherwise,
with fewer steps and learning rates.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from aiops.policy.batch import BASE
from benchmarks import streams_real, streams_result, streams_view, trainings
from benchmarks.streams_clock import RESNET152, VGG19
from benchmarks.streams_method import HIGH, LOW, Method, Setting, Task
from benchmarks.streams_result import BASELINE, OURS
from benchmarks.streams_training import Result, train

OUT = Path(__file__).parent / "results" / "streams"
LARGE = "VGG19"
RATES, SEEDS, TUNING_SEED = ("S1", "S2", "S1'", "S2'", LARGE), 3, 1000
GRID, QUICK_GRID = (0.02, 0.05, 0.1, 0.2), (0.05, 0.1)
FULL, FULL_TARGET = Task(), 0.85
QUICK, QUICK_TARGET = Task(steps=240), 0.84
# Where each device has a label of its own, everybody gives a fifth of its batch, and batches are within a factor of 2:
# a stream of 8/s would give none of its label to the others. The paper's grid has fewer donors that give more, up to .5
# and .5, so that a batch is mostly of few labels.
SKEWED: dict[str, Any] = {"alpha": 1.0, "beta": 0.2, "low": 32, "high": 64}
# As many devices as labels; with like shares of all labels they are what those with one each are measured by.
CONTROL = 10

BOUNDED = f"batches of {LOW} to {BASE}"
DDL = Method(BASELINE, "fixed", weighs=False, truncates=False, compresses=False)


def settings(rates: Sequence[str]) -> list[Setting]:
    """Return the devices: 16 with like shares of the samples, 10 with a label each, and the paper's 25."""
    found = [Setting(name, 16, False, RESNET152) for name in rates if name != LARGE]
    found += [
        Setting(name, CONTROL, skewed, RESNET152)
        for name in rates
        if name != LARGE
        for skewed in (False, True)
    ]
    return [*found, Setting(LARGE, 25, False, VGG19)] if LARGE in rates else found


def methods(setting: Setting) -> list[Method]:
    """Return the rows: the baseline and ScaDLES, and but for what others are measured by, it without one part each."""
    told: dict[str, Any] = SKEWED if setting.skewed else {}
    found = [DDL, Method(OURS, **told)]
    if setting.devices == CONTROL and not setting.skewed:
        return found
    found += [
        Method("without batches", batches="fixed", **told),
        Method("without weights", weighs=False, **told),
        Method("without truncation", truncates=False, **told),
        Method("without compression", compresses=False, **told),
        Method("compressed by AllGather", sparse="allgather_ring", **told),
    ]
    if setting.skewed:
        bounds = {name: SKEWED[name] for name in ("low", "high")}
        found += [
            Method("without injection", **bounds),
            Method("batches of 8 to 1024", **told | {"low": LOW, "high": HIGH}),
            Method("injection of .5, .5", **told | {"alpha": 0.5, "beta": 0.5}),
        ]
    else:
        found.append(Method(BOUNDED, high=BASE))
    return found


def tune(
    task: Task, setting: Setting, grid: Sequence[float], target: float, out: Path | None, n: int
) -> dict[str, streams_result.Tuned]:
    """Return the learning rates that are chosen on a seed of their own, and all that was seen."""
    chosen = [method for method in methods(setting) if method.label in {BASELINE, OURS, BOUNDED}]
    jobs = {
        f"tuning-{setting.slug}-{method.label}-{lr:g}": partial(
            train, task, setting, method, lr, TUNING_SEED
        )
        for method in chosen
        for lr in grid
    }
    results = trainings.run(jobs, Result, out, n)
    return {
        method.label: streams_result.best(
            [one for one in results if one.label == method.label], target
        )
        for method in chosen
    }


def compare(
    task: Task,
    setting: Setting,
    tuned: dict[str, streams_result.Tuned],
    seeds: Sequence[int],
    out: Path | None,
    n: int,
) -> list[Result]:
    """Train by every method, from each seed."""
    jobs = {}
    for method in methods(setting):
        lr = tuned.get(method.label, tuned[OURS]).lr
        for seed in seeds:
            name = f"{setting.slug}-{method.label}-{lr:g}-{seed}"
            jobs[name] = partial(train, task, setting, method, lr, seed)
    return trainings.run(jobs, Result, out, n)


def main() -> None:
    """Parse the command line and run."""
    parser = trainings.options("streams", __doc__, seeds=SEEDS)
    parser.add_argument("--rates", nargs="+", choices=RATES, help="which streams; all of them")
    parser.add_argument("--real", action="store_true", help="real processes alone; a minute or two")
    arguments = trainings.parse(parser)
    quick = arguments.quick
    out = arguments.out or (None if quick else OUT)
    report = streams_result.Report([], [], [], [])
    if not arguments.real:
        task, target = (QUICK, QUICK_TARGET) if quick else (FULL, FULL_TARGET)
        seeds = range(1 if quick else arguments.seeds)
        chosen = settings(arguments.rates or (("S1'",) if quick else RATES))
        for setting in chosen:
            grid = QUICK_GRID if quick else GRID
            tuned = tune(task, setting, grid, target, out, arguments.processes)
            results = compare(task, setting, tuned, seeds, out, arguments.processes)
            report.add(setting, results, tuned, target)
            if out is not None:
                streams_view.draw(results, setting, target, out / f"{setting.slug}.png")
    if arguments.real or not quick:
        report.real.extend(streams_real.compare([DDL, Method(OURS)]))
    text = (
        msgspec.json.encode(report).decode()
        if arguments.json
        else "\n".join(streams_view.table(report))
    )
    print(text)


if __name__ == "__main__":
    trainings.start(main)
