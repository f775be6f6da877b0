/* Dense float32 kernels: one pass over memory each, with the plain C loops that define them.
 *
 * dense_lanes.h has the same formulas for whole vector registers (see lanes.h).
 *
 * `bypass` writes past the caches (non-temporal stores). It saves reading the output's old lines,
 * a third of the traffic of out = base + w * x from memory (0.63 of the time), and costs whoever
 * reads the output next. Only what is much larger than the caches should be written that way.
 */
#ifndef AIOPS_DENSE_H
#define AIOPS_DENSE_H

#include "simd.h"

enum {
    /* A block of partial sums stays in the first-level cache while all sources pass by: 16 KiB. */
    AIOPS_MERGE_BLOCK = 4096,
    /* Four vectors' blocks of a swap, 4 KiB each. One loop over all four was a quarter slower
     * without vector registers: their stores and loads met at the same place in a page. */
    AIOPS_SWAP_BLOCK = 1024
};

/* out = base + weight * x; `base` and `x` may be `out`. */
typedef struct {
    const float *base, *x;
    float weight;
    float *out;
} aiops_add_job;

/* x = x + a * (y - x) */
typedef struct {
    float *out;
    const float *y;
    float a;
} aiops_lerp_job;

/* out = x */
typedef struct {
    const float *x;
    float *out;
} aiops_copy_job;

/* out = base + gain * sum, or out = sum where `base` is NULL; sum = ((0 + w0*a0) + w1*a1) + ...
 * `base` may be `out`. */
typedef struct {
    const float *const *source;
    const float *weight;
    ptrdiff_t count;
    const float *base;
    float gain;
    float *out;
} aiops_merge_job;

/* out = x - base; x = fresh; base = fresh */
typedef struct {
    float *x, *base;
    const float *fresh;
    float *out;
} aiops_swap_job;

/* velocity = beta * velocity + update; out = params + rate * step, where step is the velocity or,
 * by Nesterov's rule, update + beta * velocity. `params` may be `out`. */
typedef struct {
    const float *params, *update;
    float *velocity, *out;
    float rate, beta;
    int nesterov;
} aiops_momentum_job;

/* -- The definitions, for values from <= i < to --------------------------------------------------
 *
 * They also do what is left before and behind whole registers, so they are not inlined. They
 * return whether a value of `out` is not finite, and do not bypass anything. */

AIOPS_NOINLINE int aiops_not_finite(const float *x, ptrdiff_t from, ptrdiff_t to)
{
    return aiops_first_nonfinite(x + from, to - from) >= 0;
}

AIOPS_NOINLINE int
aiops_add_portable(const aiops_add_job *given, ptrdiff_t from, ptrdiff_t to, int bypass)
{
    const aiops_add_job job = *given;
    for (ptrdiff_t i = from; i < to; i++)
        job.out[i] = job.base[i] + job.weight * job.x[i];
    return aiops_not_finite(job.out, from, to);
}

AIOPS_NOINLINE int
aiops_lerp_portable(const aiops_lerp_job *given, ptrdiff_t from, ptrdiff_t to, int bypass)
{
    const aiops_lerp_job job = *given;
    for (ptrdiff_t i = from; i < to; i++)
        job.out[i] = job.out[i] + job.a * (job.y[i] - job.out[i]);
    return aiops_not_finite(job.out, from, to);
}

AIOPS_NOINLINE int
aiops_copy_portable(const aiops_copy_job *given, ptrdiff_t from, ptrdiff_t to, int bypass)
{
    memcpy(given->out + from, given->x + from, (size_t)(to - from) * sizeof(float));
    return aiops_not_finite(given->out, from, to);
}

AIOPS_NOINLINE int
aiops_merge_many_portable(const aiops_merge_job *given, ptrdiff_t from, ptrdiff_t to, int bypass)
{
    const aiops_merge_job job = *given;
    float sum[AIOPS_MERGE_BLOCK];
    for (ptrdiff_t at = from, m; at < to; at += m) {
        m = to - at < AIOPS_MERGE_BLOCK ? to - at : AIOPS_MERGE_BLOCK;
        memset(sum, 0, (size_t)m * sizeof *sum);
        for (ptrdiff_t s = 0; s < job.count; s++)
            for (ptrdiff_t i = 0; i < m; i++)
                sum[i] += job.weight[s] * job.source[s][at + i];
        if (job.base)
            for (ptrdiff_t i = 0; i < m; i++)
                sum[i] = job.base[at + i] + job.gain * sum[i];
        memcpy(job.out + at, sum, (size_t)m * sizeof *sum);
    }
    return aiops_not_finite(job.out, from, to);
}

/* Only their lanes differ. */
#define aiops_merge_one_portable aiops_merge_many_portable

AIOPS_NOINLINE int
aiops_swap_portable(const aiops_swap_job *given, ptrdiff_t from, ptrdiff_t to, int bypass)
{
    const aiops_swap_job job = *given;
    for (ptrdiff_t at = from, m; at < to; at += m) {
        m = to - at < AIOPS_SWAP_BLOCK ? to - at : AIOPS_SWAP_BLOCK;
        for (ptrdiff_t i = at; i < at + m; i++)
            job.out[i] = job.x[i] - job.base[i];
        memcpy(job.x + at, job.fresh + at, (size_t)m * sizeof(float));
        memcpy(job.base + at, job.fresh + at, (size_t)m * sizeof(float));
    }
    return 0; /* nobody asks */
}

AIOPS_NOINLINE int
aiops_momentum_portable(const aiops_momentum_job *given, ptrdiff_t from, ptrdiff_t to, int bypass)
{
    const aiops_momentum_job job = *given;
    for (ptrdiff_t i = from; i < to; i++) {
        const float velocity = job.beta * job.velocity[i] + job.update[i];
        const float step = job.nesterov ? job.update[i] + job.beta * velocity : velocity;
        job.velocity[i] = velocity;
        job.out[i] = job.params[i] + job.rate * step;
    }
    return aiops_not_finite(job.out, from, to);
}

/* -- All n values -------------------------------------------------------------------------------
 *
 * AIOPS_KERNEL(name, Job) is aiops_<name>(level, job, n, bypass): all n values on the best
 * instructions up to `level`. It returns the position of the first value of `out` that is not
 * finite, or -1; looking for that place takes another pass, only where there is one. */

#define AIOPS_FORMULAS "dense_lanes.h"
#include "lanes.h"

#define AIOPS_KERNEL(name, Job)                                                                   \
    static inline ptrdiff_t aiops_##name(int level, const Job *job, ptrdiff_t n, int bypass)      \
    {                                                                                             \
        return AIOPS_ON(level, aiops_##name, (job, 0, n, bypass))                                 \
                   ? aiops_first_nonfinite(job->out, n)                                           \
                   : -1;                                                                          \
    }

AIOPS_KERNEL(add, aiops_add_job)
AIOPS_KERNEL(lerp, aiops_lerp_job)
AIOPS_KERNEL(copy, aiops_copy_job)
AIOPS_KERNEL(merge_many, aiops_merge_job)
AIOPS_KERNEL(merge_one, aiops_merge_job)
AIOPS_KERNEL(swap, aiops_swap_job)
AIOPS_KERNEL(momentum, aiops_momentum_job)

static inline ptrdiff_t
aiops_merge(int level, const aiops_merge_job *job, ptrdiff_t n, int bypass)
{
    return job->count == 1 ? aiops_merge_one(level, job, n, bypass)
                           : aiops_merge_many(level, job, n, bypass);
}

#endif
