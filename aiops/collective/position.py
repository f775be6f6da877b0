"""How positions are written: as they are, or in fewer bytes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from aiops.collective.request import Bytes, Positions
from aiops.kernels import (
    decode_index,
    encode_index,
    index_bytes,
    pack_index,
    packed_bytes_most,
    rice_bytes_most,
    rice_index,
    unpack_index,
    unrice_index,
)


@dataclass(frozen=True, slots=True)
class PositionCode:
    """One way to write strictly ascending positions below n.

    Attributes:
        name: The name it is configured by.
        encode: Positions and n to uint8, shape (size,).
        decode: Bytes, C-contiguous, k and n to uint32, shape (k,), strictly ascending and below n; ValueError where
            they are not.
        most: The most bytes that k positions below n take.
        fixed: Whether they always take that.
    """

    name: str
    encode: Callable[[Positions, int], Bytes]
    decode: Callable[[Bytes, int, int], Positions]
    most: Callable[[int, int], int]
    fixed: bool

    def expected(self, k: int, n: int) -> int:
        """Return about how many bytes k positions below n take, where nothing of the kind was seen before."""
        return self.most(k, n) if self.fixed else min(self.most(k, n), index_bytes(k, n))


def _encode_raw(index: Positions, n: int) -> Bytes:
    return index.astype("<u4").view(np.uint8)


def _raw_bytes(k: int, n: int) -> int:
    return 4 * k


def _decode_raw(code: Bytes, k: int, n: int) -> Positions:
    if code.size != 4 * k:
        raise ValueError(f"{code.size} bytes for {k} positions of 4 bytes")
    index = np.frombuffer(code.tobytes(), "<u4").astype(np.uint32, copy=False)
    if k and (int(index[-1]) >= n or not (index[1:] > index[:-1]).all()):
        raise ValueError(f"positions do not ascend, or not to below {n}")
    return index


POSITIONS: dict[str, PositionCode] = {
    code.name: code
    for code in (
        PositionCode("raw", _encode_raw, _decode_raw, _raw_bytes, fixed=True),
        PositionCode("elias", encode_index, decode_index, index_bytes, fixed=True),
        PositionCode("packed", pack_index, unpack_index, packed_bytes_most, fixed=False),
        PositionCode("rice", rice_index, unrice_index, rice_bytes_most, fixed=False),
    )
}
