/* Sparse accumulation: values of four kinds, at positions that are listed or coded, into a vector.
 *
 * Nothing is materialised but a block of 512 positions and values. Products and sums are rounded
 * one after the other and positions are taken in order, so duplicates add up as in a plain loop.
 */
#ifndef AIOPS_SPARSE_H
#define AIOPS_SPARSE_H

#include "half.h"
#include "index.h"

#if defined(__GNUC__)
#  define aiops_prefetch_near(address) __builtin_prefetch((address), 0, 3)
#  define aiops_prefetch_far(address) __builtin_prefetch((address), 0, 2)
#else
#  define aiops_prefetch_near(address) ((void)(address))
#  define aiops_prefetch_far(address) ((void)(address))
#endif

/* Where positions are rare each one is its own miss. Fetched 512 ahead into the second level they
 * keep memory four times as busy as fetches 64 ahead into the first: 3.5 to 1.5 times the speed of
 * torch's index_add_ (n = 1e8, density .01, Zen 4). Where most cache lines are touched, all lines
 * of the next positions are fetched in even portions: 1.3 to 1.1 (density .1). */
enum {
    AIOPS_RUN = 64,         /* positions for which one of the two is chosen */
    AIOPS_PORTION = 8,      /* positions between two portions of prefetches */
    AIOPS_NEAR = 64,        /* how far ahead, in positions */
    AIOPS_FAR = 512,
    AIOPS_LINE = 16,        /* floats */
    AIOPS_DENSE_GAP = 24    /* mean distance of positions up to which lines are fetched */
};

enum { AIOPS_FLOAT32 = 0, AIOPS_FLOAT16 = 1, AIOPS_BFLOAT16 = 2, AIOPS_INT8 = 3 };

typedef struct {
    int kind;
    const uint8_t *bytes; /* aligned to an item */
    const float *scale;   /* of each 4096 int8 values */
} aiops_values;

AIOPS_CLONES static inline void
aiops_widen_bfloat16(const uint16_t *value, float *out, ptrdiff_t count)
{
    for (ptrdiff_t j = 0; j < count; j++)
        out[j] = aiops_from_bfloat16(value[j]);
}

AIOPS_CLONES static inline void
aiops_scale_int8(const int8_t *value, float scale, float *out, ptrdiff_t count)
{
    for (ptrdiff_t j = 0; j < count; j++)
        out[j] = scale * (float)value[j];
}

/* The values from number `first` on as float32: in place, or decoded into `block`. `first` is a
 * multiple of the block's length, so that one scale serves all. */
static inline const float *
aiops_values_at(int level, const aiops_values *from, ptrdiff_t first, ptrdiff_t count,
                float *block)
{
    switch (from->kind) {
    case AIOPS_FLOAT16:
        aiops_decode_float16(level, (const uint16_t *)from->bytes + first, block, count);
        return block;
    case AIOPS_BFLOAT16:
        aiops_widen_bfloat16((const uint16_t *)from->bytes + first, block, count);
        return block;
    case AIOPS_INT8:
        aiops_scale_int8(
            (const int8_t *)from->bytes + first, from->scale[first / AIOPS_INT8_BLOCK], block,
            count);
        return block;
    default:
        return (const float *)from->bytes + first;
    }
}

/* acc[index[i]] += weight * value[i] for i < count. `known` >= count positions may be read, those
 * beyond `count` only to fetch what they point to. */
AIOPS_NOINLINE void aiops_add_at(float *acc, const uint32_t *index, const float *value,
                                 ptrdiff_t count, ptrdiff_t known, float weight)
{
    ptrdiff_t i = 0;
    for (; i + AIOPS_RUN <= count && i + AIOPS_FAR + AIOPS_RUN <= known; i += AIOPS_RUN) {
        const uint32_t *const near = index + i + AIOPS_NEAR, *const far = index + i + AIOPS_FAR;
        const uint32_t span = near[AIOPS_RUN - 1] - near[0];
        if (span < AIOPS_RUN * AIOPS_DENSE_GAP) {
            const float *line = acc + near[0];
            const int portion = (int)(span / (AIOPS_LINE * (AIOPS_RUN / AIOPS_PORTION))) + 1;
            for (int g = 0; g < AIOPS_RUN; g += AIOPS_PORTION) {
                for (int p = 0; p < portion; p++, line += AIOPS_LINE)
                    aiops_prefetch_near(line);
                for (ptrdiff_t j = i + g; j < i + g + AIOPS_PORTION; j++)
                    acc[index[j]] += weight * value[j];
            }
        } else {
            for (int j = 0; j < AIOPS_RUN; j++) {
                aiops_prefetch_far(acc + far[j]);
                acc[index[i + j]] += weight * value[i + j];
            }
        }
    }
    for (; i < count; i++)
        acc[index[i]] += weight * value[i];
}

/* Positions are listed and below the length of acc. Blocks are aligned, since values in front of an
 * aligned place are decoded one by one. */
static inline void aiops_scatter_listed(int level, float *acc, const uint32_t *index, ptrdiff_t k,
                                        const aiops_values *from, float weight)
{
    AIOPS_ALIGNED float block[AIOPS_INDEX_BLOCK];
    if (from->kind == AIOPS_FLOAT32) {
        aiops_add_at(acc, index, (const float *)from->bytes, k, k, weight);
        return;
    }
    for (ptrdiff_t i = 0; i < k; i += AIOPS_INDEX_BLOCK) {
        const ptrdiff_t count = k - i < AIOPS_INDEX_BLOCK ? k - i : AIOPS_INDEX_BLOCK;
        const float *const value = aiops_values_at(level, from, i, count, block);
        aiops_add_at(acc, index + i, value, count, k - i, weight);
    }
}

/* Positions are coded, and the code has passed aiops_index_outside(). One block is decoded ahead
 * of the one that is added. Blocks lie one behind the other, so that most of them are not moved. */
static inline void
aiops_scatter_coded(int level, float *acc, const aiops_index_layout *at, const uint8_t *code,
                    const aiops_values *from, float weight)
{
    enum { BLOCKS = 4 };
    uint32_t index[BLOCKS * AIOPS_INDEX_BLOCK + AIOPS_INDEX_ROOM], *to = index;
    AIOPS_ALIGNED float block[AIOPS_INDEX_BLOCK];
    aiops_index_reader reader;
    ptrdiff_t count, ahead, i = 0;
    aiops_index_open(&reader, at, code);
    for (count = aiops_index_next(level, &reader, to); count; count = ahead) {
        const float *const value = aiops_values_at(level, from, i, count, block);
        ahead = aiops_index_next(level, &reader, to + count);
        aiops_add_at(acc, to, value, count, count + ahead, weight);
        to += count;
        i += count;
        if (to == index + (BLOCKS - 1) * AIOPS_INDEX_BLOCK) {
            memcpy(index, to, (size_t)(ahead + AIOPS_WORD) * sizeof *index);
            to = index;
        }
    }
}
#endif
