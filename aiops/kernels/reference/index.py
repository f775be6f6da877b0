"""The code of ascending positions, in numpy: Elias's and Fano's, see ``src_ext/index.h``."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from aiops.kernels.reference._bits import U8, U32, first

MOST_LOW = 24
FINE, COUNT, PADDING = -1, -2, -3


class Layout(NamedTuple):
    """Where the parts of a code are: ``low`` low bits per position, ``bits`` bits in the bitmap."""

    low: int
    bits: int
    packed: int
    plane: int
    end: int

    @property
    def size(self) -> int:
        """Bytes, padded to eight."""
        return -(-self.end // 8) * 8


def lay(k: int, n: int) -> Layout:
    """Return the layout of the code of ``k`` positions below ``n``."""
    if k == 0:
        return Layout(0, 0, 0, 0, 0)
    low = min((n // k).bit_length() - 1, MOST_LOW)
    bits = ((n - 1) >> low) + k
    packed = -(-bits // 64) * 8
    plane = packed + low % 8 * -(-k // 8)
    return Layout(low, bits, packed, plane, plane + low // 8 * k)


def index_bytes(k: int, n: int) -> int:
    """Return the size of the code of k positions below n, in bytes.

    Args:
        k: How many positions.
        n: One more than the largest position may be.
    """
    return lay(k, n).size


def encode_index(index: U32, n: int, out: U8) -> int:
    """Write the code of ascending positions below n.

    Args:
        index: uint32, shape (k,).
        n: One more than the largest position may be.
        out: uint8, shape (index_bytes(k, n),). Written.

    Returns:
        -1, or the number of the first position that is not above the one before it or not below n;
        ``out`` is without meaning then.
    """
    wrong = _first_wrong(index.astype(np.int64), n)
    if wrong >= 0 or index.size == 0:
        return wrong
    at, k = lay(index.size, n), index.size
    out[:] = 0
    upper = np.zeros(8 * at.packed, np.uint8)
    upper[(index >> np.uint32(at.low)).astype(np.int64) + np.arange(k)] = 1
    out[: at.packed] = np.packbits(upper, bitorder="little")
    rest = at.low % 8
    # One row of bits for each position, the lowest first.
    lows = (index[:, np.newaxis] >> np.arange(at.low, dtype=np.uint32) & 1).astype(np.uint8)
    out[at.packed : at.plane] = np.packbits(
        np.pad(lows[:, :rest], ((0, -k % 8), (0, 0))), bitorder="little"
    )
    for plane, start in enumerate(range(at.plane, at.end, k)):
        column = rest + 8 * plane
        out[start : start + k] = np.packbits(
            lows[:, column : column + 8], axis=1, bitorder="little"
        )[:, 0]
    return FINE


def decode_index(code: U8, n: int, out: U32) -> int:
    """Write the positions that ``code`` stands for.

    Args:
        code: uint8, shape (index_bytes(k, n),).
        n: As when it was encoded.
        out: uint32, shape (k,). Written; without meaning when an error is returned.

    Returns:
        -1, or the number of the first wrong position: n or more, or not above the one before it;
        -2 when the bitmap does not hold k positions, -3 when what must be zero is not.
    """
    wrong, index = read(code, out.size, n)
    if wrong == FINE:
        out[:] = index
        wrong = _first_wrong(index, n)
    return wrong


def check_index(code: U8, k: int, n: int) -> int:
    """Return what :func:`decode_index` would, without keeping the positions.

    Args:
        code: uint8, shape (index_bytes(k, n),).
        k: How many positions it holds.
        n: As when it was encoded.
    """
    return decode_index(code, n, np.empty(k, np.uint32))


def read(code: U8, k: int, n: int) -> tuple[int, npt.NDArray[np.int64]]:
    """Return the positions as they stand, and the number of the first that is n or more, or -1.

    Args:
        code: uint8, shape (index_bytes(k, n),).
        k: How many positions it holds.
        n: As when it was encoded.
    """
    at = lay(k, n)
    upper = np.unpackbits(code[: at.packed], bitorder="little")
    if np.count_nonzero(upper) != k:
        return COUNT, np.empty(0, np.int64)
    rest = at.low % 8
    packed = np.unpackbits(code[at.packed : at.plane], bitorder="little")
    if upper[at.bits :].any() or packed[rest * k :].any() or code[at.end :].any():
        return PADDING, np.empty(0, np.int64)
    index = np.flatnonzero(upper) - np.arange(k) << at.low
    if rest:
        index += packed.reshape(-1, rest)[:k] @ (1 << np.arange(rest))
    for plane, start in enumerate(range(at.plane, at.end, k) if k else ()):
        index += code[start : start + k].astype(np.int64) << (rest + 8 * plane)
    return first(index >= n), index


# The number of the first position that is not above the one before it or not below n, or -1.
def _first_wrong(index: npt.NDArray[np.int64], n: int) -> int:
    return first((np.diff(index, prepend=-1) <= 0) | (index >= n))
