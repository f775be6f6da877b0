"""What a person sees of ``aiops demo``: progress while it runs, and the table at the end."""

from __future__ import annotations

import os
import sys
from typing import IO, TYPE_CHECKING, Self

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import TaskID

    from aiops.launch.demo_job import Point, Report
    from aiops.launch.demo_settings import DemoSettings, Progress

# A plain line for logs so often.
LINE_S = 5.0

GLYPHS = "▁▂▃▄▅▆▇█"


class View:
    """Progress as plain lines; the base of the one with bars.

    Attributes:
        code: Exit code of the signal that ended the demo; 0 for none.
    """

    def __init__(self, settings: DemoSettings, stream: IO[str]) -> None:
        self.code = 0
        self._settings = settings
        self._stream = stream
        self._last: tuple[str, float] = ("", 0.0)

    def __enter__(self) -> Self:
        self._line(describe(self._settings))
        self._line("starting one server and the workers ...")
        return self

    def __exit__(self, *exception: object) -> None:
        pass

    def tell(self, progress: Progress) -> None:
        """Take a piece of news."""
        name, at = self._last
        if name == progress.algorithm and progress.at < min(at + LINE_S, progress.budget_s):
            return
        self._last = (progress.algorithm, progress.at)
        self._line(
            f"{progress.algorithm}  {progress.at:5.1f} s  version {progress.version:4d}  "
            f"accuracy {progress.accuracy or 0:6.1%}  steps {steps(progress)}"
        )

    def interrupted(self) -> int:
        """Say that the demo was ended from outside; return the exit code."""
        self._line("interrupted, all processes are ended")
        return self.code or 130

    def _line(self, text: str) -> None:
        print(text, file=self._stream, flush=True)


class Bars(View):
    """Progress as bars, on a terminal."""

    def __enter__(self) -> Self:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

        self._console: Console = Console(file=self._stream)
        self._console.print(describe(self._settings), highlight=False)
        self._bars = Progress(
            TextColumn("[bold]{task.description:<7}"),
            BarColumn(bar_width=30),
            TimeElapsedColumn(),
            TextColumn("{task.fields[news]}"),
            console=self._console,
        )
        self._tasks: dict[str, TaskID] = {
            name: self._bars.add_task(
                name, total=self._settings.budget_s, start=False, news="starting ..."
            )
            for name, _ in self._settings.algorithms
        }
        self._bars.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._bars.stop()

    def tell(self, progress: Progress) -> None:
        """Take a piece of news."""
        task = self._tasks[progress.algorithm]
        if progress.at == 0 or not self._bars.tasks[task].started:
            self._bars.start_task(task)
        news = (
            f"version {progress.version:4d}  accuracy [bold green]{progress.accuracy or 0:6.1%}[/]  "
            f"steps {steps(progress)}"
        )
        self._bars.update(task, completed=progress.at, news=news)
        if progress.at >= progress.budget_s:
            self._bars.stop_task(task)


def make_view(settings: DemoSettings, *, to_stderr: bool) -> View:
    """Return bars on a terminal, plain lines elsewhere and under CI; on stderr where stdout is for a program."""
    stream = sys.stderr if to_stderr else sys.stdout
    fancy = stream.isatty() and not os.environ.get("CI")
    return (Bars if fancy else View)(settings, stream)


def describe(settings: DemoSettings) -> str:
    """Return what is going to run, in one sentence."""
    link = settings.link
    line = (
        "no emulated link"
        if link is None
        else f"links of {link.rate_bits_s / 1e6:g} Mbit/s and {link.delay_s * 1e3:g} ms each way "
        "(emulated)"
    )
    slow = ", ".join(f"{settings.step_s * f * 1e3:g}" for f in settings.slowdown)
    return (
        f"{settings.data}, {settings.n_workers} workers with steps of {slow} ms (padded), {line}, "
        f"{settings.budget_s:g} s for each algorithm"
    )


def steps(progress: Progress) -> str:
    """Return the workers' merged local steps as a short text."""
    return "/".join(map(str, progress.clocks)) or "-"


def table(report: Report) -> None:
    """Print the result as a table, and what it means."""
    from rich.console import Console
    from rich.table import Table

    grid = Table(title=f"the same {report.budget_s:g} s for each", title_justify="left")
    grid.add_column("")
    for outcome in report.outcomes:
        grid.add_column(outcome.algorithm, justify="right")
    for name, cells in rows(report):
        grid.add_row(name, *cells)
    console = Console()
    console.print(grid)
    console.print(verdict(report), highlight=False)


def rows(report: Report) -> list[tuple[str, list[str]]]:
    """Return the table's rows: a name, then one cell per algorithm."""
    outcomes = report.outcomes
    times = [report.budget_s * share for share in (0.1, 0.25, 0.5, 1.0)]
    made = [
        (f"accuracy after {at:.3g} s", [f"{_at(o.curve, at):.1%}" for o in outcomes])
        for at in times
    ]
    made += [
        ("accuracy over time", [_spark([p.accuracy for p in o.curve]) for o in outcomes]),
        (f"time to {report.target:.0%}", [_seconds(o.time_to_target_s) for o in outcomes]),
        ("best accuracy", [f"{o.best_accuracy:.1%}" for o in outcomes]),
        ("rounds", [str(o.rounds) for o in outcomes]),
        (
            "local steps per worker",
            ["/".join(str(w.n_steps) for w in o.workers) for o in outcomes],
        ),
        ("overlap ratio", [f"{o.overlap_ratio:.2f}" for o in outcomes]),
        ("utilisation", [f"{o.utilisation:.0%}" for o in outcomes]),
        ("waits for the network", [str(sum(w.waits for w in o.workers)) for o in outcomes]),
        (
            "bytes over the links",
            [f"{o.n_bytes / 1e6:.0f} MB" if o.n_bytes else "-" for o in outcomes],
        ),
    ]
    return made


def verdict(report: Report) -> str:
    """Return what the numbers say, in one sentence."""
    first, last = report.outcomes[0], report.outcomes[-1]
    if report.speedup is not None:
        return (
            f"{last.algorithm} reached {report.target:.0%} {report.speedup:.1f}x sooner than "
            f"{first.algorithm}."
        )
    if last.time_to_target_s is not None:
        return (
            f"{last.algorithm} reached {report.target:.0%} after {last.time_to_target_s:.1f} s, "
            f"{first.algorithm} not at all."
        )
    return f"{last.algorithm} did not reach {report.target:.0%}: give it more time (--budget-s)."


def _at(curve: list[Point], at: float) -> float:
    # The last evaluation ends a little after the budget and counts as its end.
    so_far = [point for point in curve if point.at <= at + 1.0] or curve[:1]
    return so_far[-1].accuracy


def _seconds(value: float | None) -> str:
    return "not reached" if value is None else f"{value:.1f} s"


def _spark(values: list[float]) -> str:
    # At most 24 glyphs, evenly spread over the run.
    some = values[:: max(1, len(values) // 24)]
    low, high = min(some), max(some)
    return "".join(GLYPHS[int((v - low) / (high - low or 1) * (len(GLYPHS) - 1))] for v in some)
