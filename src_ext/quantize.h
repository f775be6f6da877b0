/* Blocks of 8-bit codes: 4096 values share one float32 scale, 1/127 of their largest magnitude.
 *
 * A code is its value divided by the scale, correctly rounded to float32 and then to the nearest
 * integer, half to even; it stands for scale * code, rounded to float32. Every step is one exactly
 * specified operation, so all variants agree. A scale below the smallest normal float32 becomes 0,
 * with codes 0; one so large that 127 times it would be infinite becomes the next smaller float.
 *
 * What a code loses is total - scale * code, which is exact (Sterbenz): a code that is not 0 stands
 * for a number between half and twice its value. So what is sent plus what is left is the total,
 * bit for bit.
 *
 * quantize_lanes.h has the same loops for whole vector registers (see lanes.h).
 */
#ifndef AIOPS_QUANTIZE_H
#define AIOPS_QUANTIZE_H

#include "simd.h"

#define AIOPS_SMALLEST_SCALE 0x1p-126f
#define AIOPS_LARGEST_SCALE 0x1.020406p+121f

/* Adding 1.5 * 2^23 rounds a small float to an integer, half to even, and leaves that integer in
 * the low bits; taking it away again leaves the integer as a float. */
#define AIOPS_ROUNDER 12582912.0f

/* total = x + residual, or x where there is no residual; then codes and scales for the total, and
 * left = total - scale * code. `residual` and `left` are both there or both NULL. */
typedef struct {
    const float *x, *residual;
    float *scale, *left;
    int8_t *code;
} aiops_quantize_job;

/* A block's scale from the bits of its largest magnitude. */
AIOPS_INLINE float aiops_block_scale(uint32_t largest)
{
    const float scale = aiops_float(largest) / 127.0f;
    if (scale < AIOPS_SMALLEST_SCALE)
        return 0.0f;
    return scale < AIOPS_LARGEST_SCALE ? scale : AIOPS_LARGEST_SCALE;
}

/* Largest magnitude of the total as bits, for values from <= i < to; leaves the total in `left`. */
AIOPS_NOINLINE uint32_t
aiops_gather_portable(const aiops_quantize_job *given, ptrdiff_t from, ptrdiff_t to)
{
    const aiops_quantize_job job = *given;
    uint32_t largest = 0;
    for (ptrdiff_t i = from; i < to; i++) {
        const float total = job.residual ? job.x[i] + job.residual[i] : job.x[i];
        const uint32_t magnitude = aiops_magnitude(total);
        if (job.left)
            job.left[i] = total;
        largest = magnitude > largest ? magnitude : largest;
    }
    return largest;
}

/* Codes of values from <= i < to under a scale that is not 0. */
AIOPS_NOINLINE void
aiops_encode_portable(const aiops_quantize_job *given, float scale, ptrdiff_t from, ptrdiff_t to)
{
    const aiops_quantize_job job = *given;
    const float *total = job.left ? job.left : job.x;
    for (ptrdiff_t i = from; i < to; i++) {
        const float shifted = total[i] / scale + AIOPS_ROUNDER;
        job.code[i] = (int8_t)(uint8_t)aiops_bits(shifted);
        if (job.left)
            job.left[i] = total[i] - scale * (shifted - AIOPS_ROUNDER);
    }
}

/* acc += weight * (scale * code), one block */
AIOPS_NOINLINE void aiops_add_codes_portable(float *acc, const int8_t *code, float scale,
                                             float weight, ptrdiff_t n)
{
    for (ptrdiff_t i = 0; i < n; i++)
        acc[i] += weight * (scale * (float)code[i]);
}

#define AIOPS_FORMULAS "quantize_lanes.h"
#include "lanes.h"

/* All n values, block by block, so that the second look at a block finds it in the first-level
 * cache. Returns the position of the first total that is not finite, or -1; from its block on
 * nothing is encoded then. */
static ptrdiff_t aiops_quantize(int level, const aiops_quantize_job *job, ptrdiff_t n)
{
    for (ptrdiff_t at = 0, block = 0; at < n; at += AIOPS_INT8_BLOCK, block++) {
        const ptrdiff_t end = n - at < AIOPS_INT8_BLOCK ? n : at + AIOPS_INT8_BLOCK;
        const uint32_t largest = AIOPS_ON(level, aiops_gather, (job, at, end));
        if (largest >= AIOPS_INFINITY_BITS) {
            const float *total = job->left ? job->left : job->x;
            return at + aiops_first_nonfinite(total + at, end - at);
        }
        const float scale = aiops_block_scale(largest);
        job->scale[block] = scale;
        if (scale == 0.0f)
            memset(job->code + at, 0, (size_t)(end - at));
        else
            AIOPS_ON(level, aiops_encode, (job, scale, at, end));
    }
    return -1;
}

/* acc += weight * (scale * code), all n values */
static void aiops_add_quantized(int level, float *acc, const float *scale, const int8_t *code,
                                float weight, ptrdiff_t n)
{
    for (ptrdiff_t at = 0, block = 0; at < n; at += AIOPS_INT8_BLOCK, block++) {
        const ptrdiff_t m = n - at < AIOPS_INT8_BLOCK ? n - at : AIOPS_INT8_BLOCK;
        AIOPS_ON(level, aiops_add_codes, (acc + at, code + at, scale[block], weight, m));
    }
}

#endif
