"""The same search for every method: its grid, point by point, on seeds that no comparison uses."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Sequence

import msgspec

from aiops.lab.fleet import Fleet
from aiops.lab.job import Job
from aiops.lab.method import Method
from aiops.lab.record import Record
from aiops.lab.scenario import Scenario

# A point that takes so much longer than the best one known on the same seed cannot win.
HOPELESS = 1.25

# How many of the best points of the first seed are run on the others.
FINALISTS = 4


class Trial(msgspec.Struct, frozen=True, kw_only=True):
    """One point of a grid.

    Attributes:
        numbers: The point.
        times_s: Time to target by seed; infinite where it was not reached in time.
    """

    numbers: dict[str, float]
    times_s: dict[int, float | None]

    @property
    def score(self) -> float:
        """Geometric mean; infinite where a seed did not reach the target."""
        logs = [math.inf if t is None else math.log(t) for t in self.times_s.values()]
        return math.exp(math.fsum(logs) / len(logs)) if logs else math.inf


class Tuned(msgspec.Struct, frozen=True, kw_only=True):
    """A method at its best point.

    Attributes:
        method: With the numbers of the best point.
        reached: Whether any point reached the target on every seed.
        trials: Everything that was tried.
    """

    method: Method
    reached: bool
    trials: tuple[Trial, ...]


Tell = Callable[[Method, Trial], None]


async def tune(
    fleet: Fleet, scenario: Scenario, method: Method, seeds: Sequence[int], tell: Tell | None = None
) -> Tuned:
    """Search a method's grid.

    Every point runs on the first seed, and the best few on the others, too. A run is given up when it has taken
    ``HOPELESS`` times as long as the best one on its seed; that changes no winner.

    Args:
        fleet: Where to run.
        scenario: What to run; it ends at its target.
        method: Whose grid.
        seeds: Seeds to search on.
        tell: Hears of every point.
    """
    scenario = msgspec.structs.replace(scenario, stop_at_target=True)
    points = list(method.points())
    times: list[dict[int, float | None]] = [{} for _ in points]
    chosen = list(range(len(points)))
    for turn, seed in enumerate(seeds):
        await _search(fleet, scenario, [(i, points[i]) for i in chosen], seed, times)
        if turn == 0:
            chosen = sorted(chosen, key=lambda i: _of(times[i], seed))[:FINALISTS]
    trials = []
    for point, reached in zip(points, times, strict=True):
        trial = Trial(numbers={k: float(v) for k, v in point.numbers().items()}, times_s=reached)
        trials.append(trial)
        if tell is not None:
            tell(point, trial)
    best = min(chosen, key=lambda i: trials[i].score)
    return Tuned(
        method=points[best], reached=math.isfinite(trials[best].score), trials=tuple(trials)
    )


def _of(times: dict[int, float | None], seed: int) -> float:
    reached = times.get(seed)
    return math.inf if reached is None else reached


async def _search(
    fleet: Fleet,
    scenario: Scenario,
    points: Sequence[tuple[int, Method]],
    seed: int,
    times: list[dict[int, float | None]],
) -> None:
    best_s = math.inf

    async def one(number: int, method: Method) -> None:
        nonlocal best_s
        # The budget is looked at when the run begins, by when the first ones have set a mark.
        record: Record = await fleet.run(
            lambda: Job(
                scenario=scenario,
                method=method,
                seed=seed,
                give_up_s=min(scenario.budget_s, HOPELESS * best_s),
            )
        )
        times[number][seed] = record.reached_s
        if record.reached_s is not None:
            best_s = min(best_s, record.reached_s)

    async with asyncio.TaskGroup() as group:
        for number, method in points:
            group.create_task(one(number, method))
