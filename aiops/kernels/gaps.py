"""Checked faces of two codes of ascending positions that store the gaps between them.

Beside :func:`aiops.kernels.encode_index`, whose size depends on how many positions there are alone,
these adapt to where they lie. Gaps after Rice are the shortest: within 2.5 % of the entropy where
positions are spread evenly, and 10 to 20 % shorter than the other code where layers differ, as those
of gradients do. Packed gaps are longer than it unless positions come in tight clumps. Both take
more time: 0.7 ns per position packed and 1.5 to 1.8 after Rice, either way, against 0.2 (EPYC).

A position's gap is the number of positions between it and the one before, or before the first. Both
codes are a sequence of blocks, each at a byte, of 128 or 256 gaps; the last may have fewer. Bits
fill bytes from the lowest one on, and what is left of a byte is zero. Nothing follows the last
block, and no positions have no code: where a code ends is for whoever carries it to say.

Packed (Goldstein et al., 1998), 128 gaps:
    uint8   width, 0 to 32: the bits of the widest gap
    bits    ``width`` bits of each gap; ceil(count * width / 8) bytes
After Rice (1979), 256 gaps:
    uint8   rice, 0 to 31: the encoder takes the one that makes the block shortest
    bits    the lowest ``rice`` bits of each gap; ceil(count * rice / 8) bytes
    bits    for each gap as many zeros as ``gap >> rice`` says, and a one; whole bytes

Bits per position at densities .1, .033, .011, .004 and .001, positions spread evenly: packed 6.20,
7.91, 9.43, 10.98 and 12.97; after Rice 4.80, 6.45, 8.02, 9.53 and 11.53; the entropy 4.69, 6.34,
7.94, 9.41 and 11.4.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from aiops.kernels import _backend, _check
from aiops.kernels._check import U8, U32, UINT8, UINT32

PACK_BLOCK, RICE_BLOCK = 128, 256

# Answers of the decoding twins, and what they say of the number that comes with each.
FAULTS = {
    2: "ends within the block of position {}",
    3: "has no width that may be before position {}",
    4: "has bits set where none may be in the block of position {}",
    5: "goes on for {} bytes behind the last position",
}


class _Encode(Protocol):
    def __call__(self, index: U32, n: int, out: U8) -> int: ...


class _Decode(Protocol):
    def __call__(self, code: U8, n: int, out: U32) -> tuple[int, int]: ...


def packed_bytes_most(k: int, n: int) -> int:
    """Return how many bytes the packed gaps of ``k`` positions below ``n`` take at most.

    Args:
        k: How many positions, 0 <= k <= n.
        n: One more than the largest position may be, at most 2**32.

    Raises:
        ValueError: ``k`` or ``n`` is out of range.
    """
    k, n = _check.sizes(k, n)
    whole, rest = divmod(k, PACK_BLOCK)
    size = whole + (rest > 0) + -(-rest * (n - k).bit_length() // 8)
    if whole:
        # A block of some width has a gap of 2 ** (width - 1), and gaps add up to n - k: the sum of
        # widths is largest where they are equal, and some one more.
        width = ((n - k) // whole).bit_length()
        step = 1 << width - 1 if width else 0
        size += PACK_BLOCK // 8 * (whole * width + (n - k - whole * step) // max(step, 1))
    return size


def pack_index(index: U32, n: int, out: U8 | None = None) -> U8:
    """Code ascending positions below ``n`` as packed gaps.

    Releases the GIL.

    Args:
        index: uint32, shape (k,), C-contiguous, strictly ascending. Read only.
        n: One more than the largest position may be, at most 2**32.
        out: uint8, at least packed_bytes_most(k, n) values. Receives the code; a fresh array if
            absent. What follows the code is without meaning, all of it when an error is raised.

    Returns:
        uint8, the code: a view of the beginning of ``out``, or of the fresh array.

    Raises:
        TypeError: An argument has the wrong type or dtype.
        ValueError: ``n`` is out of range, ``out`` is too short or overlaps ``index``, or a position
            is not above the one before it or not below ``n``; the message says which.
    """
    k = _check.vector("index", index, UINT32)
    return _encode(_backend.gaps.pack_index, index, n, packed_bytes_most(k, n), out)


def unpack_index(code: U8, k: int, n: int, out: U32 | None = None) -> U32:
    """Return the positions that packed gaps stand for.

    No byte string makes it read or write outside its arguments, or yields anything but ``k``
    ascending positions below ``n``. Releases the GIL.

    Args:
        code: uint8, C-contiguous: the code and nothing else. Read only; may come from a peer.
        k: How many positions it holds.
        n: As when it was encoded, or another limit.
        out: uint32, shape (k,). Receives the positions; a fresh array if absent. Without meaning
            when an error is raised.

    Returns:
        ``out``, or the fresh array.

    Raises:
        TypeError: An argument has the wrong type or dtype.
        ValueError: ``k`` or ``n`` is out of range, ``out`` has the wrong shape or overlaps ``code``,
            or ``code`` is no code of ``k`` positions; the message says where.
    """
    return _decode(_backend.gaps.unpack_index, code, k, n, out)


def rice_bytes_most(k: int, n: int) -> int:
    """Return how many bytes the gaps after Rice of ``k`` positions below ``n`` take at most.

    Args:
        k: How many positions, 0 <= k <= n.
        n: One more than the largest position may be, at most 2**32.

    Raises:
        ValueError: ``k`` or ``n`` is out of range.
    """
    k, n = _check.sizes(k, n)
    if k == 0:
        return 0
    # No block is longer with its own parameter than with one for all, and gaps add up to n - k.
    bits = min(k * (rice + 1) + (n - k >> rice) for rice in range(32))
    blocks = -(-k // RICE_BLOCK)
    # Unary bits end within a byte in each block, the lowest ones in the last block alone.
    return blocks + (bits + 7 * blocks + 7) // 8


def rice_index(index: U32, n: int, out: U8 | None = None) -> U8:
    """Code ascending positions below ``n`` as gaps after Rice.

    Releases the GIL.

    Args:
        index: uint32, shape (k,), C-contiguous, strictly ascending. Read only.
        n: One more than the largest position may be, at most 2**32.
        out: uint8, at least rice_bytes_most(k, n) values. Receives the code; a fresh array if
            absent. What follows the code is without meaning, all of it when an error is raised.

    Returns:
        uint8, the code: a view of the beginning of ``out``, or of the fresh array.

    Raises:
        TypeError: An argument has the wrong type or dtype.
        ValueError: ``n`` is out of range, ``out`` is too short or overlaps ``index``, or a position
            is not above the one before it or not below ``n``; the message says which.
    """
    k = _check.vector("index", index, UINT32)
    return _encode(_backend.gaps.rice_index, index, n, rice_bytes_most(k, n), out)


def unrice_index(code: U8, k: int, n: int, out: U32 | None = None) -> U32:
    """Return the positions that gaps after Rice stand for.

    No byte string makes it read or write outside its arguments, or yields anything but ``k``
    ascending positions below ``n``. Releases the GIL.

    Args:
        code: uint8, C-contiguous: the code and nothing else. Read only; may come from a peer.
        k: How many positions it holds.
        n: As when it was encoded, or another limit.
        out: uint32, shape (k,). Receives the positions; a fresh array if absent. Without meaning
            when an error is raised.

    Returns:
        ``out``, or the fresh array.

    Raises:
        TypeError: An argument has the wrong type or dtype.
        ValueError: ``k`` or ``n`` is out of range, ``out`` has the wrong shape or overlaps ``code``,
            or ``code`` is no code of ``k`` positions; the message says where.
    """
    return _decode(_backend.gaps.unrice_index, code, k, n, out)


def _encode(encode: _Encode, index: U32, n: int, most: int, out: U8 | None) -> U8:
    if out is None:
        out = np.empty(most, np.uint8)
    else:
        if _check.vector("out", out, UINT8, written=True) < most:
            raise ValueError(
                f"out has {out.size} values, it must have at least {most},"
                f" as {index.size} positions below {n} may need"
            )
        _check.apart("out", out, "index", index)
    size = encode(index, n, out)
    if size < 0:
        bad = -1 - size
        raise ValueError(f"index[{bad}] is {index[bad]}, {_check.ascending(bad, n)}")
    return out[:size]


def _decode(decode: _Decode, code: U8, k: int, n: int, out: U32 | None) -> U32:
    k, n = _check.sizes(k, n)
    _check.vector("code", code, UINT8)
    if out is None:
        out = np.empty(k, np.uint32)
    else:
        _check.vector("out", out, UINT32, length=k, like="which is k", written=True)
        _check.apart("out", out, "code", code)
    fault, at = decode(code, n, out)
    if fault == 1:
        raise ValueError(f"position {at} of the index code is not below {n}")
    if fault:
        raise ValueError(f"the index code {FAULTS[fault].format(at)}")
    return out
