"""The table, the sentences and the picture of :mod:`benchmarks.streams`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import matplotlib as mpl
import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from aiops.lab.picture import COLOURS, COMPUTE, GREY, SYNC, WAIT
from benchmarks.streams_clock import RECORD_BYTES
from benchmarks.streams_method import Setting
from benchmarks.streams_real import SPEED, TARGET, Real
from benchmarks.streams_result import BASELINE, OURS, Pile, Report, Row, rows
from benchmarks.streams_training import Result
from benchmarks.trainings import LOOKS, told

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def table(report: Report) -> Iterator[str]:
    """Yield the lines of the table."""
    for setting, target, tuned in report.tuning:
        block = [row for row in report.rows if row.setting == setting]
        yield f"{setting}: virtual seconds to {target:.0%}"
        yield (
            f"  {'':<24}{'lr':>5}{'came':>6}{'steps':>7}{'seconds':>22}{'times as fast':>20}{'wait':>7}{'comp':>6}"
            f"{'exch':>6}{'batch':>7}{'MB/step':>8}{'inj kB':>8}{'compr':>7}{'buffer':>9}{'MB':>9}{'gone':>6}"
            f"{'accuracy':>10}"
        )
        yield from (_line(row) for row in block)
        for label, one in tuned.items():
            tried = ", ".join(
                f"{lr}: " + (f"{seconds:.0f} s" if seconds else f"not ({one.accuracy[lr]:.3f})")
                for lr, seconds in one.seconds.items()
            )
            yield f"  tuning of {label}: {tried}"
        yield from _bounds(block)
        yield from _piled([one for one in report.piles if one.setting == setting])
        yield ""
    yield from skew(report.rows)
    yield from _real(report.real)


def _line(row: Row) -> str:
    seconds = "-" if row.seconds is None else told(row.seconds, ".0f")
    ratio = "-" if row.ratio is None else told(row.ratio, ".2f")
    if row.ratio is not None and row.reached < row.runs:
        ratio = f"< {ratio}"
    steps = "-" if row.steps is None else f"{row.steps:.0f}"
    came = f"{row.reached}/{row.runs}"
    return (
        f"  {row.label:<24}{row.lr:>5g}{came:>6}{steps:>7}{seconds:>22}{ratio:>20}{row.wait_s:>7.2f}"
        f"{row.compute_s:>6.2f}{row.exchange_s:>6.2f}{row.samples:>7.0f}{row.megabytes:>8.0f}"
        f"{row.injected_kilobytes:>8.0f}{row.compressed:>7.2f}{row.most:>9.0f}{row.buffer_megabytes:>9.2f}"
        f"{row.dropped:>6.2f}{row.accuracy:>10.4f}"
    )


# What decides on the ratio: that of the steps, and that of a step's seconds.
def _bounds(block: Sequence[Row]) -> Iterator[str]:
    theirs, ours = (next(row for row in block if row.label == label) for label in (BASELINE, OURS))
    if ours.ratio is None or theirs.steps is None or ours.steps is None:
        yield f"  {OURS} over {BASELINE}: no ratio, {theirs.reached} and {ours.reached} runs came"
        return
    spans = [(row.wait_s, row.compute_s, row.exchange_s) for row in (theirs, ours)]
    long, short = (sum(each) for each in spans)
    yield (
        f"  {OURS} over {BASELINE}: {told(ours.ratio, '.2f')} times as fast: {theirs.steps / ours.steps:.2f} by "
        f"steps, {long / short:.2f} by seconds of a step"
    )
    by_rate = ", ".join(
        f"{ratio:.2f} where it brings {rate:g}/s" for rate, ratio in sorted(ours.ratios)
    )
    yield f"    by the slowest stream: {by_rate}"
    for name, before, now in zip(("waits", "computing", "exchange"), *spans, strict=True):
        yield f"    {name} {before:.2f} s -> {now:.2f} s; without: {(long - before) / (short - now):.2f} by seconds"


def _piled(found: Sequence[Pile]) -> Iterator[str]:
    for one in found:
        yield (
            f"  after {one.iterations:,} steps: {one.baseline:,.0f} samples before {BASELINE}, {one.kept:,.0f} before "
            f"{OURS} that keeps all, {one.truncated:,.0f} under truncation: {one.baseline / one.truncated:,.0f} and "
            f"{one.kept / one.truncated:,.0f} times less ({one.kept * RECORD_BYTES / 1e6:,.0f} MB -> "
            f"{one.truncated * RECORD_BYTES / 1e6:.2f} MB)"
        )


def skew(found: Sequence[Row]) -> Iterator[str]:
    """Yield how far from the same streams with like shares of all labels those end that have one label each."""
    ends = {(row.setting, row.label): row.accuracy for row in found}
    for setting, label in ends:
        other = setting.replace("one label each", "IID")
        if label != BASELINE or other == setting or (other, BASELINE) not in ends:
            continue
        even = ends[other, OURS]
        yield f"{setting}: points below {OURS} with like shares of all labels, {even:.4f}"
        for name in (OURS, "without injection", BASELINE):
            yield f"  {name}: {100 * (even - ends[setting, name]):.1f}"


def _real(found: Sequence[Real]) -> Iterator[str]:
    if found:
        yield f"real processes over Gloo, {SPEED:g} times as fast: seconds to {TARGET:.0%}"
        yield (
            f"  {'':<12}{'seconds':>9}{'to target':>11}{'wait s':>8}{'batch':>7}{'compr':>7}{'buffer':>8}{'MB':>8}"
            f"{'gone':>8}{'accuracy':>10}"
        )
    for one in found:
        reached = "-" if one.reached_s is None else f"{one.reached_s:.1f}"
        yield (
            f"  {one.label:<12}{one.seconds:>9.1f}{reached:>11}{one.wait_s:>8.1f}{one.samples:>7.0f}"
            f"{one.compressed:>7.2f}{one.most:>8}{one.buffer_bytes / 1e6:>8.2f}{one.dropped:>8}{one.accuracy:>10.4f}"
        )
    if len(found) == 2 and all(one.reached_s for one in found):
        ratio = (found[0].reached_s or 0.0) / (found[1].reached_s or 1.0)
        yield f"  {found[1].label} over {found[0].label}: {ratio:.2f} times as fast"


def draw(results: Sequence[Result], setting: Setting, target: float, path: Path) -> None:
    """Write the picture: accuracy over time of the first seed, a step's seconds, and the largest buffers."""
    firsts = [one for one in results if one.seed == 0]
    with mpl.rc_context({"font.size": 9, "axes.spines.top": False, "axes.spines.right": False}):
        figure = Figure(figsize=(11.0, 7.5), layout="constrained")
        FigureCanvasAgg(figure)
        grid = figure.add_gridspec(2, 2, height_ratios=(3, 2))
        _curves(figure.add_subplot(grid[0, :]), firsts, target)
        found = rows(results, target)
        _seconds(figure.add_subplot(grid[1, 0]), found)
        _buffers(figure.add_subplot(grid[1, 1]), found)
        figure.suptitle(
            f"{setting.name}, as {setting.machine.name}", x=0.01, ha="left", weight="bold"
        )
        figure.savefig(path, dpi=120)


def _curves(axis: Axes, firsts: Sequence[Result], target: float) -> None:
    kernel = np.ones(LOOKS) / LOOKS
    for number, one in enumerate(firsts):
        smooth = np.convolve(one.accuracy, kernel, "valid")
        axis.plot(
            one.seconds[LOOKS - 1 :],
            smooth,
            color=COLOURS[number % len(COLOURS)],
            ls="-" if number < len(COLOURS) else "--",
            lw=2.2 if one.label in {BASELINE, OURS} else 1.1,
            label=one.label,
        )
    axis.axhline(target, color=GREY, lw=0.8, ls=(0, (4, 3)))
    if min(max(one.accuracy) for one in firsts) > target - 0.1:
        axis.set_ylim(target - 0.12, target + 0.03)
    axis.set_xlim(0)
    axis.set_xlabel("virtual seconds of training")
    axis.set_ylabel(f"test accuracy, mean of {LOOKS} looks")
    axis.yaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
    axis.legend(loc="lower right", frameon=False, ncols=2)


def _seconds(axis: Axes, found: Sequence[Row]) -> None:
    left = np.zeros(len(found))
    places = np.arange(len(found))[::-1]
    for name, colour in (("wait_s", WAIT), ("compute_s", COMPUTE), ("exchange_s", SYNC)):
        widths = np.array([getattr(row, name) for row in found])
        axis.barh(places, widths, left=left, color=colour, label=name.removesuffix("_s"))
        left += widths
    axis.set_yticks(places, [row.label for row in found])
    axis.set_xlabel("seconds of a step, of the device on which the others wait")
    axis.legend(frameon=False, ncols=3, loc="lower center", bbox_to_anchor=(0.5, 1.0))


def _buffers(axis: Axes, found: Sequence[Row]) -> None:
    places = np.arange(len(found))[::-1]
    axis.barh(places, [row.most for row in found], color=COLOURS[0])
    axis.set_yticks(places, [""] * len(found))
    axis.set_xscale("log")
    axis.set_xlim(100)
    axis.set_xlabel("most samples waiting before all devices")
