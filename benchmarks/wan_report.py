"""What ``nbsync_wan`` has found so far: its tables again, a line per cell, and the map of speed-ups.

``python -m benchmarks.wan_report [--results DIR] [--tables] [--picture FILE]``: reads results, runs nothing. A line
holds, for NBSync with all of our parts, how many times as fast it is as the best tuned method of others, whichever that
is in the cell, and as the slowest to beat: FedAvg, FedAsync and SSGD. Where runs of one did not arrive, the longest run
over our time stands as a bound.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from aiops.lab import comparison
from aiops.lab.record import Record
from aiops.lab.scenario import heterogeneity
from aiops.lab.statistic import Interval, geometric, speedup, times
from benchmarks import nbsync_wan, wan_cells
from benchmarks.nbsync_wan import OURS, RESULTS, Cell, table, told

PLAIN = ("fedavg", "fedasync", "ssgd")
# NBSync is none of the others, and these have parts of ours; ours is dense here.
NOT_OTHERS = ("nbsync", "esync outer", "esync stream outer")
COMPRESSED = " topk"
OURS_COMPRESSED = "nbsync topk outer"
BEST_OTHER = "the best other"
# They differ in S/c and H alone.
MAPPED = {one.name for one in (*wan_cells.GRID, wan_cells.cell(10.0))}


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """One cell in short.

    Attributes:
        cell: Its name.
        ratio: S/c.
        slow: The slow workers' step over a fast one's.
        time_s: Ours, geometric mean over the seeds.
        topk_s: The same with two-way Top-k and without streaming; None where that was not measured or did not arrive.
        other: The best other method.
        ahead: How many times as fast as that one ours is; None where it or ours did not arrive.
        plain: The same over each of :data:`PLAIN`, as text.
    """

    cell: str
    ratio: float
    slow: float
    time_s: float
    topk_s: float | None
    other: str
    ahead: Interval | None
    plain: dict[str, str]


def read(directory: Path) -> list[Cell]:
    """Return the cells that there are results of, by S/c, then by H."""
    cells = [nbsync_wan.read(path) for path in directory.glob("*.json")]
    return sorted(cells, key=lambda cell: (cell.ratio, cell.slow, cell.scenario.name))


def mean_s(records: Sequence[Record]) -> float:
    """Return the geometric mean of the times to target; infinite where a run did not arrive."""
    found = list(times(records).values())
    return geometric(found).mean if found and max(found) < math.inf else math.inf


def best_other(cell: Cell) -> str | None:
    """Return the method of others that was quickest to the target; None where none arrived."""
    others = {
        label: mean_s(runs)
        for label, runs in cell.records.items()
        if not label.startswith(NOT_OTHERS) and not label.endswith(COMPRESSED)
    }
    best = min(others, key=others.__getitem__, default=None)
    return None if best is None or others[best] == math.inf else best


def line(cell: Cell) -> Line | None:
    """Return a cell in short; None where ours or all others are missing."""
    ours, other = cell.records.get(OURS), best_other(cell)
    if ours is None or other is None:
        return None
    topk_s = mean_s(cell.records.get(OURS_COMPRESSED, ()))
    return Line(
        cell=cell.scenario.name,
        ratio=cell.ratio,
        slow=heterogeneity(cell.scenario),
        time_s=mean_s(ours),
        topk_s=topk_s if topk_s < math.inf else None,
        other=other,
        ahead=speedup(cell.records[other], ours),
        plain={label: _over(cell, label, ours) for label in PLAIN},
    )


def _over(cell: Cell, label: str, ours: Sequence[Record]) -> str:
    runs = cell.records.get(label)
    if runs is None:
        return "-"
    ahead = speedup(runs, ours)
    if ahead is not None:
        return told(ahead, ".1f")
    # What did not arrive took longer than that.
    late = [min(time_s, cell.scenario.budget_s) for time_s in times(runs).values()]
    return f"> {geometric(late).mean / mean_s(ours):.1f}"


def lines(cells: Sequence[Cell]) -> Iterator[str]:
    """Yield the table of all cells."""
    heads = "".join(f"{label:>18}" for label in PLAIN)
    yield f"{'':<36}{'S/c':>5}{'H':>4}{'ours s':>8}{'Top-k s':>9}  {'best other':<18}{'times as fast':>18}{heads}"
    for cell in cells:
        one = line(cell)
        if one is None:
            continue
        plain = "".join(f"{text:>18}" for text in one.plain.values())
        topk = "-" if one.topk_s is None else f"{one.topk_s:.1f}"
        yield (
            f"{one.cell:<36}{one.ratio:>5.0f}{one.slow:>4g}{one.time_s:>8.1f}{topk:>9}  {one.other:<18}"
            f"{told(one.ahead, '.2f'):>18}{plain}"
        )


def draw(cells: Sequence[Cell], path: Path) -> None:
    """Draw the map over S/c and H, of the cells that differ in nothing else: six workers, 50 ms, Dirichlet 0.3."""
    from aiops.lab.picture import speedups

    found = []
    for cell in cells:
        one = line(cell)
        if one is None or cell.scenario.name not in MAPPED:
            continue
        runs = {BEST_OTHER: cell.records[one.other], OURS: cell.records[OURS]}
        setting = comparison.setting_of(cell.scenario, "virtual", cell.records[OURS][0].n_values)
        found.append(comparison.compare(setting, runs, BEST_OTHER))
    title = "virtual lab, Fashion-MNIST, six workers; tuned with the same budget; five seeds"
    speedups(found, path, title=title)


def main() -> None:
    """Parse the command line and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.wan_report", description=__doc__)
    parser.add_argument("--results", type=Path, default=RESULTS, help="where the results are")
    parser.add_argument("--tables", action="store_true", help="print every cell's table, too")
    parser.add_argument("--picture", type=Path, help="draw the map of speed-ups there")
    arguments = parser.parse_args()
    cells = read(arguments.results)
    if not cells:
        parser.error(f"{arguments.results} has no results of nbsync_wan")
    if arguments.tables:
        for cell in cells:
            print("\n".join((*table(cell), "")))
    print("\n".join(lines(cells)))
    if arguments.picture is not None:
        draw(cells, arguments.picture)


if __name__ == "__main__":
    main()
