"""Runs side by side: each in a process of its own, since a run is one thread of pure computing."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable, Sequence
from typing import Self

import msgspec

from aiops.errors import ConfigError
from aiops.lab.job import Job
from aiops.lab.record import Record
from aiops.launch.process import Child

# The longest silence of a process: a run of a thousand workers says nothing until it is done.
SILENCE_S = 6 * 3600.0

Told = Callable[[Job, Record], None]


class Fleet:
    """Processes that take runs of the virtual lab; use it as ``async with``.

    Args:
        processes: How many; as many as cores unless given.
        data_root: Where the data's files are; None searches the usual places.
    """

    def __init__(self, processes: int | None = None, *, data_root: str | None = None) -> None:
        count = len(os.sched_getaffinity(0)) if processes is None else processes
        if count < 1:
            raise ConfigError(f"processes is {count}, it must be >= 1")
        self._arguments = [] if data_root is None else [data_root]
        self._count = count
        self._idle: asyncio.Queue[Child] = asyncio.Queue()
        self._stack = contextlib.AsyncExitStack()

    async def __aenter__(self) -> Self:
        """Start the processes."""
        for number in range(self._count):
            child = Child("aiops.lab.job", self._arguments, name=f"lab process {number}")
            self._idle.put_nowait(await self._stack.enter_async_context(child))
        return self

    async def __aexit__(self, *exception: object) -> None:
        """End the processes."""
        await self._stack.aclose()

    async def run(self, job: Job | Callable[[], Job]) -> Record:
        """Run one job as soon as a process is free; a function is asked for it then.

        Raises:
            ConfigError: The job makes no sense.
            ChildFailed: Its process ended too soon.
        """
        child = await self._idle.get()
        await child.say(msgspec.json.encode(job() if callable(job) else job))
        answer = msgspec.json.decode(await child.hear(SILENCE_S), type=Record | str)
        # A process whose run was given up is not put back: it is in the middle of it.
        self._idle.put_nowait(child)
        if isinstance(answer, str):
            raise ConfigError(answer)
        return answer

    async def run_all(self, jobs: Sequence[Job], told: Told | None = None) -> list[Record]:
        """Run jobs side by side and return their records in the order of the jobs.

        Args:
            jobs: What to run.
            told: Hears of every record as it comes.
        """

        async def one(job: Job) -> Record:
            record = await self.run(job)
            if told is not None:
                told(job, record)
            return record

        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one(job)) for job in jobs]
        return [task.result() for task in tasks]
