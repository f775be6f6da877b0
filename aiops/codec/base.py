"""What a codec is: which numbers of an update are sent, and how they are added at the other end.

A codec knows float32 vectors and bytes. It knows no frame, key, worker or connection, and it hides no state: what
compression left behind (the residual) goes in and comes out of :meth:`Codec.encode`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeAlias, runtime_checkable

import numpy as np
from numpy.typing import NDArray

Vector: TypeAlias = NDArray[np.float32]
Residual: TypeAlias = NDArray[np.float32]
Positions: TypeAlias = NDArray[np.uint32]
Payload: TypeAlias = memoryview
"""The bytes of one encoded bucket: format 'B', one dimension, contiguous."""


# The wire id of plain float32: what parameters travel in, and running statistics, whatever the updates do.
DENSE = 1


class Codec(Protocol):
    """One way to turn a bucket's update into bytes and back.

    ``wire_id`` is unique among codecs, 1..255; ``dtype`` is a name of :data:`aiops.types.DTYPE_IDS`.
    """

    @property
    def name(self) -> str:
        """The text it is configured by, such as ``"topk:0.01"``."""

    @property
    def wire_id(self) -> int:
        """Its number in the frame header."""

    @property
    def dtype(self) -> str:
        """Element type of the values on the wire."""

    def init(self, n: int) -> Residual | None:
        """Return the residual before the first encode of a bucket of ``n`` values; None where nothing is kept."""

    def encode(
        self, update: Vector, residual: Residual | None, *, spare: Residual | None = None
    ) -> tuple[Sequence[NDArray[np.generic]], Residual | None]:
        """Encode an update.

        Args:
            update: float32, shape (n,), finite, contiguous; left untouched.
            residual: What the last accepted encode of this bucket returned, or :meth:`init`'s; left untouched, so
                that a caller whose push is refused goes on with the old one.
            spare: A residual that nobody needs any more, whose memory the next one may be written to and returned
                in; fresh memory costs page faults each time. What it holds is lost, on an error too.

        Returns:
            The payload as arrays to be sent one after the other (they may be views of ``update``, which therefore
            must not change before they are sent), and the next residual. Always: what is sent plus the new
            residual equals the update plus the old residual.

        Raises:
            NotFinite: A value cannot be represented on the wire (it overflows a 16-bit float).
        """

    def check(self, payload: Payload, n: int) -> int:
        """Return the position in the bucket of the first value that is not finite, or -1.

        Raises:
            ShapeMismatch: The payload cannot belong to a bucket of ``n`` values (size, or an index outside).
        """

    def add_to(self, acc: Vector, payload: Payload, weight: float) -> None:
        """Add ``weight`` times the encoded update to ``acc``, in place, with no dense intermediate.

        ``payload`` has passed :meth:`check` for ``acc.size`` values. ``acc`` is float32, shape (n,), writable.
        """

    def payload_bytes(self, n: int) -> int:
        """Return the size of an encoded bucket of ``n`` values, in bytes."""


@runtime_checkable
class PlacedCodec(Codec, Protocol):
    """A codec whose payloads hold the values at positions that both ends know, and nothing else."""

    @property
    def index(self) -> Positions:
        """The positions, uint32, shape (k,), ascending; read only."""

    def values(self, payload: Payload) -> Vector:
        """Return a checked payload as float32, shape (k,): a view of it where its memory is aligned."""

    def take(self, total: Vector) -> Vector:
        """Move the values at the positions out of ``total``, which keeps zero there; return them, shape (k,)."""


@runtime_checkable
class ChosenCodec(Codec, Protocol):
    """A codec whose positions one worker of a round chooses for all of them, bucket by bucket.

    As a :class:`Codec` it speaks for every choice: its name, its number, its sizes. What knows positions is :meth:`at`.
    """

    def total(
        self, update: Vector, residual: Residual | None, *, spare: Residual | None = None
    ) -> Vector:
        """Return update plus residual, float32, shape (n,), in ``spare`` or in fresh memory.

        Raises:
            NotFinite: A sum overflows float32.
        """

    def choose(self, total: Vector) -> Positions:
        """Return the positions to choose where update plus residual is ``total``, which is left untouched."""

    def at(self, index: Positions, n: int) -> PlacedCodec:
        """Return the codec of the values at these positions of a bucket of ``n`` values."""

    def write(self, index: Positions, n: int) -> NDArray[np.uint8]:
        """Return positions as they go over the wire, :meth:`positions_bytes` of them."""

    def read(self, payload: Payload, n: int) -> Positions:
        """Return the positions that a peer has sent, in memory of their own.

        Raises:
            ShapeMismatch: They are not as many as there must be, do not ascend, or reach ``n``.
        """

    def positions_bytes(self, n: int) -> int:
        """Return the size of the positions of a bucket of ``n`` values, in bytes."""
