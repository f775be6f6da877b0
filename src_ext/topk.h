/* The passes over memory that exact top-k selection is made of: collect candidates, take the
 * winners, and, where there is no room for candidates, count.
 *
 * All look at blocks of 64 values through a mask of those that matter (block.h), and are inlined
 * into one set of functions for each instruction set.
 */
#ifndef AIOPS_TOPK_H
#define AIOPS_TOPK_H

#include "block.h"
#include "rank.h"

enum {
    /* Blocks are scanned so many at a time, which keeps them in the first-level cache. */
    AIOPS_CHUNK = 64 * AIOPS_BLOCK,
    AIOPS_LANES = 16,
};

/* A walk over x that collects candidates. */
typedef struct {
    const float *x;
    ptrdiff_t n, at;
    uint32_t low;   /* what a magnitude must reach to become a candidate */
    uint32_t least; /* what those there are have reached */
    uint32_t *index;
    float *value;
    ptrdiff_t some, room; /* candidates there are, and may be */
} aiops_scan;

/* What a scan does besides in an error-feedback step: out = x + update. */
typedef struct {
    const float *update;
    float *out;
    uint32_t sure;              /* magnitudes from here on are zero in `out` */
    ptrdiff_t phase;            /* the first position that is squared into energy[0] */
    double energy[AIOPS_LANES]; /* each position's square goes to one lane, in order */
} aiops_feedback;

/* How many values have a magnitude of at least `low`, of at least `high`, and none. */
typedef struct {
    ptrdiff_t low, high, nonfinite;
} aiops_tally;

/* Values one by one: where a block is not whole. */
static void aiops_scan_singly(aiops_scan *scan, aiops_feedback *step, ptrdiff_t count)
{
    for (const ptrdiff_t end = scan->at + count; scan->at < end; scan->at++) {
        float x = scan->x[scan->at];
        if (step)
            x += step->update[scan->at];
        const uint32_t key = aiops_magnitude(x);
        if (key >= scan->low) {
            scan->index[scan->some] = (uint32_t)scan->at;
            scan->value[scan->some++] = x;
        }
        if (step) {
            step->energy[(scan->at - step->phase) & (AIOPS_LANES - 1)] += (double)x * (double)x;
            step->out[scan->at] = key >= step->sure ? 0.0f : x;
        }
    }
}

/* Collects candidates from `at` on, until all of x is seen or fewer than a chunk may fit. Where
 * most blocks have none (`rare`) those that have are listed first: at one candidate in a hundred
 * values a branch is guessed wrong in half of the blocks. Elsewhere every block is emitted, which
 * takes no branch at all. */
AIOPS_INLINE void aiops_scan_by(aiops_mask *mask, aiops_emit *emit, aiops_scan *scan, int rare)
{
    while (scan->at < scan->n && scan->room - scan->some >= AIOPS_CHUNK + AIOPS_SPILL) {
        const ptrdiff_t left = (scan->n - scan->at) / AIOPS_BLOCK;
        const int blocks = left < AIOPS_CHUNK / AIOPS_BLOCK ? (int)left : AIOPS_CHUNK / AIOPS_BLOCK;
        const float *x = scan->x + scan->at;
        const uint32_t at = (uint32_t)scan->at, low = scan->low;
        ptrdiff_t some = scan->some;
        if (rare) {
            uint64_t hit[AIOPS_CHUNK / AIOPS_BLOCK], any = 0;
            for (int b = 0; b < blocks; b++) {
                hit[b] = mask(x + b * AIOPS_BLOCK, low);
                any |= (uint64_t)(hit[b] != 0) << b;
            }
            for (; any; any &= any - 1) {
                const int b = aiops_lowest(any);
                emit(x + b * AIOPS_BLOCK, NULL, at + (uint32_t)(b * AIOPS_BLOCK), hit[b],
                     scan->index + some, scan->value + some);
                some += aiops_ones(hit[b]);
            }
        } else {
            for (int b = 0; b < blocks; b++) {
                const uint64_t hit = mask(x + b * AIOPS_BLOCK, low);
                emit(x + b * AIOPS_BLOCK, NULL, at + (uint32_t)(b * AIOPS_BLOCK), hit,
                     scan->index + some, scan->value + some);
                some += aiops_ones(hit);
            }
        }
        scan->some = some;
        scan->at += blocks * AIOPS_BLOCK;
        if (blocks < AIOPS_CHUNK / AIOPS_BLOCK)
            aiops_scan_singly(scan, NULL, scan->n - scan->at);
    }
}

/* The same with an error-feedback step. Everything is read and written once. */
AIOPS_INLINE void
aiops_feed_by(aiops_mask *mask, aiops_emit *emit, aiops_put *put, aiops_scan *scan,
              aiops_feedback *step)
{
    const uint32_t low = scan->low, sure = step->sure;
    while (scan->at < scan->n && scan->room - scan->some >= AIOPS_CHUNK + AIOPS_SPILL) {
        const ptrdiff_t left = (scan->n - scan->at) / AIOPS_BLOCK;
        const int blocks = left < AIOPS_CHUNK / AIOPS_BLOCK ? (int)left : AIOPS_CHUNK / AIOPS_BLOCK;
        double energy[AIOPS_LANES];
        memcpy(energy, step->energy, sizeof energy);
        for (int b = 0; b < blocks; b++, scan->at += AIOPS_BLOCK) {
            const float *x = scan->x + scan->at, *update = step->update + scan->at;
            AIOPS_ALIGNED float total[AIOPS_BLOCK];
            for (int j = 0; j < AIOPS_BLOCK; j++)
                total[j] = x[j] + update[j];
            for (int j = 0; j < AIOPS_BLOCK; j += AIOPS_LANES)
                for (int lane = 0; lane < AIOPS_LANES; lane++)
                    energy[lane] += (double)total[j + lane] * (double)total[j + lane];
            const uint64_t hit = mask(total, low);
            emit(total, NULL, (uint32_t)scan->at, hit, scan->index + scan->some,
                 scan->value + scan->some);
            scan->some += aiops_ones(hit);
            for (int j = 0; j < AIOPS_BLOCK; j++)
                total[j] = aiops_magnitude(total[j]) >= sure ? 0.0f : total[j];
            put(step->out + scan->at, total);
        }
        memcpy(step->energy, energy, sizeof energy);
        if (blocks < AIOPS_CHUNK / AIOPS_BLOCK)
            aiops_scan_singly(scan, step, scan->n - scan->at);
    }
}

/* Writes every value with |x| >= sure and the first `ties` values with |x| == sure - 1, in order:
 * k of them. Another thread that writes to x can change what is taken, and no memory but this. */
AIOPS_INLINE void
aiops_take_by(aiops_mask *mask, aiops_emit *emit, const float *x, const uint32_t *from,
              ptrdiff_t m, aiops_cut cut, uint32_t *index, float *value, ptrdiff_t k)
{
    ptrdiff_t out = 0, i = 0;
    for (; i + AIOPS_BLOCK <= m && out < k; i += AIOPS_BLOCK) {
        uint64_t hit = mask(x + i, cut.sure);
        if (cut.ties) {
            uint64_t tied = mask(x + i, cut.sure - 1) & ~hit;
            const int ones = aiops_ones(tied);
            if (ones <= cut.ties) {
                hit |= tied;
                cut.ties -= ones;
            } else {
                for (; cut.ties; tied &= tied - 1, cut.ties--)
                    hit |= tied & -tied;
            }
        }
        if (!hit)
            continue;
        const uint32_t *names = from ? from + i : NULL;
        int ones = aiops_ones(hit);
        if (k - out >= AIOPS_BLOCK + AIOPS_SPILL) {
            emit(x + i, names, (uint32_t)i, hit, index + out, value + out);
        } else {
            for (; ones > k - out; ones--)
                hit &= ~((uint64_t)1 << aiops_highest(hit));
            aiops_emit_bits(x + i, names, (uint32_t)i, hit, index + out, value + out);
        }
        out += ones;
    }
    for (; i < m && out < k; i++) {
        const uint32_t key = aiops_magnitude(x[i]);
        if (key < cut.sure && (!cut.ties || key != cut.sure - 1))
            continue;
        cut.ties -= key < cut.sure;
        index[out] = from ? from[i] : (uint32_t)i;
        value[out++] = x[i];
    }
    for (; out < k; out++) {
        index[out] = 0;
        value[out] = 0.0f;
    }
}

AIOPS_INLINE void
aiops_count_one(aiops_histogram *seen, ptrdiff_t table, float x, uint32_t low, int shift)
{
    const uint32_t bucket = (aiops_magnitude(x) - low) >> shift;
    seen->count[bucket & (AIOPS_BUCKETS - 1)][table % AIOPS_TABLES]++;
}

/* Adds every |x| in [low, low + span] to bucket (|x| - low) >> shift. */
AIOPS_INLINE void
aiops_count_by(aiops_mask *mask, const float *x, ptrdiff_t n, uint32_t low, uint32_t span,
               int shift, aiops_histogram *seen)
{
    ptrdiff_t i = 0;
    for (; i + AIOPS_BLOCK <= n; i += AIOPS_BLOCK) {
        uint64_t hit = mask(x + i, low) & ~mask(x + i, low + span + 1);
        if (!hit)
            continue;
        const int ones = aiops_ones(hit);
        if (ones > AIOPS_BLOCK / 4) {
            /* A tie mass (zeros, a constant) is counted as one number. */
            const uint32_t tie = aiops_magnitude(x[i + aiops_lowest(hit)]);
            const uint64_t same = mask(x + i, tie) & ~mask(x + i, tie + 1);
            const int ties = aiops_ones(same);
            if (ties > ones / 2) {
                const uint32_t bucket = ((tie - low) >> shift) & (AIOPS_BUCKETS - 1);
                seen->count[bucket][i / AIOPS_BLOCK % AIOPS_TABLES] += (uint32_t)ties;
                hit &= ~same;
            } else if (ones == AIOPS_BLOCK) {
                for (int j = 0; j < AIOPS_BLOCK; j += AIOPS_TABLES)
                    for (int table = 0; table < AIOPS_TABLES; table++)
                        aiops_count_one(seen, table, x[i + j + table], low, shift);
                continue;
            }
        }
        for (; hit; hit &= hit - 1) {
            const int j = aiops_lowest(hit);
            aiops_count_one(seen, j, x[i + j], low, shift);
        }
    }
    for (; i < n; i++)
        if (aiops_magnitude(x[i]) - low <= span)
            aiops_count_one(seen, i, x[i], low, shift);
}

/* Sets to zero out[index[i]] for each |value[i]| < sure: the others are zero already. */
AIOPS_INLINE void
aiops_zero_by(aiops_mask *mask, float *out, const uint32_t *index, const float *value, ptrdiff_t k,
              uint32_t sure)
{
    ptrdiff_t i = 0;
    for (; i + AIOPS_BLOCK <= k; i += AIOPS_BLOCK)
        for (uint64_t left = ~mask(value + i, sure); left; left &= left - 1)
            out[index[i + aiops_lowest(left)]] = 0.0f;
    for (; i < k; i++)
        if (aiops_magnitude(value[i]) < sure)
            out[index[i]] = 0.0f;
}

AIOPS_CLONES static aiops_tally
aiops_tally_of(const float *x, ptrdiff_t n, uint32_t low, uint32_t high)
{
    aiops_tally total = {0, 0, 0};
    for (ptrdiff_t i = 0; i < n; i += 4096) {
        const ptrdiff_t end = n - i < 4096 ? n - i : 4096;
        uint32_t at_low = 0, at_high = 0, nonfinite = 0;
        for (ptrdiff_t j = 0; j < end; j++) {
            const uint32_t key = aiops_magnitude(x[i + j]);
            at_low += key >= low;
            at_high += key >= high;
            nonfinite += key >= AIOPS_INFINITY_BITS;
        }
        total.low += at_low;
        total.high += at_high;
        total.nonfinite += nonfinite;
    }
    return total;
}

/* Magnitudes of `lines` pieces of AIOPS_LANES values, one somewhere in every stride of x (plus
 * update, if there is one). */
static void
aiops_sample(const float *x, const float *update, ptrdiff_t n, ptrdiff_t lines, uint64_t seed,
             uint32_t *key)
{
    const ptrdiff_t stride = n / lines;
    for (ptrdiff_t line = 0; line < lines; line++, key += AIOPS_LANES) {
        /* A linear congruential step: jitter keeps the sample off any period of the data. */
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        const uint64_t jitter = (seed >> 33) * (uint64_t)(stride - AIOPS_LANES + 1) >> 31;
        const float *from = x + line * stride + jitter;
        const float *more = update ? update + line * stride + jitter : NULL;
        for (int j = 0; j < AIOPS_LANES; j++)
            key[j] = aiops_magnitude(more ? from[j] + more[j] : from[j]);
    }
}

/* One set of functions per instruction set, `name` being its suffix and `past` its put that
 * leaves the cache out. */
#define AIOPS_SET(target, name, emit, past)                                                      \
    target static void aiops_scan_##name(aiops_scan *scan, int rare)                             \
    {                                                                                            \
        if (rare)                                                                                \
            aiops_scan_by(aiops_mask_##name, emit, scan, 1);                                     \
        else                                                                                     \
            aiops_scan_by(aiops_mask_##name, emit, scan, 0);                                     \
    }                                                                                            \
    target static void aiops_feed_##name(aiops_scan *scan, aiops_feedback *step, int streamed)   \
    {                                                                                            \
        if (streamed)                                                                            \
            aiops_feed_by(aiops_mask_##name, emit, past, scan, step);                            \
        else                                                                                     \
            aiops_feed_by(aiops_mask_##name, emit, aiops_put_portable, scan, step);              \
    }                                                                                            \
    target static void aiops_take_##name(const float *x, const uint32_t *from, ptrdiff_t m,      \
                                         aiops_cut cut, uint32_t *index, float *value,           \
                                         ptrdiff_t k)                                            \
    {                                                                                            \
        if (from)                                                                                \
            aiops_take_by(aiops_mask_##name, emit, x, from, m, cut, index, value, k);            \
        else                                                                                     \
            aiops_take_by(aiops_mask_##name, emit, x, NULL, m, cut, index, value, k);            \
    }                                                                                            \
    target static void aiops_count_##name(const float *x, ptrdiff_t n, uint32_t low,             \
                                          uint32_t span, int shift, aiops_histogram *seen)       \
    {                                                                                            \
        aiops_count_by(aiops_mask_##name, x, n, low, span, shift, seen);                         \
    }                                                                                            \
    target static void aiops_zero_##name(float *out, const uint32_t *index, const float *value,  \
                                         ptrdiff_t k, uint32_t sure)                             \
    {                                                                                            \
        aiops_zero_by(aiops_mask_##name, out, index, value, k, sure);                            \
    }

AIOPS_SET(, portable, aiops_emit_bits, aiops_put_portable)
#if AIOPS_X86
AIOPS_SET(AIOPS_TARGET_AVX2, avx2, aiops_emit_avx2, aiops_put_past_avx2)
AIOPS_SET(AIOPS_TARGET_AVX512, avx512, aiops_emit_avx512, aiops_put_past_avx512)
#  define AIOPS_BY_LEVEL(level, name, ...)                                                       \
      do {                                                                                       \
          if (level == AIOPS_AVX512)                                                             \
              aiops_##name##_avx512(__VA_ARGS__);                                                \
          else if (level == AIOPS_AVX2)                                                          \
              aiops_##name##_avx2(__VA_ARGS__);                                                  \
          else                                                                                   \
              aiops_##name##_portable(__VA_ARGS__);                                              \
      } while (0)
#else
#  define AIOPS_BY_LEVEL(level, name, ...) ((void)level, aiops_##name##_portable(__VA_ARGS__))
#endif

/* The instruction set to use where `level` is wanted, -1 being the best: what is written here for
 * AVX-512 needs its byte compression too. */
static int aiops_topk_level(int level)
{
    if (level < 0)
        level = aiops_simd_level();
#if AIOPS_X86
    if (level == AIOPS_AVX512 && !__builtin_cpu_supports("avx512vbmi2"))
        return AIOPS_AVX2;
#endif
    return level;
}

static void aiops_collect(int level, aiops_scan *scan, int rare)
{
    AIOPS_BY_LEVEL(level, scan, scan, rare);
}

/* A large sum past the cache: it costs no reading of `out` then, yet whole cache lines only. */
static void aiops_feed(int level, aiops_scan *scan, aiops_feedback *step, int streamed)
{
#if AIOPS_X86
    if (streamed && level != AIOPS_PORTABLE) {
        if (scan->at == 0) {
            step->phase = (ptrdiff_t)(-(uintptr_t)step->out / sizeof *step->out % AIOPS_LANES);
            aiops_scan_singly(scan, step, step->phase);
        }
        AIOPS_BY_LEVEL(level, feed, scan, step, 1);
        _mm_sfence();
        return;
    }
#endif
    AIOPS_BY_LEVEL(level, feed, scan, step, 0);
}

static void
aiops_take(int level, const float *x, const uint32_t *from, ptrdiff_t m, aiops_cut cut,
           uint32_t *index, float *value, ptrdiff_t k)
{
    AIOPS_BY_LEVEL(level, take, x, from, m, cut, index, value, k);
}

static void
aiops_count(int level, const float *x, ptrdiff_t n, uint32_t low, uint32_t span, int shift,
            aiops_histogram *seen)
{
    AIOPS_BY_LEVEL(level, count, x, n, low, span, shift, seen);
}

static void
aiops_zero(int level, float *out, const uint32_t *index, const float *value, ptrdiff_t k,
           uint32_t sure)
{
    AIOPS_BY_LEVEL(level, zero, out, index, value, k, sure);
}

/* Puts back what a guess had set to zero. */
static void
aiops_restore(float *out, const uint32_t *index, const float *value, ptrdiff_t some)
{
    for (ptrdiff_t i = 0; i < some; i++)
        out[index[i]] = value[i];
}

/* The sum of squares, in the lanes of the position. */
static double aiops_energy(const aiops_feedback *step)
{
    double total = 0;
    for (ptrdiff_t lane = 0; lane < AIOPS_LANES; lane++)
        total += step->energy[(lane - step->phase) & (AIOPS_LANES - 1)];
    return total;
}

static double aiops_energy_of(const float *x, ptrdiff_t n)
{
    double energy[AIOPS_LANES] = {0}, total = 0;
    ptrdiff_t i = 0;
    for (; i + AIOPS_LANES <= n; i += AIOPS_LANES)
        for (int lane = 0; lane < AIOPS_LANES; lane++)
            energy[lane] += (double)x[i + lane] * (double)x[i + lane];
    for (; i < n; i++)
        energy[i % AIOPS_LANES] += (double)x[i] * (double)x[i];
    for (int lane = 0; lane < AIOPS_LANES; lane++)
        total += energy[lane];
    return total;
}

#endif
