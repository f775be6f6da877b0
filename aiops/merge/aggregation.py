"""Aggregations: the weighted mean, and rules that a minority of wrong pushes cannot lead astray."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from aiops.errors import ConfigError, Refused
from aiops.kernels import merge
from aiops.merge.base import Vector
from aiops.policy.number import is_count

# Values of all pushes together that are sorted at a time: 2 MiB stay in a second-level cache.
SORTED_VALUES = 512 * 1024


@dataclass(frozen=True, slots=True)
class Mean:
    """The weighted sum; the weight rule says whether it is a mean."""

    @property
    def name(self) -> str:
        """The name it is configured by."""
        return "mean"

    @property
    def linear(self) -> bool:
        """True."""
        return True

    @property
    def robust(self) -> bool:
        """False: one push can pull it anywhere."""
        return False

    @property
    def least(self) -> int:
        """1."""
        return 1

    def combine(self, updates: Sequence[Vector], weights: Sequence[float], out: Vector) -> None:
        """Write ``sum weights[i] * updates[i]``, summed in the order given."""
        merge(updates, weights, out=out)


@dataclass(frozen=True, slots=True)
class Median:
    """The median of each coordinate (Yin et al., 2018); of an even number of pushes the mean of the middle two.

    Up to half of the pushes may be arbitrary. Every push counts the same.
    """

    @property
    def name(self) -> str:
        """The name it is configured by."""
        return "median"

    @property
    def linear(self) -> bool:
        """False."""
        return False

    @property
    def robust(self) -> bool:
        """True."""
        return True

    @property
    def least(self) -> int:
        """1: of one or two pushes it is the mean."""
        return 1

    def combine(self, updates: Sequence[Vector], weights: Sequence[float], out: Vector) -> None:
        """Write the median of each coordinate; ``weights`` are equal and do not enter."""
        n = len(updates)
        for rows, values in _sorted(updates, out):
            low, high = rows[(n - 1) // 2], rows[n // 2]
            # Halved before they are added, so that two large values do not overflow.
            np.multiply(low, np.float32(0.5), out=values)
            values += np.float32(0.5) * high


@dataclass(frozen=True, slots=True)
class TrimmedMean:
    """The mean of each coordinate without its largest and smallest values (Yin et al., 2018).

    Of n pushes ceil(share * n) are left out at each end, so that no fewer are than asked for, and at least one or two
    remain. Every push counts the same.

    Attributes:
        share: Share of the pushes left out at each end, in (0, 0.5).
    """

    share: float

    def __post_init__(self) -> None:
        share: object = self.share
        if not (isinstance(share, int | float) and 0 < share < 0.5):
            raise ConfigError(f"trimmed_mean's share is {self.share!r}, it must be in (0, 0.5)")

    @property
    def name(self) -> str:
        """The text it is configured by."""
        return f"trimmed_mean:{self.share!r}"

    @property
    def linear(self) -> bool:
        """False."""
        return False

    @property
    def robust(self) -> bool:
        """True."""
        return True

    @property
    def least(self) -> int:
        """1: of one or two pushes it is the mean."""
        return 1

    def combine(self, updates: Sequence[Vector], weights: Sequence[float], out: Vector) -> None:
        """Write the trimmed mean of each coordinate, summed in float64; ``weights`` are equal and do not enter."""
        n = len(updates)
        # The product of a share such as 0.07 with 100 lies a little above 7, which is no eighth push.
        cut = min(math.ceil(self.share * n - 1e-9), (n - 1) // 2)
        for rows, values in _sorted(updates, out):
            total = np.zeros(len(values))
            for row in rows[cut : n - cut]:
                total += row
            np.divide(total, n - 2 * cut, out=total)
            values[:] = total


@dataclass(frozen=True, slots=True)
class Krum:
    """Krum, and Multi-Krum for m > 1: the mean of the m pushes that lie closest to others (Blanchard et al., 2017).

    The score of a push is the sum of its squared distances to the n - f - 2 nearest others, over the whole model; the m
    lowest are averaged, of equal ones the lower worker. It takes n >= 2 f + 3 pushes, and n >= m + f + 2.

    Attributes:
        f: Pushes that may be arbitrary, >= 0.
        m: Pushes that are averaged, >= 1.
    """

    f: int
    m: int

    def __post_init__(self) -> None:
        settings: tuple[tuple[str, object, int], ...] = (("f", self.f, 0), ("m", self.m, 1))
        for name, value, limit in settings:
            if not is_count(value, limit):
                raise ConfigError(
                    f"krum's {name} is {value!r}, it must be a whole number >= {limit}"
                )

    @property
    def name(self) -> str:
        """The text it is configured by."""
        return f"krum:{self.f},{self.m}"

    @property
    def linear(self) -> bool:
        """True: the mean of those that were chosen."""
        return True

    @property
    def robust(self) -> bool:
        """True."""
        return True

    @property
    def least(self) -> int:
        """The larger one of 2 f + 3 and m + f + 2."""
        return self.f + 2 + max(self.f + 1, self.m)

    def compare(self, updates: Sequence[Vector]) -> NDArray[np.float64]:
        """Return the squared distances of all pairs, summed in float64."""
        n = len(updates)
        squares = np.zeros((n, n))
        gap = np.empty(len(updates[0]))
        for i in range(n):
            for j in range(i + 1, n):
                np.subtract(updates[i], updates[j], out=gap, dtype=np.float64)
                squares[i, j] = squares[j, i] = np.dot(gap, gap)
        return squares

    def select(self, distances: NDArray[np.float64]) -> Sequence[float]:
        """Return 1/m for each of the m pushes with the lowest scores, and 0 for the others.

        Raises:
            Refused: There are fewer pushes than :attr:`least`.
        """
        n = len(distances)
        if n < self.least:
            raise Refused(
                f"{self.name} takes rounds of at least {self.least} pushes, this one has {n}"
            )
        # A push is nearest to itself, at distance 0, which adds nothing.
        nearest = np.sort(distances, axis=1)[:, : n - self.f - 1]
        chosen = np.argsort(nearest.sum(axis=1), kind="stable")[: self.m]
        weights = np.zeros(n)
        weights[chosen] = 1.0 / self.m
        return [float(weight) for weight in weights]

    def combine(self, updates: Sequence[Vector], weights: Sequence[float], out: Vector) -> None:
        """Write the weighted sum of what was chosen."""
        merge(updates, weights, out=out)


def _sorted(updates: Sequence[Vector], out: Vector) -> Iterator[tuple[list[Vector], Vector]]:
    """Yield pieces of the pushes, each coordinate sorted over the pushes, with their place in ``out``."""
    n = len(updates)
    size = len(out)
    width = max(1, min(SORTED_VALUES // n, size))
    memory = np.empty((n + 1, width), np.float32)
    for at in range(0, size, width):
        values = out[at : at + width]
        *rows, spare = (row[: len(values)] for row in memory)
        for row, update in zip(rows, updates, strict=True):
            np.copyto(row, update[at : at + width])
        # Whole rows are exchanged: numpy's sort along the pushes takes 20 times as long for few of them.
        for i, j in _exchanges(n):
            np.minimum(rows[i], rows[j], out=spare)
            np.maximum(rows[i], rows[j], out=rows[j])
            rows[i], spare = spare, rows[i]
        yield rows, values


@cache
def _exchanges(n: int) -> tuple[tuple[int, int], ...]:
    """Return the compare-exchanges that sort any n values: merge exchange (Batcher, 1968)."""
    pairs: list[tuple[int, int]] = []
    top = 1 << max(0, (n - 1).bit_length() - 1)
    p = top if n > 1 else 0
    while p:
        q, r, d = top, 0, p
        while True:
            pairs += [(i, i + d) for i in range(n - d) if i & p == r]
            if q == p:
                break
            d, q, r = q - p, q // 2, p
        p //= 2
    return tuple(pairs)


def mean() -> Mean:
    """Return the weighted sum of the pushes."""
    return Mean()


def median() -> Median:
    """Return the coordinate-wise median."""
    return Median()


def trimmed_mean(share: float) -> TrimmedMean:
    """Return the coordinate-wise trimmed mean.

    Args:
        share: Share of the pushes left out at each end, in (0, 0.5); not less than the share of wrong ones.
    """
    return TrimmedMean(share)


def krum(f: int, m: int = 1) -> Krum:
    """Return Krum, or Multi-Krum for ``m`` > 1.

    Args:
        f: Pushes of a round that may be arbitrary, >= 0.
        m: Pushes that are averaged, >= 1.
    """
    return Krum(f, m)
