"""The positions of a round, where one worker chooses them for all: the question on the wire, or the choice."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import numpy as np

from aiops.codec.base import ChosenCodec, PlacedCodec, Positions
from aiops.errors import RemoteProtocolError, ShapeMismatch
from aiops.transport.base import Outgoing
from aiops.wire.frame import Frame, Header, Kind
from aiops.wire.message import Choose, Chosen
from aiops.wire.session import Event, Session
from aiops.wire.table import Table
from aiops.worker.answer import as_bytes, fail
from aiops.worker.ticket import Ticket


class Choice(msgspec.Struct, frozen=True, eq=False):
    """What a round's pushes are made of.

    Attributes:
        number: Its number, which the push says.
        codecs: The codec of the values at its positions, by key; None where this worker is to choose them.
    """

    number: int
    codecs: Mapping[int, PlacedCodec] | None


class ChooseRequest:
    """Which are the positions of my round? Or: these are, if I lead it.

    Args:
        table: The agreed table.
        codec: What is to be known of positions.
        own: What this worker chooses, by key, where it was told to; None asks.
    """

    def __init__(
        self, table: Table, codec: ChosenCodec, own: Mapping[int, Positions] | None
    ) -> None:
        self.ticket: Ticket[Choice] = Ticket()
        self._table = table
        self._codec = codec
        self._own = own
        self._payloads = {
            key: codec.write(index, table.buckets[key].size) for key, index in (own or {}).items()
        }
        self.ticket.bytes = sum([code.nbytes for code in self._payloads.values()])

    def frames(self, session: Session, number: int) -> list[Outgoing]:
        """Return the CHOOSE frame, and one TENSOR frame per key where this worker chooses."""
        choose = Choose(lead=self._own is not None, parts=len(self._payloads))
        frames: list[Outgoing] = [(session.send(Kind.CHOOSE, choose, request=number), ())]
        for key, code in self._payloads.items():
            head = session.tensor(
                number, key, code.nbytes, codec=self._codec.wire_id, dtype=0, version=0
            )
            frames.append((head, (as_bytes(code),)))
        return frames

    def land(self, header: Header) -> memoryview:
        """Return memory for the positions of a bucket.

        Raises:
            RemoteProtocolError: It is none that has any, or they are not so many.
        """
        buckets = self._table.buckets
        if header.key >= len(buckets) or buckets[header.key].averaged:
            raise RemoteProtocolError(f"choice has positions of key {header.key}, which has none")
        due = self._codec.positions_bytes(buckets[header.key].size)
        if header.size != due or header.codec != self._codec.wire_id:
            raise RemoteProtocolError(
                f"choice's key {header.key} has {header.size} bytes in codec {header.codec}, "
                f"{due} in codec {self._codec.wire_id} are due"
            )
        return np.empty(header.size, np.uint8).data

    def answered(self, session: Session, event: Event) -> list[Outgoing] | None:
        """Resolve with the choice."""
        if not isinstance(event.body, Chosen):
            fail(self.ticket, event)
            return None
        try:
            codecs = None if event.body.lead else self._read(event)
        except RemoteProtocolError as error:
            self.ticket.fail(error)
            raise
        self.ticket.bytes += sum([part.header.size for part in event.parts])
        self.ticket.resolve(Choice(event.body.number, codecs))
        return None

    # No part says that the choice is this worker's own.
    def _read(self, event: Event) -> Mapping[int, PlacedCodec]:
        buckets = self._table.buckets
        if not event.parts and self._own is not None:
            index = self._own
        else:
            index = {part.header.key: self._positions(part) for part in event.parts}
        due = [key for key, bucket in enumerate(buckets) if not bucket.averaged]
        if sorted(index) != due:
            raise RemoteProtocolError(
                f"choice has positions of {len(index)} keys, those of all {len(due)} that accumulate are due"
            )
        return {key: self._codec.at(own, buckets[key].size) for key, own in index.items()}

    def _positions(self, part: Frame) -> Positions:
        key = part.header.key
        try:
            return self._codec.read(part.payload, self._table.buckets[key].size)
        except ShapeMismatch as error:
            raise RemoteProtocolError(f"choice's key {key}: {error}") from None
