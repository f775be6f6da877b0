/* What the kernels share: how one binary picks its instructions at run time, and the plain C loops.
 *
 * Nothing here allocates or knows of Python. A loop marked AIOPS_CLONES is ordinary C that the
 * compiler builds once per instruction set; the loader picks one. What no compiler vectorises is
 * written with intrinsics (topk.h, half.h), and what gains by whole cache lines with vector types
 * (dense.h); both are picked by aiops_simd_level(). Every variant gives the same bits, which holds
 * only with -ffp-contract=off.
 */
#ifndef AIOPS_SIMD_H
#define AIOPS_SIMD_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__x86_64__) && (__GNUC__ >= 12 || __clang_major__ >= 17)
#  define AIOPS_X86 1
#else
#  define AIOPS_X86 0
#endif

/* target_clones needs a loader that knows ifunc: glibc does, musl and macOS do not. */
#if AIOPS_X86 && defined(__linux__) && defined(__GLIBC__)
#  define AIOPS_CLONES __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#  define AIOPS_CLONES
#endif

#if defined(__GNUC__)
#  define AIOPS_INLINE static inline __attribute__((always_inline))
#  define AIOPS_NOINLINE static __attribute__((noinline))
#  define AIOPS_ALIGNED __attribute__((aligned(64)))
#else
#  define AIOPS_INLINE static inline
#  define AIOPS_NOINLINE static
#  define AIOPS_ALIGNED
#endif

enum { AIOPS_PORTABLE = 0, AIOPS_AVX2 = 1, AIOPS_AVX512 = 2 };

/* 8-bit codes that share a scale. */
enum { AIOPS_INT8_BLOCK = 4096 };

#define AIOPS_INFINITY_BITS 0x7f800000u
#define AIOPS_SIGN_BIT 0x80000000u

static inline int aiops_simd_level(void)
{
#if AIOPS_X86
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("bmi2")
        || !__builtin_cpu_supports("f16c"))
        return AIOPS_PORTABLE;
    return __builtin_cpu_supports("avx512bw") ? AIOPS_AVX512 : AIOPS_AVX2;
#else
    return AIOPS_PORTABLE;
#endif
}

AIOPS_INLINE uint32_t aiops_bits(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

AIOPS_INLINE float aiops_float(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* |x| as an integer: for finite values it has the order of |x|, and -0.0 equals 0.0. */
AIOPS_INLINE uint32_t aiops_magnitude(float x)
{
    return aiops_bits(x) & ~AIOPS_SIGN_BIT;
}

/* The place of the lowest set bit; there must be one. */
AIOPS_INLINE int aiops_lowest(uint64_t hit)
{
#if defined(__GNUC__)
    return __builtin_ctzll(hit);
#else
    int j = 0;
    for (; !(hit & 1); hit >>= 1)
        j++;
    return j;
#endif
}

AIOPS_INLINE int aiops_ones(uint64_t hit)
{
#if defined(__GNUC__)
    return __builtin_popcountll(hit);
#else
    int ones = 0;
    for (; hit; hit &= hit - 1)
        ones++;
    return ones;
#endif
}

/* Whether a call that moves so many bytes for each of n values leaves little of its output in the
 * caches, so that it should write past them: at 1e6 values merging 8 vectors took 0.8 of the time, a
 * step with momentum into fresh memory 0.6 (EPYC). The limit is a quarter of that machine's cache,
 * since others live there too. */
AIOPS_INLINE int aiops_exceeds_caches(ptrdiff_t n, ptrdiff_t value_bytes)
{
    return n > 8 * 1024 * 1024 / value_bytes;
}

/* Position of the first NaN or infinity, or -1. Adding one to the exponent carries into the sign
 * bit exactly when all its bits are set, so a block needs one OR per value and a single test. */
AIOPS_CLONES static inline ptrdiff_t
aiops_first_nonfinite(const float *x, ptrdiff_t n)
{
    const uint32_t step = AIOPS_SIGN_BIT - AIOPS_INFINITY_BITS;
    ptrdiff_t i = 0;
    for (; i + 512 <= n; i += 512) {
        uint32_t seen = 0;
        for (ptrdiff_t j = 0; j < 512; j++)
            seen |= aiops_magnitude(x[i + j]) + step;
        if (seen & AIOPS_SIGN_BIT)
            break;
    }
    for (; i < n; i++)
        if (aiops_magnitude(x[i]) >= AIOPS_INFINITY_BITS)
            return i;
    return -1;
}

/* The same for 16-bit floats; `infinity` is the format's positive infinity. */
AIOPS_CLONES static inline ptrdiff_t
aiops_first_nonfinite_half(const uint16_t *bits, uint16_t infinity, ptrdiff_t n)
{
    const uint16_t step = (uint16_t)(0x8000u - infinity);
    ptrdiff_t i = 0;
    for (; i + 512 <= n; i += 512) {
        uint16_t seen = 0;
        for (ptrdiff_t j = 0; j < 512; j++)
            seen |= (uint16_t)((bits[i + j] & 0x7fffu) + step);
        if (seen & 0x8000u)
            break;
    }
    for (; i < n; i++)
        if ((bits[i] & 0x7fffu) >= infinity)
            return i;
    return -1;
}

/* Position of the first index >= n, or -1. */
AIOPS_CLONES static inline ptrdiff_t
aiops_first_outside(const uint32_t *index, ptrdiff_t k, ptrdiff_t n)
{
    ptrdiff_t i = 0;
    for (; i + 512 <= k; i += 512) {
        uint32_t largest = 0;
        for (ptrdiff_t j = 0; j < 512; j++)
            largest = index[i + j] > largest ? index[i + j] : largest;
        if ((uint64_t)largest >= (uint64_t)n)
            break;
    }
    for (; i < k; i++)
        if ((uint64_t)index[i] >= (uint64_t)n)
            return i;
    return -1;
}

#endif
