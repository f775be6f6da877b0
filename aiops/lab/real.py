"""The real lab: a process per worker and one for the server, each in its own place of an emulated WAN.

Gradients, processes, sockets and TCP are real; compute time is padded on a schedule, and the links are emulated.
Validity gates reject what was not as the scenario says.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Sequence
from typing import Literal, Self

import msgspec
import numpy as np

from aiops.errors import ConfigError
from aiops.lab.line import congestion_of, links_of
from aiops.lab.method import Method
from aiops.lab.problem import Problem
from aiops.lab.record import Curve, Point, Record, Wire
from aiops.lab.scenario import Scenario
from aiops.lab.talk import GO, READY, STOP, Look, Seen, Serve, Serving, Train, Trained
from aiops.lab.wan.address import Place
from aiops.lab.wan.base import Kind, Wan
from aiops.lab.wan.counters import Counters
from aiops.lab.wan.door import open_wan
from aiops.lab.wan.gate import Verdict, check_lateness, check_step, late_between
from aiops.lab.wan.probe import examine
from aiops.launch.process import Child

Tell = Callable[[Point], None]

# Reading the data and connecting, on a loaded machine.
STARTING_S = 120.0
ANSWER_S = 30.0


class RealLab:
    """A WAN for the scenario's links, kept over many runs; use it as ``async with``.

    Args:
        scenario: Whose links; only their numbers are looked at.
        kind: How the WAN is made, see :func:`aiops.lab.wan.door.open_wan`.
        data_root: Where the data's files are; None searches the usual places.

    Attributes:
        verdict: What the links were like at the start.
    """

    verdict: Verdict

    def __init__(
        self,
        scenario: Scenario,
        *,
        kind: Kind | Literal["auto"] = "auto",
        data_root: str | None = None,
    ) -> None:
        self._scenario, self._kind, self._data_root = scenario, kind, data_root
        self._stack = contextlib.AsyncExitStack()
        self._wan: Wan
        self._problem: Problem

    async def __aenter__(self) -> Self:
        """Bring the WAN up and measure it.

        Raises:
            ConfigError: This machine cannot emulate such links.
        """
        scenario = self._scenario
        self._problem = Problem(scenario, data_root=self._data_root)
        self._wan = await self._stack.enter_async_context(
            open_wan(links_of(scenario), kind=self._kind, congestion=congestion_of(scenario))
        )
        try:
            self.verdict = await examine(self._wan)
        except BaseException:
            await self._stack.aclose()
            raise
        return self

    async def __aexit__(self, *exception: object) -> None:
        """Take the WAN down."""
        await self._stack.aclose()

    async def run(self, method: Method, seed: int, *, tell: Tell | None = None) -> Record:
        """Run one method once, in real time.

        Args:
            method: One of the scenario's methods.
            seed: Seed of model and batches.
            tell: Hears of every evaluation.

        Raises:
            ChildFailed: A process ended too soon; the run ends at once.
        """
        return await _Run(self._scenario, method, seed, self._problem, self._wan, tell).run(
            self.verdict, self._data_root
        )

    async def examine(self) -> Verdict:
        """Measure the links again, as they are at the start of a run."""
        await self._wan.begin()
        return await examine(self._wan)


class _Run:
    def __init__(
        self,
        scenario: Scenario,
        method: Method,
        seed: int,
        problem: Problem,
        wan: Wan,
        tell: Tell | None,
    ) -> None:
        self._scenario, self._method, self._seed = scenario, method, seed
        self._problem, self._wan, self._tell = problem, wan, tell
        self._curve = Curve(scenario.target)
        self._seen = self._first = Seen(version=0, flat=None, up_bytes=0, down_bytes=0)

    async def run(self, verdict: Verdict, data_root: str | None) -> Record:
        started = time.perf_counter()
        async with contextlib.AsyncExitStack() as stack:
            server = await self._start(stack, "server", "aiops.lab.real_server")
            await server.say(
                msgspec.json.encode(
                    Serve(
                        method=self._method,
                        n_workers=self._scenario.workers.count,
                        host=self._wan.server_host,
                    )
                )
            )
            port = msgspec.json.decode(await server.hear(STARTING_S), type=Serving).port
            workers = await self._make_workers(stack, port, data_root)
            await self._wan.begin()
            counted = await self._wan.counters()
            self._first = await self._look(server, 0)
            trained, ended_s = await self._train(server, workers)
            late = _lateness(counted, await self._wan.counters())
        return self._record(verdict, trained, late, ended_s, time.perf_counter() - started)

    # From the word to go until every worker has told what it measured. One that tells before it is asked to can train
    # no more, which ends the run; one that is gone ends it with a sentence.
    async def _train(self, server: Child, workers: Sequence[Child]) -> tuple[list[Trained], float]:
        longest_s = self._scenario.budget_s + 2 * ANSWER_S
        try:
            async with asyncio.TaskGroup() as group:
                ends = [group.create_task(worker.hear(longest_s)) for worker in workers]
                for worker in workers:
                    await worker.say(GO)
                begun = time.perf_counter()
                await self._watch(server, begun, ends)
                ended_s = time.perf_counter() - begun
                self._seen = await self._look(server, self._seen.version)
                for worker in workers:
                    await worker.say(STOP)
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from None
        return [msgspec.json.decode(end.result(), type=Trained) for end in ends], ended_s

    async def _start(self, stack: contextlib.AsyncExitStack, place: Place, module: str) -> Child:
        prefix = self._wan.command(place, [])
        name = place if isinstance(place, str) else f"worker {place}"
        return await stack.enter_async_context(Child(module, name=name, prefix=prefix))

    async def _make_workers(
        self, stack: contextlib.AsyncExitStack, port: int, data_root: str | None
    ) -> list[Child]:
        workers = []
        for index in range(self._scenario.workers.count):
            worker = await self._start(stack, index, "aiops.lab.real_worker")
            job = Train(
                scenario=self._scenario,
                method=self._method,
                seed=self._seed,
                worker=index,
                url=await self._wan.url_for(index, port),
                data_root=data_root,
            )
            await worker.say(msgspec.json.encode(job))
            workers.append(worker)
        for worker in workers:
            if msgspec.json.decode(await worker.hear(STARTING_S)) != READY:
                raise ConfigError(f"{worker.name} could not start")
        return workers

    async def _look(self, server: Child, version: int) -> Seen:
        await server.say(msgspec.json.encode(Look(version=version)))
        return msgspec.json.decode(await server.hear(ANSWER_S), type=Seen)

    # Look at the model until the target is confirmed, the time is over or a worker's training has ended.
    async def _watch(
        self, server: Child, begun: float, ends: Sequence[asyncio.Task[bytes]]
    ) -> None:
        scenario, due = self._scenario, begun
        while (at := time.perf_counter() - begun) < scenario.budget_s:
            self._seen = seen = await self._look(server, self._seen.version)
            if seen.flat is not None:
                flat = np.frombuffer(seen.flat, "<f4").astype(np.float32)
                accuracy, loss = await asyncio.to_thread(self._problem.evaluate, flat)
                point = Point(at, seen.version, accuracy, loss)
                self._curve.add(point)
                if self._tell is not None:
                    self._tell(point)
                if self._curve.reached is not None and scenario.stop_at_target:
                    return
            due = max(due + scenario.eval_s, time.perf_counter())
            left_s = max(0.0, due - time.perf_counter())
            done, _ = await asyncio.wait(ends, timeout=left_s, return_when=asyncio.FIRST_COMPLETED)
            if done:
                return

    def _record(
        self,
        verdict: Verdict,
        trained: Sequence[Trained],
        late: str | None,
        ended_s: float,
        took_s: float,
    ) -> Record:
        reached = self._curve.reached
        rejected = [*verdict.reasons, *([late] if late else [])]
        for worker, result in enumerate(trained):
            if result.error and not result.diverged:
                rejected.append(f"worker {worker} ended: {result.error}")
            target_s, step_s = result.record.target_step_s, result.record.step_s
            if target_s and step_s and (reason := check_step(target_s, step_s)):
                rejected.append(f"worker {worker}'s {reason}")
        return Record(
            scenario=self._scenario.name,
            lab="real",
            method=self._method,
            seed=self._seed,
            n_values=self._problem.size,
            points=tuple(self._curve.points),
            ended_s=ended_s,
            reached_s=reached.at if reached else None,
            reached_version=reached.version if reached else None,
            rounds=self._seen.version,
            up_bytes=self._seen.up_bytes - self._first.up_bytes,
            down_bytes=self._seen.down_bytes - self._first.down_bytes,
            workers=tuple(result.record for result in trained),
            wires=tuple(
                Wire(
                    kind=verdict.label,
                    congestion=verdict.congestion,
                    up_mbit=link.up_bits_s / 1e6,
                    down_mbit=link.down_bits_s / 1e6,
                    delay_ms=link.round_trip_s / 2 * 1e3,
                )
                for link in verdict.links
            ),
            rejected=tuple(rejected),
            failed=next((f"training diverged: {t.error}" for t in trained if t.diverged), ""),
            took_s=took_s,
        )


def _lateness(before: Counters | None, after: Counters | None) -> str | None:
    if before is None or after is None:
        return None
    return check_lateness(late_between(before, after))
