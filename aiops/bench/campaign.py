"""An interleaved campaign: contenders take turns, pass by pass, so that a noisy neighbour slows all of them alike."""

from __future__ import annotations

import asyncio
import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from aiops.bench.fleet import Fleet, stop_all
from aiops.bench.harness import rotated
from aiops.bench.machine import Watch
from aiops.bench.network import DEFAULT, network
from aiops.bench.peers.base import Case

# Rounds of a turn: enough for a median, so short that everybody's turn comes soon.
MOST_ROUNDS = 4000

# Where workers end a round one after the other, the first begin the next one meanwhile: a single round hides that.
FEWEST_ROUNDS = 2

# A contender this much slower than its turn sits out passes, but for FEWEST of them.
PATIENCE, FEWEST = 4.0, 3


@dataclass(frozen=True, slots=True)
class Contender:
    """Who takes part.

    Attributes:
        label: What it is called in the result.
        key: The peer's key in the table.
        case: What its processes are started for.
        network: The congestion control of its network, or the system's.
        goal: What its ratio to ours should be, for people; "" for none.
        thrifty: Whether it should use no more processor time per byte than the bound.
    """

    label: str
    key: str
    case: Case
    network: str = DEFAULT
    goal: str = ""
    thrifty: bool = False


@dataclass(slots=True)
class Outcome:
    """What was measured of one contender.

    Attributes:
        samples: Pass -> seconds per round: the median over a turn, or of several workers the mean.
        means: Pass -> seconds per round, the mean whatever the number of workers.
        best_s: The fastest single round.
        rounds: Rounds measured, of every worker.
        user_s: User time of all its processes over them.
        system_s: Their system time.
        failed: Why it has no samples, or no more; "" if it has.
        network: The congestion control in force.
    """

    samples: dict[int, float] = field(default_factory=dict)
    means: dict[int, float] = field(default_factory=dict)
    best_s: float = math.inf
    rounds: int = 0
    user_s: float = 0.0
    system_s: float = 0.0
    failed: str = ""
    network: str = ""


@dataclass(frozen=True, slots=True)
class Campaign:
    """Outcomes by label, and how many cores others used meanwhile."""

    outcomes: dict[str, Outcome]
    foreign_cores: float


Tell = Callable[[str], None]


async def campaign(
    contenders: Sequence[Contender],
    *,
    passes: int,
    turn_s: float = 0.15,
    tell: Tell = lambda text: None,
) -> Campaign:
    """Measure contenders in turn.

    Args:
        contenders: Who takes part, with labels of their own.
        passes: Turns of each.
        turn_s: About how long a turn takes, in seconds.
        tell: Hears how it goes.
    """
    fleets = {one.label: Fleet(one.key, one.case) for one in contenders}
    outcomes = {one.label: Outcome() for one in contenders}
    try:
        await _start(contenders, fleets, outcomes, tell)
        plans = {label: await _plan(fleet, passes, turn_s) for label, fleet in fleets.items()}
        watch = Watch(pid for fleet in fleets.values() if not fleet.failed for pid in fleet.pids)
        before = {label: _cpu(fleet) for label, fleet in fleets.items()}
        for turn in range(passes):
            tell(f"pass {turn + 1} of {passes}")
            for label in rotated(list(fleets), turn):
                await _turn(fleets[label], outcomes[label], plans[label], turn)
        foreign = watch.foreign_cores()
        for label, fleet in fleets.items():
            outcome = outcomes[label]
            after = _cpu(fleet)
            outcome.user_s, outcome.system_s = (
                now - then for now, then in zip(after, before[label], strict=True)
            )
            outcome.failed = fleet.failed
    finally:
        await stop_all(list(fleets.values()))
    return Campaign(outcomes, foreign)


# All contenders of one network start at the same time: importing libraries takes longest.
async def _start(
    contenders: Sequence[Contender],
    fleets: dict[str, Fleet],
    outcomes: dict[str, Outcome],
    tell: Tell,
) -> None:
    tell("starting " + ", ".join(one.label for one in contenders))
    ordered = sorted(contenders, key=lambda one: one.network)
    for name, group in itertools.groupby(ordered, key=lambda one: one.network):
        with network(name) as in_force:
            async with asyncio.TaskGroup() as tasks:
                for one in group:
                    outcomes[one.label].network = in_force
                    tasks.create_task(fleets[one.label].start())


@dataclass(frozen=True, slots=True)
class _Plan:
    rounds: int = 1
    every: int = 1


# Warm up, and see how many rounds make a turn.
async def _plan(fleet: Fleet, passes: int, turn_s: float) -> _Plan:
    once_s = math.inf
    for count in (1, 3):
        # The first round of a slow one tells enough.
        if count * once_s < turn_s or count == 1:
            sample = None if fleet.failed else await fleet.rounds(count)
            if sample is None:
                return _Plan()
            once_s = min(once_s, sample.median_s)
    fewest = 1 if len(fleet.workers) == 1 else FEWEST_ROUNDS
    rounds = max(fewest, min(MOST_ROUNDS, round(turn_s / once_s)))
    slowness = rounds * once_s / (PATIENCE * turn_s)
    return _Plan(rounds, max(1, min(math.ceil(slowness), passes // FEWEST)))


async def _turn(fleet: Fleet, outcome: Outcome, plan: _Plan, turn: int) -> None:
    if fleet.failed or turn % plan.every:
        return
    sample = await fleet.rounds(plan.rounds)
    if sample is not None:
        outcome.samples[turn] = sample.median_s
        outcome.means[turn] = (sample.end_s - sample.start_s) / plan.rounds
        outcome.best_s = min(outcome.best_s, sample.best_s)
        outcome.rounds += plan.rounds


def _cpu(fleet: Fleet) -> tuple[float, float]:
    return (0.0, 0.0) if fleet.failed else fleet.cpu_s()
