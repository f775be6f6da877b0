"""The positions of the open round: from the wire of the worker that chooses them to all others, and to their pushes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from aiops.codec.base import ChosenCodec, Codec, PlacedCodec
from aiops.errors import NotMember, Refused, ShapeMismatch, StalePush
from aiops.server.choice import Choices
from aiops.server.event import Action, Handle, Lead, Show
from aiops.server.folding import InThread
from aiops.server.peer import Peer, Reply
from aiops.server.threads import INLINE_BYTES
from aiops.types import Key
from aiops.wire.frame import Frame, Kind
from aiops.wire.message import Choose, Chosen
from aiops.wire.session import Event
from aiops.wire.table import Table

if TYPE_CHECKING:
    from aiops.server.admission import AdmittedPush
    from aiops.server.service import Service


class Positions(msgspec.Struct, eq=False):
    """A choice that is good: the codec of the values at its positions, and the positions as they travel, by key."""

    codecs: dict[Key, PlacedCodec]
    payloads: dict[Key, bytes]


class _Question(Handle):
    __slots__ = ("payloads", "peer", "request")

    def __init__(self, peer: Peer, request: int, payloads: Mapping[Key, bytes]) -> None:
        self.peer = peer
        self.request = request
        # What it has sent itself: it is not sent back.
        self.payloads = payloads


class Choosing:
    """The choices of one service.

    Args:
        service: Whose rounds.
        codec: Whose positions are chosen.
        in_thread: Where large choices are checked.
        act: Does what comes of a choice that was checked there.
    """

    def __init__(
        self,
        service: Service,
        codec: ChosenCodec,
        *,
        in_thread: InThread,
        act: Callable[[Sequence[Action]], None],
    ) -> None:
        self._service = service
        self._codec = codec
        self._in_thread = in_thread
        self._act = act
        self._choices = Choices(service.engine)
        # Choices so far, and the newest one.
        self._number = 0
        self._newest = Positions({}, {})
        self.leads = self._choices.leads
        self.waits = self._choices.waits
        self.follow = self._choices.follow

    def choose(self, peer: Peer, event: Event) -> Sequence[Action]:
        """Take a choice in, or a question for it; return what is to be answered now.

        Refused is who is no member, whoever asks before there are parameters, and a choice that is none.
        """
        assert isinstance(event.body, Choose)
        assert peer.member is not None
        worker = peer.member.worker
        try:
            table = self._service.store.require()
            if not self._service.engine.is_member(worker):
                raise NotMember(f"worker {worker} is not a member, its lease has ended")
        except Refused as error:
            event.release()
            peer.refuse(event.request, error)
            return []
        if not (event.body.lead and self._choices.may_choose(worker)):
            # It may be the choice that counts, sent again.
            parts = event.parts if self._choices.made else []
            sent = {Key(frame.header.key): bytes(frame.payload) for frame in parts}
            event.release()
            return self._choices.ask(worker, _Question(peer, event.request, sent))
        if sum([len(frame.payload) for frame in event.parts]) <= INLINE_BYTES:
            return self._came(peer, event.request, self._read(event, table))
        self._service.spawn(self._check(peer, event, table), "check a choice")
        return []

    def tell(self, action: Lead | Show) -> None:
        """Answer a worker; one that is gone misses it."""
        question = action.handle
        assert isinstance(question, _Question)
        peer, request = question.peer, question.request
        if peer.connection.closed:
            return
        if isinstance(action, Lead):
            peer.post(Kind.CHOSEN, Chosen(self._number, lead=True), request)
            return
        own = question.payloads == self._newest.payloads
        payloads = {} if own else self._newest.payloads
        chosen = Chosen(self._number, parts=len(payloads))
        reply = Reply([(peer.session.send(Kind.CHOSEN, chosen, request=request), ())])
        version, number = self._service.engine.version, self._codec.wire_id
        for key, payload in payloads.items():
            head = peer.session.tensor(
                request, key, len(payload), codec=number, dtype=0, version=version
            )
            reply.frames.append((head, (memoryview(payload),)))
        peer.queue(reply)

    def lost(self, peer: Peer) -> Sequence[Action]:
        """Note that a connection is over; return what is to be answered now."""
        member = peer.member
        # Its worker may be on another one already, or in another life.
        if member is None or member.peer not in (None, peer):
            return []
        if self._service.members.get(member.identity) is not member:
            return []
        return self._choices.lost(member.worker)

    def objection(self, push: AdmittedPush) -> Refused | None:
        """Return why a push is not of the open round's choice; None if it is, and its parts can be read as such."""
        choice, engine = push.message.choice, self._service.engine
        if choice is None:
            return Refused(
                f"push is of no choice, and with codec {self._codec.name} every round's positions are chosen: "
                "ask for them first"
            )
        if not (
            self._choices.made and choice == self._number and engine.may_enter(push.member.worker)
        ):
            return StalePush(max(1, engine.version - push.message.base), 0)
        push.chosen = self._newest.codecs
        return None

    def misfit(self, push: AdmittedPush) -> Refused | None:
        """Return why a checked push is not one of the open round; None if it is."""
        error = self.objection(push)
        if error is not None:
            return error
        for number, bucket in enumerate(self._service.store.require().buckets):
            part = push.parts.get(Key(number))
            if part is None or (part.codec.wire_id == self._codec.wire_id) == bucket.averaged:
                have = "is missing" if part is None else f"is in codec {part.codec.name}"
                return ShapeMismatch(
                    f"key {number} {have}, with codec {self._codec.name} a push has them all, running statistics dense "
                    "and the others at the chosen positions"
                )
        return None

    async def _check(self, peer: Peer, event: Event, table: Table) -> None:
        came: list[Positions | Refused] = []
        await self._in_thread(0, lambda: came.append(self._read(event, table)))
        self._act(self._came(peer, event.request, came[0]))

    # A choice was checked, and is none where it is an error. Its worker may have left meanwhile, or be too late.
    def _came(self, peer: Peer, request: int, came: Positions | Refused) -> Sequence[Action]:
        member, service = peer.member, self._service
        assert member is not None
        if service.members.get(member.identity) is not member:
            gone = f"worker {member.worker} is not a member, its lease has ended"
            peer.refuse(request, NotMember(gone))
            return []
        if isinstance(came, Refused):
            service.counters[f"refused_{type(came).__name__}"] += 1
            peer.refuse(request, came)
            return self._choices.declined(member.worker)
        question = _Question(peer, request, came.payloads)
        if not self._choices.may_choose(member.worker):
            return self._choices.ask(member.worker, question)
        self._number += 1
        self._newest = came
        service.counters["choices"] += 1
        return self._choices.choose(member.worker, question)

    # The choice that a message holds, or why it is none; the message's memory is given back.
    def _read(self, event: Event, table: Table) -> Positions | Refused:
        made = Positions({}, {})
        try:
            for frame in event.parts:
                key = Key(frame.header.key)
                made.codecs[key] = self._read_part(frame, table)
                made.payloads[key] = bytes(frame.payload)
            due = [key for key, bucket in enumerate(table.buckets) if not bucket.averaged]
            if sorted(made.codecs) != due:
                return ShapeMismatch(
                    f"choice has positions of {len(made.codecs)} keys, those of all {len(due)} that accumulate are due"
                )
        except Refused as error:
            return error
        finally:
            event.release()
        return made

    def _read_part(self, frame: Frame, table: Table) -> PlacedCodec:
        header = frame.header
        if header.key >= len(table.buckets) or table.buckets[header.key].averaged:
            raise ShapeMismatch(f"choice has positions of key {header.key}, which has none")
        if header.codec != self._codec.wire_id or header.dtype:
            raise ShapeMismatch(
                f"choice's key {header.key} has codec {header.codec} and dtype {header.dtype}, "
                f"positions of {self._codec.name} have codec {self._codec.wire_id} and dtype 0"
            )
        n = table.buckets[header.key].size
        if header.size != len(frame.payload):
            # The reader dropped it: no positions of this bucket take so much.
            raise ShapeMismatch(f"choice's key {header.key} came with {header.size} bytes")
        try:
            return self._codec.at(self._codec.read(frame.payload, n), n)
        except ShapeMismatch as error:
            raise ShapeMismatch(f"choice's key {header.key}: {error}") from None


def make_choosing(
    service: Service,
    codec: Codec,
    *,
    in_thread: InThread,
    act: Callable[[Sequence[Action]], None],
) -> Choosing | None:
    """Return what a service needs whose updates are in ``codec``; None where nobody chooses what is sent."""
    if not isinstance(codec, ChosenCodec):
        return None
    return Choosing(service, codec, in_thread=in_thread, act=act)
