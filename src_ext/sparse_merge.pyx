"""The weighted sum of sparse vectors as a sparse vector; see sparse_merge.h for how."""

from libc.stdint cimport uint32_t
from libc.stdlib cimport calloc, free

from simd cimport aiops_first_outside, aiops_simd_level

cdef extern from "sparse_merge.h" nogil:
    ctypedef struct Sparse "aiops_sparse":
        const uint32_t* index
        const float* value
        Py_ssize_t k
        Py_ssize_t next
        float weight
    ctypedef struct Merged "aiops_merged":
        uint32_t* index
        float* value
        Py_ssize_t count
        Py_ssize_t room
    Py_ssize_t aiops_merge_length(Py_ssize_t total, Py_ssize_t n) noexcept
    size_t aiops_merge_bytes(Py_ssize_t length) noexcept
    void aiops_merge_sparse(
        int level, Sparse* vector, Py_ssize_t count, Py_ssize_t length, void* scratch,
        Merged* out,
    ) noexcept
    void aiops_merge_two(const Sparse* a, const Sparse* b, Merged* out) noexcept

cdef extern from "index.h" nogil:
    Py_ssize_t aiops_first_not_above(
        const uint32_t* index, Py_ssize_t count, long long before,
    ) noexcept


cdef Py_ssize_t _wrong(const Sparse* vector, Py_ssize_t n) noexcept nogil:
    # Position of the first index that is not above the one before it or not below n, or -1.
    cdef Py_ssize_t fall = aiops_first_not_above(vector.index, vector.k, -1), outside
    if fall < 0 and (vector.k == 0 or vector.index[vector.k - 1] < n):
        return -1
    outside = aiops_first_outside(vector.index, vector.k if fall < 0 else fall, n)
    return fall if outside < 0 else outside


cdef Py_ssize_t _merge(
    int level, Sparse* vector, Py_ssize_t count, Py_ssize_t n, Py_ssize_t total, Merged* out,
) noexcept nogil:
    # Returns -1, or how much memory was not to be had, in bytes.
    cdef Py_ssize_t length
    cdef void* scratch
    if count == 2:
        aiops_merge_two(&vector[0], &vector[1], out)
        return -1
    length = aiops_merge_length(total, n)
    scratch = calloc(1, aiops_merge_bytes(length))
    if scratch == NULL:
        return aiops_merge_bytes(length)
    aiops_merge_sparse(level, vector, count, length, scratch, out)
    free(scratch)
    return -1


def merge_sparse(
    tuple indices not None,
    tuple values not None,
    const float[::1] weights not None,
    Py_ssize_t n,
    uint32_t[::1] index not None,
    float[::1] value not None,
    int level=-1,
) -> tuple[int, int]:
    """Sum sparse vectors: positions that occur in any of them, ascending, and weighted sums.

    Sums are added in the order of the vectors, from zero. Releases the GIL. Takes up to 660 KB of
    scratch while it runs. Lengths and overlap are checked by the caller, positions here.

    Args:
        indices: uint32 vectors, ascending, below n.
        values: float32 vectors, each as long as its positions.
        weights: float32, shape (len(indices),).
        n: One more than the largest position may be.
        index: uint32, shape (at least the number of all values,). Written.
        value: float32, as long as ``index``. Written.
        level: Instruction set, at most ``_topk.simd_level()``; -1 is the best one.

    Returns:
        -1 and the number of positions written; or a vector's number and the place of its first
        position that is not above the one before it or not below n, and nothing is written.
    """
    cdef Py_ssize_t count = len(indices), total = 0, wrong = -1, missing = -1, s
    cdef const uint32_t[::1] its_index
    cdef const float[::1] its_value
    cdef Sparse* vector
    cdef Merged out
    if index.shape[0] == 0:
        return -1, 0
    if level < 0:
        level = aiops_simd_level()
    vector = <Sparse*>calloc(max(count, <Py_ssize_t>1), sizeof(Sparse))
    if vector == NULL:
        raise MemoryError(f"no memory for a list of {count} vectors")
    try:
        for s in range(count):
            # The tuples keep the arrays alive, so their addresses outlive these views.
            its_index, its_value = indices[s], values[s]
            vector[s].k = its_index.shape[0]
            vector[s].weight = weights[s]
            if vector[s].k:
                vector[s].index, vector[s].value = &its_index[0], &its_value[0]
            total += vector[s].k
        out.index, out.value, out.count, out.room = &index[0], &value[0], 0, index.shape[0]
        with nogil:
            for s in range(count):
                wrong = _wrong(&vector[s], n)
                if wrong >= 0:
                    break
            if wrong < 0:
                missing = _merge(level, vector, count, n, total, &out)
        if wrong >= 0:
            return s, wrong
        if missing >= 0:
            raise MemoryError(f"no memory for {missing} bytes of scratch")
        return -1, out.count
    finally:
        free(vector)
