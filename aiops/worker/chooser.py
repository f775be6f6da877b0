"""What a worker pushes where the positions of a round are chosen by one for all: the values there, the rest stays."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from typing import Any, TypeVar

import msgspec
from numpy.typing import NDArray

from aiops.codec.base import ChosenCodec, Codec, Positions, Residual, Vector
from aiops.errors import NotFinite
from aiops.wire.table import Table
from aiops.worker.choose import Choice, ChooseRequest
from aiops.worker.encode import INLINE_VALUES
from aiops.worker.link import Link
from aiops.worker.ticket import Snapshot

T = TypeVar("T")


class Placed(msgspec.Struct, frozen=True):
    """A push that is encoded: the arrays of each bucket, what is left behind by key, and the choice it is of.

    ``positions_bytes`` is what was sent and received to know the positions.
    """

    payload: list[Sequence[NDArray[Any]]]
    rests: dict[int, Residual | None]
    choice: Choice
    positions_bytes: int = 0


class Chooser:
    """Asks for positions, or chooses them where this worker leads the round.

    Args:
        link: The line to the server.
        codec: What is to be known of positions.
        plain: What running statistics look like on the wire.
    """

    def __init__(self, link: Link, codec: ChosenCodec, plain: Codec) -> None:
        self._link = link
        self._codec = codec
        self._plain = plain
        # Whether the server has said so with the newest answer to a push; who does not know asks.
        self._leads = False

    def told(self, snapshot: Snapshot) -> None:
        """Take note of the answer to a push."""
        self._leads = snapshot.lead

    async def encode(
        self,
        table: Table,
        update: Vector,
        rests: Mapping[int, Residual | None],
        spares: MutableMapping[int, Residual | None],
    ) -> Placed:
        """Wait for the positions of the open round, and return the values there of an update and what is left of it.

        Args:
            table: The agreed table.
            update: float32, shape (table.size,); left untouched, and lent until the push is answered.
            rests: What the last push that was taken has left behind, by key; left untouched.
            spares: Memory for what this one leaves behind, by key; it is taken out.

        Raises:
            NotFinite: Update plus residual overflows float32; nothing is sent.
            Refused: The server declines to say positions.
            TransportError: The line to the server is lost for good.
        """
        # What takes its time is done before it is known who leads: then a gather is left.
        totals = await self._apart(update, self._totals, table, update, rests, spares)
        leads, self._leads, moved = self._leads, False, 0
        while True:
            own = await self._apart(update, self._own, totals) if leads else None
            request = ChooseRequest(table, self._codec, own)
            self._link.submit(request)
            choice = await request.ticket
            moved += request.ticket.bytes
            if choice.codecs is not None:
                placed = await self._apart(update, self._take, table, update, totals, choice)
                return msgspec.structs.replace(placed, positions_bytes=moved)
            leads = True

    async def _apart(self, update: Vector, work: Callable[..., T], *args: object) -> T:
        if update.size <= INLINE_VALUES:
            return work(*args)
        return await asyncio.to_thread(work, *args)

    def _totals(
        self,
        table: Table,
        update: Vector,
        rests: Mapping[int, Residual | None],
        spares: MutableMapping[int, Residual | None],
    ) -> dict[int, Vector]:
        totals: dict[int, Vector] = {}
        for key, bucket in enumerate(table.buckets):
            if bucket.averaged:
                continue
            part = update[bucket.start : bucket.stop]
            try:
                totals[key] = self._codec.total(part, rests[key], spare=spares.pop(key, None))
            except NotFinite as error:
                raise NotFinite(f"key {key}: {error}") from None
        return totals

    def _own(self, totals: Mapping[int, Vector]) -> dict[int, Positions]:
        return {key: self._codec.choose(total) for key, total in totals.items()}

    def _take(
        self, table: Table, update: Vector, totals: Mapping[int, Vector], choice: Choice
    ) -> Placed:
        assert choice.codecs is not None
        payload: list[Sequence[NDArray[Any]]] = []
        rests: dict[int, Residual | None] = {}
        for key, bucket in enumerate(table.buckets):
            if bucket.averaged:
                part = update[bucket.start : bucket.stop]
                arrays, rests[key] = self._plain.encode(part, None)
                payload.append(arrays)
            else:
                payload.append((choice.codecs[key].take(totals[key]),))
                rests[key] = totals[key]
        return Placed(payload, rests, choice)


def make_chooser(link: Link, codec: Codec, plain: Codec) -> Chooser | None:
    """Return what a worker needs whose updates are in ``codec``; None where it sends what it likes."""
    return Chooser(link, codec, plain) if isinstance(codec, ChosenCodec) else None
