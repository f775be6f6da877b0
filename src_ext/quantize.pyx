"""Blocks of 8-bit codes with one float32 scale each; quantize.h defines the format exactly.

``level`` is the instruction set, at most ``_topk.simd_level()``; -1 is the best one. Every function
releases the GIL; lengths and overlap are checked by the caller. ``scales`` has one value for each
begun block of 4096.
"""

from libc.stdint cimport int8_t
from libc.string cimport memchr

from simd cimport aiops_simd_level

cdef extern from "quantize.h" nogil:
    ctypedef struct aiops_quantize_job:
        const float* x
        const float* residual
        float* scale
        float* left
        int8_t* code
    Py_ssize_t aiops_quantize(int level, const aiops_quantize_job* job, Py_ssize_t n) noexcept
    void aiops_add_quantized(
        int level, float* acc, const float* scale, const int8_t* code, float weight, Py_ssize_t n,
    ) noexcept


def to_int8(
    const float[::1] x not None,
    const float[::1] residual,
    float[::1] scales not None,
    int8_t[::1] codes not None,
    float[::1] left,
    int level=-1,
) -> int:
    """Encode ``x``, or ``x + residual`` and write what the codes lose of it to ``left``.

    Args:
        x: float32, shape (n,).
        residual: float32, shape (n,), or None. May be ``left`` itself.
        scales: float32, shape (ceil(n / 4096),). Written.
        codes: int8, shape (n,). Written.
        left: float32, shape (n,), written; None if ``residual`` is.

    Returns:
        The position of the first value (or sum) that is NaN or infinite, from whose block on
        nothing is encoded; or -1.
    """
    cdef Py_ssize_t n = x.shape[0], bad
    cdef aiops_quantize_job job
    if n == 0:
        return -1
    if level < 0:
        level = aiops_simd_level()
    job.x, job.scale, job.code, job.residual, job.left = &x[0], &scales[0], &codes[0], NULL, NULL
    if residual is not None and left is not None:
        job.residual, job.left = &residual[0], &left[0]
    with nogil:
        bad = aiops_quantize(level, &job, n)
    return bad


def add_int8(
    float[::1] acc not None,
    const float[::1] scales not None,
    const int8_t[::1] codes not None,
    float weight,
    int level=-1,
) -> None:
    """Add ``weight`` times the values that the codes stand for to ``acc``, in place.

    Args:
        acc: float32, shape (n,). Written.
        scales: float32, shape (ceil(n / 4096),).
        codes: int8, shape (n,).
        weight: Factor of every value.
    """
    cdef Py_ssize_t n = acc.shape[0]
    if n == 0:
        return
    if level < 0:
        level = aiops_simd_level()
    with nogil:
        aiops_add_quantized(level, &acc[0], &scales[0], &codes[0], weight, n)


def first_code(const int8_t[::1] codes not None, int8_t code) -> int:
    """Return the position of the first ``code``, or -1.

    Args:
        codes: int8, shape (n,).
        code: What is looked for.
    """
    cdef Py_ssize_t n = codes.shape[0]
    cdef const void* found = NULL
    if n > 0:
        with nogil:
            found = memchr(&codes[0], <unsigned char>code, n)
    return -1 if found == NULL else <const int8_t*>found - &codes[0]
