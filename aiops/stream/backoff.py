"""How long to wait before the next try to reach a server: longer each time, capped, and not all at once."""

from __future__ import annotations

import random

FIRST_S = 0.1
LONGEST_S = 5.0


class Backoff:
    """Waits that double from 0.1 to 5 s, each shortened by a random share of up to a half.

    Args:
        give_up_s: How long tries go on, in seconds.
        rng: Spreads the tries of many workers.
    """

    __slots__ = ("_give_up_s", "_next_s", "_rng", "_since")

    def __init__(self, *, give_up_s: float, rng: random.Random) -> None:
        self._give_up_s = give_up_s
        self._rng = rng
        self._since: float | None = None
        self._next_s = FIRST_S

    @property
    def failing(self) -> bool:
        """Whether the last try failed."""
        return self._since is not None

    def failed(self, now: float) -> float | None:
        """Take note of a failed try, and return how long to wait for the next in seconds; None to give up."""
        if self._since is None:
            self._since = now
        left_s = self._since + self._give_up_s - now
        if left_s <= 0:
            return None
        wait_s = min(left_s, self._next_s * self._rng.uniform(0.5, 1.0))
        self._next_s = min(2 * self._next_s, LONGEST_S)
        return wait_s

    def reached(self) -> None:
        """Take note that the server answered."""
        self._since, self._next_s = None, FIRST_S
