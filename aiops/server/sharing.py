"""Samples that workers share: from the wire of each donor to all others, from one piece of memory."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from aiops.buffers import Block
from aiops.errors import NotMember, Refused, ShapeMismatch
from aiops.policy.stream import InjectionRule
from aiops.server.peer import Peer, Reply
from aiops.server.question import Question
from aiops.server.share import Shares, Tell
from aiops.types import WorkerId
from aiops.wire.frame import Header, Kind
from aiops.wire.message import Share, Shared
from aiops.wire.record import Form, unpack_records
from aiops.wire.session import Event

if TYPE_CHECKING:
    from aiops.server.service import Service


class Sharing:
    """The sharing of one service, on the loop: nothing is looked at but the heads of records.

    Args:
        service: Whose workers.
        rule: Who gives; None lets nobody.
        waits: Whether a worker waits for its model.
    """

    def __init__(
        self, service: Service, rule: InjectionRule | None, waits: Callable[[WorkerId], bool]
    ) -> None:
        self._service = service
        self._limit = service.config.share_bytes
        self._loop = asyncio.get_running_loop()
        self._shares = (
            None if rule is None else Shares(rule.donors, waits, patience_s=service.config.lease_s)
        )
        # Whose records are on their way in, under which request: one of a connection at a time.
        self._landing: dict[Peer, int] = {}
        # What all samples look like: as the first that were given.
        self._form: Form | None = None

    def wants(self, peer: Peer, header: Header, share: Share) -> bool:
        """Return whether memory is taken for a donor's records; all others are read and dropped."""
        member, shares = peer.member, self._shares
        if member is None or shares is None or not shares.due(member.worker, share.round):
            return False
        small = header.size <= self._limit and header.key == 0
        return small and self._landing.setdefault(peer, header.request) == header.request

    def share(self, peer: Peer, event: Event) -> None:
        """Take a question in, and what comes with it; a refused one is answered with a sentence."""
        assert isinstance(event.body, Share)
        assert peer.member is not None
        worker, number, shares = peer.member.worker, event.body.round, self._shares
        if self._landing.get(peer) == event.request:
            del self._landing[peer]
        try:
            if shares is None:
                raise Refused("this server has no injection, samples are not shared")
            if self._service.members.get(peer.member.identity) is not peer.member:
                raise NotMember(f"worker {worker} is not a member, its lease has ended")
            gift = self._gift(event) if shares.due(worker, number) else None
        except Refused as error:
            event.release()
            self._service.counters[f"refused_{type(error).__name__}"] += 1
            peer.refuse(event.request, error)
            if shares is not None:
                self._act(shares.declined(worker))
            return
        if gift is not None:
            self._service.counters["shares"] += 1
            self._service.counters["shared_bytes_up"] += len(gift)
            peer.member.gave_bytes += len(gift)
        event.release()
        question = Question(peer, event.request)
        self._act(shares.ask(worker, number, question, gift, self._loop.time()))

    def lost(self, peer: Peer) -> None:
        """Note that a connection is over."""
        self._landing.pop(peer, None)
        member = peer.member
        # Its worker may be on another one already, or in another life.
        if self._shares is None or member is None or member.peer not in (None, peer):
            return
        if self._service.members.get(member.identity) is member:
            self._shares.lost(member.worker)

    def left(self, worker: WorkerId) -> None:
        """Note that a worker is gone for good."""
        if self._shares is not None:
            self._act(self._shares.left(worker))

    def settle(self) -> None:
        """Look again whom there is to wait for, since somebody may wait for its model now."""
        if self._shares is not None:
            self._act(self._shares.settle())

    def sweep(self, now: float) -> None:
        """Go on without donors that others have waited for as long as a lease."""
        shares = self._shares
        for worker in set() if shares is None else shares.late(now):
            assert shares is not None
            self._service.counters["shares_missed"] += 1
            self._act(shares.left(worker))

    def report(self) -> Mapping[str, object]:
        """Return what is going on, for the status; nothing where nobody shares."""
        shares = self._shares
        if shares is None:
            return {}
        return {
            "sharing": {
                "round": shares.round,
                "donors": shares.n_donors,
                "waiting": shares.n_asking,
            }
        }

    def close(self) -> None:
        """Give all memory back."""
        if self._shares is not None:
            self._shares.close()

    # The memory of a donor's records, which goes over to the caller; None where it gives none.
    def _gift(self, event: Event) -> Block | None:
        if not event.parts:
            return None
        part = event.parts[0]
        size = part.header.size
        if size > self._limit:
            raise Refused(f"share has {size} bytes, the limit is {self._limit} (share_bytes)")
        if len(event.parts) > 1 or part.loan is None:
            raise ShapeMismatch("share has more than one part with records, one of key 0 is due")
        form = unpack_records(part.payload).form
        if self._form is None:
            self._form = form
        if form != self._form:
            raise ShapeMismatch(f"shared samples are {form}, those of others are {self._form}")
        block, part.loan = part.loan, None
        assert isinstance(block, Block)
        return block

    def _act(self, tells: Sequence[Tell]) -> None:
        for tell in tells:
            question = tell.handle
            assert isinstance(question, Question)
            self._tell(question.peer, question.request, tell)

    # A worker that is gone misses it.
    def _tell(self, peer: Peer, request: int, tell: Tell) -> None:
        if peer.connection.closed or peer.member is None:
            return
        shared = Shared(tell.round, tell.donors, tell.gives, len(tell.gifts), tell.again)
        reply = Reply([(peer.session.send(Kind.SHARED, shared, request=request), ())])
        for key, donor in enumerate(sorted(tell.gifts)):
            block = tell.gifts[donor].lend()
            head = peer.session.tensor(request, key, len(block), codec=0, dtype=0, version=0)
            reply.frames.append((head, (block.view,)))
            reply.loans.append(block)
            peer.member.took_bytes += len(block)
            self._service.counters["shared_bytes_down"] += len(block)
        peer.queue(reply)
