"""What do a thousand workers cost? Runs of the virtual lab from ten workers to a thousand.

``python -m benchmarks.wan_scale [--workers 10,100,300,1000] [--rounds 100] [--methods nbsync,fedavg] [--json]``: each
run has a process of its own, one after the other. The links, frames, pushes and gradients are those of any run of the
virtual lab, on fashion-mnist.

- Server: CPU time inside the server's own code, from the first byte of a frame that its connection is given to the
  last action that comes of it, and in all of its tasks. The workers, their gradients and the emulated links are not in
  it; what the server copies into the link is.
- Held: the most that the server's buffer pool had out at once beside pushes that were still on their way in: the
  parameters, the sum that pushes are folded into as they come, and the push or the next parameters that are at it. It
  does not grow with the workers.
- Landing: the most that the pool had out for pushes on their way in. A push is merged whole or not at all, so that each
  line over which one is coming in needs room for it; how many are at a time is up to the links.
- Resident: the whole process. The data set, and every worker's vectors, which a real worker has in a process of its
  own, are most of it; see :func:`models_per_worker`.
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

from aiops.buffers import Block, BufferPool
from aiops.lab import virtual
from aiops.lab.method import Method
from aiops.lab.problem import Problem
from aiops.lab.scenario import Data, Link, Model, Scenario, Workers
from aiops.server.admission import AdmittedPush
from aiops.server.members import Member
from aiops.server.peer import Peer
from aiops.server.service import Service
from aiops.transport.memory import MemoryConnection
from aiops.wire.frame import Header, Kind
from aiops.wire.reader import Landing
from aiops.wire.session import Event

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
        held_bytes: The most that the server's pool had out beside pushes on their way in.
        landing_bytes: The most that it had out for those.
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


def count_server(clock: Clock) -> None:
    """Count the time of every server of this process from now on."""
    feed, guarded = MemoryConnection._feed, Service._guarded

    def counted_feed(self: MemoryConnection, data: memoryview) -> None:
        if isinstance(self._receiver, Peer):
            clock(feed, self, data)
        else:
            feed(self, data)

    async def counted_guarded(self: Service, work: Coroutine[Any, Any, None]) -> None:
        await Counted(guarded(self, work), clock)

    MemoryConnection._feed = counted_feed  # type: ignore[method-assign]
    Service._guarded = counted_guarded  # type: ignore[method-assign]


class Memory:
    """Tells what a pool holds from what it has out for pushes on their way in, in bytes of payload."""

    def __init__(self) -> None:
        self.held = self.landing = 0
        self._landing = self._out = 0
        take, place, give = BufferPool.take, Peer.place, BufferPool._give_back
        admit = AdmittedPush.__init__

        def took(pool: BufferPool, size_bytes: int) -> Block:
            block = take(pool, size_bytes)
            self._out += size_bytes
            self._look()
            return block

        def gave(pool: BufferPool, block: Block) -> None:
            self._out -= len(block)
            give(pool, block)

        def placed(peer: Peer, header: Header) -> Landing | None:
            # Room for a part of a push is no more than landing from the moment that it is taken.
            coming = header.size if header.kind is Kind.TENSOR else 0
            self._landing += coming
            self.landing = max(self.landing, self._landing)
            return place(peer, header)

        def admitted(push: AdmittedPush, member: Member, peer: Peer, event: Event) -> None:
            admit(push, member, peer, event)
            self._landing -= push.unseen_bytes(())
            self._look()

        BufferPool.take = took  # type: ignore[method-assign]
        BufferPool._give_back = gave  # type: ignore[method-assign]
        Peer.place = placed  # type: ignore[method-assign]
        AdmittedPush.__init__ = admitted  # type: ignore[method-assign]

    def _look(self) -> None:
        self.held = max(self.held, self._out - self._landing)


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
    count_server(clock)
    memory = Memory()
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
        held_bytes=memory.held,
        landing_bytes=memory.landing,
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
        f"{'server ms/round':>17}{'us/push':>9}{'held MB':>9}"
        f"{'landing MB':>12}{'RSS MB':>8}{'models/worker':>15}{'acc':>7}"
    )
    for row in rows:
        yield (
            f"{row.method:<8}{row.workers:>8}{row.wall_s:>9.1f}{row.cpu_s:>9.1f}{row.rounds:>8}{row.steps:>9}"
            f"{row.cpu_s / row.steps * 1e6:>9.0f}{row.server_s * 1e3:>17.2f}"
            f"{row.server_s / row.workers * 1e6:>9.1f}{row.held_bytes / 1e6:>9.3f}"
            f"{row.landing_bytes / 1e6:>12.2f}{row.peak_bytes / 1e6:>8.0f}"
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
                given = (name, count, arguments.rounds, arguments.hidden)
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
    parser.add_argument("--methods", default=",".join(METHODS), help="some of them")
    parser.add_argument("--json", action="store_true", help="print the rows as JSON")
    arguments = parser.parse_args()
    rows = run(arguments)
    if arguments.json:
        print(msgspec.json.encode(rows).decode())


if __name__ == "__main__":
    main()
