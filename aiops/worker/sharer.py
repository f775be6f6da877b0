"""A worker's part in sharing samples through the server: what it keeps and gives of a batch, and what comes for it."""

from __future__ import annotations

import msgspec
import numpy as np

from aiops.errors import LocalProtocolError, RemoteProtocolError, ShapeMismatch
from aiops.policy.stream import InjectionRule
from aiops.transport.base import Outgoing
from aiops.wire.frame import Header, Kind
from aiops.wire.message import Share, Shared
from aiops.wire.record import Records, pack_records, unpack_records
from aiops.wire.session import Event, Session
from aiops.worker.answer import as_bytes, fail
from aiops.worker.link import Link
from aiops.worker.ticket import Ticket


class Shipment(msgspec.Struct, frozen=True):
    """What one call of share came to.

    Attributes:
        round: Number of the round of sharing.
        own: How many of the samples are the worker's own, the first of its batch; the rest of that was not used.
        gave_bytes: What it gave, once, however many received it.
        took_bytes: What it received.
    """

    round: int
    own: int
    gave_bytes: int
    took_bytes: int


class ShareRequest:
    """What have donors given? And: these are mine, where this worker is one.

    Args:
        number: The round; 0 before one is known.
        given: What this worker gives; None is nothing.
    """

    def __init__(self, number: int, given: Records | None) -> None:
        self.ticket: Ticket[tuple[Shared, list[Records]]] = Ticket()
        self._round = number
        self._packed = None if given is None else pack_records(given)
        self.gave_bytes = 0 if self._packed is None else self._packed.nbytes
        self.took_bytes = 0

    def frames(self, session: Session, number: int) -> list[Outgoing]:
        """Return the SHARE frame, and a TENSOR frame where this worker gives."""
        packed = self._packed
        share = Share(self._round, parts=0 if packed is None else 1)
        frames: list[Outgoing] = [(session.send(Kind.SHARE, share, request=number), ())]
        if packed is not None:
            head = session.tensor(number, 0, packed.nbytes, codec=0, dtype=0, version=0)
            frames.append((head, (as_bytes(packed),)))
        return frames

    def land(self, header: Header) -> memoryview:
        """Return memory for a donor's records, as much as a frame may have."""
        return np.empty(header.size, np.uint8).data

    def answered(self, session: Session, event: Event) -> list[Outgoing] | None:
        """Resolve with what came."""
        if not isinstance(event.body, Shared):
            fail(self.ticket, event)
            return None
        try:
            gifts = [unpack_records(part.payload) for part in event.parts]
        except ShapeMismatch as error:
            wrong = RemoteProtocolError(f"what another worker gave: {error}")
            self.ticket.fail(wrong)
            raise wrong from None
        self.took_bytes = sum([part.header.size for part in event.parts])
        self.ticket.bytes = self.gave_bytes + self.took_bytes
        self.ticket.resolve((event.body, gifts))
        return None


class Sharer:
    """Shares one batch after the other.

    All that a worker has to know of the others is which round is open, how many donors it has, and whether it is one of
    them; it hears so with the answer of the round before.

    Args:
        link: The line to the server.
        rule: The server's.

    Attributes:
        last: What the last call came to; None before the first.
    """

    def __init__(self, link: Link, rule: InjectionRule) -> None:
        self.last: Shipment | None = None
        self._link = link
        self._rule = rule
        self._told = Shared(0, 0, gives=False)
        self._busy = False

    async def share(self, batch: Records, worker: int) -> Records:
        """Return the first samples of a batch and what others gave; see :meth:`aiops.worker.client.Client.share`."""
        if self._busy:
            raise LocalProtocolError("share is under way already, await it first")
        self._busy = True
        try:
            while True:
                told, request, own = self._told, *self._part(batch, worker)
                self._link.submit(request)
                self._told, gifts = await request.ticket
                # Who has missed rounds, or knows of none yet, hears of the open one and shares in that.
                if not self._told.again:
                    break
            mixed = own.join(gifts)
        finally:
            self._busy = False
        self.last = Shipment(told.round, len(own), request.gave_bytes, request.took_bytes)
        return mixed

    # What there is to say in the round that is open as far as this worker knows, and what it keeps.
    def _part(self, batch: Records, worker: int) -> tuple[ShareRequest, Records]:
        told = self._told
        if not told.round:
            return ShareRequest(0, None), batch
        part = self._rule.part(told.round, len(batch), worker, donors=told.donors, gives=told.gives)
        own = batch.first(part.own)
        return ShareRequest(told.round, own.take(part.picks) if part.picks else None), own
