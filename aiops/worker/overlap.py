"""NBSync (Zhou et al., 2023): local computing and global synchronization at the same time, as two tasks."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import numpy as np

from aiops.errors import ConfigError, StalePush
from aiops.wire.message import Policy
from aiops.worker.client import Client
from aiops.worker.machine import Move, Overlap, Rule, Update, Vector, machine_of
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
            step_s=meter.phase_step_s,
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


def check_lr(policy: Policy, lr: float | None) -> float:
    """Return the learning rate of local steps, 0 where nobody needs it.

    Raises:
        ConfigError: The server's proximal term needs it and it is not given.
    """
    if policy.proximal > 0 and not (lr is not None and 0 < lr < math.inf):
        raise ConfigError(
            f"lr is {lr!r}, the server's proximal term of {policy.proximal:g} needs the learning rate of the "
            "local steps: give it, finite and > 0"
        )
    return lr or 0.0


async def take_step(step: LocalStep, x: Vector, machine: Overlap, lr: float) -> Step:
    """Take a local step of this learning rate, with what the server adds to it."""
    proximal = machine.proximal
    if proximal is not None:
        proximal.note(x)
    told = await step(x) or Step()
    if proximal is not None:
        proximal.pull(x, lr)
    correction = machine.correction
    if correction is not None:
        x += correction
    return told


async def overlapped(
    ps: Client,
    x: Vector,
    step: LocalStep,
    *,
    rule: Rule | None = None,
    stop: Callable[[], bool] | None = None,
    meter: Meter | None = None,
    lr: float | None = None,
) -> Vector:
    """Train with local steps and synchronization under way at the same time.

    Two tasks and a one-slot mailbox: the compute task takes steps and is the only one to write ``x``; the sync task
    does the network. Ends when the server says that training is over, or ``stop`` does, at a step boundary; progress
    since the last push then stays in ``x`` and is not pushed.

    Args:
        ps: A client whose :meth:`Client.init` has been called.
        x: float32, shape (n,): the parameters to start from, as :meth:`Client.init` returned them; changed in place.
        step: One local step.
        rule: How to merge; the server's unless given.
        stop: Asked at every boundary.
        meter: Measures, on the loop's clock.
        lr: Learning rate of the local steps, which a server with a proximal term needs: with plain gradient steps that
            term is exact.

    Returns:
        The newest global model that came in, float32, shape (n,), in memory of its own; a copy of the start if none
        did.

    Raises:
        ConfigError: The rule does not go with the server's drift correction, or ``lr`` is needed and missing.
        Refused: The server declined a push; :class:`NotFinite` names the tensor.
        TransportError: The line to the server is lost for good.
    """
    meter = meter or Meter(asyncio.get_running_loop().time())
    machine = machine_of(ps.policy, x, ps.version, accumulated=ps.table.accumulated, rule=rule)
    return await _Training(ps, x, step, machine, meter, stop, check_lr(ps.policy, lr)).run()


class _Training:
    # The compute task, the sync task, and what lies between them: pushes one way, the machine's mailbox the other.
    def __init__(
        self,
        ps: Client,
        x: Vector,
        step: LocalStep,
        machine: Overlap,
        meter: Meter,
        stop: Callable[[], bool] | None,
        lr: float,
    ) -> None:
        self._lr = lr
        self._ps, self._x, self._step, self._stop = ps, x, step, stop
        self._machine, self._meter = machine, meter
        self._loop = asyncio.get_running_loop()
        self._pushes: asyncio.Queue[Update] = asyncio.Queue(1)
        self._arrived = asyncio.Event()
        self._arriving, self._newest = np.empty_like(x), x.copy()

    async def run(self) -> Vector:
        try:
            async with asyncio.TaskGroup() as tasks:
                syncing = tasks.create_task(self._sync(), name="sync")
                await self._compute()
                syncing.cancel()
        except BaseExceptionGroup as group:
            raise group.exceptions[0] from None
        return self._newest

    async def _sync(self) -> None:
        while True:
            update = await self._pushes.get()
            snapshot, merged = await exchange(self._ps, update, self._arriving, self._meter)
            self._machine.deliver(snapshot, at=self._loop.time(), merged=merged)
            self._arrived.set()

    async def _compute(self) -> None:
        machine, going_on = self._machine, True
        while going_on:
            start = self._loop.time()
            told = await take_step(self._step, self._x, machine, self._lr)
            self._meter.stepped(start, self._loop.time())
            move = machine.stepped(n_samples=told.n_samples, loss=told.loss)
            if move is Move.WAIT:
                start = self._loop.time()
                await self._arrived.wait()
                self._meter.waited(start, self._loop.time())
                move = Move.PUSH
            going_on = not self._is_over()
            if going_on and move is Move.PUSH:
                update = machine.push(self._x)
                if update is not None:
                    self._meter.pushing(self._loop.time(), n_steps=update.n_steps)
                    self._pushes.put_nowait(update)

    # Look at the model that has arrived, if any, and say whether training ends at this boundary.
    def _is_over(self) -> bool:
        mail = self._machine.mail
        if mail is not None:
            self._arrived.clear()
            self._meter.arrived(self._machine.mail_at)
            np.copyto(self._newest, mail.flat)
        return (mail is not None and mail.done) or (self._stop is not None and self._stop())
