"""Results as pictures: accuracy over time, what the workers did, and speed-ups over scenarios."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import matplotlib as mpl
import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import TwoSlopeNorm
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from numpy.typing import NDArray

from aiops.lab.comparison import Comparison, by_cell
from aiops.lab.record import Record
from aiops.lab.scenario import Change, Scenario
from aiops.lab.statistic import Interval, geometric
from aiops.lab.table import percent

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Told apart by people who do not see red and green, too (Okabe and Ito, 2008); with the markers in grey as well.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MARKERS = "osD^vPX"
COMPUTE, SYNC, WAIT = "#009E73", "#E69F00", "#DDDDDD"
GREY = "#666666"

# More workers than these do not fit: the fastest and the slowest are shown with some between them.
SHOWN_WORKERS = 8
# What is far below the target decides nothing.
BELOW = 0.45
Runs = Mapping[str, Sequence[Record]]


def accuracy(runs: Runs, scenario: Scenario, path: Path, *, title: str = "") -> None:
    """Write the picture of accuracy over time: a line per method, the median over seeds, in a band from worst to best.

    Args:
        runs: Runs by method.
        scenario: What ran.
        path: Where it goes.
        title: What stands beneath, in small.
    """
    with _figure(path, (10.0, 5.4), title) as figure:
        axis = figure.subplots()
        end = max((record.ended_s for records in runs.values() for record in records), default=1.0)
        for number, (label, records) in enumerate(runs.items()):
            drawn = [record for record in records if record.points]
            if drawn:
                _curve(axis, label, drawn, number)
        axis.axhline(scenario.target, color=GREY, lw=0.8, ls=(0, (4, 3)))
        axis.annotate(
            f"target {percent(scenario.target)}",
            (0.0, scenario.target), xytext=(4, 3), textcoords="offset points", color=GREY,
        )  # fmt: skip
        _changes(axis, scenario.changes, end)
        axis.set_xlim(0.0, end * 1.02)
        best = max((r.best_accuracy for records in runs.values() for r in records), default=1.0)
        axis.set_ylim(max(0.0, scenario.target - BELOW), max(best, scenario.target) + 0.02)
        n_seeds = max((len(records) for records in runs.values()), default=1)
        spread = f"; lines are medians of {n_seeds} seeds, bands all of them" if n_seeds > 1 else ""
        axis.set_xlabel(f"seconds of training{spread}; a mark is a run at its target")
        axis.set_ylabel("test accuracy of the global model")
        axis.yaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
        axis.grid(axis="y", color="#EEEEEE")
        axis.set_axisbelow(True)
        axis.legend(loc="lower right", frameon=False)
        axis.set_title(
            f"{scenario.name}: time to {percent(scenario.target)}", loc="left", weight="bold"
        )


def _curve(axis: Axes, label: str, records: Sequence[Record], number: int) -> None:
    colour, marker = COLOURS[number % len(COLOURS)], MARKERS[number % len(MARKERS)]
    at = np.unique([t for record in records for t in (record.ended_s, *_times(record))])
    curves = np.array([_held(record, at) for record in records])
    # Before all of them have been looked at once, a median would be one of fewer runs.
    known = ~np.isnan(curves).any(axis=0)
    at, curves = at[known], curves[:, known]
    reached = [record.reached_s for record in records if record.reached_s is not None]
    told = f"{label}: not reached"
    if len(reached) == len(records):
        told = f"{label}: {geometric(reached).mean:.3g} s"
    elif reached:
        told = f"{label}: {len(reached)} of {len(records)} runs"
    axis.step(at, np.median(curves, axis=0), where="post", color=colour, lw=1.8, label=told)
    if len(records) > 1:
        worst, best = curves.min(axis=0), curves.max(axis=0)
        axis.fill_between(at, worst, best, step="post", color=colour, alpha=0.15, lw=0)
    for record in records:
        if record.reached_s is not None:
            point = next(point for point in record.points if point.at == record.reached_s)
            axis.plot(
                [point.at], [point.accuracy], marker=marker, ms=5, mfc="white", mec=colour, mew=1.4
            )


# A version's accuracy holds until the next one is looked at, the last one's for good: runs end at their target.
def _held(record: Record, at: NDArray[np.float64]) -> NDArray[np.float64]:
    times = np.array(_times(record))
    values = np.array([math.nan, *(point.accuracy for point in record.points)])
    return values[np.searchsorted(times, at, side="right")]


def _times(record: Record) -> list[float]:
    return [point.at for point in record.points]


def _changes(axis: Axes, changes: Sequence[Change], end: float) -> None:
    for number, change in enumerate(change for change in changes if change.at_s < end):
        axis.axvline(change.at_s, color=GREY, lw=0.8, ls=":")
        axis.annotate(
            _told(change),
            (change.at_s, 0.0), xycoords=("data", "axes fraction"),
            xytext=(3, 4 + 10 * (number % 3)), textcoords="offset points", color=GREY, fontsize=7,
        )  # fmt: skip


def _told(change: Change) -> str:
    parts = [
        f"{name} {value:g}{unit}"
        for name, value, unit in (
            ("slowdown", change.slowdown, "x"),
            ("up", change.up_mbit, " Mbit/s"),
            ("down", change.down_mbit, " Mbit/s"),
            ("delay", change.delay_ms, " ms"),
            ("jitter", change.jitter_ms, " ms"),
            ("loss", change.loss, ""),
        )
        if value is not None
    ]
    whom = f"worker {', '.join(map(str, change.workers))}: " if change.workers else ""
    return whom + ", ".join(parts)


def timeline(runs: Runs, path: Path, *, title: str = "") -> None:
    """Write the picture of what the workers did at first: two lanes each, a panel per method, its first seed.

    Args:
        runs: Runs by method.
        path: Where it goes.
        title: What stands beneath, in small.
    """
    shown = {label: records[0] for label, records in runs.items() if _last_s(records[:1])}
    if not shown:
        return
    # As long as the method whose record is shortest, so that all panels have one scale.
    end = min(_last_s([record]) for record in shown.values())
    rows = [_some(len(record.workers)) for record in shown.values()]
    heights = [0.9 + 0.34 * len(workers) for workers in rows]
    with _figure(path, (11.0, 0.7 + sum(heights)), title) as figure:
        axes = figure.subplots(len(shown), 1, squeeze=False, height_ratios=heights, sharex=True)
        for axis, (label, record), workers in zip(axes.flat, shown.items(), rows, strict=True):
            _panel(axis, label, record, workers)
        axes[-1, 0].set_xlim(0.0, end)
        axes[-1, 0].set_xlabel("seconds since the start")
        figure.legend(
            handles=[
                Patch(color=COMPUTE, label="compute"),
                Patch(color=SYNC, label="sync"),
                Patch(color=WAIT, label="wait"),
            ],
            loc="outside upper right", ncols=3, frameon=False,
        )  # fmt: skip


def _last_s(records: Sequence[Record]) -> float:
    return max((lane.stop for r in records for w in r.workers for lane in w.lanes), default=0.0)


def _some(count: int) -> list[int]:
    if count <= SHOWN_WORKERS:
        return list(range(count))
    return sorted({round(at) for at in np.linspace(0, count - 1, SHOWN_WORKERS)})


def _panel(axis: Axes, label: str, record: Record, workers: Sequence[int]) -> None:
    names = []
    for row, index in enumerate(workers):
        worker = record.workers[index]
        spans: dict[str, list[tuple[float, float]]] = {"compute": [], "sync": [], "wait": []}
        for lane in worker.lanes:
            spans[lane.name].append((lane.start, lane.stop - lane.start))
        upper, lower = (row - 0.42, 0.42), (row + 0.02, 0.3)
        axis.broken_barh(spans["wait"], upper, color=WAIT, lw=0)
        axis.broken_barh(spans["compute"], upper, color=COMPUTE, edgecolor="white", lw=0.25)
        axis.broken_barh(spans["sync"], lower, color=SYNC, edgecolor="white", lw=1.0)
        names.append(f"worker {index}, {worker.step_s * 1e3:.3g} ms a step")
    axis.set_yticks(range(len(names)), names)
    axis.set_ylim(len(names) - 0.45, -0.6)
    axis.tick_params(axis="y", length=0)
    axis.set_title(
        f"{label}: computing {record.utilisation:.0%} of the time, "
        f"{record.overlap_ratio:.0%} of each sync overlapped",
        loc="left", weight="bold", fontsize=9,
    )  # fmt: skip


def speedups(comparisons: Sequence[Comparison], path: Path, *, title: str = "") -> bool:
    """Write the map of speed-ups over S/c and heterogeneity, a panel per method; return whether there are any.

    Args:
        comparisons: One per scenario.
        path: Where it goes.
        title: What stands beneath, in small.
    """
    references = {comparison.reference for comparison in comparisons}
    labels = [s.label for comparison in comparisons for s in comparison.methods]
    labels = [label for label in dict.fromkeys(labels) if references != {label}]
    maps = {label: by_cell(comparisons, label) for label in labels}
    if not any(maps.values()):
        return False
    rows, columns = (
        sorted({cell[axis] for cells in maps.values() for cell in cells}) for axis in (0, 1)
    )
    wide = 1.6 + 1.15 * len(columns)
    across = min(len(labels), max(1, int(14 / wide)))
    down = math.ceil(len(labels) / across)
    size = (max(4.6, wide * across), 1.2 + down * (1.1 + 0.55 * len(rows)))
    with _figure(path, size, title) as figure:
        axes = figure.subplots(down, across, squeeze=False)
        for axis in axes.flat[len(labels) :]:
            axis.set_axis_off()
        for axis, (label, cells) in zip(axes.flat, maps.items(), strict=False):
            _map(axis, cells, rows, columns)
            axis.set_title(label, loc="left", weight="bold")
        figure.suptitle(
            f"times as fast as {' or '.join(sorted(references))}",
            x=0.01, ha="left", fontsize=11, weight="bold",
        )  # fmt: skip
    return True


def _map(
    axis: Axes,
    cells: Mapping[tuple[float, float], Interval | None],
    rows: Sequence[float],
    columns: Sequence[float],
) -> None:
    logs = np.full((len(rows), len(columns)), math.nan)
    for (row, column), interval in cells.items():
        if interval is not None:
            logs[rows.index(row), columns.index(column)] = math.log2(interval.mean)
    axis.set_facecolor("#EEEEEE")
    # White is as fast as the reference; one scale for all panels, so that they can be compared.
    axis.imshow(logs, cmap="PuOr_r", norm=TwoSlopeNorm(0.0, -3.0, 3.0), aspect="auto")
    for (row, column), interval in cells.items():
        place = columns.index(column), rows.index(row)
        if interval is None:
            axis.annotate("not\nreached", place, ha="center", va="center", fontsize=7, color=GREY)
            continue
        dark = abs(math.log2(interval.mean)) > 1.8
        spread = (
            "" if interval.low == interval.high else f"\n{interval.low:.2f}-{interval.high:.2f}"
        )
        axis.annotate(
            f"{interval.mean:.2f}{spread}",
            place, ha="center", va="center", fontsize=8, color="white" if dark else "black",
        )  # fmt: skip
    axis.set_xticks(range(len(columns)), [f"{column:g}" for column in columns])
    axis.set_yticks(range(len(rows)), [f"{row:g}" for row in rows])
    axis.set_xlabel("slowest / fastest step time")
    axis.set_ylabel("S/c")
    axis.tick_params(length=0)
    axis.spines[:].set_visible(False)


@contextlib.contextmanager
def _figure(path: Path, size: tuple[float, float], title: str) -> Iterator[Figure]:
    with mpl.rc_context({"font.size": 9, "axes.spines.top": False, "axes.spines.right": False}):
        figure = Figure(figsize=size, layout="constrained")
        FigureCanvasAgg(figure)
        yield figure
        if title:
            figure.supxlabel(title, fontsize=6.5, color=GREY, x=0.01, ha="left")
        figure.savefig(path, dpi=130)
