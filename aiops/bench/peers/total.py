"""The sum that a server of ours for a library makes: with no copy that it does not need."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


class Total:
    """Adds one push of every worker, round after round.

    Args:
        n_workers: Pushes of a round.
        n_values: float32 values of each.
    """

    def __init__(self, n_workers: int, n_values: int) -> None:
        self._n_workers = n_workers
        self._parts: list[NDArray[np.float32]] = []
        # Two, in turn: while a round is added up, the last one's sum may still be on its way to a slow worker.
        self._sums = [np.empty(n_values if n_workers > 1 else 0, np.float32) for _ in range(2)]

    def add(self, part: NDArray[np.float32]) -> NDArray[np.float32] | None:
        """Take a push, which must stay as it is until the round is over; return the sum with the last one."""
        self._parts.append(part)
        if len(self._parts) < self._n_workers:
            return None
        first, *rest = self._parts
        self._parts.clear()
        if not rest:
            return first
        self._sums.reverse()
        total = self._sums[0]
        np.add(first, rest[0], out=total)
        for more in rest[1:]:
            total += more
        return total
