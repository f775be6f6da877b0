"""Blocking rounds: some local steps, then push and wait for the merged model.

SSGD is one step a round, FedAvg (McMahan et al., 2017) and local SGD (Stich, 2019) are H. Under ESync (Li et al., 2020)
the server is asked before every step how many there are, and nobody waits for its answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import numpy as np

from aiops.worker.client import Client
from aiops.worker.machine import Move, Vector, machine_of
from aiops.worker.meter import Meter
from aiops.worker.pace import Pace, pace_of
from aiops.worker.step import LocalStep, check_lr, exchange, take_step


async def blocking(
    ps: Client,
    x: Vector,
    step: LocalStep,
    *,
    stop: Callable[[], bool] | None = None,
    meter: Meter | None = None,
    lr: float | None = None,
) -> Vector:
    """Train in blocking rounds of as many local steps as the server says, beforehand or when it is asked (ESync).

    Ends when the server says that training is over, or ``stop`` does, between two rounds.

    Args:
        ps: A client whose :meth:`Client.init` has been called.
        x: float32, shape (n,): the parameters to start from; changed in place.
        step: One local step.
        stop: Asked before every round.
        meter: Measures, on the loop's clock.
        lr: Learning rate of the local steps, see :func:`aiops.overlapped`.

    Returns:
        ``x``, which is the newest global model.

    Raises:
        ConfigError: The server has a proximal term and ``lr`` is missing.
        Refused: The server declined a push; :class:`NotFinite` names the tensor.
        TransportError: The line to the server is lost for good.
    """
    loop = asyncio.get_running_loop()
    meter = meter or Meter(loop.time())
    lr, new = check_lr(ps.policy, lr), np.empty_like(x)
    machine = machine_of(ps.policy, x, ps.version, accumulated=ps.table.accumulated)
    pace = _begin(ps)
    while stop is None or not stop():
        move = Move.COMPUTE
        while move is Move.COMPUTE:
            if pace is not None:
                await _ask(ps, pace)
            start = loop.time()
            told = await take_step(step, x, machine, lr)
            meter.stepped(start, loop.time())
            move = machine.stepped(n_samples=told.n_samples, loss=told.loss)
            if pace is not None:
                move = pace.stepped(loop.time() - start, loop.time())
        update = machine.push(x)
        assert update is not None
        if pace is not None:
            ps.report(pace.report())
        start = loop.time()
        meter.pushing(start, n_steps=update.n_steps)
        # A push that the others left too far behind is lost; the newest model comes all the same.
        snapshot, merged = await exchange(ps, update, new, meter)
        meter.arrived(loop.time())
        meter.waited(start, loop.time())
        machine.deliver(snapshot, merged=merged)
        machine.adopt(x)
        if pace is not None:
            pace.enter(machine.version, machine.max_steps)
        if snapshot.done:
            break
    return x


# How long rounds are, where the server is asked that; it hears that this worker begins.
def _begin(ps: Client) -> Pace | None:
    pace = pace_of(ps.policy, ps.version)
    if pace is not None:
        ps.report(pace.report())
    return pace


# Ask without waiting for the answer, and let the loop bring what has come: a step may be one that never waits.
async def _ask(ps: Client, pace: Pace) -> None:
    clock = asyncio.get_running_loop().time
    query = pace.query(clock())
    if query is not None:
        ps.ask(query, lambda advice: pace.answered(query, advice, clock()))
    await asyncio.sleep(0)
