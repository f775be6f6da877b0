"""Who waits until a round is closed."""

from __future__ import annotations

import asyncio

from aiops.errors import AiopsError
from aiops.server.engine import Engine


class Waiters:
    """All who wait for a version of one server.

    Args:
        engine: Whose versions.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        # Made by the first who waits for the next version.
        self._moved: asyncio.Future[None] | None = None
        self._ended = False

    async def version_after(self, version: int) -> int:
        """Wait until more than ``version`` rounds are closed; return how many are.

        Raises:
            AiopsError: The server ends first.
        """
        while self._engine.version <= version:
            if self._ended:
                raise AiopsError(
                    f"the server ended at version {self._engine.version}, "
                    f"one after {version} was waited for"
                )
            self._moved = self._moved or asyncio.get_running_loop().create_future()
            # Not awaited itself: who gives up would cancel it for the others.
            await asyncio.wait([self._moved])
        return self._engine.version

    def wake(self) -> None:
        """Have everybody look at the version again."""
        if self._moved is not None:
            self._moved.set_result(None)
            self._moved = None

    def end(self) -> None:
        """Wake everybody for good: there will be no more versions."""
        self._ended = True
        self.wake()
