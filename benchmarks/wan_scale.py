"""What do a thousand workers cost? Runs of the virtual lab from ten workers to a thousand.

``python -m benchmarks.wan_scale [--workers 10,100,300,1000] [--rounds 100] [--methods nbsync,fedavg] [--json]``: each
run has a process of its own, one after the other. The links, frames, pushes and gradients are those of any run of the
virtual lab, on fashion-mnist.

- Server: CPU time inside the server's own code, from the first byte of a frame that its connection is given to the
  last action that comes of it, and in all of its tasks. The workers, their gradients and the emulated links are not in
  it; what the server copies into the link is.
- Pool: the most that the server's buffer pool had out at once. Pushes are folded into one sum as they come.
- Resident: the whole process. The data set, and every worker's vectors, which a real worker has in a process of its
  own, are most of it; see :func:`inherent_bytes`.
"""

from __future__ import annotations

import argparse
import multiprocessing
import resource
import time
from collections.abc import Callable, Coroutine, Generator, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import msgspec
import numpy as np

from aiops.lab import virtual
from aiops.lab.method import Method
from aiops.lab.problem import Problem
from aiops.lab.scenario import Data, Link, Model, Scenario, Workers
from aiops.server.peer import Peer
from aiops.server.service import Service
from aiops.transport.memory import MemoryConnection

WORKERS = (10, 100, 300, 1000)
ROUNDS = 100

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
        pool_bytes: The most that the server's pool had out.
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
    pool_bytes: int
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


class Clock:
    """Counts the CPU time of code that may call itself."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._depth = 0

    def __call__(self, work: Callable[..., Any], *args: Any) -> Any:
        """Return ``work(*args)``."""
        if self._depth:
            return work(*args)
        self._depth, start = 1, time.thread_time()
        try:
            return work(*args)
        finally:
            self.seconds += time.thread_time() - start
            self._depth = 0


class Counted:
    """A coroutine whose own time is counted, and not that of what it waits for."""

    def __init__(self, work: Coroutine[Any, Any, Any], clock: Clock) -> None:
        self._work, self._clock = work, clock

    def __await__(self) -> Generator[Any, Any, Any]:
        """Run it step by step."""
        give: Callable[..., Any] = self._work.send
        args: tuple[Any, ...] = (None,)
        while True:
            try:
                asked = self._clock(give, *args)
            except StopIteration as ended:
                return ended.value
            try:
                give, args = self._work.send, ((yield asked),)
            except BaseException as error:
                give, args = self._work.throw, (error,)


def count_server(clock: Clock) -> list[Service]:
    """Count the time of every server of this process from now on; return where they are noted."""
    found: list[Service] = []
    feed, guarded, begin = MemoryConnection._feed, Service._guarded, Service.__init__

    def counted_feed(self: MemoryConnection, data: memoryview) -> None:
        if isinstance(self._receiver, Peer):
            clock(feed, self, data)
        else:
            feed(self, data)

    async def counted_guarded(self: Service, work: Coroutine[Any, Any, None]) -> None:
        await Counted(guarded(self, work), clock)

    def noted(self: Service, *args: Any, **named: Any) -> None:
        begin(self, *args, **named)
        found.append(self)

    MemoryConnection._feed = counted_feed  # type: ignore[method-assign]
    Service._guarded = counted_guarded  # type: ignore[method-assign]
    Service.__init__ = noted  # type: ignore[method-assign]
    return found


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


def measure(name: str, workers: int, rounds: int, hidden: int) -> Row:
    """Run one method once, in this process."""
    chosen = scenario(workers, hidden)
    problem = Problem(chosen)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    clock = Clock()
    services = count_server(clock)
    wall, cpu = time.perf_counter(), time.process_time()
    record = virtual.run(chosen, METHODS[name], 0, problem=problem, rounds=rounds)
    return Row(
        method=name,
        workers=workers,
        n_values=record.n_values,
        wall_s=time.perf_counter() - wall,
        cpu_s=time.process_time() - cpu,
        rounds=record.rounds,
        steps=sum(worker.n_steps for worker in record.workers),
        server_s=clock.seconds / record.rounds,
        pool_bytes=services[0].pool.peak_bytes,
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


def inherent_bytes(row: Row, vectors: int) -> int:
    """Return what so many model-sized vectors of every worker take."""
    return row.workers * vectors * 4 * row.n_values


def table(rows: Sequence[Row]) -> Iterator[str]:
    """Yield lines for people."""
    yield (
        f"{'':<8}{'workers':>8}{'wall s':>9}{'CPU s':>9}{'rounds':>8}{'steps':>9}{'us/step':>9}"
        f"{'server ms/round':>17}{'us/push':>9}{'pool MB':>9}{'RSS MB':>8}{'models/worker':>15}{'acc':>7}"
    )
    for row in rows:
        grown = row.peak_bytes - row.before_bytes
        yield (
            f"{row.method:<8}{row.workers:>8}{row.wall_s:>9.1f}{row.cpu_s:>9.1f}{row.rounds:>8}{row.steps:>9}"
            f"{row.cpu_s / row.steps * 1e6:>9.0f}{row.server_s * 1e3:>17.2f}"
            f"{row.server_s / row.workers * 1e6:>9.1f}{row.pool_bytes / 1e6:>9.2f}"
            f"{row.peak_bytes / 1e6:>8.0f}{grown / inherent_bytes(row, 1):>15.1f}{row.accuracy:>7.3f}"
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
                given = (name, count, arguments.rounds, arguments.hidden)
                mine.append(apart.submit(measure, *given).result())
            if not arguments.json:
                print("\n".join(list(table(mine))[-1:] if len(mine) < 3 else []), flush=True)
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
    parser.add_argument("--methods", default=",".join(METHODS), help="some of them")
    parser.add_argument("--json", action="store_true", help="print the rows as JSON")
    arguments = parser.parse_args()
    rows = run(arguments)
    if arguments.json:
        print(msgspec.json.encode(rows).decode())


if __name__ == "__main__":
    main()
