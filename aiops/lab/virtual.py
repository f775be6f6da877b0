"""The virtual lab: the shipped server, client and policies on a virtual clock, with real gradients.

Links are computed: a message takes its bytes over the rate plus the delay, and TCP is not there. A run repeats bit for
bit.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable

import msgspec
import numpy as np
from numpy.typing import NDArray

from aiops.errors import ConfigError
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
) -> Record:
    """Run one method once, in virtual time.

    Args:
        scenario: What is run.
        method: One of its methods.
        seed: Seed of model and batches.
        problem: The scenario's problem, if it is at hand.
        tell: Hears of every evaluation.
        give_up_s: A shorter budget than the scenario's, in seconds.

    Raises:
        ConfigError: The scenario has what the virtual lab cannot do.
    """
    _check(scenario)
    problem = problem or Problem(scenario)
    loop = VirtualLoop()
    budget_s = min(scenario.budget_s, give_up_s or scenario.budget_s)
    started = time.perf_counter()

    async def whole() -> Record:
        return await _Run(scenario, method, seed, problem, tell, budget_s).run()

    try:
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
        budget_s: float,
    ) -> None:
        self._scenario, self._method, self._seed, self._problem = scenario, method, seed, problem
        self._tell, self._budget_s = tell, budget_s
        n = scenario.workers.count
        self._lines = [_lines(scenario.link_of(worker)) for worker in range(n)]
        self._trainees = [
            Trainee(scenario, problem, worker, seed, method.lr) for worker in range(n)
        ]
        self._curve = Curve(scenario.target)
        self._ready: set[int] = set()
        self._start = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        # What went over each worker's connections before training, both ways.
        self._before = [(0, 0)] * n

    async def run(self) -> Record:
        config = self._method.config(self._scenario.workers.count, QUIET)
        async with Cluster(params=self._params(), config=config) as cluster:
            try:
                async with asyncio.TaskGroup() as group:
                    tasks = [group.create_task(self._work(cluster, t)) for t in self._trainees]
                    await self._start.wait()
                    started = self._loop.time()
                    self._before = self._traffic(cluster)
                    tasks.append(group.create_task(self._change(started)))
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
            await trainee.train(ps, lambda: self._begun(trainee.worker), self._start)

    def _begun(self, worker: int) -> None:
        self._ready.add(worker)
        if len(self._ready) == len(self._trainees):
            self._start.set()

    # Look at the model until the target is confirmed or the time is over.
    async def _watch(self, cluster: Cluster, started: float) -> None:
        version = 0
        while (at := self._loop.time() - started) < self._budget_s:
            if cluster.server.version > version:
                version = cluster.server.version
                accuracy, loss = self._problem.evaluate(cluster.server.service.store.vector())
                point = Point(at, version, accuracy, loss)
                self._curve.add(point)
                if self._tell is not None:
                    self._tell(point)
                if self._curve.reached is not None and self._scenario.stop_at_target:
                    return
            await asyncio.sleep(self._scenario.eval_s)

    async def _change(self, started: float) -> None:
        for change in self._scenario.changes:
            await asyncio.sleep(max(0.0, started + change.at_s - self._loop.time()))
            for worker, (up, down) in enumerate(self._lines):
                if change.applies_to(worker):
                    _apply(change, up, change.up_mbit)
                    _apply(change, down, change.down_mbit)

    def _params(self) -> dict[str, NDArray[np.float32]]:
        flat, at = self._problem.model.initial(self._seed), 0
        params = {}
        for spec in self._problem.model.specs:
            size = math.prod(spec.shape)
            params[spec.name] = flat[at : at + size].reshape(spec.shape)
            at += size
        return params

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
        )


def name_of(worker: int) -> str:
    """Return what a worker is called."""
    return f"worker-{worker}"


def _check(scenario: Scenario) -> None:
    links = [scenario.link_of(worker) for worker in range(scenario.workers.count)]
    losses = [link.loss for link in links] + [change.loss or 0.0 for change in scenario.changes]
    if any(losses):
        raise ConfigError(
            f"scenario {scenario.name!r} has links that lose {max(losses):g} of their packets: the virtual lab has "
            "no TCP that could suffer from it, use the real lab"
        )


def _lines(link: LinkSpec) -> tuple[Link, Link]:
    up, down = link.rates_mbit
    delay_s = link.delay_ms / 1e3
    return Link(delay_s, _payload_rate(up)), Link(delay_s, _payload_rate(down))


# Bytes of payload per second.
def _payload_rate(mbit: float) -> float:
    return mbit * 1e6 / 8 / LINE_OVERHEAD


def _apply(change: Change, line: Link, mbit: float | None) -> None:
    if mbit is not None:
        line.rate_bytes_s = _payload_rate(mbit)
    if change.delay_ms is not None:
        line.delay_s = change.delay_ms / 1e3


def _wire(link: LinkSpec) -> Wire:
    up, down = link.rates_mbit
    return Wire(kind="virtual", congestion="", up_mbit=up, down_mbit=down, delay_ms=link.delay_ms)
