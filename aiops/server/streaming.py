"""Chunk streaming: buckets of the open round are merged, and sent back, while later ones are on their way in.

Where the engine says with which pushes the open round will close, and at which weights, a bucket of the next version is
computed as soon as its part of every push is here, and leaves at once for everybody who wants the model. What a round
merges is still the engine's decision: where it decides otherwise, the connections that were sent something ahead are
cut, and their workers send again what is not answered, as after any loss.
"""

from __future__ import annotations

import asyncio
from collections.abc import Container, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from aiops.codec.base import Codec
from aiops.server.admission import AdmittedPush, pushed
from aiops.server.answer import Tentative, send_ahead
from aiops.server.arrival import Arrivals
from aiops.server.chunk import Chunk
from aiops.server.event import Handle
from aiops.server.foresight import Coming, Foresight
from aiops.server.peer import Peer
from aiops.server.threads import INLINE_BYTES, Threads
from aiops.transport.lane import Lane
from aiops.types import Key
from aiops.wire.frame import Frame, Header
from aiops.wire.message import Push
from aiops.wire.reader import Landing

if TYPE_CHECKING:
    from aiops.server.service import Service


class Streaming:
    """All pushes on their way into the open round, and what of it is sent ahead.

    It stands where :class:`aiops.server.arrival.Arrivals` does, and is asked the same.

    Args:
        service: Whose they are.
        codecs: How payloads are read, by wire id.
        threads: Where large buckets are merged.
    """

    def __init__(self, service: Service, codecs: Mapping[int, Codec], threads: Threads) -> None:
        self._service = service
        self._codecs = codecs
        self._threads = threads
        self._loop = asyncio.get_running_loop()
        self._all: dict[tuple[Peer, int], Coming] = {}
        self._plan: Foresight | None = None
        # Whether the engine may foresee something else by now.
        self._changed = False
        self._running: set[Chunk] = set()

    def land(self, peer: Peer, header: Header, message: Push) -> Landing | None:
        """Take memory for a bucket of an announced push; None leaves that to the peer.

        Raises:
            MemoryError: There is none; the connection that brings it must end.
        """
        table, member = self._service.table, peer.member
        if table is None or member is None or not self._service.store.seeded:
            return None
        coming = self._all.get((peer, header.request))
        if coming is None:
            if self._is_repeated(peer, message):
                return None
            announced = pushed(member.worker, Handle(), message)
            coming = Coming(peer, header.request, message, announced)
            self._all[peer, header.request] = coming
            self._changed = True
        elif coming.whole is not None:
            # A peer that uses a number again before it is answered is none of ours.
            return None
        block = self._service.pool.take(header.size)
        coming.blocks[Key(header.key)] = block
        return Landing(block.view, block, lane=table.buckets[header.key].shard)

    def part(self, peer: Peer, frame: Frame) -> None:
        """Take note of a bucket that is here; merge it, and send it ahead, if it is here from everybody."""
        coming, key = self._all.get((peer, frame.header.request)), Key(frame.header.key)
        table = self._service.table
        if coming is None or table is None or key >= len(table.buckets):
            return
        coming.frames[key] = frame
        came = {key}
        if coming.whole is not None:
            # What it has none of does not come any more.
            came |= {Key(other) for other in range(len(table.buckets))} - coming.frames.keys()
        plan = self._plan
        if self._changed and self._replan() is not plan:
            return
        if plan is not None and coming in plan.comings:
            plan.here.update(came)
            self._merge(plan, came)

    def came(self, push: AdmittedPush) -> Mapping[Key, int]:
        """Take note that a push is whole; return what was checked on the way: -1 for each bucket, they are good."""
        coming = self._all.get(push.origin)
        if coming is None:
            return {}
        coming.whole = push
        return coming.seen

    def accepted(self, push: AdmittedPush, now: float) -> bool:
        """Take note that the engine is about to hear of a push; True: its values are still there."""
        coming = self._all.get(push.origin)
        if coming is not None:
            coming.push = push
        self._changed = True
        return True

    def gone(self, push: AdmittedPush) -> None:
        """Forget a push that is answered."""
        coming = self._all.get(push.origin)
        if coming is not None and coming.whole in (None, push):
            self._forget(coming, f"a push of worker {push.member.worker} is not merged")

    def lost(self, peer: Peer) -> None:
        """Forget what a connection did not bring to its end."""
        # Its worker may have left, and the round wait for the others alone.
        self._changed = True
        for coming in [c for c in self._all.values() if c.peer is peer and c.whole is None]:
            self._forget(coming, f"worker {coming.announced.worker} was cut while it pushed")

    def holds_back(self, push: AdmittedPush) -> bool:
        """Return whether the round must close first: what was sent ahead knows nothing of this push."""
        plan = self._plan
        if plan is None or not plan.answers:
            return False
        return all(coming.push is not push for coming in plan.comings)

    def drafted(
        self, pushes: Sequence[Handle], weights: Sequence[float]
    ) -> Mapping[Key, Chunk] | None:
        """Return what is computed of a version that is made of these pushes, by bucket.

        It stays this object's until :meth:`close_round`. What was sent ahead of another version is void.
        """
        plan = self._plan
        if plan is None:
            return {}
        if plan.is_made_of(pushes, weights):
            return {key: chunk for key, chunk in plan.chunks.items() if chunk.complete}
        self._give_up("the round closes with other pushes or weights than was foreseen")
        return {}

    def close_round(self, used: Container[Key]) -> None:
        """Give up all that was computed but what is published; what was sent ahead of it is right."""
        self._drop(used)
        self._changed = True

    def close(self) -> None:
        """Give up everything; the threads have ended."""
        self._drop(())
        self._all.clear()
        for chunk in self._running:
            chunk.end()
        self._running.clear()

    # A push that is sent again while it is checked, held or merged, or after it was answered, brings nothing.
    def _is_repeated(self, peer: Peer, message: Push) -> bool:
        member, sequence = peer.member, message.sequence
        assert member is not None
        return (
            sequence in member.outcomes
            or member.is_old(sequence)
            or any(
                c.whole is not None and c.whole.member is member and c.message.sequence == sequence
                for c in self._all.values()
            )
        )

    # Foresee what the open round closes with, unless that is what something was sent ahead of already.
    def _replan(self) -> Foresight | None:
        self._changed = False
        plan, table = self._plan, self._service.table
        if plan is not None and plan.answers:
            return plan
        found = self._foreseen()
        if plan is not None and (plan.comings, plan.weights) == found:
            return plan
        self._drop(())
        if found is None or table is None:
            return None
        plan = self._plan = Foresight(*found, self._service.config.server_lr)
        every = [Key(key) for key in range(len(table.buckets))]
        for coming in plan.comings:
            plan.here.update(list(coming.frames) if coming.whole is None else every)
        self._merge(plan, list(plan.here))
        return plan

    # The pushes that the open round closes with, in worker order, and their weights.
    def _foreseen(self) -> tuple[list[Coming], tuple[float, ...]] | None:
        table, comings = self._service.table, [c for c in self._all.values() if not c.unfit]
        # The last bucket goes with the decision, and who wants no model is sent none.
        if table is None or len(table.buckets) < 2 or not any(c.message.want for c in comings):
            return None
        found = self._service.engine.preview(
            [c.announced for c in comings if c.push is None], self._loop.time()
        )
        by_worker = {c.announced.worker: c for c in comings}
        if found is None or not by_worker.keys() >= set(found[0]):
            return None
        return [by_worker[worker] for worker in found[0]], found[1]

    # Merge those of the buckets that are here from everybody.
    def _merge(self, plan: Foresight, keys: Iterable[Key]) -> None:
        service = self._service
        for key in keys:
            if not plan.wants(key):
                continue
            chunk = plan.chunk(key, service.store, self._codecs)
            if chunk is None:
                return
            self._running.add(chunk)
            if chunk.passes_bytes <= INLINE_BYTES:
                chunk.run()
                self._merged(plan, chunk)
            else:
                service.spawn(self._merge_apart(plan, chunk), "chunk")

    async def _merge_apart(self, plan: Foresight, chunk: Chunk) -> None:
        await self._threads.run(chunk.shard.shard, chunk.run)
        self._merged(plan, chunk)

    # A chunk is computed: send it ahead if it is still what the round is foreseen to make.
    def _merged(self, plan: Foresight, chunk: Chunk) -> None:
        self._running.discard(chunk)
        chunk.end()
        if self._changed and not plan.answers:
            self._replan()
        if plan is not self._plan or not plan.merged(chunk):
            return
        plan.answers = plan.answers or self._begin(plan)
        for answer in plan.answers:
            answer.add(chunk.key, chunk.fresh, chunk.change)
        if plan.answers:
            self._service.counters["chunks_ahead"] += 1

    def _begin(self, plan: Foresight) -> list[Tentative]:
        version, answers = self._service.engine.version, []
        for coming in plan.comings:
            if coming.message.want:
                # It may have been sent again over another connection meanwhile.
                peer, request = (coming.whole or coming).peer, (coming.whole or coming).request
                holds = coming.message.holds if coming.whole is None else coming.whole.holds
                taken = plan.taken(coming, version)
                answers.append(send_ahead(self._service, peer, request, taken, holds=holds))
        return [answer for answer in answers if answer is not None]

    def _forget(self, coming: Coming, reason: str) -> None:
        del self._all[coming.peer, coming.request]
        self._changed = True
        if self._plan is not None and coming in self._plan.comings:
            self._give_up(reason)

    # What was foreseen does not come true.
    def _give_up(self, reason: str) -> None:
        plan = self._plan
        assert plan is not None
        self._drop(())
        if not plan.answers:
            return
        self._service.counters["rounds_unforeseen"] += 1
        for answer in plan.answers:
            answer.cut(reason)
        # Nothing more comes over these, and nobody shall foresee that it does.
        for coming in plan.comings:
            if coming.whole is None and coming.peer.connection.closed:
                self._all.pop((coming.peer, coming.request), None)

    def _drop(self, used: Container[Key]) -> None:
        plan, self._plan = self._plan, None
        if plan is not None:
            plan.discard(used)


def make_arrivals(
    service: Service, codecs: Mapping[int, Codec], lanes: Sequence[Lane], threads: Threads
) -> Arrivals | Streaming:
    """Return what a service's configuration wants; the arguments are those of the two."""
    if not service.config.streams:
        return Arrivals(service, lanes)
    return Streaming(service, codecs, threads)
