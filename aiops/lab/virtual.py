"""The virtual lab: the shipped server, client and policies on a virtual clock, with real gradients.

Links are computed: a message takes its bytes over the rate plus the delay, and TCP is not there. A run repeats bit for
bit.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import itertools
import random
import time
from collections.abc import Callable, Iterator

import msgspec
import numpy as np

from aiops.errors import ConfigError, NotFinite
from aiops.lab.method import Method
from aiops.lab.problem import Problem
from aiops.lab.record import Curve, Point, Record, Wire
from aiops.lab.scenario import LINE_OVERHEAD, Change, Scenario
from aiops.lab.scenario import Link as LinkSpec
from aiops.lab.training import Trainee
from aiops.sim.cluster import Cluster
from aiops.sim.virtual import VirtualLoop
from aiops.transport.memory import Link

Tell = Callable[[Point], None]

# Nobody gets lost here, and signs of life of a thousand workers would be most of the traffic.
QUIET = {"lease_s": 1e6, "heartbeat_s": 1e5, "idle_timeout_s": 1e6}


def run(
    scenario: Scenario,
    method: Method,
    seed: int,
    *,
    problem: Problem | None = None,
    tell: Tell | None = None,
    give_up_s: float | None = None,
    rounds: int | None = None,
) -> Record:
    """Run one method once, in virtual time.

    Args:
        scenario: What is run.
        method: One of its methods.
        seed: Seed of model and batches.
        problem: The scenario's problem, if it is at hand.
        tell: Hears of every evaluation.
        give_up_s: When to end a run that has not come to its target, in seconds; one that has may go on to confirm it.
        rounds: Versions after which training is over; None is never.

    Raises:
        ConfigError: The scenario has what the virtual lab cannot do.
    """
    check(scenario)
    problem = problem or Problem(scenario)
    loop = VirtualLoop()
    patience_s = scenario.budget_s if give_up_s is None else give_up_s
    started = time.perf_counter()

    async def whole() -> Record:
        return await _Run(scenario, method, seed, problem, tell, patience_s, rounds).run()

    try:
        # Numbers that grow beyond all bounds are the client's to find, with a sentence.
        with np.errstate(over="ignore", invalid="ignore"):
            record = loop.run_until_complete(whole())
    finally:
        loop.close()
    return msgspec.structs.replace(record, took_s=time.perf_counter() - started)


class _Run:
    def __init__(
        self,
        scenario: Scenario,
        method: Method,
        seed: int,
        problem: Problem,
        tell: Tell | None,
        patience_s: float,
        rounds: int | None,
    ) -> None:
        self._scenario, self._method, self._seed, self._problem = scenario, method, seed, problem
        self._tell, self._patience_s, self._rounds = tell, patience_s, rounds
        n = scenario.workers.count
        self._lines = [_lines(scenario.link_of(worker), worker, seed) for worker in range(n)]
        self._trainees = [
            Trainee(scenario, problem, worker, seed, method.lr) for worker in range(n)
        ]
        self._curve = Curve(scenario.target)
        self._ready: set[int] = set()
        self._start = asyncio.Event()
        self._failed = ""
        self._loop = asyncio.get_running_loop()
        # What went over each worker's connections before training, both ways.
        self._before = [(0, 0)] * n

    async def run(self) -> Record:
        config = self._method.config(self._scenario.workers.count, QUIET)
        model = self._problem.model
        async with Cluster(rounds=self._rounds, config=config) as cluster:
            cluster.server.service.seed(model.specs, model.initial(self._seed))
            try:
                async with asyncio.TaskGroup() as group:
                    tasks = [group.create_task(self._work(cluster, t)) for t in self._trainees]
                    await self._start.wait()
                    started = self._loop.time()
                    self._before = self._traffic(cluster)
                    tasks.append(group.create_task(self._change(started)))
                    with _left_alone():
                        await self._watch(cluster, started)
                    record = self._record(cluster, started)
                    for task in tasks:
                        task.cancel()
            except BaseExceptionGroup as errors:
                raise errors.exceptions[0] from None
        return record

    async def _work(self, cluster: Cluster, trainee: Trainee) -> None:
        up, down = self._lines[trainee.worker]
        async with cluster.worker(name_of(trainee.worker), up=up, down=down) as ps:
            try:
                await trainee.train(ps, lambda: self._begun(trainee.worker), self._start)
            except NotFinite as error:
                self._failed = f"training diverged: {error}"

    def _begun(self, worker: int) -> None:
        self._ready.add(worker)
        if len(self._ready) == len(self._trainees):
            self._start.set()

    # Look at the model until the target is confirmed, the time is over or training has diverged.
    async def _watch(self, cluster: Cluster, started: float) -> None:
        version, every_s = 0, self._scenario.eval_s
        for turn in itertools.count():
            # Multiplied, not added up: the n-th look is where it is expected.
            at = turn * every_s
            await asyncio.sleep(max(0.0, started + at - self._loop.time()))
            if cluster.server.version > version:
                version = cluster.server.version
                accuracy, loss = self._problem.evaluate(cluster.server.service.store.vector())
                point = Point(at, version, accuracy, loss)
                self._curve.add(point)
                if self._tell is not None:
                    self._tell(point)
                if self._curve.reached is not None and self._scenario.stop_at_target:
                    return
            if self._failed or at + every_s > self._limit_s or version == self._rounds:
                return

    @property
    def _limit_s(self) -> float:
        budget_s = self._scenario.budget_s
        return budget_s if self._curve.is_waiting else min(budget_s, self._patience_s)

    async def _change(self, started: float) -> None:
        for change in self._scenario.changes:
            await asyncio.sleep(max(0.0, started + change.at_s - self._loop.time()))
            for worker, (up, down) in enumerate(self._lines):
                if change.applies_to(worker):
                    _apply(change, up, change.up_mbit)
                    _apply(change, down, change.down_mbit)

    def _traffic(self, cluster: Cluster) -> list[tuple[int, int]]:
        counts = []
        for trainee in self._trainees:
            lines = cluster.connections.get(name_of(trainee.worker), [])
            counts.append((sum(c.sent_bytes for c in lines), sum(c.received_bytes for c in lines)))
        return counts

    def _record(self, cluster: Cluster, started: float) -> Record:
        now, reached = self._loop.time(), self._curve.reached
        traffic = zip(self._traffic(cluster), self._before, strict=True)
        moved = [(up - up0, down - down0) for (up, down), (up0, down0) in traffic]
        return Record(
            scenario=self._scenario.name,
            lab="virtual",
            method=self._method,
            seed=self._seed,
            n_values=self._problem.size,
            points=tuple(self._curve.points),
            ended_s=now - started,
            reached_s=reached.at if reached else None,
            reached_version=reached.version if reached else None,
            rounds=cluster.server.version,
            up_bytes=sum(up for up, _ in moved),
            down_bytes=sum(down for _, down in moved),
            workers=tuple(trainee.record(now) for trainee in self._trainees),
            wires=tuple(_wire(self._scenario.link_of(t.worker)) for t in self._trainees),
            failed=self._failed,
        )


# All that workers consist of lives to the end of a run. Looked through by the collector again and again, that of a
# thousand workers takes a seventh of it. What somebody else has frozen stays so.
@contextlib.contextmanager
def _left_alone() -> Iterator[None]:
    mine = not gc.get_freeze_count()
    if mine:
        gc.freeze()
    try:
        yield
    finally:
        if mine:
            gc.unfreeze()


def name_of(worker: int) -> str:
    """Return what a worker is called."""
    return f"worker-{worker}"


def check(scenario: Scenario) -> None:
    """Refuse what the virtual lab cannot do.

    Raises:
        ConfigError: The scenario has it.
    """
    links = [scenario.link_of(worker) for worker in range(scenario.workers.count)]
    losses = [link.loss for link in links] + [change.loss or 0.0 for change in scenario.changes]
    if any(losses):
        raise ConfigError(
            f"scenario {scenario.name!r} has links that lose {max(losses):g} of their packets: the virtual lab has "
            "no TCP that could suffer from it, use the real lab"
        )


def _lines(link: LinkSpec, worker: int, seed: int) -> tuple[Link, Link]:
    up, down = (
        Link(
            delay_s=link.delay_ms / 1e3,
            rate_bytes_s=_payload_rate(mbit),
            jitter_s=link.jitter_ms / 1e3,
            rng=random.Random(f"{way} {worker} {seed}"),
        )
        for way, mbit in zip(("up", "down"), link.rates_mbit, strict=True)
    )
    return up, down


# Bytes of payload per second.
def _payload_rate(mbit: float) -> float:
    return mbit * 1e6 / 8 / LINE_OVERHEAD


def _apply(change: Change, line: Link, mbit: float | None) -> None:
    if mbit is not None:
        line.rate_bytes_s = _payload_rate(mbit)
    if change.delay_ms is not None:
        line.delay_s = change.delay_ms / 1e3
    if change.jitter_ms is not None:
        line.jitter_s = change.jitter_ms / 1e3


def _wire(link: LinkSpec) -> Wire:
    up, down = link.rates_mbit
    return Wire(kind="virtual", congestion="", up_mbit=up, down_mbit=down, delay_ms=link.delay_ms)
