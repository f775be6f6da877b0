"""A process that runs the virtual lab: one job per line on stdin, one record (or a sentence) per line on stdout."""

from __future__ import annotations

import sys

import msgspec

from aiops.errors import AiopsError
from aiops.lab import virtual
from aiops.lab.method import Method
from aiops.lab.problem import Problem
from aiops.lab.record import Record
from aiops.lab.scenario import Scenario
from aiops.launch.process import say


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """One run.

    Attributes:
        scenario: What is run.
        method: One method.
        seed: One seed.
        give_up_s: When a run that has not come to its target ends, in seconds; None is at the scenario's budget.
    """

    scenario: Scenario
    method: Method
    seed: int
    give_up_s: float | None = None


def work(job: Job, problems: dict[bytes, Problem], data_root: str | None) -> Record | str:
    """Do one job; return its record, or why it makes no sense.

    Args:
        job: What to do.
        problems: Problems at hand, by what makes them; the last one is kept.
        data_root: Where the data's files are.
    """
    scenario = job.scenario
    key = msgspec.json.encode([scenario.data, scenario.model, scenario.workers.count])
    try:
        if key not in problems:
            problems.clear()
            problems[key] = Problem(scenario, data_root=data_root)
        return virtual.run(
            scenario, job.method, job.seed, problem=problems[key], give_up_s=job.give_up_s
        )
    except AiopsError as error:
        return f"{job.method.label}: {error}"


def main() -> None:
    """Do the jobs on stdin until it ends."""
    data_root = sys.argv[1] if len(sys.argv) > 1 else None
    problems: dict[bytes, Problem] = {}
    for line in sys.stdin:
        answer = work(msgspec.json.decode(line, type=Job), problems, data_root)
        say(answer)


if __name__ == "__main__":
    main()
