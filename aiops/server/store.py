"""What a server holds: the agreed table and the shards under it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from aiops.buffers import Block, BufferPool
from aiops.codec.base import DENSE
from aiops.errors import NotFinite, UnknownKey
from aiops.policy.base import Place
from aiops.server.peer import Reply
from aiops.server.shard import Draft, MergeJob, Part, Shard
from aiops.server.table import build_table
from aiops.transport.base import Outgoing
from aiops.types import DTYPE_IDS, Key, ShardId, TensorSpec, Version
from aiops.wire.session import Session
from aiops.wire.table import Table


class Store:
    """Parameters in shards, behind one table.

    Args:
        pool: Where blocks come from.
        shards: Number of partitions.
        bucket_bytes: Largest bucket.
        place: Which shard holds which key.

    Attributes:
        table: The agreed key table; None until the tensors are known.
        shards: The partitions; empty until there is a table.
        seeded: Whether there are parameters.
        closed: Whether they are gone again.
    """

    def __init__(self, pool: BufferPool, *, shards: int, bucket_bytes: int, place: Place) -> None:
        self.table: Table | None = None
        self.shards: list[Shard] = []
        self.seeded = False
        self.closed = False
        self._pool = pool
        self._count = shards
        self._bucket_bytes = bucket_bytes
        self._place = place

    def agree(self, specs: Sequence[TensorSpec]) -> Table:
        """Fix the table.

        Raises:
            ShapeMismatch: The tensors cannot be held.
        """
        table = build_table(
            specs, shards=self._count, bucket_bytes=self._bucket_bytes, place=self._place
        )
        self.table = table
        averaged = frozenset(Key(i) for i, bucket in enumerate(table.buckets) if bucket.averaged)
        self.shards = [
            Shard(
                ShardId(number),
                {
                    Key(key): bucket.size
                    for key, bucket in enumerate(table.buckets)
                    if bucket.shard == number
                },
                self._pool,
                averaged,
            )
            for number in range(self._count)
        ]
        return table

    def forget(self) -> None:
        """Drop a table that nobody seeded."""
        self.table, self.shards = None, []

    def load(self, values: Mapping[Key, NDArray[np.float32]]) -> None:
        """Publish the first parameters; ``values`` holds every key, float32, finite, and is copied."""
        for shard in self.shards:
            shard.load(values)
        self.seeded = True

    def require(self) -> Table:
        """Return the table.

        Raises:
            UnknownKey: There are no parameters yet, or no longer.
        """
        if self.closed:
            raise UnknownKey("the server has ended, its parameters are gone")
        if self.table is None or not self.seeded:
            raise UnknownKey("the server has no parameters yet: call init first")
        return self.table

    def model(self, session: Session, request: int, version: Version) -> Reply:
        """Return the TENSOR frames of the published snapshot, one per key, with its blocks on loan."""
        reply = Reply([])
        for shard in self.shards:
            for key in shard.keys:
                block = shard.lend(key)
                reply.frames.append(model_frame(session, request, key, block, version))
                reply.loans.append(block)
        return reply

    def vector(self) -> NDArray[np.float32]:
        """Return a copy of all parameters as one flat vector."""
        table = self.require()
        flat = np.empty(table.size, np.float32)
        for shard in self.shards:
            for key in shard.keys:
                bucket, block = table.buckets[key], shard.lend(key)
                flat[bucket.start : bucket.stop] = block.float32()
                block.release()
        return flat

    def lend(self, key: Key) -> Block:
        """Lend the published block of a key; the borrower releases it."""
        return self.shards[self.require().buckets[key].shard].lend(key)

    def begin(
        self,
        pushes: Sequence[Mapping[Key, Part]],
        weights: Sequence[float],
        gain: float,
        drafts: Mapping[Key, Draft],
    ) -> list[tuple[Shard, MergeJob]]:
        """Take the memory for a merge in every shard, and the drafts' for what they hold."""
        return [(shard, shard.begin(pushes, weights, gain, drafts)) for shard in self.shards]

    def finish(self, jobs: Sequence[tuple[Shard, MergeJob]]) -> NotFinite | None:
        """Publish a computed merge in all shards, or in none where a parameter is no longer finite."""
        for _, job in jobs:
            if job.bad is not None:
                self.discard(jobs)
                where = self.where(*job.bad)
                return NotFinite(f"merging would make {where} not finite, the update is too large")
        for shard, job in jobs:
            shard.publish(job)
        return None

    def discard(self, jobs: Sequence[tuple[Shard, MergeJob]]) -> None:
        """Give a merge up in all shards; the published snapshot stays."""
        for shard, job in jobs:
            shard.discard(job)

    def where(self, key: Key, position: int) -> str:
        """Return value ``position`` of bucket ``key`` as its tensor's name and index, for people."""
        assert self.table is not None
        flat = self.table.buckets[key].start + position
        tensor = self.table.tensor_at(flat)
        return f"tensor {tensor.name!r} (value {flat - tensor.offset} of {tensor.size})"

    def close(self) -> None:
        """Release the published snapshot."""
        self.closed = True
        for shard in self.shards:
            shard.close()


def model_frame(
    session: Session, request: int, key: Key, block: Block, version: Version
) -> Outgoing:
    """Return one bucket of the model of ``version`` as a TENSOR frame, of a block on loan until it is sent."""
    head = session.tensor(
        request,
        key,
        len(block.view),
        codec=DENSE,
        dtype=DTYPE_IDS["float32"],
        version=version,
    )
    return head, (block.view,)
