/* Which magnitude has a given rank in an array that fits the cache: the sample that a selection
 * guesses from, and the few candidates that its guess leaves undecided.
 *
 * A magnitude is |x| as an integer (simd.h). Large arrays are first narrowed to the few values
 * around the rank, by a sample of their own; the rest is decided digit by digit.
 */
#ifndef AIOPS_RANK_H
#define AIOPS_RANK_H

#include <math.h>

#include "block.h"

enum {
    /* Bits that a pass decides by counting. */
    AIOPS_DIGIT = 11,
    AIOPS_BUCKETS = 1 << AIOPS_DIGIT,
    AIOPS_TABLES = 4,
    AIOPS_SUBSAMPLE = 1024,
    /* So few values are compared with bound after bound sooner than they are counted. */
    AIOPS_LARGEST_BISECTED = 4096,
};

/* No finite value, infinity or NaN has this magnitude. */
#define AIOPS_NEVER AIOPS_SIGN_BIT

/* Neighbours count into different tables: the same counter twice in a row waits for its own store.
 * No table sees more than its part of 2^32 equal values, so 32 bits are enough. */
typedef struct {
    uint32_t count[AIOPS_BUCKETS][AIOPS_TABLES];
} aiops_histogram;

/* Those of at least `sure`, and the first `ties` of exactly sure - 1, are a given number. */
typedef struct {
    uint32_t sure;
    ptrdiff_t ties;
} aiops_cut;

/* How many reach a lower and an upper bound. */
typedef struct {
    ptrdiff_t low, high;
} aiops_reach;

AIOPS_INLINE void aiops_clear(aiops_histogram *seen, int digit)
{
    memset(seen, 0, sizeof seen->count[0] << digit);
}

AIOPS_INLINE ptrdiff_t aiops_held(const aiops_histogram *seen, uint32_t bucket)
{
    ptrdiff_t total = 0;
    for (int table = 0; table < AIOPS_TABLES; table++)
        total += seen->count[bucket][table];
    return total;
}

/* The bucket, from the top, in which the count comes to `wanted`, or bucket 0; `above` grows by
 * what lies over it. */
static uint32_t
aiops_bucket(const aiops_histogram *seen, int digit, ptrdiff_t wanted, ptrdiff_t *above)
{
    uint32_t bucket = (1u << digit) - 1;
    for (; bucket > 0; bucket--) {
        const ptrdiff_t held = aiops_held(seen, bucket);
        if (*above + held >= wanted)
            break;
        *above += held;
    }
    return bucket;
}

/* How many bits it takes to tell the values of [0, span] apart. */
AIOPS_INLINE int aiops_width(uint32_t span)
{
    int width = 0;
    for (; span; span >>= 1)
        width++;
    return width;
}

/* The magnitude at `from[i]`, which are floats or magnitudes: without its sign a float is one. */
AIOPS_INLINE uint32_t aiops_magnitude_at(const void *from, ptrdiff_t i)
{
    uint32_t bits;
    memcpy(&bits, (const char *)from + i * (ptrdiff_t)sizeof bits, sizeof bits);
    return bits & ~AIOPS_SIGN_BIT;
}

/* Every magnitude below `low` wraps around to above `span`. */
AIOPS_INLINE ptrdiff_t
aiops_keep_from(const void *from, ptrdiff_t i, ptrdiff_t m, uint32_t low, uint32_t span,
                uint32_t *to, ptrdiff_t kept)
{
    for (; i < m; i++) {
        const uint32_t key = aiops_magnitude_at(from, i);
        to[kept] = key;
        kept += key - low <= span;
    }
    return kept;
}

#if AIOPS_X86

AIOPS_TARGET_AVX512 static ptrdiff_t
aiops_keep_avx512(const void *from, ptrdiff_t m, uint32_t low, uint32_t span, uint32_t *to)
{
    const __m512i magnitude = _mm512_set1_epi32(0x7fffffff);
    const __m512i lows = _mm512_set1_epi32((int)low), spans = _mm512_set1_epi32((int)span);
    ptrdiff_t i = 0, kept = 0;
    for (; i + 16 <= m; i += 16) {
        const __m512i bits = _mm512_loadu_si512((const char *)from + 4 * i);
        const __m512i key = _mm512_and_si512(bits, magnitude);
        const __mmask16 in = _mm512_cmple_epu32_mask(_mm512_sub_epi32(key, lows), spans);
        _mm512_storeu_si512(to + kept, _mm512_maskz_compress_epi32(in, key));
        kept += aiops_ones(in);
    }
    return aiops_keep_from(from, i, m, low, span, to, kept);
}

#endif

/* Copies the magnitudes of [low, low + span], in order, and returns how many there are. `to` has
 * room for m and may be `from`: what is written lies never ahead of what is read. */
static ptrdiff_t
aiops_keep(int level, const void *from, ptrdiff_t m, uint32_t low, uint32_t span, uint32_t *to)
{
#if AIOPS_X86
    if (level == AIOPS_AVX512)
        return aiops_keep_avx512(from, m, low, span, to);
#endif
    (void)level;
    return aiops_keep_from(from, 0, m, low, span, to, 0);
}

AIOPS_CLONES static aiops_reach
aiops_reach_of(const uint32_t *key, ptrdiff_t m, uint32_t low, uint32_t high)
{
    uint32_t at_low = 0, at_high = 0;
    for (ptrdiff_t i = 0; i < m; i++) {
        at_low += key[i] >= low;
        at_high += key[i] >= high;
    }
    return (aiops_reach){at_low, at_high};
}

static void
aiops_count_keys(const uint32_t *key, ptrdiff_t m, uint32_t low, int shift, aiops_histogram *seen)
{
    ptrdiff_t i = 0;
    for (; i + AIOPS_TABLES <= m; i += AIOPS_TABLES)
        for (int table = 0; table < AIOPS_TABLES; table++)
            seen->count[(key[i + table] - low) >> shift & (AIOPS_BUCKETS - 1)][table]++;
    for (; i < m; i++)
        seen->count[(key[i] - low) >> shift & (AIOPS_BUCKETS - 1)][0]++;
}

AIOPS_CLONES static ptrdiff_t aiops_reach_one(const uint32_t *key, ptrdiff_t m, uint32_t low)
{
    uint32_t reach = 0;
    for (ptrdiff_t i = 0; i < m; i++)
        reach += key[i] >= low;
    return reach;
}

/* By halves of the interval; see aiops_cut_at for the arguments. */
static aiops_cut
aiops_cut_by_halves(const uint32_t *key, ptrdiff_t m, ptrdiff_t rank, uint32_t low, uint32_t span)
{
    ptrdiff_t above = 0;
    while (span > 0) {
        const uint32_t half = span / 2 + 1;
        const ptrdiff_t reach = aiops_reach_one(key, m, low + half);
        if (reach == rank)
            return (aiops_cut){low + half, 0};
        if (reach > rank) {
            low += half;
            span -= half;
        } else {
            above = reach;
            span = half - 1;
        }
    }
    return (aiops_cut){low + 1, rank - above};
}

/* Digit by digit; `key` is lost. */
static aiops_cut
aiops_cut_by_digits(int level, uint32_t *key, ptrdiff_t m, ptrdiff_t rank, uint32_t low,
                    uint32_t span)
{
    aiops_histogram seen;
    ptrdiff_t above = 0;
    for (int shift = aiops_width(span); shift > 0 && m > AIOPS_LARGEST_BISECTED;) {
        const int width = shift < AIOPS_DIGIT ? shift : AIOPS_DIGIT;
        shift -= width;
        aiops_clear(&seen, width);
        aiops_count_keys(key, m, low, shift, &seen);
        const uint32_t bucket = aiops_bucket(&seen, width, rank, &above);
        low += bucket << shift;
        if (above + aiops_held(&seen, bucket) == rank)
            /* The whole bucket is wanted, so the bits below it do not matter. */
            return (aiops_cut){low, 0};
        span = (1u << shift) - 1;
        if (shift)
            m = aiops_keep(level, key, m, low, span, key);
    }
    return aiops_cut_by_halves(key, m, rank - above, low, span);
}

/* The cut at about `rank` among every stride-th key. */
static uint32_t
aiops_cut_of_subsample(const uint32_t *key, ptrdiff_t m, double rank, uint32_t low, uint32_t span)
{
    uint32_t sub[AIOPS_SUBSAMPLE];
    const ptrdiff_t stride = m / AIOPS_SUBSAMPLE;
    for (int i = 0; i < AIOPS_SUBSAMPLE; i++)
        sub[i] = key[i * stride];
    if (rank < 1)
        return low + span;
    if (rank > AIOPS_SUBSAMPLE)
        return low;
    const aiops_cut cut =
        aiops_cut_by_halves(sub, AIOPS_SUBSAMPLE, (ptrdiff_t)rank, low, span);
    return cut.sure - (cut.ties > 0);
}

/* Where the `rank` largest of m keys end; 1 <= rank <= m, and all lie in [low, low + span] with
 * low + span < 2^31. `room` takes m keys and may be `key` itself, which is lost then. */
static aiops_cut
aiops_cut_at(int level, const uint32_t *key, ptrdiff_t m, ptrdiff_t rank, uint32_t low,
             uint32_t span, uint32_t *room)
{
    if (m > AIOPS_LARGEST_BISECTED) {
        const double share = (double)rank / (double)m, due = share * AIOPS_SUBSAMPLE;
        const double spread = 4 * sqrt(due * (1 - share)) + 2;
        const uint32_t from = aiops_cut_of_subsample(key, m, due + spread, low, span);
        const uint32_t to = aiops_cut_of_subsample(key, m, due - spread, low, span) + 1;
        const aiops_reach reach = aiops_reach_of(key, m, from, to);
        if (reach.high < rank && rank <= reach.low) {
            m = aiops_keep(level, key, m, from, to - 1 - from, room);
            return aiops_cut_by_digits(level, room, m, rank - reach.high, from, to - 1 - from);
        }
    }
    if (room != key)
        memcpy(room, key, (size_t)m * sizeof *key);
    return aiops_cut_by_digits(level, room, m, rank, low, span);
}

#endif
