"""Lays the agreed key table out: tensors into one flat vector, the vector into buckets, buckets onto shards."""

from __future__ import annotations

import math
from collections.abc import Sequence

from aiops.errors import ShapeMismatch
from aiops.policy.base import Place
from aiops.types import TENSOR_DTYPES, Key, TensorSpec
from aiops.wire.table import BucketEntry, Table, TensorEntry

# Buckets start on a cache line of float32 values, so that no two shards ever share one.
ALIGN_VALUES = 16

# A worker names the sizes, so they are bounded before a table is laid out; two messages of so many parts may be half
# sent on a connection. With the usual buckets of 64 MiB it is 8 TiB.
MAX_BUCKETS = 1 << 17


def build_table(
    specs: Sequence[TensorSpec],
    *,
    shards: int,
    bucket_bytes: int,
    place: Place,
    fragments: int = 0,
) -> Table:
    """Return the table for these tensors.

    The flat vector holds them in the order given, averaged ones last. It is cut into equal buckets of at most
    ``bucket_bytes`` (at least one per shard), across tensors where need be, so that shards carry the same number of
    bytes whatever the model looks like; averaged tensors have buckets of their own. Where the model goes in fragments,
    each has as many buckets.

    Raises:
        ShapeMismatch: A name occurs twice, a dtype is not a float that the wire knows, an averaged tensor stands
            before another one, or the tensors are too large, or too small for the fragments.
    """
    tensors, accumulated = _entries(specs)
    offset = tensors[-1].offset + tensors[-1].size if tensors else 0
    values = bucket_bytes // 4
    cuts = _cuts(accumulated, shards=shards, bucket_values=values, fragments=fragments)
    cuts += [
        (accumulated + start, accumulated + stop)
        for start, stop in _cuts(offset - accumulated, shards=1, bucket_values=values)
    ]
    sizes = {Key(i): 4 * (stop - start) for i, (start, stop) in enumerate(cuts)}
    homes = place(sizes, shards)
    buckets = (
        BucketEntry(start, stop, homes[Key(i)], start >= accumulated)
        for i, (start, stop) in enumerate(cuts)
    )
    return Table(tuple(tensors), tuple(buckets))


# Where each tensor lies, and how many leading values are accumulated.
def _entries(specs: Sequence[TensorSpec]) -> tuple[list[TensorEntry], int]:
    tensors: list[TensorEntry] = []
    offset, accumulated, seen = 0, 0, set()
    for spec in specs:
        if spec.name in seen:
            raise ShapeMismatch(f"tensor {spec.name!r} is named twice")
        if spec.dtype not in TENSOR_DTYPES:
            known = ", ".join(TENSOR_DTYPES)
            raise ShapeMismatch(
                f"tensor {spec.name!r} is {spec.dtype}, a parameter server averages {known}"
            )
        if any(extent < 0 for extent in spec.shape):
            raise ShapeMismatch(f"tensor {spec.name!r} has shape {spec.shape}, extents are >= 0")
        if tensors and tensors[-1].averaged and not spec.averaged:
            raise ShapeMismatch(f"tensor {spec.name!r} stands behind averaged ones, they come last")
        seen.add(spec.name)
        size = math.prod(spec.shape)
        tensors.append(
            TensorEntry(spec.name, tuple(spec.shape), spec.dtype, offset, size, spec.averaged)
        )
        offset += size
        accumulated += 0 if spec.averaged else size
    return tensors, accumulated


def check_same(table: Table, specs: Sequence[TensorSpec]) -> None:
    """Check that a worker trains the tensors that were agreed.

    Raises:
        ShapeMismatch: It does not; the message names the first tensor that differs.
    """
    agreed = table.specs()
    for ours, theirs in zip(agreed, specs, strict=False):
        if ours.name != theirs.name:
            raise ShapeMismatch(f"tensor {theirs.name!r} stands where {ours.name!r} was agreed")
        if tuple(ours.shape) != tuple(theirs.shape):
            raise ShapeMismatch(
                f"tensor {ours.name!r} has shape {tuple(theirs.shape)}, {tuple(ours.shape)} was agreed"
            )
        if ours.dtype != theirs.dtype:
            raise ShapeMismatch(f"tensor {ours.name!r} is {theirs.dtype}, {ours.dtype} was agreed")
        if ours.averaged != theirs.averaged:
            raise ShapeMismatch(
                f"tensor {ours.name!r} has averaged={theirs.averaged}, {ours.averaged} was agreed"
            )
    if len(agreed) != len(specs):
        raise ShapeMismatch(f"worker has {len(specs)} tensors, {len(agreed)} were agreed")


def _cuts(
    size: int, *, shards: int, bucket_values: int, fragments: int = 0
) -> list[tuple[int, int]]:
    if size == 0 and not fragments:
        return []
    count = max(shards, -(-size // bucket_values))
    if fragments:
        count = -(-count // fragments) * fragments
    if count > MAX_BUCKETS:
        raise ShapeMismatch(
            f"{size} values make {count} buckets of {4 * bucket_values} bytes, the limit is {MAX_BUCKETS}"
        )
    width = max(1, -(-size // count))
    width = min(-(-width // ALIGN_VALUES) * ALIGN_VALUES, max(bucket_values, 1))
    cuts = [(start, min(start + width, size)) for start in range(0, size, width)]
    if len(cuts) < fragments:
        raise ShapeMismatch(
            f"{size} values make {len(cuts)} buckets of {width}, fewer than the {fragments} fragments that this "
            "server's rounds take: use fewer, or a smaller bucket_bytes"
        )
    return cuts
