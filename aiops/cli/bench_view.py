"""What a person sees of ``aiops bench`` while it runs: where it is, on stderr, and what must not be overlooked."""

from __future__ import annotations

import os
import sys
from typing import IO, TYPE_CHECKING, Self

if TYPE_CHECKING:
    from rich.console import Console
    from rich.status import Status


class View:
    """Progress as plain lines, one per case; the base of the one with a spinner."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream
        self._last = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        pass

    def say(self, text: str) -> None:
        """Take a piece of news."""
        # The passes of a case are of no use in a log.
        case, _, detail = text.rpartition(": ")
        news = case if detail.startswith(("pass ", "starting ")) else text
        if news != self._last:
            self._last = news
            self.line(news)

    def warn(self, text: str) -> None:
        """Take a piece of news that must not be overlooked."""
        self.line(f"warning: {text}")

    def line(self, text: str) -> None:
        """Write a line."""
        print(text, file=self._stream, flush=True)


class Spinner(View):
    """Progress as one line that changes, on a terminal; warnings stay above it."""

    def __enter__(self) -> Self:
        from rich.console import Console

        self._console: Console = Console(file=self._stream)
        # Its thread shares the interpreter with what is measured in this process.
        self._status: Status = self._console.status("starting", refresh_per_second=2)
        self._status.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._status.stop()

    def say(self, text: str) -> None:
        """Take a piece of news."""
        self._status.update(text)

    def line(self, text: str) -> None:
        """Write a line that stays."""
        self._console.print(text, highlight=False, markup=False)


def make_view() -> View:
    """Return a spinner on a terminal where rich is installed; plain lines elsewhere and under CI."""
    if sys.stderr.isatty() and not os.environ.get("CI"):
        try:
            import rich  # noqa: F401
        except ImportError:
            pass
        else:
            return Spinner(sys.stderr)
    return View(sys.stderr)
