"""The step of an optimizer, each in one pass: the update goes in, new parameters come out.

``level`` is the instruction set, at most ``_topk.simd_level()``; -1 is the best one. Every function
releases the GIL; lengths and overlap are checked by the caller.
"""

from dense cimport aiops_add, aiops_add_job, aiops_momentum, aiops_momentum_job
from simd cimport aiops_exceeds_caches, aiops_simd_level


def sgd(
    const float[::1] params not None,
    const float[::1] update not None,
    float rate,
    float[::1] out not None,
    bint bypass,
    int level=-1,
) -> int:
    """Write ``params + rate * update`` to ``out``.

    Args:
        params: float32, shape (n,). May be ``out`` itself.
        update: float32, shape (n,).
        rate: Factor of the update.
        out: float32, shape (n,). Written.
        bypass: Whether to write past the caches whatever the size.

    Returns:
        The position of the first result that is NaN or infinite, or -1.
    """
    cdef Py_ssize_t n = params.shape[0], bad
    cdef aiops_add_job job
    if n == 0:
        return -1
    if level < 0:
        level = aiops_simd_level()
    job.base, job.x, job.weight, job.out = &params[0], &update[0], rate, &out[0]
    if job.base != job.out and aiops_exceeds_caches(n, 12):
        bypass = True
    with nogil:
        bad = aiops_add(level, &job, n, bypass)
    return bad


def momentum(
    const float[::1] params not None,
    float[::1] velocity not None,
    const float[::1] update not None,
    float rate,
    float beta,
    bint nesterov,
    float[::1] out not None,
    bint bypass,
    int level=-1,
) -> int:
    """Write ``velocity = beta * velocity + update``, then ``out = params + rate * step``.

    Args:
        params: float32, shape (n,). May be ``out`` itself.
        velocity: float32, shape (n,). Read, then written.
        update: float32, shape (n,).
        rate: Factor of the step.
        beta: Share of the velocity that stays.
        nesterov: Whether the step is ``update + beta * velocity``, else ``velocity``.
        out: float32, shape (n,). Written.
        bypass: Whether to write ``out`` past the caches whatever the size.

    Returns:
        The position of the first value of ``out`` that is NaN or infinite, or -1.
    """
    cdef Py_ssize_t n = params.shape[0], bad
    cdef aiops_momentum_job job
    if n == 0:
        return -1
    if level < 0:
        level = aiops_simd_level()
    job.params, job.velocity, job.update, job.out = &params[0], &velocity[0], &update[0], &out[0]
    job.rate, job.beta, job.nesterov = rate, beta, nesterov
    if job.params != job.out and aiops_exceeds_caches(n, 16):
        bypass = True
    with nogil:
        bad = aiops_momentum(level, &job, n, bypass)
    return bad
