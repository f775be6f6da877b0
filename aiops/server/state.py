"""What numeric rules keep from round to round, in vectors by owner, and the copies that a merge works on."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Generic, TypeVar

import numpy as np

from aiops.buffers import Block, BufferPool
from aiops.merge.base import Vector

Owner = TypeVar("Owner", bound=Hashable)


class StateDraft(Generic[Owner]):
    """The state after a merge, in the making. :meth:`carry` may happen in another thread.

    Args:
        fresh: Memory for it, by owner.
        old: The state before it; who is not there begins with ``initial``.
        initial: The value that each vector starts from.

    Attributes:
        fresh: The memory; it goes over to :meth:`States.keep` or :meth:`States.drop`.
    """

    __slots__ = ("_initial", "_old", "fresh")

    def __init__(
        self,
        fresh: dict[Owner, list[Block]],
        old: Mapping[Owner, Sequence[Block]],
        initial: Sequence[float],
    ) -> None:
        self.fresh = fresh
        self._old = old
        self._initial = initial

    def carry(self, owner: Owner, piece: slice = slice(None)) -> list[Vector]:
        """Return a piece of an owner's vectors as it was before the merge, to be changed in place."""
        fresh = [block.float32()[piece] for block in self.fresh[owner]]
        old = self._old.get(owner)
        if old is None:
            for vector, value in zip(fresh, self._initial, strict=True):
                vector.fill(value)
        else:
            for vector, block in zip(fresh, old, strict=True):
                np.copyto(vector, block.float32()[piece])
        return fresh


class States(Generic[Owner]):
    """The vectors of one rule, by owner: each has as many as the rule names values to start from.

    Args:
        pool: Where they come from.
        initial: Those values.
    """

    __slots__ = ("_blocks", "_initial", "_pool")

    def __init__(self, pool: BufferPool, initial: Sequence[float]) -> None:
        self._pool = pool
        self._initial = initial
        self._blocks: dict[Owner, list[Block]] = {}

    def begin(self, sizes: Mapping[Owner, int]) -> StateDraft[Owner]:
        """Take the memory for the next state of these owners, of so many values each."""
        fresh = {
            owner: [self._pool.take(4 * size) for _ in self._initial]
            for owner, size in sizes.items()
        }
        return StateDraft(fresh, self._blocks, self._initial)

    def keep(self, draft: StateDraft[Owner]) -> None:
        """Go on from a merge that counts."""
        for owner, blocks in draft.fresh.items():
            _release(self._blocks.pop(owner, ()))
            self._blocks[owner] = blocks

    def drop(self, draft: StateDraft[Owner]) -> None:
        """Forget a merge that does not count."""
        for blocks in draft.fresh.values():
            _release(blocks)

    def forget(self, gone: Callable[[Owner], bool]) -> None:
        """Give the vectors of some owners back."""
        for owner in [owner for owner in self._blocks if gone(owner)]:
            _release(self._blocks.pop(owner))


def _release(blocks: Sequence[Block]) -> None:
    for block in blocks:
        block.release()
