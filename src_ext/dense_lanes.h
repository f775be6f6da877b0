/* The formulas of dense.h for whole vector registers; lanes.h includes it once per instruction set.
 *
 * `value - value` is 0 for a finite value and NaN for any other, and NaN stays NaN in a sum. That
 * is the whole check of a result: two operations beside the store and no branch.
 */
#define STEP(name) AIOPS_TARGET AIOPS_INLINE Lanes AIOPS_NAME(aiops_##name##_step)

/* A step does a few registers from i on and returns 0 in every lane, or NaN. */

STEP(add)(const aiops_add_job job, ptrdiff_t i, int bypass)
{
    const Lanes low = load(job.base + i) + job.weight * load(job.x + i);
    const Lanes high = load(job.base + i + LANES) + job.weight * load(job.x + i + LANES);
    put(job.out + i, low, bypass);
    put(job.out + i + LANES, high, bypass);
    return (low - low) + (high - high);
}

STEP(lerp)(const aiops_lerp_job job, ptrdiff_t i, int bypass)
{
    const Lanes x = load(job.out + i), next = load(job.out + i + LANES);
    const Lanes low = x + job.a * (load(job.y + i) - x);
    const Lanes high = next + job.a * (load(job.y + i + LANES) - next);
    put(job.out + i, low, bypass);
    put(job.out + i + LANES, high, bypass);
    return (low - low) + (high - high);
}

STEP(copy)(const aiops_copy_job job, ptrdiff_t i, int bypass)
{
    const Lanes low = load(job.x + i), high = load(job.x + i + LANES);
    put(job.out + i, low, bypass);
    put(job.out + i + LANES, high, bypass);
    return (low - low) + (high - high);
}

/* Four partial sums: a weight is spread once for all of them. All sources run side by side: one
 * after the other by blocks of 16 KiB took 1.5 times as long (8 sources of 1e6 values), since a
 * prefetcher starts anew in every page. */
STEP(merge_many)(const aiops_merge_job job, ptrdiff_t i, int bypass)
{
    Lanes a = {0}, b = {0}, c = {0}, d = {0};
    for (ptrdiff_t s = 0; s < job.count; s++) {
        const float weight = job.weight[s], *x = job.source[s] + i;
        a = a + weight * load(x);
        b = b + weight * load(x + LANES);
        c = c + weight * load(x + 2 * LANES);
        d = d + weight * load(x + 3 * LANES);
    }
    if (job.base) {
        a = load(job.base + i) + job.gain * a;
        b = load(job.base + i + LANES) + job.gain * b;
        c = load(job.base + i + 2 * LANES) + job.gain * c;
        d = load(job.base + i + 3 * LANES) + job.gain * d;
    }
    put(job.out + i, a, bypass);
    put(job.out + i + LANES, b, bypass);
    put(job.out + i + 2 * LANES, c, bypass);
    put(job.out + i + 3 * LANES, d, bypass);
    return ((a - a) + (b - b)) + ((c - c) + (d - d));
}

/* The same of one source: what a server does with a push as it comes in. The output is much of the
 * traffic, and in bursts of four lines stores past the caches would wait for each other. */
STEP(merge_one)(const aiops_merge_job job, ptrdiff_t i, int bypass)
{
    const Lanes zero = {0};
    Lanes low = zero + job.weight[0] * load(job.source[0] + i);
    Lanes high = zero + job.weight[0] * load(job.source[0] + i + LANES);
    if (job.base) {
        low = load(job.base + i) + job.gain * low;
        high = load(job.base + i + LANES) + job.gain * high;
    }
    put(job.out + i, low, bypass);
    put(job.out + i + LANES, high, bypass);
    return (low - low) + (high - high);
}

STEP(swap)(const aiops_swap_job job, ptrdiff_t i, int bypass)
{
    const Lanes update = load(job.x + i) - load(job.base + i), fresh = load(job.fresh + i);
    put(job.out + i, update, bypass);
    put(job.x + i, fresh, 0);
    put(job.base + i, fresh, 0);
    return (Lanes){0};
}

STEP(momentum)(const aiops_momentum_job job, ptrdiff_t i, int bypass)
{
    const Lanes update = load(job.update + i);
    const Lanes velocity = job.beta * load(job.velocity + i) + update;
    const Lanes step = job.nesterov ? update + job.beta * velocity : velocity;
    const Lanes value = load(job.params + i) + job.rate * step;
    put(job.velocity + i, velocity, 0);
    put(job.out + i, value, bypass);
    return value - value;
}

/* Every kernel is the same loop around its step, from where `out` is aligned. The job is copied:
 * the compiler must not think that the stores change it. */
#define LOOP(name, Job, REGISTERS)                                                                \
    AIOPS_TARGET static int AIOPS_NAME(aiops_##name)(const Job *given, ptrdiff_t from,            \
                                                     ptrdiff_t to, int bypass)                    \
    {                                                                                             \
        const Job job = *given;                                                                   \
        const ptrdiff_t width = REGISTERS * LANES;                                                \
        const ptrdiff_t head = from + aiops_head(job.out + from, 4, 4 * LANES, to - from);        \
        const ptrdiff_t tail = head + (to - head) / width * width;                                \
        int bad = from < head ? aiops_##name##_portable(given, from, head, 0) : 0;                \
        Lanes seen = {0};                                                                         \
        if (bypass) {                                                                             \
            for (ptrdiff_t i = head; i < tail; i += width)                                        \
                seen += AIOPS_NAME(aiops_##name##_step)(job, i, 1);                               \
            _mm_sfence();                                                                         \
        } else {                                                                                  \
            for (ptrdiff_t i = head; i < tail; i += width)                                        \
                seen += AIOPS_NAME(aiops_##name##_step)(job, i, 0);                               \
        }                                                                                         \
        bad |= tail < to ? aiops_##name##_portable(given, tail, to, 0) : 0;                       \
        return bad | any_nan(seen);                                                               \
    }

LOOP(add, aiops_add_job, 2)
LOOP(lerp, aiops_lerp_job, 2)
LOOP(copy, aiops_copy_job, 2)
LOOP(merge_many, aiops_merge_job, 4)
LOOP(merge_one, aiops_merge_job, 2)
LOOP(swap, aiops_swap_job, 1)
LOOP(momentum, aiops_momentum_job, 1)

#undef LOOP
#undef STEP
