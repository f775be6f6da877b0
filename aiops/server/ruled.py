"""A partition whose rounds are more than a weighted sum: aggregated by a rule, or stepped along by an optimizer.

Bucket by bucket and piece by piece: what is merged stays in the cache, and what is needed beside the parameters and the
optimizer's state is a few pieces, and a bucket for every push that must be decoded. A merge works on copies of all
state, which count with its parameters or not at all.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from aiops.buffers import Block, BufferPool
from aiops.codec.base import DENSE
from aiops.kernels import merge_checked
from aiops.merge.base import Rules, Selection, Vector
from aiops.server.draft import CHUNK_BYTES, BucketDraft
from aiops.server.shard import MergeJob, Part, Shard
from aiops.types import Key, ShardId


class RuledJob(MergeJob, kw_only=True):
    """A merge by rules. :meth:`measure` and :meth:`run` may happen in another thread.

    Attributes:
        distances: What this shard contributes to the distances between the pushes; set by :meth:`measure`.
        states: The optimizer's next state by key.
    """

    distances: NDArray[np.float64]
    states: dict[Key, list[Block]]
    _rules: Rules
    _old_states: Mapping[Key, Sequence[Block]]
    _decoded: list[Block]

    def measure(self) -> None:
        """Compare this shard's part of the pushes with each other."""
        rule = self._rules.aggregation
        assert isinstance(rule, Selection)
        n = len(self._pushes)
        for key, block in self.fresh.items():
            size = len(block) // 4
            here = [i for i, push in enumerate(self._pushes) if key in push]
            if not here:
                continue
            vectors = dict(zip(here, self._vectors(key, here), strict=True))
            for piece in _pieces(size):
                nothing = np.zeros(min(piece.stop, size) - piece.start, np.float32)
                self.distances += rule.compare(
                    [vectors[i][piece] if i in vectors else nothing for i in range(n)]
                )

    def weigh(self, weights: Sequence[float]) -> None:
        """Merge with these weights instead."""
        self._weights = weights

    def run(self) -> None:
        """Compute the next parameters and the optimizer's next state."""
        if self.error is None:
            with np.errstate(all="ignore"):
                super().run()

    def _merge(self, key: Key, values: Vector) -> int:
        shares, gain = self._shares(key)
        chosen = [i for i, push in enumerate(self._pushes) if key in push and shares[i]]
        old = self._old[key].float32()
        if not chosen:
            # Nothing of it came, so nothing of it moves, whatever velocity it has.
            np.copyto(values, old)
            if key in self.states:
                self._carry(key, slice(None))
            return -1
        sources, weights = self._sources(key, chosen, [shares[i] for i in chosen])
        rule = self._rules.aggregation
        update = np.empty(min(CHUNK_BYTES // 4, values.size), np.float32)
        for piece in _pieces(values.size):
            out = values[piece]
            acc = update[: out.size]
            rule.combine([source[piece] for source in sources], weights, acc)
            if gain != 1.0:
                acc *= np.float32(gain)
            position = self._step(key, piece, old[piece], acc, out)
            if position >= 0:
                return int(piece.start) + position
        return -1

    def _step(self, key: Key, piece: slice, old: Vector, update: Vector, out: Vector) -> int:
        if key in self._averaged:
            return merge_checked(old, [update], [1.0], out=out)
        state = self._carry(key, piece)
        return self._rules.optimizer.step(old, update, state, out)

    # The piece of the optimizer's state that goes with these values, as it stands before the step.
    def _carry(self, key: Key, piece: slice) -> list[Vector]:
        fresh = [block.float32()[piece] for block in self.states[key]]
        old = self._old_states.get(key)
        if old is None:
            for vector, value in zip(fresh, self._rules.optimizer.initial, strict=True):
                vector.fill(value)
        else:
            for vector, block in zip(fresh, old, strict=True):
                np.copyto(vector, block.float32()[piece])
        return fresh

    # What is combined, and at which weights: sparse pushes of a sum are added up first, where they lie.
    def _sources(
        self, key: Key, chosen: Sequence[int], weights: Sequence[float]
    ) -> tuple[list[Vector], Sequence[float]]:
        if self._scratch is None:
            return self._vectors(key, chosen), weights
        acc = self._scratch.float32()[: len(self.fresh[key]) // 4]
        acc.fill(0.0)
        for i, weight in zip(chosen, weights, strict=True):
            part = self._pushes[i][key]
            part.codec.add_to(acc, part.payload, weight)
        return [acc], [1.0]

    # The pushes' parts as vectors: those that are plain where they lie, the others decoded one beside the other.
    def _vectors(self, key: Key, which: Sequence[int]) -> list[Vector]:
        vectors: list[Vector] = []
        spare = iter(self._decoded)
        for i in which:
            part = self._pushes[i][key]
            if part.codec.wire_id == DENSE:
                vectors.append(np.frombuffer(part.payload, np.float32))
                continue
            vector = next(spare).float32()[: len(self.fresh[key]) // 4]
            vector.fill(0.0)
            part.codec.add_to(vector, part.payload, 1.0)
            vectors.append(vector)
        return vectors


class RuledShard(Shard):
    """A partition that is merged by rules, and the state of its optimizer.

    Args:
        shard: Its number.
        sizes: Number of float32 values of each of its keys.
        pool: Where blocks come from.
        averaged: Those of its keys that hold running statistics.
        rules: How its rounds become parameters.
    """

    __slots__ = ("_rules", "_states")

    def __init__(
        self,
        shard: ShardId,
        sizes: Mapping[Key, int],
        pool: BufferPool,
        averaged: frozenset[Key] = frozenset(),
        *,
        rules: Rules,
    ) -> None:
        super().__init__(shard, sizes, pool, averaged)
        self._rules = rules
        # By key, from the first round on that brings it.
        self._states: dict[Key, list[Block]] = {}

    def begin(
        self,
        pushes: Sequence[Mapping[Key, Part]],
        weights: Sequence[float],
        gain: float,
        drafts: Mapping[Key, BucketDraft],
    ) -> RuledJob:
        """Take the memory for a merge of ``pushes`` and for the state after it; there are no drafts."""
        assert not drafts
        rule, largest = self._rules.aggregation, 4 * max(self._sizes.values(), default=0)
        coded = max(
            (
                sum(key in push and push[key].codec.wire_id != DENSE for push in pushes)
                for key in self._sizes
            ),
            default=0,
        )
        n_decoded = coded if isinstance(rule, Selection) or not rule.linear else 0
        return RuledJob(
            fresh={key: self._pool.take(4 * size) for key, size in self._sizes.items()},
            todo_bytes=4 * sum(self._sizes.values()),
            bad=None,
            distances=np.zeros((len(pushes), len(pushes))),
            states={
                key: [self._pool.take(4 * size) for _ in self._rules.optimizer.initial]
                for key, size in self._sizes.items()
                if key not in self._averaged and any(key in push for push in pushes)
            },
            _old=self._published,
            _pushes=pushes,
            _weights=weights,
            _gain=gain,
            _drafts=drafts,
            _scratch=self._pool.take(largest) if coded and rule.linear else None,
            _averaged=self._averaged,
            _rules=self._rules,
            _old_states=self._states,
            _decoded=[self._pool.take(largest) for _ in range(n_decoded)],
        )

    def publish(self, job: MergeJob) -> None:
        """Swap a finished merge in, with the state that goes with it."""
        assert isinstance(job, RuledJob)
        super().publish(job)
        _release(job._decoded)
        for key, blocks in job.states.items():
            _release(self._states.pop(key, []))
            self._states[key] = blocks

    def discard(self, job: MergeJob) -> None:
        """Give a merge up; the published snapshot and all state stay."""
        assert isinstance(job, RuledJob)
        super().discard(job)
        _release(job._decoded)
        for blocks in job.states.values():
            _release(blocks)

    def close(self) -> None:
        """Release the published snapshot and the state."""
        super().close()
        for blocks in self._states.values():
            _release(blocks)
        self._states = {}


def _release(blocks: Sequence[Block]) -> None:
    for block in blocks:
        block.release()


def _pieces(size: int) -> Iterator[slice]:
    step = CHUNK_BYTES // 4
    for at in range(0, size, step):
        yield slice(at, min(at + step, size))
