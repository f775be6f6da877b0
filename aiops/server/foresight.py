"""What the open round is foreseen to close with: pushes on their way, their weights, and the buckets merged so far."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field

from aiops.buffers import Block, BufferPool
from aiops.codec.base import DENSE, Codec
from aiops.server.admission import AdmittedPush
from aiops.server.answer import Tentative
from aiops.server.chunk import Chunk
from aiops.server.event import Handle, Pushed
from aiops.server.peer import Peer
from aiops.server.shard import Part
from aiops.server.store import Store
from aiops.types import Key
from aiops.wire.frame import Frame
from aiops.wire.message import Push


@dataclass(slots=True, eq=False)
class Coming:
    """One push from its first bucket until its round is closed.

    Attributes:
        peer: The connection that brings it.
        request: Its number there.
        message: What it says of itself.
        announced: What the engine will be told of it.
        frames: Its buckets that are here.
        blocks: Their memory, where their payload was kept.
        seen: Which of them were checked and are good, as :func:`aiops.server.admission.check_parts` wants it.
        whole: The push, once it is whole.
        push: The same, once it is good as well.
        unfit: Whether it is known that it will not be.
    """

    peer: Peer
    request: int
    message: Push
    announced: Pushed
    frames: dict[Key, Frame] = field(default_factory=dict)
    blocks: dict[Key, Block] = field(default_factory=dict)
    seen: dict[Key, int] = field(default_factory=dict)
    whole: AdmittedPush | None = None
    push: AdmittedPush | None = None
    unfit: bool = False

    def source(self, key: Key) -> Frame | Part | None:
        """Return what it brings for a bucket: known to be good or not, or nothing."""
        return self.frames.get(key) if self.push is None else self.push.parts.get(key)


@dataclass(slots=True, eq=False)
class Foresight:
    """One version in the making.

    Attributes:
        comings: The pushes it is made of, in worker order.
        weights: What each is worth.
        here: By how many of them each bucket is here.
        chunks: The buckets that are merged, or being merged.
        answers: What is sent ahead, and to whom.
        stopped: Whether no more of it shall be.
    """

    comings: list[Coming]
    weights: tuple[float, ...]
    here: Counter[Key] = field(default_factory=Counter)
    chunks: dict[Key, Chunk] = field(default_factory=dict)
    answers: list[Tentative] = field(default_factory=list)
    stopped: bool = False

    def is_made_of(self, pushes: Sequence[Handle], weights: Sequence[float]) -> bool:
        """Return whether a round that closes with these is what was foreseen."""
        return self.weights == tuple(weights) and [c.push for c in self.comings] == list(pushes)

    def wants(self, key: Key) -> bool:
        """Return whether a bucket is here from everybody, and nobody has begun to merge it."""
        here = self.here[key] == len(self.comings)
        return here and key not in self.chunks and not self.stopped

    def chunk(
        self, key: Key, store: Store, pool: BufferPool, codecs: Mapping[int, Codec], *, gain: float
    ) -> Chunk:
        """Return the merge of a bucket that is here from everybody, with all that it needs on loan.

        Raises:
            MemoryError: There is no memory for it; nothing is taken.
        """
        table = store.require()
        shard = store.shards[table.buckets[key].shard]
        frames = [coming.frames.get(key) for coming in self.comings]
        coded = any(frame is not None and frame.header.codec != DENSE for frame in frames)
        fresh = pool.take(4 * table.buckets[key].size)
        try:
            scratch = pool.take(len(fresh)) if coded else None
        except MemoryError:
            fresh.release()
            raise
        loans = [c.blocks[key].lend() for c in self.comings if key in c.blocks]
        loans.append(shard.lend(key))
        if scratch is not None:
            loans.append(scratch)
        chunk = self.chunks[key] = Chunk(
            key,
            shard,
            [coming.source(key) for coming in self.comings],
            self.weights,
            gain,
            fresh=fresh,
            loans=loans,
            scratch=scratch,
            table=table,
            codecs=codecs,
        )
        return chunk

    def merged(self, chunk: Chunk) -> bool:
        """Take note of what came of a chunk; return whether it may be sent ahead."""
        if chunk.complete:
            for coming in self.comings:
                coming.seen[chunk.key] = -1
            return not self.stopped
        # Nothing that could come of this round is worth sending: it ends with the refusal that is due.
        self.stopped = True
        if chunk.unfit is not None:
            self.comings[chunk.unfit].unfit = True
        return False

    def discard(self, used: Container[Key]) -> None:
        """Give all buckets up but those that are used."""
        for key, chunk in self.chunks.items():
            if key not in used:
                chunk.discard()
