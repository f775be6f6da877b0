"""Sixteen bits per value: IEEE half precision and bfloat16."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from aiops.codec.base import Payload, Residual, Vector
from aiops.codec.payload import as_array, require_bytes
from aiops.errors import ConfigError, NotFinite
from aiops.kernels import add_half, first_nonfinite_half, to_half
from aiops.types import HalfName

_NAMES: dict[HalfName, str] = {"float16": "fp16", "bfloat16": "bf16"}
_WIRE_IDS: dict[HalfName, int] = {"float16": 2, "bfloat16": 3}
_LARGEST: dict[HalfName, str] = {"float16": "65504", "bfloat16": "3.3895e+38"}


@dataclass(frozen=True, slots=True)
class Half:
    """All values, rounded to the nearest 16-bit float, ties to even: n little-endian 16-bit words.

    The rounding error is not carried over (nothing is left behind): it is at most 2^-11 (float16) or 2^-8
    (bfloat16) of a value, unbiased over many values, and gone next round. In float16, values below 6.1e-5 lose
    more, relatively: their error is up to 3.0e-8 each.

    Attributes:
        dtype: Element type of the values on the wire, ``"float16"`` or ``"bfloat16"``.
    """

    dtype: HalfName

    def __post_init__(self) -> None:
        if self.dtype not in _NAMES:
            raise ConfigError(f"half's dtype is {self.dtype!r}, known are {', '.join(_NAMES)}")

    @property
    def name(self) -> str:
        """The name it is configured by."""
        return _NAMES[self.dtype]

    @property
    def wire_id(self) -> int:
        """Its number in the frame header."""
        return _WIRE_IDS[self.dtype]

    def init(self, n: int) -> Residual | None:
        """Return None: nothing is kept."""
        return None

    def encode(
        self, update: Vector, residual: Residual | None, *, spare: Residual | None = None
    ) -> tuple[Sequence[NDArray[np.generic]], Residual | None]:
        """Return the rounded values as uint16, in memory of their own.

        Raises:
            NotFinite: A value is beyond the largest 16-bit float; the message names value and position.
        """
        bits = to_half(update, self.dtype)
        at = first_nonfinite_half(bits, self.dtype)
        if at >= 0:
            raise NotFinite(
                f"value {update[at]:g} at position {at} does not fit {self.dtype}, "
                f"the largest is {_LARGEST[self.dtype]}"
            )
        return (bits,), None

    def check(self, payload: Payload, n: int) -> int:
        """Return the position of the first value that is not finite, or -1.

        Raises:
            ShapeMismatch: The payload is not 2 * ``n`` bytes long.
        """
        require_bytes(self.name, payload, n, self.payload_bytes(n))
        return first_nonfinite_half(as_array(payload, np.uint16), self.dtype)

    def add_to(self, acc: Vector, payload: Payload, weight: float) -> None:
        """Add ``weight`` times the payload's values to ``acc``, in place and in float32."""
        add_half(acc, as_array(payload, np.uint16), weight, self.dtype)

    def payload_bytes(self, n: int) -> int:
        """Return 2 * ``n``."""
        return 2 * n


def fp16() -> Half:
    """Return the codec that sends every value as IEEE half precision: 11 significant bits, up to 65504."""
    return Half("float16")


def bf16() -> Half:
    """Return the codec that sends every value as bfloat16: 8 significant bits, the range of float32."""
    return Half("bfloat16")
