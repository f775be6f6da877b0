"""Adds pushes to their round's sum as they come, on the loop or in the shards' threads, and gives their memory back.

A sum is changed by one job per shard at a time, in the order in which the engine heard of the pushes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from aiops.server.accumulator import Accumulator, AddJob
from aiops.server.admission import AdmittedPush
from aiops.server.shard import Part
from aiops.types import Key, ShardId

if TYPE_CHECKING:
    from aiops.codec.base import Codec
    from aiops.server.service import Service


class InThread(Protocol):
    """Does some work in a shard's thread."""

    def __call__(self, shard: int, work: Callable[[], None], /) -> Coroutine[object, object, None]:
        """Return when it is done."""


@dataclass(slots=True, eq=False)
class Sum:
    """What is added up, and how many pushes are still on their way into it."""

    numbers: Accumulator
    pending: int = 0
    wanted: bool = True
    settled: asyncio.Event = field(default_factory=asyncio.Event)


class Folding:
    """The sum of the open round.

    Args:
        service: Whose pool and table it uses.
        plain: The codec of float32 values as they are.
        in_thread: Where large pushes are added.
        done: Told of each push that is added: its payload is not needed any more.
        inline_bytes: Payload up to which a push is added on the loop.
    """

    def __init__(
        self,
        service: Service,
        plain: Codec,
        *,
        in_thread: InThread,
        done: Callable[[AdmittedPush], None],
        inline_bytes: int,
    ) -> None:
        self._service = service
        self._plain = plain
        self._in_thread = in_thread
        self._done = done
        self._inline_bytes = inline_bytes
        self._open: Sum | None = None
        self._merging: Sum | None = None
        # Sums with memory: the open one, those that are merged, and those that nobody wants but a thread.
        self._all: set[Sum] = set()

    def fold(self, push: AdmittedPush, weight: float, *, first: bool) -> None:
        """Add a push that is held now; ``first`` begins a new sum, and gives up what was not merged of the last."""
        if first and self._open is not None:
            self._release(self._open)
            self._open = None
        if self._open is None:
            service = self._service
            self._open = Sum(Accumulator(service.pool, service.store.require(), self._plain))
            self._all.add(self._open)
        made = self._open
        self._service.counters["pushes_folded"] += 1
        jobs = made.numbers.add(push.parts, weight)
        if not made.pending and push.unseen_bytes(()) <= self._inline_bytes:
            for job in jobs.values():
                job.run()
            self._done(push)
            return
        made.pending += 1
        self._service.spawn(self._fold(made, push, jobs), "fold")

    def merge(
        self,
        weights: Sequence[float],
        scale: float,
        then: Callable[[Sequence[Mapping[Key, Part]], Sequence[float]], None],
    ) -> None:
        """Close the round: merge its sum as a single push, once all of its pushes are added.

        Args:
            weights: What the pushes are worth.
            scale: What makes that of the weights with which they were added.
            then: Merges pushes of such factors. The next push begins another sum; this one lasts until
                :meth:`merged`.
        """
        made, self._open = self._open, None
        assert made is not None, "a round that closes has pushes"
        self._merging = made

        def merge() -> None:
            then([made.numbers.push(scale, sum(weights))], [scale])

        if made.pending:
            self._service.spawn(self._settle(made, merge), "settle")
        else:
            merge()

    def merged(self) -> None:
        """Give the memory of the merge that is over back."""
        if self._merging is not None:
            self._release(self._merging)
            self._merging = None

    def close(self) -> None:
        """Give back all memory; the threads have ended."""
        for made in self._all:
            made.numbers.release()
        self._all.clear()
        self._open = self._merging = None

    async def _fold(self, made: Sum, push: AdmittedPush, jobs: Mapping[ShardId, AddJob]) -> None:
        async with asyncio.TaskGroup() as group:
            for shard, job in jobs.items():
                group.create_task(self._in_thread(shard, job.run))
        made.pending -= 1
        made.settled.set()
        self._done(push)
        if not made.wanted:
            self._release(made)

    async def _settle(self, made: Sum, then: Callable[[], None]) -> None:
        while made.pending:
            made.settled.clear()
            await made.settled.wait()
        then()

    # Give a sum's memory back, as soon as no thread is at it.
    def _release(self, made: Sum) -> None:
        made.wanted = False
        if not made.pending and made in self._all:
            self._all.discard(made)
            made.numbers.release()
