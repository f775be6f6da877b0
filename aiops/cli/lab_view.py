"""What a person sees of ``aiops lab`` while it runs: how far each method is, on stderr."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import IO, TYPE_CHECKING, Self

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import TaskID

    from aiops.lab.record import Record

# A bar's news is set off by so much.
GAP = "  "


class View:
    """Progress as plain lines, one per run; the base of the one with bars.

    Args:
        runs: How many runs each method has.
        stream: Where it goes.
    """

    def __init__(self, runs: Mapping[str, int], stream: IO[str]) -> None:
        self._runs = dict(runs)
        self._done = dict.fromkeys(runs, 0)
        self._stream = stream

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        pass

    def told(self, record: Record, detail: str = "") -> None:
        """Take a finished run; ``detail`` says which of the method's."""
        label = record.method.label
        self._done[label] += 1
        self._finished(label, f"{detail}{', ' if detail else ''}{news(record)}")

    def closed(self, label: str) -> None:
        """Note that a method needs no further runs."""
        self._runs[label] = self._done[label]

    def seen(self, label: str, seed: int, at: float, accuracy: float) -> None:
        """Take news of a run under way."""

    def warn(self, text: str) -> None:
        """Take a piece of news that must not be overlooked."""
        self.line(f"warning: {text}")

    def line(self, text: str) -> None:
        """Write a line."""
        print(text, file=self._stream, flush=True)

    def _finished(self, label: str, text: str) -> None:
        done, of = sum(self._done.values()), sum(self._runs.values())
        self.line(f"[{done}/{of}] {label}: {text}")


class Bars(View):
    """Progress as a bar per method, on a terminal."""

    def __enter__(self) -> Self:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
        from rich.progress import TimeElapsedColumn as Elapsed

        self._console: Console = Console(file=self._stream)
        self._bars = Progress(
            TextColumn("{task.description}", style="bold", markup=False),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            Elapsed(),
            TextColumn("{task.fields[news]}", markup=False),
            console=self._console,
            # Its thread shares two cores with what is measured.
            refresh_per_second=2,
        )
        self._tasks: dict[str, TaskID] = {
            label: self._bars.add_task(label, total=of, news="") for label, of in self._runs.items()
        }
        self._bars.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._bars.stop()

    def seen(self, label: str, seed: int, at: float, accuracy: float) -> None:
        """Take news of a run under way."""
        self._bars.update(
            self._tasks[label], news=f"{GAP}seed {seed}: {accuracy:.1%} after {at:.1f} s"
        )

    def closed(self, label: str) -> None:
        """Note that a method needs no further runs."""
        super().closed(label)
        self._bars.update(self._tasks[label], total=self._runs[label])
        self._bars.stop_task(self._tasks[label])

    def line(self, text: str) -> None:
        """Write a line that stays."""
        self._console.print(text, highlight=False, markup=False)

    def _finished(self, label: str, text: str) -> None:
        task = self._tasks[label]
        self._bars.update(task, completed=self._done[label], news=f"{GAP}{text}")
        if self._done[label] == self._runs[label]:
            self._bars.stop_task(task)


def news(record: Record) -> str:
    """Return how a run ended, in a few words."""
    accuracy = f"accuracy {record.final_accuracy:.1%}"
    if record.rejected:
        return f"seed {record.seed}: rejected: {record.rejected[0]}"
    if record.reached_s is not None:
        return f"seed {record.seed}: target after {record.reached_s:.3g} s, {accuracy}"
    if record.failed:
        return f"seed {record.seed}: {record.failed}"
    return f"seed {record.seed}: not reached in {record.ended_s:.3g} s, {accuracy}"


def make_view(runs: Mapping[str, int]) -> View:
    """Return bars on a terminal where rich is installed; plain lines elsewhere and under CI."""
    if sys.stderr.isatty() and not os.environ.get("CI"):
        try:
            import rich  # noqa: F401
        except ImportError:
            pass
        else:
            return Bars(runs, sys.stderr)
    return View(runs, sys.stderr)
