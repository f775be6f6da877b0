"""16-bit floats to and from float32: IEEE half and bfloat16, as raw bits in uint16.

``bfloat`` tells the two formats apart in every function. ``level`` is the instruction set, at most
``_topk.simd_level()``; -1 is the best one.
"""

from libc.stdint cimport uint16_t

from simd cimport aiops_first_nonfinite_half, aiops_simd_level

cdef extern from "half.h" nogil:
    void aiops_encode_float16(
        int level, const float* x, uint16_t* out, Py_ssize_t n,
    ) noexcept
    void aiops_encode_bfloat16(
        int level, const float* x, uint16_t* out, Py_ssize_t n,
    ) noexcept
    void aiops_decode_float16(
        int level, const uint16_t* bits, float* out, Py_ssize_t n,
    ) noexcept
    void aiops_decode_bfloat16(
        int level, const uint16_t* bits, float* out, Py_ssize_t n,
    ) noexcept
    void aiops_add_float16(
        int level, float* acc, const uint16_t* bits, float weight, Py_ssize_t n,
    ) noexcept
    void aiops_add_bfloat16(
        int level, float* acc, const uint16_t* bits, float weight, Py_ssize_t n,
    ) noexcept


def to_half(
    const float[::1] x not None, bint bfloat, uint16_t[::1] out not None, int level=-1,
) -> None:
    """Round ``x`` to 16 bits, half to even, and write the bits to ``out``.

    Releases the GIL. Lengths and overlap are checked by the caller.

    Args:
        x: float32, shape (n,).
        bfloat: Format of ``out``: bfloat16 if true, else float16.
        out: uint16, shape (n,). Written.
    """
    cdef Py_ssize_t n = x.shape[0]
    if n == 0:
        return
    if level < 0:
        level = aiops_simd_level()
    with nogil:
        if bfloat:
            aiops_encode_bfloat16(level, &x[0], &out[0], n)
        else:
            aiops_encode_float16(level, &x[0], &out[0], n)


def from_half(
    const uint16_t[::1] bits not None, bint bfloat, float[::1] out not None, int level=-1,
) -> None:
    """Write the values that ``bits`` stand for to ``out``; exact.

    Releases the GIL. Lengths and overlap are checked by the caller.

    Args:
        bits: uint16, shape (n,).
        bfloat: Format of ``bits``: bfloat16 if true, else float16.
        out: float32, shape (n,). Written.
    """
    cdef Py_ssize_t n = bits.shape[0]
    if n == 0:
        return
    if level < 0:
        level = aiops_simd_level()
    with nogil:
        if bfloat:
            aiops_decode_bfloat16(level, &bits[0], &out[0], n)
        else:
            aiops_decode_float16(level, &bits[0], &out[0], n)


def add_half(
    float[::1] acc not None, const uint16_t[::1] bits not None, float weight, bint bfloat,
    int level=-1,
) -> None:
    """Add ``weight`` times the values that ``bits`` stand for to ``acc``, in place.

    Releases the GIL. Lengths and overlap are checked by the caller.

    Args:
        acc: float32, shape (n,). Written.
        bits: uint16, shape (n,).
        weight: Factor of every value.
        bfloat: Format of ``bits``: bfloat16 if true, else float16.
    """
    cdef Py_ssize_t n = acc.shape[0]
    if n == 0:
        return
    if level < 0:
        level = aiops_simd_level()
    with nogil:
        if bfloat:
            aiops_add_bfloat16(level, &acc[0], &bits[0], weight, n)
        else:
            aiops_add_float16(level, &acc[0], &bits[0], weight, n)


def first_nonfinite_half(const uint16_t[::1] bits not None, bint bfloat) -> int:
    """Return the position of the first NaN or infinity in ``bits``, or -1. Releases the GIL.

    Args:
        bits: uint16, shape (n,).
        bfloat: Format of ``bits``: bfloat16 if true, else float16.
    """
    cdef Py_ssize_t n = bits.shape[0], bad = -1
    cdef uint16_t infinity = 0x7f80 if bfloat else 0x7c00
    if n > 0:
        with nogil:
            bad = aiops_first_nonfinite_half(&bits[0], infinity, n)
    return bad
