"""Streaming DiLoCo (Douillard et al., 2025): training goes on while fragments of the model travel, one at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import numpy as np

from aiops.worker.client import Client
from aiops.worker.machine import Move, Update, Vector
from aiops.worker.meter import Meter
from aiops.worker.rule import Rule
from aiops.worker.step import LocalStep, Step, exchange
from aiops.worker.streaming import streaming_of


async def streamed(
    ps: Client,
    x: Vector,
    step: LocalStep,
    *,
    rule: Rule | None,
    stop: Callable[[], bool] | None,
    meter: Meter,
) -> Vector:
    """Train with a fragment of the model under way; :func:`aiops.overlapped` does where the server says so.

    Returns:
        The newest global fragments that came in, float32, shape (n,).
    """
    return await _Training(ps, x, step, rule, stop, meter).run()


class _Training:
    # The caller's task takes the steps; each exchange is a task of its own, and there is one at a time.
    def __init__(
        self,
        ps: Client,
        x: Vector,
        step: LocalStep,
        rule: Rule | None,
        stop: Callable[[], bool] | None,
        meter: Meter,
    ) -> None:
        self._ps, self._x, self._step, self._stop, self._meter = ps, x, step, stop, meter
        self._machine = streaming_of(ps.policy, ps.table, x, ps.version, rule=rule)
        self._loop = asyncio.get_running_loop()
        self._arriving = np.empty_like(x)
        self._flying: asyncio.Task[None] | None = None

    async def run(self) -> Vector:
        try:
            async with asyncio.TaskGroup() as tasks:
                await self._train(tasks)
                if self._flying is not None:
                    self._flying.cancel()
        except BaseExceptionGroup as group:
            raise group.exceptions[0] from None
        return self._machine.model

    async def _train(self, tasks: asyncio.TaskGroup) -> None:
        going_on = True
        while going_on:
            start = self._loop.time()
            told = await self._step(self._x) or Step()
            self._meter.stepped(start, self._loop.time())
            move = self._machine.stepped(n_samples=told.n_samples, loss=told.loss)
            going_on = self._stop is None or not self._stop()
            while going_on and move is not Move.COMPUTE:
                going_on = await self._make(move, tasks)
                move = self._machine.move()

    # Make a move, and say whether training goes on.
    async def _make(self, move: Move, tasks: asyncio.TaskGroup) -> bool:
        machine, now = self._machine, self._loop.time()
        if move is Move.PUSH:
            update = machine.push(self._x)
            self._meter.pushing(now, n_steps=update.n_steps)
            self._flying = tasks.create_task(self._exchange(update), name="fragment")
        elif move is Move.WAIT:
            assert self._flying is not None
            await self._flying
            self._meter.waited(now, self._loop.time())
        else:
            self._meter.arrived(machine.mail_at)
            return not machine.adopt(self._x).done
        return True

    async def _exchange(self, update: Update) -> None:
        snapshot, merged = await exchange(self._ps, update, self._arriving, self._meter)
        self._machine.deliver(snapshot, at=self._loop.time(), merged=merged)
