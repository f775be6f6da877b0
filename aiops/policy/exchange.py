"""How the ranks of a collective job exchange the gradients of a step: the values that are decided on, and the doors.

Times in seconds, sizes in bytes unless a name says values. Nothing here measures or communicates: what was measured
comes in, a plan goes out, and whoever asked makes all ranks follow it.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Mapping, Sequence
from typing import Protocol, runtime_checkable

import msgspec
import numpy as np
from numpy.typing import NDArray


class Network(msgspec.Struct, frozen=True):
    """What a link between two ranks is like.

    Attributes:
        latency_s: One-way delay of a small message.
        byte_s: Seconds that one more byte takes, 1 / bandwidth.
        latency_error_s: Standard error of ``latency_s``; 0 where it is not known.
        byte_error_s: Standard error of ``byte_s``; 0 where it is not known.
    """

    latency_s: float
    byte_s: float
    latency_error_s: float = 0.0
    byte_error_s: float = 0.0


class Load(msgspec.Struct, frozen=True):
    """What there is to exchange in a step.

    Attributes:
        n: Values of the gradient.
        ranks: Processes that take part, >= 1.
        index_bytes: Bytes a position takes on the wire; 4 as uint32, about 1 coded.
        value_bytes: Bytes a selected value takes on the wire; dense values always take 4.
    """

    n: int
    ranks: int
    index_bytes: float = 4.0
    value_bytes: float = 4.0

    def kept(self, density: float) -> int:
        """Return how many values are k of ``density``: ``max(1, floor(density * n))``, 0 only of an empty gradient."""
        return min(self.n, max(1, int(density * self.n)))


class Exchange(msgspec.Struct, frozen=True):
    """How the gradients of one step are exchanged.

    Attributes:
        collective: What and by which route, a key of :data:`aiops.policy.cost.COSTS`: ``"dense_ring"``,
            ``"allgather_ring"``, ``"artopk_tree"``, ...
        density: k/n that is sent, in (0, 1]; 1 with a dense collective.
    """

    collective: str
    density: float = 1.0

    @property
    def operator(self) -> str:
        """What is exchanged.

        ``dense``; each rank's largest values, ``allgather`` or, through a server, ``topk``; or everybody's values at
        positions that others chose: leaders in turn, ``artopk``, the one with the largest energy, ``var``, or an N-th
        of them by each rank, ``vote``.
        """
        return self.collective.partition("_")[0]

    @property
    def route(self) -> str:
        """Along which edges: ``ring``, ``tree``, ``direct``, ..."""
        return self.collective.partition("_")[2]

    def __str__(self) -> str:
        return (
            self.collective if self.operator == "dense" else f"{self.collective}:{self.density:g}"
        )


class GainCurve(Protocol):
    """What is known of the gains of all densities: a :class:`Spectrum`, or :class:`TriedGains`."""

    @property
    def total(self) -> float:
        """The energy that gains are shares of; where it is 0, infinite or NaN they are no measure."""

    def gain(self, density: float) -> float:
        """Return the share of the energy that is sent at ``density``."""


class Spectrum:
    """How much of a vector's energy its largest values hold, for every density at once.

    Made from a histogram of magnitudes, see :func:`aiops.kernels.energy_histogram`. Between two of its buckets the
    energy is taken to grow in proportion to the count, so that a gain is exact at the edges of buckets, and never more
    than the exact one in between.

    Args:
        counts: int64, shape (buckets,), how many values each holds, by ascending magnitude. Copied.
        energies: float64, shape (buckets,), their sums of squares. Copied.
    """

    __slots__ = ("_energy", "_share", "total")

    def __init__(self, counts: NDArray[np.int64], energies: NDArray[np.float64]) -> None:
        taken = counts > 0
        count = np.cumsum(counts[taken][::-1], dtype=np.float64)
        energy = np.cumsum(energies[taken][::-1], dtype=np.float64)
        n = count[-1] if count.size else 0.0
        self.total = float(energy[-1]) if energy.size else 0.0
        self._share: Sequence[float] = [0.0, *(count / n).tolist()] if n else [0.0, 1.0]
        # A gradient that is not finite is no measure either.
        whole = energy / self.total if 0 < self.total < math.inf else np.zeros(count.size)
        self._energy: Sequence[float] = [0.0, *whole.tolist()] if n else [0.0, 0.0]

    def gain(self, density: float) -> float:
        """Return the share of the energy that the largest ``density`` of the values hold; 1 of a vector of zeros.

        0 of one that is not finite.

        It is the compression gain of GraVAC (Tyagi and Swany, 2023) and of AR-Topk, ||Topk(G)||^2 / ||G||^2.
        """
        if self.total <= 0:
            return 1.0
        at = min(max(bisect.bisect_left(self._share, density), 1), len(self._share) - 1)
        left, right = self._share[at - 1], self._share[at]
        part = min((density - left) / (right - left), 1.0)
        return self._energy[at - 1] + part * (self._energy[at] - self._energy[at - 1])


class TriedGains:
    """Gains that were measured in trials at a few densities, and what they say of the others.

    Between two densities the gain is taken to grow in proportion to the density's logarithm, and to reach 1 where
    everything is sent. Below the smallest it is that one's.

    Args:
        gains: Mean gain by density, in [0, 1]; at least one. Densities are in (0, 1]. Copied.

    Attributes:
        total: 1: gains are shares already.
    """

    __slots__ = ("_gains", "_logs", "total")

    def __init__(self, gains: Mapping[float, float]) -> None:
        known = sorted({**gains, 1.0: 1.0}.items())
        self._logs = [math.log(density) for density, _ in known]
        self._gains = [gain for _, gain in known]
        self.total = 1.0

    def gain(self, density: float) -> float:
        """Return the share of the energy that is sent at ``density``."""
        return float(np.interp(math.log(density), self._logs, self._gains))


class Seen(msgspec.Struct, frozen=True):
    """What is known after a step.

    Attributes:
        step: Steps finished, from 1.
        exchange: How this step's gradients were exchanged.
        network: What the links are like now; None until that is known.
        compute_s: Smoothed time of a step without its exchange; 0 until it is known.
        gain: Share of the energy of all ranks' gradients and residuals that this step sent, in [0, 1].
        votes: How many ranks wanted it, where they vote, see :class:`VotingJudge`.
    """

    step: int
    exchange: Exchange
    network: Network | None
    compute_s: float
    gain: float
    votes: int = 0


class Plan(msgspec.Struct, frozen=True):
    """How the next steps' gradients are exchanged, and a sentence for people that says why."""

    exchange: Exchange
    reason: str


class Judge(Protocol):
    """The decisions of one training: told each step what was seen, asked for a plan where it wants to make one."""

    @property
    def first(self) -> Exchange:
        """How the first step's gradients are exchanged."""

    @property
    def probes(self) -> bool:
        """Whether the links have to be measured for it."""

    @property
    def trials(self) -> tuple[Exchange, ...]:
        """What has to be tried before a plan is made, at these links; nothing where a spectrum is enough.

        Their number and their densities never change.
        """

    def observe(self, seen: Seen) -> bool:
        """Note a step; return whether a plan is wanted now, for which the gains are then measured."""

    def decide(self, curve: GainCurve) -> Plan | None:
        """Return what changes, after an :meth:`observe` that was true; None where nothing does.

        Args:
            curve: The next gradient's spectrum, or what :attr:`trials` came to.
        """


@runtime_checkable
class VotingJudge(Judge, Protocol):
    """A judge that decides by what the ranks want: each rank's own votes, rank 0's alone observes and decides."""

    def vote(self, spectrum: Spectrum) -> bool:
        """Return whether this rank is for it, by its gradient and residual; asked once a step."""


class Density(Protocol):
    """Which share of the gradient is sent, and by which collective?"""

    def judge(self, load: Load, collectives: Sequence[str]) -> Judge:
        """Return the decisions of one training.

        Args:
            load: What there is to exchange.
            collectives: What the job can do, names of :data:`aiops.policy.cost.COSTS`, the preferred ones first.
        """
