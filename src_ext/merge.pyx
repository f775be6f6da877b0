"""Dense merges of float32 vectors, each in one pass over its arguments."""

from libc.string cimport memcpy, memset

from simd cimport (
    aiops_add4, aiops_first_nonfinite, aiops_start4, aiops_subtract, aiops_weighted_add,
)

cdef enum:
    # A block of the result stays in the first-level cache while every source passes by: 16 KiB.
    BLOCK = 4096
    # Four vectors' blocks of a swap, 4 KiB each. One loop over all four was a quarter slower: their
    # stores and loads met at the same place in a page.
    SWAPPED = 1024
    # Sources whose addresses fit the stack frame; more of them are merged in several rounds.
    ROUND = 64

ctypedef const float* Source


cdef void _merge(
    const Source* source, const float* weight, Py_ssize_t count, bint start, float* out,
    Py_ssize_t n,
) noexcept nogil:
    # out = (0 if start else out) + sum of weight[s] * source[s], element by element in order of s.
    cdef Py_ssize_t at = 0, m, s
    while at < n:
        m = min(<Py_ssize_t>BLOCK, n - at)
        s = 0
        if start and count >= 4:
            aiops_start4(
                out + at, source[0] + at, source[1] + at, source[2] + at, source[3] + at, weight, m
            )
            s = 4
        elif start:
            memset(out + at, 0, m * sizeof(float))
        while s + 4 <= count:
            aiops_add4(
                out + at, source[s] + at, source[s + 1] + at, source[s + 2] + at,
                source[s + 3] + at, weight + s, m,
            )
            s += 4
        while s < count:
            aiops_weighted_add(out + at, source[s] + at, weight[s], m)
            s += 1
        at += m


cdef void _swap_update(
    float* x, float* base, const float* fresh, float* out, Py_ssize_t n,
) noexcept nogil:
    cdef Py_ssize_t at = 0, m
    while at < n:
        m = min(<Py_ssize_t>SWAPPED, n - at)
        aiops_subtract(out + at, x + at, base + at, m)
        memcpy(x + at, fresh + at, m * sizeof(float))
        memcpy(base + at, fresh + at, m * sizeof(float))
        at += m


def weighted_add(float[::1] acc not None, const float[::1] x not None, float weight) -> None:
    """Add ``weight * x`` to ``acc`` in place.

    Releases the GIL. Lengths and overlap are checked by the caller.

    Args:
        acc: float32, shape (n,). Written.
        x: float32, shape (n,). May be ``acc`` itself.
        weight: Factor of every value.
    """
    cdef Py_ssize_t n = acc.shape[0]
    if n > 0:
        with nogil:
            aiops_weighted_add(&acc[0], &x[0], weight, n)


def merge(
    tuple arrays not None, const float[::1] weights not None, float[::1] out not None,
) -> None:
    """Write the weighted sum of ``arrays`` to ``out``, added in the given order from zero.

    Releases the GIL. Lengths and overlap are checked by the caller.

    Args:
        arrays: float32 vectors of shape (n,), none overlapping ``out``.
        weights: float32, shape (len(arrays),).
        out: float32, shape (n,). Written.
    """
    cdef Source[ROUND] source
    cdef const float[::1] array
    cdef Py_ssize_t n = out.shape[0], total = len(arrays), first = 0, count, s
    if n == 0:
        return
    if total == 0:
        memset(&out[0], 0, n * sizeof(float))
        return
    while first < total:
        count = min(<Py_ssize_t>ROUND, total - first)
        for s in range(count):
            # The tuple keeps each array alive, so its address outlives this view.
            array = arrays[first + s]
            source[s] = &array[0]
        with nogil:
            _merge(source, &weights[first], count, first == 0, &out[0], n)
        first += count


def swap_update(
    float[::1] x not None,
    float[::1] base not None,
    const float[::1] fresh not None,
    float[::1] out not None,
) -> None:
    """Write ``x - base`` to ``out`` and ``fresh`` to both ``x`` and ``base``, in one pass.

    Releases the GIL. Lengths and overlap are checked by the caller.

    Args:
        x: float32, shape (n,). Read, then written.
        base: float32, shape (n,). Read, then written.
        fresh: float32, shape (n,).
        out: float32, shape (n,). Written.
    """
    cdef Py_ssize_t n = x.shape[0]
    if n > 0:
        with nogil:
            _swap_update(&x[0], &base[0], &fresh[0], &out[0], n)


def first_nonfinite(const float[::1] x not None) -> int:
    """Return the position of the first NaN or infinity in ``x``, or -1. Releases the GIL.

    Args:
        x: float32, shape (n,).
    """
    cdef Py_ssize_t n = x.shape[0], bad = -1
    if n > 0:
        with nogil:
            bad = aiops_first_nonfinite(&x[0], n)
    return bad
