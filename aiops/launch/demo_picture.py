"""The demo's picture: what the workers did in the first seconds, and what came of it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import matplotlib as mpl
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from aiops.launch.demo import PICTURE_S
from aiops.launch.demo_job import Outcome, Report, Result

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Told apart by people who do not see red and green, too (Okabe and Ito, 2008).
COMPUTE, SYNC, WAIT = "#009E73", "#E69F00", "#DDDDDD"
CURVES = ("#56789A", "#D55E00")


def draw(report: Report, path: Path) -> None:
    """Write the picture: a timeline for each algorithm above the accuracy curves of all."""
    with mpl.rc_context({"font.size": 9, "axes.spines.top": False, "axes.spines.right": False}):
        figure = Figure(figsize=(11, 8.6), layout="constrained")
        FigureCanvasAgg(figure)
        figure.suptitle(
            "NBSync computes while it synchronizes",
            x=0.01,
            ha="left",
            fontsize=13,
            weight="bold",
        )
        count = len(report.outcomes)
        axes = figure.subplots(
            count + 1, 1, gridspec_kw={"height_ratios": [1.0] * count + [1.25], "hspace": 0.08}
        )
        for axis, outcome in zip(axes, report.outcomes, strict=False):
            _timeline(axis, outcome, report)
        _legend(figure)
        _curves(axes[-1], report)
        figure.savefig(path, dpi=150)


def _timeline(axis: Axes, outcome: Outcome, report: Report) -> None:
    names = []
    for row, worker in enumerate(outcome.workers):
        _lanes(axis, row, worker)
        names.append(f"worker {worker.index}\n{report.step_ms[worker.index]:g} ms a step")
    axis.set_yticks(range(len(names)), names)
    axis.set_ylim(len(names) - 0.4, -0.6)
    axis.set_xlim(0, PICTURE_S)
    axis.tick_params(axis="y", length=0)
    axis.set_xlabel(f"first {PICTURE_S:g} seconds")
    axis.set_title(
        f"{outcome.algorithm}: computing {outcome.utilisation:.0%} of the time, "
        f"{outcome.overlap_ratio:.0%} of each synchronization overlapped",
        loc="left",
        weight="bold",
    )


# Two lanes a worker: computing (or standing still) above, the synchronization under way below.
def _lanes(axis: Axes, row: int, worker: Result) -> None:
    spans: dict[str, list[tuple[float, float]]] = {"compute": [], "sync": [], "wait": []}
    for span in worker.spans:
        spans[span.lane].append((span.start, span.stop - span.start))
    upper, lower = (row - 0.40, 0.38), (row + 0.02, 0.26)
    axis.broken_barh(spans["wait"], upper, color=WAIT, hatch="////", edgecolor="#AAAAAA", lw=0)
    axis.broken_barh(spans["compute"], upper, color=COMPUTE, edgecolor="white", lw=0.25)
    axis.broken_barh(spans["sync"], lower, color=SYNC, edgecolor="white", lw=1.0)


def _legend(figure: Figure) -> None:
    figure.legend(
        handles=[
            Patch(color=COMPUTE, label="local steps"),
            Patch(facecolor=WAIT, hatch="////", edgecolor="#AAAAAA", label="waiting"),
            Patch(color=SYNC, label="push under way until its model is here"),
        ],
        loc="outside upper right",
        ncols=3,
        frameon=False,
    )


def _curves(axis: Axes, report: Report) -> None:
    floor = max(0.0, report.target - 0.35)
    axis.axhline(report.target, color="#888888", lw=0.8, ls=(0, (4, 3)))
    axis.text(
        report.budget_s * 0.002,
        report.target,
        f"target {report.target:.0%}",
        color="#666666",
        va="bottom",
    )
    for outcome, color in zip(report.outcomes, CURVES, strict=False):
        at = [point.at for point in outcome.curve]
        accuracy = [point.accuracy for point in outcome.curve]
        axis.plot(at, accuracy, color=color, lw=1.8, marker="o", ms=2.5, label=outcome.algorithm)
        axis.annotate(
            outcome.algorithm,
            (at[-1], accuracy[-1]),
            xytext=(6, 6),
            textcoords="offset points",
            color=color,
            weight="bold",
            va="bottom",
        )
        if outcome.time_to_target_s is not None:
            _mark(axis, outcome.time_to_target_s, report.target, floor=floor, color=color)
    axis.set_xlim(0, report.budget_s * 1.08)
    best = max(outcome.best_accuracy for outcome in report.outcomes)
    axis.set_ylim(floor, min(1.0, best + 0.04))
    axis.yaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
    axis.set_xlabel(f"seconds of training, the same budget for each\n{_setting(report)}")
    axis.set_ylabel("test accuracy of the global model")
    faster = "" if report.speedup is None else f": {report.speedup:.1f}x sooner with overlap"
    axis.set_title(f"{report.data}, time to {report.target:.0%}{faster}", loc="left", weight="bold")


# When an algorithm reached the target: a ring on its curve, and the time at the foot.
def _mark(axis: Axes, reached: float, target: float, *, floor: float, color: str) -> None:
    axis.plot([reached, reached], [0, target], color=color, lw=1.0, ls=":")
    axis.plot([reached], [target], marker="o", ms=8, mfc="white", mec=color, mew=2)
    axis.annotate(
        f"{reached:.1f} s",
        (reached, floor),
        xytext=(5, 8),
        textcoords="offset points",
        color=color,
        weight="bold",
    )


def _setting(report: Report) -> str:
    model = f"{report.n_values:,} parameters, step times padded"
    if report.rate_mbit is None:
        return f"{model}, no emulated link"
    return (
        f"{model}, each worker on {report.rate_mbit:g} Mbit/s, {report.delay_ms:g} ms each way "
        f"(emulated)"
    )
