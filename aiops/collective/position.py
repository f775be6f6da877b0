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
        decode: Bytes, k and n to uint32, shape (k,), strictly ascending and below n; ValueError where they are not.
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


def _decode_raw(code: Bytes, k: int, n: int) -> Positions:
    if code.size != 4 * k:
        raise ValueError(f"{code.size} bytes for {k} positions of 4 bytes")
    index = np.frombuffer(code.tobytes(), "<u4").astype(np.uint32, copy=False)
    if k and (int(index[-1]) >= n or not (index[1:] > index[:-1]).all()):
        raise ValueError(f"positions do not ascend, or not to below {n}")
    return index


# Every index goes by value: the kernels take optional outputs that nobody here has.
POSITIONS: dict[str, PositionCode] = {
    code.name: code
    for code in (
        PositionCode(
            "raw",
            lambda index, n: index.astype("<u4").view(np.uint8),
            _decode_raw,
            lambda k, n: 4 * k,
            fixed=True,
        ),
        PositionCode(
            "elias",
            lambda index, n: encode_index(index, n),
            lambda code, k, n: decode_index(np.ascontiguousarray(code), k, n),
            index_bytes,
            fixed=True,
        ),
        PositionCode(
            "packed",
            lambda index, n: pack_index(index, n),
            lambda code, k, n: unpack_index(np.ascontiguousarray(code), k, n),
            packed_bytes_most,
            fixed=False,
        ),
        PositionCode(
            "rice",
            lambda index, n: rice_index(index, n),
            lambda code, k, n: unrice_index(np.ascontiguousarray(code), k, n),
            rice_bytes_most,
            fixed=False,
        ),
    )
}
