"""NBSync (Zhou et al., 2023): local computing and global synchronization at the same time, as two tasks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import numpy as np

from aiops.worker.client import Client
from aiops.worker.machine import Move, Overlap, Rule, Update, Vector, machine_of
from aiops.worker.meter import Meter
from aiops.worker.step import LocalStep as LocalStep
from aiops.worker.step import Step as Step
from aiops.worker.step import check_lr, exchange, take_step
from aiops.worker.streamed import streamed


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
    if ps.policy.fragments:
        return await streamed(ps, x, step, rule=rule, stop=stop, meter=meter)
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
        self._arriving = np.empty_like(x)
        # Without a reason of this side's to stop, training ends with a model that has just come.
        self._newest = self._arriving if stop is None else x.copy()

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
            if self._stop is not None:
                np.copyto(self._newest, mail.flat)
        return (mail is not None and mail.done) or (self._stop is not None and self._stop())
