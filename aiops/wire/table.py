"""The agreed key table: which tensor lies where in the flat float32 vector, and which bucket holds it.

The server lays it out once, from the seeding worker's tensors; every worker gets it in the answer to INIT. Offsets and
sizes count float32 values.
"""

from __future__ import annotations

import bisect

import msgspec

from aiops.types import TensorSpec


class TensorEntry(msgspec.Struct, array_like=True, frozen=True):
    """One tensor's place: ``size`` values from ``offset`` in the flat vector."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    offset: int
    size: int
    averaged: bool = False


class BucketEntry(msgspec.Struct, array_like=True, frozen=True):
    """One key's place: values ``start`` to ``stop`` of the flat vector, held by ``shard``.

    ``averaged`` keys hold running statistics: they travel as plain float32 and merge to a mean of values.
    """

    start: int
    stop: int
    shard: int
    averaged: bool = False

    @property
    def size(self) -> int:
        """Number of float32 values."""
        return self.stop - self.start


class Table(msgspec.Struct, array_like=True, frozen=True):
    """The whole table; a bucket's key is its position in ``buckets``."""

    tensors: tuple[TensorEntry, ...]
    buckets: tuple[BucketEntry, ...]

    @property
    def size(self) -> int:
        """Length of the flat vector, in float32 values."""
        return self.buckets[-1].stop if self.buckets else 0

    @property
    def accumulated(self) -> int:
        """Leading values of the flat vector whose changes are accumulated; the rest are averaged."""
        return next((bucket.start for bucket in self.buckets if bucket.averaged), self.size)

    def fragment(self, number: int, count: int) -> range:
        """Return the keys of fragment ``number`` of ``count``; averaged ones are in the last."""
        n = bisect.bisect_left(self.buckets, True, key=lambda bucket: bucket.averaged)
        stop = len(self.buckets) if number == count - 1 else (number + 1) * n // count
        return range(number * n // count, stop)

    def tensor_at(self, position: int) -> TensorEntry:
        """Return the tensor that holds value ``position`` of the flat vector."""
        # Empty tensors share their offset with the next one, which lies to their right.
        index = bisect.bisect_right(self.tensors, position, key=lambda entry: entry.offset) - 1
        return self.tensors[index]

    def specs(self) -> tuple[TensorSpec, ...]:
        """Return what the tensors are, without where they lie."""
        return tuple(
            TensorSpec(entry.name, entry.shape, entry.dtype, entry.averaged)
            for entry in self.tensors
        )
