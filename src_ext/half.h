/* 16-bit floats: IEEE half (5 exponent bits) and bfloat16 (8 exponent bits).
 *
 * The plain C has no branches, so that the compiler turns the loops into vector code; x86 has
 * instructions for float16. NaN stays NaN: it keeps its sign and high payload bits and becomes
 * quiet, as those instructions do it.
 */
#ifndef AIOPS_HALF_H
#define AIOPS_HALF_H

#include "simd.h"

#if AIOPS_X86
#  include <immintrin.h>
#endif

/* The conditional operator would let gcc move one side's arithmetic under a branch, and then it
 * vectorises nothing: decoding float16 took six times as long. */
AIOPS_INLINE uint32_t aiops_choose(int condition, uint32_t yes, uint32_t no)
{
    const uint32_t mask = 0u - (uint32_t)condition;
    return (yes & mask) | (no & ~mask);
}

AIOPS_INLINE uint16_t aiops_to_float16(float x)
{
    const uint32_t sign = aiops_bits(x) >> 16 & 0x8000u, u = aiops_magnitude(x);
    /* Normal result: rebias the exponent, round half to even at bit 13, stop at infinity. */
    const uint32_t rounded = (u - 0x38000000u + 0x0fffu + (u >> 13 & 1u)) >> 13;
    const uint32_t normal = aiops_choose(rounded < 0x7c00u, rounded, 0x7c00u);
    /* Subnormal result: an ulp of 0.5 is the smallest half, so one addition rounds. */
    const uint32_t subnormal = aiops_bits(aiops_float(u) + 0.5f) - 0x3f000000u;
    const uint32_t finite = aiops_choose(u < 0x38800000u, subnormal, normal);
    const uint32_t nan = 0x7e00u | (u >> 13 & 0x01ffu);
    return (uint16_t)(sign | aiops_choose(u > AIOPS_INFINITY_BITS, nan, finite));
}

AIOPS_INLINE float aiops_from_float16(uint16_t half)
{
    const uint32_t sign = (uint32_t)(half & 0x8000u) << 16, u = half & 0x7fffu;
    const uint32_t normal = (u << 13) + 0x38000000u;
    /* The bits as a fraction of 2^-14: taking 2^-14 away again leaves the subnormal's value. */
    const float shifted = aiops_float((u << 13) + 0x38800000u);
    const uint32_t subnormal = aiops_bits(shifted - aiops_float(0x38800000u));
    const uint32_t finite = aiops_choose(u < 0x0400u, subnormal, normal);
    const uint32_t quiet = aiops_choose(u > 0x7c00u, 0x00400000u, 0u);
    const uint32_t special = (u << 13) | AIOPS_INFINITY_BITS | quiet;
    return aiops_float(sign | aiops_choose(u >= 0x7c00u, special, finite));
}

AIOPS_INLINE uint16_t aiops_to_bfloat16(float x)
{
    const uint32_t u = aiops_bits(x);
    const uint32_t rounded = (u + 0x7fffu + (u >> 16 & 1u)) >> 16;
    const uint32_t nan = u >> 16 | 0x0040u;
    return (uint16_t)aiops_choose(aiops_magnitude(x) > AIOPS_INFINITY_BITS, nan, rounded);
}

AIOPS_INLINE float aiops_from_bfloat16(uint16_t half)
{
    return aiops_float((uint32_t)half << 16);
}

#if AIOPS_X86
/* Eight values per instruction. A shorter tail is left: these return how far they came. */
#  define AIOPS_TARGET_F16C __attribute__((target("avx,f16c")))

AIOPS_TARGET_F16C static ptrdiff_t
aiops_encode_float16_f16c(const float *x, uint16_t *out, ptrdiff_t n)
{
    ptrdiff_t i = 0;
    for (; i + 8 <= n; i += 8) {
        const __m128i half = _mm256_cvtps_ph(_mm256_loadu_ps(x + i), _MM_FROUND_TO_NEAREST_INT);
        _mm_storeu_si128((__m128i *)(out + i), half);
    }
    return i;
}

AIOPS_TARGET_F16C static ptrdiff_t
aiops_decode_float16_f16c(const uint16_t *bits, float *out, ptrdiff_t n)
{
    ptrdiff_t i = 0;
    for (; i + 8 <= n; i += 8) {
        const __m128i half = _mm_loadu_si128((const __m128i *)(bits + i));
        _mm256_storeu_ps(out + i, _mm256_cvtph_ps(half));
    }
    return i;
}

AIOPS_TARGET_F16C static ptrdiff_t
aiops_add_float16_f16c(float *acc, const uint16_t *bits, float weight, ptrdiff_t n)
{
    const __m256 factor = _mm256_set1_ps(weight);
    ptrdiff_t i = 0;
    for (; i + 8 <= n; i += 8) {
        const __m256 x = _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(bits + i)));
        const __m256 sum = _mm256_add_ps(_mm256_loadu_ps(acc + i), _mm256_mul_ps(factor, x));
        _mm256_storeu_ps(acc + i, sum);
    }
    return i;
}
#else
#  define aiops_encode_float16_f16c(x, out, n) 0
#  define aiops_decode_float16_f16c(bits, out, n) 0
#  define aiops_add_float16_f16c(acc, bits, weight, n) 0
#endif

static void aiops_encode_float16(int level, const float *x, uint16_t *out, ptrdiff_t n)
{
    ptrdiff_t i = level >= AIOPS_AVX2 ? aiops_encode_float16_f16c(x, out, n) : 0;
    for (; i < n; i++)
        out[i] = aiops_to_float16(x[i]);
}

static void aiops_decode_float16(int level, const uint16_t *bits, float *out, ptrdiff_t n)
{
    ptrdiff_t i = level >= AIOPS_AVX2 ? aiops_decode_float16_f16c(bits, out, n) : 0;
    for (; i < n; i++)
        out[i] = aiops_from_float16(bits[i]);
}

/* acc += weight * decoded */
static void
aiops_add_float16(int level, float *acc, const uint16_t *bits, float weight, ptrdiff_t n)
{
    ptrdiff_t i = level >= AIOPS_AVX2 ? aiops_add_float16_f16c(acc, bits, weight, n) : 0;
    for (; i < n; i++)
        acc[i] += weight * aiops_from_float16(bits[i]);
}

AIOPS_CLONES static void aiops_encode_bfloat16(const float *x, uint16_t *out, ptrdiff_t n)
{
    for (ptrdiff_t i = 0; i < n; i++)
        out[i] = aiops_to_bfloat16(x[i]);
}

AIOPS_CLONES static void aiops_decode_bfloat16(const uint16_t *bits, float *out, ptrdiff_t n)
{
    for (ptrdiff_t i = 0; i < n; i++)
        out[i] = aiops_from_bfloat16(bits[i]);
}

/* acc += weight * decoded */
AIOPS_CLONES static void
aiops_add_bfloat16(float *acc, const uint16_t *bits, float weight, ptrdiff_t n)
{
    for (ptrdiff_t i = 0; i < n; i++)
        acc[i] += weight * aiops_from_bfloat16(bits[i]);
}

#endif
