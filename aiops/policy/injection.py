"""Randomised data injection: who shares which of its samples in a step, drawn alike on every rank."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from aiops.errors import ConfigError
from aiops.policy.number import is_count, is_real
from aiops.policy.stream import Draw, Part

# What 0.07 * 100 is above 7, and 0.29 * 100 below 29.
_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class Injection:
    """Randomised data injection of ScaDLES (Tyagi and Swany, 2022), for devices that see different data.

    In each step ceil(alpha N) of N ranks are donors, and each gives floor(beta b) of its b samples to every other rank,
    donors among them. So that a step costs what it did, batches shrink first, b' = b / (1 + beta donors): Eqn 3 of
    SelSync (Tyagi and Swany, 2023), b / (1 + alpha beta N), with as many donors as there really are. It is exact, but
    for rounding, where batches are equal; a donor, who does not receive its own, trains on beta b' samples less.

    Who donates and which samples is drawn from the seed, the step and the rank by raw numbers of a Philox generator,
    which are the same with every version of numpy.

    Attributes:
        alpha: Share of the ranks that donate, in [0, 1]; 0 is nobody.
        beta: Share of its samples that a donor gives, in [0, 1]; 0 is none.
        seed: The same on every rank, from 0 to 2**64 - 1.
    """

    alpha: float
    beta: float
    seed: int = 0

    def __post_init__(self) -> None:
        for name, value in (("alpha", self.alpha), ("beta", self.beta)):
            if not (is_real(value) and 0 <= value <= 1):
                raise ConfigError(f"injection's {name} is {value!r}, it must be in [0, 1]")
        if not (is_count(self.seed) and self.seed < 2**64):
            raise ConfigError(
                f"injection's seed is {self.seed!r}, it must be a whole number from 0 to 2**64 - 1"
            )

    @property
    def name(self) -> str:
        """What names it: ``random:alpha,beta,seed``."""
        return f"random:{self.alpha!r},{self.beta!r},{self.seed}"

    def donors(self, step: int, ranks: int) -> tuple[int, ...]:
        """Return who shares in a step, ascending; nobody where there is nobody to share with.

        Args:
            step: Steps finished.
            ranks: How many there are.
        """
        count = math.ceil(self.alpha * ranks - _ROUNDING) if self.beta > 0 and ranks > 1 else 0
        return self._subset(count, ranks, step, 0)

    def part(self, step: int, batch: int, rank: int, *, donors: int, gives: bool) -> Part:
        """Return one device's part of a step, see :class:`aiops.policy.stream.InjectionRule`.

        Args:
            step: Steps finished, >= 0.
            batch: What it would train on without injection, in samples, >= 0.
            rank: Its number.
            donors: How many devices share.
            gives: Whether it is one of them.
        """
        own = self._own(batch, donors)
        return Part(own, self._subset(self._share(own) if gives else 0, own, step, 1 + rank))

    def plan(self, step: int, batches: Sequence[int], rank: int) -> Draw:
        """Return the draw of a step, see :class:`aiops.policy.stream.InjectionRule`.

        Args:
            step: Steps finished, >= 0.
            batches: What each rank would train on without injection, in samples, >= 0; the same on every rank.
            rank: Who asks.
        """
        donors = self.donors(step, len(batches))
        count, gives = len(donors), set(donors)
        own = tuple(self._own(batch, count) for batch in batches)
        shares = tuple(self._share(kept) if at in gives else 0 for at, kept in enumerate(own))
        given = sum(shares)
        return Draw(
            rank=rank,
            donors=donors,
            own=own,
            shares=shares,
            picks=self._subset(shares[rank], own[rank], step, 1 + rank),
            batches=tuple(kept + given - share for kept, share in zip(own, shares, strict=True)),
        )

    # Who has a sample keeps one.
    def _own(self, batch: int, donors: int) -> int:
        return min(batch, max(1, int(batch / (1.0 + self.beta * donors) + _ROUNDING)))

    def _share(self, own: int) -> int:
        return math.floor(self.beta * own + _ROUNDING)

    # So many of 0..n-1, every subset as likely as any other: those with the smallest of n random numbers.
    def _subset(self, count: int, n: int, step: int, stream: int) -> tuple[int, ...]:
        if not count:
            return ()
        key, counter = (
            np.array([self.seed, step], np.uint64),
            np.array([0, 0, 0, stream], np.uint64),
        )
        numbers = np.random.Philox(key=key, counter=counter).random_raw(n)
        return tuple(sorted(np.argsort(numbers, kind="stable")[:count].tolist()))


def random(alpha: float, beta: float, seed: int = 0) -> Injection:
    """Return ScaDLES' injection: a random share of the ranks gives a random share of its samples to all others.

    Args:
        alpha: Share of the ranks that donate, in [0, 1].
        beta: Share of its samples that a donor gives, in [0, 1].
        seed: The same on every rank.
    """
    return Injection(alpha, beta, seed)
