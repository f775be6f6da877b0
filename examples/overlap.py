"""NBSync without a framework, on virtual time: an hour at two sites, computed in a second.

Two workers, one of them three times slower, behind links of 2 s each way. Nobody waits for the network.

    python examples/overlap.py
"""

from __future__ import annotations

import asyncio

import numpy as np
from numpy.typing import NDArray

import aiops
from aiops.sim.cluster import Cluster
from aiops.sim.virtual import VirtualLoop
from aiops.transport.memory import Link


async def site(cluster: Cluster, name: str, step_s: float, target: float) -> aiops.Meter:
    """Train one site until the server says that it is over; return what was measured."""
    link = Link(delay_s=2.0)
    async with cluster.worker(name, up=link, down=Link(delay_s=2.0)) as ps:
        start = await ps.init({"w": np.zeros(1, np.float32)})
        meter = aiops.Meter(asyncio.get_running_loop().time())

        async def step(x: NDArray[np.float32]) -> None:
            await asyncio.sleep(step_s)
            x += np.float32(0.01) * (np.float32(target) - x)

        final = await aiops.overlapped(ps, start["w"].copy(), step, meter=meter)
        print(
            f"{name}: {meter.n_steps} steps of {step_s:g} s, {meter.rounds} rounds, "
            f"overlap {meter.overlap_ratio:.2f}, waits {meter.waits}, w = {final[0]:.3f}"
        )
        return meter


async def main() -> list[aiops.Meter]:
    """Run both sites for 900 rounds, about an hour."""
    async with Cluster(min_workers=2, weights="by_steps", rounds=900) as cluster:
        return await asyncio.gather(
            site(cluster, "fast", step_s=1.0, target=1.0),
            site(cluster, "slow", step_s=3.0, target=0.0),
        )


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(main())
