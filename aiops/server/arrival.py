"""Pushes that are on their way in: where their large buckets land, and which of them the next version is made of.

What they could be refused for is found on the way, and where the engine says with which of them the open round will
close, that version is drafted while they come (see :mod:`aiops.server.draft`).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from aiops.buffers import Block
from aiops.codec.base import DENSE
from aiops.server.admission import AdmittedPush, pushed
from aiops.server.draft import CHUNK_BYTES, BucketDraft, Intake
from aiops.server.event import Handle, Pushed
from aiops.server.peer import Peer
from aiops.transport.lane import Lane
from aiops.types import DTYPE_IDS, Key, WorkerId
from aiops.wire.frame import Header
from aiops.wire.message import Push

if TYPE_CHECKING:
    from aiops.server.service import Service

# Smaller buckets are merged when the round closes: that takes less than a draft's bookkeeping. At least as much as goes
# through a lane whatever part of it came with the header, so that a bucket's chunks are counted in one thread.
DRAFTED_BYTES = 4 * CHUNK_BYTES


@dataclass(slots=True, eq=False)
class Arrival:
    """One push from its first large bucket until its round is closed.

    Attributes:
        peer: The connection that brings it.
        request: Its number there.
        announced: What the engine will be told of it.
        intakes: Its large buckets, as far as they have begun.
        whole: The push, once it is whole.
        push: The same, once it is good as well.
        lost: Whether some of its values were in a draft that is no more; it is part of no other.
    """

    peer: Peer
    request: int
    announced: Pushed
    intakes: dict[Key, Intake] = field(default_factory=dict)
    whole: AdmittedPush | None = None
    push: AdmittedPush | None = None
    lost: bool = False

    @property
    def passing(self) -> bool:
        """Whether some of its values exist in a draft alone."""
        return any(intake.passing for intake in self.intakes.values())


@dataclass(slots=True)
class _Plan:
    arrivals: list[Arrival]
    workers: list[WorkerId]
    weights: tuple[float, ...]
    drafts: dict[Key, BucketDraft] = field(default_factory=dict)
    loans: list[Block] = field(default_factory=list)


class Arrivals:
    """All pushes on their way into the open round.

    Args:
        service: Whose they are.
        lanes: The threads that bring them; none where the loop does.
    """

    # It need not hear of buckets that are here: it looks at them on their way.
    part: None = None

    def __init__(self, service: Service, lanes: Sequence[Lane]) -> None:
        self._service = service
        self._lanes = lanes
        self._loop = asyncio.get_running_loop()
        self._all: dict[tuple[Peer, int], Arrival] = {}
        self._plan: _Plan | None = None
        # Pushes whose values are lost, by worker and sequence: they are kept when they come again.
        self._in_vain: set[tuple[WorkerId, int]] = set()

    def land(self, peer: Peer, header: Header, message: Push) -> Intake | None:
        """Choose where a bucket of an announced push goes; None leaves it to the peer.

        Raises:
            MemoryError: There is none for it, or for what it is merged into; the connection that brings it must end.
        """
        table = self._service.table
        if header.size < DRAFTED_BYTES or peer.member is None:
            return None
        if table is None or header.key >= len(table.buckets):
            return None
        bucket = table.buckets[header.key]
        plain = header.codec == DENSE and header.dtype == DTYPE_IDS["float32"]
        whole = header.size == 4 * bucket.size
        if not plain or not whole or bucket.averaged or not self._service.store.seeded:
            return None
        arrival = self._all.get((peer, header.request))
        if arrival is None:
            arrival = Arrival(peer, header.request, pushed(peer.member.worker, Handle(), message))
            self._all[peer, header.request] = arrival
            self._replan()
        elif arrival.whole is not None:
            # A peer that uses a number again before it is answered is none of ours.
            return None
        again = (peer.member.worker, message.sequence) in self._in_vain
        passing = not again and self._may_pass(arrival, Key(header.key))
        size = min(CHUNK_BYTES, header.size) if passing else header.size
        block = self._service.pool.take(size)
        intake = Intake(header.size, block, passing=passing, lane=bucket.shard)
        arrival.intakes[Key(header.key)] = intake
        try:
            self._draft(Key(header.key))
        except MemoryError:
            # The connection ends before the intake has an owner.
            block.release()
            raise
        return intake

    def came(self, push: AdmittedPush) -> Mapping[Key, int]:
        """Take note that a push is whole; return what was checked on the way: each bucket's first bad value, or -1."""
        arrival = self._all.get(push.origin)
        if arrival is None:
            return {}
        arrival.whole = push
        return {key: intake.bad for key, intake in arrival.intakes.items()}

    def accepted(self, push: AdmittedPush, now: float) -> bool:
        """Take note that the engine is about to hear of a push: it is whole and good.

        Returns whether its values are still there. They are lost if they are in a draft alone and the round will not
        close with them as it was foreseen, because somebody has left or a weight is another one now.
        """
        arrival = self._all.get(push.origin)
        if arrival is None:
            return True
        if arrival.passing and not self._as_foreseen(arrival, now):
            self._in_vain.add((push.member.worker, push.message.sequence))
            return False
        arrival.push = push
        return True

    def gone(self, push: AdmittedPush) -> None:
        """Forget a push that is answered."""
        arrival = self._all.get(push.origin)
        if arrival is not None and arrival.whole in (None, push):
            self._forget(arrival)

    def lost(self, peer: Peer) -> None:
        """Forget what a connection did not bring to its end."""
        for arrival in [a for a in self._all.values() if a.peer is peer and a.whole is None]:
            self._forget(arrival)

    def holds_back(self, push: AdmittedPush) -> bool:
        """Return whether the round must close first: its values exist in a draft that knows nothing of this push."""
        plan = self._plan
        return (
            plan is not None
            and any(arrival.passing for arrival in plan.arrivals)
            and all(arrival.push is not push for arrival in plan.arrivals)
        )

    def drafted(
        self, pushes: Sequence[Handle], weights: Sequence[float]
    ) -> Mapping[Key, BucketDraft] | None:
        """Return the drafts of a version that is made of these pushes, by key; None if their values are lost.

        They stay this object's until :meth:`close_round`.
        """
        plan = self._plan
        if not self._all:
            return {}
        if (
            plan is not None
            and plan.weights == tuple(weights)
            and [arrival.push for arrival in plan.arrivals] == list(pushes)
        ):
            return plan.drafts
        if any(a.passing for a in self._all.values() if a.push is not None and a.push in pushes):
            return None
        return {}

    def close_round(self, used: Container[Key]) -> None:
        """Give up all drafts but those whose memory is published."""
        self._drop(used)
        self._in_vain.clear()

    def close(self) -> None:
        """Give up everything."""
        self._drop({})
        self._all.clear()

    # What the open round will close with, if the pushes under way are all that it waits for.
    def _replan(self) -> None:
        if self._plan is not None and any(arrival.passing for arrival in self._plan.arrivals):
            return
        self._drop({})
        if self._service.store.ruled:
            # What pushes come to is then known only when all of them are here.
            return
        arrivals = [arrival for arrival in self._all.values() if not arrival.lost]
        by_worker = {arrival.announced.worker: arrival for arrival in arrivals}
        coming = [arrival.announced for arrival in arrivals if arrival.push is None]
        found = self._service.engine.preview(coming, self._loop.time())
        if found is None or not by_worker.keys() >= set(found[0]):
            return
        workers, weights = found
        self._plan = _Plan([by_worker[worker] for worker in workers], workers, weights)

    # A push that all others wait for need not be kept: only its own failure could make the draft void.
    def _may_pass(self, arrival: Arrival, key: Key) -> bool:
        plan = self._plan
        if plan is None or arrival not in plan.arrivals:
            return False
        others = [other for other in plan.arrivals if other is not arrival]
        return all(other.push is not None and key in other.intakes for other in others) and (
            arrival.passing or self._as_foreseen(arrival, self._loop.time())
        )

    # Whether the round closes as planned with this push, which is the last one of the plan.
    def _as_foreseen(self, arrival: Arrival, now: float) -> bool:
        plan = self._plan
        return (
            plan is not None
            and arrival in plan.arrivals
            and self._service.engine.preview([arrival.announced], now)
            == (plan.workers, plan.weights)
        )

    # Begin the draft of a bucket of which every push of the round has begun to come.
    def _draft(self, key: Key) -> None:
        plan, service = self._plan, self._service
        if plan is None or key in plan.drafts:
            return
        intakes = [a.intakes[key] for a in plan.arrivals if key in a.intakes]
        if len(intakes) < len(plan.arrivals):
            return
        old = service.store.lend(key)
        plan.loans.append(old)
        fresh = service.pool.take(len(old))
        with self._quiet(intakes[0].lane):
            plan.drafts[key] = BucketDraft(
                old.float32(), fresh, intakes, plan.weights, service.config.server_lr
            )

    def _forget(self, arrival: Arrival) -> None:
        del self._all[arrival.peer, arrival.request]
        if self._plan is not None and arrival in self._plan.arrivals:
            self._drop({})

    def _drop(self, used: Container[Key]) -> None:
        plan, self._plan = self._plan, None
        if plan is None:
            return
        for key, draft in plan.drafts.items():
            with self._quiet(plan.arrivals[0].intakes[key].lane):
                draft.stop()
            if key not in used:
                draft.fresh.release()
        for block in plan.loans:
            block.release()
        for arrival in plan.arrivals:
            arrival.lost = arrival.lost or arrival.passing

    def _quiet(self, lane: int) -> contextlib.AbstractContextManager[None]:
        if not self._lanes:
            return contextlib.nullcontext()
        return self._lanes[lane % len(self._lanes)].quiet()
