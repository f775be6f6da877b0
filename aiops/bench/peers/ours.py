"""Ours, through the public API: an ``aiops serve`` process and ``aiops.connect`` in the workers."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import AsyncIterator
from typing import Any

import numpy as np

import aiops
from aiops.bench.layout import sizes
from aiops.bench.peers.base import AsyncRound, Case
from aiops.worker.client import Client


class Ours:
    """A bulk-synchronous server that adds the sum of all updates to its parameters, and returns those.

    Its workers lend their update and their parameters (``ps.empty()``, ``copy=False``, ``out=``), so nothing is copied.
    """

    name = "aiops"
    spins = False

    def versions(self) -> str:
        """Return our version."""
        return f"aiops {aiops.__version__}"

    def serve(self, case: Case) -> None:
        """Become ``aiops serve``."""
        workers = str(case.n_workers)
        # Uniform shares times the number of workers is the plain sum that the other peers make.
        rules = ["--sync", "bulk", "--weights", "uniform", "--server-lr", workers]
        command = [sys.executable, "-m", "aiops", "serve", "--port", "0", "--end-with-stdin"]
        os.execv(sys.executable, [*command, "--min-workers", workers, *rules])

    @contextlib.asynccontextmanager
    async def connect(self, case: Case, address: str, rank: int) -> AsyncIterator[AsyncRound]:
        """Push this worker's update and wait for the model that holds everybody's."""
        # Past TCP there is nothing to compare: benchmarks.shm measures how much faster that is.
        async with aiops.connect(address, name=f"worker-{rank}", shared_memory=False) as ps:
            model = await ps.init(tensors(case, 0))
            update = ones(ps, times=rank + 1)
            last = next(reversed(update))

            async def do_round() -> float:
                merged = await ps.sync(update, copy=False, out=model)
                return float(merged[last].flat[-1])

            yield do_round


class AsInReadme(Ours):
    """The call that README shows: what is pushed is the caller's own and copied, what comes back is new each time."""

    name = "aiops, as in README"

    @contextlib.asynccontextmanager
    async def connect(self, case: Case, address: str, rank: int) -> AsyncIterator[AsyncRound]:
        """Push this worker's update and wait for the model that holds everybody's."""
        async with aiops.connect(address, name=f"worker-{rank}", shared_memory=False) as ps:
            await ps.init(tensors(case, 0))
            update = tensors(case, rank + 1)
            last = next(reversed(update))

            async def do_round() -> float:
                params = await ps.sync(update, n_samples=64)
                return float(params[last].flat[-1])

            yield do_round


def ones(ps: Client, *, times: float = 1.0) -> dict[str, np.ndarray[Any, np.dtype[np.float32]]]:
    """Return an update of equal values that can be lent."""
    update = ps.empty()
    for array in update.values():
        array.fill(times)
    return update


def tensors(case: Case, value: float) -> dict[str, np.ndarray[Any, np.dtype[np.float32]]]:
    """Return a case's tensors, all of one value."""
    return {f"t{i}": np.full(n, value, np.float32) for i, n in enumerate(sizes(case))}
