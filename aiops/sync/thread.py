"""An event loop in a thread of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, Literal, TypeVar, TypeVarTuple, Unpack

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

LoopName = Literal["auto", "uvloop", "asyncio"]
LOOPS: tuple[LoopName, ...] = ("auto", "uvloop", "asyncio")


class LoopThread:
    """Runs coroutines in the background.

    Args:
        name: Name of the thread.

    Attributes:
        loop: The loop; only :meth:`run`, :meth:`submit` and :meth:`call` may be used from other threads.
    """

    def __init__(self, name: str) -> None:
        self.loop = loop_factory()()
        # A daemon: a script that forgets to close must still be able to end.
        self._thread = threading.Thread(target=self._main, name=name, daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine and wait for its result; Ctrl-C cancels it."""
        future = self.submit(work)
        try:
            return future.result()
        except KeyboardInterrupt:
            future.cancel()
            raise

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Start a coroutine and return at once.

        Raises:
            RuntimeError: The loop is closed.
        """
        if self.closed:
            work.close()
            raise RuntimeError("the loop's thread is closed")
        return asyncio.run_coroutine_threadsafe(work, self.loop)

    def call(self, function: Callable[[Unpack[Ts]], None], *args: *Ts) -> None:
        """Call a function that does not wait, in the loop, and return at once.

        Raises:
            RuntimeError: The loop is closed.
        """
        self.loop.call_soon_threadsafe(function, *args)

    @property
    def closed(self) -> bool:
        """Whether :meth:`close` was called."""
        return self.loop.is_closed()

    def close(self) -> None:
        """Cancel what still runs, stop the loop and wait for the thread; idempotent."""
        if self.closed:
            return
        self.submit(_cancel_others()).result()
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.run_until_complete(self.loop.shutdown_asyncgens())
        self.loop.run_until_complete(self.loop.shutdown_default_executor())
        self.loop.close()

    def _main(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()


async def _cancel_others() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)


def loop_factory(name: LoopName = "auto") -> Callable[[], asyncio.AbstractEventLoop]:
    """Return what makes an event loop; "auto" is uvloop where it is installed.

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
