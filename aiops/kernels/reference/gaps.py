"""The codes of gaps between ascending positions, in numpy; ``aiops/kernels/gaps.py`` tells them."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from aiops.kernels.reference._bits import U8, U32, first

PACK_BLOCK, RICE_BLOCK = 128, 256
MOST_WIDTH, MOST_RICE = 32, 31
FINE, OUTSIDE, ENDS, WIDTH, PADDING, BEHIND = range(6)

Gaps = npt.NDArray[np.int64]


def pack_index(index: U32, n: int, out: U8) -> int:
    """Write ascending positions below n as packed gaps.

    Args:
        index: uint32, shape (k,).
        n: One more than the largest position may be.
        out: uint8, room for the longest code. Written.

    Returns:
        The code's size in bytes, or -1 less the number of the first position that is not above the
        one before it or not below n; ``out`` is without meaning then.
    """
    gaps, wrong = _gaps(index, n)
    size = 0
    for at in range(0, 0 if wrong >= 0 else gaps.size, PACK_BLOCK):
        block = gaps[at : at + PACK_BLOCK]
        width = int(block.max()).bit_length()
        size = _write(out, size, [width], _packed(block, width))
    return size if wrong < 0 else -1 - wrong


def unpack_index(code: U8, n: int, out: U32) -> tuple[int, int]:
    """Write the positions that packed gaps stand for.

    Args:
        code: uint8, any bytes.
        n: As when it was encoded.
        out: uint32, shape (k,). Written; without meaning where there is a fault.

    Returns:
        The fault, and where it is: 0; 1 a position is n or more; 2 the code ends in the block of a
        position; 3 a block's width is none; 4 a block has bits set where none may be; 5 so many
        bytes are left over.
    """
    index = -1
    for at in range(0, out.size, PACK_BLOCK):
        count = min(PACK_BLOCK, out.size - at)
        fault, gaps, code = _lows(code, count, MOST_WIDTH)
        if fault:
            return fault, at
        position = index + np.cumsum(gaps + 1)
        if position[-1] >= n:
            return OUTSIDE, at + first(position >= n)
        out[at : at + count] = position
        index = int(position[-1])
    return (BEHIND if code.size else FINE), code.size


def rice_index(index: U32, n: int, out: U8) -> int:
    """Write ascending positions below n as gaps after Rice; else as :func:`pack_index`.

    Args:
        index: uint32, shape (k,).
        n: One more than the largest position may be.
        out: uint8, room for the longest code. Written.
    """
    gaps, wrong = _gaps(index, n)
    size = 0
    for at in range(0, 0 if wrong >= 0 else gaps.size, RICE_BLOCK):
        block = gaps[at : at + RICE_BLOCK]
        choices = np.arange(MOST_RICE + 1)
        bits = (block[:, np.newaxis] >> choices).sum(axis=0) + block.size * (choices + 1)
        rice = int(bits.argmin())
        places = np.cumsum((block >> rice) + 1) - 1
        unary = np.zeros(places[-1] + 1, np.uint8)
        unary[places] = 1
        low = _packed(block & (1 << rice) - 1, rice)
        size = _write(out, size, [rice], low, np.packbits(unary, bitorder="little"))
    return size if wrong < 0 else -1 - wrong


def unrice_index(code: U8, n: int, out: U32) -> tuple[int, int]:
    """Write the positions that gaps after Rice stand for; else as :func:`unpack_index`.

    Args:
        code: uint8, any bytes.
        n: As when it was encoded.
        out: uint32, shape (k,). Written; without meaning where there is a fault.
    """
    index = -1
    for at in range(0, out.size, RICE_BLOCK):
        count = min(RICE_BLOCK, out.size - at)
        rice = int(code[0]) if code.size else 0
        fault, low, code = _lows(code, count, MOST_RICE)
        if fault:
            return fault, at
        unary = np.unpackbits(code, bitorder="little")
        places = np.flatnonzero(unary)[:count]
        # A longer gap is outside already, and would not fit into 64 bits.
        high = np.minimum(np.diff(places, prepend=-1) - 1, ((n - 1) >> rice) + 1)
        position = index + np.cumsum((high << rice) + low[: places.size] + 1)
        outside = first(position >= n)
        if outside >= 0:
            return OUTSIDE, at + outside
        if places.size < count:
            return ENDS, at + places.size
        end = int(places[-1]) // 8 + 1
        if unary[places[-1] + 1 : 8 * end].any():
            return PADDING, at
        out[at : at + count] = position
        index, code = int(position[-1]), code[end:]
    return (BEHIND if code.size else FINE), code.size


# The gaps, and the number of the first position that is not above the one before it or not below n.
def _gaps(index: U32, n: int) -> tuple[Gaps, int]:
    position = index.astype(np.int64)
    gaps = position - 1
    gaps[1:] -= position[:-1]
    gaps[:1] += 1
    return gaps, first((gaps < 0) | (index >= n))


def _write(out: U8, at: int, *parts: list[int] | U8) -> int:
    for part in parts:
        out[at : at + len(part)] = part
        at += len(part)
    return at


def _packed(gaps: Gaps, width: int) -> U8:
    bits = (gaps[:, np.newaxis] >> np.arange(width) & 1).astype(np.uint8)
    return np.packbits(bits, bitorder="little")


# What a block begins with: a width and as many bits of each gap; and the rest of the code.
def _lows(code: U8, count: int, most: int) -> tuple[int, Gaps, U8]:
    none = np.empty(0, np.int64)
    if code.size == 0:
        return ENDS, none, code
    width = int(code[0])
    if width > most:
        return WIDTH, none, code
    end = 1 + -(-count * width // 8)
    if code.size < end:
        return ENDS, none, code
    bits = np.unpackbits(code[1:end], bitorder="little")
    if bits[count * width :].any():
        return PADDING, none, code
    return FINE, bits[: count * width].reshape(count, width) @ (1 << np.arange(width)), code[end:]
