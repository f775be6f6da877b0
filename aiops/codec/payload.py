"""Payload bytes as arrays: the one place where codecs look at memory that came from a peer."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from aiops.codec.base import Payload
from aiops.errors import ShapeMismatch

# Made from their names, these are the objects that numpy itself uses, which kernels know at one look.
_LITTLE_ENDIAN: dict[type[Any], np.dtype[Any]] = {
    item: np.dtype(np.dtype(item).newbyteorder("<").str)
    for item in (np.float32, np.uint32, np.uint16, np.uint8, np.int8)
}


def as_array(payload: Payload, dtype: type[Any]) -> NDArray[Any]:
    """Return a read view of ``payload`` as little-endian ``dtype``, shape (bytes / item size,).

    The view borrows the payload's memory. Kernels want aligned items, so a payload that starts at an odd
    address is copied.

    Args:
        payload: Bytes whose number is a multiple of the item size.
        dtype: numpy scalar type of the items: float32, or an integer of 1, 2 or 4 bytes as codecs have them.
    """
    array = np.frombuffer(payload, _LITTLE_ENDIAN[dtype])
    return array if array.flags.aligned else array.copy()


def require_bytes(codec: str, payload: Payload, n: int, expected: int) -> None:
    """Refuse a payload of another size than a bucket of ``n`` values has.

    Raises:
        ShapeMismatch: The size differs from ``expected`` bytes.
    """
    if payload.nbytes != expected:
        raise ShapeMismatch(
            f"{codec} payload has {payload.nbytes} bytes, a bucket of {n} values needs {expected}"
        )
