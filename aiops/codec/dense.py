"""The identity: every value of an update as float32."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from aiops.codec.base import DENSE, Payload, Residual, Vector
from aiops.codec.payload import as_array, require_bytes
from aiops.kernels import first_nonfinite, weighted_add


@dataclass(frozen=True, slots=True)
class Dense:
    """All values, exactly: n little-endian float32. Nothing is left behind."""

    name: ClassVar[str] = "dense"
    wire_id: ClassVar[int] = DENSE
    dtype: ClassVar[str] = "float32"

    def init(self, n: int) -> Residual | None:
        """Return None: nothing is kept."""
        return None

    def encode(
        self, update: Vector, residual: Residual | None, *, spare: Residual | None = None
    ) -> tuple[Sequence[NDArray[np.generic]], Residual | None]:
        """Return ``update`` itself; it must not change before it is sent."""
        return (update,), None

    def check(self, payload: Payload, n: int) -> int:
        """Return the position of the first value that is not finite, or -1.

        Raises:
            ShapeMismatch: The payload is not 4 * ``n`` bytes long.
        """
        require_bytes("dense", payload, n, self.payload_bytes(n))
        return first_nonfinite(as_array(payload, np.float32))

    def add_to(self, acc: Vector, payload: Payload, weight: float) -> None:
        """Add ``weight`` times the payload's values to ``acc``, in place."""
        weighted_add(acc, as_array(payload, np.float32), weight)

    def payload_bytes(self, n: int) -> int:
        """Return 4 * ``n``."""
        return 4 * n


def dense() -> Dense:
    """Return the codec that sends every value as it is."""
    return Dense()
