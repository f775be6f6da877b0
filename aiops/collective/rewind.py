"""Batches that can be drawn again, of any loader."""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Generic, NamedTuple, Self, TypeVar

from aiops.collective.randomness import RandomState
from aiops.errors import ConfigError

T = TypeVar("T")


class _Drawn(NamedTuple, Generic[T]):
    batch: T
    before: RandomState
    after: RandomState


class Rewind(Generic[T]):
    """An iterator over the batches of a loader, pass after pass, that can go back to a mark.

    What is drawn since :meth:`mark` is copied, and drawn again after :meth:`rewind`. A loader that shuffles or augments
    with the global generators moves them on when it is drawn from, and so does a batch that is drawn again.

    Args:
        batches: What is iterated over, again and again; a DataLoader for example. A generator is gone through once; one
            that does ``sampler.set_epoch`` before each pass lets a DistributedSampler shuffle anew.
    """

    __slots__ = ("_at", "_batches", "_drawn", "_marked", "_pass")

    def __init__(self, batches: Iterable[T]) -> None:
        if not isinstance(batches, Iterable):
            raise ConfigError(f"batches are a {type(batches).__name__}, which is not iterable")
        self._batches = batches
        self._pass: Iterator[T] | None = None
        # From the mark on, or what has to be drawn again where there is none.
        self._drawn: deque[_Drawn[T]] = deque()
        self._at = 0
        self._marked = False

    @property
    def n_drawn(self) -> int:
        """Batches drawn since the mark, or since the last :meth:`rewind`; 0 without a mark."""
        return self._at

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> T:
        if self._at < len(self._drawn):
            return self._again()
        if not self._marked:
            return self._draw()
        before = RandomState.now()
        batch = self._draw()
        # A training step may change its batch in place.
        self._drawn.append(_Drawn(copy.deepcopy(batch), before, RandomState.now()))
        self._at += 1
        return batch

    def mark(self) -> None:
        """Begin to remember: :meth:`rewind` comes back to here."""
        self.release()
        self._marked = True

    def rewind(self) -> None:
        """Go back to the mark."""
        self._at = 0

    def release(self) -> None:
        """Remember no more; what was drawn since the mark and is ahead after a :meth:`rewind` is still drawn again."""
        for _ in range(self._at):
            self._drawn.popleft()
        self._at, self._marked = 0, False

    def _again(self) -> T:
        if self._marked:
            held = self._drawn[self._at]
            self._at += 1
            batch = copy.deepcopy(held.batch)
        else:
            held = self._drawn.popleft()
            batch = held.batch
        # Elsewhere somebody else has drawn numbers meanwhile, which are not to come again.
        if RandomState.now() == held.before:
            held.after.restore()
        return batch

    def _draw(self) -> T:
        for _ in range(2):
            if self._pass is None:
                self._pass = iter(self._batches)
            try:
                return next(self._pass)
            except StopIteration:
                self._pass = None
        raise StopIteration
