"""What the links are like, from what passes over them anyway and a few pings: no iperf, no traceroute, no root.

Latency is half of the shortest of a few small round trips between neighbours; the slowest pair counts, because every
hop of a ring waits for it. Bandwidth is the slope of seconds over bytes, of the requests that carried values, where the
line begins at what their hops cost. Of each the rank's time counts that waited least.
"""

from __future__ import annotations

import math

import numpy as np

from aiops.collective.request import Array, Path
from aiops.policy.exchange import Network

# Older transfers count for less: after ten their weight is a tenth, so that a link that changes is seen in a few steps.
FADING = 0.8
PINGS = 3
PING_STEPS = 10


class Probe:
    """The estimate of one job's links.

    It is fed with the same numbers on every rank, so it says the same on each.
    """

    __slots__ = (
        "_bytes",
        "_latency_error_s",
        "_latency_s",
        "_products",
        "_squares",
        "_weight",
        "n_transfers",
    )

    def __init__(self) -> None:
        self._latency_s: float | None = None
        self._latency_error_s = 0.0
        # Faded sums over transfers of bytes squared, of bytes times seconds beyond the hops, and of those squared.
        self._bytes = self._products = self._squares = self._weight = 0.0
        self.n_transfers = 0

    @staticmethod
    def latency(round_trips: Array) -> float:
        """Return the one-way latency that round trips show, in seconds; 0 of none.

        Args:
            round_trips: float64, shape (count,), seconds.
        """
        return float(round_trips.min()) / 2 if round_trips.size else 0.0

    def ping(self, latency_s: float) -> None:
        """Note the latency of the slowest pair; 0 is none."""
        if latency_s <= 0:
            return
        if self._latency_s is not None:
            self._latency_error_s = abs(latency_s - self._latency_s) / math.sqrt(2)
        self._latency_s = latency_s

    def transfer(self, path: Path, seconds: float) -> None:
        """Note what a request took; before the first ping, and where nothing was sent, it says nothing."""
        if self._latency_s is None or path.n_bytes <= 0 or seconds <= 0:
            return
        beyond = max(seconds - path.hops * self._latency_s, 0.0)
        self.n_transfers += 1
        self._weight = self._weight * FADING + 1.0
        self._bytes = self._bytes * FADING + path.n_bytes**2
        self._products = self._products * FADING + path.n_bytes * beyond
        self._squares = self._squares * FADING + beyond**2

    @property
    def network(self) -> Network | None:
        """What the links are like, with standard errors; None before both are known."""
        if self._latency_s is None or not self.n_transfers:
            return None
        slope = self._products / self._bytes
        rest = max(self._squares - slope * self._products, 0.0)
        # One transfer shows no scatter; its error is not known.
        freedom = self._weight - 1.0
        error = math.sqrt(rest / freedom / self._bytes) if freedom > 0.5 else 0.0
        # A link that takes no time for a byte would make every cost 0.
        return Network(
            latency_s=self._latency_s,
            byte_s=max(slope, np.finfo(np.float64).tiny),
            latency_error_s=self._latency_error_s,
            byte_error_s=error,
        )
