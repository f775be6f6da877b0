"""The table and the picture of :mod:`benchmarks.flexible`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import matplotlib as mpl
import msgspec
import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from aiops.lab.picture import COLOURS, GREY
from aiops.lab.statistic import Interval, geometric
from benchmarks.flexible_network import link
from benchmarks.flexible_result import Result, Track
from benchmarks.flexible_training import LOOKS, Task
from benchmarks.trainings import arrival, mean, told

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Operators in the picture, by how they are marked there.
LAST = 10
MARKS = {"dense": "s", "allgather": "o", "artopk": "^", "var": "v", "vote": "D"}


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One way to exchange, over all its seeds, under one network.

    Attributes:
        schedule: The network.
        ranks: How many.
        label: Which way.
        route: The route that was best; empty where routes were chosen.
        runs: How many.
        reached: How many of them came to the target.
        steps: Steps to the target, mean of those that came.
        step_ms: Mean milliseconds of a step, over the whole training.
        megabytes: Mean of a step, through the busiest link.
        gain: Mean share of the energy that was sent.
        seconds: To the target; None unless all came.
        modelled: The same by the cost model, geometric mean.
        ratio: Over ours, paired by seed; a lower bound where some did not come to the target.
        accuracy: After the schedule's 50 epochs, mean of the last ten looks.
        exchanges: By how many steps which exchange was used, the most used first; of what adapts.
    """

    schedule: str
    ranks: int
    label: str
    route: str
    runs: int
    reached: int
    steps: float
    step_ms: float
    megabytes: float
    gain: float
    seconds: Interval | None
    modelled: float | None
    ratio: Interval
    accuracy: float
    exchanges: list[tuple[int, str]]


def rows(results: Sequence[Result], schedule: str, task: Task, ours: str) -> list[Row]:
    """Return a row for every way to exchange, each by its best route, quickest first."""
    mine = {
        one.seed: _spent(one, _track(one, schedule, ""), task.target)
        for one in results
        if one.label == ours and _tracks(one, schedule)
    }
    found = []
    for label in dict.fromkeys(one.label for one in results):
        runs = [one for one in results if one.label == label and _tracks(one, schedule)]
        routes = [track.route for track in _tracks(runs[0], schedule)]
        best = min(
            (_row(runs, schedule, route, task, mine) for route in routes),
            key=lambda row: row.ratio.mean,
        )
        found.append(best)
    return sorted(found, key=lambda row: (row.reached < row.runs, row.ratio.mean))


def _row(
    runs: Sequence[Result], schedule: str, route: str, task: Task, mine: dict[int, float]
) -> Row:
    tracks = [_track(one, schedule, route) for one in runs]
    spent = [_spent(one, track, task.target) for one, track in zip(runs, tracks, strict=True)]
    at = [arrival(one.accuracy, task.target, LOOKS) for one in runs]
    came = [
        (one, track, look)
        for one, track, look in zip(runs, tracks, at, strict=True)
        if look is not None
    ]
    every = len(came) == len(runs)
    end = task.epochs * task.epoch // task.evaluate + 1
    return Row(
        schedule=schedule,
        ranks=runs[0].ranks,
        label=runs[0].label,
        route=route,
        runs=len(runs),
        reached=len(came),
        steps=mean([one.looks[look] for one, _, look in came]),
        step_ms=1e3
        * mean(
            [track.seconds[-1] / one.looks[-1] for one, track in zip(runs, tracks, strict=True)]
        ),
        megabytes=mean([one.megabytes[route] for one in runs]),
        gain=mean([one.gain for one in runs]),
        seconds=geometric(spent) if every else None,
        modelled=geometric([track.modelled[look] for _, track, look in came]).mean
        if every
        else None,
        ratio=geometric([time / mine[one.seed] for one, time in zip(runs, spent, strict=True)]),
        accuracy=mean([mean(one.accuracy[end - LAST : end]) for one in runs]),
        exchanges=_exchanges(runs) if not route else [],
    )


def _tracks(result: Result, schedule: str) -> list[Track]:
    return [track for track in result.tracks if track.schedule == schedule]


def _track(result: Result, schedule: str, route: str) -> Track:
    return next(track for track in _tracks(result, schedule) if track.route == route)


# Seconds to the target, or of the whole training.
def _spent(result: Result, track: Track, target: float) -> float:
    at = arrival(result.accuracy, target, LOOKS)
    return track.seconds[-1 if at is None else at]


def _exchanges(runs: Sequence[Result]) -> list[tuple[int, str]]:
    counts: dict[str, int] = {}
    for one in runs:
        ends = [*(plan[0] for plan in one.plans[1:]), one.looks[-1]]
        for (start, collective, _, _), end in zip(one.plans, ends, strict=True):
            counts[collective] = counts.get(collective, 0) + (end - start) // len(runs)
    return sorted(((count, name) for name, count in counts.items()), reverse=True)


def table(found: Sequence[Row], target: float) -> Iterator[str]:
    """Yield the lines of the table."""
    for schedule, ranks in dict.fromkeys((row.schedule, row.ranks) for row in found):
        block = [row for row in found if (row.schedule, row.ranks) == (schedule, ranks)]
        yield f"{schedule}, {ranks} ranks: seconds to {target:.0%} under the emulated network, [by the cost model]"
        yield (
            f"  {'':<18}{'route':<8}{'came':>6}{'ms/step':>9}{'MB/step':>9}{'gain':>7}{'steps':>7}"
            f"{'seconds':>28}{'over ours':>24}{'accuracy':>10}"
        )
        for row in block:
            yield _line(row)
        yield from _sentences(block)
        yield ""


def _line(row: Row) -> str:
    seconds = "-"
    if row.seconds is not None:
        seconds = f"{told(row.seconds, '.1f')} [{row.modelled:.0f}]"
    ratio = ("" if row.seconds is not None else "> ") + told(row.ratio, ".2f")
    came = f"{row.reached}/{row.runs}"
    return (
        f"  {row.label:<18}{row.route or 'chosen':<8}{came:>6}{row.step_ms:>9.1f}"
        f"{row.megabytes:>9.2f}{row.gain:>7.3f}{row.steps:>7.0f}{seconds:>28}{ratio:>24}{row.accuracy:>10.4f}"
    )


def _sentences(block: Sequence[Row]) -> Iterator[str]:
    stays = [row for row in block if row.route]
    best = min(stays, key=lambda row: (row.seconds is None, row.ratio.mean))
    dense = next(row for row in stays if row.label == "dense")
    for name, row in (("the best fixed choice", best), ("dense", dense)):
        more = "" if row.seconds is not None else "more than "
        yield f"  over {name}, {row.label} by {row.route}: {more}{told(row.ratio, '.2f')}x sooner"
    for row in block:
        if row.exchanges:
            used = ", ".join(f"{name} {count}" for count, name in row.exchanges if count)
            yield f"  {row.label}: steps by {used}"


def draw(results: Sequence[Result], schedule: str, ours: str, task: Task, path: Path) -> None:
    """Write the picture: accuracy over time, the network and what was chosen over the steps, of the first seed."""
    best = rows(results, schedule, task, ours)
    stays = [row for row in best if row.route]
    wanted = [row for row in best if not row.route]
    wanted += [
        stays[0],
        *(row for row in stays[1:] if row.label in {"dense", "AG-Topk 0.1", "STAR-Topk 0.01"}),
    ]
    with mpl.rc_context({"font.size": 9, "axes.spines.top": False, "axes.spines.right": False}):
        figure = Figure(figsize=(11.0, 8.0), layout="constrained")
        FigureCanvasAgg(figure)
        whole, network, density = figure.subplots(3, 1, height_ratios=(3, 1, 2))
        for number, row in enumerate(wanted):
            run = next(
                one
                for one in results
                if one.label == row.label and one.seed == 0 and _tracks(one, schedule)
            )
            _curve(
                whole,
                run,
                _track(run, schedule, row.route),
                row,
                COLOURS[number % len(COLOURS)],
                ours,
            )
        ends = [_last(results, row, schedule) for row in wanted]
        _finish(whole, task.target, sorted(ends)[len(ends) // 2])
        run = next(
            one for one in results if one.label == ours and one.seed == 0 and _tracks(one, schedule)
        )
        _network(network, schedule, task, run.looks[-1])
        _chosen(density, run)
        figure.suptitle(
            f"{schedule}, {best[0].ranks} ranks: exchanges that adapt, and some that do not",
            x=0.01,
            ha="left",
            weight="bold",
        )
        figure.savefig(path, dpi=120)


def _last(results: Sequence[Result], row: Row, schedule: str) -> float:
    run = next(one for one in results if one.label == row.label and _tracks(one, schedule))
    return _track(run, schedule, row.route).seconds[-1]


def _curve(axis: Axes, run: Result, track: Track, row: Row, colour: str, ours: str) -> None:
    kernel = np.ones(LOOKS) / LOOKS
    smooth = np.convolve(run.accuracy, kernel, "valid")
    name = f"{row.label} ({row.route})" if row.route else row.label
    axis.plot(
        track.seconds[LOOKS - 1 :],
        smooth,
        color=colour,
        lw=2.2 if row.label == ours else 1.2,
        label=name,
    )


def _finish(axis: Axes, target: float, end: float) -> None:
    axis.axhline(target, color=GREY, lw=0.8, ls=(0, (4, 3)))
    axis.set_ylim(target - 0.12, target + 0.025)
    axis.set_xlim(0, end)
    axis.set_xlabel("seconds of training under the emulated network")
    axis.set_ylabel(f"test accuracy, mean of {LOOKS} looks")
    axis.yaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
    axis.legend(loc="lower right", frameon=False)


def _network(axis: Axes, schedule: str, task: Task, n_steps: int) -> None:
    steps = np.arange(n_steps)
    links = [link(schedule, step / task.epoch, 1.0) for step in steps]
    axis.step(steps, [8e-9 / one.byte_s for one in links], color=COLOURS[0], where="post")
    axis.set_ylabel("Gbit/s", color=COLOURS[0])
    other = axis.twinx()
    other.step(steps, [1e3 * one.latency_s for one in links], color=COLOURS[1], where="post")
    other.set_ylabel("ms one way", color=COLOURS[1])
    other.spines["right"].set_visible(True)
    axis.set_xlim(0, steps[-1])


def _chosen(axis: Axes, run: Result) -> None:
    steps = run.looks[-1]
    ends = [*(plan[0] for plan in run.plans[1:]), steps]
    for (start, collective, density, _), end in zip(run.plans, ends, strict=True):
        operator, _, route = collective.partition("_")
        axis.plot(
            [start, end], [density, density], color=COLOURS[list(MARKS).index(operator)], lw=2
        )
        axis.plot([start], [density], MARKS[operator], color=COLOURS[list(MARKS).index(operator)])
        axis.annotate(
            f"{operator} {route}",
            (start, density),
            xytext=(2, 5),
            textcoords="offset points",
            fontsize=6.5,
        )
    axis.set_yscale("log")
    axis.set_xlim(0, steps)
    axis.set_xlabel("step")
    axis.set_ylabel("density chosen by ours")
