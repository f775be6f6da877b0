/* Ascending positions below n as the gaps between them: what both codes share, and the packed one.
 *
 * aiops/kernels/gaps.py describes both. Blocks are written one by one: their bits are put
 * together in a buffer with room for whole words and copied from there, and copied into one before
 * they are taken apart, so no word reaches outside a code.
 *
 * Decoders face hostile bytes. Positions ascend however long the gaps are, since each is the one
 * before plus a gap plus one, in 64 bits; what is checked is that they stay below n and that the
 * code is neither shorter nor longer than they need.
 */
#ifndef AIOPS_GAPS_H
#define AIOPS_GAPS_H

#include "marks.h"

enum {
    AIOPS_PACK_BLOCK = 128,
    AIOPS_MOST_WIDTH = 32,
    AIOPS_PACK_ROOM = AIOPS_PACK_BLOCK * AIOPS_MOST_WIDTH / 8 + 8,
};

/* What is wrong with a code. */
enum {
    AIOPS_GAPS_FINE,
    AIOPS_GAPS_OUTSIDE,
    AIOPS_GAPS_ENDS,
    AIOPS_GAPS_WIDTH,
    AIOPS_GAPS_PADDING,
    AIOPS_GAPS_BEHIND,
};

/* Where: the number of a position, of the first one of a block, or how many bytes are left. */
typedef struct {
    int fault;
    ptrdiff_t at;
} aiops_gaps_verdict;

/* A code that is being read. */
typedef struct {
    const uint8_t *code;
    ptrdiff_t size;
} aiops_gaps_source;

/* ---- gaps ---------------------------------------------------------------------------------- */

/* Writes the gaps of `count` positions, the first one counted from `before`. Returns -1, or the
 * number of the first position that is not above the one before it or not below n. */
AIOPS_CLONES static inline ptrdiff_t
aiops_gaps_cut(const uint32_t *index, ptrdiff_t count, int64_t before, int64_t n, uint32_t *gap)
{
    uint32_t falls = index[0] <= before;
    gap[0] = (uint32_t)(index[0] - before - 1);
    for (ptrdiff_t j = 1; j < count; j++) {
        gap[j] = index[j] - index[j - 1] - 1;
        falls |= index[j] <= index[j - 1];
    }
    if (falls || index[count - 1] >= n)
        for (ptrdiff_t j = 0; j < count; before = index[j++])
            if (index[j] <= before || index[j] >= n)
                return j;
    return -1;
}

AIOPS_INLINE int aiops_bit_length(uint32_t x)
{
    int bits = 0;
    for (; x; x >>= 1)
        bits++;
    return bits;
}

AIOPS_INLINE int aiops_widest(const uint32_t *gap, ptrdiff_t count)
{
    uint32_t any = 0;
    for (ptrdiff_t j = 0; j < count; j++)
        any |= gap[j];
    return aiops_bit_length(any);
}

/* Puts the lowest `width` bits of each gap behind each other; at `to` is room for 8 bytes more. Of
 * eight gaps the bits begin at a byte, so that eight do not wait for the eight before. */
static inline void
aiops_gaps_join(const uint32_t *gap, ptrdiff_t count, int width, uint8_t *to)
{
    const uint64_t mask = ((uint64_t)1 << width) - 1;
    for (ptrdiff_t j = 0; j < count; j += 8) {
        const ptrdiff_t end = count - j < 8 ? count - j : 8;
        uint8_t *byte = to + j / 8 * width;
        uint64_t bits = 0;
        int held = 0;
        for (ptrdiff_t i = 0; i < end; i++) {
            bits |= (gap[j + i] & mask) << held;
            held += width;
            aiops_store64(byte, bits);
            byte += held >> 3;
            bits >>= held & ~7;
            held &= 7;
        }
    }
}

/* The bits of number j of those that were put behind each other. */
AIOPS_INLINE uint64_t aiops_gaps_bits(const uint8_t *from, ptrdiff_t j, int width, uint64_t mask)
{
    const ptrdiff_t bit = j * width;
    return aiops_load64(from + bit / 8) >> (bit & 7) & mask;
}

/* Copies the `count` times `width` bits that come next into a buffer with 8 bytes to spare. */
static inline int
aiops_gaps_take(aiops_gaps_source *from, ptrdiff_t count, int width, uint8_t *to)
{
    const ptrdiff_t bits = count * width, bytes = (bits + 7) / 8;
    if (from->size < bytes)
        return AIOPS_GAPS_ENDS;
    memset(to + bytes, 0, 8);
    if (bytes == 0)
        return AIOPS_GAPS_FINE;
    memcpy(to, from->code, (size_t)bytes);
    from->code += bytes;
    from->size -= bytes;
    return bits % 8 && to[bytes - 1] >> bits % 8 ? AIOPS_GAPS_PADDING : AIOPS_GAPS_FINE;
}

/* ---- packed -------------------------------------------------------------------------------- */

/* Writes the code. Returns its size, or -1 less the number of the first position that is not above
 * the one before it or not below n; the code is without meaning then. */
static inline ptrdiff_t
aiops_pack_index(const uint32_t *index, ptrdiff_t k, int64_t n, uint8_t *code)
{
    uint32_t gap[AIOPS_PACK_BLOCK];
    uint8_t part[AIOPS_PACK_ROOM];
    uint8_t *to = code;
    for (ptrdiff_t i = 0, count; i < k; i += count) {
        count = k - i < AIOPS_PACK_BLOCK ? k - i : AIOPS_PACK_BLOCK;
        const int64_t before = i ? (int64_t)index[i - 1] : -1;
        const ptrdiff_t wrong = aiops_gaps_cut(index + i, count, before, n, gap);
        if (wrong >= 0)
            return -1 - (i + wrong);
        const int width = aiops_widest(gap, count);
        const ptrdiff_t bytes = (count * width + 7) / 8;
        aiops_gaps_join(gap, count, width, part);
        *to = (uint8_t)width;
        memcpy(to + 1, part, (size_t)bytes);
        to += 1 + bytes;
    }
    return to - code;
}

/* Writes the positions of a block, from `next` on. Returns where the next one would begin, or -1
 * less the number of the first one that is n or more. */
static inline int64_t
aiops_unpack_block(const uint8_t *part, ptrdiff_t count, int width, int64_t next, int64_t n,
                   uint32_t *index)
{
    const uint64_t mask = ((uint64_t)1 << width) - 1;
    const int64_t first = next;
    for (ptrdiff_t j = 0; j < count; j++, next++) {
        next += (int64_t)aiops_gaps_bits(part, j, width, mask);
        index[j] = (uint32_t)next;
    }
    if (next <= n)
        return next;
    next = first;
    for (ptrdiff_t j = 0;; j++, next++) {
        next += (int64_t)aiops_gaps_bits(part, j, width, mask);
        if (next >= n)
            return -1 - j;
    }
}

static inline aiops_gaps_verdict
aiops_unpack_index(const uint8_t *code, ptrdiff_t size, ptrdiff_t k, int64_t n, uint32_t *index)
{
    aiops_gaps_source from = {code, size};
    uint8_t part[AIOPS_PACK_ROOM];
    int64_t next = 0;
    for (ptrdiff_t i = 0, count; i < k; i += count) {
        count = k - i < AIOPS_PACK_BLOCK ? k - i : AIOPS_PACK_BLOCK;
        if (from.size == 0)
            return (aiops_gaps_verdict){AIOPS_GAPS_ENDS, i};
        const int width = *from.code++;
        from.size--;
        if (width > AIOPS_MOST_WIDTH)
            return (aiops_gaps_verdict){AIOPS_GAPS_WIDTH, i};
        const int fault = aiops_gaps_take(&from, count, width, part);
        if (fault)
            return (aiops_gaps_verdict){fault, i};
        next = aiops_unpack_block(part, count, width, next, n, index + i);
        if (next < 0)
            return (aiops_gaps_verdict){AIOPS_GAPS_OUTSIDE, i - 1 - next};
    }
    return (aiops_gaps_verdict){from.size ? AIOPS_GAPS_BEHIND : AIOPS_GAPS_FINE, from.size};
}

#endif
