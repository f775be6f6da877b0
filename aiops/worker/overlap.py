"""NBSync (Zhou et al., 2023): local computing and global synchronization at the same time, as two tasks."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import numpy as np

from aiops.errors import StalePush
from aiops.worker.client import Client
from aiops.worker.machine import Move, Overlap, Rule, Update, Vector
from aiops.worker.meter import Meter
from aiops.worker.ticket import Snapshot


async def exchange(ps: Client, update: Update, out: Vector, meter: Meter) -> tuple[Snapshot, bool]:
    """Push an update and return the model that answers it, and whether the update was merged.

    One that the server finds too old is lost; the newest model comes instead, to begin anew from.

    Args:
        ps: The client.
        update: What to push; on loan until this returns.
        out: Where the model goes, float32, shape (n,).
        meter: Tells the server how fast this worker is.
    """
    try:
        return await ps.push_flat(
            update.values,
            base=update.base,
            n_samples=update.n_samples,
            n_steps=update.n_steps,
            loss=update.loss,
            out=out,
            step_s=meter.step_s,
            sync_s=meter.last_sync_s,
        ), True
    except StalePush:
        return await ps.pull_flat(out), False


@dataclass(frozen=True, slots=True)
class Step:
    """What a local step tells: samples it used, and its loss if known."""

    n_samples: int = 1
    loss: float | None = None


LocalStep = Callable[[Vector], Awaitable[Step | None]]
"""Takes one local step: changes the parameters (float32, shape (n,)) in place."""


async def overlapped(
    ps: Client,
    x: Vector,
    step: LocalStep,
    *,
    rule: Rule | None = None,
    stop: Callable[[], bool] | None = None,
    meter: Meter | None = None,
) -> Vector:
    """Train with local steps and synchronization under way at the same time.

    Two tasks and a one-slot mailbox: the compute task takes steps and is the only one to write ``x``; the sync task
    does the network. Ends when the server says that training is over, or ``stop`` does, at a step boundary.

    Args:
        ps: A client whose :meth:`Client.init` has been called.
        x: float32, shape (n,): the parameters to start from; changed in place.
        step: One local step.
        rule: How to merge; the server's unless given.
        stop: Asked at every boundary.
        meter: Measures, on the loop's clock.

    Returns:
        The newest global model, float32, shape (n,).
    """
    loop = asyncio.get_running_loop()
    policy = ps.policy
    machine = Overlap(
        x,
        ps.version,
        rule or Rule(policy.merge, policy.alpha, policy.beta, policy.bootstrap),
        min_steps=policy.min_steps,
        max_steps=policy.max_steps,
    )
    meter = meter or Meter(loop.time())
    pushes: asyncio.Queue[Update] = asyncio.Queue(1)
    arrived = asyncio.Event()
    arriving, newest = np.empty_like(x), x.copy()

    async def sync() -> None:
        while True:
            snapshot, merged = await exchange(ps, await pushes.get(), arriving, meter)
            machine.deliver(snapshot, at=loop.time(), merged=merged)
            arrived.set()

    async def compute() -> None:
        while True:
            start = loop.time()
            told = await step(x) or Step()
            meter.stepped(start, loop.time())
            move = machine.stepped(n_samples=told.n_samples, loss=told.loss)
            if move is Move.WAIT:
                start = loop.time()
                await arrived.wait()
                meter.waited(start, loop.time())
                move = Move.PUSH
            if machine.mail is not None:
                arrived.clear()
                meter.arrived(machine.mail_at)
                np.copyto(newest, machine.mail.flat)
                if machine.mail.done:
                    return
            if stop is not None and stop():
                return
            if move is Move.PUSH:
                update = machine.push(x)
                if update is not None:
                    meter.pushing(loop.time(), n_steps=update.n_steps)
                    pushes.put_nowait(update)

    try:
        async with asyncio.TaskGroup() as tasks:
            syncing = tasks.create_task(sync(), name="sync")
            await compute()
            syncing.cancel()
    except BaseExceptionGroup as group:
        raise group.exceptions[0] from None
    return newest
