"""How much faster is shared memory than our own TCP for a worker on the server's machine?

``python -m benchmarks.shm [passes [sizes]]``: two server processes, one reached each way from here, take turns. A round
is a push, its merge and the pull of the model that it makes. CPU seconds count both ends, per GB pushed and pulled.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

import numpy as np

import aiops
from aiops.bench.harness import Spread, speedup
from aiops.bench.machine import fingerprint
from aiops.worker.client import Client, Tensors

# Bytes of parameters, and rounds in a sample.
SIZES = {"4 KB": (4096, 300), "1 MB": (10**6, 30), "16 MB": (16 * 10**6, 4), "100 MB": (10**8, 1)}


@contextmanager
def server(*options: str) -> Iterator[tuple[str, int]]:
    """Run a server process; give its URL and its process id."""
    command = [sys.executable, "-m", "aiops", "serve", "--port", "0", "--sync", "bulk"]
    with subprocess.Popen([*command, *options], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield process.stdout.readline().strip(), process.pid
        finally:
            process.terminate()


class Contender:
    """One client, its update and its parameters."""

    def __init__(self, client: Client, update: Tensors, params: Tensors, pid: int) -> None:
        self.seconds: list[float] = []
        self.cpu: list[float] = []
        self._client, self._update, self._params, self._pid = client, update, params, pid

    async def sample(self, rounds: int) -> None:
        """Time some rounds."""
        cpu, start = self._cpu(), time.perf_counter()
        for _ in range(rounds):
            ticket = self._client.sync(self._update, copy=False, out=self._params)
            self._params = await ticket
        self.seconds.append((time.perf_counter() - start) / rounds)
        self.cpu.append((self._cpu() - cpu) / rounds)

    def _cpu(self) -> float:
        return time.process_time() + _cpu_of(self._pid)


def _cpu_of(pid: int) -> float:
    # Nanoseconds on the processor, thread by thread: ticks of 10 ms are too coarse for a round.
    total = 0
    for thread in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{thread}/schedstat", encoding="utf-8") as file:
            total += int(file.read().split()[0])
    return total / 1e9


@asynccontextmanager
async def contender(size: int, *, shared_memory: bool) -> AsyncIterator[Contender]:
    """Start a server and connect to it."""
    with server() as (url, pid):
        async with aiops.connect(url, shared_memory=shared_memory) as client:
            params = await client.init({"w": np.zeros(size // 4, np.float32)})
            update = client.empty()
            update["w"][:] = 1e-6
            yield Contender(client, update, params, pid)


async def compare(size: int, rounds: int, passes: int) -> dict[str, Contender]:
    """Let both take turns."""
    async with (
        contender(size, shared_memory=False) as tcp,
        contender(size, shared_memory=True) as shm,
    ):
        both = {"tcp": tcp, "shm": shm}
        for number in range(passes + 2):
            for one in (tcp, shm) if number % 2 else (shm, tcp):
                await one.sample(rounds)
        for one in both.values():
            del one.seconds[:2], one.cpu[:2]
    return both


def main() -> None:
    """Print one line per size."""
    passes = int(sys.argv[1]) if len(sys.argv) > 1 else 25
    sizes = sys.argv[2].split(",") if len(sys.argv) > 2 else list(SIZES)
    print(*fingerprint().lines(), sep="\n")
    print("round     tcp q25 ms  shm q25 ms   tcp/shm median (q25-q75)   CPU s/GB tcp  shm")
    for name in sizes:
        size, rounds = SIZES[name]
        both = asyncio.run(compare(size, rounds, passes))
        tcp, shm = both["tcp"], both["shm"]
        ratio = speedup(shm.seconds, tcp.seconds)
        per_gb = [statistics.median(one.cpu) * 1e9 / (2 * size) for one in (tcp, shm)]
        q25 = [1e3 * Spread.of(one.seconds).q25 for one in (tcp, shm)]
        print(
            f"{name:8} {q25[0]:11.3f} {q25[1]:11.3f}   {ratio.median:6.2f} ({ratio.q25:.2f}-{ratio.q75:.2f})"
            f"{'':13}{per_gb[0]:8.3f} {per_gb[1]:8.3f}",
            flush=True,
        )


if __name__ == "__main__":
    import uvloop

    uvloop.install()
    main()
