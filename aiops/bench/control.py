"""How long a control message takes while another worker pushes bulk, ours against bulk on the loop.

Ours is asked for its status by a second client; the bare loop (``peers/loop.py``) sends an empty message back.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable

import msgspec

import aiops
from aiops.bench.fleet import STARTING_S, Fleet, stop_all
from aiops.bench.harness import Spread, rotated
from aiops.bench.network import SAME, network
from aiops.bench.peers.base import Case, Sample, announce, end_with_parent
from aiops.bench.peers.loop import Loop
from aiops.bench.peers.table import peer
from aiops.bench.result import Miss, row
from aiops.bench.run import Bench
from aiops.errors import AiopsError
from aiops.launch.process import Child
from aiops.sync.thread import loop_factory

PROBES = 200
SPACING_S = 0.001
# Pushed at a time, so that the gaps between are rare.
ROUNDS = 4
KEYS = ("ours", "loop")


class _Probed:
    """A fleet that pushes, and a prober on another connection to its server."""

    def __init__(self, key: str, case: Case) -> None:
        self.key = key
        self.fleet = Fleet(key, case)
        self.idle: list[float] = []
        self.busy: list[float] = []
        self._case = case
        self._prober: Child

    async def start(self, stack: contextlib.AsyncExitStack) -> None:
        await self.fleet.start()
        if self.fleet.failed:
            raise AiopsError(self.fleet.failed)
        arguments = (self.key, msgspec.json.encode(self._case).decode(), self.fleet.address)
        child = Child("aiops.bench.control", arguments, name="prober")
        self._prober = await stack.enter_async_context(child)
        await self._prober.hear(STARTING_S)

    async def turn(self) -> None:
        self.idle.append(await self._probe())
        over = asyncio.Event()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._push(over))
            self.busy.append(await self._probe())
            over.set()

    async def _push(self, over: asyncio.Event) -> None:
        while not over.is_set():
            if await self.fleet.rounds(ROUNDS) is None:
                raise AiopsError(self.fleet.failed)

    async def _probe(self) -> float:
        await self._prober.say(str(PROBES).encode())
        line = await self._prober.hear(STARTING_S)
        return msgspec.json.decode(line, type=Sample).median_s


async def control(bench: Bench, suite: str, *, n_bytes: int, passes: int) -> None:
    """Measure round trips while nothing else moves, and while another worker pushes as fast as it can."""
    name = f"control round trip during pushes of {n_bytes // 1_000_000} MB"
    bench.view.say(f"{suite}: {name}")
    probed = [_Probed(key, bench.case(n_bytes)) for key in bench.available(suite, KEYS)]
    try:
        async with contextlib.AsyncExitStack() as stack:
            stack.push_async_callback(stop_all, [one.fleet for one in probed])
            with network(SAME) as in_force:
                for one in probed:
                    await one.start(stack)
            for turn in range(passes):
                for one in rotated(probed, turn):
                    await one.turn()
    except* AiopsError as errors:
        error = errors.exceptions[0]
        bench.view.warn(f"{name} failed: {error}")
        bench.put(Miss(bench=suite, case=name, peer="", reason=str(error)))
    else:
        _put(bench, suite, name, in_force, probed)


def _put(bench: Bench, suite: str, name: str, in_force: str, probed: list[_Probed]) -> None:
    ours = probed[0]
    for case, which in ((f"{name.partition(' during')[0]} while idle", "idle"), (name, "busy")):
        for one in probed:
            label, times, others = peer(one.key).name, getattr(one, which), getattr(ours, which)
            ratios = [time / other for time, other in zip(times, others, strict=True)]
            bench.put(row(suite, case, label, times, ratios=ratios, network=in_force))
    busy_us = Spread.of(ours.busy).median * 1e6
    bench.figure(suite, name, busy_us, "us, the median", "<= 100")
    for one in probed[1:]:
        better = Spread.of(their / our for their, our in zip(one.busy, ours.busy, strict=True))
        label = f"{name}, {peer(one.key).name} against ours"
        bench.figure(suite, label, better.median, "times as long", ">= 4")


@contextlib.asynccontextmanager
async def _asker(
    key: str, case: Case, address: str
) -> AsyncIterator[Callable[[], Awaitable[object]]]:
    if key == "ours":
        # Over TCP, as the bare loop is asked, and as the pusher beside it pushes.
        async with aiops.connect(address, name="prober", shared_memory=False) as ps:
            yield ps.status
        return
    pipe, done = await Loop.dial(case, address)

    def ask() -> Awaitable[object]:
        pipe.send(None)
        return done()

    yield ask


async def _probe(key: str, case: Case, address: str) -> None:
    async with _asker(key, case, address) as ask:
        announce("ready")
        while line := await asyncio.to_thread(sys.stdin.readline):
            times = []
            for _ in range(int(line)):
                await asyncio.sleep(SPACING_S)
                start = time.perf_counter()
                await ask()
                times.append(time.perf_counter() - start)
            sample = Sample(median_s=Spread.of(times).median, best_s=min(times))
            announce(msgspec.json.encode(sample).decode())


def main() -> None:
    """Be the prober."""
    end_with_parent()
    key, case, address = sys.argv[1:]
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(_probe(key, msgspec.json.decode(case, type=Case), address))


if __name__ == "__main__":
    main()
