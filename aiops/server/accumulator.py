"""The weighted sum of the pushes of one round, made as they come: numbers only, like a shard's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
import numpy as np

from aiops.buffers import Block, BufferPool
from aiops.codec.base import Codec
from aiops.server.shard import Part
from aiops.types import Key, ShardId
from aiops.wire.table import Table


class AddJob(msgspec.Struct):
    """Adding one push's buckets of one shard. ``run`` may happen in another thread, one at a time per shard."""

    _blocks: Sequence[Block]
    _parts: Sequence[Part]
    # Those that hold nothing yet.
    _new: Sequence[bool]
    _weight: float

    def run(self) -> None:
        """Do ``acc += weight * push``, straight from the payload."""
        for block, part, new in zip(self._blocks, self._parts, self._new, strict=True):
            acc = block.float32()
            if new:
                acc.fill(0.0)
            if self._weight:
                part.codec.add_to(acc, part.payload, self._weight)


class Accumulator:
    """The sum of one round.

    Args:
        pool: Where its blocks come from.
        table: How parameters are laid out.
        plain: What the sum looks like as a push: float32 values as they are.
    """

    def __init__(self, pool: BufferPool, table: Table, plain: Codec) -> None:
        self._pool = pool
        self._table = table
        self._plain = plain
        self._blocks: dict[Key, Block] = {}

    def add(self, parts: Mapping[Key, Part], weight: float) -> dict[ShardId, AddJob]:
        """Take the memory to add a push; return the jobs that do it, by shard.

        Args:
            parts: Its buckets, checked; lent until every job is done.
            weight: What it is multiplied by.
        """
        shards: dict[ShardId, list[Key]] = {}
        for key in parts:
            shards.setdefault(ShardId(self._table.buckets[key].shard), []).append(key)
        new = parts.keys() - self._blocks.keys()
        for key in new:
            self._blocks[key] = self._pool.take(4 * self._table.buckets[key].size)
        return {
            shard: AddJob(
                [self._blocks[key] for key in keys],
                [parts[key] for key in keys],
                [key in new for key in keys],
                weight,
            )
            for shard, keys in shards.items()
        }

    def push(self, scale: float, total: float) -> Mapping[Key, Part]:
        """Return the sum as the buckets of a single push of weight ``scale``; on loan until :meth:`release`.

        Args:
            scale: What the sum is multiplied by.
            total: The sum of the weights that its pushes have then. Running statistics are a mean of values, whose
                shares must not sum to more than 1, and are scaled here where they would: a merge of one push sees
                ``scale`` alone.
        """
        factor = max(1.0, scale) / max(1.0, total)
        for key, block in self._blocks.items():
            if factor != 1.0 and self._table.buckets[key].averaged:
                acc = block.float32()
                acc *= np.float32(factor)
        return {key: Part(self._plain, block.view) for key, block in self._blocks.items()}

    def release(self) -> None:
        """Give the memory back."""
        for block in self._blocks.values():
            block.release()
        self._blocks = {}
