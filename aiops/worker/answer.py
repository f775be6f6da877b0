"""What answers a request: where a model lands, what makes it whole, and what a refusal stands for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aiops.codec.base import DENSE, Codec
from aiops.errors import REFUSALS, AiopsError, Refused, RemoteProtocolError, StalePush
from aiops.types import Version
from aiops.wire.frame import Frame, Header
from aiops.wire.message import Model, Refuse
from aiops.wire.session import Event
from aiops.wire.table import Table
from aiops.worker.mirror import Mirror
from aiops.worker.ticket import Snapshot, Ticket


def as_bytes(array: NDArray[np.generic]) -> memoryview:
    """Return a contiguous array's memory as format 'B', without a copy."""
    if not array.size:
        return memoryview(b"")
    return array.data.cast("B")


def land_in(table: Table, flat: NDArray[np.float32], header: Header) -> memoryview:
    """Return the slice of ``flat`` that a model's TENSOR frame belongs to.

    Raises:
        RemoteProtocolError: The key or the size is not the table's.
    """
    if header.key >= len(table.buckets):
        raise RemoteProtocolError(f"model has key {header.key}, the table has {len(table.buckets)}")
    bucket = table.buckets[header.key]
    if header.size != 4 * bucket.size or header.codec != DENSE or flat.size != table.size:
        raise RemoteProtocolError(
            f"model's key {header.key} has {header.size} bytes in codec {header.codec}, "
            f"{4 * bucket.size} of dense float32 are due"
        )
    return as_bytes(flat[bucket.start : bucket.stop])


def resolve_model(
    ticket: Ticket[Snapshot],
    table: Table,
    flat: NDArray[np.float32],
    event: Event,
    mirror: Mirror | None = None,
    chosen: Mapping[int, Codec] | None = None,
) -> None:
    """Resolve with the model that has landed in ``flat``, or fail with what came instead.

    Where a ``mirror`` is kept it becomes this model, and an answer that says what has changed is added to it first,
    at positions that were ``chosen`` for the round where there are such.
    """
    body = event.body
    if not isinstance(body, Model):
        fail(ticket, event)
        return
    try:
        _complete(table, flat, body, event.parts, mirror, chosen or {})
        if body.policy is not None and mirror is not None:
            mirror.follow(body.policy.down, body.version, flat)
    except RemoteProtocolError as error:
        ticket.fail(error)
        raise
    ticket.version = Version(body.version)
    ticket.staleness = body.staleness
    whole = body.since is None
    ticket.bytes += flat.nbytes if whole else sum([part.header.size for part in event.parts])
    ticket.resolve(
        Snapshot(
            Version(body.version),
            flat,
            body.staleness,
            body.n_merged,
            body.done,
            body.min_steps,
            body.max_steps,
            body.moved_steps,
            body.policy,
            body.lead,
        )
    )


def _complete(
    table: Table,
    flat: NDArray[np.float32],
    body: Model,
    parts: Sequence[Frame],
    mirror: Mirror | None,
    chosen: Mapping[int, Codec],
) -> None:
    versions = {part.header.version for part in parts}
    if len(parts) != len(table.buckets) or versions - {body.version}:
        # One version per pull, whatever happens: a torn model must never be trained on.
        raise RemoteProtocolError(
            f"model of version {body.version} has {len(parts)} of {len(table.buckets)} keys "
            f"of versions {sorted(versions)}"
        )
    if body.since is None:
        if any(part.header.codec != DENSE for part in parts):
            raise RemoteProtocolError(f"model of version {body.version} is not in plain float32")
        if mirror is not None:
            mirror.take(body.version, flat)
    elif mirror is None or not mirror.on:
        raise RemoteProtocolError(
            f"model of version {body.version} says what has changed since version {body.since}, "
            "and no such answers were agreed"
        )
    else:
        mirror.add(table, body, parts, flat, chosen)


def fail(ticket: Ticket[Any], event: Event) -> None:
    """Fail with the refusal, or end the connection over an answer that makes no sense.

    Raises:
        RemoteProtocolError: The answer is of a kind that does not answer this.
    """
    if isinstance(event.body, Refuse):
        ticket.fail(refusal(event.body))
        return
    raise RemoteProtocolError(f"{event.kind.name} does not answer request {event.request}")


def refusal(refuse: Refuse) -> AiopsError:
    """Return the exception that a REFUSE message stands for."""
    kind = REFUSALS.get(refuse.code, Refused)
    if kind is StalePush and len(refuse.args) == 2:
        return StalePush(*refuse.args)
    error = kind.__new__(kind, refuse.message)
    return error
