/* Ascending positions below n, coded after Elias (1974) and Fano (1971).
 *
 * Each of k positions is cut into `low` low bits, stored as they are, and a high part, stored as
 * the distance to the one before in unary: bit (high + i) of the upper bitmap is set for position
 * number i. With low = floor(log2(n / k)) that is within 0.6 bits per position of the entropy at
 * any density, the size depends on k and n alone, and nothing is ever summed up: high is the place
 * of the bit less i.
 *
 * The code, all little endian, padded with zeros to 8 bytes:
 *   upper bitmap   uint64[words], words = ceil((((n - 1) >> low) + k) / 64)
 *   packed rest    rest = low % 8 low bits of each position, 8 positions in `rest` bytes
 *   byte planes    low / 8 times uint8[k]: the bits above `rest`, lower ones first
 *
 * A decoder faces hostile bytes. aiops_index_outside() looks at the bitmap and at the positions
 * that could reach n, which costs a small part of decoding; after it, nothing that is decoded is
 * n or more and no byte outside the code is read. Whether positions ascend is another question.
 */
#ifndef AIOPS_INDEX_H
#define AIOPS_INDEX_H

#include "index_bits.h"

/* Three planes: where positions are rarer than one in 2^24, a bitmap of 512 bits does no harm. */
enum { AIOPS_MOST_LOW = 24 };

/* Positions are decoded by blocks; whole registers reach behind them. */
enum { AIOPS_INDEX_ROOM = AIOPS_INDEX_BLOCK + 2 * AIOPS_WORD };

/* What is wrong with a code as a whole; a wrong position is told by its number. */
enum { AIOPS_INDEX_FINE = -1, AIOPS_INDEX_COUNT = -2, AIOPS_INDEX_PADDING = -3 };

typedef struct {
    ptrdiff_t k, n, bits, words, size;
    int low, rest, planes;
    ptrdiff_t packed, plane; /* where they start */
} aiops_index_layout;

/* Hands out positions block by block. The code has passed aiops_index_outside(). */
typedef struct {
    const aiops_index_layout *at;
    const uint8_t *code;
    ptrdiff_t first, word, ready; /* positions handed out, words read, what waits of the last one */
    int whole;                    /* it waits as positions behind the block, not in `high` */
    ptrdiff_t unpacked;           /* how many low bits wait */
    uint32_t high[AIOPS_INDEX_BLOCK + AIOPS_WORD];
    uint8_t low[AIOPS_INDEX_BLOCK + 2 * AIOPS_WORD];
} aiops_index_reader;

static inline void aiops_index_open(aiops_index_reader *from, const aiops_index_layout *at,
                                    const uint8_t *code)
{
    from->at = at;
    from->code = code;
    from->first = from->word = from->ready = from->unpacked = 0;
    from->whole = 0;
    memset(from->low, 0, sizeof from->low);
}

#include "index_lines.h"

/* 0 <= k <= n <= 2^32 */
static inline aiops_index_layout aiops_index_lay(ptrdiff_t k, ptrdiff_t n)
{
    aiops_index_layout at = {.k = k, .n = n};
    if (k == 0)
        return at;
    while (at.low < AIOPS_MOST_LOW && n >> (at.low + 1) >= k)
        at.low++;
    at.rest = at.low % 8;
    at.planes = at.low / 8;
    at.bits = ((n - 1) >> at.low) + k;
    at.words = (at.bits + AIOPS_WORD - 1) / AIOPS_WORD;
    at.packed = at.words * 8;
    at.plane = at.packed + at.rest * ((k + 7) / 8);
    at.size = (at.plane + at.planes * k + 7) / 8 * 8;
    return at;
}

/* Cuts `count` positions: their bits' places in the bitmap, from the first one's on, their lowest
 * `rest` bits, filled up with zeros to whole groups of eight, and the planes. A step is below 2^32,
 * since where high parts have 32 bits, more than half of all positions are taken. */
AIOPS_CLONES static inline void
aiops_index_cut(const aiops_index_layout *at, const uint32_t *index, ptrdiff_t first,
                ptrdiff_t count, uint32_t *step, uint8_t *low, uint8_t *code)
{
    const uint32_t mask = (1u << at->rest) - 1, start = index[0] >> at->low;
    for (ptrdiff_t j = 0; j < count; j++)
        step[j] = (index[j] >> at->low) - start + (uint32_t)j;
    for (ptrdiff_t j = 0; j < count; j++)
        low[j] = (uint8_t)(index[j] & mask);
    for (int p = 0; p < at->planes; p++) {
        uint8_t *const plane = code + at->plane + p * at->k + first;
        const int shift = at->rest + 8 * p;
        for (ptrdiff_t j = 0; j < count; j++)
            plane[j] = (uint8_t)(index[j] >> shift);
    }
    memset(low + count, 0, (size_t)(-count & 7));
}

/* The reverse of it: high becomes the position. */
AIOPS_CLONES static inline void
aiops_index_join(const aiops_index_layout *at, const uint8_t *code, ptrdiff_t first,
                 ptrdiff_t count, const uint32_t *high, const uint8_t *low, uint32_t *index)
{
    const int shift = at->low;
    if (at->rest)
        for (ptrdiff_t j = 0; j < count; j++)
            index[j] = high[j] << shift | low[j];
    else
        for (ptrdiff_t j = 0; j < count; j++)
            index[j] = high[j] << shift;
    for (int p = 0; p < at->planes; p++) {
        const uint8_t *const plane = code + at->plane + p * at->k + first;
        const int place = at->rest + 8 * p;
        for (ptrdiff_t j = 0; j < count; j++)
            index[j] |= (uint32_t)plane[j] << place;
    }
}

/* Number of the first of `count` positions that is not above the one before it, or -1. */
AIOPS_CLONES static inline ptrdiff_t
aiops_first_not_above(const uint32_t *index, ptrdiff_t count, int64_t before)
{
    uint32_t falls = 0;
    if (count > 0 && (int64_t)index[0] <= before)
        return 0;
    for (ptrdiff_t i = 1; i < count; i++)
        falls |= index[i] <= index[i - 1];
    if (falls)
        for (ptrdiff_t i = 1; i < count; i++)
            if (index[i] <= index[i - 1])
                return i;
    return -1;
}

/* Codes from number `first` on as many positions as can be coded in whole lines without a second
 * look, a multiple of AIOPS_LINE_POSITIONS, and returns how many. */
static inline ptrdiff_t
aiops_index_encode_lines(int level, const aiops_index_layout *at, const uint32_t *index,
                         ptrdiff_t first, uint8_t *code)
{
#if AIOPS_X86
    if (aiops_has_vbmi2(level))
        return aiops_index_encode_vbmi2(at, index, first, code);
#endif
    (void)level, (void)at, (void)index, (void)first, (void)code;
    return 0;
}

/* Writes the code, at->size bytes. Returns -1, or the number of the first position that is not
 * above the one before it or not below n; the code is without meaning then. */
static inline ptrdiff_t aiops_index_encode(int level, const aiops_index_layout *at,
                                           const uint32_t *index, uint8_t *code)
{
    uint32_t step[AIOPS_INDEX_BLOCK];
    uint8_t low[AIOPS_INDEX_BLOCK];
    if (at->k == 0)
        return -1;
    memset(code, 0, (size_t)at->packed);
    memset(code + at->size - 8, 0, 8);
    for (ptrdiff_t i = 0, count; i < at->k; i += count) {
        i += aiops_index_encode_lines(level, at, index, i, code);
        if (i == at->k)
            break;
        count = at->k - i < AIOPS_INDEX_BLOCK ? at->k - i : AIOPS_INDEX_BLOCK;
        ptrdiff_t wrong = aiops_first_not_above(index + i, count, i ? (int64_t)index[i - 1] : -1);
        if (wrong >= 0 || index[i + count - 1] >= (uint64_t)at->n) {
            const ptrdiff_t outside = aiops_first_outside(index + i, count, at->n);
            if (wrong < 0 || (outside >= 0 && outside < wrong))
                wrong = outside;
            return i + wrong;
        }
        aiops_index_cut(at, index + i, i, count, step, low, code);
        aiops_index_set(level, code, (index[i] >> at->low) + i, step, count);
        if (at->rest)
            aiops_index_pack(
                level, low, code + at->packed + i / 8 * at->rest, at->rest, (count + 7) / 8);
    }
    return -1;
}

/* Writes the next AIOPS_INDEX_BLOCK positions, or the last few, and returns how many. At `index`
 * is room for AIOPS_INDEX_ROOM, or for all that are left; the next ones go where these end. */
static inline ptrdiff_t aiops_index_next(int level, aiops_index_reader *from, uint32_t *index)
{
    const aiops_index_layout *const at = from->at;
    const ptrdiff_t first = from->first;
#if AIOPS_X86
    if (aiops_has_vbmi2(level) && at->k - first >= AIOPS_INDEX_ROOM) {
        from->whole = 1;
        return aiops_index_next_vbmi2(from, index);
    }
#endif
    for (ptrdiff_t j = 0; from->whole && j < from->ready; j++)
        from->high[j] = index[j] >> at->low;
    from->whole = 0;
    const ptrdiff_t ready = aiops_index_find(
        level, from->code, &from->word, at->words, first, from->high, from->ready);
    const ptrdiff_t count = ready < AIOPS_INDEX_BLOCK ? ready : AIOPS_INDEX_BLOCK;
    if (at->rest)
        aiops_index_unpack(
            level, from->code + at->packed + first / 8 * at->rest, from->low, at->rest,
            (count + 7) / 8);
    aiops_index_join(at, from->code, first, count, from->high, from->low, index);
    memcpy(from->high, from->high + count, (size_t)(ready - count) * sizeof *from->high);
    from->ready = ready - count;
    from->first = first + count;
    return count;
}

/* Position number i of those whose high part is the largest possible. */
static inline uint64_t
aiops_index_last(const aiops_index_layout *at, const uint8_t *code, ptrdiff_t i)
{
    uint64_t index = (uint64_t)((at->n - 1) >> at->low) << at->low;
    for (int b = 0; b < at->rest; b++) {
        const ptrdiff_t bit = i % 8 * at->rest + b;
        const uint8_t byte = code[at->packed + i / 8 * at->rest + bit / 8];
        index |= (uint64_t)(byte >> bit % 8 & 1) << b;
    }
    for (int p = 0; p < at->planes; p++)
        index |= (uint64_t)code[at->plane + p * at->k + i] << (at->rest + 8 * p);
    return index;
}

AIOPS_CLONES static inline ptrdiff_t aiops_count_bits(const uint8_t *at, ptrdiff_t words)
{
    ptrdiff_t ones = 0;
    for (ptrdiff_t w = 0; w < words; w++)
        ones += aiops_ones(aiops_load64(at + 8 * w));
    return ones;
}

/* Whether what follows the bitmap's last bit, the last packed group and the code's end is zero, so
 * that no two codes stand for the same positions. */
static inline int aiops_index_padded(const aiops_index_layout *at, const uint8_t *code)
{
    const int last_word = at->bits % AIOPS_WORD, last_packed = at->k % 8 * at->rest;
    ptrdiff_t byte = at->plane + at->planes * at->k;
    if (last_word && aiops_load64(code + 8 * (at->words - 1)) >> last_word)
        return 0;
    for (; byte < at->size; byte++)
        if (code[byte])
            return 0;
    for (int bit = last_packed; last_packed && bit < 8 * at->rest; bit++)
        if (code[at->plane - at->rest + bit / 8] >> bit % 8 & 1)
            return 0;
    return 1;
}

/* AIOPS_INDEX_FINE, or what is wrong: the number of the first position that is n or more, or one
 * of the codes above. The bitmap has (n - 1) >> low zeros when it has k ones, so only positions
 * above its last zero can reach n. */
static inline ptrdiff_t aiops_index_outside(const aiops_index_layout *at, const uint8_t *code)
{
    ptrdiff_t bit = at->bits, first = at->k;
    if (at->k == 0)
        return AIOPS_INDEX_FINE;
    if (aiops_count_bits(code, at->words) != at->k)
        return AIOPS_INDEX_COUNT;
    if (!aiops_index_padded(at, code))
        return AIOPS_INDEX_PADDING;
    for (; bit > 0 && code[(bit - 1) / 8] >> (bit - 1) % 8 & 1; bit--)
        first--;
    for (; first < at->k; first++)
        if (aiops_index_last(at, code, first) >= (uint64_t)at->n)
            return first;
    return AIOPS_INDEX_FINE;
}

/* As aiops_first_not_above(). */
static inline ptrdiff_t
aiops_index_fall(int level, const uint32_t *index, ptrdiff_t count, int64_t before)
{
#if AIOPS_X86
    if (aiops_has_vbmi2(level) && count && count % 16 == 0
        && aiops_ascends_vbmi2(index, count, before))
        return -1;
#endif
    (void)level;
    return aiops_first_not_above(index, count, before);
}

/* Writes all k positions where `index` is not NULL, and returns what is wrong: as
 * aiops_index_outside(), before anything is written, or the number of the first position that is
 * not above the one before it. */
static inline ptrdiff_t aiops_index_decode(int level, const aiops_index_layout *at,
                                           const uint8_t *code, uint32_t *index)
{
    aiops_index_reader from;
    uint32_t block[AIOPS_INDEX_ROOM];
    int64_t before = -1;
    const ptrdiff_t wrong = aiops_index_outside(at, code);
    if (wrong != AIOPS_INDEX_FINE)
        return wrong;
    aiops_index_open(&from, at, code);
    for (ptrdiff_t i = 0; i < at->k;) {
        uint32_t *const to = index ? index + i : block;
        const ptrdiff_t count = aiops_index_next(level, &from, to);
        const ptrdiff_t fall = aiops_index_fall(level, to, count, before);
        if (fall >= 0)
            return i + fall;
        before = to[count - 1];
        if (!index)
            memmove(block, block + count, AIOPS_WORD * sizeof *block);
        i += count;
    }
    return AIOPS_INDEX_FINE;
}
#endif
