"""One worker process of the real lab: the same training as in the virtual lab, over a real connection, in real time."""

from __future__ import annotations

import asyncio
import resource
import sys

import msgspec

from aiops.api.connecting import connect
from aiops.errors import AiopsError
from aiops.lab.problem import Problem
from aiops.lab.talk import GO, READY, Train, Trained
from aiops.lab.training import Trainee
from aiops.sync.thread import loop_factory
from aiops.worker.client import Client

# The server is on this machine: when it is gone, the run is over.
GIVE_UP_S = 5.0


async def work(job: Train) -> Trained:
    """Train from the word to go until the next line, or the end of stdin."""
    problem = Problem(job.scenario, data_root=job.data_root)
    trainee = Trainee(job.scenario, problem, job.worker, job.seed, job.method.lr)
    start, error, before_s = asyncio.Event(), "", 0.0
    name = f"worker-{job.worker}"
    async with connect(job.url, name=name, give_up_s=GIVE_UP_S, shared_memory=False) as ps:
        loop = asyncio.get_running_loop()
        async with asyncio.TaskGroup() as group:
            training = group.create_task(_train(trainee, ps, start))
            if await asyncio.to_thread(sys.stdin.readline) == GO.decode() + "\n":
                before_s = _cpu_s()
                start.set()
                stopping = group.create_task(asyncio.to_thread(sys.stdin.readline))
                await asyncio.wait([stopping, training], return_when=asyncio.FIRST_COMPLETED)
            now = loop.time()
            if training.done():
                error = training.result() or "the server says that training is over"
            training.cancel()
    return Trained(record=trainee.record(now), error=error, cpu_s=_cpu_s() - before_s)


async def _train(trainee: Trainee, ps: Client, start: asyncio.Event) -> str:
    try:
        await trainee.train(ps, lambda: _say(READY), start)
    except AiopsError as error:
        return str(error)
    return ""


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _say(line: bytes) -> None:
    sys.stdout.write(line.decode() + "\n")
    sys.stdout.flush()


def main() -> None:
    """Do the one job on stdin."""
    job = msgspec.json.decode(sys.stdin.readline(), type=Train)
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        trained = runner.run(work(job))
    _say(msgspec.json.encode(trained))


if __name__ == "__main__":
    main()
