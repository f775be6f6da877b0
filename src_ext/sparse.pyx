"""Sparse accumulation and look-up: positions into one dense float32 shard."""

from libc.stdint cimport uint32_t

from simd cimport aiops_first_outside, aiops_prefetch_write

cdef enum:
    # Far enough ahead to cover a miss in main memory; 32 to 128 measure the same.
    AHEAD = 64


cdef void _scatter_add(
    float* acc, const uint32_t* index, const float* value, Py_ssize_t k, float weight,
) noexcept nogil:
    cdef Py_ssize_t i
    for i in range(k - AHEAD):
        aiops_prefetch_write(&acc[index[i + AHEAD]])
        acc[index[i]] += weight * value[i]
    for i in range(max(k - AHEAD, <Py_ssize_t>0), k):
        acc[index[i]] += weight * value[i]


cdef void _gather(
    const float* x, const uint32_t* index, Py_ssize_t k, float* out,
) noexcept nogil:
    cdef Py_ssize_t i
    for i in range(k):
        out[i] = x[index[i]]


def scatter_add(
    float[::1] acc not None,
    const uint32_t[::1] index not None,
    const float[::1] value not None,
    float weight,
) -> int:
    """Add ``weight * value[i]`` to ``acc[index[i]]`` for every i, in place and in order.

    Releases the GIL. Lengths and overlap are checked by the caller, indices are checked here.

    Args:
        acc: float32, shape (n,). Written.
        index: uint32, shape (k,).
        value: float32, shape (k,).
        weight: Factor of every value.

    Returns:
        -1, or the position of the first index >= n; ``acc`` is untouched then.
    """
    cdef Py_ssize_t n = acc.shape[0], k = index.shape[0], bad
    if k == 0:
        return -1
    if n == 0:
        return 0
    with nogil:
        # Indices came over the wire: this check is all that stands between a peer and our heap.
        bad = aiops_first_outside(&index[0], k, n)
        if bad < 0:
            _scatter_add(&acc[0], &index[0], &value[0], k, weight)
    return bad


def gather(
    const float[::1] x not None,
    const uint32_t[::1] index not None,
    float[::1] out not None,
) -> int:
    """Write ``x[index[i]]`` to ``out[i]`` for every i.

    Releases the GIL. Lengths and overlap are checked by the caller, indices are checked here.

    Args:
        x: float32, shape (n,).
        index: uint32, shape (k,).
        out: float32, shape (k,). Written.

    Returns:
        -1, or the position of the first index >= n; ``out`` is untouched then.
    """
    cdef Py_ssize_t n = x.shape[0], k = index.shape[0], bad
    if k == 0:
        return -1
    if n == 0:
        return 0
    with nogil:
        bad = aiops_first_outside(&index[0], k, n)
        if bad < 0:
            _gather(&x[0], &index[0], k, &out[0])
    return bad
