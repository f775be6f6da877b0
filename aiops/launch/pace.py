"""Step times played on a machine that is faster: what is left of each step is slept away, on an absolute schedule.

Padding by sleep leaves the processor to sockets, as an accelerator does, and its mean is right to 0.3 %; a quota of a
control group throttles the sockets too and comes in bursts.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable


class Pace:
    """Holds a loop to one step every ``step_s`` seconds, on an absolute schedule."""

    def __init__(self, step_s: float) -> None:
        self._step_s = step_s
        self._next = time.perf_counter()

    def wait(self) -> None:
        """Wait until the present step's time is over; a late step is caught up by the next ones."""
        self._next += self._step_s
        left_s = self._next - time.perf_counter()
        if left_s > 0:
            time.sleep(left_s)

    def restart(self) -> None:
        """Begin the schedule anew, after a wait that was not computing."""
        self._next = time.perf_counter()


class AsyncPace:
    """The same for a coroutine, on the running loop's clock: virtual time paces too.

    Args:
        step_s: How long a step takes, in seconds; or what tells it of a step that begins so many seconds after now.
    """

    def __init__(self, step_s: float | Callable[[float], float]) -> None:
        self._loop = asyncio.get_running_loop()
        self._step_s = step_s
        self._start = self._next = self._loop.time()

    async def wait(self) -> None:
        """Wait until the present step's time is over; a late step is caught up by the next ones.

        Others get their turn even where nothing is left to wait for.
        """
        step_s = self._step_s
        self._next += step_s(self._next - self._start) if callable(step_s) else step_s
        await asyncio.sleep(max(0.0, self._next - self._loop.time()))

    def restart(self) -> None:
        """Begin the schedule anew, after a wait that was not computing."""
        self._next = self._loop.time()
