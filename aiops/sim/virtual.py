"""An event loop on virtual time: whenever nothing is ready, its clock jumps to the next timer."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable
from concurrent.futures import Executor
from typing import TypeVar, TypeVarTuple, Unpack

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class _Jump(selectors.DefaultSelector):
    """A selector that never sleeps: it reports how far the clock may jump instead."""

    loop: VirtualLoop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if not ready and timeout is None:
            raise RuntimeError("deadlock: nothing is ready and no timer is set")
        if not ready and timeout:
            self.loop.elapsed_s += timeout
        return ready


class VirtualLoop(asyncio.SelectorEventLoop):
    """A loop whose ``time()`` starts at 0 and costs nothing; an hour of sleep takes no time.

    Work for threads runs at once, in this one, so that runs repeat bit for bit. A deadlock raises RuntimeError.

    Attributes:
        elapsed_s: Virtual seconds since the loop was made.
    """

    def __init__(self) -> None:
        selector = _Jump()
        selector.loop = self
        self.elapsed_s = 0.0
        super().__init__(selector)

    def time(self) -> float:
        """Return the virtual time in seconds."""
        return self.elapsed_s

    def run_in_executor(
        self, executor: Executor | None, func: Callable[[Unpack[Ts]], T], *args: *Ts
    ) -> asyncio.Future[T]:
        """Run ``func`` at once, in this thread."""
        future: asyncio.Future[T] = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:
            future.set_exception(error)
        return future
