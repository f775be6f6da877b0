"""Exact selection of the k largest magnitudes.

A sample guesses a lower bound, one pass takes the few candidates that reach it, and the exact
threshold is searched among them. When the guess fails, or ties make the candidates too many, the
search runs over all of x: a wrong guess costs time and never the result.
"""

from libc.stdint cimport uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memset

from simd cimport aiops_first_nonfinite, aiops_simd_level

cdef extern from "topk.h" nogil:
    enum:
        AIOPS_BUCKETS
        AIOPS_TABLES
    ctypedef struct Histogram "aiops_histogram":
        uint32_t[AIOPS_BUCKETS][AIOPS_TABLES] count
    ctypedef struct Tally "aiops_tally":
        Py_ssize_t reach
        Py_ssize_t exceed
        Py_ssize_t nonfinite
    Tally aiops_count_at(const float* x, Py_ssize_t n, uint32_t low) noexcept
    void aiops_count(
        int level, const float* x, Py_ssize_t n, uint32_t low, uint32_t span, int shift,
        Histogram* seen,
    ) noexcept
    Py_ssize_t aiops_take(
        int level, const float* x, Py_ssize_t n, uint32_t sure, Py_ssize_t ties,
        uint32_t* index, float* value, Py_ssize_t room,
    ) noexcept

cdef enum:
    LARGEST = 0x7fffffff
    # A sample is 1/64 of the values within bounds, in cache lines of 16. It costs what it saves
    # below 8192 values.
    LINE = 16
    FEWEST_LINES = 64
    MOST_LINES = 4096
    SMALLEST_SAMPLED = 8192
    # Bits of magnitude, of 31, that a pass of the search decides. A few values are found sooner in
    # four passes over 256 buckets than in three over 2048, most of them empty.
    WIDE = 11
    NARROW = 8
    LARGEST_NARROW = 4096


cdef Py_ssize_t _held(const Histogram* seen, int b) noexcept nogil:
    cdef int table
    cdef Py_ssize_t total = 0
    for table in range(AIOPS_TABLES):
        total += seen.count[b][table]
    return total


cdef void _clear(Histogram* seen, int digit) noexcept nogil:
    memset(seen, 0, sizeof(seen.count[0]) << digit)


cdef int _reach(
    const Histogram* seen, int digit, Py_ssize_t wanted, Py_ssize_t* above
) noexcept nogil:
    # The bucket, from the top, in which the count comes to `wanted`, or bucket 0; `above` grows by
    # what lies over it.
    cdef int b = (1 << digit) - 1
    cdef Py_ssize_t held
    while b > 0:
        held = _held(seen, b)
        if above[0] + held >= wanted:
            break
        above[0] += held
        b -= 1
    return b


cdef uint32_t _guess(const float* x, Py_ssize_t n, Py_ssize_t k) noexcept nogil:
    # A magnitude that a few more than k values reach, most likely. The margin is ten standard
    # deviations of an even sample, yet data in clumps may defeat it.
    cdef Histogram seen
    cdef Py_ssize_t lines = max(
        <Py_ssize_t>FEWEST_LINES, min(n // (64 * LINE), <Py_ssize_t>MOST_LINES)
    )
    cdef Py_ssize_t stride = n // lines, line, wanted, above = 0
    cdef uint32_t low = 0, span = LARGEST
    cdef uint64_t state
    cdef int shift = 31
    wanted = <Py_ssize_t>(<double>k / <double>n * <double>(lines * LINE))
    wanted += wanted // 8 + 64
    while shift > 0:
        shift = max(shift - WIDE, 0)
        _clear(&seen, WIDE)
        state = 0x9E3779B97F4A7C15
        for line in range(lines):
            # A linear congruential step: jitter keeps the sample off any period of the data.
            state = state * 6364136223846793005u + 1442695040888963407u
            aiops_count(
                0, x + line * stride + <Py_ssize_t>((state >> 33) % <uint64_t>(stride - LINE)),
                LINE, low, span, shift, &seen,
            )
        low += <uint32_t>_reach(&seen, WIDE, wanted, &above) << shift
        span = (<uint32_t>1 << shift) - 1
    return low


cdef void _radix(
    int level, const float* x, Py_ssize_t n, Py_ssize_t k, uint32_t low, uint32_t* index,
    float* value,
) noexcept nogil:
    # Finds the threshold bucket by bucket from `low` up, which k >= 1 values or more must reach.
    cdef Histogram seen
    cdef Py_ssize_t above = 0
    cdef uint32_t span = LARGEST - low
    cdef int digit = WIDE if n > LARGEST_NARROW else NARROW
    cdef int shift = 31, b
    while shift > 0:
        shift = max(shift - digit, 0)
        _clear(&seen, digit)
        aiops_count(level, x, n, low, span, shift, &seen)
        b = _reach(&seen, digit, k, &above)
        low += <uint32_t>b << shift
        span = (<uint32_t>1 << shift) - 1
        if above + _held(&seen, b) == k:
            # The whole bucket is wanted, so the bits below it do not matter.
            aiops_take(level, x, n, low, 0, index, value, k)
            return
    aiops_take(level, x, n, low + 1, k - above, index, value, k)


cdef Py_ssize_t _select_among_all(
    int level, const float* x, Py_ssize_t n, Py_ssize_t k, uint32_t low, uint32_t* index,
    float* value,
) noexcept nogil:
    # Needs no scratch. `low` is a guess of the threshold, 0 for none.
    cdef Tally tally = aiops_count_at(x, n, low)
    if tally.nonfinite:
        return aiops_first_nonfinite(x, n)
    if tally.exceed < k <= tally.reach:
        # Where ties abound the guess is the threshold itself.
        aiops_take(level, x, n, low + 1, k - tally.exceed, index, value, k)
    else:
        _radix(level, x, n, k, low if k <= tally.exceed else 0, index, value)
    return -1


cdef Py_ssize_t _select(
    int level, const float* x, Py_ssize_t n, Py_ssize_t k, uint32_t* index, float* value,
    uint32_t* some_index, float* some_value, Py_ssize_t room,
) noexcept nogil:
    # Returns -1, or the position of the first value that is not finite. The candidates' scratch
    # holds `room` values and may be absent.
    cdef Py_ssize_t some, bad, i
    cdef uint32_t low
    if k == 0:
        return aiops_first_nonfinite(x, n)
    if n < SMALLEST_SAMPLED:
        return _select_among_all(level, x, n, k, 0, index, value)
    low = _guess(x, n, k)
    some = aiops_take(level, x, n, low, 0, some_index, some_value, room)
    if some == room:
        # Ties at the guess itself are the usual crowd; without them the rest may fit.
        some = aiops_take(level, x, n, low + 1, 0, some_index, some_value, room)
    if some < k or some == room:
        return _select_among_all(level, x, n, k, low, index, value)
    # NaN and infinity exceed every guess, so they are among the candidates, in order.
    bad = aiops_first_nonfinite(some_value, some)
    if bad >= 0:
        return some_index[bad]
    _radix(level, some_value, some, k, low, index, value)
    for i in range(k):
        index[i] = some_index[index[i]]
    return -1


def simd_level() -> int:
    """Return the best instruction set of this machine: 0 portable, 1 AVX2, 2 AVX-512."""
    return aiops_simd_level()


def select_topk(
    const float[::1] x not None,
    Py_ssize_t k,
    uint32_t[::1] index not None,
    float[::1] value not None,
    int level=-1,
) -> int:
    """Write the k values of largest magnitude and their positions, in order of position.

    Releases the GIL. Takes 12 bytes of scratch per selected value while it runs, and does without
    when there is no memory. The arguments are checked by the caller.

    Args:
        x: float32, shape (n,), n <= 2**32.
        k: How many to select, 0 <= k <= n.
        index: uint32, shape (k,). Written.
        value: float32, shape (k,). Written.
        level: Instruction set, at most ``simd_level()``; -1 is the best one.

    Returns:
        -1, or the position of the first value that is not finite; nothing is written then.
    """
    cdef Py_ssize_t n = x.shape[0], bad, room = 0
    cdef uint32_t* index_at = NULL
    cdef float* value_at = NULL
    cdef void* scratch = NULL
    if n == 0:
        return -1
    if k > 0:
        index_at = &index[0]
        value_at = &value[0]
    if level < 0:
        level = aiops_simd_level()
    if n >= SMALLEST_SAMPLED and k <= n // 4:
        room = k + k // 2 + n // 256 + 8192
        scratch = malloc(room * (sizeof(uint32_t) + sizeof(float)))
    with nogil:
        bad = _select(
            level, &x[0], n, k, index_at, value_at, <uint32_t*>scratch,
            <float*>scratch + room, room if scratch else 0,
        )
    free(scratch)
    return bad
