"""One round's pushes, merged in all shards and published, or given up in all of them."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from aiops.errors import Busy
from aiops.server.admission import AdmittedPush, note_steps
from aiops.server.arrival import Arrivals
from aiops.server.event import Merged, MergeFailed
from aiops.server.folding import Folding, InThread
from aiops.server.shard import MergeJob, Part, Shard
from aiops.server.streaming import Streaming
from aiops.server.threads import INLINE_BYTES
from aiops.types import Key, Version

if TYPE_CHECKING:
    from aiops.server.service import Service


class Merging:
    """The merge that is under way, at most one at a time.

    Args:
        service: Whose parameters.
        arrivals: What has drafted some of it already.
        folding: What has added some of it up already.
        in_thread: Where large rounds are merged.
        done: Gives back the memory of a push that is merged.
    """

    def __init__(
        self,
        service: Service,
        arrivals: Arrivals | Streaming,
        folding: Folding,
        *,
        in_thread: InThread,
        done: Callable[[AdmittedPush], None],
    ) -> None:
        self._service = service
        self._arrivals = arrivals
        self._folding = folding
        self._in_thread = in_thread
        self._done = done
        self._jobs: Sequence[tuple[Shard, MergeJob]] = ()

    def begin(
        self,
        pushes: Sequence[AdmittedPush],
        weights: Sequence[float],
        parts: Sequence[Mapping[Key, Part]],
        factors: Sequence[float],
    ) -> None:
        """Merge a round; the engine hears what came of it, now or later.

        Args:
            pushes: What the round closes with.
            weights: What the engine says that each is worth.
            parts: What the shards are to add up: the pushes', or what they were added up to as they came.
            factors: By what each of those is multiplied.
        """
        service = self._service
        drafts = self._arrivals.drafted(pushes, weights)
        if drafts is None:
            lost = "the round closes with other pushes than were under way, send it again"
            service.feed(MergeFailed(Busy(lost)))
            return
        gain, origins = service.config.server_lr, service.store.origins(pushes)
        self._jobs = jobs = service.store.begin(parts, factors, gain, drafts, origins)
        self._arrivals.close_round(drafts)
        note_steps(pushes, weights, service.config.server_lr)
        service.counters["buckets_drafted"] += len(drafts)
        size = sum([job.todo_bytes for _, job in jobs]) * (len(parts) + 2)
        if service.autopilot is not None:
            size += service.autopilot.measured_bytes(pushes)
        if size <= INLINE_BYTES and not service.store.selects:
            for _, job in jobs:
                job.run()
            if service.autopilot is not None:
                service.autopilot.measure(pushes)
            self._finish(pushes)
        else:
            service.spawn(self._in_threads(pushes), "merge")

    def close(self) -> None:
        """Give up what is under way; the threads have ended."""
        self._service.store.discard(self._jobs)
        self._jobs = ()

    async def _in_threads(self, pushes: Sequence[AdmittedPush]) -> None:
        store = self._service.store
        if store.selects:
            await self._each(store.measure)
            store.select(self._jobs)
        await self._each(lambda job: job.run())
        if self._service.autopilot is not None:
            measure = functools.partial(self._service.autopilot.measure, pushes)
            await self._in_thread(0, measure)
        self._finish(pushes)

    async def _each(self, work: Callable[[MergeJob], None]) -> None:
        async with asyncio.TaskGroup() as group:
            for shard, job in self._jobs:
                group.create_task(self._in_thread(shard.shard, functools.partial(work, job)))

    def _finish(self, pushes: Sequence[AdmittedPush]) -> None:
        service = self._service
        jobs, self._jobs = self._jobs, ()
        error = service.store.finish(jobs)
        self._folding.merged()
        if error is not None:
            service.feed(MergeFailed(error))
            return
        for push in pushes:
            push.member.merged += 1
            self._done(push)
            if service.store.ruled and not service.engine.is_member(push.member.worker):
                service.store.left(push.member.worker)
        service.counters["pushes_merged"] += len(pushes)
        if service.autopilot is not None:
            service.autopilot.published(Version(service.engine.version + 1))
        service.feed(Merged())
        service.waiters.wake()
