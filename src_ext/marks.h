/* Sets of positions as bytes while they are made, as 64-bit words once they are read.
 *
 * To mark a byte depends on no store before it; to set a bit of a word does, and took twice as
 * long. A word of bits is gathered from a cache line of marks.
 */
#ifndef AIOPS_MARKS_H
#define AIOPS_MARKS_H

#include "simd.h"

#if AIOPS_X86
#  include <immintrin.h>
#endif

enum { AIOPS_WORD = 64 };

#define AIOPS_BYTES 0x0101010101010101u

AIOPS_INLINE uint64_t aiops_load64(const uint8_t *at)
{
    uint64_t word;
    memcpy(&word, at, sizeof word);
    return word;
}

AIOPS_INLINE void aiops_store64(uint8_t *at, uint64_t word)
{
    memcpy(at, &word, sizeof word);
}

/* Bit j says whether byte j of 64 is marked, which is 1. The bytes are cleared. */
typedef uint64_t aiops_gather_marks(uint8_t *mark);

AIOPS_INLINE uint64_t aiops_marks_portable(uint8_t *mark)
{
    uint64_t bits = 0;
    for (int b = 0; b < 8; b++) {
        /* The product brings bit 0 of byte j to bit 56 + j. */
        const uint64_t bytes = aiops_load64(mark + 8 * b) & AIOPS_BYTES;
        bits |= (bytes * 0x0102040810204080u >> 56) << (8 * b);
    }
    memset(mark, 0, AIOPS_WORD);
    return bits;
}

#if AIOPS_X86
#  define AIOPS_TARGET_BMI2 __attribute__((target("bmi,bmi2,popcnt,lzcnt,avx2")))
#  define AIOPS_TARGET_LINE                                                                       \
      __attribute__((target("bmi,bmi2,popcnt,lzcnt,avx2,avx512f,avx512bw,avx512vl,avx512dq")))

AIOPS_TARGET_BMI2 AIOPS_INLINE uint64_t aiops_marks_avx2(uint8_t *mark)
{
    const __m256i zero = _mm256_setzero_si256();
    const __m256i a = _mm256_loadu_si256((const __m256i *)mark);
    const __m256i b = _mm256_loadu_si256((const __m256i *)(mark + 32));
    const uint32_t low = (uint32_t)_mm256_movemask_epi8(_mm256_cmpgt_epi8(a, zero));
    const uint32_t high = (uint32_t)_mm256_movemask_epi8(_mm256_cmpgt_epi8(b, zero));
    _mm256_storeu_si256((__m256i *)mark, zero);
    _mm256_storeu_si256((__m256i *)(mark + 32), zero);
    return (uint64_t)high << 32 | low;
}

AIOPS_TARGET_LINE AIOPS_INLINE uint64_t aiops_marks_avx512(uint8_t *mark)
{
    const __m512i marks = _mm512_loadu_si512(mark);
    _mm512_storeu_si512(mark, _mm512_setzero_si512());
    return _mm512_test_epi8_mask(marks, marks);
}
#endif
#endif
