"""Blocking rounds: a fixed number of local steps, then push and wait for the merged model.

SSGD is one step a round, FedAvg (McMahan et al., 2017) and local SGD (Stich, 2019) are H.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import numpy as np

from aiops.errors import StalePush
from aiops.worker.client import Client
from aiops.worker.meter import Meter
from aiops.worker.overlap import LocalStep, Step, Vector


async def blocking(
    ps: Client,
    x: Vector,
    step: LocalStep,
    *,
    stop: Callable[[], bool] | None = None,
    meter: Meter | None = None,
) -> Vector:
    """Train in blocking rounds of as many local steps as the server says.

    Ends when the server says that training is over, or ``stop`` does, between two rounds.

    Args:
        ps: A client whose :meth:`Client.init` has been called.
        x: float32, shape (n,): the parameters to start from; changed in place.
        step: One local step.
        stop: Asked before every round.
        meter: Measures, on the loop's clock.

    Returns:
        ``x``, which is the newest global model.
    """
    loop = asyncio.get_running_loop()
    meter = meter or Meter(loop.time())
    base, update, new = x.copy(), np.empty_like(x), np.empty_like(x)
    version, n_steps = ps.version, ps.policy.min_steps
    while stop is None or not stop():
        n_samples, losses = 0, []
        for _ in range(n_steps):
            start = loop.time()
            told = await step(x) or Step()
            meter.stepped(start, loop.time())
            n_samples += told.n_samples
            if told.loss is not None:
                losses.append(told.loss)
        np.subtract(x, base, out=update)
        start = loop.time()
        meter.pushing(start)
        try:
            snapshot = await ps.push_flat(
                update,
                base=version,
                n_samples=n_samples,
                n_steps=n_steps,
                loss=float(np.mean(losses)) if losses else float("nan"),
                out=new,
                step_s=meter.step_s,
                sync_s=meter.last_sync_s,
            )
        except StalePush:
            # The others closed rounds without this worker; what it did is too old to be merged.
            snapshot = await ps.pull_flat(new)
        meter.arrived(loop.time(), n_steps=n_steps)
        meter.waited(start, loop.time())
        np.copyto(x, snapshot.flat)
        np.copyto(base, snapshot.flat)
        version, n_steps = snapshot.version, snapshot.min_steps
        if snapshot.done:
            break
    return x
