"""Flat vectors that are used again: fresh memory costs a page fault for every 4 KiB of it."""

from __future__ import annotations

import weakref

import numpy as np
from numpy.typing import NDArray

# Vectors kept for the next round: the newest model and an update under way.
KEPT = 2


class Spares:
    """Hands out float32 vectors of one size and takes each back when its last user, view or tensor is gone.

    100 MB of fresh memory cost 25 000 page faults, as much time as sending them over loopback.
    """

    __slots__ = ("_free", "_size")

    def __init__(self, size: int) -> None:
        self._size = size
        self._free: list[NDArray[np.float32]] = []

    def take(self) -> NDArray[np.float32]:
        """Return a float32 vector of undefined values, shape (size,), the caller's as long as anything uses it."""
        if not self._size:
            return np.empty(0, np.float32)
        try:
            memory = self._free.pop()
        except IndexError:
            memory = np.empty(self._size, np.float32)
        # Views of a vector over a memoryview refer to that vector and not to what is beneath, so its end is theirs.
        vector = np.frombuffer(memory.data, np.float32)
        weakref.finalize(vector, self._give_back, memory).atexit = False
        return vector

    def _give_back(self, memory: NDArray[np.float32]) -> None:
        if len(self._free) < KEPT:
            self._free.append(memory)
