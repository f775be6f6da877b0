"""Has something moved since it was last decided on? A measurement against where it was then, noise aside."""

from __future__ import annotations

import math

from aiops.policy.exchange import Network

# How much of a new value enters: a step to another level is seen to nine tenths after 7 values, and half of what a
# single wild value adds is gone after 2.
NEWEST_SHARE = 0.3
# Shares by which a link, and a gain, have to move; AR-Topk's gain threshold is 10 %, its links' is not published.
LINK_SHARE = 0.2
GAIN_SHARE = 0.1
# How many values in a row have to be that far away.
IN_A_ROW = 3
# What is within so many of its standard errors has not been seen to move.
ERRORS = 2.0


class Smoothed:
    """An exponentially weighted mean that starts at the first value; None until then.

    Args:
        newest: What a new value counts, in (0, 1].
    """

    __slots__ = ("_newest", "value")

    def __init__(self, newest: float = NEWEST_SHARE) -> None:
        self._newest = newest
        self.value: float | None = None

    def add(self, value: float) -> float | None:
        """Take a value in, and return the mean; one that is not finite changes nothing."""
        if math.isfinite(value):
            held = self.value
            self.value = value if held is None else held + self._newest * (value - held)
        return self.value


class Drift:
    """Tells when a measured value has left where it was when something was decided.

    Args:
        share: How far it has to be away, as a share of where it was, >= 0.
        in_a_row: How many values in a row have to be, >= 1.
    """

    __slots__ = ("_away", "_in_a_row", "_mean", "_share", "at")

    def __init__(self, share: float, in_a_row: int = IN_A_ROW) -> None:
        self._share = share
        self._in_a_row = in_a_row
        self._mean = Smoothed()
        self._away = 0
        self.at: float | None = None

    @property
    def value(self) -> float | None:
        """The smoothed value; None before the first."""
        return self._mean.value

    @property
    def moved(self) -> bool:
        """Whether it has been away often enough in a row; False where nothing is settled."""
        return self._away >= self._in_a_row

    def add(self, value: float, error: float = 0.0) -> bool:
        """Take a value in, and return whether it has moved.

        Args:
            value: What was measured; ignored where it is not finite.
            error: Its standard error; 0 where it is not known.
        """
        mean = self._mean.add(value)
        if mean is not None and self.at is not None:
            gap = abs(mean - self.at)
            far = gap >= max(self._share * abs(self.at), ERRORS * error) and gap > 0
            self._away = self._away + 1 if far else 0
        return self.moved

    def settle(self, at: float | None = None, *, forget: bool = False) -> None:
        """Say that something was decided here, and measure from it on.

        Args:
            at: Where the value is, or is expected; what is smoothed by now without it.
            forget: Start the smoothing again, as after a change that makes it another value.
        """
        self.at = self._mean.value if at is None else at
        self._away = 0
        if forget:
            self._mean = Smoothed()


class LinkDrift:
    """Both numbers of a link; each of them may move."""

    __slots__ = ("_byte", "_latency")

    def __init__(self) -> None:
        self._latency = Drift(LINK_SHARE)
        self._byte = Drift(LINK_SHARE)

    @property
    def moved(self) -> bool:
        """Whether the latency or the bandwidth has moved."""
        return self._latency.moved or self._byte.moved

    def add(self, network: Network) -> bool:
        """Take a measurement in, and return whether one of them has moved."""
        self._latency.add(network.latency_s, network.latency_error_s)
        self._byte.add(network.byte_s, network.byte_error_s)
        return self.moved

    def settle(self) -> None:
        """Say that something was decided on what the link is like by now."""
        self._latency.settle()
        self._byte.settle()
