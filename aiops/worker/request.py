"""Requests that outlive connections: each knows its frames, where its answer lands, and when it is done."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from aiops.codec.base import DENSE, Codec
from aiops.errors import RemoteProtocolError
from aiops.transport.base import Outgoing
from aiops.types import DTYPE_IDS, TensorSpec, Version
from aiops.wire.frame import Header, Kind
from aiops.wire.message import Ack, Agreed, Init, Model, Pull, Push, Report, Seed, Status
from aiops.wire.session import Event, Session
from aiops.wire.table import Table
from aiops.worker.answer import as_bytes, fail, land_in, resolve_model
from aiops.worker.mirror import Mirror
from aiops.worker.ticket import Snapshot, Ticket

FLOAT32 = DTYPE_IDS["float32"]


class Request(Protocol):
    """One request of a worker, sent again on every new connection until it is answered."""

    @property
    def ticket(self) -> Ticket[Any]:
        """Whom to tell."""

    def frames(self, session: Session, number: int) -> list[Outgoing]:
        """Return the frames that make the request under this number."""

    def land(self, header: Header) -> memoryview:
        """Return the memory of an answer's TENSOR frame.

        Raises:
            RemoteProtocolError: No such tensor can answer this.
        """

    def answered(self, session: Session, event: Event) -> list[Outgoing] | None:
        """Take an answer: None when the request is done, else what is to be sent on (maybe nothing)."""


class PullRequest:
    """Give me the newest model."""

    def __init__(
        self,
        table: Table,
        out: NDArray[np.float32] | None,
        *,
        ticket: Ticket[Snapshot] | None = None,
        mirror: Mirror | None = None,
    ) -> None:
        self.ticket: Ticket[Snapshot] = ticket or Ticket()
        self._table = table
        self._mirror = mirror
        self._flat = np.empty(table.size, np.float32) if out is None else out

    def frames(self, session: Session, number: int) -> list[Outgoing]:
        """Return the PULL frame."""
        return [(session.send(Kind.PULL, Pull(), request=number), ())]

    def land(self, header: Header) -> memoryview:
        """Return the bucket's slice of the vector."""
        return land_in(self._table, self._flat, header)

    def answered(self, session: Session, event: Event) -> list[Outgoing] | None:
        """Resolve with the model."""
        resolve_model(self.ticket, self._table, self._flat, event, self._mirror)
        return None


class PushRequest(PullRequest):
    """Merge this update, and give me the model if ``want``.

    Args:
        table: The agreed table.
        message: What the push says of itself.
        payload: The encoded buckets in key order.
        codec: How they are encoded.
        out: Where the model goes, float32, shape (table.size,); None takes fresh memory.
        plain: How averaged buckets are encoded; as all others unless given.
        ticket: Whom to tell; a ticket of its own unless given.
        first: The key that goes first, see :func:`first_key`.
        mirror: The newest model received, where answers may say what has changed since.
        chosen: How buckets are encoded whose positions were chosen for the round, by key; an answer that says what has
            changed speaks of the same ones.
    """

    def __init__(
        self,
        table: Table,
        message: Push,
        payload: Sequence[Sequence[NDArray[np.generic]]],
        codec: Codec,
        out: NDArray[np.float32] | None,
        plain: Codec | None = None,
        *,
        ticket: Ticket[Snapshot] | None = None,
        first: int = 0,
        mirror: Mirror | None = None,
        chosen: Mapping[int, Codec] | None = None,
    ) -> None:
        landing = out if message.want else np.empty(0, np.float32)
        super().__init__(table, landing, ticket=ticket, mirror=mirror)
        size = sum([array.nbytes for arrays in payload for array in arrays])
        self.message = msgspec.structs.replace(message, payload_bytes=size)
        self._codec, self._plain = codec, plain or codec
        self._chosen = chosen
        self._first = first
        # What a key of the table is called on the wire, less itself.
        self._offset = 0
        self._payload = payload
        self.ticket.bytes = size

    def frames(self, session: Session, number: int) -> list[Outgoing]:
        """Return the PUSH frame and one TENSOR frame per key."""
        message = self.message
        if self._mirror is not None and self._mirror.on:
            # What is here now, and not when it was first sent: a model may have come in between.
            message = msgspec.structs.replace(message, holds=self._mirror.version)
        frames: list[Outgoing] = [(session.send(Kind.PUSH, message, request=number), ())]
        n = len(self._payload)
        for place in range(n):
            key = (self._first + place) % n
            views = [as_bytes(array) for array in self._payload[key]]
            codec = self._plain if self._table.buckets[key].averaged else self._codec
            head = session.tensor(
                number,
                key + self._offset,
                sum(map(len, views)),
                codec=codec.wire_id,
                dtype=DTYPE_IDS[codec.dtype],
                version=self.message.base,
            )
            frames.append((head, views))
        return frames

    def land(self, header: Header) -> memoryview:
        """Return the bucket's slice of the vector, or memory for what has changed in it."""
        changed = None if self._mirror is None else self._mirror.land(self._table, header)
        return super().land(header) if changed is None else changed

    def answered(self, session: Session, event: Event) -> list[Outgoing] | None:
        """Resolve with the model, or with what the acknowledgement says."""
        if isinstance(event.body, Ack) and not self.message.want:
            self.ticket.version = Version(event.body.version)
            self.ticket.staleness = event.body.staleness
            self.ticket.resolve(
                Snapshot(
                    Version(event.body.version),
                    self._flat,
                    event.body.staleness,
                    lead=event.body.lead,
                )
            )
            return None
        resolve_model(self.ticket, self._table, self._flat, event, self._mirror, self._chosen)
        return None


class InitRequest:
    """Agree on the table; seed the parameters if asked, else receive them.

    Args:
        specs: The tensors; none asks for whatever the server has.
        seed: Fills a flat vector with this worker's parameters.
        mirror: The newest model received, where one is kept.
    """

    def __init__(
        self,
        specs: tuple[TensorSpec, ...],
        seed: Callable[[Table, NDArray[np.float32]], None],
        *,
        mirror: Mirror | None = None,
    ) -> None:
        self.ticket: Ticket[Snapshot] = Ticket()
        self.table: Table | None = None
        self._specs = specs
        self._seed = seed
        self._mirror = mirror
        self._flat = np.empty(0, np.float32)

    def frames(self, session: Session, number: int) -> list[Outgoing]:
        """Return the INIT frame."""
        return [(session.send(Kind.INIT, Init(self._specs), request=number), ())]

    def land(self, header: Header) -> memoryview:
        """Return the bucket's slice of the vector."""
        if self.table is None:
            raise RemoteProtocolError("the model came before its table")
        return land_in(self.table, self._flat, header)

    def answered(self, session: Session, event: Event) -> list[Outgoing] | None:
        """Send the seed when asked, or resolve with the model."""
        match event.body:
            case Agreed(table, seed):
                self.table = table
                self._flat = np.empty(table.size, np.float32)
                return self._seeds(session, event.request, table) if seed else []
            case Ack(version) if self.table is not None:
                if self._mirror is not None:
                    self._mirror.take(version, self._flat)
                self.ticket.resolve(Snapshot(Version(version), self._flat))
            case Model() if self.table is not None:
                resolve_model(self.ticket, self.table, self._flat, event, self._mirror)
            case _:
                fail(self.ticket, event)
        return None

    def _seeds(self, session: Session, number: int, table: Table) -> list[Outgoing]:
        self._seed(table, self._flat)
        seed = Seed(len(table.buckets))
        frames: list[Outgoing] = [(session.send(Kind.SEED, seed, request=number), ())]
        for key, bucket in enumerate(table.buckets):
            view = as_bytes(self._flat[bucket.start : bucket.stop])
            head = session.tensor(number, key, len(view), codec=DENSE, dtype=FLOAT32, version=0)
            frames.append((head, (view,)))
        return frames


class StatusRequest:
    """What is going on?"""

    def __init__(self) -> None:
        self.ticket: Ticket[str] = Ticket()

    def frames(self, session: Session, number: int) -> list[Outgoing]:
        """Return the STATUS frame."""
        return [(session.send(Kind.STATUS, Status(), request=number), ())]

    def land(self, header: Header) -> memoryview:
        """Refuse: a report has no tensors."""
        raise RemoteProtocolError("a report carries no tensors")

    def answered(self, session: Session, event: Event) -> list[Outgoing] | None:
        """Resolve with the report's JSON."""
        if isinstance(event.body, Report):
            self.ticket.resolve(event.body.json)
        else:
            fail(self.ticket, event)
        return None


def first_key(table: Table, worker: int) -> int:
    """Return the key whose bucket a worker sends first.

    It is the first one of the shard that has the worker's number, modulo theirs: workers that begin elsewhere keep all
    shards busy, and within a shard the same order brings the same values at about the same time.
    """
    homes = [bucket.shard for bucket in table.buckets]
    own = worker % (max(homes, default=0) + 1)
    return homes.index(own) if own in homes else 0
