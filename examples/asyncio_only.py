"""No framework: a server and two workers in one program, with numpy and await.

Run it as ``python examples/asyncio_only.py``.
"""

from __future__ import annotations

import asyncio

import numpy as np

import aiops


async def worker(url: str, target: float) -> float:
    """Pull the shared value towards ``target`` in 20 rounds; return where it ends."""
    async with aiops.connect(url) as ps:
        params = await ps.init({"w": np.zeros(3, np.float32)})
        for _ in range(20):
            update = {"w": 0.3 * (target - params["w"])}
            ticket = ps.sync(update, n_samples=10)
            # Anything may happen here while the update travels.
            params = await ticket
        return float(params["w"].mean())


async def main() -> list[float]:
    """Run a server and two workers that disagree; they meet in the middle."""
    async with aiops.serve(sync="bulk", work="fixed:1", min_workers=2) as server:
        ends = await asyncio.gather(worker(server.url, 1.0), worker(server.url, 3.0))
    print("both end at", ends)
    return ends


if __name__ == "__main__":
    asyncio.run(main())
