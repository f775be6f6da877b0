"""Compressed answers: what a round changed, coded once for everybody, and what that left behind.

With T the round's update and what earlier ones left behind, T is coded into a payload s and a rest e, and the next
version is the old one plus what s says: the very sum that a worker makes of its copy. So published snapshots are the
same for everybody, whether they come whole or as s, and e goes into the next T (two-way error feedback, DoubleSqueeze,
Tang et al., 2019).
"""

from __future__ import annotations

import msgspec
import numpy as np

from aiops.codec.base import ChosenCodec, Codec, PlacedCodec, Residual, Vector
from aiops.types import Key


class Coded(msgspec.Struct):
    """One round's payloads and rests by key, in the making."""

    payloads: dict[Key, memoryview] = {}
    rests: dict[Key, Residual | None] = {}


class Downlink:
    """One shard's side of it. :meth:`encode` may happen in another thread; everything else belongs to the loop thread.

    Args:
        codec: How updates travel down.

    Attributes:
        ending: Whether the next round, whose values travel, takes all that is left over, so that nothing is lost when
            this ends.
    """

    __slots__ = ("_coded", "_placed", "_spares", "codec", "ending")

    def __init__(self, codec: Codec) -> None:
        self.codec = codec
        self.ending = False
        self._placed = isinstance(codec, ChosenCodec)
        self._coded = Coded()
        # Rests that nobody needs any more: the next ones go to their memory.
        self._spares: dict[Key, Residual | None] = {}

    def payload(self, key: Key) -> memoryview:
        """Return what the newest round changed in a bucket; it never changes itself."""
        return self._coded.payloads[key]

    def encode(
        self,
        key: Key,
        update: Vector,
        old: Vector,
        *,
        out: Vector,
        coded: Coded,
        place: PlacedCodec | None = None,
    ) -> None:
        """Code an update with what is left of earlier ones, and write the version that comes of it.

        Args:
            key: The bucket.
            update: float32, shape (n,), finite: what the round would change. Read only.
            old: float32, shape (n,): the published values. Read only.
            out: float32, shape (n,), writable: receives the next ones.
            coded: Where payload and rest go.
            place: Where all pushes of the round had their values, in this bucket; None where each had its own.

        Raises:
            NotFinite: A value cannot be represented on the wire.
        """
        rest = self._coded.rests.get(key)
        if self.ending:
            np.add(old, update, out=out)
            if rest is not None:
                out += rest
            return
        codec = self.codec
        if self._placed:
            # A push of any other kind was refused, and every worker of the round knows the positions.
            assert place is not None, "config has refused updates that are coded otherwise"
            codec = place
        if rest is None:
            rest = codec.init(update.size)
        arrays, left = codec.encode(update, rest, spare=self._spares.pop(key, None))
        # In memory of its own: the arrays may be views of the update.
        payload = memoryview(b"".join([array.data for array in arrays if array.size]))
        np.copyto(out, old)
        codec.add_to(out, payload, 1.0)
        coded.payloads[key], coded.rests[key] = payload, left

    def keep(self, coded: Coded) -> None:
        """Go on from a round that counts."""
        self._spares.update(self._coded.rests)
        self._coded = coded

    def drop(self, coded: Coded) -> None:
        """Forget a round that does not count; what earlier ones left behind stays."""
        self._spares.update(coded.rests)
