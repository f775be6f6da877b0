"""Does what the virtual lab says hold on real processes, sockets and TCP? The headline rows of ``nbsync_wan``.

``python -m benchmarks.wan_real [--only TEXT] [--method TEXT] [--seeds 5] [--tries 4] [--out DIR] [--json]``: a process
per worker behind emulated links, with the numbers that ``nbsync_wan --full`` has found. Methods take turns, seed by
seed. A run that a validity gate rejects is done again, up to so many times in all; the gates look at steps, links and
the emulator, not at the outcome, and every rejection is counted. Results that are there already are not run again. The
machine must be idle: what else runs makes runs invalid.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from aiops.lab.method import Method
from aiops.lab.real import RealLab
from aiops.lab.record import Record
from aiops.lab.scenario import Scenario
from aiops.lab.statistic import speedup, summarize
from benchmarks import nbsync_wan, wan_cells
from benchmarks.nbsync_wan import OURS, told

OUT = nbsync_wan.RESULTS.with_name("wan-real")

METHODS = (OURS, "cocod", "esync", "nbsync partial")
# Several times what the slowest of them takes.
BUDGET_S = 100.0


class Row(msgspec.Struct, kw_only=True):
    """One scenario in the real lab.

    Attributes:
        scenario: What ran.
        records: Valid runs by method.
        rejected: Why each of the others was not valid, by method.
    """

    scenario: Scenario
    records: dict[str, list[Record]] = {}
    rejected: dict[str, list[str]] = {}


def rows() -> list[tuple[Scenario, str]]:
    """Return what runs, and the cell whose numbers it takes."""
    found = [(one, one.name) for one in wan_cells.QUICK]
    lossy = wan_cells.cell(20.0, congestion="cubic", loss=0.001)
    found.append((lossy, wan_cells.QUICK[0].name))
    return [(msgspec.structs.replace(one, budget_s=BUDGET_S), name) for one, name in found]


def _virtual(name: str) -> nbsync_wan.Cell:
    return nbsync_wan.read(nbsync_wan.RESULTS / f"{name}.json")


async def fill(row: Row, methods: Sequence[Method], seeds: Sequence[int], path: Path) -> None:
    """Open the lab once and run what is missing."""
    async with RealLab(row.scenario) as lab:
        for reason in lab.verdict.reasons:
            print(f"runs will be rejected: {reason}", file=sys.stderr)
        if not lab.verdict.holds:
            return
        for seed in seeds:
            for method in methods:
                runs = row.records.setdefault(method.label, [])
                if any(record.seed == seed for record in runs):
                    continue
                record = nbsync_wan.bare(await lab.run(method, seed))
                why = "; ".join(record.rejected)
                if why:
                    row.rejected.setdefault(method.label, []).append(why)
                else:
                    runs.append(record)
                came = why or f"{record.reached_s} s"
                print(f"{row.scenario.name}: {method.label}, seed {seed}: {came}", file=sys.stderr)
                _save(row, path)


def _save(row: Row, path: Path) -> None:
    path.write_bytes(msgspec.json.encode(row))


async def run(arguments: argparse.Namespace) -> list[tuple[Row, str]]:
    """Run every row and return it with the cell that it is compared with."""
    arguments.out.mkdir(parents=True, exist_ok=True)
    found = []
    for scenario, name in rows():
        if arguments.only not in scenario.name:
            continue
        path = arguments.out / f"{scenario.name}.json"
        row = Row(scenario=scenario)
        if path.exists():
            row = msgspec.json.decode(path.read_bytes(), type=Row)
        tuned = _virtual(name).tuned
        methods = [tuned[label].method for label in METHODS if arguments.method in label]
        seeds = wan_cells.SEEDS[: arguments.seeds]
        for _ in range(arguments.tries):
            if all(len(row.records.get(method.label, ())) >= len(seeds) for method in methods):
                break
            await fill(row, methods, seeds, path)
        print("\n".join(table(row, name)), file=sys.stderr if arguments.json else sys.stdout)
        found.append((row, name))
    return found


def table(row: Row, name: str) -> Iterator[str]:
    """Yield a row's lines: time to target, the same in the virtual lab, and how much faster ours is than each."""
    computed = _virtual(name).records
    runs = [record for records in row.records.values() for record in records]
    wires = [wire for record in runs for wire in record.wires]
    yield f"{row.scenario.name}: real, target {row.scenario.target:.0%}"
    for wire in wires[:1]:
        ups, delays = [w.up_mbit for w in wires], [w.delay_ms for w in wires]
        yield (
            f"  {wire.kind}; {wire.congestion}; {min(ups):.2f}-{max(ups):.2f} Mbit/s up, "
            f"{min(delays):.2f}-{max(delays):.2f} ms each way"
        )
    yield (
        f"  {'':<22}{'runs':>5}{'rejected':>9}{'s to target':>22}{'over virtual':>19}{'ours is':>22}"
        f"{'rounds':>8}{'util':>6}"
    )
    for label, records in row.records.items():
        one = summarize({label: records})[0]
        yield (
            f"  {label:<22}{one.n_runs:>5}{len(row.rejected.get(label, ())):>9}{told(one.time_s, '.2f'):>22}"
            f"{told(speedup(records, computed[label]), '.2f'):>19}"
            f"{told(speedup(records, row.records.get(OURS, [])), '.2f', 'x'):>22}{one.rounds:>8.0f}"
            f"{one.utilisation:>6.2f}"
        )


def main() -> None:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.wan_real", description=__doc__)
    parser.add_argument("--only", default="", help="only scenarios whose name has this text")
    parser.add_argument("--method", default="", help="only methods whose name has this text")
    parser.add_argument("--seeds", type=int, default=len(wan_cells.SEEDS), help="how many")
    parser.add_argument("--tries", type=int, default=4, help="for each run")
    parser.add_argument("--out", type=Path, default=OUT, help="directory of results, continued")
    parser.add_argument("--json", action="store_true", help="print the summaries as JSON")
    arguments = parser.parse_args()
    found = asyncio.run(run(arguments))
    if not found:
        parser.error(f"no scenario has {arguments.only!r} in its name")
    if arguments.json:
        summaries = {row.scenario.name: summarize(row.records, OURS) for row, _ in found}
        print(msgspec.json.encode(summaries).decode())


if __name__ == "__main__":
    main()
