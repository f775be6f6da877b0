"""What the open round is foreseen to close with: pushes on their way, their weights, and the buckets merged so far."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field

from aiops.buffers import Block
from aiops.codec.base import Codec
from aiops.errors import Refused
from aiops.server.admission import AdmittedPush, moved_steps, part_of
from aiops.server.answer import Tentative
from aiops.server.chunk import Chunk
from aiops.server.event import Handle, Pushed
from aiops.server.members import Taken
from aiops.server.peer import Peer
from aiops.server.shard import Part
from aiops.server.store import Store
from aiops.types import Key, Version
from aiops.wire.frame import Frame, Header
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


@dataclass(slots=True, eq=False)
class Foresight:
    """One version in the making.

    Attributes:
        comings: The pushes it is made of, in worker order.
        weights: What each is worth.
        gain: What their sum is multiplied by.
        here: By how many of them each bucket is here.
        chunks: The buckets that are merged, or being merged.
        answers: What is sent ahead, and to whom.
        stopped: Whether no more of it shall be.
    """

    comings: list[Coming]
    weights: tuple[float, ...]
    gain: float
    here: Counter[Key] = field(default_factory=Counter)
    chunks: dict[Key, Chunk] = field(default_factory=dict)
    answers: list[Tentative] = field(default_factory=list)
    stopped: bool = False

    def is_made_of(self, pushes: Sequence[Handle], weights: Sequence[float]) -> bool:
        """Return whether a round that closes with these is what was foreseen."""
        return self.weights == tuple(weights) and [c.push for c in self.comings] == list(pushes)

    def taken(self, coming: Coming, version: Version) -> Taken:
        """Return what becomes of one of the pushes if this comes true after ``version``."""
        steps = moved_steps([c.message for c in self.comings], self.weights, self.gain)
        staleness = version - coming.announced.base
        return Taken(Version(version + 1), staleness, len(self.comings), steps)

    def wants(self, key: Key) -> bool:
        """Return whether a bucket is here from everybody, and nobody has begun to merge it."""
        here = self.here[key] == len(self.comings)
        return here and key not in self.chunks and not self.stopped

    def chunk(self, key: Key, store: Store, codecs: Mapping[int, Codec]) -> Chunk | None:
        """Return the merge of a bucket that is here from everybody, with all that it needs on loan.

        None where a part is unfit, so that no more shall be sent ahead.
        """
        table = store.require()
        shard = store.shards[table.buckets[key].shard]
        parts: list[Part | None] = []
        unchecked: list[Header | None] = []
        for coming in self.comings:
            frame = coming.frames.get(key)
            try:
                parts.append(None if frame is None else part_of(frame, table, codecs))
            except Refused:
                self.stopped = coming.unfit = True
                return None
            unchecked.append(None if frame is None or coming.push is not None else frame.header)
        pushes = [{} if part is None else {key: part} for part in parts]
        job = shard.begin_key(key, pushes, self.weights, self.gain)
        loans = [coming.blocks[key].lend() for coming in self.comings if key in coming.blocks]
        loans.append(shard.lend(key))
        chunk = self.chunks[key] = Chunk(
            key, shard, job, parts=parts, unchecked=unchecked, loans=loans, table=table
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
