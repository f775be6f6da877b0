"""The awaitable result of a push, a pull or a sync."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from aiops.types import Version

T = TypeVar("T")
U = TypeVar("U")


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One version of the parameters, as it came in.

    Attributes:
        version: Rounds that are in it.
        flat: float32, shape (n,): the flat vector of the agreed table, owned by whoever awaited it.
        staleness: How late the push was that this answers, in rounds.
        n_merged: Pushes that made the version which this push became part of; 0 for a plain pull.
        done: Whether the server says that training is over.
        min_steps: Local steps before the next push is allowed.
        max_steps: Local steps at which the worker waits; None is never.
    """

    version: Version
    flat: NDArray[np.float32]
    staleness: int = 0
    n_merged: int = 0
    done: bool = False
    min_steps: int = 1
    max_steps: int | None = None


class Ticket(Generic[T]):
    """What a verb returns at once; awaiting it gives the result or raises why there is none.

    Cancelling the wait (``asyncio.timeout`` around it) does not take the request back: the ticket goes on, and
    :meth:`done` tells what became of it. Awaiting it twice gives the same result twice.

    Attributes:
        version: Version of the answer; None until it has come.
        staleness: How late the push was, in rounds; None until the answer has come.
        bytes: Payload bytes moved for this request, up and down.
    """

    __slots__ = ("_future", "bytes", "staleness", "version")

    def __init__(self) -> None:
        self._future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        # A result that nobody waits for is no error of anybody's.
        self._future.add_done_callback(lambda future: future.cancelled() or future.exception())
        self.version: Version | None = None
        self.staleness: int | None = None
        self.bytes = 0

    def __await__(self) -> Generator[object, None, T]:
        """Wait for the result."""
        # Not a shield: that would report an error which comes after the wait was given up.
        yield from asyncio.wait([self._future]).__await__()
        return self._future.result()

    def done(self) -> bool:
        """Return whether there is a result or an error."""
        return self._future.done()

    def exception(self) -> BaseException | None:
        """Return why there is no result; None while waiting or when all is well."""
        return self._future.exception() if self._future.done() else None

    def then(self, use: Callable[[T], None]) -> None:
        """Call ``use`` with the result once it is there; not at all when there is none."""

        def done(future: asyncio.Future[T]) -> None:
            if not future.cancelled() and future.exception() is None:
                use(future.result())

        self._future.add_done_callback(done)

    def map(self, convert: Callable[[T], U]) -> Ticket[U]:
        """Return a ticket for what ``convert`` makes of the result; it fails as this one does."""
        outer: Ticket[U] = Ticket()

        def done(future: asyncio.Future[T]) -> None:
            outer.version, outer.staleness, outer.bytes = self.version, self.staleness, self.bytes
            try:
                outer.resolve(convert(future.result()))
            except Exception as error:
                outer.fail(error)

        self._future.add_done_callback(done)
        return outer

    def resolve(self, result: T) -> None:
        """Give the result."""
        if not self._future.done():
            self._future.set_result(result)

    def fail(self, error: BaseException) -> None:
        """Tell why there will be no result."""
        if not self._future.done():
            self._future.set_exception(error)
