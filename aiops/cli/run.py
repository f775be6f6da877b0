"""Running a coroutine as a command: the loop, and what signals mean."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Coroutine
from typing import Any, TypeVar

from aiops.errors import AiopsError, ConfigError
from aiops.sync.thread import LoopName, loop_factory

T = TypeVar("T")


class TargetMissed(AiopsError):
    """A run ended without reaching what it was asked to reach."""


def run(work: Coroutine[Any, Any, T], *, loop: LoopName = "auto") -> T:
    """Run a coroutine on a loop of its own; Ctrl-C cancels it and raises KeyboardInterrupt.

    Of a group of exceptions the first is raised: people and exit codes want one.
    """
    with asyncio.Runner(loop_factory=loop_factory(loop)) as runner:
        try:
            return runner.run(work)
        except BaseExceptionGroup as group:
            error: BaseException = group
            while isinstance(error, BaseExceptionGroup):
                error = error.exceptions[0]
            raise error from None


def check_timeout(timeout_s: float) -> None:
    """Refuse a timeout that is none.

    Raises:
        ConfigError: It is not > 0.
    """
    if not timeout_s > 0:
        raise ConfigError(f"timeout is {timeout_s:g} s, it must be > 0")


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
