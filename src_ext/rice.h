/* Ascending positions below n as the gaps between them, after Rice (1979).
 *
 * aiops/kernels/gaps.py describes the code, gaps.h what keeps a hostile one at bay. The lowest bits
 * of all gaps of a block come first, so that they are taken apart without waiting for the unary ones.
 */
#ifndef AIOPS_RICE_H
#define AIOPS_RICE_H

#include "gaps.h"

enum {
    AIOPS_RICE_BLOCK = 256,
    /* A gap of 32 bits takes as many after Rice with a parameter of 31. */
    AIOPS_MOST_RICE = 31,
    AIOPS_RICE_ROOM = AIOPS_RICE_BLOCK * AIOPS_MOST_RICE / 8 + 8,
    /* The best parameter leaves no more bits in unary than all have with the largest one. */
    AIOPS_UNARY_WORDS = AIOPS_RICE_BLOCK * (AIOPS_MOST_RICE + 2) / AIOPS_WORD + 1,
};

/* How many bits the gaps take with a parameter. */
AIOPS_CLONES static inline uint64_t
aiops_rice_bits(const uint32_t *gap, ptrdiff_t count, int rice)
{
    uint64_t bits = (uint64_t)count * (uint64_t)(rice + 1);
    for (ptrdiff_t j = 0; j < count; j++)
        bits += gap[j] >> rice;
    return bits;
}

/* The smallest parameter with which they take the fewest: the bits fall and then rise with it, so
 * it lies downhill from the logarithm of the mean. */
static inline int aiops_rice_best(const uint32_t *gap, ptrdiff_t count)
{
    const uint64_t sum = aiops_rice_bits(gap, count, 0) - (uint64_t)count;
    const int length = aiops_bit_length((uint32_t)(sum / (uint64_t)count));
    int rice = length ? length - 1 : 0;
    uint64_t bits = aiops_rice_bits(gap, count, rice), other;
    while (rice > 0 && (other = aiops_rice_bits(gap, count, rice - 1)) <= bits) {
        bits = other;
        rice--;
    }
    while (rice < AIOPS_MOST_RICE && (other = aiops_rice_bits(gap, count, rice + 1)) < bits) {
        bits = other;
        rice++;
    }
    return rice;
}

/* Sets one bit for each gap, behind as many zeros as it has in units of 2^rice, and returns how
 * many bytes that takes. */
static inline ptrdiff_t
aiops_rice_unary(const uint32_t *gap, ptrdiff_t count, int rice, uint8_t *unary)
{
    uint64_t bits = 0;
    ptrdiff_t place = -1, word = 0;
    for (ptrdiff_t j = 0; j < count; j++) {
        place += (ptrdiff_t)(gap[j] >> rice) + 1;
        for (; word < place / AIOPS_WORD; word++, bits = 0)
            aiops_store64(unary + 8 * word, bits);
        bits |= (uint64_t)1 << place % AIOPS_WORD;
    }
    aiops_store64(unary + 8 * word, bits);
    return place / 8 + 1;
}

/* As aiops_pack_index(). */
static inline ptrdiff_t
aiops_rice_index(const uint32_t *index, ptrdiff_t k, int64_t n, uint8_t *code)
{
    uint32_t gap[AIOPS_RICE_BLOCK];
    uint8_t part[AIOPS_RICE_ROOM], unary[8 * AIOPS_UNARY_WORDS];
    uint8_t *to = code;
    for (ptrdiff_t i = 0, count; i < k; i += count) {
        count = k - i < AIOPS_RICE_BLOCK ? k - i : AIOPS_RICE_BLOCK;
        const int64_t before = i ? (int64_t)index[i - 1] : -1;
        const ptrdiff_t wrong = aiops_gaps_cut(index + i, count, before, n, gap);
        if (wrong >= 0)
            return -1 - (i + wrong);
        const int rice = aiops_rice_best(gap, count);
        const ptrdiff_t bytes = (count * rice + 7) / 8;
        const ptrdiff_t more = aiops_rice_unary(gap, count, rice, unary);
        aiops_gaps_join(gap, count, rice, part);
        *to = (uint8_t)rice;
        memcpy(to + 1, part, (size_t)bytes);
        memcpy(to + 1 + bytes, unary, (size_t)more);
        to += 1 + bytes + more;
    }
    return to - code;
}

/* The word that begins at a byte of the code; behind its end there are zeros. */
AIOPS_INLINE uint64_t aiops_gaps_word(const aiops_gaps_source *from, ptrdiff_t at)
{
    uint64_t word = 0;
    if (from->size - at >= 8)
        return aiops_load64(from->code + at);
    for (ptrdiff_t b = 0; b < from->size - at; b++)
        word |= (uint64_t)from->code[at + b] << (8 * b);
    return word;
}

/* Writes the positions of a block, from *next on, which it moves on, and moves `from` behind it. */
static inline aiops_gaps_verdict
aiops_unrice_block(aiops_gaps_source *from, const uint8_t *part, ptrdiff_t count, int rice,
                   int64_t *next, int64_t n, uint32_t *index)
{
    const uint64_t mask = ((uint64_t)1 << rice) - 1;
    const int64_t most = (n - 1) >> rice;
    int64_t position = *next - 1, before = -1, place = -1;
    ptrdiff_t j = 0;
    for (ptrdiff_t at = 0; at < from->size && j < count; at += 8)
        for (uint64_t bits = aiops_gaps_word(from, at); bits && j < count; bits &= bits - 1, j++) {
            place = 8 * (int64_t)at + aiops_lowest(bits);
            const int64_t high = place - before - 1;
            before = place;
            /* A shift of more could overflow. */
            if (high > most)
                return (aiops_gaps_verdict){AIOPS_GAPS_OUTSIDE, j};
            position += 1 + (high << rice) + (int64_t)aiops_gaps_bits(part, j, rice, mask);
            if (position >= n)
                return (aiops_gaps_verdict){AIOPS_GAPS_OUTSIDE, j};
            index[j] = (uint32_t)position;
        }
    if (j < count)
        return (aiops_gaps_verdict){AIOPS_GAPS_ENDS, j};
    const int padding = from->code[place / 8] >> (place % 8) >> 1;
    from->code += place / 8 + 1;
    from->size -= place / 8 + 1;
    *next = position + 1;
    return (aiops_gaps_verdict){padding ? AIOPS_GAPS_PADDING : AIOPS_GAPS_FINE, 0};
}

static inline aiops_gaps_verdict
aiops_unrice_index(const uint8_t *code, ptrdiff_t size, ptrdiff_t k, int64_t n, uint32_t *index)
{
    aiops_gaps_source from = {code, size};
    uint8_t part[AIOPS_RICE_ROOM];
    int64_t next = 0;
    for (ptrdiff_t i = 0, count; i < k; i += count) {
        count = k - i < AIOPS_RICE_BLOCK ? k - i : AIOPS_RICE_BLOCK;
        if (from.size == 0)
            return (aiops_gaps_verdict){AIOPS_GAPS_ENDS, i};
        const int rice = *from.code++;
        from.size--;
        if (rice > AIOPS_MOST_RICE)
            return (aiops_gaps_verdict){AIOPS_GAPS_WIDTH, i};
        const int fault = aiops_gaps_take(&from, count, rice, part);
        if (fault)
            return (aiops_gaps_verdict){fault, i};
        const aiops_gaps_verdict found =
            aiops_unrice_block(&from, part, count, rice, &next, n, index + i);
        if (found.fault)
            return (aiops_gaps_verdict){found.fault, i + found.at};
    }
    return (aiops_gaps_verdict){from.size ? AIOPS_GAPS_BEHIND : AIOPS_GAPS_FINE, from.size};
}

#endif
