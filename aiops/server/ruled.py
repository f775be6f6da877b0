"""A partition whose rounds are more than a weighted sum: by a rule, by an optimizer, or coded for the way down.

Bucket by bucket and piece by piece: what is merged stays in the cache, and what is needed beside the parameters and the
optimizer's state is a few pieces, and a bucket for every push that must be decoded. A merge works on copies of all
state, which count with its parameters or not at all.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from aiops.buffers import Block, BufferPool
from aiops.codec.base import DENSE, Codec
from aiops.errors import NotFinite
from aiops.kernels import first_nonfinite, merge_checked
from aiops.merge.base import Rules, Selection, Vector
from aiops.server.downlink import Coded, Downlink
from aiops.server.draft import CHUNK_BYTES, BucketDraft
from aiops.server.shard import MergeJob, Part, Shard
from aiops.types import Key, ShardId


class RuledJob(MergeJob, kw_only=True):
    """A merge by rules. :meth:`measure` and :meth:`run` may happen in another thread.

    Attributes:
        distances: What this shard contributes to the distances between the pushes; set by :meth:`measure`.
        states: The optimizer's next state by key.
        coded: What goes down in place of the values, and what that leaves behind.
    """

    distances: NDArray[np.float64]
    states: dict[Key, list[Block]]
    _rules: Rules
    _old_states: Mapping[Key, Sequence[Block]]
    _decoded: list[Block]
    coded: Coded
    _downlink: Downlink | None
    # What a bucket's round would change, where that is coded first.
    _change: Block | None

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

    def end(self) -> None:
        """Give back what was needed on the way."""
        _release(self._decoded)
        if self._change is not None:
            self._change.release()

    def run(self) -> None:
        """Compute the next parameters and the optimizer's next state."""
        if self.error is None:
            with np.errstate(all="ignore"):
                super().run()

    def _merge(self, key: Key, values: Vector) -> int:
        old = self._old[key].float32()
        if self._downlink is None or key in self._averaged:
            return self._apply(key, old, values)
        assert self._change is not None
        # From nothing: what is added to large parameters and taken off again has lost its last bits.
        change = self._change.float32()[: values.size]
        position = self._apply(key, None, change)
        if position >= 0:
            return position
        try:
            self._downlink.encode(key, change, old, out=values, coded=self.coded)
        except NotFinite as error:
            name = self._downlink.codec.name
            self.error = NotFinite(
                f"what the round changes does not fit down codec {name}: {error}"
            )
            return -1
        return first_nonfinite(values)

    # What the round makes of these values, or of zeros; the position of the first result that is not finite, or -1.
    def _apply(self, key: Key, old: Vector | None, out: Vector) -> int:
        shares, gain = self._shares(key)
        chosen = [i for i, push in enumerate(self._pushes) if key in push and shares[i]]
        if not chosen:
            # Nothing of it came, so nothing of it moves, whatever velocity it has.
            np.copyto(out, np.float32(0.0) if old is None else old)
            if key in self.states:
                self._carry(key, slice(None))
            return -1
        sources, weights = self._sources(key, chosen, [shares[i] for i in chosen])
        memory = np.zeros((2, min(CHUNK_BYTES // 4, out.size)), np.float32)
        for piece in _pieces(out.size):
            target = out[piece]
            update, start = memory[0, : target.size], memory[1, : target.size]
            self._rules.aggregation.combine([s[piece] for s in sources], weights, update)
            if gain != 1.0:
                update *= np.float32(gain)
            position = self._step(key, piece, start if old is None else old[piece], update, target)
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
        down: How what they change travels down; None where the values do.

    Attributes:
        downlink: What has changed in the newest round; None where the values travel.
    """

    __slots__ = ("_rules", "_states", "downlink")

    def __init__(
        self,
        shard: ShardId,
        sizes: Mapping[Key, int],
        pool: BufferPool,
        averaged: frozenset[Key] = frozenset(),
        *,
        rules: Rules,
        down: Codec | None = None,
    ) -> None:
        super().__init__(shard, sizes, pool, averaged)
        self.downlink = None if down is None else Downlink(down)
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
            coded=Coded(),
            _downlink=self.downlink,
            _change=None if self.downlink is None else self._pool.take(largest),
        )

    def publish(self, job: MergeJob) -> None:
        """Swap a finished merge in, with the state that goes with it."""
        assert isinstance(job, RuledJob)
        super().publish(job)
        job.end()
        if self.downlink is not None:
            self.downlink.keep(job.coded)
        for key, blocks in job.states.items():
            _release(self._states.pop(key, []))
            self._states[key] = blocks

    def discard(self, job: MergeJob) -> None:
        """Give a merge up; the published snapshot and all state stay."""
        assert isinstance(job, RuledJob)
        super().discard(job)
        job.end()
        if self.downlink is not None:
            self.downlink.drop(job.coded)
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
