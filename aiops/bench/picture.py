"""Results as a picture: bars per peer, on a logarithmic scale, a panel for each case."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import matplotlib as mpl
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from aiops.bench.result import Line, Row
from aiops.bench.table import seconds

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLUMNS = 3
BAR_INCHES, PANEL_INCHES = 0.2, 0.75

# Told apart by people who do not see red and green, too (Okabe and Ito, 2008).
OURS, BOUND, FASTER, SLOWER = "#0072B2", "#999999", "#D55E00", "#E69F00"


def draw(lines: Iterable[Line], bench: str, path: Path, title: str) -> bool:
    """Write a suite's picture; return whether there was anything to draw.

    Args:
        lines: Results, of this suite and others.
        bench: The suite.
        path: Where it goes.
        title: What stands beneath, in small: the machine.
    """
    rows = [line for line in lines if isinstance(line, Row) and line.bench == bench and line.ratio]
    panels = [list(block) for _, block in itertools.groupby(rows, lambda r: (r.case, r.network))]
    if not panels:
        return False
    grid = [panels[at : at + COLUMNS] for at in range(0, len(panels), COLUMNS)]
    heights = [PANEL_INCHES + BAR_INCHES * max(map(len, line)) for line in grid]
    with mpl.rc_context({"font.size": 7, "axes.spines.top": False, "axes.spines.right": False}):
        figure = Figure(figsize=(4.6 * COLUMNS, sum(heights) + 0.8), layout="constrained")
        FigureCanvasAgg(figure)
        figure.suptitle(
            f"aiops bench {bench}: time against ours (log scale), quartiles",
            x=0.01, ha="left", fontsize=11, weight="bold",
        )  # fmt: skip
        axes = figure.subplots(len(grid), COLUMNS, squeeze=False, height_ratios=heights)
        for axis, panel in itertools.zip_longest(axes.flat, panels):
            if panel is None:
                axis.set_axis_off()
            else:
                _panel(axis, panel)
        figure.supxlabel(title, fontsize=6, color="#555555")
        figure.savefig(path, dpi=120)
    return True


def _panel(axis: Axes, rows: list[Row]) -> None:
    ratios = [row.ratio or math.nan for row in rows]
    low = [ratio - (row.ratio_q25 or ratio) for row, ratio in zip(rows, ratios, strict=True)]
    high = [(row.ratio_q75 or ratio) - ratio for row, ratio in zip(rows, ratios, strict=True)]
    places = range(len(rows))
    axis.barh(places, ratios, xerr=(low, high), color=[_colour(row) for row in rows], height=0.7)
    for place, row, ratio in zip(places, rows, ratios, strict=True):
        axis.annotate(
            f" {ratio:{'.0f' if ratio >= 100 else '.2g'}}x, {seconds(row.median_s)}",
            (max(ratio, row.ratio_q75 or ratio), place),
            va="center",
        )
    axis.set_xscale("log")
    # They took a third of the time of a picture with 120 panels, 10 s.
    axis.minorticks_off()
    axis.set_xlim(min(*ratios, 0.5) / 1.3, max(*ratios, 2.0) * 4)
    axis.axvline(1.0, color=OURS, linewidth=0.8)
    axis.set_yticks(places, [row.peer for row in rows])
    axis.invert_yaxis()
    network = f" ({rows[0].network})" if rows[0].network else ""
    axis.set_title(f"{rows[0].case}{network}", loc="left", weight="bold")


def _colour(row: Row) -> str:
    if row.ratio == 1:
        return OURS
    if row.bound_ratio == 1:
        return BOUND
    return SLOWER if (row.ratio or 0) > 1 else FASTER
