/* The loops of quantize.h for whole vector registers; lanes.h includes it once per instruction set.
 *
 * Magnitudes are compared as integers, which have the order of the floats and do not lose NaN. */

#if LANES == 16
#  define Bits __m512i
#  define bits_of(lanes) _mm512_castps_si512(lanes)
#else
#  define Bits __m256i
#  define bits_of(lanes) _mm256_castps_si256(lanes)
#endif

AIOPS_TARGET AIOPS_INLINE Bits AIOPS_NAME(aiops_larger)(Bits largest, Lanes x)
{
#if LANES == 16
    const Bits magnitude = _mm512_and_si512(bits_of(x), _mm512_set1_epi32(0x7fffffff));
    return _mm512_max_epi32(largest, magnitude);
#else
    const Bits magnitude = _mm256_and_si256(bits_of(x), _mm256_set1_epi32(0x7fffffff));
    return _mm256_max_epi32(largest, magnitude);
#endif
}

AIOPS_TARGET AIOPS_INLINE uint32_t AIOPS_NAME(aiops_largest)(Bits each)
{
    uint32_t lane[LANES], largest = 0;
    memcpy(lane, &each, sizeof each);
    for (int j = 0; j < LANES; j++)
        largest = lane[j] > largest ? lane[j] : largest;
    return largest;
}

AIOPS_TARGET static uint32_t
AIOPS_NAME(aiops_gather)(const aiops_quantize_job *given, ptrdiff_t from, ptrdiff_t to)
{
    const aiops_quantize_job job = *given;
    Bits even = bits_of((Lanes){0}), odd = even;
    ptrdiff_t i = from;
    if (job.left) {
        for (; i + LANES <= to; i += LANES) {
            const Lanes total = load(job.x + i) + load(job.residual + i);
            put(job.left + i, total, 0);
            even = AIOPS_NAME(aiops_larger)(even, total);
        }
    } else {
        for (; i + 2 * LANES <= to; i += 2 * LANES) {
            even = AIOPS_NAME(aiops_larger)(even, load(job.x + i));
            odd = AIOPS_NAME(aiops_larger)(odd, load(job.x + i + LANES));
        }
    }
    const uint32_t rest = aiops_gather_portable(given, i, to);
    const uint32_t first = AIOPS_NAME(aiops_largest)(even);
    const uint32_t second = AIOPS_NAME(aiops_largest)(odd);
    const uint32_t largest = first > second ? first : second;
    return largest > rest ? largest : rest;
}

/* The low byte of each lane. */
AIOPS_TARGET AIOPS_INLINE void AIOPS_NAME(aiops_store_codes)(int8_t *code, Bits bits)
{
#if LANES == 16
    _mm_storeu_si128((__m128i *)code, _mm512_cvtepi32_epi8(bits));
#else
    const __m256i signed_words = _mm256_slli_epi32(bits, 24);
    const __m256i each = _mm256_srai_epi32(signed_words, 24);
    const __m128i words
        = _mm_packs_epi32(_mm256_castsi256_si128(each), _mm256_extracti128_si256(each, 1));
    _mm_storel_epi64((__m128i *)code, _mm_packs_epi16(words, words));
#endif
}

AIOPS_TARGET AIOPS_INLINE Lanes AIOPS_NAME(aiops_load_codes)(const int8_t *code)
{
#if LANES == 16
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)code)));
#else
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)code)));
#endif
}

/* Whether a difference to the nearest integer is within 2^-15 of a half in some lane. */
AIOPS_TARGET AIOPS_INLINE int AIOPS_NAME(aiops_any_near_half)(Lanes difference)
{
#if LANES == 16
    const Lanes size = _mm512_abs_ps(difference);
    return _mm512_cmp_ps_mask(size, _mm512_set1_ps(0.5f - 0x1p-15f), _CMP_GE_OQ) != 0;
#else
    const Lanes size = _mm256_andnot_ps(_mm256_set1_ps(-0.0f), difference);
    const __m256 near = _mm256_cmp_ps(size, _mm256_set1_ps(0.5f - 0x1p-15f), _CMP_GE_OQ);
    return _mm256_movemask_ps(near) != 0;
#endif
}

/* value / scale + AIOPS_ROUNDER, nearly always without the division: 0.77 of the time in the
 * first-level cache (EPYC). The product with the rounded inverse and the rounded quotient differ by
 * at most 127 * 3 * 2^-24, less than 2^-15, so they round to different integers only that near to
 * a half; there the division decides. */
AIOPS_TARGET AIOPS_INLINE Lanes
AIOPS_NAME(aiops_shifted_code)(Lanes value, float scale, float inverse)
{
    const Lanes near = value * inverse, shifted = near + AIOPS_ROUNDER;
    if (AIOPS_NAME(aiops_any_near_half)(near - (shifted - AIOPS_ROUNDER)))
        return value / scale + AIOPS_ROUNDER;
    return shifted;
}

AIOPS_TARGET static void
AIOPS_NAME(aiops_encode)(const aiops_quantize_job *given, float scale, ptrdiff_t from, ptrdiff_t to)
{
    const aiops_quantize_job job = *given;
    const float *total = job.left ? job.left : job.x, inverse = 1.0f / scale;
    ptrdiff_t i = from;
    for (; i + LANES <= to; i += LANES) {
        const Lanes value = load(total + i);
        const Lanes shifted = AIOPS_NAME(aiops_shifted_code)(value, scale, inverse);
        AIOPS_NAME(aiops_store_codes)(job.code + i, bits_of(shifted));
        if (job.left)
            put(job.left + i, value - scale * (shifted - AIOPS_ROUNDER), 0);
    }
    aiops_encode_portable(given, scale, i, to);
}

AIOPS_TARGET static void AIOPS_NAME(aiops_add_codes)(float *acc, const int8_t *code, float scale,
                                                     float weight, ptrdiff_t n)
{
    ptrdiff_t i = aiops_head(acc, sizeof *acc, 4 * LANES, n);
    aiops_add_codes_portable(acc, code, scale, weight, i);
    for (; i + LANES <= n; i += LANES) {
        const Lanes x = scale * AIOPS_NAME(aiops_load_codes)(code + i);
        put(acc + i, load(acc + i) + weight * x, 0);
    }
    aiops_add_codes_portable(acc + i, code + i, scale, weight, n - i);
}

#undef Bits
#undef bits_of
