"""The threads that compute: one per shard, so that the loop never does so for long and a shard has one writer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")

# A pass over so many bytes takes well under a millisecond and stays on the loop; more goes to a shard's own thread,
# and waking that took as long as a round of 1 MB on a busy machine.
INLINE_BYTES = 4 * 1024 * 1024


class Threads:
    """One thread per shard, each made when it is first asked."""

    def __init__(self) -> None:
        self._threads: list[ThreadPoolExecutor] = []
        self._loop = asyncio.get_running_loop()

    async def run(self, shard: int, work: Callable[..., T], *args: object) -> T:
        """Return what ``work`` returns in the thread of ``shard``, where one thing is done after the other."""
        while len(self._threads) <= shard:
            name = f"aiops-shard-{len(self._threads)}"
            self._threads.append(ThreadPoolExecutor(1, thread_name_prefix=name))
        return await self._loop.run_in_executor(self._threads[shard], work, *args)

    def close(self) -> None:
        """End the threads, once they are done with what they do."""
        for thread in self._threads:
            thread.shutdown()
