/* 16-bit floats: IEEE half (5 exponent bits) and bfloat16 (8 exponent bits).
 *
 * The plain C has no branches, so that the compiler turns the loops into vector code; x86 has
 * instructions for float16, which half_lanes.h uses for whole registers (see lanes.h). NaN stays
 * NaN: it keeps its sign and high payload bits and becomes quiet, as those instructions do it.
 */
#ifndef AIOPS_HALF_H
#define AIOPS_HALF_H

#include "simd.h"

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

/* -- The loops in plain C, which also do what is left before and behind whole registers ---------- */

#define AIOPS_PORTABLE_HALF(format)                                                               \
    AIOPS_NOINLINE void aiops_encode_##format##_portable(const float *x, uint16_t *out,           \
                                                         ptrdiff_t n)                             \
    {                                                                                             \
        for (ptrdiff_t i = 0; i < n; i++)                                                         \
            out[i] = aiops_to_##format(x[i]);                                                     \
    }                                                                                             \
    AIOPS_NOINLINE void aiops_decode_##format##_portable(const uint16_t *bits, float *out,        \
                                                         ptrdiff_t n)                             \
    {                                                                                             \
        for (ptrdiff_t i = 0; i < n; i++)                                                         \
            out[i] = aiops_from_##format(bits[i]);                                                \
    }                                                                                             \
    AIOPS_NOINLINE void aiops_add_##format##_portable(float *acc, const uint16_t *bits,           \
                                                      float weight, ptrdiff_t n)                  \
    {                                                                                             \
        for (ptrdiff_t i = 0; i < n; i++)                                                         \
            acc[i] += weight * aiops_from_##format(bits[i]);                                      \
    }

AIOPS_PORTABLE_HALF(float16)
AIOPS_PORTABLE_HALF(bfloat16)

#define AIOPS_FORMULAS "half_lanes.h"
#include "lanes.h"

/* -- All n values on the best instructions up to `level` ----------------------------------------- */

/* `cached` is the best level for encoding what the caches hold: float16 takes 5 % longer by
 * registers of 64 bytes, bfloat16 a third longer by those of 32 (1e6 values, Zen 4). */
#define AIOPS_HALF(format, cached)                                                                \
    static inline void aiops_encode_##format(int level, const float *x, uint16_t *out,            \
                                             ptrdiff_t n)                                         \
    {                                                                                             \
        const int best = aiops_exceeds_caches(n, 6) || level < cached ? level : cached;           \
        AIOPS_ON(best, aiops_encode_##format, (x, out, n));                                       \
    }                                                                                             \
    static inline void aiops_decode_##format(int level, const uint16_t *bits, float *out,         \
                                             ptrdiff_t n)                                         \
    {                                                                                             \
        AIOPS_ON(level, aiops_decode_##format, (bits, out, n));                                   \
    }                                                                                             \
    /* acc += weight * decoded */                                                                 \
    static inline void aiops_add_##format(int level, float *acc, const uint16_t *bits,            \
                                          float weight, ptrdiff_t n)                              \
    {                                                                                             \
        AIOPS_ON(level, aiops_add_##format, (acc, bits, weight, n));                              \
    }

AIOPS_HALF(float16, AIOPS_AVX2)
AIOPS_HALF(bfloat16, AIOPS_AVX512)

#endif
