"""The numeric doors of a server: how the pushes of a round become parameters.

What stands behind them knows float32 vectors and scalars: no frame, codec, key, worker or round. It is handed one piece
of a bucket at a time, of at most half a megabyte, in a shard's thread, and keeps nothing: state comes in and is changed
in place, on a copy that counts only if the merge does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias, runtime_checkable

import numpy as np
from numpy.typing import NDArray

Vector: TypeAlias = NDArray[np.float32]


class Compensation(Protocol):
    """What makes a push that started from older parameters fit the present ones, before it is weighed and summed."""

    @property
    def name(self) -> str:
        """The text it is configured by, such as ``"dcasgd:0.04,0.1"``."""

    @property
    def initial(self) -> Sequence[float]:
        """The value that each of its state vectors starts from, which it keeps for every worker; empty for none."""

    @property
    def averages(self) -> bool:
        """Whether it is for running statistics as well."""

    @property
    def local_steps(self) -> int | None:
        """The number of local steps that a push must consist of; None means any."""

    def correct(
        self, update: Vector, params: Vector, base: Vector, state: Sequence[Vector], out: Vector
    ) -> int:
        """Write the corrected push and bring its worker's state forward.

        Args:
            update: float32, shape (n,): the push. Read only.
            params: float32, shape (n,): what it is merged into. Read only.
            base: float32, shape (n,): the parameters that it started from. Read only.
            state: One float32 vector of shape (n,) for each of :attr:`initial`, changed in place.
            out: float32, shape (n,), writable, apart from the others.

        Returns:
            The position of the first state that is NaN or infinite, or -1. What is written is checked once merged.
        """


class Aggregation(Protocol):
    """How many pushes become one update."""

    @property
    def name(self) -> str:
        """The text it is configured by, such as ``"trimmed_mean:0.1"``."""

    @property
    def linear(self) -> bool:
        """Whether :meth:`combine` is the weighted sum, so that a sparse push may be added without decoding it."""

    @property
    def robust(self) -> bool:
        """Whether it compares the pushes of a round with each other: they then all weigh the same."""

    @property
    def least(self) -> int:
        """The fewest pushes of a round that it can make something of, >= 1."""

    def combine(self, updates: Sequence[Vector], weights: Sequence[float], out: Vector) -> None:
        """Write what the pushes come to.

        Args:
            updates: float32 vectors of one shape (n,), at least one. Read only.
            weights: One per push; they are equal where the rule is robust.
            out: float32, shape (n,), writable, apart from the others.
        """


@runtime_checkable
class Selection(Aggregation, Protocol):
    """An aggregation that first chooses between the pushes, as wholes, over all buckets of all shards."""

    def compare(self, updates: Sequence[Vector]) -> NDArray[np.float64]:
        """Return float64, shape (pushes, pushes): what these pieces contribute to the pushes' distances.

        The contributions of all pieces are added up. ``updates`` holds a piece of every push, zeros where it has none.
        """

    def select(self, distances: NDArray[np.float64]) -> Sequence[float]:
        """Return one weight per push.

        Raises:
            Refused: The round has too few pushes to choose from.
        """


class ServerOptimizer(Protocol):
    """How one update, which points downhill, moves the parameters."""

    @property
    def name(self) -> str:
        """The text it is configured by, such as ``"nesterov:0.7,0.9"``."""

    @property
    def initial(self) -> Sequence[float]:
        """The value that each of its state vectors starts from; empty where it keeps none."""

    def step(self, params: Vector, update: Vector, state: Sequence[Vector], out: Vector) -> int:
        """Write the new parameters and bring the state forward.

        Args:
            params: float32, shape (n,). Read only.
            update: float32, shape (n,), what the round's pushes come to. Read only.
            state: One float32 vector of shape (n,) for each of :attr:`initial`, changed in place.
            out: float32, shape (n,), writable, apart from the others. Receives the new parameters.

        Returns:
            The position of the first parameter or state that is NaN or infinite, or -1.
        """


@dataclass(frozen=True, slots=True)
class Rules:
    """How a server's rounds become parameters.

    Attributes:
        aggregation: How many pushes become one update.
        optimizer: How it moves the parameters.
        compensation: What each push is corrected by before; None leaves them as they are.
    """

    aggregation: Aggregation
    optimizer: ServerOptimizer
    compensation: Compensation | None = None
