/* Loops over whole vector registers, written once and compiled once per instruction set.
 *
 * Whoever includes this file has put its formulas into a file of their own and defines
 * AIOPS_FORMULAS as that file's name. There, Lanes is a register of LANES floats, with the
 * arithmetic of C and mixed with plain floats; AIOPS_NAME(name) is a name of this variant and
 * AIOPS_TARGET permits its instructions. Nothing is compiled where the compiler has no such types.
 */
#ifndef AIOPS_LANES_H
#define AIOPS_LANES_H

#include "simd.h"

/* Items before `p` is aligned to `bytes`, at most n. numpy aligns large arrays to 16 bytes, and a
 * 64-byte access that straddles two cache lines costs two: a loop that starts where its output is
 * aligned took 0.8 of the time (weighted add of 1e6 values on an EPYC). */
AIOPS_INLINE ptrdiff_t aiops_head(const void *p, size_t item_bytes, size_t bytes, ptrdiff_t n)
{
    const ptrdiff_t head = (ptrdiff_t)((0 - (uintptr_t)p) % bytes / item_bytes);
    return head < n ? head : n;
}

#if AIOPS_X86
#  include <immintrin.h>
#  define AIOPS_TARGET_AVX512 __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl")))
#  define AIOPS_TARGET_AVX2 __attribute__((target("avx2,f16c")))

typedef float aiops_float_avx512 __attribute__((vector_size(64)));
typedef float aiops_float_avx2 __attribute__((vector_size(32)));

AIOPS_TARGET_AVX512 AIOPS_INLINE aiops_float_avx512 aiops_load_avx512(const float *x)
{
    return _mm512_loadu_ps(x);
}

AIOPS_TARGET_AVX2 AIOPS_INLINE aiops_float_avx2 aiops_load_avx2(const float *x)
{
    return _mm256_loadu_ps(x);
}

/* `bypass` stores past the caches; `out` is aligned to the register's width then. */
AIOPS_TARGET_AVX512 AIOPS_INLINE void
aiops_put_avx512(float *out, aiops_float_avx512 value, int bypass)
{
    if (bypass)
        _mm512_stream_ps(out, value);
    else
        _mm512_storeu_ps(out, value);
}

AIOPS_TARGET_AVX2 AIOPS_INLINE void aiops_put_avx2(float *out, aiops_float_avx2 value, int bypass)
{
    if (bypass)
        _mm256_stream_ps(out, value);
    else
        _mm256_storeu_ps(out, value);
}

AIOPS_TARGET_AVX512 AIOPS_INLINE int aiops_any_nan_avx512(aiops_float_avx512 value)
{
    return _mm512_cmp_ps_mask(value, value, _CMP_UNORD_Q) != 0;
}

AIOPS_TARGET_AVX2 AIOPS_INLINE int aiops_any_nan_avx2(aiops_float_avx2 value)
{
    return _mm256_movemask_ps(_mm256_cmp_ps(value, value, _CMP_UNORD_Q)) != 0;
}

/* AIOPS_ON(level, name, arguments) calls the best variant up to `level`. */
#  define AIOPS_ON(level, name, arguments)                                                        \
      ((level) >= AIOPS_AVX512  ? name##_avx512 arguments                                         \
       : (level) == AIOPS_AVX2 ? name##_avx2 arguments                                            \
                               : name##_portable arguments)
#else
#  define AIOPS_ON(level, name, arguments) ((void)(level), name##_portable arguments)
#endif

#endif /* what follows is for every family of formulas */

#if AIOPS_X86
#  define load AIOPS_NAME(aiops_load)
#  define put AIOPS_NAME(aiops_put)
#  define any_nan AIOPS_NAME(aiops_any_nan)
#  define Lanes AIOPS_NAME(aiops_float)

#  define LANES 16
#  define AIOPS_NAME(name) name##_avx512
#  define AIOPS_TARGET AIOPS_TARGET_AVX512
#  include AIOPS_FORMULAS
#  undef LANES
#  undef AIOPS_NAME
#  undef AIOPS_TARGET

#  define LANES 8
#  define AIOPS_NAME(name) name##_avx2
#  define AIOPS_TARGET AIOPS_TARGET_AVX2
#  include AIOPS_FORMULAS
#  undef LANES
#  undef AIOPS_NAME
#  undef AIOPS_TARGET

#  undef load
#  undef put
#  undef any_nan
#  undef Lanes
#endif
#undef AIOPS_FORMULAS
