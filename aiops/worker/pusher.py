"""Pushes one after the other: the residual of the next one depends on whether this one was taken."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias

import msgspec
import numpy as np
from numpy.typing import NDArray

from aiops.codec.base import DENSE, Codec, Residual
from aiops.errors import Busy, ConnectionLost, LocalProtocolError, NotFinite, ShapeMismatch
from aiops.wire.message import IN_ORDER, Push
from aiops.wire.table import Table
from aiops.worker.bucket import check_finite, check_out, check_vector
from aiops.worker.choose import Choice
from aiops.worker.chooser import make_chooser
from aiops.worker.encode import INLINE_VALUES as INLINE_VALUES
from aiops.worker.encode import with_rest
from aiops.worker.fragment import Fragment, FragmentRequest
from aiops.worker.link import Link
from aiops.worker.mirror import Mirror
from aiops.worker.request import PushRequest, first_key
from aiops.worker.ticket import Snapshot, Ticket

# Pushes that may wait behind the one under way; more means that the caller does not await its tickets.
MAX_WAITING = 16


class _Waiting(msgspec.Struct, eq=False):
    table: Table
    message: Push
    update: NDArray[np.float32]
    out: NDArray[np.float32] | None
    ticket: Ticket[Snapshot]
    fragment: Fragment | None
    codec: Codec
    residuals: dict[int, Residual | None] = {}
    choice: Choice | None = None


class _Left(msgspec.Struct, eq=False):
    rests: dict[int, Residual | None]
    shown: bool = False


# The payload of each bucket, and what is left behind by key.
_Encoded: TypeAlias = "tuple[list[Sequence[NDArray[np.generic]]], dict[int, Residual | None]]"


class Pusher:
    """Encodes updates, sends them in turn, and keeps what compression leaves behind.

    Args:
        link: The line to the server.
        codec: What an update looks like on the wire, unless its push says otherwise.
        plain: What running statistics look like there: averages cannot be sent in parts or late.
        sequences: Numbers for pushes, ascending, none used before in this life of the worker.
        mirror: The newest model received, where answers may say what has changed since.
    """

    def __init__(
        self,
        link: Link,
        codec: Codec,
        plain: Codec,
        sequences: Iterator[int],
        mirror: Mirror | None = None,
    ) -> None:
        self._left = _Left({})
        # Residuals that were replaced, or belong to a push that was refused: the next ones go to their memory. What
        # has been shown to others stays theirs.
        self._spares: dict[int, Residual | None] = {}
        self._link = link
        self._codec = codec
        self._plain = plain
        self._sequences = sequences
        self._mirror = mirror
        self._chooser = make_chooser(link, codec, plain)
        self._first = 0
        self._closed = False
        # The first one is under way.
        self._waiting: deque[_Waiting] = deque()
        self._wake = asyncio.Event()

    @property
    def residuals(self) -> dict[int, Residual | None]:
        """What compression left behind, by key; None where nothing is kept. The arrays never change."""
        # Another thread may ask while pushes are taken, any number of them between two lines of this. What was marked
        # while it was the newest is spared: whoever replaces it looks at the mark only afterwards.
        left = self._left
        left.shown = True
        while left is not self._left:
            left = self._left
            left.shown = True
        return left.rests

    def agree(self, table: Table) -> None:
        """Begin with fresh residuals for the buckets of this table."""
        greeting = self._link.greeting
        self._first = 0 if greeting.features & IN_ORDER else first_key(table, greeting.worker)
        self._spares = {}
        self._left = _Left(
            {
                key: None if bucket.averaged else self._codec.init(bucket.size)
                for key, bucket in enumerate(table.buckets)
            }
        )

    def restore(self, residuals: Mapping[int, NDArray[np.float32]]) -> None:
        """Go on from saved residuals; they are copied.

        Raises:
            LocalProtocolError: A key or a size is not the table's.
        """
        for key, rest in residuals.items():
            own = self._left.rests.get(key)
            size = "none" if own is None else own.size
            if size != rest.size:
                raise LocalProtocolError(
                    f"residual of key {key} has {rest.size} values, {size} due"
                )
        for key, rest in residuals.items():
            self._left.rests[key] = np.array(rest, np.float32)

    def put(
        self,
        table: Table,
        message: Push,
        update: NDArray[np.float32],
        out: NDArray[np.float32] | None,
        *,
        checked: bool = False,
        fragment: Fragment | None = None,
        codec: Codec | None = None,
    ) -> Ticket[Snapshot]:
        """Send an update in its turn; it is on loan until the ticket is done.

        ``checked`` says that NaN and infinity are looked for elsewhere: by the codec or the server. ``table`` is the
        ``fragment``'s own where the update is of one. What one ``codec`` leaves behind is part of the next push, also
        where that is coded by another one.

        Raises:
            ShapeMismatch: ``update`` or ``out`` is not laid out like the table's flat vector, or they share memory.
            NotFinite: The update holds NaN or infinity.
            Busy: Too many wait already.
        """
        check_vector(table, update, "update")
        if not checked:
            check_finite(table, update, "update")
        check_out(table, out)
        if out is not None and np.may_share_memory(update, out):
            raise ShapeMismatch(
                "update and out share memory, the model would land in what may have to be sent again"
            )
        ticket: Ticket[Snapshot] = Ticket()
        if self._closed:
            ticket.fail(ConnectionLost("the worker has left"))
            return ticket
        if len(self._waiting) > MAX_WAITING:
            raise Busy(
                f"{MAX_WAITING} pushes wait to be sent, that is the limit: await their tickets"
            )
        codec = codec or self._codec
        waiting = _Waiting(table, message, update, out, ticket, fragment, codec)
        if self._chooser is not None:
            # Before the next push begins.
            ticket.then(self._chooser.told)
        ticket.heard(lambda: self._answered(waiting))
        self._waiting.append(waiting)
        if len(self._waiting) == 1:
            self._begin()
        return ticket

    async def run(self) -> None:
        """Encode what takes its time in a thread, until cancelled."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            await self._encode_apart(self._waiting[0])

    def stop(self) -> None:
        """Begin no further push, and fail all that come."""
        self._closed = True

    def close(self) -> None:
        """Fail what waits, and all that comes."""
        self._closed = True
        for place, waiting in enumerate(list(self._waiting)):
            state = "sent" if place else "answered, whether it is merged is not known"
            waiting.ticket.fail(ConnectionLost(f"the worker left before this push was {state}"))
        self._waiting.clear()

    # A method of its own, so that no name of it holds on to a push while the next one is waited for: its vectors are
    # used again.
    async def _encode_apart(self, waiting: _Waiting) -> None:
        try:
            if self._chooser is None:
                self._submit(waiting, await asyncio.to_thread(self._encode, waiting))
                return
            left, spares = self._left.rests, self._spares
            placed = await self._chooser.encode(waiting.table, waiting.update, left, spares)
            waiting.choice = placed.choice
            self._submit(waiting, (placed.payload, placed.rests))
            waiting.ticket.bytes += placed.positions_bytes
        except Exception as error:
            waiting.ticket.fail(error)

    # Send the first of those that wait.
    def _begin(self) -> None:
        waiting = self._waiting[0]
        apart = waiting.update.size > INLINE_VALUES and waiting.codec.wire_id != DENSE
        if apart or self._chooser is not None:
            self._wake.set()
            return
        try:
            self._submit(waiting, self._encode(waiting))
        except Exception as error:
            waiting.ticket.fail(error)

    def _submit(self, waiting: _Waiting, encoded: _Encoded) -> None:
        if waiting.ticket.done():
            return
        choice, number = waiting.choice, next(self._sequences)
        message = msgspec.structs.replace(
            waiting.message, sequence=number, choice=None if choice is None else choice.number
        )
        payload, waiting.residuals = encoded
        if waiting.fragment is not None:
            self._link.submit(
                FragmentRequest(
                    waiting.fragment,
                    message,
                    payload,
                    waiting.codec,
                    waiting.out,
                    self._plain,
                    ticket=waiting.ticket,
                )
            )
            return
        self._link.submit(
            PushRequest(
                waiting.table,
                message,
                payload,
                waiting.codec,
                waiting.out,
                self._plain,
                ticket=waiting.ticket,
                first=self._first,
                mirror=self._mirror,
                chosen=None if choice is None else choice.codecs,
            )
        )

    # A push that was refused leaves the old residuals to the next one, and its own are of no use.
    def _answered(self, waiting: _Waiting) -> None:
        if self._closed or self._waiting[0] is not waiting:
            return
        if waiting.ticket.exception() is None:
            # In this order, see residuals.
            old, rests = self._left, waiting.residuals
            if waiting.fragment is None:
                spares = old.rests
            else:
                spares = {key: old.rests[key] for key in rests}
                rests = {**old.rests, **rests}
            self._left = _Left(rests)
            self._spares = {} if old.shown else spares
        else:
            self._spares.update(waiting.residuals)
        self._waiting.popleft()
        if self._waiting:
            self._begin()

    def _encode(self, waiting: _Waiting) -> _Encoded:
        update, buckets = waiting.update, waiting.table.buckets
        first = 0 if waiting.fragment is None else waiting.fragment.keys.start
        payload: list[Sequence[NDArray[np.generic]]] = []
        residuals: dict[int, Residual | None] = {}
        for key, bucket in enumerate(buckets, first):
            part = update[bucket.start : bucket.stop]
            try:
                codec = self._plain if bucket.averaged else waiting.codec
                # A spare is taken out: this may go on in a thread after its push was cancelled.
                spare = self._spares.pop(key, None)
                part, rest = with_rest(codec, part, self._left.rests[key])
                arrays, residuals[key] = codec.encode(part, rest, spare=spare)
            except NotFinite as error:
                raise NotFinite(f"key {key}: {error}") from None
            payload.append(arrays)
        return payload, residuals
