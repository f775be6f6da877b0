"""Pushes on their way into a version: checks them, does what the engine decides, and tells it what came of it."""

from __future__ import annotations

import asyncio
import functools
import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

from aiops.codec.base import DENSE, Codec
from aiops.errors import Busy, ConnectionLost, NotMember, Refused
from aiops.server.admission import AdmittedPush, admitted, misfit, objection, pushed
from aiops.server.arrival import Arrivals
from aiops.server.choosing import make_choosing
from aiops.server.event import (
    Action,
    Advise,
    Answer,
    Decline,
    Drop,
    Event,
    Fold,
    Lead,
    Merge,
    Show,
)
from aiops.server.folding import Folding
from aiops.server.members import Taken
from aiops.server.merging import Merging
from aiops.server.outcome import confirm, repeat
from aiops.server.peer import Peer
from aiops.server.question import answer, ask
from aiops.server.streaming import Streaming
from aiops.server.threads import INLINE_BYTES, Threads
from aiops.types import Key, WorkerId
from aiops.wire.session import Event as Received

if TYPE_CHECKING:
    from aiops.server.service import Service

log = logging.getLogger("aiops.server")

T = TypeVar("T")


class Merger:
    """The engine's hands.

    Args:
        service: Whose parameters and members it works on.
        codecs: How payloads are read, by wire id.
        arrivals: Where pushes are looked at on their way.
        threads: Where what takes its time is done.
    """

    def __init__(
        self,
        service: Service,
        codecs: Mapping[int, Codec],
        arrivals: Arrivals | Streaming,
        threads: Threads,
    ) -> None:
        self._service = service
        self._codecs = codecs
        self._arrivals = arrivals
        # Whole pushes that may not be told to the engine before the round closes that is being drafted.
        self._held_back: list[AdmittedPush] = []
        self._loop = asyncio.get_running_loop()
        # The push of each life of a worker that is not answered yet: it is being checked, held, merged or parked.
        self._pending: dict[tuple[str, int], AdmittedPush] = {}
        # Those that are answered and wait to be merged: nobody but this has them then.
        self._waiting: set[AdmittedPush] = set()
        self._actions: deque[Action] = deque()
        self._acting = False
        self._threads = threads
        self._folding = Folding(
            service,
            codecs[DENSE],
            in_thread=self._in_thread,
            done=self._give_back,
            inline_bytes=INLINE_BYTES,
        )
        self._choosing = make_choosing(
            service, service.config.codec, in_thread=self._in_thread, act=self._act
        )
        self._merging = Merging(
            service,
            arrivals,
            self._folding,
            in_thread=self._in_thread,
            done=self._give_back,
        )

    def push(self, peer: Peer, event: Received) -> None:
        """Take a push in, once however often it is sent."""
        assert peer.member is not None
        member = peer.member
        push = AdmittedPush(member, peer, event)
        self._service.landings.whole(push.origin)
        sequence = push.message.sequence
        waiting = self._pending.get(member.life)
        answered = sequence in member.outcomes or member.is_old(sequence)
        if waiting is None and not answered:
            self._pending[member.life] = push
            self._begin(push)
            return
        self._give_back(push)
        if waiting is not None and waiting.message.sequence == sequence:
            self._service.counters["pushes_repeated"] += 1
            # Its answer goes to where it was sent last.
            waiting.peer, waiting.request, waiting.holds = peer, event.request, push.holds
        elif answered:
            self._service.counters["pushes_repeated"] += 1
            repeat(self._service, push)
        else:
            self._service.counters["refused_Busy"] += 1
            busy = f"worker {member.worker} has a push under way, one is the limit"
            peer.refuse(event.request, Busy(busy))
        # It may be what others were held back for.
        self.release_held_back()

    def feed(self, event: Event) -> None:
        """Tell the engine what happened and do what it says."""
        self._act(self._decide(event, self._loop.time()))

    def choose(self, peer: Peer, event: Received) -> None:
        """Take in what a worker chooses for its round, or tell it what was chosen, now or once that can be said."""
        if self._choosing is None:
            event.release()
            codec = self._service.config.codec.name
            peer.refuse(event.request, Refused(f"codec {codec} has no positions to choose"))
            return
        self._act(self._choosing.choose(peer, event))

    def waits(self, worker: WorkerId) -> bool:
        """Return whether a worker waits for its model, or for what is chosen for its round, until others go on."""
        choosing = self._choosing
        return self._service.engine.waits(worker) or (
            choosing is not None and choosing.waits(worker)
        )

    def leads(self, worker: WorkerId) -> bool:
        """Return whether a worker's next push is to choose its round's positions."""
        return self._choosing is not None and self._choosing.leads(worker)

    def lost(self, peer: Peer) -> None:
        """Note that a connection is over."""
        if self._choosing is not None:
            self._act(self._choosing.lost(peer))
        self.release_held_back()

    def ask(self, peer: Peer, event: Received) -> None:
        """Answer a worker that asks how far its round goes, now or once that can be said."""
        asked = ask(self._service, peer, event)
        if asked is not None:
            engine, query = asked
            self._act(engine.queried(query, self._loop.time()))

    def close(self) -> None:
        """Give back all memory; the threads have ended."""
        self._merging.close()
        self._folding.close()
        for push in (*self._pending.values(), *self._waiting):
            push.release()
        self._pending.clear()
        self._waiting.clear()
        self._held_back.clear()

    # What the engine makes of an event, and what that means to those who ask for their round's positions.
    def _decide(self, event: Event, now: float) -> list[Action]:
        actions = self._service.engine.handle(event, now)
        return actions if self._choosing is None else [*actions, *self._choosing.follow()]

    def _begin(self, push: AdmittedPush) -> None:
        error = None if self._choosing is None else self._choosing.objection(push)
        if error is not None:
            self._act([Decline(push, error)])
            return
        seen = self._arrivals.came(push)
        if push.unseen_bytes(seen) <= INLINE_BYTES:
            self._enter(push, objection(push, self._service.store, self._codecs, seen))
        else:
            self._service.spawn(self._check(push, seen), "check")

    async def _check(self, push: AdmittedPush, seen: Mapping[Key, int]) -> None:
        store = self._service.store
        self._enter(push, await self._in_thread(0, objection, push, store, self._codecs, seen))

    def _enter(self, push: AdmittedPush, error: Refused | None) -> None:
        member = push.member
        if error is None and self._service.members.get(member.identity) is not member:
            # It left while the push was checked; another life may have its number by now.
            error = NotMember(f"worker {member.worker} is not a member, its lease has ended")
        if error is None:
            store, version = self._service.store, self._service.engine.version
            error = misfit(push, self._service) or store.claim(push, newest=version)
        if error is None and self._choosing is not None:
            error = self._choosing.misfit(push)
        if error is not None:
            self._act([Decline(push, error)])
            return
        now = self._loop.time()
        if not self._arrivals.accepted(push, now):
            self._ask_again(push)
            return
        if self._arrivals.holds_back(push):
            self._held_back.append(push)
            return
        self._service.counters["pushes"] += 1
        actions = self._decide(pushed(member.worker, push, push.message), now)
        self._act(actions)
        if self._service.engine.fold and not any(
            isinstance(action, Fold) and action.handle is push for action in actions
        ):
            # It is held for a round to come, or never: those who wait may be all that the open one waits for.
            self._service.landings.done(push.origin)

    # A push whose values are lost: a worker sends on its next connection what was not answered on this one.
    def _ask_again(self, push: AdmittedPush) -> None:
        self._service.counters["pushes_lost"] += 1
        self._give_back(push)
        self._close(push, None)
        push.peer.connection.abort(ConnectionLost("the push is to be sent again"))

    # Actions may feed the engine again; they are done in order all the same, without recursion.
    def _act(self, actions: Sequence[Action]) -> None:
        self._actions.extend(actions)
        if self._acting:
            return
        self._acting = True
        try:
            while self._actions:
                self._do(self._actions.popleft())
        finally:
            self._acting = False
        # Who waits for its model now gives no samples to those that ask for them.
        self._service.sharing.settle()

    def _do(self, action: Action) -> None:
        match action:
            case Fold(handle, weight, first):
                self._folding.fold(admitted(handle), weight, first=first)
            case Merge(handles, weights, scale):
                pushes = [admitted(handle) for handle in handles]
                merge = functools.partial(self._merging.begin, pushes, weights)
                if scale is None:
                    merge([push.parts for push in pushes], weights)
                else:
                    # What was added up as it came is a single push to the shards.
                    self._folding.merge(weights, scale, merge)
            case Answer(handle, _, version, staleness, n_merged):
                push = admitted(handle)
                taken = Taken(version, staleness, n_merged, push.moved_steps)
                # The memory of a merged one is given back by now.
                if not n_merged:
                    self._arrivals.gone(push)
                    self._waiting.add(push)
                self._close(push, taken)
                confirm(self._service, push, taken)
            case Advise():
                answer(action)
            case Lead() | Show():
                assert self._choosing is not None
                self._choosing.tell(action)
            case Decline(handle, error):
                push = admitted(handle)
                self._service.counters[f"refused_{type(error).__name__}"] += 1
                # These say nothing about the push itself: sent again, it may well be taken.
                again = isinstance(error, Busy | NotMember)
                self._give_back(push)
                self._close(push, None if again else error)
                push.peer.refuse(push.request, error)
            case Drop(handle, error):
                push = admitted(handle)
                log.warning("a push of worker %d is lost: %s", push.member.worker, error)
                self._service.counters["pushes_dropped"] += 1
                self._give_back(push)

    def _close(self, push: AdmittedPush, outcome: Taken | Refused | None) -> None:
        self._pending.pop(push.member.life, None)
        if outcome is not None:
            push.member.record(push.message.sequence, outcome)
        self.release_held_back()

    def _give_back(self, push: AdmittedPush) -> None:
        self._waiting.discard(push)
        self._arrivals.gone(push)
        self._service.store.unclaim(push)
        push.release()
        self._service.landings.done(push.origin)

    def release_held_back(self) -> None:
        """Go on with the pushes that waited for a round which is closed, or will be another one."""
        if not self._held_back:
            return
        waiting, self._held_back = self._held_back, []
        for push in waiting:
            self._enter(push, None)

    async def _in_thread(self, shard: int, work: Callable[..., T], *args: object) -> T:
        return await self._threads.run(shard, work, *args)
