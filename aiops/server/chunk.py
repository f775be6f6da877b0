"""One bucket of the next version, merged while its round is open: the unit of chunk streaming."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from aiops.buffers import Block
from aiops.codec.base import Codec
from aiops.errors import Refused
from aiops.server.admission import check_part
from aiops.server.shard import Part, Shard
from aiops.types import Key
from aiops.wire.frame import Frame
from aiops.wire.table import Table


class Chunk:
    """Checks and merges one bucket of the pushes that a round is foreseen to close with.

    :meth:`run` may happen in another thread; everything else belongs to the loop thread, which owns the memory.

    Args:
        key: The bucket.
        shard: Where it lives.
        sources: What each push brings, in worker order: a frame that nobody has looked at, a part that is known to be
            good, or None where a push has none of this bucket.
        weights: What each push is worth.
        gain: What their sum is multiplied by.
        fresh: Memory for the result; it goes to whoever publishes it, else :meth:`discard` gives it back.
        loans: What must stay as it is until :meth:`end`, scratch memory too.
        scratch: Memory for the sum where a part is not plain float32.

    Attributes:
        bad: Position of the first result that is not finite, -1 while there is none.
        complete: Whether every value is computed and finite.
        unfit: Which push cannot be merged because of its part, by position; None while none is known.
        dropped: Whether nobody wants the result any more.
    """

    __slots__ = (
        "_codecs", "_ended", "_gain", "_loans", "_scratch", "_sources", "_table", "_weights",
        "bad", "complete", "dropped", "fresh", "key", "shard", "unfit",
    )  # fmt: skip

    def __init__(
        self,
        key: Key,
        shard: Shard,
        sources: Sequence[Frame | Part | None],
        weights: Sequence[float],
        gain: float,
        *,
        fresh: Block,
        loans: list[Block],
        scratch: Block | None,
        table: Table,
        codecs: Mapping[int, Codec],
    ) -> None:
        self.key = key
        self.shard = shard
        self.fresh = fresh
        self.bad = -1
        self.complete = False
        self.unfit: int | None = None
        self.dropped = False
        self._sources = sources
        self._weights = weights
        self._gain = gain
        self._loans = loans
        self._scratch = scratch
        self._table = table
        self._codecs = codecs
        self._ended = False

    @property
    def passes_bytes(self) -> int:
        """How many bytes are read and written, about: every part is checked and added, two vectors more."""
        return len(self.fresh) * (2 * len(self._sources) + 2)

    def run(self) -> None:
        """Check the parts and merge them, summing in worker order."""
        if self.dropped:
            return
        pushes: list[Mapping[Key, Part]] = []
        for place, source in enumerate(self._sources):
            part = self._checked(source) if isinstance(source, Frame) else source
            if source is not None and part is None:
                self.unfit = place
                return
            pushes.append({} if part is None else {self.key: part})
        self.bad = self.shard.merge(
            self.key, pushes, self._weights, self._gain, out=self.fresh, scratch=self._scratch
        )
        self.complete = self.bad < 0

    def end(self) -> None:
        """Give back what :meth:`run` needed, and the result too if it was discarded meanwhile."""
        self._ended = True
        for block in self._loans:
            block.release()
        self._sources = ()
        if self.dropped:
            self.fresh.release()

    def discard(self) -> None:
        """Give the result up; its memory is kept until the thread that may still write it is done."""
        self.dropped = True
        if self._ended:
            self.fresh.release()

    # What makes a push refused is said when it is whole, by whoever looks at all of it.
    def _checked(self, frame: Frame) -> Part | None:
        try:
            part, bad = check_part(frame, self._table, self._codecs)
        except Refused:
            return None
        return part if bad < 0 else None
