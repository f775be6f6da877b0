"""The same search for every method: its grid, point by point, on seeds that no comparison uses."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterator, Sequence

import msgspec

from aiops.bench.machine import Machine
from aiops.errors import ConfigError
from aiops.lab.fleet import Fleet
from aiops.lab.job import Job
from aiops.lab.method import Method, Number
from aiops.lab.record import Record
from aiops.lab.scenario import Scenario

# A point that takes so much longer on the first seed than the best one is out, and its run need not end.
HOPELESS = 1.25

# How many of the best points of the first seed are run on the others.
FINALISTS = 4


class Trial(msgspec.Struct, frozen=True, kw_only=True):
    """One point of a grid.

    Attributes:
        numbers: The point.
        times_s: Time to target by seed; None where it was not reached in time.
        best: Best accuracy of the first seed, up to where its run ended.
    """

    numbers: dict[str, Number]
    times_s: dict[int, float | None]
    best: float = 0.0

    @property
    def score(self) -> float:
        """Geometric mean; infinite where a seed did not reach the target."""
        logs = [math.inf if t is None else math.log(t) for t in self.times_s.values()]
        return math.exp(math.fsum(logs) / len(logs)) if logs else math.inf


class Tuned(msgspec.Struct, frozen=True, kw_only=True):
    """A method at its best point.

    Attributes:
        method: With the numbers of the best point.
        reached: Whether that point reached the target on every seed.
        trials: Everything that was tried, in the order of the grid.
        best: Which of them is the best one.
    """

    method: Method
    reached: bool
    trials: tuple[Trial, ...]
    best: int

    @property
    def time_s(self) -> float | None:
        """Geometric mean of the best point's times to target; None where it did not reach it."""
        return self.trials[self.best].score if self.reached else None

    @property
    def edges(self) -> tuple[str, ...]:
        """Names whose best number is the smallest or the largest that was tried: a wider grid may have a better one."""
        chosen, edges = self.method.numbers(), []
        for name, tried in self.method.grid.items():
            numbers = [number for number in tried if not isinstance(number, str)]
            if len(set(numbers)) > 1 and chosen[name] in (min(numbers), max(numbers)):
                edges.append(name)
        return tuple(edges)


class Tuning(msgspec.Struct, frozen=True, kw_only=True):
    """What a search leaves behind.

    Attributes:
        scenario: What it ran.
        seeds: The seeds it ran on.
        ratio: S/c of the scenario.
        machine: Where and with which versions.
        methods: One entry per method.
    """

    scenario: Scenario
    seeds: tuple[int, ...]
    ratio: float
    machine: Machine
    methods: tuple[Tuned, ...]

    def apply(self, scenario: Scenario) -> Scenario:
        """Return a scenario with the numbers found for its methods.

        Raises:
            ConfigError: A method with a grid was not searched, or had another one.
        """
        found = {tuned.method.label: tuned.method for tuned in self.methods}
        methods = []
        for method in scenario.chosen:
            there = found.get(method.label)
            if there is not None and there.grid.keys() == method.grid.keys():
                methods.append(method.at(there.numbers()))
            elif method.grid:
                names = ", ".join(method.grid)
                raise ConfigError(f"nothing was tuned for method {method.label!r} and its {names}")
            else:
                methods.append(method)
        return msgspec.structs.replace(scenario, methods=tuple(methods))

    def warnings(self, scenario: Scenario) -> Iterator[str]:
        """Yield sentences for what makes these numbers questionable in a scenario."""
        labels = {method.label for method in scenario.chosen}
        for tuned in self.methods:
            if tuned.method.label in labels and not tuned.reached:
                yield f"no point of {tuned.method.label} reached its target when it was tuned"
        shared = sorted({*self.seeds} & {*scenario.seeds})
        if shared:
            yield f"seed {shared[0]} is one that the numbers were tuned on"
        if _bare(self.scenario) != _bare(scenario):
            yield f"the numbers were tuned on another scenario, {self.scenario.name!r}"


# What decides which numbers are best.
def _bare(scenario: Scenario) -> Scenario:
    return msgspec.structs.replace(
        scenario, name="", methods=("fedavg",), seeds=(0,), stop_at_target=True
    )


def at_most(n_points: int, n_seeds: int) -> int:
    """Return how many runs a search takes at most."""
    return n_points + min(n_points, FINALISTS) * (n_seeds - 1)


Tell = Callable[[Method, Record], None]


async def tune(
    fleet: Fleet, scenario: Scenario, method: Method, seeds: Sequence[int], tell: Tell | None = None
) -> Tuned:
    """Search a method's grid.

    Every point runs on the first seed. Those that are not hopelessly slow there, at most ``FINALISTS`` of them, run on
    the others, too; the one with the best geometric mean of its times wins. If no point reaches the target on the
    first seed, the most accurate ones go on.

    Args:
        fleet: Where to run.
        scenario: What to run; it ends at its target.
        method: Whose grid.
        seeds: Seeds to search on.
        tell: Hears of every run.
    """
    scenario = msgspec.structs.replace(scenario, stop_at_target=True)
    points = list(method.points())
    first = await _screen(fleet, scenario, points, seeds[0], tell)
    finalists = _finalists(first)
    runs = [(at, seed) for at in finalists for seed in seeds[1:]]
    jobs = [Job(scenario=scenario, method=points[at], seed=seed) for at, seed in runs]
    told = None if tell is None else (lambda job, record: tell(job.method, record))
    times = [{seeds[0]: record.reached_s} for record in first]
    for (at, seed), record in zip(runs, await fleet.run_all(jobs, told), strict=True):
        times[at][seed] = record.reached_s
    trials = tuple(
        Trial(numbers=point.numbers(), times_s=reached, best=record.best_accuracy)
        for point, reached, record in zip(points, times, first, strict=True)
    )
    best = min(finalists, key=lambda at: (trials[at].score, -trials[at].best))
    return Tuned(
        method=points[best],
        reached=math.isfinite(trials[best].score),
        trials=trials,
        best=best,
    )


# Which points go on does not depend on which runs happened to be under way at the same time: whatever was given up is
# beyond the limit, and so is what ran on because the mark was not set yet.
def _finalists(first: Sequence[Record]) -> list[int]:
    limit_s = HOPELESS * min(_time_s(record) for record in first)
    kept = [at for at, record in enumerate(first) if _time_s(record) <= limit_s]
    kept.sort(key=lambda at: (_time_s(first[at]), -first[at].best_accuracy))
    return kept[:FINALISTS]


def _time_s(record: Record) -> float:
    return math.inf if record.reached_s is None else record.reached_s


async def _screen(
    fleet: Fleet, scenario: Scenario, points: Sequence[Method], seed: int, tell: Tell | None
) -> list[Record]:
    best_s = math.inf

    async def one(method: Method) -> Record:
        nonlocal best_s
        # The mark is looked at when the run begins, by when the first ones have set one.
        record = await fleet.run(
            lambda: Job(
                scenario=scenario,
                method=method,
                seed=seed,
                give_up_s=HOPELESS * best_s if math.isfinite(best_s) else None,
            )
        )
        best_s = min(best_s, _time_s(record))
        if tell is not None:
            tell(method, record)
        return record

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(one(method)) for method in points]
    return [task.result() for task in tasks]
