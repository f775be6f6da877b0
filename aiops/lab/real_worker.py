"""One worker process of the real lab: the same training as in the virtual lab, over a real connection, in real time."""

from __future__ import annotations

import asyncio
import resource
import sys

import msgspec
import numpy as np

from aiops.api.connecting import connect
from aiops.errors import AiopsError, NotFinite
from aiops.lab.problem import Problem
from aiops.lab.talk import GO, READY, Train, Trained
from aiops.lab.training import Trainee
from aiops.launch.process import say
from aiops.sync.thread import loop_factory
from aiops.worker.client import Client

# The server is on this machine: when it is gone, the run is over.
GIVE_UP_S = 5.0


async def work(job: Train) -> None:
    """Train from the word to go until the next line, or the end of stdin, and say what was measured.

    Training that ends by itself is told at once; this then waits for the next line all the same.
    """
    problem = Problem(job.scenario, data_root=job.data_root)
    trainee = Trainee(job.scenario, problem, job.worker, job.seed, job.method.lr)
    start, name = asyncio.Event(), f"worker-{job.worker}"
    client = connect(job.url, name=name, give_up_s=GIVE_UP_S, shared_memory=False)
    async with client as ps, asyncio.TaskGroup() as group:
        training = group.create_task(_train(trainee, ps, start))
        if await asyncio.to_thread(sys.stdin.readline) == GO.decode() + "\n":
            before_s = _cpu_s()
            start.set()
            stopping = group.create_task(asyncio.to_thread(sys.stdin.readline))
            await asyncio.wait([stopping, training], return_when=asyncio.FIRST_COMPLETED)
            say(_trained(trainee, training, _cpu_s() - before_s))
        training.cancel()


async def _train(trainee: Trainee, ps: Client, start: asyncio.Event) -> AiopsError | None:
    try:
        await trainee.train(ps, lambda: say(READY), start)
    except AiopsError as error:
        return error
    return None


def _trained(trainee: Trainee, training: asyncio.Task[AiopsError | None], cpu_s: float) -> Trained:
    ended = training.result() if training.done() else None
    error = str(ended or "the server says that training is over") if training.done() else ""
    return Trained(
        record=trainee.record(asyncio.get_running_loop().time()),
        error=error,
        diverged=isinstance(ended, NotFinite),
        cpu_s=cpu_s,
    )


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def main() -> None:
    """Do the one job on stdin."""
    job = msgspec.json.decode(sys.stdin.readline(), type=Train)
    # Numbers that grow beyond all bounds are the client's to find, with a sentence.
    with (
        asyncio.Runner(loop_factory=loop_factory()) as runner,
        np.errstate(over="ignore", invalid="ignore"),
    ):
        runner.run(work(job))


if __name__ == "__main__":
    main()
