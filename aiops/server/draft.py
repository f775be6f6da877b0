"""The next version in the making: each chunk of it is computed when the last push has brought its part.

A push is looked at while it is in the cache: its values are checked, and where the open round is known to close with
the pushes that are under way, the chunk of the next snapshot is computed at once. What a round merges is still the
engine's decision: a draft that it does not want costs its memory and nothing else.

A lane runs :meth:`Intake.filled`; all else happens on the loop, and where both meet, while the lane is quiet.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from aiops.buffers import Block
from aiops.kernels import first_nonfinite, merge_checked
from aiops.wire.reader import NOTHING, Landing, aligned

# A chunk and what is merged with it stay in a second-level cache of 1-2 MiB. Half and double of it measure the same
# within the noise; a quarter spends its time on calls.
CHUNK_BYTES = 512 * 1024


class Intake(Landing):
    """One large float32 bucket of one push, checked as it comes in.

    Args:
        size: The bucket's bytes.
        block: Memory for all of them, or for one chunk if ``passing``; one loan, which goes with the frame.
        passing: Whether the values are used up as they come: nobody will ask for them again.
        lane: Which lane brings them.

    Attributes:
        bad: Position of the first value that is NaN or infinite, -1 while there is none.
        draft: What the values are merged into as they come.
    """

    __slots__ = ("_memory", "_size", "_used", "_values", "bad", "draft", "passing")

    def __init__(self, size: int, block: Block, *, passing: bool, lane: int) -> None:
        super().__init__(NOTHING if passing else block.view, block, lane=lane)
        self.passing = passing
        self.bad = -1
        self.draft: BucketDraft | None = None
        self._size = size
        # How much of it was used up; only what passes is.
        self._used = 0
        self._memory = block.view
        self._values = block.float32()

    def room(self, most: int = CHUNK_BYTES) -> memoryview:
        """Return what is missing of the present chunk."""
        within = self._at % CHUNK_BYTES
        start = self._at - within
        end = aligned(self._at, min(start + CHUNK_BYTES, self._size))
        if self.passing:
            return self._memory[within : end - start]
        return self._memory[self._at : end]

    def filled(self, n: int) -> None:
        """Take note of ``n`` bytes, and look at the chunk that they complete."""
        self._at += n
        if self._at % CHUNK_BYTES == 0 or self._at == self._size:
            number = (self._at - 1) // CHUNK_BYTES
            if self.passing:
                self._use_up()
            elif self.draft is not None:
                self.draft.came(self, number)
            else:
                self.check(number)

    def take(self, view: memoryview) -> None:
        """Look at the bytes where they lie; what is used up as it comes is never copied."""
        if not self.passing or self._at % 4 or len(view) % 4:
            super().take(view)
            return
        # What came another way lies in the present chunk and goes first.
        self._use_up()
        self._pass(self._at // 4, np.frombuffer(view, np.float32))
        self._at = self._used = self._at + len(view)

    def values(self, first: int, last: int) -> NDArray[np.float32]:
        """Return values that are here and were kept, from one position to another."""
        return self._values[first:last]

    def check(self, number: int) -> None:
        """Look for NaN and infinity in a chunk that is here and was kept."""
        first, last = number * CHUNK_BYTES // 4, min((number + 1) * CHUNK_BYTES, self._size) // 4
        self.check_values(first, self.values(first, last))

    def check_values(self, first: int, values: NDArray[np.float32]) -> None:
        """Look for NaN and infinity in some of the values, the first of which stands at ``first``."""
        if self.bad < 0:
            position = first_nonfinite(values)
            if position >= 0:
                self.bad = first + position

    # Use up what has come into the present chunk since it was last done.
    def _use_up(self) -> None:
        if self._used < self._at:
            start = self._used - self._used % CHUNK_BYTES
            values = self._values[(self._used - start) // 4 : (self._at - start) // 4]
            self._pass(self._used // 4, values)
            self._used = self._at

    def _pass(self, first: int, values: NDArray[np.float32]) -> None:
        if self.draft is not None:
            self.draft.passed(self, first, values)
        else:
            self.check_values(first, values)

    @property
    def chunks(self) -> int:
        """Whole chunks that are here."""
        if self._at == self._size:
            return -(-self._size // CHUNK_BYTES)
        return self._at // CHUNK_BYTES


class BucketDraft:
    """One bucket of the next snapshot.

    Args:
        old: float32, shape (n,). The published values.
        fresh: Memory for the next ones.
        intakes: The pushes in worker order; one of them has not brought a chunk yet.
        weights: What each is worth.
        gain: What their sum is multiplied by.

    Attributes:
        fresh: The memory; ``values`` once :attr:`complete`.
        bad: Position of the first result that is not finite, -1 while there is none.
    """

    __slots__ = (
        "_gain",
        "_intakes",
        "_missing",
        "_old",
        "_todo",
        "_values",
        "_weights",
        "bad",
        "fresh",
    )

    def __init__(
        self,
        old: NDArray[np.float32],
        fresh: Block,
        intakes: Sequence[Intake],
        weights: Sequence[float],
        gain: float,
    ) -> None:
        self.fresh = fresh
        self.bad = -1
        self._old = old
        self._values = fresh.float32()
        self._intakes = intakes
        self._weights = weights
        self._gain = gain
        # Values that are not computed, and by how many pushes each chunk of them is missed.
        self._todo = old.size
        here = [intake.chunks for intake in intakes]
        self._missing = [sum(n >= m for m in here) for n in range(-(-len(fresh) // CHUNK_BYTES))]
        assert all(self._missing), "a chunk that is here from all would never be computed"
        for intake in intakes:
            intake.draft = self

    @property
    def complete(self) -> bool:
        """Whether every value is computed and finite."""
        return not self._todo and self.bad < 0

    def came(self, intake: Intake, number: int) -> None:
        """Take note that a push has brought a chunk; compute it if it is the last one to do so."""
        self._missing[number] -= 1
        if self._missing[number]:
            intake.check(number)
        else:
            first = number * CHUNK_BYTES // 4
            last = min(first + CHUNK_BYTES // 4, self._old.size)
            self._merge(first, [intake.values(first, last) for intake in self._intakes])

    def passed(self, intake: Intake, first: int, values: NDArray[np.float32]) -> None:
        """Compute what these values are for: those of the other pushes are all here, and these will be gone."""
        last = first + len(values)
        self._merge(
            first, [values if i is intake else i.values(first, last) for i in self._intakes]
        )

    def stop(self) -> None:
        """Take in no more."""
        for intake in self._intakes:
            intake.draft = None

    def _merge(self, first: int, sources: Sequence[NDArray[np.float32]]) -> None:
        last = first + len(sources[0])
        position = merge_checked(
            self._old[first:last],
            sources,
            self._weights,
            gain=self._gain,
            out=self._values[first:last],
            bypass=True,
        )
        self._todo -= last - first
        if position >= 0:
            # A result is finite only if all that is in it is, even what weighs nothing.
            for intake, values in zip(self._intakes, sources, strict=True):
                intake.check_values(first, values)
        if position >= 0 and self.bad < 0:
            self.bad = first + position
