"""Running a coroutine as a command: the loop, and what signals mean."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Coroutine
from typing import Any, Literal, TypeVar

from aiops.errors import AiopsError

T = TypeVar("T")

LoopName = Literal["auto", "uvloop", "asyncio"]
LOOPS: tuple[LoopName, ...] = ("auto", "uvloop", "asyncio")


class TargetMissed(AiopsError):
    """A run ended without reaching what it was asked to reach."""


def loop_factory(name: LoopName) -> Callable[[], asyncio.AbstractEventLoop]:
    """Return what makes the loop; "auto" is uvloop where it is installed.

    Raises:
        ImportError: uvloop is asked for and not installed.
    """
    if name == "asyncio":
        return asyncio.new_event_loop
    try:
        import uvloop
    except ImportError:
        if name == "uvloop":
            raise
        return asyncio.new_event_loop
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory


def run(work: Coroutine[Any, Any, T], *, loop: LoopName = "auto") -> T:
    """Run a coroutine on a loop of its own; Ctrl-C cancels it and raises KeyboardInterrupt."""
    with asyncio.Runner(loop_factory=loop_factory(loop)) as runner:
        return runner.run(work)


class Signals:
    """SIGINT and SIGTERM as a request to end: the first asks, the second ends the process at once.

    Attributes:
        asked: Set by the first signal.
        code: Exit code that belongs to it; 0 while there was none.
    """

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.code = 0

    def __enter__(self) -> Signals:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._ask, number)
        return self

    def __exit__(self, *exception: object) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)

    def _ask(self, number: int) -> None:
        if self.asked.is_set():
            os._exit(self.code)
        self.code = 128 + number
        self.asked.set()
