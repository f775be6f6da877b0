"""How much memory a push takes in the server while it is merged, beyond the model that is there already."""

from __future__ import annotations

import asyncio
import contextlib
import sys

import msgspec

import aiops
from aiops.bench.fleet import STARTING_S
from aiops.bench.machine import available_bytes, forget_peak, memory_bytes
from aiops.bench.peers.base import Case, announce, end_with_parent
from aiops.bench.peers.ours import ones, tensors
from aiops.bench.result import Miss
from aiops.bench.run import Bench
from aiops.errors import AiopsError
from aiops.launch.process import Child
from aiops.sync.thread import loop_factory

# The worker's parameters, its update and what comes back; the server's model, its sum, and room.
ARRAYS = 8


async def push_memory(bench: Bench, suite: str, n_bytes: int) -> None:
    """Seed a server with a model, push one update of its size, and see how far the server grows meanwhile."""
    name = f"server's memory during a push of {n_bytes >> 20} MiB"
    bench.view.say(f"{suite}: {name}")
    reason = ""
    if ARRAYS * n_bytes > available_bytes():
        reason = f"takes {ARRAYS * n_bytes / 1e9:.0f} GB, there are {available_bytes() / 1e9:.0f}"
    else:
        try:
            before, peak = await _measure(bench.case(n_bytes))
            bench.figure(suite, name, (peak - before) / n_bytes, "times the push more", "<= 1.15")
            # What is kept from seeding may serve the push, so the difference alone could flatter.
            bench.figure(suite, f"{name}, at its peak", peak / n_bytes, "times the model in all")
        except (AiopsError, OSError) as error:
            reason = str(error)
    if reason:
        bench.view.warn(f"{name} is skipped: {reason}")
        bench.put(Miss(bench=suite, case=name, peer="aiops", reason=reason))


# The server's memory before the push and at its peak, in bytes.
async def _measure(case: Case) -> tuple[int, int]:
    text = msgspec.json.encode(case).decode()
    async with contextlib.AsyncExitStack() as stack:
        role = ("serve", "ours", text)
        server = await stack.enter_async_context(Child("aiops.bench.peers", role, name="server"))
        url = (await server.hear(STARTING_S)).decode()
        worker = Child("aiops.bench.memory", (text, url), name="worker")
        await stack.enter_async_context(worker)
        await worker.hear(STARTING_S)
        before = memory_bytes(server.pid, "VmRSS")
        forget_peak(server.pid)
        await worker.say(b"push")
        await worker.hear(STARTING_S)
        return before, memory_bytes(server.pid, "VmHWM")


async def _work(case: Case, url: str) -> None:
    # Over TCP, as everywhere in this suite: a ring would take what passes through it out of the server's account.
    async with aiops.connect(url, shared_memory=False) as ps:
        model = await ps.init(tensors(case, 0))
        announce("seeded")
        await asyncio.to_thread(sys.stdin.readline)
        await ps.sync(ones(ps), copy=False, out=model)
        announce("merged")


def main() -> None:
    """Be the worker."""
    end_with_parent()
    case = msgspec.json.decode(sys.argv[1], type=Case)
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(_work(case, sys.argv[2]))


if __name__ == "__main__":
    main()
