"""What is replayed: samples again and again, or records with times of their own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from aiops.errors import ConfigError


class Samples(Protocol):
    """An indexable of samples, each the key and the value of a record."""

    def __len__(self) -> int:
        """Return how many there are."""

    def __getitem__(self, index: int, /) -> tuple[bytes, bytes]:
        """Return the key and the value of one."""


@dataclass(frozen=True, slots=True)
class StampedSample:
    """A record as it once happened.

    Attributes:
        time_s: When, in seconds of any clock.
        key: What it is filed under.
        value: The sample.
    """

    time_s: float
    key: bytes
    value: bytes


class Labelled:
    """Arrays as samples: the label in decimal digits is the key, the row's bytes are the value.

    Args:
        rows: Any dtype, shape (n, ...), C-contiguous rows; kept and read, not copied.
        labels: Integers, shape (n,).

    Raises:
        ConfigError: There are not as many labels as rows.
    """

    def __init__(self, rows: np.ndarray, labels: np.ndarray) -> None:
        if len(rows) != len(labels):
            raise ConfigError(f"{len(rows)} rows but {len(labels)} labels")
        self._rows = rows
        self._labels = labels

    def __len__(self) -> int:
        """Return how many rows there are."""
        return len(self._rows)

    def __getitem__(self, index: int, /) -> tuple[bytes, bytes]:
        """Return label and row."""
        return b"%d" % int(self._labels[index]), self._rows[index].tobytes()


class Around:
    """Samples again and again; record n is the same whenever it is asked for.

    Args:
        samples: At least one.
        seed: Shuffles every pass anew, the same for the same seed; None leaves the order as it is.

    Raises:
        ConfigError: There are no samples.
    """

    def __init__(self, samples: Samples, seed: int | None) -> None:
        if not len(samples):
            raise ConfigError("there are no samples to replay")
        self._samples = samples
        self._seed = seed
        self._order: tuple[int, np.ndarray] | None = None

    def __getitem__(self, index: int, /) -> tuple[bytes, bytes]:
        """Return the key and the value of record ``index``, counted over all passes."""
        turn, place = divmod(index, len(self._samples))
        if self._seed is None:
            return self._samples[place]
        if self._order is None or self._order[0] != turn:
            rng = np.random.default_rng([self._seed, turn])
            self._order = turn, rng.permutation(len(self._samples))
        return self._samples[int(self._order[1][place])]


class Once:
    """Records with times of their own, from first to last.

    Args:
        records: In the order of their times.
    """

    def __init__(self, records: Sequence[StampedSample]) -> None:
        self._records = records

    def __getitem__(self, index: int, /) -> tuple[bytes, bytes]:
        """Return the key and the value of a record."""
        record = self._records[index]
        return record.key, record.value
