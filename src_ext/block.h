/* What the passes of top-k do with a block of 64 values: which ones matter, and writing those out.
 *
 * Only this differs between instruction sets.
 */
#ifndef AIOPS_BLOCK_H
#define AIOPS_BLOCK_H

#include "simd.h"

#if AIOPS_X86
#  include <immintrin.h>
#  define AIOPS_TARGET_AVX2 __attribute__((target("avx2,bmi,bmi2,popcnt")))
#  define AIOPS_TARGET_AVX512 \
      __attribute__((target("avx512f,avx512bw,avx512vbmi2,bmi,bmi2,popcnt")))
#endif

enum {
    AIOPS_BLOCK = 64,
    /* An emit may write so far past its last value. */
    AIOPS_SPILL = 16,
};

/* Bit j says that |x[j]| >= low, for 64 values. */
typedef uint64_t aiops_mask(const float *x, uint32_t low);

/* Writes the values of the set bits and their positions: from[j], or at + j if there is no `from`.
 * May write up to AIOPS_SPILL entries more. The outputs may lie at or before the inputs. */
typedef void aiops_emit(const float *x, const uint32_t *from, uint32_t at, uint64_t hit,
                        uint32_t *index, float *value);

/* The place of the highest set bit; there must be one. */
AIOPS_INLINE int aiops_highest(uint64_t hit)
{
#if defined(__GNUC__)
    return 63 - __builtin_clzll(hit);
#else
    int j = 63;
    for (; !(hit >> j & 1); j--)
        continue;
    return j;
#endif
}

AIOPS_INLINE void
aiops_emit_bits(const float *x, const uint32_t *from, uint32_t at, uint64_t hit, uint32_t *index,
                float *value)
{
    for (; hit; hit &= hit - 1) {
        const int j = aiops_lowest(hit);
        *index++ = from ? from[j] : at + (uint32_t)j;
        *value++ = x[j];
    }
}

/* For one hit or two, which is what a block has where candidates are rare: both are written
 * without a branch, the second one whatever it is. */
AIOPS_INLINE void
aiops_emit_pair(const float *x, uint32_t at, uint64_t hit, uint32_t *index, float *value)
{
    const int first = aiops_lowest(hit);
    const uint64_t rest = hit & (hit - 1);
    const int second = aiops_lowest(rest | (uint64_t)1 << 63);
    index[0] = at + (uint32_t)first;
    value[0] = x[first];
    index[1] = at + (uint32_t)second;
    value[1] = x[second];
    if (rest & (rest - 1))
        aiops_emit_bits(x, NULL, at, rest & (rest - 1), index + 2, value + 2);
}

/* The compiler vectorises the comparison; a multiplication gathers eight of its bytes into bits. */
static inline uint64_t aiops_mask_portable(const float *x, uint32_t low)
{
    uint8_t reach[AIOPS_BLOCK];
    uint64_t hit = 0;
    for (int j = 0; j < AIOPS_BLOCK; j++)
        reach[j] = aiops_magnitude(x[j]) >= low;
    for (int j = 0; j < AIOPS_BLOCK; j += 8) {
        uint64_t bits = 0;
        for (int b = 0; b < 8; b++)
            bits |= (uint64_t)reach[j + b] << 8 * b;
        hit |= bits * 0x0102040810204080u >> 56 << j;
    }
    return hit;
}

#if AIOPS_X86

AIOPS_TARGET_AVX2 static inline uint64_t aiops_mask_avx2(const float *x, uint32_t low)
{
    const __m256i magnitude = _mm256_set1_epi32(0x7fffffff), lows = _mm256_set1_epi32((int)low);
    uint64_t hit = 0;
    for (int j = 0; j < AIOPS_BLOCK; j += 8) {
        const __m256i key =
            _mm256_and_si256(_mm256_loadu_si256((const __m256i *)(x + j)), magnitude);
        const __m256i in = _mm256_cmpeq_epi32(_mm256_max_epu32(key, lows), key);
        hit |= (uint64_t)(uint32_t)_mm256_movemask_ps(_mm256_castsi256_ps(in)) << j;
    }
    return hit;
}

/* Eight lanes at a time are moved together by a permutation that pext makes of the mask; where
 * few bits are set, one by one is faster. */
AIOPS_TARGET_AVX2 static inline void
aiops_emit_avx2(const float *x, const uint32_t *from, uint32_t at, uint64_t hit, uint32_t *index,
                float *value)
{
    if (aiops_ones(hit) < AIOPS_BLOCK / 8) {
        aiops_emit_bits(x, from, at, hit, index, value);
        return;
    }
    const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    for (int j = 0; j < AIOPS_BLOCK; j += 8) {
        const uint64_t part = hit >> j & 0xff;
        const uint64_t bytes = _pdep_u64(part, 0x0101010101010101u) * 0xff;
        const uint64_t lanes = _pext_u64(0x0706050403020100u, bytes);
        const __m256i order = _mm256_cvtepu8_epi32(_mm_cvtsi64_si128((long long)lanes));
        const __m256i place =
            from ? _mm256_loadu_si256((const __m256i *)(from + j))
                 : _mm256_add_epi32(lane, _mm256_set1_epi32((int)(at + (uint32_t)j)));
        const __m256 values = _mm256_permutevar8x32_ps(_mm256_loadu_ps(x + j), order);
        _mm256_storeu_si256((__m256i *)index, _mm256_permutevar8x32_epi32(place, order));
        _mm256_storeu_ps(value, values);
        index += aiops_ones(part);
        value += aiops_ones(part);
    }
}

AIOPS_TARGET_AVX512 static inline uint64_t aiops_mask_avx512(const float *x, uint32_t low)
{
    const __m512i magnitude = _mm512_set1_epi32(0x7fffffff), lows = _mm512_set1_epi32((int)low);
    uint64_t hit = 0;
    for (int j = 0; j < AIOPS_BLOCK; j += 16) {
        const __m512i key = _mm512_and_si512(_mm512_loadu_si512(x + j), magnitude);
        hit |= (uint64_t)_mm512_cmpge_epu32_mask(key, lows) << j;
    }
    return hit;
}

/* Four registers of values whose hits are few: the lanes of all set bits are compressed as bytes,
 * once, and 16 at a time looked up in the registers. Compressing each register, and storing what
 * may be nothing, takes twice as long. */
AIOPS_TARGET_AVX512 AIOPS_INLINE void
aiops_emit_few_avx512(__m512i a, __m512i b, __m512i c, __m512i d, uint32_t at, uint64_t hit,
                      uint32_t *index, float *value)
{
    const __m512i bytes = _mm512_add_epi8(
        _mm512_set4_epi32(0x0f0e0d0c, 0x0b0a0908, 0x07060504, 0x03020100),
        _mm512_setr_epi64(0, 0, 0x1010101010101010, 0x1010101010101010, 0x2020202020202020,
                          0x2020202020202020, 0x3030303030303030, 0x3030303030303030));
    __m512i lanes = _mm512_maskz_compress_epi8(hit, bytes);
    for (int left = aiops_ones(hit);;) {
        const __m512i lane = _mm512_cvtepu8_epi32(_mm512_castsi512_si128(lanes));
        const __mmask16 upper = _mm512_test_epi32_mask(lane, _mm512_set1_epi32(32));
        _mm512_storeu_si512(index, _mm512_add_epi32(lane, _mm512_set1_epi32((int)at)));
        _mm512_storeu_si512(value, _mm512_mask_blend_epi32(
            upper, _mm512_permutex2var_epi32(a, lane, b), _mm512_permutex2var_epi32(c, lane, d)));
        left -= 16;
        if (left <= 0)
            return;
        index += 16;
        value += 16;
        lanes = _mm512_alignr_epi64(lanes, lanes, 2);
    }
}

/* With names of their own the values are candidates, of which most are taken. */
AIOPS_TARGET_AVX512 static inline void
aiops_emit_avx512(const float *x, const uint32_t *from, uint32_t at, uint64_t hit,
                  uint32_t *index, float *value)
{
    if (!from) {
        aiops_emit_few_avx512(_mm512_loadu_si512(x), _mm512_loadu_si512(x + 16),
                              _mm512_loadu_si512(x + 32), _mm512_loadu_si512(x + 48), at, hit,
                              index, value);
        return;
    }
    for (int j = 0; j < AIOPS_BLOCK; j += 16) {
        const __mmask16 part = (__mmask16)(hit >> j);
        const __m512i name = _mm512_loadu_si512(from + j), bits = _mm512_loadu_si512(x + j);
        _mm512_storeu_si512(index, _mm512_maskz_compress_epi32(part, name));
        _mm512_storeu_si512(value, _mm512_maskz_compress_epi32(part, bits));
        index += aiops_ones(part);
        value += aiops_ones(part);
    }
}

#endif

#endif
