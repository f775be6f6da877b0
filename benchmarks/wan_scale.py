"""What do a thousand workers cost? Runs of the virtual lab from ten workers to a thousand.

``python -m benchmarks.wan_scale [--workers 10,100,300,1000] [--rounds 100] [--methods nbsync,fedavg] [--landing 32]
[--json]``: each run has a process of its own, one after the other. The links, frames, pushes and gradients are those of
any run of the virtual lab, on fashion-mnist.

- Server: CPU time inside the server's own code, from the first byte of a frame that its connection is given to the
  last action that comes of it, and in all of its tasks. The workers, their gradients and the emulated links are not in
  it; what the server copies into the link is.
- Held: the most that the server's buffer pool had out at once beside pushes that were still on their way in: the
  parameters, the sum that pushes are folded into as they come, and the push or the next parameters that are at it. It
  does not grow with the workers.
- Landing: the most that the pool had out for pushes on their way in. A push is merged whole or not at all, so that each
  line over which one is coming in needs room for it: how many may at a time is ``--landing``, in models, and up to the
  links where that is 0.
- Resident: the whole process. The data set, and every worker's vectors, which a real worker has in a process of its
  own, are most of it; see :func:`models_per_worker`.
"""

from __future__ import annotations

import argparse
import multiprocessing
import resource
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor

import msgspec
import numpy as np

from aiops.lab import virtual
from aiops.lab.method import Method
from aiops.lab.problem import Problem
from aiops.lab.scenario import Data, Link, Model, Scenario, Workers
from benchmarks.server_cost import Clock, Memory, count_server

WORKERS = (10, 100, 300, 1000)
ROUNDS = 100

# Pushes that may be on their way in at once. A thousand workers' pushes take 0.04 s each on their lines.
LANDING = 32

# Both take uniform means of equal shares, folded as they come.
METHODS = {
    "nbsync": Method(
        label="nbsync",
        algorithm="nbsync",
        lr=0.05,
        settings={
            "sync": "bulk:1",
            "weights": "by_data",
            "merge": "partial:0.5",
            "fold": "arrival",
        },
    ),
    "fedavg": Method(
        label="fedavg",
        algorithm="fedavg",
        lr=0.05,
        settings={"weights": "by_data", "work": "fixed:4", "fold": "arrival"},
    ),
}


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One run.

    Attributes:
        method: Whose.
        workers: How many.
        n_values: Parameters of the model.
        wall_s: Time that the run took, with the set-up of its workers, without the reading of the data.
        cpu_s: The process's CPU time in it.
        rounds: Versions made.
        steps: Local steps, all workers.
        server_s: CPU time in the server's code per round.
        held_bytes: The most that the server's pool had out beside pushes on their way in.
        landing_bytes: The most that it had out for those.
        limit_bytes: The most that it was told to have; None is no limit.
        round_s: Time of a round on the workers' clock, the start of the run included.
        before_bytes: Resident memory before the run: interpreter, libraries, data.
        peak_bytes: The most resident memory.
        accuracy: Of the last version looked at.
    """

    method: str
    workers: int
    n_values: int
    wall_s: float
    cpu_s: float
    rounds: int
    steps: int
    server_s: float
    held_bytes: int
    landing_bytes: int
    limit_bytes: int | None
    round_s: float
    before_bytes: int
    peak_bytes: int
    accuracy: float


class Growth(msgspec.Struct, frozen=True):
    """A straight line through the server's times: seconds per worker and round, seconds per round, and R squared.

    ``exponent`` is the slope in logarithms: 1 is linear, 2 quadratic.
    """

    slope: float
    intercept: float
    r2: float
    exponent: float


def scenario(workers: int, hidden: int) -> Scenario:
    """Return a scenario with so many workers on 20 Mbit/s lines, one of four of which is half as fast."""
    slowdown = tuple(2.0 if worker % 4 == 3 else 1.0 for worker in range(workers))
    return Scenario(
        name=f"scale-{workers}",
        target=0.99,
        budget_s=1e6,
        eval_s=5.0,
        data=Data(n_test=1000, alpha="iid"),
        model=Model(hidden=(hidden,)),
        workers=Workers(count=workers, step_s=0.06, slowdown=slowdown),
        link=Link(up_mbit=20.0, delay_ms=25.0),
    )


def bounded(method: Method, limit_bytes: int | None) -> Method:
    """Return a method whose server lets no more bytes of pushes be on their way in at once; None is no limit."""
    if limit_bytes is None:
        return method
    settings = {**method.settings, "landing_bytes": limit_bytes}
    return msgspec.structs.replace(method, settings=settings)


def measure(name: str, workers: int, rounds: int, hidden: int, landing: int) -> Row:
    """Run one method once, in this process, with room for ``landing`` models on their way in; 0 is no limit."""
    chosen = scenario(workers, hidden)
    problem = Problem(chosen)
    limit = 4 * problem.size * landing or None
    method = bounded(METHODS[name], limit)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    clock = Clock()
    count_server(clock)
    memory = Memory()
    wall, cpu = time.perf_counter(), time.process_time()
    record = virtual.run(chosen, method, 0, problem=problem, rounds=rounds)
    return Row(
        method=name,
        workers=workers,
        n_values=record.n_values,
        wall_s=time.perf_counter() - wall,
        cpu_s=time.process_time() - cpu,
        rounds=record.rounds,
        steps=sum(worker.n_steps for worker in record.workers),
        server_s=clock.seconds / record.rounds,
        held_bytes=memory.held,
        landing_bytes=memory.landing,
        limit_bytes=limit,
        round_s=record.ended_s / record.rounds,
        before_bytes=before,
        peak_bytes=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        accuracy=record.points[-1].accuracy,
    )


def growth(rows: Sequence[Row]) -> Growth:
    """Fit the server's time per round against the number of workers, by least squares."""
    n = np.array([row.workers for row in rows], float)
    spent = np.array([row.server_s for row in rows])
    slope, intercept = np.polyfit(n, spent, 1)
    rest = float(np.sum((spent - slope * n - intercept) ** 2))
    total = float(np.sum((spent - spent.mean()) ** 2))
    exponent = float(np.polyfit(np.log(n), np.log(spent), 1)[0])
    return Growth(float(slope), float(intercept), 1.0 - rest / total, exponent)


def models_per_worker(row: Row) -> float:
    """Return how many models a worker the process has grown by.

    Four of them are every worker's own: parameters, the model that its round started from, the update that it pushes,
    and the room that the next model arrives in; a real worker has them in a process of its own. What is on the links is
    one more each way, and what lands at the server another one, while it is under way.
    """
    return (row.peak_bytes - row.before_bytes) / (row.workers * 4 * row.n_values)


def table(rows: Sequence[Row]) -> Iterator[str]:
    """Yield lines for people."""
    yield (
        f"{'':<8}{'workers':>8}{'wall s':>9}{'CPU s':>9}{'rounds':>8}{'steps':>9}{'us/step':>9}"
        f"{'s/round':>9}{'server ms/round':>17}{'us/push':>9}{'held MB':>9}"
        f"{'landing MB':>12}{'limit':>8}{'RSS MB':>8}{'models/worker':>15}{'acc':>7}"
    )
    for row in rows:
        limit = "-" if row.limit_bytes is None else f"{row.limit_bytes / 1e6:.2f}"
        yield (
            f"{row.method:<8}{row.workers:>8}{row.wall_s:>9.1f}{row.cpu_s:>9.1f}{row.rounds:>8}{row.steps:>9}"
            f"{row.cpu_s / row.steps * 1e6:>9.0f}{row.round_s:>9.3f}{row.server_s * 1e3:>17.2f}"
            f"{row.server_s / row.workers * 1e6:>9.1f}{row.held_bytes / 1e6:>9.3f}"
            f"{row.landing_bytes / 1e6:>12.2f}{limit:>8}{row.peak_bytes / 1e6:>8.0f}"
            f"{models_per_worker(row):>15.1f}{row.accuracy:>7.3f}"
        )
    if len(rows) > 2:
        line = growth(rows)
        yield (
            f"{rows[0].method}: server time per round = {line.slope * 1e6:.1f} us a worker "
            f"{line.intercept * 1e3:+.2f} ms, R^2 {line.r2:.4f}, exponent {line.exponent:.2f}"
        )


def run(arguments: argparse.Namespace) -> list[Row]:
    """Run all of it, each in a fresh process, so that the memory of one is not another's."""
    rows: list[Row] = []
    for name in arguments.methods.split(","):
        mine = []
        for count in map(int, arguments.workers.split(",")):
            with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as apart:
                given = (name, count, arguments.rounds, arguments.hidden, arguments.landing)
                mine.append(apart.submit(measure, *given).result())
        if not arguments.json:
            print("\n".join(table(mine)), flush=True)
        rows += mine
    return rows


def main() -> None:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.wan_scale", description=__doc__)
    parser.add_argument("--workers", default=",".join(map(str, WORKERS)), help="numbers of workers")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="versions of each run")
    parser.add_argument("--hidden", type=int, default=32, help="width of the hidden layer")
    parser.add_argument("--landing", type=int, default=LANDING, help="models that may, 0 is any")
    parser.add_argument("--methods", default=",".join(METHODS), help="some of them")
    parser.add_argument("--json", action="store_true", help="print the rows as JSON")
    arguments = parser.parse_args()
    rows = run(arguments)
    if arguments.json:
        print(msgspec.json.encode(rows).decode())


if __name__ == "__main__":
    main()
