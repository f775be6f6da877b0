"""Where do methods end up that train on, once time is no longer what counts?

``python -m benchmarks.wan_accuracy [--seconds 60] [--seeds 5] [--json] [--processes N]``: the virtual lab on
Fashion-MNIST, six workers, one four times as slow.

- On IID data NBSync runs for so many virtual seconds, and SSGD for as many samples; SSGD's links and workers are fast
  here, which changes how long it takes but not one of its bits.
- Under label skew NBSync runs with and without two-way Top-k for the same time.

Accuracy is the mean over the last ten versions looked at, on 10,000 test samples: one version is noise.
"""

from __future__ import annotations

import argparse
import asyncio
import math
from collections.abc import Iterator, Sequence

import msgspec

from aiops.lab.fleet import Fleet
from aiops.lab.job import Job
from aiops.lab.method import Method
from aiops.lab.record import Record
from aiops.lab.scenario import Link, Scenario
from benchmarks import wan_cells as cells

LAST = 10
# Nobody gets there: runs go on to their end.
UNREACHABLE = 0.999
TOPK = {"codec": "topk_int8:0.05", "down": "topk_int8:0.1"}


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One method with one learning rate.

    Attributes:
        data: "iid" or the Dirichlet concentration.
        label: Which method.
        lr: Learning rate.
        samples: Training samples used, mean over the seeds.
        accuracies: By seed.
    """

    data: str
    label: str
    lr: float
    samples: float
    accuracies: tuple[float, ...]

    @property
    def mean(self) -> float:
        """Mean accuracy over the seeds."""
        return math.fsum(self.accuracies) / len(self.accuracies)


def _training(alpha: float | None, seconds: float) -> Scenario:
    base = cells.cell(20.0, alpha=alpha, budget_s=seconds)
    data = msgspec.structs.replace(base.data, n_test=10_000)
    return msgspec.structs.replace(base, data=data, target=UNREACHABLE)


# The same problem as fast as can be, for a method whose bits do not depend on time.
def _fast(scenario: Scenario, seconds: float) -> Scenario:
    workers = msgspec.structs.replace(scenario.workers, slowdown=(1.0,) * scenario.workers.count)
    return msgspec.structs.replace(
        scenario, workers=workers, link=Link(up_mbit=1e5, delay_ms=0.01), budget_s=seconds
    )


def _ours(label: str, optimizer: str, lr: float, **settings: object) -> Method:
    work = "fill_the_sync:8"
    merged = {**cells.PLAN, "work": work, "optimizer": optimizer, **settings}
    return Method(label=label, algorithm="nbsync", lr=lr, settings=merged)


def jobs(seconds: float) -> Iterator[tuple[str, Scenario, Method]]:
    """Yield what is run, by data."""
    same, skewed = _training(None, seconds), _training(0.3, seconds)
    n_steps = seconds / cells.STEP_S * sum(1 / slow for slow in same.workers.slowdown)
    # A round of SSGD is one step here, and next to nothing else.
    fast = _fast(same, n_steps / same.workers.count * cells.STEP_S * 1.02)
    for lr in (0.1, 0.2, 0.4):
        yield "iid", fast, Method(label="ssgd", algorithm="ssgd", lr=lr)
    streamed = {"stream_bytes": cells.CHUNK_BYTES}
    for lr in (0.1, 0.2):
        yield "iid", same, _ours("nbsync", "sgd", lr)
    for lr in (0.05, 0.1):
        yield "iid", same, _ours("nbsync stream outer", "nesterov:0.5,0.8", lr, **streamed)
    for lr in (0.05, 0.1):
        yield "0.3", skewed, _ours("nbsync outer", "nesterov:0.7,0.6", lr)
        yield "0.3", skewed, _ours("nbsync outer topk", "nesterov:0.7,0.6", lr, **TOPK)


async def run(seconds: float, seeds: Sequence[int], processes: int | None) -> list[Row]:
    """Run everything and return a row per method and learning rate."""
    todo = list(jobs(seconds))
    async with Fleet(processes) as fleet:
        records = await fleet.run_all(
            [
                Job(scenario=one, method=method, seed=seed)
                for _, one, method in todo
                for seed in seeds
            ]
        )
    n = len(seeds)
    return [
        _row(data, scenario, method, records[at * n : (at + 1) * n])
        for at, (data, scenario, method) in enumerate(todo)
    ]


def _row(data: str, scenario: Scenario, method: Method, records: Sequence[Record]) -> Row:
    return Row(
        data=data,
        label=method.label,
        lr=method.lr,
        samples=scenario.data.batch * sum(record.n_steps for record in records) / len(records),
        accuracies=tuple(_last(record) for record in records),
    )


def _last(record: Record) -> float:
    points = record.points[-LAST:]
    return math.fsum(point.accuracy for point in points) / len(points)


def table(rows: Sequence[Row]) -> Iterator[str]:
    """Yield the lines of a table."""
    yield f"{'data':<6}{'':<26}{'lr':>6}{'samples':>12}{'accuracy':>10}{'lowest':>9}{'highest':>9}"
    for row in rows:
        yield (
            f"{row.data:<6}{row.label:<26}{row.lr:>6g}{row.samples:>12,.0f}{row.mean:>10.4f}"
            f"{min(row.accuracies):>9.4f}{max(row.accuracies):>9.4f}"
        )


def main() -> None:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.wan_accuracy", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="virtual seconds of training")
    parser.add_argument("--seeds", type=int, default=5, help="how many")
    parser.add_argument("--processes", type=int, help="runs at the same time; as many as cores")
    parser.add_argument("--json", action="store_true", help="print the rows as JSON")
    arguments = parser.parse_args()
    rows = asyncio.run(run(arguments.seconds, range(arguments.seeds), arguments.processes))
    print(msgspec.json.encode(rows).decode() if arguments.json else "\n".join(table(rows)))


if __name__ == "__main__":
    main()
