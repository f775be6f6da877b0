"""What a server holds: the agreed table and the shards under it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from aiops.buffers import Block, BufferPool
from aiops.codec.base import Codec
from aiops.errors import NotFinite, Refused, UnknownKey
from aiops.merge.base import Rules, Selection
from aiops.policy.base import Place
from aiops.server.history import History
from aiops.server.ruled import RuledShard
from aiops.server.ruled_job import RuledJob
from aiops.server.shard import Draft, MergeJob, Origin, Part, Shard
from aiops.server.table import build_table
from aiops.types import Key, ShardId, TensorSpec, Version, WorkerId
from aiops.wire.table import Table

if TYPE_CHECKING:
    from aiops.server.admission import AdmittedPush

# The least that a chunk holds.
LEAST_CHUNK_BYTES = 16 * 1024


class Store:
    """Parameters in shards, behind one table.

    Args:
        pool: Where blocks come from.
        shards: Number of partitions.
        bucket_bytes: Largest bucket.
        place: Which shard holds which key.
        fragments: Fragments that the model goes in; 0 where it goes whole.
        chunks: Buckets that the model is cut into, as far as they are not too small; 0 makes them as large as may be.
        rules: How rounds become parameters; None is the weighted sum, added, and goes with ``down`` None.
        down: How what a round changes travels down; None where the values do.

    Attributes:
        table: The agreed key table; None until the tensors are known.
        shards: The partitions; empty until there is a table.
        seeded: Whether there are parameters.
        down: How what a round changes is coded, which there is besides the model once one is closed; None for none.
        changed: Whether there is such a change of the newest version.
        history: Snapshots that somebody may still push from; None where no rule looks at them.
        closed: Whether they are gone again.
    """

    def __init__(
        self,
        pool: BufferPool,
        *,
        shards: int,
        bucket_bytes: int,
        place: Place,
        fragments: int = 0,
        chunks: int = 0,
        rules: Rules | None = None,
        down: Codec | None = None,
    ) -> None:
        assert down is None or rules is not None
        self.table: Table | None = None
        self.shards: list[Shard] = []
        self.seeded = False
        self.closed = False
        self._pool = pool
        self._count = shards
        self._bucket_bytes = bucket_bytes
        self._place = place
        self._fragments = fragments
        self._rules = rules
        self.down = down
        self.changed = False
        self._chunks = chunks
        compensates = rules is not None and rules.compensation is not None
        self.history = History(self._newest) if compensates else None
        self._merging = False
        self._gone: set[WorkerId] = set()

    def agree(self, specs: Sequence[TensorSpec]) -> Table:
        """Fix the table.

        Raises:
            ShapeMismatch: The tensors cannot be held.
        """
        table = build_table(
            specs,
            shards=self._count,
            bucket_bytes=self._largest(specs),
            place=self._place,
            fragments=self._fragments,
        )
        self.table = table
        averaged = frozenset(Key(i) for i, bucket in enumerate(table.buckets) if bucket.averaged)
        self.shards = [
            self._shard(
                ShardId(number),
                {
                    Key(key): bucket.size
                    for key, bucket in enumerate(table.buckets)
                    if bucket.shard == number
                },
                averaged,
            )
            for number in range(self._count)
        ]
        return table

    def _shard(self, number: ShardId, sizes: Mapping[Key, int], averaged: frozenset[Key]) -> Shard:
        if self._rules is None:
            return Shard(number, sizes, self._pool, averaged)
        return RuledShard(number, sizes, self._pool, averaged, rules=self._rules, down=self.down)

    # Chunks that take a share of the model, but not so little that frames cost more than they save.
    def _largest(self, specs: Sequence[TensorSpec]) -> int:
        if not self._chunks:
            return self._bucket_bytes
        values = sum([math.prod(spec.shape) for spec in specs])
        return min(self._bucket_bytes, max(LEAST_CHUNK_BYTES, 4 * -(-values // self._chunks)))

    def turn_down(self, codec: Codec | None) -> None:
        """Say how what the next rounds change travels down, between two rounds; None sends values.

        Where it is said, all shards are ruled.
        """
        self.down = codec
        for shard in self.shards:
            assert isinstance(shard, RuledShard)
            shard.turn_down(codec)
        self.changed = self.changed and codec is not None

    def forget(self) -> None:
        """Drop a table that nobody seeded."""
        self.table, self.shards = None, []

    def load(self, values: Mapping[Key, NDArray[np.float32]]) -> None:
        """Publish the first parameters; ``values`` holds every key, float32, finite, and is copied."""
        for shard in self.shards:
            shard.load(values)
        self.seeded = True

    def _newest(self) -> dict[Key, Block]:
        return {key: shard.lend(key) for shard in self.shards for key in shard.keys}

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
        origins: Sequence[Origin] = (),
    ) -> list[tuple[Shard, MergeJob]]:
        """Take the memory for a merge in every shard, and the drafts' for what they hold."""
        self._merging = True
        return [
            (shard, shard.begin(pushes, weights, gain, drafts, origins)) for shard in self.shards
        ]

    def claim(self, push: AdmittedPush, *, newest: Version) -> Refused | None:
        """Keep what a push started from, where a rule looks at it, until :meth:`unclaim`; return why that cannot be."""
        base = Version(push.message.base)
        # A version that is still to come is the engine's to refuse.
        if self.history is None or base > newest:
            return None
        return self.history.begin(push, push.member.worker, base, newest=newest)

    def unclaim(self, push: AdmittedPush) -> None:
        """Let go of what a push started from."""
        if self.history is not None:
            self.history.end(push)

    def origins(self, pushes: Sequence[AdmittedPush]) -> Sequence[Origin]:
        """Return where pushes come from, whose bases are kept; nothing where no rule looks at it."""
        if self.history is None:
            return ()
        return [
            Origin(push.member.worker, self.history.snapshot(Version(push.message.base)))
            for push in pushes
        ]

    def left(self, worker: WorkerId) -> None:
        """Drop what is kept of a worker that has left, once no merge looks at it."""
        if self.history is None:
            return
        self.history.leave(worker)
        self._gone.add(worker)
        self._forget_gone()

    def _forget_gone(self) -> None:
        if self._merging or not self._gone:
            return
        for shard in self.shards:
            assert isinstance(shard, RuledShard)
            for worker in self._gone:
                shard.forget(worker)
        self._gone.clear()

    @property
    def ruled(self) -> bool:
        """Whether rounds are more than a weighted sum, which nothing can be drafted of."""
        return self._rules is not None

    @property
    def selects(self) -> bool:
        """Whether a merge first measures the pushes in all shards, for :meth:`select` to choose between them."""
        return self._rules is not None and isinstance(self._rules.aggregation, Selection)

    def measure(self, job: MergeJob) -> None:
        """Compare one shard's part of the pushes; may happen in another thread."""
        assert isinstance(job, RuledJob)
        job.measure()

    def select(self, jobs: Sequence[tuple[Shard, MergeJob]]) -> None:
        """Choose between the pushes, which all jobs have measured; a choice that cannot be made ends the merge."""
        assert self._rules is not None
        assert isinstance(self._rules.aggregation, Selection)
        ruled = [job for _, job in jobs if isinstance(job, RuledJob)]
        distances = np.sum([job.distances for job in ruled], axis=0)
        try:
            weights = self._rules.aggregation.select(distances)
        except Refused as error:
            for job in ruled:
                job.error = error
            return
        for job in ruled:
            job.weigh(weights)

    def finish(self, jobs: Sequence[tuple[Shard, MergeJob]]) -> Refused | None:
        """Publish a computed merge in all shards, or in none where one failed or a parameter is not finite."""
        for _, job in jobs:
            if job.error is not None:
                self.discard(jobs)
                return job.error
            if job.bad is not None:
                self.discard(jobs)
                where = self.where(*job.bad)
                return NotFinite(f"merging would make {where} not finite, the update is too large")
        for shard, job in jobs:
            shard.publish(job)
        self.changed = self.down is not None
        self._merging = False
        self._forget_gone()
        return None

    def discard(self, jobs: Sequence[tuple[Shard, MergeJob]]) -> None:
        """Give a merge up in all shards; the published snapshot stays."""
        for shard, job in jobs:
            shard.discard(job)
        self._merging = False
        self._forget_gone()

    def where(self, key: Key, position: int) -> str:
        """Return value ``position`` of bucket ``key`` as its tensor's name and index, for people."""
        assert self.table is not None
        flat = self.table.buckets[key].start + position
        tensor = self.table.tensor_at(flat)
        return f"tensor {tensor.name!r} (value {flat - tensor.offset} of {tensor.size})"

    def close(self) -> None:
        """Release the published snapshot."""
        self.closed = True
        if self.history is not None:
            self.history.close()
        for shard in self.shards:
            shard.close()
