"""Does an exchange that follows network and gradient reach an accuracy sooner than any that stays as it is?

``python -m benchmarks.flexible [--quick] [--json] [--ranks 8 4 2] [--seeds 3] [--out DIR] [--processes N]``: 8, 4 and 2
ranks train an MLP on Fashion-MNIST in lockstep, with the shipped reducer, while latency and bandwidth follow the
schedules C1 and C2 of "Flexible Communication for Optimal Distributed Learning over Unpredictable Networks" (Tyagi and
Swany, 2023). Messages are real; what they take is computed, as if the model had the size of ResNet50: bytes are so many
times more. In brackets the cost model's time for such a gradient.

A training lasts the schedule's 50 epochs, and up to 40 more where it has not come to the target by then. Rows are
dense, layer-wise Top-k, MSTopk, Top-k + AllGather, and AR-Topk with its three ways to choose a leader, each with fixed
densities and by the best of its routes; and what adapts: ours, the paper's knee, and GraVAC. Results that are in
``--out`` already are not run again. ``--quick`` is one seed of 8 ranks, with fewer steps and densities.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import msgspec

from aiops.config.exchange import COLLECTIVES
from benchmarks import flexible_result, flexible_view, trainings
from benchmarks.flexible_network import SCHEDULES
from benchmarks.flexible_result import Result
from benchmarks.flexible_training import Choice, Task

OUT = Path(__file__).parent / "results" / "flexible"
RANKS, SEEDS = (8, 4, 2), 3
DENSITIES, QUICK_DENSITIES = (0.1, 0.03, 0.01, 0.001), (0.1, 0.01)

# What is trained, and the accuracy that counts.
FULL = Task()
QUICK = Task(hidden=(64,), epoch=16, target=0.84)

OPERATORS = {
    "LWTopk": ("allgather_ring", "layerwise"),
    "MSTopk": ("allgather_ring", "mstopk"),
    "AG-Topk": ("allgather_ring", "largest"),
    "STAR-Topk": ("artopk_ring", "largest"),
    "VAR-Topk": ("var_ring", "largest"),
    "vote": ("vote_ring", "largest"),
}
OURS = "adaptive"
ADAPTIVE = {
    OURS: "adaptive",
    "adaptive knee": "adaptive_knee",
    "GraVAC": "gravac:0.001,0.1,0.7,100",
}


def fixed(densities: Sequence[float]) -> list[Choice]:
    """Return what never changes."""
    found = [Choice("dense", "fixed:1", ("dense_ring",))]
    for name, (collective, select) in OPERATORS.items():
        found += [
            Choice(f"{name} {density:g}", f"fixed:{density:g}", (collective,), select)
            for density in densities
        ]
    return found


def adaptive() -> list[Choice]:
    """Return what follows network or gradient, by any collective."""
    return [Choice(label, density, COLLECTIVES) for label, density in ADAPTIVE.items()]


def run(
    task: Task,
    ranks: int,
    seeds: Sequence[int],
    densities: Sequence[float],
    out: Path | None,
    processes: int,
) -> list[Result]:
    """Run what is not there yet, and return all."""
    jobs: dict[str, partial[Result]] = {}
    for seed in seeds:
        for choice in adaptive():
            for schedule in SCHEDULES:
                name = f"{ranks}-{choice.label}-{schedule}-{seed}"
                jobs[name] = partial(flexible_result.adaptive, task, choice, ranks, seed, schedule)
        for choice in fixed(densities):
            name = f"{ranks}-{choice.label}-{seed}"
            jobs[name] = partial(flexible_result.fixed, task, choice, ranks, seed)
    return trainings.run(jobs, Result, out, processes)


def main() -> None:
    """Parse the command line and run."""
    parser = trainings.options("flexible", __doc__, seeds=SEEDS)
    parser.add_argument("--ranks", type=int, nargs="+", default=RANKS, help="how many ranks")
    arguments = trainings.parse(parser)
    if min(arguments.ranks) < 2:
        parser.error(f"--ranks has {min(arguments.ranks)}, it must be at least 2")
    task = QUICK if arguments.quick else FULL
    out = arguments.out or (None if arguments.quick else OUT)
    rows = []
    for ranks in (8,) if arguments.quick else arguments.ranks:
        seeds = range(1 if arguments.quick else arguments.seeds)
        densities = QUICK_DENSITIES if arguments.quick else DENSITIES
        results = run(task, ranks, seeds, densities, out, arguments.processes)
        for schedule in SCHEDULES:
            rows += flexible_view.rows(results, schedule, task, OURS)
            if out is not None:
                flexible_view.draw(results, schedule, OURS, task, out / f"{schedule}-{ranks}.png")
    text = (
        msgspec.json.encode(rows).decode()
        if arguments.json
        else "\n".join(flexible_view.table(rows, task.target))
    )
    print(text)


if __name__ == "__main__":
    trainings.start(main)
