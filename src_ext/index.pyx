"""The code of ascending positions: encode, decode, check. index.h tells what it looks like.

``level`` is the instruction set, at most ``_topk.simd_level()``; -1 is the best one.
"""

from libc.stdint cimport uint8_t, uint32_t

from simd cimport aiops_simd_level

cdef extern from "index.h" nogil:
    enum:
        AIOPS_INDEX_FINE
    ctypedef struct Layout "aiops_index_layout":
        Py_ssize_t size
    Layout aiops_index_lay(Py_ssize_t k, Py_ssize_t n) noexcept
    Py_ssize_t aiops_index_encode(
        int level, const Layout* at, const uint32_t* index, uint8_t* code,
    ) noexcept
    Py_ssize_t aiops_index_decode(
        int level, const Layout* at, const uint8_t* code, uint32_t* index,
    ) noexcept


def index_bytes(Py_ssize_t k, Py_ssize_t n) -> int:
    """Return the size of the code of k positions below n, in bytes, 0 <= k <= n <= 2**32."""
    return aiops_index_lay(k, n).size


def encode_index(
    const uint32_t[::1] index not None, Py_ssize_t n, uint8_t[::1] out not None, int level=-1,
) -> int:
    """Write the code of ascending positions below n.

    Releases the GIL. Lengths and overlap are checked by the caller, positions are checked here.

    Args:
        index: uint32, shape (k,).
        n: One more than the largest position may be, k <= n <= 2**32.
        out: uint8, shape (index_bytes(k, n),). Written.

    Returns:
        -1, or the number of the first position that is not above the one before it or not below n;
        ``out`` is without meaning then.
    """
    cdef Py_ssize_t k = index.shape[0], wrong
    cdef Layout at = aiops_index_lay(k, n)
    if k == 0:
        return -1
    if level < 0:
        level = aiops_simd_level()
    with nogil:
        wrong = aiops_index_encode(level, &at, &index[0], &out[0])
    return wrong


def decode_index(
    const uint8_t[::1] code not None, Py_ssize_t n, uint32_t[::1] out not None, int level=-1,
) -> int:
    """Write the positions that ``code`` stands for.

    Releases the GIL. Lengths and overlap are checked by the caller, all else is checked here: no
    byte string makes it read or write outside, or yields anything but ascending positions below n.

    Args:
        code: uint8, shape (index_bytes(k, n),).
        n: As when it was encoded.
        out: uint32, shape (k,). Written; without meaning when an error is returned.

    Returns:
        -1, or the number of the first wrong position: n or more, or not above the one before it;
        -2 when the bitmap does not hold k positions, -3 when what must be zero is not.
    """
    cdef Py_ssize_t k = out.shape[0], wrong
    cdef Layout at = aiops_index_lay(k, n)
    if k == 0:
        return AIOPS_INDEX_FINE
    if level < 0:
        level = aiops_simd_level()
    with nogil:
        wrong = aiops_index_decode(level, &at, &code[0], &out[0])
    return wrong


def check_index(
    const uint8_t[::1] code not None, Py_ssize_t k, Py_ssize_t n, int level=-1,
) -> int:
    """Return what :func:`decode_index` would, without keeping the positions. Releases the GIL.

    Args:
        code: uint8, shape (index_bytes(k, n),).
        k: How many positions it holds.
        n: As when it was encoded.
    """
    cdef Py_ssize_t wrong
    cdef Layout at = aiops_index_lay(k, n)
    if k == 0:
        return AIOPS_INDEX_FINE
    if level < 0:
        level = aiops_simd_level()
    with nogil:
        wrong = aiops_index_decode(level, &at, &code[0], NULL)
    return wrong
