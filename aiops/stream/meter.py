"""How fast something arrives, from counts at moments."""

from __future__ import annotations

import math

from aiops.errors import ConfigError

SMOOTHING_S = 5.0
# Counts closer than this are taken together: of a few milliseconds a rate says nothing.
LEAST_S = 0.05


class RateMeter:
    """An exponentially weighted mean of a counter's slope, by time and free of the bias of its start.

    Counts that come seldom weigh as much as their time: it does not matter how often it is looked. A counter that
    stands still takes the rate to 0, one that falls (a server that lost data) begins anew.

    Args:
        smoothing_s: What is this long ago weighs 1/e of what is now, in seconds, > 0.

    Raises:
        ConfigError: It is not.
    """

    __slots__ = ("_count", "_since", "_sum", "_tau", "_weight")

    def __init__(self, smoothing_s: float = SMOOTHING_S) -> None:
        if not (math.isfinite(smoothing_s) and smoothing_s > 0):
            raise ConfigError(f"smoothing_s is {smoothing_s!r}, it must be finite and > 0")
        self._tau = smoothing_s
        self._count: int | None = None
        self._since = 0.0
        self._sum = 0.0
        self._weight = 0.0

    @property
    def rate(self) -> float:
        """The smoothed rate in 1/s; 0 before two counts."""
        return self._sum / self._weight if self._weight else 0.0

    def observe(self, count: int, now: float) -> float:
        """Take a counter's value at ``now``, in seconds that never fall, and return the rate."""
        if self._count is None or count < self._count:
            self._count, self._since = count, now
        span_s = now - self._since
        if span_s >= LEAST_S:
            kept = math.exp(-span_s / self._tau)
            self._sum = self._sum * kept + (count - self._count) / span_s * (1 - kept)
            self._weight = self._weight * kept + 1 - kept
            self._count, self._since = count, now
        return self.rate
