"""Two codes of the gaps between ascending positions; gaps.h and rice.h tell how they are made.

Every function releases the GIL. Lengths and overlap are checked by the caller, positions and codes
are checked here.
"""

from libc.stdint cimport int64_t, uint8_t, uint32_t

cdef extern from "gaps.h" nogil:
    ctypedef struct Verdict "aiops_gaps_verdict":
        int fault
        Py_ssize_t at
    Py_ssize_t aiops_pack_index(
        const uint32_t* index, Py_ssize_t k, int64_t n, uint8_t* code,
    ) noexcept
    Verdict aiops_unpack_index(
        const uint8_t* code, Py_ssize_t size, Py_ssize_t k, int64_t n, uint32_t* index,
    ) noexcept

cdef extern from "rice.h" nogil:
    Py_ssize_t aiops_rice_index(
        const uint32_t* index, Py_ssize_t k, int64_t n, uint8_t* code,
    ) noexcept
    Verdict aiops_unrice_index(
        const uint8_t* code, Py_ssize_t size, Py_ssize_t k, int64_t n, uint32_t* index,
    ) noexcept


def pack_index(const uint32_t[::1] index not None, int64_t n, uint8_t[::1] out not None) -> int:
    """Write ascending positions below n as packed gaps.

    Args:
        index: uint32, shape (k,).
        n: One more than the largest position may be, k <= n <= 2**32.
        out: uint8, room for the longest code. Written.

    Returns:
        The code's size in bytes, or -1 less the number of the first position that is not above the
        one before it or not below n; ``out`` is without meaning then.
    """
    cdef Py_ssize_t k = index.shape[0], size
    if k == 0:
        return 0
    with nogil:
        size = aiops_pack_index(&index[0], k, n, &out[0])
    return size


def unpack_index(
    const uint8_t[::1] code not None, int64_t n, uint32_t[::1] out not None,
) -> tuple[int, int]:
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
    cdef Py_ssize_t k = out.shape[0], size = code.shape[0]
    cdef const uint8_t* at = &code[0] if size else NULL
    cdef uint32_t* index = &out[0] if k else NULL
    cdef Verdict found
    with nogil:
        found = aiops_unpack_index(at, size, k, n, index)
    return found.fault, found.at


def rice_index(const uint32_t[::1] index not None, int64_t n, uint8_t[::1] out not None) -> int:
    """Write ascending positions below n as gaps after Rice; else as :func:`pack_index`.

    Args:
        index: uint32, shape (k,).
        n: One more than the largest position may be, k <= n <= 2**32.
        out: uint8, room for the longest code. Written.
    """
    cdef Py_ssize_t k = index.shape[0], size
    if k == 0:
        return 0
    with nogil:
        size = aiops_rice_index(&index[0], k, n, &out[0])
    return size


def unrice_index(
    const uint8_t[::1] code not None, int64_t n, uint32_t[::1] out not None,
) -> tuple[int, int]:
    """Write the positions that gaps after Rice stand for; else as :func:`unpack_index`.

    Args:
        code: uint8, any bytes.
        n: As when it was encoded.
        out: uint32, shape (k,). Written; without meaning where there is a fault.
    """
    cdef Py_ssize_t k = out.shape[0], size = code.shape[0]
    cdef const uint8_t* at = &code[0] if size else NULL
    cdef uint32_t* index = &out[0] if k else NULL
    cdef Verdict found
    with nogil:
        found = aiops_unrice_index(at, size, k, n, index)
    return found.fault, found.at
