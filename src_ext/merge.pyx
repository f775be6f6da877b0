"""Dense merges of float32 vectors, each in one pass over its arguments.

``level`` is the instruction set, at most ``_topk.simd_level()``; -1 is the best one. Every function
releases the GIL; lengths and overlap are checked by the caller.
"""

from libc.stdlib cimport free, malloc

from dense cimport (
    aiops_add, aiops_add_job, aiops_copy, aiops_copy_job, aiops_lerp, aiops_lerp_job, aiops_merge,
    aiops_merge_job, aiops_swap, aiops_swap_job,
)
from simd cimport aiops_exceeds_caches, aiops_first_nonfinite, aiops_simd_level

cdef enum:
    # Sources whose addresses fit the stack frame; more of them take one allocation.
    FEW = 64


ctypedef const float* Source


cdef Py_ssize_t _merge(
    tuple arrays, tuple weights, aiops_merge_job* job, Py_ssize_t n, bint bypass, int level,
) except -2:
    # Fills in the job's sources and runs it.
    cdef Source[FEW] few_sources
    cdef float[FEW] few_weights
    cdef Source* source = few_sources
    cdef float* weight = few_weights
    cdef const float[::1] array
    cdef Py_ssize_t count = len(arrays), s, bad = -1
    cdef void* memory = NULL
    if level < 0:
        level = aiops_simd_level()
    if count > FEW:
        memory = malloc(count * (sizeof(Source) + sizeof(float)))
        if memory == NULL:
            raise MemoryError
        source = <Source*>memory
        weight = <float*>(source + count)
    try:
        for s in range(count):
            # The tuple keeps each array alive, so its address outlives this view.
            array = arrays[s]
            source[s] = &array[0]
            weight[s] = weights[s]
        job.source, job.weight, job.count = source, weight, count
        with nogil:
            bad = aiops_merge(level, job, n, bypass)
    finally:
        free(memory)
    return bad


def weighted_add(
    float[::1] acc not None, const float[::1] x not None, float weight, int level=-1,
) -> None:
    """Add ``weight * x`` to ``acc`` in place.

    Args:
        acc: float32, shape (n,). Written.
        x: float32, shape (n,). May be ``acc`` itself.
        weight: Factor of every value.
    """
    cdef Py_ssize_t n = acc.shape[0]
    cdef aiops_add_job job
    if n == 0:
        return
    if level < 0:
        level = aiops_simd_level()
    job.base, job.x, job.weight, job.out = &acc[0], &x[0], weight, &acc[0]
    with nogil:
        aiops_add(level, &job, n, False)


def lerp(float[::1] x not None, const float[::1] y not None, float a, int level=-1) -> None:
    """Move ``x`` towards ``y``: ``x += a * (y - x)``, in place.

    Args:
        x: float32, shape (n,). Written.
        y: float32, shape (n,). May be ``x`` itself.
        a: Share of the way.
    """
    cdef Py_ssize_t n = x.shape[0]
    cdef aiops_lerp_job job
    if n == 0:
        return
    if level < 0:
        level = aiops_simd_level()
    job.out, job.y, job.a = &x[0], &y[0], a
    with nogil:
        aiops_lerp(level, &job, n, False)


def merge(
    tuple arrays not None, tuple weights not None, float[::1] out not None, int level=-1,
) -> None:
    """Write the weighted sum of ``arrays`` to ``out``, added in the given order from zero.

    Args:
        arrays: float32 vectors of shape (n,), none overlapping ``out``.
        weights: One number for each, rounded to float32.
        out: float32, shape (n,). Written.
    """
    cdef Py_ssize_t n = out.shape[0]
    cdef aiops_merge_job job
    if n > 0:
        job.base, job.gain, job.out = NULL, 1.0, &out[0]
        _merge(arrays, weights, &job, n, aiops_exceeds_caches(n, 4 * (len(arrays) + 1)), level)


def merge_checked(
    const float[::1] base not None,
    tuple arrays not None,
    tuple weights not None,
    float gain,
    float[::1] out not None,
    bint bypass,
    int level=-1,
) -> int:
    """Write ``base + gain * sum`` to ``out``, where sum is what :func:`merge` writes.

    Args:
        base: float32, shape (n,). May be ``out`` itself.
        arrays: float32 vectors of shape (n,), none overlapping ``out``.
        weights: One number for each, rounded to float32.
        gain: Factor of the sum.
        out: float32, shape (n,). Written.
        bypass: Whether to write past the caches.

    Returns:
        The position of the first result that is NaN or infinite, or -1.
    """
    cdef Py_ssize_t n = out.shape[0]
    cdef aiops_merge_job job
    if n == 0:
        return -1
    job.base, job.gain, job.out = &base[0], gain, &out[0]
    return _merge(arrays, weights, &job, n, bypass, level)


def copy_checked(
    const float[::1] x not None, float[::1] out not None, bint bypass, int level=-1,
) -> int:
    """Copy ``x`` to ``out`` and return the position of the first NaN or infinity, or -1.

    Args:
        x: float32, shape (n,).
        out: float32, shape (n,). Written.
        bypass: Whether to write past the caches.
    """
    cdef Py_ssize_t n = x.shape[0], bad
    cdef aiops_copy_job job
    if n == 0:
        return -1
    if level < 0:
        level = aiops_simd_level()
    job.x, job.out = &x[0], &out[0]
    with nogil:
        bad = aiops_copy(level, &job, n, bypass)
    return bad


def swap_update(
    float[::1] x not None,
    float[::1] base not None,
    const float[::1] fresh not None,
    float[::1] out not None,
    int level=-1,
) -> None:
    """Write ``x - base`` to ``out`` and ``fresh`` to both ``x`` and ``base``, in one pass.

    Args:
        x: float32, shape (n,). Read, then written.
        base: float32, shape (n,). Read, then written.
        fresh: float32, shape (n,).
        out: float32, shape (n,). Written.
    """
    cdef Py_ssize_t n = x.shape[0]
    cdef aiops_swap_job job
    if n == 0:
        return
    if level < 0:
        level = aiops_simd_level()
    job.x, job.base, job.fresh, job.out = &x[0], &base[0], &fresh[0], &out[0]
    with nogil:
        aiops_swap(level, &job, n, aiops_exceeds_caches(n, 16))


def first_nonfinite(const float[::1] x not None) -> int:
    """Return the position of the first NaN or infinity in ``x``, or -1.

    Args:
        x: float32, shape (n,).
    """
    cdef Py_ssize_t n = x.shape[0], bad = -1
    if n > 0:
        with nogil:
            bad = aiops_first_nonfinite(&x[0], n)
    return bad
