"""The values at positions that one worker of a round has chosen for all of them (AR-Topk)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from aiops.codec.base import Payload, PlacedCodec, Positions, Residual, Vector
from aiops.codec.payload import as_array, require_bytes
from aiops.codec.topk import check_density, kept, require_finite
from aiops.errors import LocalProtocolError, ShapeMismatch
from aiops.kernels import (
    check_index,
    decode_index,
    encode_index,
    first_nonfinite,
    gather,
    index_bytes,
    scatter_add,
    select_topk,
)

NOT_CHOSEN = "no positions are chosen for this payload"


@dataclass(frozen=True, slots=True)
class ArTopK:
    """Top-k whose positions the workers of a round share: AR-Topk (Tyagi and Swany, 2023), CLT-k (Chen et al., 2020).

    One worker, another one each round, chooses the k = max(1, round(density * n)) positions at which its update plus
    residual is largest (none of an empty bucket). Every worker sends its values there, and keeps the rest for the next
    round. So positions travel once, and sums are those of contiguous vectors.

    Positions travel in the index code (see :mod:`aiops.kernels.index`), values as k little-endian float32. What is sent
    plus the new residual is, bit for bit, update plus old residual.

    Attributes:
        density: k/n, in (0, 1].
    """

    density: float

    def __post_init__(self) -> None:
        check_density(self.density)

    @property
    def name(self) -> str:
        """The name it is configured by, with its density."""
        return f"artopk:{self.density!r}"

    @property
    def wire_id(self) -> int:
        """Its number in the frame header, of positions and of values."""
        return 10

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
        """Raise LocalProtocolError: which values to send is not known before :meth:`at`."""
        raise LocalProtocolError(NOT_CHOSEN)

    def check(self, payload: Payload, n: int) -> int:
        """Raise ShapeMismatch: values that belong nowhere are nothing."""
        raise ShapeMismatch(f"artopk payload has {payload.nbytes} bytes, and {NOT_CHOSEN}")

    def add_to(self, acc: Vector, payload: Payload, weight: float) -> None:
        """Raise LocalProtocolError: such a payload has not passed :meth:`check`."""
        raise LocalProtocolError(NOT_CHOSEN)

    def payload_bytes(self, n: int) -> int:
        """Return 4 * k for a bucket of ``n`` values."""
        return 4 * kept(self.density, n)

    def total(
        self, update: Vector, residual: Residual | None, *, spare: Residual | None = None
    ) -> Vector:
        """Return update plus residual.

        Args:
            update: float32, shape (n,), finite; left untouched.
            residual: float32, shape (n,); left untouched. None counts as zeros.
            spare: float32, shape (n,), apart from both; receives the sum.

        Raises:
            NotFinite: A sum overflows float32; the message names the position.
        """
        out = np.empty_like(update) if spare is None else spare
        if residual is None:
            np.copyto(out, update)
        else:
            with np.errstate(over="ignore", invalid="ignore"):
                np.add(update, residual, out=out)
        require_finite(out)
        return out

    def choose(self, total: Vector) -> Positions:
        """Return the positions of the k largest of ``total``, ascending; of equal magnitudes the lower wins."""
        index, _ = select_topk(total, kept(self.density, total.size))
        return index

    def at(self, index: Positions, n: int) -> PlacedCodec:
        """Return the codec of the values at these positions, of a bucket of ``n`` values."""
        return AtPositions(self, index, n)

    def write(self, index: Positions, n: int) -> NDArray[np.uint8]:
        """Return the index code of these positions."""
        return encode_index(index, n)

    def read(self, payload: Payload, n: int) -> Positions:
        """Return the positions of a bucket of ``n`` values that a peer has sent.

        Raises:
            ShapeMismatch: The payload is not the index code of k ascending positions below ``n``.
        """
        require_bytes("artopk positions'", payload, n, self.positions_bytes(n))
        k, code = kept(self.density, n), as_array(payload, np.uint8)
        try:
            check_index(code, k, n)
        except ValueError as error:
            raise ShapeMismatch(f"artopk positions: {error}") from None
        return decode_index(code, k, n)

    def positions_bytes(self, n: int) -> int:
        """Return the size of the index code of k positions."""
        return index_bytes(kept(self.density, n), n)


@dataclass(frozen=True, slots=True, eq=False)
class AtPositions:
    """The values of a bucket at chosen positions: k little-endian float32.

    Attributes:
        kind: What it is called by.
        index: uint32, shape (k,), ascending, each below ``n``; read only.
        n: Values of the bucket.
    """

    kind: ArTopK
    index: Positions
    n: int

    @property
    def name(self) -> str:
        """The name of its kind."""
        return self.kind.name

    @property
    def wire_id(self) -> int:
        """The number of its kind."""
        return self.kind.wire_id

    @property
    def dtype(self) -> str:
        """Element type of the values on the wire."""
        return self.kind.dtype

    def init(self, n: int) -> Residual | None:
        """Return ``n`` zeros."""
        return self.kind.init(n)

    def encode(
        self, update: Vector, residual: Residual | None, *, spare: Residual | None = None
    ) -> tuple[Sequence[NDArray[np.generic]], Residual | None]:
        """Return the values of update plus residual at the positions, in memory of their own, and the rest.

        Args:
            update: float32, shape (n,), finite; left untouched.
            residual: float32, shape (n,); left untouched. None counts as zeros.
            spare: float32, shape (n,), apart from both; receives the rest.

        Raises:
            NotFinite: Update plus residual overflows float32; the message names the position.
        """
        rest = self.kind.total(update, residual, spare=spare)
        return (self.take(rest),), rest

    def take(self, total: Vector) -> Vector:
        """Move the values at the positions out of ``total``, float32, shape (n,); return them, shape (k,)."""
        value = gather(total, self.index)
        total[self.index] = 0.0
        return value

    def check(self, payload: Payload, n: int) -> int:
        """Return the position in the bucket of the first value that is not finite, or -1.

        Raises:
            ShapeMismatch: The payload is not a value for each of the positions, or they are of another bucket.
        """
        if n != self.n:
            raise ShapeMismatch(
                f"positions are of a bucket of {self.n} values, the payload is of one of {n}"
            )
        require_bytes("artopk", payload, n, 4 * self.index.size)
        bad = first_nonfinite(self.values(payload))
        return bad if bad < 0 else int(self.index[bad])

    def add_to(self, acc: Vector, payload: Payload, weight: float) -> None:
        """Add ``weight`` times each value to ``acc`` at its position, in place."""
        scatter_add(acc, self.index, self.values(payload), weight)

    def payload_bytes(self, n: int) -> int:
        """Return 4 * k."""
        return 4 * self.index.size

    def values(self, payload: Payload) -> Vector:
        """Return a payload as float32, shape (k,)."""
        return as_array(payload, np.float32)


def artopk(density: float) -> ArTopK:
    """Return the codec that sends the values at the positions that the round's leader has chosen.

    Args:
        density: Share of the values that is sent, in (0, 1]; 0.01 is usual.
    """
    return ArTopK(density)
