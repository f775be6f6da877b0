"""Does NBSync do over a WAN what it claims, against tuned rivals, and what do its improvements add?

``python -m benchmarks.nbsync_wan [--quick | --full] [--json] [--out DIR] [--only TEXT]``: every method is tuned on
every cell in virtual time, with the same number of points, on seeds that are not compared, and runs on five others.
``--quick`` takes the numbers of an earlier search (``benchmarks/results/wan``) and three seeds of two cells. ``--full``
leaves its results there, or in DIR; what is there already is not run again, so that a search of hours can be continued.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from aiops.lab.fleet import Fleet
from aiops.lab.job import Job
from aiops.lab.method import Method
from aiops.lab.problem import Problem
from aiops.lab.record import Record
from aiops.lab.scenario import Scenario, speed_ratio
from aiops.lab.statistic import Interval, Summary, speedup, summarize
from aiops.lab.tune import Tuned, tune
from benchmarks import wan_cells as cells

RESULTS = Path(__file__).parent / "results" / "wan"
QUICK_SEEDS = (0, 1, 2)
OURS = "nbsync stream outer"
BEST_OTHERS = ("esync", "diloco", "cocod")
FAR_BEHIND = ("streaming-diloco", "fedbuff", "nbsync")


class Cell(msgspec.Struct, kw_only=True):
    """One scenario and all that was found for it."""

    scenario: Scenario
    ratio: float
    slow: float
    tuned: dict[str, Tuned] = {}
    records: dict[str, list[Record]] = {}


def plan(*, full: bool) -> list[tuple[Scenario, tuple[Method, ...]]]:
    """Return what is run, the most telling first."""
    wide = cells.WIDE
    mine, parts = cells.ours(wide), cells.parts(wide)
    theirs = cells.rivals(4.0, wide)
    if not full:
        few = only((*theirs, *parts, *mine), *BEST_OTHERS, "nbsync partial", OURS)
        return [(one, few) for one in cells.QUICK]
    topk = [msgspec.structs.replace(one, name=f"{one.name}-topk") for one in cells.COMPRESSED]
    fedavg, compressed = only(theirs, "fedavg"), cells.compressed()
    skewed = (
        *mine,
        *only(theirs, *BEST_OTHERS),
        *fedavg,
        *only(parts, "nbsync stream drift"),
        *cells.skewed(4.0, wide),
        *only(compressed, "diloco topk", "nbsync topk", "nbsync topk outer"),
    )
    return [
        *((one, (*mine, *theirs, *parts, *cells.borrowed())) for one in cells.QUICK),
        *((one, (*compressed, *fedavg)) for one in topk),
        *((one, skewed) for one in cells.SKEWED),
        *((one, _shorter(one)) for one in (*cells.GRID, *cells.MORE) if one not in cells.QUICK),
    ]


def only(methods: Sequence[Method], *labels: str) -> tuple[Method, ...]:
    """Return the methods of these labels."""
    return tuple([one for one in methods if one.label in labels])


# Neither Streaming DiLoCo, which is for windows of hundreds of steps, nor FedBuff nor NBSync as published was near the
# others where all were measured.
def _shorter(scenario: Scenario) -> tuple[Method, ...]:
    lrs, slow = cells.lrs_of(scenario), max(scenario.workers.slowdown)
    methods = (*cells.ours(lrs), *cells.rivals(slow, lrs))
    near = [one for one in methods if one.label not in FAR_BEHIND]
    return (*near, *only(cells.compressed(), "nbsync topk outer"))


async def measure(
    fleet: Fleet, cell: Cell, method: Method, seeds: Sequence[int], known: dict[str, Tuned]
) -> None:
    """Tune a method on a cell, unless its numbers are known, and run it."""
    tuned = known.get(method.label) or await tune(fleet, cell.scenario, method, cells.TUNING_SEEDS)
    cell.tuned[method.label] = tuned
    jobs = [Job(scenario=cell.scenario, method=tuned.method, seed=seed) for seed in seeds]
    cell.records[method.label] = [bare(record) for record in await fleet.run_all(jobs)]


def bare(record: Record) -> Record:
    """Return a record for a file of hundreds: no lanes, one link, and of all evaluations the best and the last one."""
    workers = tuple(msgspec.structs.replace(worker, lanes=()) for worker in record.workers)
    best = max(record.points, key=lambda point: point.accuracy, default=None)
    points = tuple(point for point in record.points if point in (best, record.points[-1]))
    return msgspec.structs.replace(record, workers=workers, points=points, wires=record.wires[:1])


def table(cell: Cell) -> Iterator[str]:
    """Yield a cell's lines: time to target, and how much faster the best of ours is than each."""
    records = cell.records
    found = {label: summarize({label: runs})[0] for label, runs in records.items()}
    ordered = sorted(found.values(), key=_time)
    best = next((one.label for one in ordered if one.label.startswith("nbsync")), None)
    yield f"{cell.scenario.name}: S/c = {cell.ratio:.0f}, target {cell.scenario.target:.0%}"
    yield (
        f"  {'':<22}{'s to target':>22}{'best of ours is':>24}{'rounds':>8}{'steps':>8}"
        f"{'util':>6}{'MB':>8}{'best':>7}  tuned"
    )
    for one in ordered:
        ahead = speedup(records[one.label], records[best]) if best is not None else None
        spent, ratio = told(one.time_s, ".1f"), told(ahead, ".2f", "x")
        if one.time_s is None and best is not None:
            # What did not arrive in time took longer than that.
            quickest = found[best].time_s
            spent = f"{one.n_reached} of {one.n_runs} in {cell.scenario.budget_s:g}"
            if quickest is not None and not one.n_reached:
                ratio = f"> {cell.scenario.budget_s / quickest.mean:.1f}x"
        tuned = cell.tuned[one.label]
        edges = f" ({', '.join(tuned.edges)} at the edge)" if tuned.edges else ""
        yield (
            f"  {one.label:<22}{spent:>22}{ratio:>24}{one.rounds:>8.0f}{one.steps:>8.0f}"
            f"{one.utilisation:>6.2f}{one.megabytes:>8.1f}{one.best:>7.3f}  "
            f"{tuned.method.told()}{edges}"
        )


def told(interval: Interval | None, form: str, unit: str = "") -> str:
    """Return a mean and its interval for people; "-" where there is none."""
    if interval is None:
        return "-"
    return f"{interval.mean:{form}}{unit} ({interval.low:{form}}-{interval.high:{form}})"


def _time(summary: Summary) -> float:
    return float("inf") if summary.time_s is None else summary.time_s.mean


async def run(arguments: argparse.Namespace) -> list[Cell]:
    """Run the plan and return its cells."""
    out = arguments.out or (RESULTS if arguments.full else None)
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
    seeds = cells.SEEDS if arguments.full else QUICK_SEEDS
    found = []
    async with Fleet(arguments.processes) as fleet:
        for scenario, methods in plan(full=arguments.full):
            if arguments.only not in scenario.name:
                continue
            path = None if out is None else out / path_name(scenario)
            cell = _start(scenario, path)
            known = {} if arguments.full else _start(scenario, RESULTS / path_name(scenario)).tuned
            for method in methods:
                if method.label in cell.records or (
                    arguments.method and arguments.method not in method.label
                ):
                    continue
                if not arguments.full and method.label not in known:
                    print(f"{scenario.name}: {method.label} was never tuned", file=sys.stderr)
                    continue
                began = time.perf_counter()
                await measure(fleet, cell, method, seeds, known)
                took_s = time.perf_counter() - began
                print(f"{scenario.name}: {method.label} took {took_s:.0f} s", file=sys.stderr)
                if path is not None:
                    path.write_bytes(msgspec.json.encode(cell))
            print("\n".join(table(cell)), file=sys.stderr if arguments.json else sys.stdout)
            found.append(cell)
    return found


def path_name(scenario: Scenario) -> str:
    """Return the file that a cell's results are in."""
    return f"{scenario.name}.json"


def read(path: Path) -> Cell:
    """Return the results of a cell."""
    return msgspec.json.decode(path.read_bytes(), type=Cell)


def _start(scenario: Scenario, path: Path | None) -> Cell:
    if path is not None and path.exists():
        return read(path)
    ratio = speed_ratio(scenario, Problem(scenario).size)
    return Cell(scenario=scenario, ratio=ratio, slow=max(scenario.workers.slowdown))


def main() -> None:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.nbsync_wan", description=__doc__)
    how = parser.add_mutually_exclusive_group()
    how.add_argument(
        "--quick", action="store_true", help="two cells, three seeds, known numbers (the default)"
    )
    how.add_argument("--full", action="store_true", help="every cell, tuned: hours")
    parser.add_argument("--json", action="store_true", help="print the summaries as JSON")
    parser.add_argument(
        "--out", type=Path, help="directory of results, continued where it has some"
    )
    parser.add_argument("--only", default="", help="only cells whose name has this text")
    parser.add_argument("--method", default="", help="only methods whose name has this text")
    parser.add_argument("--processes", type=int, help="runs at the same time; as many as cores")
    arguments = parser.parse_args()
    found = asyncio.run(run(arguments))
    if not found:
        parser.error(f"no cell has {arguments.only!r} in its name")
    if arguments.json:
        summaries = {cell.scenario.name: summarize(cell.records) for cell in found}
        print(msgspec.json.encode(summaries).decode())


if __name__ == "__main__":
    main()
