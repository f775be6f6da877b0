/* The weighted sum of sparse vectors as a sparse vector.
 *
 * Two are merged without branches, from the front and from the middle at once: one merge waits for
 * its own comparisons most of the time (3.1 to 1.7 times scipy's speed, n = 1e7, density .01).
 *
 * More of them: the range of positions is walked in blocks that stay in the cache. Every vector's stretch is
 * added to a dense accumulator and leaves a mark per position and one per window of 64 positions:
 * bytes, since setting a bit would wait for the bit before. Then marked windows are collected in
 * order, and cleared on the way. No position is compared with another one, so the cost per value
 * hardly grows with the number of vectors.
 */
#ifndef AIOPS_SPARSE_MERGE_H
#define AIOPS_SPARSE_MERGE_H

#include "marks.h"

/* A window's marks fill one cache line; those of a span of windows fill one as well. */
enum { AIOPS_WINDOW = 64, AIOPS_SPAN = 64 * 64 };

/* Blocks of 2^14 positions take less than a tenth of a second-level cache. Blocks of 2^17 leave
 * their loops an eighth as often where values are rare, which pays for the pages that they touch
 * first once values are many. */
enum {
    AIOPS_SMALL_BLOCK = 1 << 14,
    AIOPS_LARGE_BLOCK = 1 << 17,
    AIOPS_RARE = 32,
    AIOPS_MANY = 1 << 16
};

/* Positions in a window from which whole registers are compressed. */
enum { AIOPS_FEW = 4 };

typedef struct {
    const uint32_t *index;
    const float *value;
    ptrdiff_t k, next; /* `next` is the first one not yet added */
    float weight;
} aiops_sparse;

/* All zero between blocks. */
typedef struct {
    float *sum;
    uint8_t *mark, *window;
} aiops_merge_block;

/* Where the result goes; there is room for every position that is marked. */
typedef struct {
    uint32_t *index;
    float *value;
    ptrdiff_t count, room;
} aiops_merged;

/* Takes out what is marked in the window of 64 positions that starts at `at`. */
typedef void aiops_collect(const aiops_merge_block *block, ptrdiff_t window, uint32_t first,
                           uint64_t marked, aiops_merged *out);

static inline ptrdiff_t aiops_merge_length(ptrdiff_t total, ptrdiff_t n)
{
    const int large = total >= AIOPS_MANY && total * AIOPS_RARE <= n;
    const ptrdiff_t length = large ? AIOPS_LARGE_BLOCK : AIOPS_SMALL_BLOCK;
    const ptrdiff_t all = (n + AIOPS_SPAN - 1) / AIOPS_SPAN * AIOPS_SPAN;
    return all < length ? all : length;
}

static inline size_t aiops_merge_bytes(ptrdiff_t length)
{
    return (size_t)length * sizeof(float) + (size_t)length + (size_t)(length / AIOPS_WINDOW);
}

AIOPS_INLINE void
aiops_collect_portable(const aiops_merge_block *block, ptrdiff_t window, uint32_t first,
                       uint64_t marked, aiops_merged *out)
{
    float *const sum = block->sum + AIOPS_WINDOW * window;
    ptrdiff_t at = out->count;
    for (; marked; marked &= marked - 1, at++) {
        const int j = aiops_lowest(marked);
        out->index[at] = first + (uint32_t)j;
        out->value[at] = sum[j];
        sum[j] = 0.0f;
    }
    out->count = at;
}

/* Adds every vector's values at positions in first <= position < first + length. */
static inline void aiops_merge_add(const aiops_merge_block *block, aiops_sparse *vector,
                                   ptrdiff_t count, ptrdiff_t first, ptrdiff_t length)
{
    float *const sum = block->sum;
    uint8_t *const mark = block->mark, *const window = block->window;
    for (ptrdiff_t s = 0; s < count; s++) {
        const uint32_t *const index = vector[s].index;
        const float *const value = vector[s].value;
        const float weight = vector[s].weight;
        const ptrdiff_t k = vector[s].k;
        ptrdiff_t i = vector[s].next;
        for (; i < k; i++) {
            const size_t at = (size_t)index[i] - (size_t)first;
            if (at >= (size_t)length)
                break;
            sum[at] += weight * value[i];
            mark[at] = 1;
            window[at / AIOPS_WINDOW] = 1;
        }
        vector[s].next = i;
    }
}

AIOPS_INLINE void
aiops_merge_by(aiops_gather_marks *gather, aiops_collect *collect, const aiops_merge_block *block,
               aiops_sparse *vector, ptrdiff_t count, ptrdiff_t length, aiops_merged *out)
{
    for (;;) {
        ptrdiff_t first = -1;
        for (ptrdiff_t s = 0; s < count; s++)
            if (vector[s].next < vector[s].k) {
                const ptrdiff_t at = vector[s].index[vector[s].next];
                first = first < 0 || at < first ? at : first;
            }
        if (first < 0)
            return;
        first = first / AIOPS_SPAN * AIOPS_SPAN;
        aiops_merge_add(block, vector, count, first, length);
        for (ptrdiff_t span = 0; span < length / AIOPS_SPAN; span++) {
            uint64_t windows = gather(block->window + AIOPS_WINDOW * span);
            for (; windows; windows &= windows - 1) {
                const ptrdiff_t window = AIOPS_WINDOW * span + aiops_lowest(windows);
                const uint64_t marked = gather(block->mark + AIOPS_WINDOW * window);
                collect(block, window, (uint32_t)(first + AIOPS_WINDOW * window), marked, out);
            }
        }
    }
}

static void aiops_merge_portable(const aiops_merge_block *block, aiops_sparse *vector,
                                 ptrdiff_t count, ptrdiff_t length, aiops_merged *out)
{
    aiops_merge_by(aiops_marks_portable, aiops_collect_portable, block, vector, count, length, out);
}

#if AIOPS_X86
AIOPS_TARGET_BMI2 static void
aiops_merge_avx2(const aiops_merge_block *block, aiops_sparse *vector, ptrdiff_t count,
                 ptrdiff_t length, aiops_merged *out)
{
    aiops_merge_by(aiops_marks_avx2, aiops_collect_portable, block, vector, count, length, out);
}

AIOPS_TARGET_LINE AIOPS_INLINE void
aiops_collect_avx512(const aiops_merge_block *block, ptrdiff_t window, uint32_t first,
                     uint64_t marked, aiops_merged *out)
{
    /* Whole registers are written, so the last results are left to the loop over bits, which is
     * faster anyway for a few. */
    if (aiops_ones(marked) < AIOPS_FEW || out->room - out->count < AIOPS_WINDOW) {
        aiops_collect_portable(block, window, first, marked, out);
        return;
    }
    float *const sum = block->sum + AIOPS_WINDOW * window;
    const __m512i step = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    ptrdiff_t at = out->count;
    for (int part = 0; part < AIOPS_WINDOW; part += 16, marked >>= 16) {
        const __mmask16 taken = (__mmask16)marked;
        const __m512i index = _mm512_add_epi32(step, _mm512_set1_epi32((int)first + part));
        const __m512 value = _mm512_loadu_ps(sum + part);
        _mm512_storeu_si512(out->index + at, _mm512_maskz_compress_epi32(taken, index));
        _mm512_storeu_ps(out->value + at, _mm512_maskz_compress_ps(taken, value));
        _mm512_storeu_ps(sum + part, _mm512_setzero_ps());
        at += aiops_ones(taken);
    }
    out->count = at;
}

AIOPS_TARGET_LINE static void
aiops_merge_avx512(const aiops_merge_block *block, aiops_sparse *vector, ptrdiff_t count,
                   ptrdiff_t length, aiops_merged *out)
{
    aiops_merge_by(aiops_marks_avx512, aiops_collect_avx512, block, vector, count, length, out);
}
#endif

/* A merge under way: the next positions of both vectors and of the result, and where they end. */
typedef struct {
    ptrdiff_t left, left_end, right, right_end, at;
} aiops_merging;

/* Steps that a merge can take without looking whether a vector is at its end. */
AIOPS_INLINE ptrdiff_t aiops_merge_sure(const aiops_merging *go)
{
    const ptrdiff_t left = go->left_end - go->left, right = go->right_end - go->right;
    return left < right ? left : right;
}

AIOPS_INLINE void aiops_merge_step(aiops_merging *go, const aiops_sparse *a, const aiops_sparse *b,
                                   aiops_merged *out)
{
    const uint32_t left = a->index[go->left], right = b->index[go->right];
    const uint32_t from_left = left <= right, from_right = right <= left;
    /* A product that is not taken counts as 0.0. */
    const uint32_t x = aiops_bits(a->weight * a->value[go->left]) & (0u - from_left);
    const uint32_t y = aiops_bits(b->weight * b->value[go->right]) & (0u - from_right);
    out->index[go->at] = from_left ? left : right;
    out->value[go->at] = (0.0f + aiops_float(x)) + aiops_float(y);
    go->at++;
    go->left += from_left;
    go->right += from_right;
}

/* Takes the rest of one merge, moves its whole result from `start` down to the end of `out`. */
static inline void aiops_merge_finish(aiops_merging go, ptrdiff_t start, const aiops_sparse *a,
                                      const aiops_sparse *b, aiops_merged *out)
{
    while (aiops_merge_sure(&go) > 0)
        aiops_merge_step(&go, a, b, out);
    for (; go.left < go.left_end; go.left++, go.at++) {
        out->index[go.at] = a->index[go.left];
        out->value[go.at] = 0.0f + a->weight * a->value[go.left];
    }
    for (; go.right < go.right_end; go.right++, go.at++) {
        out->index[go.at] = b->index[go.right];
        out->value[go.at] = 0.0f + b->weight * b->value[go.right];
    }
    const size_t length = (size_t)(go.at - start);
    if (start != out->count) {
        memmove(out->index + out->count, out->index + start, length * sizeof *out->index);
        memmove(out->value + out->count, out->value + start, length * sizeof *out->value);
    }
    out->count += go.at - start;
}

/* The same for two vectors; there is room for all values of both, and no scratch. Not inlined: in
 * its caller, which needs registers too, the loop kept its comparisons in memory and took 1.4 to
 * 1.6 times as long (gcc 12, Zen 4). */
AIOPS_NOINLINE void
aiops_merge_two(const aiops_sparse *first, const aiops_sparse *second, aiops_merged *out)
{
    /* Copies that no store can change stay in registers. */
    const aiops_sparse one = *first, two = *second, *const a = &one, *const b = &two;
    const ptrdiff_t left = a->k / 2;
    ptrdiff_t right = 0;
    /* The first of b that is not below the middle of a. */
    for (ptrdiff_t length = a->k ? b->k : 0; length > 0;) {
        const ptrdiff_t half = length / 2;
        const int below = b->index[right + half] < a->index[left];
        right += below ? half + 1 : 0;
        length = below ? length - half - 1 : half;
    }
    aiops_merging front = {0, left, 0, right, 0};
    aiops_merging back = {left, a->k, right, b->k, left + right};
    aiops_merged to = *out;
    for (;;) {
        const ptrdiff_t sure = aiops_merge_sure(&front), also = aiops_merge_sure(&back);
        const ptrdiff_t steps = sure < also ? sure : also;
        if (steps <= 0)
            break;
        for (ptrdiff_t s = 0; s < steps; s++) {
            aiops_merge_step(&front, a, b, &to);
            aiops_merge_step(&back, a, b, &to);
        }
    }
    aiops_merge_finish(front, 0, a, b, out);
    aiops_merge_finish(back, left + right, a, b, out);
}

/* out = sum of weight * value over all vectors, added in their order from zero. Positions of each
 * vector ascend and are below n; `scratch` has aiops_merge_bytes(length) zeros. */
static inline void aiops_merge_sparse(int level, aiops_sparse *vector, ptrdiff_t count,
                                      ptrdiff_t length, void *scratch, aiops_merged *out)
{
    const aiops_merge_block block = {
        .sum = scratch,
        .mark = (uint8_t *)scratch + (size_t)length * sizeof(float),
        .window = (uint8_t *)scratch + (size_t)length * (sizeof(float) + 1),
    };
#if AIOPS_X86
    if (level >= AIOPS_AVX512) {
        aiops_merge_avx512(&block, vector, count, length, out);
        return;
    }
    if (level >= AIOPS_AVX2) {
        aiops_merge_avx2(&block, vector, count, length, out);
        return;
    }
#endif
    (void)level;
    aiops_merge_portable(&block, vector, count, length, out);
}
#endif
