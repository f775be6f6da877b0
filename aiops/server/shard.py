"""One partition of the parameters: published snapshots, and the merge that makes the next one.

Numbers only: it knows neither workers nor rounds. Snapshots are immutable; replies lend them, and a merge writes into
fresh blocks that are swapped in when every shard is done.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol, cast

import msgspec
import numpy as np
from numpy.typing import NDArray

from aiops.buffers import Block, BufferPool
from aiops.codec.base import DENSE, Codec, PlacedCodec
from aiops.errors import Refused
from aiops.kernels import gather, merge_checked
from aiops.server.draft import CHUNK_BYTES
from aiops.types import Key, ShardId, WorkerId


class Part(msgspec.Struct, frozen=True):
    """One bucket of one push: how it is coded, and its bytes."""

    codec: Codec
    payload: memoryview


class Origin(msgspec.Struct, frozen=True):
    """Where a push comes from: its worker, and the snapshot that it started from, which is kept while it is merged."""

    worker: WorkerId
    base: Mapping[Key, Block]


class Draft(Protocol):
    """One bucket of the next snapshot that was computed before its round closed."""

    @property
    def fresh(self) -> Block:
        """Its memory; whoever publishes it takes it over."""

    @property
    def bad(self) -> int:
        """Position of the first result that is not finite, -1 while there is none."""

    @property
    def complete(self) -> bool:
        """Whether every value is computed and finite."""


class MergeJob(msgspec.Struct):
    """A merge in the making. ``run`` may happen in another thread; everything else belongs to the loop thread.

    Attributes:
        fresh: The new snapshot's blocks by key.
        todo_bytes: Bytes of them that no draft holds yet.
        bad: Key and position of the first value that came out NaN or infinite; None when all are finite.
        error: Why there will be no merge; None where nothing speaks against it.
    """

    fresh: dict[Key, Block]
    todo_bytes: int
    bad: tuple[Key, int] | None
    _old: Mapping[Key, Block]
    _pushes: Sequence[Mapping[Key, Part]]
    _weights: Sequence[float]
    _gain: float
    _drafts: Mapping[Key, Draft]
    _scratch: Block | None
    _averaged: frozenset[Key]
    error: Refused | None = None

    def run(self) -> None:
        """Compute ``fresh = old + gain * sum weight * push``, summing in the order of the pushes."""
        for key, block in self.fresh.items():
            if block is self._old[key]:
                continue
            draft = self._drafts.get(key)
            assert draft is None or draft.complete or draft.bad >= 0
            position = draft.bad if draft is not None else self._merge(key, block.float32())
            if position >= 0 and self.bad is None:
                self.bad = (key, position)

    def end(self) -> None:
        """Give back what was needed on the way."""
        if self._scratch is not None:
            self._scratch.release()
            self._scratch = None

    # The position of the first result that is not finite, or -1.
    def _merge(self, key: Key, values: NDArray[np.float32]) -> int:
        shares, gain = self._shares(key)
        parts: list[Part] = []
        weights: list[float] = []
        for push, weight in zip(self._pushes, shares, strict=True):
            if key in push and weight:
                parts.append(push[key])
                weights.append(weight)
        old = self._old[key].float32()
        if self._scratch is None:
            arrays = [np.frombuffer(part.payload, np.float32) for part in parts]
            return _merge_dense(old, arrays, weights, gain, values)
        place = _same_place(parts)
        if place is not None:
            return _merge_placed(old, place, parts, weights, gain, values)
        acc = self._scratch.float32()[: values.size]
        acc.fill(0.0)
        for part, weight in zip(parts, weights, strict=True):
            part.codec.add_to(acc, part.payload, weight)
        return merge_checked(old, [acc], [1.0], gain=gain, out=values)

    # A mean of values stays between them only if its shares do not sum to more than 1.
    def _shares(self, key: Key) -> tuple[Sequence[float], float]:
        if key not in self._averaged:
            return self._weights, self._gain
        total = max(1.0, sum(self._weights))
        return [weight / total for weight in self._weights], min(1.0, self._gain)


class Shard:
    """Holds the buckets of one partition.

    Args:
        shard: Its number.
        sizes: Number of float32 values of each of its keys.
        pool: Where blocks come from.
        averaged: Those of its keys that hold running statistics.
    """

    __slots__ = ("_averaged", "_pool", "_published", "_sizes", "shard")

    def __init__(
        self,
        shard: ShardId,
        sizes: Mapping[Key, int],
        pool: BufferPool,
        averaged: frozenset[Key] = frozenset(),
    ) -> None:
        self._averaged = averaged
        self.shard = shard
        self._sizes = dict(sizes)
        self._pool = pool
        self._published: dict[Key, Block] = {}

    @property
    def keys(self) -> Iterable[Key]:
        """The keys that live here."""
        return self._sizes.keys()

    def load(self, values: Mapping[Key, NDArray[np.float32]]) -> None:
        """Publish the first parameters, copying them; ``values`` holds every key of this shard."""
        for key, size in self._sizes.items():
            block = self._pool.take(4 * size)
            np.copyto(block.float32(), values[key])
            self._published[key] = block

    def lend(self, key: Key) -> Block:
        """Lend the published block of a key; the borrower releases it."""
        return self._published[key].lend()

    def begin(
        self,
        pushes: Sequence[Mapping[Key, Part]],
        weights: Sequence[float],
        gain: float,
        drafts: Mapping[Key, Draft],
        origins: Sequence[Origin] = (),
    ) -> MergeJob:
        """Take the memory for a merge of ``pushes``; it must be ended by :meth:`publish` or :meth:`discard`.

        The memory of the drafts of its keys goes over to the job, and keys that no push has keep theirs. ``origins``
        are for rules that look at them.
        """
        return self._begin(self._sizes, pushes, weights, gain, drafts)

    def begin_key(
        self,
        key: Key,
        pushes: Sequence[Mapping[Key, Part]],
        weights: Sequence[float],
        gain: float,
    ) -> MergeJob:
        """Take the memory for a merge of one bucket alone, with the arithmetic of :meth:`begin`: the bits are the same.

        Once it has run it is a draft of that bucket, or ended by :meth:`discard`. Its parts need not be checked before
        it runs, and whoever runs it while rounds may close keeps the published block of ``key`` until then.
        """
        return self._begin({key: self._sizes[key]}, pushes, weights, gain, {})

    def _begin(
        self,
        whole: Mapping[Key, int],
        pushes: Sequence[Mapping[Key, Part]],
        weights: Sequence[float],
        gain: float,
        drafts: Mapping[Key, Draft],
    ) -> MergeJob:
        touched = set().union(*pushes)
        sizes = {key: n for key, n in whole.items() if key in touched and key not in drafts}
        codecs = {p.codec.wire_id for push in pushes for key, p in push.items() if key in sizes}
        coded = bool(codecs - {DENSE})
        return MergeJob(
            fresh={key: self._fresh(key, sizes, drafts) for key in whole},
            todo_bytes=4 * sum(sizes.values()),
            bad=None,
            _old=self._published,
            _pushes=pushes,
            _weights=weights,
            _gain=gain,
            _drafts=drafts,
            _scratch=self._pool.take(4 * max(sizes.values())) if coded else None,
            _averaged=self._averaged,
        )

    def _fresh(self, key: Key, sizes: Mapping[Key, int], drafts: Mapping[Key, Draft]) -> Block:
        if key in sizes:
            return self._pool.take(4 * sizes[key])
        return drafts[key].fresh if key in drafts else self._published[key].lend()

    def publish(self, job: MergeJob) -> None:
        """Swap a finished merge in; the old snapshot lives on as long as somebody borrows it."""
        job.end()
        old, self._published = self._published, job.fresh
        for block in old.values():
            block.release()

    def discard(self, job: MergeJob) -> None:
        """Give a merge up; the published snapshot stays."""
        job.end()
        for block in job.fresh.values():
            block.release()

    def close(self) -> None:
        """Release the published snapshot."""
        for block in self._published.values():
            block.release()
        self._published = {}


# Where all parts have their values, if that is the same for all: these are added up as they lie.
def _same_place(parts: Sequence[Part]) -> PlacedCodec | None:
    codec = parts[0].codec if parts else None
    # Asking a protocol takes 15 us, which is longer than a small bucket's merge.
    if not hasattr(codec, "index") or any(part.codec is not codec for part in parts):
        return None
    return cast(PlacedCodec, codec)


# The sum of :func:`_merge_dense` over the values that move, and a copy of all others.
def _merge_placed(
    old: NDArray[np.float32],
    place: PlacedCodec,
    parts: Sequence[Part],
    weights: Sequence[float],
    gain: float,
    out: NDArray[np.float32],
) -> int:
    moved = gather(old, place.index)
    sources = [place.values(part.payload) for part in parts]
    position = merge_checked(moved, sources, weights, gain=gain, out=moved)
    np.copyto(out, old)
    out[place.index] = moved
    return position if position < 0 else int(place.index[position])


# Chunk by chunk, so that what is merged stays in the cache between its sum and its check.
def _merge_dense(
    old: NDArray[np.float32],
    arrays: Sequence[NDArray[np.float32]],
    weights: Sequence[float],
    gain: float,
    out: NDArray[np.float32],
) -> int:
    step = CHUNK_BYTES // 4
    if out.size <= step:
        return merge_checked(old, arrays, weights, gain=gain, out=out)
    for at in range(0, out.size, step):
        position = merge_checked(
            old[at : at + step],
            [array[at : at + step] for array in arrays],
            weights,
            gain=gain,
            out=out[at : at + step],
            bypass=True,
        )
        if position >= 0:
            return at + position
    return -1
