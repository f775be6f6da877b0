"""A vector's energy by magnitude; histogram.h tells how it is summed."""

from libc.stdint cimport int64_t, uint64_t
from libc.stdlib cimport calloc, free

cdef extern from "histogram.h" nogil:
    enum:
        AIOPS_ENERGY_LANES
    ctypedef struct Lane "aiops_energy_lane":
        pass
    ctypedef struct Sample "aiops_energy_sample":
        const float* x
        Py_ssize_t n, block, every
        uint64_t seed
    Py_ssize_t aiops_energy_histogram(
        const Sample* of, Lane* lane, int64_t* counts, double* energies,
    ) noexcept


def energy_histogram(
    const float[::1] x not None,
    Py_ssize_t block,
    Py_ssize_t every,
    uint64_t seed,
    int64_t[::1] counts not None,
    double[::1] energies not None,
) -> int:
    """Write how many values each of 4096 buckets holds, and the sum of their squares.

    Releases the GIL. The arguments are checked by the caller.

    Args:
        x: float32, shape (n,).
        block: How many consecutive values are looked at together, 1 <= block < 2**31.
        every: In a stretch of how many blocks one is looked at, 1 <= every < 2**31.
        seed: Decides which one.
        counts: int64, shape (4096,). Written.
        energies: float64, shape (4096,). Written.

    Returns:
        -1, or the position of the first value looked at that is not finite; nothing is written
        then.
    """
    cdef Py_ssize_t n = x.shape[0], bad
    cdef Sample sample
    cdef Lane* lane = <Lane*>calloc(AIOPS_ENERGY_LANES, sizeof(Lane))
    if lane == NULL:
        raise MemoryError(f"no memory for {AIOPS_ENERGY_LANES} histograms")
    sample.x = &x[0] if n else NULL
    sample.n, sample.block, sample.every, sample.seed = n, block, every, seed
    with nogil:
        bad = aiops_energy_histogram(&sample, lane, &counts[0], &energies[0])
    free(lane)
    return bad
