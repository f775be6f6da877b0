/* The loops of half.h for whole vector registers; lanes.h includes it once per instruction set.
 * What exceeds the caches is written past them. */

#if LANES == 16
#  define Halves __m256i
#else
#  define Halves __m128i
#endif

AIOPS_TARGET AIOPS_INLINE void
AIOPS_NAME(aiops_put_halves)(uint16_t *out, Halves value, int bypass)
{
#if LANES == 16
    if (bypass)
        _mm256_stream_si256((__m256i *)out, value);
    else
        _mm256_storeu_si256((__m256i *)out, value);
#else
    if (bypass)
        _mm_stream_si128((__m128i *)out, value);
    else
        _mm_storeu_si128((__m128i *)out, value);
#endif
}

AIOPS_TARGET AIOPS_INLINE Lanes AIOPS_NAME(aiops_load_float16)(const uint16_t *bits)
{
#if LANES == 16
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)bits));
#else
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)bits));
#endif
}

AIOPS_TARGET AIOPS_INLINE Halves AIOPS_NAME(aiops_pack_float16)(Lanes x)
{
#if LANES == 16
    return _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT);
#else
    return _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT);
#endif
}

AIOPS_TARGET AIOPS_INLINE Lanes AIOPS_NAME(aiops_load_bfloat16)(const uint16_t *bits)
{
#if LANES == 16
    const __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)bits));
    return _mm512_castsi512_ps(_mm512_slli_epi32(wide, 16));
#else
    const __m256i wide = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)bits));
    return _mm256_castsi256_ps(_mm256_slli_epi32(wide, 16));
#endif
}

/* As aiops_to_bfloat16. The instruction for it (AVX512-BF16) takes denormals for zero. */
AIOPS_TARGET AIOPS_INLINE Halves AIOPS_NAME(aiops_pack_bfloat16)(Lanes x)
{
#if LANES == 16
    const __m512i bits = _mm512_castps_si512(x);
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    const __m512i half = _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff));
    const __m512i quiet = _mm512_or_si512(bits, _mm512_set1_epi32(0x00400000));
    const __mmask16 nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
    const __m512i rounded = _mm512_mask_mov_epi32(_mm512_add_epi32(bits, half), nan, quiet);
    return _mm512_cvtepi32_epi16(_mm512_srli_epi32(rounded, 16));
#else
    const __m256i bits = _mm256_castps_si256(x);
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    const __m256i half = _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff));
    const __m256i quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x00400000));
    const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
    const __m256i rounded = _mm256_blendv_epi8(_mm256_add_epi32(bits, half), quiet, nan);
    const __m256i high = _mm256_srli_epi32(rounded, 16);
    const __m128i low_lane = _mm256_castsi256_si128(high);
    return _mm_packus_epi32(low_lane, _mm256_extracti128_si256(high, 1));
#endif
}

/* Stores past the caches must be aligned; others are 3 % faster so, though loads then are not. */
#define ENCODE(format)                                                                            \
    AIOPS_TARGET AIOPS_INLINE ptrdiff_t AIOPS_NAME(aiops_encode_##format##_lanes)(                \
        const float *x, uint16_t *out, ptrdiff_t i, ptrdiff_t n, int bypass)                      \
    {                                                                                             \
        for (; i + 2 * LANES <= n; i += 2 * LANES) {                                              \
            const Halves low = AIOPS_NAME(aiops_pack_##format)(load(x + i));                      \
            const Halves high = AIOPS_NAME(aiops_pack_##format)(load(x + i + LANES));             \
            AIOPS_NAME(aiops_put_halves)(out + i, low, bypass);                                   \
            AIOPS_NAME(aiops_put_halves)(out + i + LANES, high, bypass);                          \
        }                                                                                         \
        return i;                                                                                 \
    }                                                                                             \
    AIOPS_TARGET static void AIOPS_NAME(aiops_encode_##format)(const float *x, uint16_t *out,     \
                                                               ptrdiff_t n)                       \
    {                                                                                             \
        const int bypass = aiops_exceeds_caches(n, 6);                                            \
        ptrdiff_t i = aiops_head(out, sizeof *out, 2 * LANES, n);                                 \
        aiops_encode_##format##_portable(x, out, i);                                              \
        if (bypass) {                                                                             \
            i = AIOPS_NAME(aiops_encode_##format##_lanes)(x, out, i, n, 1);                       \
            _mm_sfence();                                                                         \
        } else {                                                                                  \
            i = AIOPS_NAME(aiops_encode_##format##_lanes)(x, out, i, n, 0);                       \
        }                                                                                         \
        aiops_encode_##format##_portable(x + i, out + i, n - i);                                  \
    }

#define DECODE(format)                                                                            \
    AIOPS_TARGET AIOPS_INLINE ptrdiff_t AIOPS_NAME(aiops_decode_##format##_lanes)(                \
        const uint16_t *bits, float *out, ptrdiff_t i, ptrdiff_t n, int bypass)                   \
    {                                                                                             \
        for (; i + 2 * LANES <= n; i += 2 * LANES) {                                              \
            put(out + i, AIOPS_NAME(aiops_load_##format)(bits + i), bypass);                      \
            put(out + i + LANES, AIOPS_NAME(aiops_load_##format)(bits + i + LANES), bypass);      \
        }                                                                                         \
        return i;                                                                                 \
    }                                                                                             \
    AIOPS_TARGET static void AIOPS_NAME(aiops_decode_##format)(const uint16_t *bits, float *out,  \
                                                               ptrdiff_t n)                       \
    {                                                                                             \
        ptrdiff_t i = aiops_head(out, sizeof *out, 4 * LANES, n);                                 \
        aiops_decode_##format##_portable(bits, out, i);                                           \
        if (aiops_exceeds_caches(n, 6)) {                                                         \
            i = AIOPS_NAME(aiops_decode_##format##_lanes)(bits, out, i, n, 1);                    \
            _mm_sfence();                                                                         \
        } else {                                                                                  \
            i = AIOPS_NAME(aiops_decode_##format##_lanes)(bits, out, i, n, 0);                    \
        }                                                                                         \
        aiops_decode_##format##_portable(bits + i, out + i, n - i);                               \
    }

#define ADD(format)                                                                               \
    AIOPS_TARGET static void AIOPS_NAME(aiops_add_##format)(float *acc, const uint16_t *bits,     \
                                                            float weight, ptrdiff_t n)            \
    {                                                                                             \
        ptrdiff_t i = aiops_head(acc, sizeof *acc, 4 * LANES, n);                                 \
        aiops_add_##format##_portable(acc, bits, weight, i);                                      \
        for (; i + LANES <= n; i += LANES) {                                                      \
            const Lanes x = AIOPS_NAME(aiops_load_##format)(bits + i);                            \
            put(acc + i, load(acc + i) + weight * x, 0);                                          \
        }                                                                                         \
        aiops_add_##format##_portable(acc + i, bits + i, weight, n - i);                          \
    }

ENCODE(float16)
DECODE(float16)
ADD(float16)
ENCODE(bfloat16)
DECODE(bfloat16)
ADD(bfloat16)

#undef ENCODE
#undef DECODE
#undef ADD
#undef Halves
