/* The two halves of an index code, in plain C and with the instructions made for them.
 *
 * A bitmap with one bit per position (its high part in unary), and low parts of `rest` < 8 bits
 * packed eight to `rest` bytes. index.h says what they mean. Nothing here checks anything: index.h
 * has checked.
 */
#ifndef AIOPS_INDEX_BITS_H
#define AIOPS_INDEX_BITS_H

#include "marks.h"

/* Positions are decoded so many at a time, a multiple of 64. */
enum { AIOPS_INDEX_BLOCK = 512 };

/* The stretch of bitmap that is set at a time; a block of positions takes 1100 to 1500 bits. */
enum { AIOPS_STRETCH = 2048 };

/* VBMI and VBMI2 came after the rest of AVX-512 (Ice Lake, Zen 4). */
static inline int aiops_has_vbmi2(int level)
{
#if AIOPS_X86
    return level >= AIOPS_AVX512 && __builtin_cpu_supports("avx512vbmi")
        && __builtin_cpu_supports("avx512vbmi2");
#else
    (void)level;
    return 0;
#endif
}

/* ---- the bitmap ---------------------------------------------------------------------------- */

/* Sets bit `start` + step[i] for every i, step ascending from 0; the bitmap was cleared. Marking a
 * byte depends on no store before it, unlike setting a bit. */
AIOPS_INLINE void
aiops_set_by(aiops_gather_marks *gather, uint8_t *upper, ptrdiff_t start, const uint32_t *step,
             ptrdiff_t count)
{
    uint8_t mark[AIOPS_STRETCH];
    memset(mark, 0, sizeof mark);
    for (ptrdiff_t i = 0; i < count;) {
        const ptrdiff_t word = (start + step[i]) / AIOPS_WORD;
        const ptrdiff_t base = AIOPS_WORD * word - start;
        ptrdiff_t end = count, words;
        /* Positions in clumps, far apart, are marked clump by clump. */
        while (step[end - 1] - base >= AIOPS_STRETCH)
            end = i + (end - i + 1) / 2;
        words = (step[end - 1] - base) / AIOPS_WORD + 1;
        for (; i < end; i++)
            mark[(uint32_t)(step[i] - (uint32_t)base)] = 1;
        for (ptrdiff_t w = 0; w < words; w++) {
            uint8_t *const to = upper + 8 * (word + w);
            aiops_store64(to, aiops_load64(to) | gather(mark + AIOPS_WORD * w));
        }
    }
}

static void
aiops_set_portable(uint8_t *upper, ptrdiff_t start, const uint32_t *step, ptrdiff_t count)
{
    aiops_set_by(aiops_marks_portable, upper, start, step, count);
}

/* Writes (place of a set bit) - (its number) to high[ready] and on, until a block is there or the
 * words end; high[0] has the number `first`. Moves `word` on, returns how many are ready. */
AIOPS_INLINE ptrdiff_t
aiops_find_by_bit(const uint8_t *upper, ptrdiff_t *word, ptrdiff_t words, ptrdiff_t first,
                  uint32_t *high, ptrdiff_t ready)
{
    for (; *word < words && ready < AIOPS_INDEX_BLOCK; ++*word) {
        const ptrdiff_t base = AIOPS_WORD * *word - first;
        uint64_t bits = aiops_load64(upper + 8 * *word);
        for (; bits; bits &= bits - 1, ready++)
            high[ready] = (uint32_t)(base + aiops_lowest(bits) - ready);
    }
    return ready;
}

static ptrdiff_t
aiops_find_portable(const uint8_t *upper, ptrdiff_t *word, ptrdiff_t words, ptrdiff_t first,
                    uint32_t *high, ptrdiff_t ready)
{
    return aiops_find_by_bit(upper, word, words, first, high, ready);
}

/* ---- low bits that fill no byte ------------------------------------------------------------ */

static void aiops_pack_portable(const uint8_t *low, uint8_t *packed, int rest, ptrdiff_t groups)
{
    for (ptrdiff_t g = 0; g < groups; g++) {
        uint64_t bits = 0;
        for (int j = 0; j < 8; j++)
            bits |= (uint64_t)low[8 * g + j] << (j * rest);
        for (int b = 0; b < rest; b++)
            packed[rest * g + b] = (uint8_t)(bits >> (8 * b));
    }
}

static void aiops_unpack_portable(const uint8_t *packed, uint8_t *low, int rest, ptrdiff_t groups)
{
    const uint8_t mask = (uint8_t)((1u << rest) - 1);
    for (ptrdiff_t g = 0; g < groups; g++) {
        uint64_t bits = 0;
        for (int b = 0; b < rest; b++)
            bits |= (uint64_t)packed[rest * g + b] << (8 * b);
        for (int j = 0; j < 8; j++)
            low[8 * g + j] = (uint8_t)(bits >> (j * rest)) & mask;
    }
}

/* ---- the same with the instructions made for it --------------------------------------------- */

#if AIOPS_X86
#  define AIOPS_TARGET_VBMI2                                                                      \
      __attribute__((target("bmi,bmi2,popcnt,lzcnt,avx2,avx512f,avx512bw,avx512vl,avx512dq,"      \
                            "avx512vbmi,avx512vbmi2")))

AIOPS_TARGET_BMI2 static ptrdiff_t
aiops_find_bmi2(const uint8_t *upper, ptrdiff_t *word, ptrdiff_t words, ptrdiff_t first,
                uint32_t *high, ptrdiff_t ready)
{
    return aiops_find_by_bit(upper, word, words, first, high, ready);
}

AIOPS_TARGET_BMI2 static void
aiops_pack_bmi2(const uint8_t *low, uint8_t *packed, int rest, ptrdiff_t groups)
{
    const uint64_t mask = AIOPS_BYTES * ((1u << rest) - 1);
    ptrdiff_t g = 0;
    /* Whole words are written as long as more groups follow: each overwrites the excess. */
    for (; (g + 1) * rest + 8 <= groups * rest; g++)
        aiops_store64(packed + rest * g, _pext_u64(aiops_load64(low + 8 * g), mask));
    aiops_pack_portable(low + 8 * g, packed + rest * g, rest, groups - g);
}

AIOPS_TARGET_BMI2 static void
aiops_unpack_bmi2(const uint8_t *packed, uint8_t *low, int rest, ptrdiff_t groups)
{
    const uint64_t mask = AIOPS_BYTES * ((1u << rest) - 1);
    ptrdiff_t g = 0;
    for (; g * rest + 8 <= groups * rest; g++)
        aiops_store64(low + 8 * g, _pdep_u64(aiops_load64(packed + rest * g), mask));
    aiops_unpack_portable(packed + rest * g, low + 8 * g, rest, groups - g);
}

AIOPS_TARGET_BMI2 static void
aiops_set_avx2(uint8_t *upper, ptrdiff_t start, const uint32_t *step, ptrdiff_t count)
{
    aiops_set_by(aiops_marks_avx2, upper, start, step, count);
}

AIOPS_TARGET_VBMI2 static void
aiops_set_vbmi2(uint8_t *upper, ptrdiff_t start, const uint32_t *step, ptrdiff_t count)
{
    aiops_set_by(aiops_marks_avx512, upper, start, step, count);
}

AIOPS_TARGET_VBMI2 static ptrdiff_t
aiops_find_vbmi2(const uint8_t *upper, ptrdiff_t *word, ptrdiff_t words, ptrdiff_t first,
                 uint32_t *high, ptrdiff_t ready)
{
    uint8_t count_up[AIOPS_WORD];
    for (int j = 0; j < AIOPS_WORD; j++)
        count_up[j] = (uint8_t)j;
    const __m512i step = _mm512_loadu_si512(count_up);
    for (; *word < words && ready < AIOPS_INDEX_BLOCK; ++*word) {
        const uint64_t bits = aiops_load64(upper + 8 * *word);
        /* What lies beyond the ones is overwritten by the next word. */
        const __m512i place = _mm512_sub_epi8(_mm512_maskz_compress_epi8(bits, step), step);
        const __m512i base = _mm512_set1_epi32((int)(AIOPS_WORD * *word - first - ready));
        const int ones = aiops_ones(bits);
        uint32_t *const to = high + ready;
        const __m128i part0 = _mm512_castsi512_si128(place);
        const __m128i part1 = _mm512_extracti32x4_epi32(place, 1);
        _mm512_storeu_si512(to, _mm512_add_epi32(base, _mm512_cvtepu8_epi32(part0)));
        _mm512_storeu_si512(to + 16, _mm512_add_epi32(base, _mm512_cvtepu8_epi32(part1)));
        if (ones > 32) {
            const __m128i part2 = _mm512_extracti32x4_epi32(place, 2);
            const __m128i part3 = _mm512_extracti32x4_epi32(place, 3);
            _mm512_storeu_si512(to + 32, _mm512_add_epi32(base, _mm512_cvtepu8_epi32(part2)));
            _mm512_storeu_si512(to + 48, _mm512_add_epi32(base, _mm512_cvtepu8_epi32(part3)));
        }
        ready += ones;
    }
    return ready;
}

AIOPS_TARGET_VBMI2 static void
aiops_unpack_vbmi2(const uint8_t *packed, uint8_t *low, int rest, ptrdiff_t groups)
{
    uint8_t from[64], shift[64];
    for (int j = 0; j < 64; j++) {
        from[j] = (uint8_t)(j / 8 * rest + j % 8) & 63;
        shift[j] = (uint8_t)(j % 8 * rest);
    }
    const __m512i spread = _mm512_loadu_si512(from), cut = _mm512_loadu_si512(shift);
    const __m512i mask = _mm512_set1_epi8((char)((1u << rest) - 1));
    const __mmask64 some = ((uint64_t)1 << (8 * rest)) - 1;
    ptrdiff_t g = 0;
    for (; g + 8 <= groups; g += 8) {
        const __m512i bits = _mm512_maskz_loadu_epi8(some, packed + rest * g);
        const __m512i parts = _mm512_multishift_epi64_epi8(
            cut, _mm512_permutexvar_epi8(spread, bits));
        _mm512_storeu_si512(low + 8 * g, _mm512_and_si512(parts, mask));
    }
    aiops_unpack_bmi2(packed + rest * g, low + 8 * g, rest, groups - g);
}
#endif

static void aiops_index_set(int level, uint8_t *upper, ptrdiff_t start, const uint32_t *step,
                            ptrdiff_t count)
{
#if AIOPS_X86
    if (aiops_has_vbmi2(level)) {
        aiops_set_vbmi2(upper, start, step, count);
        return;
    }
    if (level >= AIOPS_AVX2) {
        aiops_set_avx2(upper, start, step, count);
        return;
    }
#endif
    (void)level;
    aiops_set_portable(upper, start, step, count);
}

static ptrdiff_t
aiops_index_find(int level, const uint8_t *upper, ptrdiff_t *word, ptrdiff_t words,
                 ptrdiff_t first, uint32_t *high, ptrdiff_t ready)
{
#if AIOPS_X86
    if (aiops_has_vbmi2(level))
        return aiops_find_vbmi2(upper, word, words, first, high, ready);
    if (level >= AIOPS_AVX2)
        return aiops_find_bmi2(upper, word, words, first, high, ready);
#endif
    (void)level;
    return aiops_find_portable(upper, word, words, first, high, ready);
}

/* low: 8 * groups bytes, each below 2^rest; packed: rest * groups bytes. */
static void
aiops_index_pack(int level, const uint8_t *low, uint8_t *packed, int rest, ptrdiff_t groups)
{
#if AIOPS_X86
    if (level >= AIOPS_AVX2) {
        aiops_pack_bmi2(low, packed, rest, groups);
        return;
    }
#endif
    (void)level;
    aiops_pack_portable(low, packed, rest, groups);
}

static void
aiops_index_unpack(int level, const uint8_t *packed, uint8_t *low, int rest, ptrdiff_t groups)
{
#if AIOPS_X86
    if (aiops_has_vbmi2(level)) {
        aiops_unpack_vbmi2(packed, low, rest, groups);
        return;
    }
    if (level >= AIOPS_AVX2) {
        aiops_unpack_bmi2(packed, low, rest, groups);
        return;
    }
#endif
    (void)level;
    aiops_unpack_portable(packed, low, rest, groups);
}
#endif
