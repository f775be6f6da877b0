"""Exact selection of the k largest magnitudes, alone or as a step of error feedback.

A sample guesses two bounds: some more than k values reach the lower one, some fewer the upper one.
One pass collects the candidates that reach the lower bound, and the exact threshold is searched
among those between the two. When candidates are too many (ties, a deceived sample) all but the k
best so far are dropped and the bound rises; when they are too few the pass runs again from a safer
guess. A wrong guess costs time and never the result.
"""

from libc.stdint cimport uint32_t
from libc.stdlib cimport free
from libc.string cimport memset

from select cimport (
    AIOPS_INFINITY_BITS,
    AIOPS_NEVER,
    AIOPS_SMALLEST_PAST,
    AIOPS_SMALLEST_SAMPLED,
    Aim,
    Cut,
    Scan,
    Step,
    aiops_aim_at,
    aiops_collect,
    aiops_cut_of_all,
    aiops_energy,
    aiops_energy_of,
    aiops_feed,
    aiops_finish,
    aiops_has_room,
    aiops_key_room,
    aiops_restore,
    aiops_room,
    aiops_scratch,
    aiops_take,
    aiops_topk_level,
    aiops_zero,
)
from simd cimport aiops_first_nonfinite, aiops_simd_level


cdef Py_ssize_t _walk(
    int level, Scan* scan, Step* step, Py_ssize_t k, uint32_t* key
) noexcept nogil:
    # Collects the candidates of all of x, of which there may be fewer than k. Returns -1, or the
    # position of the first value that is not finite: NaN and infinity are always candidates.
    cdef Py_ssize_t bad
    cdef Cut cut
    scan.at, scan.some, scan.least = 0, 0, scan.low
    while True:
        if step == NULL:
            aiops_collect(level, scan)
        else:
            aiops_feed(level, scan, step)
        bad = aiops_first_nonfinite(scan.value, scan.some)
        if bad < 0 and scan.at == scan.n:
            return -1
        if step != NULL:
            aiops_restore(step.out, scan.index, scan.value, scan.some)
            step.sure = AIOPS_NEVER
        if bad >= 0:
            break
        cut = aiops_finish(
            level, scan.value, scan.index, scan.some, k, scan.least, AIOPS_NEVER, key,
            scan.index, scan.value,
        )
        # Of later values, those that equal the least of these k lose to it.
        scan.low, scan.least, scan.some = cut.sure, cut.sure - (cut.ties > 0), k
        scan.rare = True
    bad = scan.index[bad]
    while step != NULL and scan.at < scan.n:
        # The whole sum is written, whatever it holds.
        scan.some = 0
        aiops_feed(level, scan, step)
    return bad


cdef Py_ssize_t _select_among_some(
    int level, Scan* scan, Step* step, Py_ssize_t k, uint32_t* key,
    uint32_t* index, float* value,
) noexcept nogil:
    cdef Step* adding = step
    cdef Py_ssize_t bad
    cdef Aim aim
    cdef Cut cut
    cdef int attempt = 0
    while True:
        aim = aiops_aim_at(
            level, scan.x, adding.update if adding != NULL else NULL, scan.n, k, attempt, key
        )
        scan.low, scan.rare = aim.low, aim.rare
        if adding != NULL:
            step.sure = aim.sure
            if aim.rare and scan.n < AIOPS_SMALLEST_PAST:
                step.sure = AIOPS_NEVER
        bad = _walk(level, scan, adding, k, key)
        if bad >= 0:
            return bad
        if scan.some >= k:
            break
        if adding != NULL:
            # The sum is written by now, so it is what the next pass reads.
            aiops_restore(step.out, scan.index, scan.value, scan.some)
            step.sure = AIOPS_NEVER
            scan.x = step.out
            adding = NULL
        attempt += 1
    cut = aiops_finish(
        level, scan.value, scan.index, scan.some, k, scan.least, max(aim.sure, scan.least + 1), key,
        index, value,
    )
    if step != NULL and cut.sure > step.sure:
        # Not all that the guess was sure of has been taken.
        aiops_restore(step.out, scan.index, scan.value, scan.some)
        step.sure = AIOPS_NEVER
    return -1


cdef Py_ssize_t _select_among_all(
    int level, const float* x, Py_ssize_t n, Py_ssize_t k, uint32_t* key, uint32_t* index,
    float* value,
) noexcept nogil:
    # For few values, and for so large a share of them that candidates would outgrow x.
    cdef Cut cut = Cut(0, 0)
    cdef Py_ssize_t bad
    if AIOPS_SMALLEST_SAMPLED <= n and 0 < k < n:
        cut = aiops_cut_of_all(level, x, n, k, key, aiops_key_room(n, aiops_room(n, k)), &bad)
    else:
        bad = aiops_first_nonfinite(x, n)
    if bad >= 0 or k == 0:
        return bad
    if n < AIOPS_SMALLEST_SAMPLED:
        aiops_finish(level, x, NULL, n, k, 0, AIOPS_NEVER, key, index, value)
    else:
        aiops_take(level, x, NULL, n, cut, index, value, k)
    return -1


cdef Py_ssize_t _select(
    int level, Scan* scan, Step* step, Py_ssize_t k, uint32_t* key,
    uint32_t* index, float* value,
) noexcept nogil:
    # Returns -1, or the position of the first value that is not finite.
    cdef Py_ssize_t bad
    if aiops_has_room(scan.n, k):
        return _select_among_some(level, scan, step, k, key, index, value)
    if step == NULL:
        return _select_among_all(level, scan.x, scan.n, k, key, index, value)
    scan.low, scan.rare = AIOPS_INFINITY_BITS, True
    step.sure = AIOPS_NEVER
    bad = _walk(level, scan, step, 0, key)
    if bad >= 0:
        return bad
    return _select_among_all(level, step.out, scan.n, k, key, index, value)


cdef Py_ssize_t _run(
    int level, const float[::1] x, Step* step, uint32_t[::1] index,
    float[::1] value,
) except -2:
    # Scratch for candidates, and for their magnitudes or a sample's, twice.
    cdef Scan scan
    cdef Py_ssize_t n = x.shape[0], k = index.shape[0], bad
    cdef Py_ssize_t room = aiops_room(n, k)
    cdef Py_ssize_t keys = aiops_key_room(n, room)
    cdef uint32_t* scratch = <uint32_t*>aiops_scratch(2 * room + keys)
    if scratch == NULL:
        raise MemoryError(f"no memory for {room} candidates")
    memset(&scan, 0, sizeof(scan))
    scan.x, scan.n, scan.room = &x[0], n, room
    scan.index, scan.value = scratch, <float*>scratch + room
    with nogil:
        bad = _select(
            aiops_topk_level(level), &scan, step, k, scratch + 2 * room,
            &index[0] if k else NULL, &value[0] if k else NULL,
        )
    free(scratch)
    return bad


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

    Releases the GIL. The arguments are checked by the caller.

    Args:
        x: float32, shape (n,), n <= 2**32.
        k: How many to select, 0 <= k <= n.
        index: uint32, shape (k,). Written.
        value: float32, shape (k,). Written.
        level: Instruction set, at most ``simd_level()``; -1 is the best one.

    Returns:
        -1, or the position of the first value that is not finite; nothing is written then.
    """
    return _run(level, x, NULL, index, value) if x.shape[0] else -1


def feedback_topk(
    const float[::1] residual not None,
    const float[::1] update not None,
    float[::1] out not None,
    Py_ssize_t k,
    uint32_t[::1] index not None,
    float[::1] value not None,
    int level=-1,
) -> tuple[int, float, float]:
    """Add, and move the k sums of largest magnitude out of ``out``; see the face.

    Args:
        residual: float32, shape (n,), n <= 2**32.
        update: float32, shape (n,).
        out: float32, shape (n,). Written; may be ``residual`` or ``update``.
        k: How many to select, 0 <= k <= n.
        index: uint32, shape (k,). Written.
        value: float32, shape (k,). Written.
        level: Instruction set, at most ``simd_level()``; -1 is the best one.

    Returns:
        -1 or the position of the first sum that is not finite, where ``out`` is the sum and nothing
        else is written; and the sums of squares of all sums and of those moved.
    """
    cdef Step step
    cdef Py_ssize_t n = residual.shape[0], bad
    cdef double moved = 0.0
    if n == 0:
        return -1, 0.0, 0.0
    memset(&step, 0, sizeof(step))
    step.update, step.out = &update[0], &out[0]
    bad = _run(level, residual, &step, index, value)
    if bad >= 0:
        return bad, 0.0, 0.0
    if k > 0:
        with nogil:
            aiops_zero(aiops_topk_level(level), step.out, &index[0], &value[0], k, step.sure)
            moved = aiops_energy_of(&value[0], k)
    return -1, aiops_energy(&step), moved
