"""One fragment of the model: a run of the agreed table's buckets, pushed and answered by itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
import numpy as np
from numpy.typing import NDArray

from aiops.codec.base import Codec
from aiops.errors import RemoteProtocolError
from aiops.wire.frame import Header
from aiops.wire.message import Push
from aiops.wire.table import Table
from aiops.worker.answer import land_in
from aiops.worker.request import PushRequest
from aiops.worker.ticket import Snapshot, Ticket


@dataclass(frozen=True, slots=True)
class Fragment:
    """Where a fragment lies.

    Attributes:
        number: Which one, from 0.
        keys: Its buckets' keys.
        table: A table of its buckets alone, which lies at the start of a vector of its own.
        place: Its values in the whole flat vector.
    """

    number: int
    keys: range
    table: Table
    place: slice


def cut(table: Table, count: int) -> tuple[Fragment, ...]:
    """Return the fragments of a table, ``count`` of them."""
    return tuple(_fragment(table, number, count) for number in range(count))


def _fragment(table: Table, number: int, count: int) -> Fragment:
    keys = table.fragment(number, count)
    buckets = table.buckets[keys.start : keys.stop]
    start, stop = buckets[0].start, buckets[-1].stop
    replace = msgspec.structs.replace
    own = Table(
        tuple(
            replace(entry, offset=entry.offset - start)
            for entry in table.tensors
            if entry.offset < stop and entry.offset + entry.size > start
        ),
        tuple(replace(b, start=b.start - start, stop=b.stop - start) for b in buckets),
    )
    return Fragment(number, keys, own, slice(start, stop))


class FragmentRequest(PushRequest):
    """Merge this update of a fragment, and give me the fragment if ``want``.

    It is a push of the fragment's own table, whose keys have other numbers on the wire.

    Args:
        fragment: Which one.
        message: What the push says of itself.
        payload: The encoded buckets of the fragment in key order.
        codec: How they are encoded.
        out: Where the fragment goes, float32, shape (values of the fragment,).
        plain: How averaged buckets are encoded.
        ticket: Whom to tell.
    """

    def __init__(
        self,
        fragment: Fragment,
        message: Push,
        payload: Sequence[Sequence[NDArray[np.generic]]],
        codec: Codec,
        out: NDArray[np.float32] | None,
        plain: Codec,
        *,
        ticket: Ticket[Snapshot],
    ) -> None:
        super().__init__(fragment.table, message, payload, codec, out, plain, ticket=ticket)
        self._keys, self._offset = fragment.keys, fragment.keys.start

    def land(self, header: Header) -> memoryview:
        """Return the bucket's slice of the fragment's vector."""
        if header.key not in self._keys:
            raise RemoteProtocolError(
                f"model has key {header.key}, the fragment has {self._keys.start} to "
                f"{self._keys.stop - 1}"
            )
        own = msgspec.structs.replace(header, key=header.key - self._keys.start)
        return land_in(self._table, self._flat, own)
