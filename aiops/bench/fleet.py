"""One peer's processes for one case: a server and its workers, started once and kept waiting between turns."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Sequence

import msgspec

from aiops.bench.machine import cpu_s
from aiops.bench.peers.base import Case, Sample
from aiops.bench.peers.table import peer
from aiops.errors import AiopsError
from aiops.launch.process import Child

# Importing torch in a dozen processes at once, on two cores.
STARTING_S = 120.0

# A turn is well under a second; this is for a peer that hangs.
TURN_S = 60.0


class Fleet:
    """A server process and worker processes of one peer.

    Args:
        key: The peer's key in the table.
        case: What they are started for.

    Attributes:
        failed: Why it takes no part any more; "" while it does.
        address: Where its server is, once it is started.
    """

    def __init__(self, key: str, case: Case) -> None:
        self.failed = ""
        self.address = ""
        self._children: list[Child] = []  # the server, then the workers
        self._key = key
        self._case = case
        self._stack = contextlib.AsyncExitStack()

    async def start(self) -> None:
        """Start everything; a peer that cannot is ``failed``."""
        try:
            case = msgspec.json.encode(self._case).decode()
            server = await self._child("serve", case, name="server")
            self.address = (await server.hear(STARTING_S)).decode()
            for rank in range(self._case.n_workers):
                arguments = (case, self.address, str(rank))
                await self._child("work", *arguments, name=f"worker {rank}")
            await self._hear_all(STARTING_S)
        except AiopsError as error:
            self.failed = str(error)
        self._rest()

    async def rounds(self, count: int) -> Sample | None:
        """Let all workers do so many rounds at the same time; None when the peer failed."""
        self._signal(signal.SIGCONT)
        try:
            for worker in self.workers:
                await worker.say(str(count).encode())
            lines = await self._hear_all(TURN_S)
        except AiopsError as error:
            self.failed = str(error)
            return None
        self._rest()
        samples = [msgspec.json.decode(line, type=Sample) for line in lines]
        return together(samples, count)

    async def stop(self) -> None:
        """End all processes; idempotent."""
        self._signal(signal.SIGCONT)
        await self._stack.aclose()

    @property
    def server(self) -> Child:
        """The server process, once it is started."""
        return self._children[0]

    @property
    def workers(self) -> list[Child]:
        """The worker processes started so far."""
        return self._children[1:]

    @property
    def pids(self) -> list[int]:
        """Its processes, each the leader of a session."""
        return [child.pid for child in self._children]

    def cpu_s(self) -> tuple[float, float]:
        """Return the user and system time of all its processes so far, in seconds."""
        return cpu_s(self.pids)

    # Between turns a peer that polls would take the cores from the others.
    def _rest(self) -> None:
        self._signal(signal.SIGSTOP)

    def _signal(self, number: signal.Signals) -> None:
        if peer(self._key).spins:
            for child in self._children:
                child.signal(number)

    async def _child(self, role: str, *arguments: str, name: str) -> Child:
        child = Child("aiops.bench.peers", (role, self._key, *arguments), name=name)
        await self._stack.enter_async_context(child)
        self._children.append(child)
        return child

    # One that has ended tells at once, whichever it is; the others wait for it.
    async def _hear_all(self, timeout_s: float) -> list[bytes]:
        try:
            async with asyncio.TaskGroup() as tasks:
                heard = [tasks.create_task(worker.hear(timeout_s)) for worker in self.workers]
        except* AiopsError as errors:
            raise errors.exceptions[0] from None
        return [task.result() for task in heard]


def together(samples: Sequence[Sample], count: int) -> Sample:
    """Return what ``count`` rounds of all workers took.

    A round of several lasts from when the first of them began until the last one is done: by its own clock a worker
    that is served before the others would seem to be in a faster round.
    """
    if len(samples) == 1:
        return samples[0]
    start, end = min(one.start_s for one in samples), max(one.end_s for one in samples)
    best = max(one.best_s for one in samples)
    return Sample(median_s=(end - start) / count, best_s=best, start_s=start, end_s=end)


async def stop_all(fleets: list[Fleet]) -> None:
    """End several fleets at the same time."""
    async with asyncio.TaskGroup() as tasks:
        for fleet in fleets:
            tasks.create_task(fleet.stop())
