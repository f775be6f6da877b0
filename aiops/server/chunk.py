"""One bucket of the next version, merged while its round is open: the unit of chunk streaming."""

from __future__ import annotations

from collections.abc import Sequence

from aiops.buffers import Block
from aiops.errors import Refused
from aiops.server.admission import first_bad
from aiops.server.ruled_job import RuledJob
from aiops.server.shard import MergeJob, Part, Shard
from aiops.types import Key
from aiops.wire.frame import Header
from aiops.wire.table import Table


class Chunk:
    """Checks and merges one bucket of the pushes that a round is foreseen to close with.

    :meth:`run` may happen in another thread; everything else belongs to the loop thread, which owns the memory.

    Args:
        key: The bucket.
        shard: Where it lives.
        job: Its merge, of :meth:`Shard.begin_key`; a round that is made of the same pushes takes it over.
        parts: What each push brings of it, in worker order; None where it has none.
        unchecked: The header of each of those that nobody has looked at.
        loans: What must stay as it is until :meth:`end`.
        table: The agreed key table.

    Attributes:
        job: See above.
        complete: Whether every value is computed and finite.
        unfit: Which push cannot be merged because of its part, by position; None while none is known.
        dropped: Whether nobody wants the result any more.
    """

    __slots__ = (
        "_ended", "_loans", "_parts", "_table", "_unchecked", "complete", "dropped", "job", "key",
        "shard", "unfit",
    )  # fmt: skip

    def __init__(
        self,
        key: Key,
        shard: Shard,
        job: MergeJob,
        *,
        parts: Sequence[Part | None],
        unchecked: Sequence[Header | None],
        loans: Sequence[Block],
        table: Table,
    ) -> None:
        self.key = key
        self.shard = shard
        self.job = job
        self.complete = False
        self.unfit: int | None = None
        self.dropped = False
        self._parts = parts
        self._unchecked = unchecked
        self._loans = loans
        self._table = table
        self._ended = False

    @property
    def fresh(self) -> Block:
        """The memory of the result."""
        return self.job.fresh[self.key]

    @property
    def bad(self) -> int:
        """Position of the first result that is not finite, -1 while there is none."""
        return -1 if self.job.bad is None else self.job.bad[1]

    @property
    def change(self) -> memoryview | None:
        """What the round changes in the bucket, coded; None where values travel down."""
        job = self.job
        return job.coded.payloads.get(self.key) if isinstance(job, RuledJob) else None

    @property
    def passes_bytes(self) -> int:
        """How many bytes are read and written, about: every part is checked and added, two vectors more."""
        return len(self.fresh) * (2 * len(self._parts) + 2)

    def run(self) -> None:
        """Check the parts and merge them, summing in worker order."""
        if self.dropped:
            return
        for place, (part, header) in enumerate(zip(self._parts, self._unchecked, strict=True)):
            if part is not None and header is not None and not self._is_good(part, header):
                self.unfit = place
                return
        self.job.run()
        self.complete = self.job.error is None and self.bad < 0

    def end(self) -> None:
        """Give back what :meth:`run` needed, and the result too if it was discarded meanwhile."""
        self._ended = True
        self.job.end()
        for block in self._loans:
            block.release()
        self._parts = self._unchecked = self._loans = ()
        if self.dropped:
            self.shard.discard(self.job)

    def discard(self) -> None:
        """Give the result up; its memory is kept until the thread that may still write it is done."""
        self.dropped = True
        if self._ended:
            self.shard.discard(self.job)

    # What makes a push refused is said when it is whole, by whoever looks at all of it.
    def _is_good(self, part: Part, header: Header) -> bool:
        try:
            return first_bad(part, header, self._table) < 0
        except Refused:
            return False
