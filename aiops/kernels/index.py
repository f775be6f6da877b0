"""Checked faces of the index code: ascending positions in about as few bytes as they can have.

The code is Elias's and Fano's: a bitmap of high parts and the low bits as they are. It is within
0.6 bits per position of the entropy at any density, 1.07 bytes at .01, and its size depends on how
many positions there are and on nothing else. docs/wire.md says what is where.
"""

from __future__ import annotations

import numpy as np

from aiops.kernels import _backend, _check
from aiops.kernels._check import U8, U32, UINT8, UINT32


def index_bytes(k: int, n: int) -> int:
    """Return the size of the code of ``k`` positions below ``n``, in bytes; a multiple of 8.

    Args:
        k: How many positions, 0 <= k <= n.
        n: One more than the largest position may be, at most 2**32.

    Raises:
        ValueError: ``k`` or ``n`` is out of range.
    """
    return _backend.index.index_bytes(*_check.sizes(k, n))


def encode_index(index: U32, n: int, *, out: U8 | None = None) -> U8:
    """Code ascending positions below ``n``.

    Releases the GIL.

    Args:
        index: uint32, shape (k,), C-contiguous, strictly ascending. Read only.
        n: One more than the largest position may be, at most 2**32.
        out: uint8, shape (index_bytes(k, n),). Receives the code; a fresh array if absent. Without
            meaning when an error is raised.

    Returns:
        ``out``, or the fresh array.

    Raises:
        TypeError: An argument has the wrong type or dtype.
        ValueError: ``n`` is out of range, ``out`` has the wrong shape or overlaps ``index``, or a
            position is not above the one before it or not below ``n``; the message says which.
    """
    k, n = _check.sizes(_check.vector("index", index, UINT32), n)
    size = _backend.index.index_bytes(k, n)
    if out is None:
        out = np.empty(size, np.uint8)
    else:
        _check.vector("out", out, UINT8, length=size, like="which is the code's size", written=True)
        _check.apart("out", out, "index", index)
    bad = _backend.index.encode_index(index, n, out)
    if bad >= 0:
        raise ValueError(f"index[{bad}] is {index[bad]}, {_check.ascending(bad, n)}")
    return out


def decode_index(code: U8, k: int, n: int, *, out: U32 | None = None) -> U32:
    """Return the positions that ``code`` stands for.

    No byte string makes it read or write outside its arguments, or yields anything but ``k``
    ascending positions below ``n``. Releases the GIL.

    Args:
        code: uint8, shape (index_bytes(k, n),), C-contiguous. Read only; may come from a peer.
        k: How many positions it holds.
        n: As when it was encoded.
        out: uint32, shape (k,). Receives the positions; a fresh array if absent. Without meaning
            when an error is raised.

    Returns:
        ``out``, or the fresh array.

    Raises:
        TypeError: An argument has the wrong type or dtype.
        ValueError: A size is wrong, ``out`` overlaps ``code``, or ``code`` is no code of ``k``
            positions; the message says where, as the number of a position.
    """
    k, n = _coded(code, k, n)
    if out is None:
        out = np.empty(k, np.uint32)
    else:
        _check.vector("out", out, UINT32, length=k, like="which is k", written=True)
        _check.apart("out", out, "code", code)
    require(_backend.index.decode_index(code, n, out), k, n)
    return out


def check_index(code: U8, k: int, n: int) -> None:
    """Raise what :func:`decode_index` would, without keeping the positions. Releases the GIL.

    Args:
        code: uint8, shape (index_bytes(k, n),), C-contiguous. Read only; may come from a peer.
        k: How many positions it holds.
        n: As when it was encoded.

    Raises:
        TypeError: ``code`` is no numpy array or not uint8.
        ValueError: A size is wrong, or ``code`` is no code of ``k`` positions.
    """
    k, n = _coded(code, k, n)
    require(_backend.index.check_index(code, k, n), k, n)


def require(wrong: int, k: int, n: int) -> None:
    """Raise ValueError for what a twin found wrong with the code of ``k`` positions below ``n``.

    Args:
        wrong: The twin's answer, -1 if nothing is wrong.
        k: How many positions there should be.
        n: One more than the largest position may be.
    """
    if wrong >= 0:
        raise ValueError(
            f"position {wrong} of the index code is wrong, {_check.ascending(wrong, n)}"
        )
    if wrong < -1:
        fault = f"does not hold {k} positions" if wrong == -2 else "has bits set where none may be"
        raise ValueError(f"the index code {fault}")


def _coded(code: U8, k: int, n: int) -> tuple[int, int]:
    k, n = _check.sizes(k, n)
    size = _backend.index.index_bytes(k, n)
    like = f"as {k} positions below {n} need"
    _check.vector("code", code, UINT8, length=size, like=like)
    return k, n
