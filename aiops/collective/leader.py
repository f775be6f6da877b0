"""Whose largest values decide what all ranks send (Tyagi and Swany, 2023, Algorithm 1)."""

from __future__ import annotations

import numpy as np

from aiops.collective.request import Dialogue, Gather, Route

# About a plain mean of the last 25 steps, the window of the authors' code.
SMOOTHING = 2 / 26


class Var:
    """The rank whose top-k holds most energy, smoothed; the moving average starts at the first value ("VAR-Topk").

    Args:
        smoothing: Weight of the newest energy, in (0, 1].
    """

    __slots__ = ("_smoothing", "score")

    def __init__(self, *, smoothing: float = SMOOTHING) -> None:
        self._smoothing = smoothing
        self.score: float | None = None

    def next(self, energy: float) -> float:
        """Return what the average comes to with this rank's energy; :meth:`keep` makes it last."""
        if self.score is None:
            return energy
        return self.score + self._smoothing * (energy - self.score)

    def keep(self, score: float) -> None:
        """Go on from ``score``."""
        self.score = score

    def ask(self, score: float, route: Route) -> Dialogue[int]:
        """Return the rank of the highest score, the lowest such rank."""
        scores = (yield Gather(np.array([score], np.float32), route)).data[:, 0]
        return int(np.argmax(scores))


def star(step: int, ranks: int) -> int:
    """Return the leader of a step, counted from 0, where all take turns ("STAR-Topk")."""
    return step % ranks
