"""One run: what its suites are handed, and where their results go."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Protocol

from aiops.bench.campaign import Campaign, Contender, Outcome, campaign
from aiops.bench.harness import Spread, interleave
from aiops.bench.machine import Watch, available_bytes
from aiops.bench.peers.base import Case, Skipped
from aiops.bench.peers.table import peer
from aiops.bench.result import Figure, Line, Miss, row

# More foreign load than this is worth a warning, in cores.
QUIET_CORES = 0.1

# A contender keeps about so many arrays per worker over all its processes: ten of them, with four workers and 100 MB
# each, took 17 GB.
ARRAYS_PER_WORKER = 5


class View(Protocol):
    """Who hears how it goes."""

    def say(self, text: str) -> None:
        """Take a piece of news."""

    def warn(self, text: str) -> None:
        """Take a piece of news that must not be overlooked."""


class Bench:
    """What a suite is handed.

    Args:
        view: Who hears how it goes.
        put: Takes each result as it comes.
        scratch: Directory for what is built.
        quick: Whether everything must be over in a minute.
        only: Peers that take part beside ours and the bound, by key; empty for all.
    """

    def __init__(
        self,
        view: View,
        put: Callable[[Line], None],
        *,
        scratch: str,
        quick: bool = False,
        only: Sequence[str] = (),
    ) -> None:
        self.quick = quick
        self.scratch = scratch
        self.view = view
        self.put = put
        self._only = only
        self._skipped: set[str] = set()

    def case(self, n_bytes: int, n_workers: int = 1, **more: object) -> Case:
        """Return a case of this run."""
        return Case(n_bytes=n_bytes, n_workers=n_workers, scratch=self.scratch, **more)  # type: ignore[arg-type]

    def available(
        self, bench: str, keys: Sequence[str], *, always: Collection[str] = ("ours", "sockets")
    ) -> list[str]:
        """Return the peers among ``keys`` that can run here; tell once of each that cannot.

        Args:
            bench: The suite.
            keys: Who could take part.
            always: Who does even where only others were asked for: ours, whatever that is in a suite, and the bound.
        """
        found = []
        for key in keys:
            if self._only and key not in self._only and key not in always:
                continue
            try:
                peer(key).versions()
            except Skipped as error:
                if key not in self._skipped:
                    self.view.warn(f"{peer(key).name} is skipped: {error}")
                    self.put(Miss(bench=bench, case="", peer=peer(key).name, reason=str(error)))
                self._skipped.add(key)
                continue
            found.append(key)
        return found

    async def compete(
        self,
        bench: str,
        case: str,
        contenders: Sequence[Contender],
        *,
        passes: int,
        turn_s: float = 0.12,
        ours: str = "aiops",
        bound: str = "",
    ) -> Campaign | None:
        """Measure process sets in turn and put a row for each.

        Where memory is too small for all at a time, they take part in groups, each beside ours and the bound.

        Args:
            bench: The suite.
            case: What they do.
            contenders: Who takes part.
            passes: Turns of each.
            turn_s: About how long a turn takes.
            ours: Label of the one that ratios are about.
            bound: Label of the one that ``bound_ratio`` is about.

        Returns:
            What was measured, of the last group; None where not even one contender has room.
        """
        result, shown = None, set[str]()
        for group in groups(contenders, {ours, bound}, available_bytes()):
            result = await campaign(
                group,
                passes=passes,
                turn_s=turn_s,
                tell=lambda text: self.view.say(f"{bench}: {case}: {text}"),
            )
            self._disturbed(bench, case, result.foreign_cores)
            for contender in group:
                if contender.label not in shown:
                    self._put_outcome(bench, case, contender, result.outcomes, ours, bound)
            shown |= {contender.label for contender in group}
        if result is None:
            reason = f"there are only {available_bytes() / 1e9:.0f} GB of memory"
            self.view.warn(f"{bench}: {case} is skipped: {reason}")
            self.put(Miss(bench=bench, case=case, peer="", reason=reason))
        return result

    async def time(
        self,
        bench: str,
        case: str,
        contenders: Mapping[str, Callable[[], object]],
        *,
        passes: int,
        bound: str = "",
        goals: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """Measure functions of this process in turn, "ours" among them, and put a row for each."""
        self.view.say(f"{bench}: {case}")
        # A signal is heard between two cases.
        await asyncio.sleep(0)
        watch = Watch()
        samples = interleave(contenders, passes=passes)
        self._disturbed(bench, case, watch.foreign_cores())
        for name, times in samples.items():
            self.put(
                row(
                    bench,
                    case,
                    "aiops" if name == "ours" else name,
                    times,
                    ratios=_ratios(times, samples["ours"]),
                    bound_ratios=_ratios(times, samples[bound]) if bound in samples else (),
                    goal=goals.get(name, ""),
                )
            )

    def figure(self, bench: str, case: str, value: float, unit: str, goal: str = "") -> None:
        """Put a number that is no time; NaN, which JSON does not know, as something that was not measured."""
        if math.isnan(value):
            self.put(Miss(bench=bench, case=case, peer="", reason="what it compares did not run"))
            return
        self.put(Figure(bench=bench, case=case, value=value, unit=unit, goal=goal))

    def _disturbed(self, bench: str, case: str, cores: float) -> None:
        if cores > QUIET_CORES:
            self.view.warn(f"{bench}: {case}: others used {cores:.1f} cores meanwhile")

    def _put_outcome(
        self,
        bench: str,
        case: str,
        contender: Contender,
        outcomes: Mapping[str, Outcome],
        ours: str,
        bound: str,
    ) -> None:
        outcome = outcomes[contender.label]
        if outcome.failed:
            self.view.warn(f"{bench}: {case}: {contender.label} failed: {outcome.failed}")
            reason = outcome.failed
            self.put(Miss(bench=bench, case=case, peer=contender.label, reason=reason))
        if not outcome.samples:
            return
        bound_cpu = cpu_s_per_gb(contender.case, outcomes[bound]) if bound in outcomes else None
        self.put(
            row(
                bench,
                case,
                contender.label,
                list(outcome.samples.values()),
                ratios=_by_pass(outcome, outcomes.get(ours)),
                bound_ratios=_by_pass(outcome, outcomes.get(bound)),
                cpu_s_per_gb=cpu_s_per_gb(contender.case, outcome),
                network=outcome.network,
                goal=contender.goal,
                cpu_goal=f"<= {bound_cpu:.2f}" if contender.thrifty and bound_cpu else "",
            )
        )


def groups(
    contenders: Sequence[Contender], always: Collection[str], room_bytes: int
) -> list[list[Contender]]:
    """Return contenders in groups that fit into memory, the labels in ``always`` in each; none if even one does not."""
    fixed = [one for one in contenders if one.label in always]
    room = room_bytes - sum(map(_bytes, fixed))
    found: list[list[Contender]] = []
    left = 0
    for one in contenders:
        if one.label in always:
            continue
        if _bytes(one) > left:
            found.append(list(fixed))
            left = room
        found[-1].append(one)
        left -= _bytes(one)
        if left < 0:
            return []
    return found or ([fixed] if room >= 0 else [])


def _bytes(contender: Contender) -> int:
    return contender.case.n_workers * contender.case.n_bytes * ARRAYS_PER_WORKER


# Below this, process times (counted in ticks of 10 ms) say nothing about bytes.
LEAST_COUNTED_BYTES = 1_000_000


def cpu_s_per_gb(case: Case, outcome: Outcome) -> float | None:
    """Return what a contender's processes used per 10^9 bytes pushed and pulled; None for small messages."""
    if case.n_bytes < LEAST_COUNTED_BYTES or outcome.failed or not outcome.rounds:
        return None
    return (outcome.user_s + outcome.system_s) / moved_gb(case, outcome)


def moved_gb(case: Case, outcome: Outcome) -> float:
    """Return what all workers pushed and pulled, in 10^9 bytes."""
    return outcome.rounds * case.n_workers * case.n_bytes * (1 if case.one_way else 2) / 1e9


def compared(result: Campaign, label: str, with_label: str) -> float:
    """Return how many times as long one contender took as another, NaN where one did not or was not there."""
    if label not in result.outcomes or with_label not in result.outcomes:
        return math.nan
    these, those = result.outcomes[label].samples, result.outcomes[with_label].samples
    both = [these[turn] / those[turn] for turn in these if turn in those]
    return Spread.of(both).median if both else math.nan


def _by_pass(outcome: Outcome, other: Outcome | None) -> list[float]:
    if other is None:
        return []
    return [
        seconds / other.samples[turn]
        for turn, seconds in outcome.samples.items()
        if turn in other.samples
    ]


def _ratios(times: Sequence[float], others: Sequence[float]) -> list[float]:
    return [time / other for time, other in zip(times, others, strict=True)]


class Clock:
    """How long something has taken."""

    def __init__(self) -> None:
        self._start = time.perf_counter()

    def __str__(self) -> str:
        minutes, seconds = divmod(time.perf_counter() - self._start, 60)
        return f"{minutes:.0f} min {seconds:.0f} s" if minutes else f"{seconds:.0f} s"
