"""Pushes one after the other: the residual of the next one depends on whether this one was taken."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np
from numpy.typing import NDArray

from aiops.codec.base import Codec, Residual
from aiops.errors import Busy, ConnectionLost, LocalProtocolError, NotFinite, ShapeMismatch
from aiops.wire.message import Push
from aiops.wire.table import Table
from aiops.worker.bucket import check_finite, check_out, check_vector
from aiops.worker.link import Link
from aiops.worker.request import PushRequest
from aiops.worker.ticket import Snapshot, Ticket

# Pushes that may wait behind the one under way; more means that the caller does not await its tickets.
MAX_WAITING = 16

# Encoding so many values takes well under a millisecond and stays on the loop; more goes to a thread.
INLINE_VALUES = 256 * 1024


@dataclass(frozen=True, slots=True, eq=False)
class _Waiting:
    table: Table
    message: Push
    update: NDArray[np.float32]
    out: NDArray[np.float32] | None
    ticket: Ticket[Snapshot]


@dataclass(frozen=True, slots=True, eq=False)
class _Encoded:
    payload: Sequence[Sequence[NDArray[np.generic]]]
    residuals: Sequence[Residual | None]


class Pusher:
    """Encodes updates, sends them in turn, and keeps what compression leaves behind.

    Args:
        link: The line to the server.
        codec: What an update looks like on the wire.
        plain: What running statistics look like there: averages cannot be sent in parts or late.
        sequences: Numbers for pushes, ascending, none used before in this life of the worker.

    Attributes:
        residuals: What compression left behind, by key; None where nothing is kept.
    """

    def __init__(self, link: Link, codec: Codec, plain: Codec, sequences: Iterator[int]) -> None:
        self.residuals: dict[int, Residual | None] = {}
        self._link = link
        self._codec = codec
        self._plain = plain
        self._sequences = sequences
        self._closed = False
        # The first one is under way.
        self._waiting: deque[_Waiting] = deque()
        self._wake = asyncio.Event()

    def agree(self, table: Table) -> None:
        """Begin with fresh residuals for the buckets of this table."""
        self.residuals = {
            key: None if bucket.averaged else self._codec.init(bucket.size)
            for key, bucket in enumerate(table.buckets)
        }

    def restore(self, residuals: Mapping[int, NDArray[np.float32]]) -> None:
        """Go on from saved residuals; they are copied.

        Raises:
            LocalProtocolError: A key or a size is not the table's.
        """
        for key, rest in residuals.items():
            own = self.residuals.get(key)
            size = "none" if own is None else own.size
            if size != rest.size:
                raise LocalProtocolError(
                    f"residual of key {key} has {rest.size} values, {size} due"
                )
        for key, rest in residuals.items():
            self.residuals[key] = np.array(rest, np.float32)

    def put(
        self,
        table: Table,
        message: Push,
        update: NDArray[np.float32],
        out: NDArray[np.float32] | None,
        *,
        checked: bool = False,
    ) -> Ticket[Snapshot]:
        """Send an update in its turn; it is on loan until the ticket is done.

        ``checked`` says that NaN and infinity are looked for elsewhere: by the codec or the server.

        Raises:
            ShapeMismatch: ``update`` or ``out`` is not laid out like the table's flat vector, or they share memory.
            NotFinite: The update holds NaN or infinity.
            LocalProtocolError: A count is negative.
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
        if min(message.base, message.n_samples, message.n_steps) < 0:
            raise LocalProtocolError(
                f"base is {message.base}, n_samples {message.n_samples} and n_steps "
                f"{message.n_steps}, each must be >= 0"
            )
        ticket: Ticket[Snapshot] = Ticket()
        if self._closed:
            ticket.fail(ConnectionLost("the worker has left"))
            return ticket
        if len(self._waiting) > MAX_WAITING:
            raise Busy(
                f"{MAX_WAITING} pushes wait to be sent, that is the limit: await their tickets"
            )
        self._waiting.append(_Waiting(table, message, update, out, ticket))
        self._wake.set()
        return ticket

    async def run(self) -> None:
        """Push in turn until cancelled."""
        while True:
            await self._wake.wait()
            while self._waiting:
                waiting = self._waiting[0]
                try:
                    await self._push(waiting)
                except Exception as error:
                    waiting.ticket.fail(error)
                self._waiting.popleft()
            self._wake.clear()

    def close(self) -> None:
        """Fail what waits, and all that comes."""
        self._closed = True
        for place, waiting in enumerate(self._waiting):
            state = "sent" if place else "answered, whether it is merged is not known"
            waiting.ticket.fail(ConnectionLost(f"the worker left before this push was {state}"))
        self._waiting.clear()

    async def _push(self, waiting: _Waiting) -> None:
        table, update = waiting.table, waiting.update
        if update.size > INLINE_VALUES:
            encoded = await asyncio.to_thread(self._encode, table, update)
        else:
            encoded = self._encode(table, update)
        message = msgspec.structs.replace(waiting.message, sequence=next(self._sequences))
        request = PushRequest(
            table, message, encoded.payload, self._codec, waiting.out, self._plain
        )
        self._link.submit(request)
        # A push that is refused raises here, and the next one starts from the old residuals.
        snapshot = await request.ticket
        self.residuals = dict(enumerate(encoded.residuals))
        waiting.ticket.version = request.ticket.version
        waiting.ticket.staleness = request.ticket.staleness
        waiting.ticket.bytes = request.ticket.bytes
        waiting.ticket.resolve(snapshot)

    def _encode(self, table: Table, update: NDArray[np.float32]) -> _Encoded:
        payload: list[Sequence[NDArray[np.generic]]] = []
        residuals: list[Residual | None] = []
        for key, bucket in enumerate(table.buckets):
            part = update[bucket.start : bucket.stop]
            try:
                codec = self._plain if bucket.averaged else self._codec
                arrays, residual = codec.encode(part, self.residuals[key])
            except NotFinite as error:
                raise NotFinite(f"key {key}: {error}") from None
            payload.append(arrays)
            residuals.append(residual)
        return _Encoded(payload, residuals)
