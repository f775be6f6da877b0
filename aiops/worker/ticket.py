"""The awaitable result of a push, a pull or a sync."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from typing import Any, Generic, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from aiops.types import Version
from aiops.wire.message import Policy

T = TypeVar("T")
U = TypeVar("U")


class Snapshot(msgspec.Struct, frozen=True):
    """One version of the parameters, as it came in.

    Attributes:
        version: Rounds that are in it.
        flat: float32, shape (n,): the flat vector of the agreed table, owned by whoever awaited it.
        staleness: How late the push was that this answers, in rounds.
        n_merged: Pushes that made the version which this push became part of; 0 for a plain pull, and for a push that
            a buffer of the server holds until others have come: it is in no version yet.
        done: Whether the server says that training is over.
        min_steps: Local steps before the next push is allowed.
        max_steps: Local steps at which the worker waits; None is never.
        moved_steps: Mean local steps by which the version that this push became part of has moved; 0 if unknown.
        policy: What the server decided for its workers from this model on; None where that never changes.
        lead: Whether this worker's next push chooses the positions of its round.
    """

    version: Version
    flat: NDArray[np.float32]
    staleness: int = 0
    n_merged: int = 0
    done: bool = False
    min_steps: int = 1
    max_steps: int | None = None
    moved_steps: float = 0.0
    policy: Policy | None = None
    lead: bool = False


class Ticket(Generic[T]):
    """What a verb returns at once; awaiting it gives the result or raises why there is none.

    Cancelling the wait (``asyncio.timeout`` around it) does not take the request back: the ticket goes on, and
    :meth:`done` tells what became of it. Awaiting it twice gives the same result twice.

    Attributes:
        version: Version of the answer; None until it has come.
        staleness: How late the push was, in rounds; None until the answer has come.
        bytes: Payload bytes moved for this request, up and down.
    """

    __slots__ = (
        "_error",
        "_heard",
        "_over",
        "_result",
        "_waiters",
        "bytes",
        "staleness",
        "version",
    )

    def __init__(self) -> None:
        self.version: Version | None = None
        self.staleness: int | None = None
        self.bytes = 0
        self._over = False
        # Of type T once it is there; asking a cast for that at every look costs more than the look.
        self._result: Any = None
        self._error: BaseException | None = None
        self._heard: list[Callable[[], None]] = []
        self._waiters: list[asyncio.Future[None]] = []

    def __await__(self) -> Generator[object, None, T]:
        """Wait for the result."""
        if not self._over:
            # One future a wait: a wait that is given up takes nothing back, and leaves no error that nobody heard.
            waiter = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            yield from waiter
        if self._error is not None:
            raise self._error
        result: T = self._result
        return result

    def done(self) -> bool:
        """Return whether there is a result or an error."""
        return self._over

    def exception(self) -> BaseException | None:
        """Return why there is no result; None while waiting or when all is well."""
        return self._error

    def heard(self, tell: Callable[[], None]) -> None:
        """Call ``tell`` as soon as this is done, before anybody who waits goes on."""
        if self._over:
            tell()
        else:
            self._heard.append(tell)

    def then(self, use: Callable[[T], None]) -> None:
        """Call ``use`` with the result once it is there; not at all when there is none."""
        self.heard(lambda: use(self._result) if self._error is None else None)

    def map(self, convert: Callable[[T], U]) -> Ticket[U]:
        """Return a ticket for what ``convert`` makes of the result; it fails as this one does."""
        outer: Ticket[U] = Ticket()

        def tell() -> None:
            outer.version, outer.staleness, outer.bytes = self.version, self.staleness, self.bytes
            if self._error is not None:
                outer.fail(self._error)
                return
            try:
                outer.resolve(convert(self._result))
            except Exception as error:
                outer.fail(error)

        self.heard(tell)
        return outer

    def resolve(self, result: T) -> None:
        """Give the result."""
        if not self._over:
            self._result = result
            self._end()

    def fail(self, error: BaseException) -> None:
        """Tell why there will be no result."""
        if not self._over:
            self._error = error
            self._end()

    def _end(self) -> None:
        self._over = True
        for tell in self._heard:
            tell()
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)
        self._heard.clear()
        self._waiters.clear()
