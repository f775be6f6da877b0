"""Sparse accumulation and look-up: positions into one dense float32 shard.

``level`` is the instruction set, at most ``_topk.simd_level()``; -1 is the best one. ``kind`` tells
what the bytes of a value are: 0 float32, 1 float16, 2 bfloat16, 3 int8, which has one float32 scale
for every 4096 values.
"""

from libc.stdint cimport uint8_t, uint32_t

from simd cimport aiops_first_outside, aiops_simd_level

cdef extern from "sparse.h" nogil:
    enum:
        AIOPS_INDEX_FINE
    ctypedef struct Layout "aiops_index_layout":
        Py_ssize_t size
    ctypedef struct Values "aiops_values":
        int kind
        const uint8_t* bytes
        const float* scale
    Layout aiops_index_lay(Py_ssize_t k, Py_ssize_t n) noexcept
    Py_ssize_t aiops_index_outside(const Layout* at, const uint8_t* code) noexcept
    void aiops_scatter_listed(
        int level, float* acc, const uint32_t* index, Py_ssize_t k, const Values* source,
        float weight,
    ) noexcept
    void aiops_scatter_coded(
        int level, float* acc, const Layout* at, const uint8_t* code, const Values* source,
        float weight,
    ) noexcept


cdef void _gather(
    const float* x, const uint32_t* index, Py_ssize_t k, float* out,
) noexcept nogil:
    cdef Py_ssize_t i
    for i in range(k):
        out[i] = x[index[i]]


cdef Values _values(const uint8_t[::1] value, int kind, const float[::1] scale) noexcept:
    cdef Values source
    source.kind = kind
    source.bytes = &value[0]
    source.scale = &scale[0] if scale.shape[0] else NULL
    return source


def scatter_add(
    float[::1] acc not None,
    const uint32_t[::1] index not None,
    const uint8_t[::1] value not None,
    int kind,
    const float[::1] scale not None,
    float weight,
    int level=-1,
) -> int:
    """Add ``weight * value[i]`` to ``acc[index[i]]`` for every i, in place and in order.

    Releases the GIL. Lengths and overlap are checked by the caller, indices are checked here.

    Args:
        acc: float32, shape (n,). Written.
        index: uint32, shape (k,).
        value: The bytes of k values, aligned to one.
        kind: What they are.
        scale: float32, shape (ceil(k / 4096),) for int8 values, else empty.
        weight: Factor of every value.

    Returns:
        -1, or the position of the first index >= n; ``acc`` is untouched then.
    """
    cdef Py_ssize_t n = acc.shape[0], k = index.shape[0], bad
    cdef Values source
    if k == 0:
        return -1
    if n == 0:
        return 0
    if level < 0:
        level = aiops_simd_level()
    source = _values(value, kind, scale)
    with nogil:
        # Indices came over the wire: this check is all that stands between a peer and our heap.
        bad = aiops_first_outside(&index[0], k, n)
        if bad < 0:
            aiops_scatter_listed(level, &acc[0], &index[0], k, &source, weight)
    return bad


def scatter_add_coded(
    float[::1] acc not None,
    const uint8_t[::1] code not None,
    Py_ssize_t k,
    const uint8_t[::1] value not None,
    int kind,
    const float[::1] scale not None,
    float weight,
    int level=-1,
) -> int:
    """Add ``weight * value[i]`` to ``acc`` at position i of those that ``code`` stands for.

    Releases the GIL. Lengths and overlap are checked by the caller. Here it is checked that every
    position is below n; positions that do not ascend, which no encoder of ours writes, are added
    as they stand.

    Args:
        acc: float32, shape (n,). Written.
        code: uint8, shape (index_bytes(k, n),).
        k: How many values there are.
        value: The bytes of k values, aligned to one.
        kind: What they are.
        scale: float32, shape (ceil(k / 4096),) for int8 values, else empty.
        weight: Factor of every value.

    Returns:
        -1, or what ``decode_index`` would of a code that leads outside; ``acc`` is untouched then.
    """
    cdef Layout at = aiops_index_lay(k, acc.shape[0])
    cdef Py_ssize_t wrong
    cdef Values source
    if k == 0:
        return AIOPS_INDEX_FINE
    if level < 0:
        level = aiops_simd_level()
    source = _values(value, kind, scale)
    with nogil:
        wrong = aiops_index_outside(&at, &code[0])
        if wrong == AIOPS_INDEX_FINE:
            aiops_scatter_coded(level, &acc[0], &at, &code[0], &source, weight)
    return wrong


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
