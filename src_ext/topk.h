/* The two passes over |x| that exact top-k selection is made of: count, and take in order.
 *
 * Both look at 64 values at a time through a mask of those that matter. With a good lower bound
 * most blocks have none, and a pass costs little more than reading x. Only the mask, and how its
 * values are written out, differ between instruction sets: the rest is inlined into one pair of
 * functions for each.
 */
#ifndef AIOPS_TOPK_H
#define AIOPS_TOPK_H

#include "simd.h"

#if AIOPS_X86
#  include <immintrin.h>
#endif

enum { AIOPS_BUCKETS = 2048, AIOPS_TABLES = 4, AIOPS_BLOCK = 64 };

/* Neighbours count into different tables: the same counter twice in a row waits for its own store.
 * No table sees more than its part of 2^32 equal values, so 32 bits are enough. */
typedef struct {
    uint32_t count[AIOPS_BUCKETS][AIOPS_TABLES];
} aiops_histogram;

/* How many values have a magnitude of at least `low`, above it, and of infinity or NaN. */
typedef struct {
    ptrdiff_t reach, exceed, nonfinite;
} aiops_tally;

/* Bit j says that low <= |x[j]| <= low + span, for the 64 values from x on. */
typedef uint64_t aiops_mask(const float *x, uint32_t low, uint32_t span);

/* Writes the values of the set bits and their positions, `at` being that of x[0]. */
typedef void aiops_emit(const float *x, uint32_t at, uint64_t hit, uint32_t *index, float *value);

AIOPS_INLINE int aiops_within(float x, uint32_t low, uint32_t span)
{
    return aiops_magnitude(x) - low <= span;
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
        uint64_t hit = mask(x + i, low, span);
        if (!hit)
            continue;
        const int ones = aiops_ones(hit);
        if (ones > AIOPS_BLOCK / 4) {
            /* A tie mass (zeros, a constant) is counted as one number. */
            const uint32_t tie = aiops_magnitude(x[i + aiops_lowest(hit)]);
            const uint64_t same = mask(x + i, tie, 0);
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
        if (aiops_within(x[i], low, span))
            aiops_count_one(seen, i, x[i], low, shift);
}

AIOPS_CLONES static aiops_tally aiops_count_at(const float *x, ptrdiff_t n, uint32_t low)
{
    aiops_tally total = {0, 0, 0};
    for (ptrdiff_t i = 0; i < n; i += 4096) {
        const ptrdiff_t end = n - i < 4096 ? n - i : 4096;
        uint32_t reach = 0, exceed = 0, nonfinite = 0;
        for (ptrdiff_t j = 0; j < end; j++) {
            const uint32_t u = aiops_magnitude(x[i + j]);
            reach += u >= low;
            exceed += u > low;
            nonfinite += u >= AIOPS_INFINITY_BITS;
        }
        total.reach += reach;
        total.exceed += exceed;
        total.nonfinite += nonfinite;
    }
    return total;
}

/* Writes every value with |x| >= sure and the first `ties` values with |x| == sure - 1, in order,
 * until `room` is full. Returns how many it took, or `room` if there were more. */
AIOPS_INLINE ptrdiff_t
aiops_take_by(aiops_mask *mask, aiops_emit *emit, const float *x, ptrdiff_t n, uint32_t sure,
              ptrdiff_t ties, uint32_t *index, float *value, ptrdiff_t room)
{
    ptrdiff_t out = 0, i = 0;
    for (; i + AIOPS_BLOCK <= n; i += AIOPS_BLOCK) {
        uint64_t hit = mask(x + i, sure, ~AIOPS_SIGN_BIT - sure);
        if (ties) {
            uint64_t tied = mask(x + i, sure - 1, 0);
            for (; tied && ties; tied &= tied - 1, ties--)
                hit |= tied & -tied;
        }
        if (!hit)
            continue;
        const int ones = aiops_ones(hit);
        if (ones > room - out)
            return room;
        emit(x + i, (uint32_t)i, hit, index + out, value + out);
        out += ones;
        if (out == room)
            return room;
    }
    for (; i < n && out < room; i++) {
        const uint32_t u = aiops_magnitude(x[i]);
        if (u < sure) {
            if (!ties || u != sure - 1)
                continue;
            ties--;
        }
        index[out] = (uint32_t)i;
        value[out++] = x[i];
    }
    return out;
}

/* The compiler vectorises the comparison; a multiplication gathers eight of its bytes into bits. */
static inline uint64_t aiops_mask_portable(const float *x, uint32_t low, uint32_t span)
{
    uint8_t within[AIOPS_BLOCK];
    uint64_t hit = 0;
    for (int j = 0; j < AIOPS_BLOCK; j++)
        within[j] = (uint8_t)aiops_within(x[j], low, span);
    for (int j = 0; j < AIOPS_BLOCK; j += 8) {
        uint64_t bits = 0;
        for (int b = 0; b < 8; b++)
            bits |= (uint64_t)within[j + b] << 8 * b;
        hit |= bits * 0x0102040810204080u >> 56 << j;
    }
    return hit;
}

static inline void
aiops_emit_portable(const float *x, uint32_t at, uint64_t hit, uint32_t *index, float *value)
{
    for (; hit; hit &= hit - 1) {
        const int j = aiops_lowest(hit);
        *index++ = at + (uint32_t)j;
        *value++ = x[j];
    }
}

#if AIOPS_X86

#define AIOPS_TARGET_AVX2 __attribute__((target("avx2,bmi,bmi2,popcnt")))
#define AIOPS_TARGET_AVX512 __attribute__((target("avx512f,avx512bw,bmi,bmi2,popcnt")))

AIOPS_TARGET_AVX2 static inline uint64_t
aiops_mask_avx2(const float *x, uint32_t low, uint32_t span)
{
    const __m256i magnitude = _mm256_set1_epi32(0x7fffffff);
    const __m256i lows = _mm256_set1_epi32((int)low), spans = _mm256_set1_epi32((int)span);
    uint64_t hit = 0;
    for (int j = 0; j < AIOPS_BLOCK; j += 8) {
        __m256i u = _mm256_and_si256(_mm256_loadu_si256((const __m256i *)(x + j)), magnitude);
        __m256i above = _mm256_sub_epi32(u, lows);
        __m256i in = _mm256_cmpeq_epi32(_mm256_min_epu32(above, spans), above);
        hit |= (uint64_t)(uint32_t)_mm256_movemask_ps(_mm256_castsi256_ps(in)) << j;
    }
    return hit;
}

AIOPS_TARGET_AVX512 static inline uint64_t
aiops_mask_avx512(const float *x, uint32_t low, uint32_t span)
{
    const __m512i magnitude = _mm512_set1_epi32(0x7fffffff);
    const __m512i lows = _mm512_set1_epi32((int)low), spans = _mm512_set1_epi32((int)span);
    uint64_t hit = 0;
    for (int j = 0; j < AIOPS_BLOCK; j += 16) {
        __m512i u = _mm512_and_si512(_mm512_loadu_si512(x + j), magnitude);
        hit |= (uint64_t)_mm512_cmple_epu32_mask(_mm512_sub_epi32(u, lows), spans) << j;
    }
    return hit;
}

/* Compresses in registers and stores with a mask: nothing is written past the last value. */
AIOPS_TARGET_AVX512 static inline void
aiops_emit_avx512(const float *x, uint32_t at, uint64_t hit, uint32_t *index, float *value)
{
    const __m512i lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    for (int j = 0; j < AIOPS_BLOCK; j += 16) {
        const __mmask16 part = (__mmask16)(hit >> j);
        const int ones = aiops_ones(part);
        const __mmask16 first = (__mmask16)((1u << ones) - 1);
        const __m512i position = _mm512_add_epi32(lane, _mm512_set1_epi32((int)(at + (uint32_t)j)));
        _mm512_mask_storeu_epi32(index, first, _mm512_maskz_compress_epi32(part, position));
        _mm512_mask_storeu_ps(value, first, _mm512_maskz_compress_ps(part, _mm512_loadu_ps(x + j)));
        index += ones;
        value += ones;
    }
}

AIOPS_TARGET_AVX2 static void
aiops_count_avx2(const float *x, ptrdiff_t n, uint32_t low, uint32_t span, int shift,
                 aiops_histogram *seen)
{
    aiops_count_by(aiops_mask_avx2, x, n, low, span, shift, seen);
}

AIOPS_TARGET_AVX2 static ptrdiff_t
aiops_take_avx2(const float *x, ptrdiff_t n, uint32_t sure, ptrdiff_t ties, uint32_t *index,
                float *value, ptrdiff_t room)
{
    return aiops_take_by(
        aiops_mask_avx2, aiops_emit_portable, x, n, sure, ties, index, value, room);
}

AIOPS_TARGET_AVX512 static void
aiops_count_avx512(const float *x, ptrdiff_t n, uint32_t low, uint32_t span, int shift,
                   aiops_histogram *seen)
{
    aiops_count_by(aiops_mask_avx512, x, n, low, span, shift, seen);
}

AIOPS_TARGET_AVX512 static ptrdiff_t
aiops_take_avx512(const float *x, ptrdiff_t n, uint32_t sure, ptrdiff_t ties, uint32_t *index,
                  float *value, ptrdiff_t room)
{
    return aiops_take_by(
        aiops_mask_avx512, aiops_emit_avx512, x, n, sure, ties, index, value, room);
}

#endif

static void
aiops_count(int level, const float *x, ptrdiff_t n, uint32_t low, uint32_t span, int shift,
            aiops_histogram *seen)
{
#if AIOPS_X86
    if (level == AIOPS_AVX512) {
        aiops_count_avx512(x, n, low, span, shift, seen);
        return;
    }
    if (level == AIOPS_AVX2) {
        aiops_count_avx2(x, n, low, span, shift, seen);
        return;
    }
#endif
    (void)level;
    aiops_count_by(aiops_mask_portable, x, n, low, span, shift, seen);
}

static ptrdiff_t
aiops_take(int level, const float *x, ptrdiff_t n, uint32_t sure, ptrdiff_t ties, uint32_t *index,
           float *value, ptrdiff_t room)
{
#if AIOPS_X86
    if (level == AIOPS_AVX512)
        return aiops_take_avx512(x, n, sure, ties, index, value, room);
    if (level == AIOPS_AVX2)
        return aiops_take_avx2(x, n, sure, ties, index, value, room);
#endif
    (void)level;
    return aiops_take_by(
        aiops_mask_portable, aiops_emit_portable, x, n, sure, ties, index, value, room);
}

#endif
