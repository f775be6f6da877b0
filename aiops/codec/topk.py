"""The largest values only, with error feedback for the rest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from aiops.codec.base import Payload, Residual, Vector
from aiops.codec.payload import as_array
from aiops.errors import ConfigError, NotFinite, ShapeMismatch
from aiops.kernels import Feedback, feedback_topk, first_nonfinite, scatter_add

# An index (uint32) and a value (float32).
PAIR_BYTES = 8


@dataclass(frozen=True, slots=True)
class TopK:
    """The k values of largest magnitude, with memory (Stich et al., 2018; Lin et al., 2018).

    Of n values k = max(1, round(density * n)) are sent, none of an empty bucket; Python's ``round`` goes to the
    even neighbour at .5. What is not sent stays in the residual and is added to the next update, so that over
    many rounds nothing is lost. The payload is k little-endian uint32 indices, ascending, then their k float32
    values: k is the payload's size divided by 8, and a receiver need not know the density.

    Attributes:
        density: k/n, in (0, 1].
    """

    density: float

    def __post_init__(self) -> None:
        check_density(self.density)

    @property
    def name(self) -> str:
        """The name it is configured by, with its density."""
        return f"topk:{self.density!r}"

    @property
    def wire_id(self) -> int:
        """Its number in the frame header."""
        return 4

    @property
    def dtype(self) -> str:
        """Element type of the values on the wire."""
        return "float32"

    def init(self, n: int) -> Residual | None:
        """Return ``n`` zeros."""
        return np.zeros(n, np.float32)

    def encode(
        self, update: Vector, residual: Residual | None, *, spare: Residual | None = None
    ) -> tuple[Sequence[NDArray[np.generic]], Residual | None]:
        """Return indices and values of the k largest of update plus residual, and the rest.

        Of equal magnitudes the lower index is sent. Indices and values are in memory of their own, and so is the
        rest, unless it is in ``spare``.

        Args:
            update: float32, shape (n,), finite; left untouched.
            residual: float32, shape (n,); left untouched. None counts as zeros.
            spare: float32, shape (n,), apart from both; receives the rest.

        Raises:
            NotFinite: Update plus residual overflows float32; the message names the position.
        """
        step, rest = move_largest(update, residual, kept(self.density, update.size), spare)
        return (step.index, step.value), rest

    def check(self, payload: Payload, n: int) -> int:
        """Return the position in the bucket of the first value that is not finite, or -1.

        Raises:
            ShapeMismatch: The payload is not 1..``n`` whole pairs (none for an empty bucket), or an index is
                not below ``n``.
        """
        k, rest = divmod(payload.nbytes, PAIR_BYTES)
        if rest or not min(n, 1) <= k <= n:
            raise ShapeMismatch(
                f"topk payload has {payload.nbytes} bytes, a bucket of {n} values "
                f"needs {PAIR_BYTES} each for {min(n, 1)} to {n} of them"
            )
        index, value = _split(payload)
        if k and int(index.max()) >= n:
            at = int(np.argmax(index >= n))
            raise ShapeMismatch(f"topk index[{at}] is {index[at]}, the bucket has {n} values")
        bad = first_nonfinite(value)
        return bad if bad < 0 else int(index[bad])

    def add_to(self, acc: Vector, payload: Payload, weight: float) -> None:
        """Add ``weight`` times each value to ``acc`` at its index, in place; duplicates add up."""
        scatter_add(acc, *_split(payload), weight)

    def payload_bytes(self, n: int) -> int:
        """Return 8 * k for a bucket of ``n`` values."""
        return PAIR_BYTES * kept(self.density, n)


def check_density(density: object) -> None:
    """Refuse what is no share of values that can be sent.

    Raises:
        ConfigError: ``density`` is not a number in (0, 1].
    """
    if not (isinstance(density, int | float) and 0 < density <= 1) or density is True:
        raise ConfigError(f"topk's density is {density!r}, it must be in (0, 1]")


def kept(density: float, n: int) -> int:
    """Return how many of ``n`` values are sent."""
    return max(1, round(density * n)) if n else 0


def move_largest(
    update: Vector, residual: Residual | None, k: int, spare: Residual | None
) -> tuple[Feedback, Vector]:
    """Return the k largest of update plus residual, and the rest, which is in ``spare`` if given.

    Raises:
        NotFinite: Update plus residual overflows float32; the message names the position.
    """
    if residual is None:
        residual = np.zeros_like(update)
    try:
        rest = np.empty_like(update) if spare is None else spare
        return feedback_topk(residual, update, k, out=rest), rest
    except ValueError:
        with np.errstate(over="ignore", invalid="ignore"):
            total = update + residual
        require_finite(total)
        raise


def require_finite(total: Vector) -> None:
    """Refuse a sum of update and residual that overflows float32.

    Raises:
        NotFinite: It does; the message names the position.
    """
    at = first_nonfinite(total)
    if at >= 0:
        raise NotFinite(
            f"update plus residual is {total[at]:g} at position {at}, "
            "the largest float32 is 3.4028e+38"
        ) from None


def _split(payload: Payload) -> tuple[NDArray[np.uint32], NDArray[np.float32]]:
    half = payload.nbytes // 2
    return as_array(payload[:half], np.uint32), as_array(payload[half:], np.float32)


def topk(density: float) -> TopK:
    """Return the codec that sends the largest values and remembers the rest.

    Args:
        density: Share of the values that is sent, in (0, 1]; 0.01 is usual.
    """
    return TopK(density)
