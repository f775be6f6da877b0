/* An index code by whole lines, with AVX-512 VBMI2: 64 positions are encoded at a time, a word of
 * the bitmap is decoded at a time. index.h includes it and does what it leaves.
 *
 * When encoding, eight positions that follow each other become one word of bits: a lane for each
 * eight, a shift for each position. Where such words meet they share one byte at most, as eight
 * positions fill at least eight bits, so each needs what its predecessor alone has put there, and
 * no store waits for another one. Bits that go through marks, a byte each, cost a store for each
 * position, and a store takes two cycles: 0.61 ns a position in all, and 0.30 this way (Zen 4).
 */
#ifndef AIOPS_INDEX_LINES_H
#define AIOPS_INDEX_LINES_H

enum {
    AIOPS_LINE_POSITIONS = 64,
    /* Bits from the first of eight positions to the last; seven more stand before the first. */
    AIOPS_EIGHT_SPAN = 56
};

#if AIOPS_X86

/* Sixteen positions: the distance of each one's bit from that of the first of its eight, and
 * `rest` low bits; what does not fit a byte becomes 255. */
AIOPS_TARGET_VBMI2 AIOPS_INLINE void
aiops_index_cut_sixteen(__m512i position, __m128i low, uint32_t mask, __m128i *distance,
                        __m128i *rest)
{
    const __m512i eight = _mm512_setr_epi32(0, 0, 0, 0, 0, 0, 0, 0, 8, 8, 8, 8, 8, 8, 8, 8);
    const __m512i number = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 0, 1, 2, 3, 4, 5, 6, 7);
    const __m512i high = _mm512_srl_epi32(position, low);
    const __m512i gap = _mm512_sub_epi32(high, _mm512_permutexvar_epi32(eight, high));
    *distance = _mm512_cvtusepi32_epi8(_mm512_add_epi32(gap, number));
    *rest = _mm512_cvtepi32_epi8(_mm512_and_si512(position, _mm512_set1_epi32((int)mask)));
}

AIOPS_TARGET_VBMI2 AIOPS_INLINE __m512i
aiops_join_lines(__m128i a, __m128i b, __m128i c, __m128i d)
{
    const __m256i low = _mm256_inserti128_si256(_mm256_castsi128_si256(a), b, 1);
    const __m256i high = _mm256_inserti128_si256(_mm256_castsi128_si256(c), d, 1);
    return _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
}

/* In each 64 bits, bit `distance` for each of eight bytes. */
AIOPS_TARGET_VBMI2 AIOPS_INLINE __m512i aiops_bits_of_eight(__m512i distance)
{
    const __m512i one = _mm512_set1_epi64(1);
    __m512i pick = _mm512_set4_epi32(-1, -248, -1, -256), word = _mm512_setzero_si512();
    for (int j = 0; j < 8; j++) {
        word = _mm512_or_si512(
            word, _mm512_sllv_epi64(one, _mm512_shuffle_epi8(distance, pick)));
        pick = _mm512_add_epi64(pick, one);
    }
    return word;
}

/* Low bits of 64 positions, eight to `rest` bytes. */
typedef struct {
    __m512i pair, four, order;
    __m128i eight;
    __mmask64 some;
} aiops_packing;

AIOPS_TARGET_VBMI2 AIOPS_INLINE aiops_packing aiops_packing_of(int rest)
{
    aiops_packing pack;
    uint8_t order[64] = {0}, *next = order;
    for (int eight = 0; eight < 64; eight += 8)
        for (int byte = 0; byte < rest; byte++)
            *next++ = (uint8_t)(eight + byte);
    pack.pair = _mm512_set1_epi16((short)(1 | 256 << rest));
    pack.four = _mm512_set1_epi32(1 | 1 << (16 + 2 * rest));
    pack.eight = _mm_cvtsi32_si128(4 * rest);
    pack.order = _mm512_loadu_si512(order);
    pack.some = ((uint64_t)1 << (8 * rest)) - 1;
    return pack;
}

AIOPS_TARGET_VBMI2 AIOPS_INLINE void
aiops_pack_line(const aiops_packing *pack, __m512i low, uint8_t *to, ptrdiff_t room)
{
    const __m512i four =
        _mm512_madd_epi16(_mm512_maddubs_epi16(pack->pair, low), pack->four);
    const __m512i upper = _mm512_sll_epi64(_mm512_srli_epi64(four, 32), pack->eight);
    const __m512i eight = _mm512_or_si512(
        _mm512_and_si512(four, _mm512_set1_epi64(0xffffffff)), upper);
    const __m512i packed = _mm512_permutexvar_epi8(pack->order, eight);
    if (room >= 64)
        _mm512_storeu_si512(to, packed);
    else
        _mm512_mask_storeu_epi8(to, pack->some, packed);
}

/* Stops where positions do not ascend below n or are too far apart, at the end of the bitmap, whose
 * last words take no whole store, and before less than a whole line. */
AIOPS_TARGET_VBMI2 static ptrdiff_t
aiops_index_encode_vbmi2(const aiops_index_layout *given, const uint32_t *index, ptrdiff_t first,
                         uint8_t *code)
{
    /* A copy that no store can change stays in registers. */
    const aiops_index_layout layout = *given, *const at = &layout;
    const aiops_packing pack = aiops_packing_of(at->rest);
    const uint32_t mask = (1u << at->rest) - 1;
    const __m512i eighth = _mm512_setr_epi32(0, 8, 16, 24, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0);
    const __m512i starts = _mm512_setr_epi64(0, 8, 16, 24, 32, 40, 48, 56);
    const __m512i widest = _mm512_set1_epi64((long long)(AIOPS_EIGHT_SPAN + 1) << 56);
    const __m128i low = _mm_cvtsi32_si128(at->low);
    ptrdiff_t i = first;
    __m512i tail = _mm512_set1_epi32(i ? (int)index[i - 1] : 0);
    for (; i + AIOPS_LINE_POSITIONS <= at->k; i += AIOPS_LINE_POSITIONS) {
        const uint32_t *const line = index + i, last = line[AIOPS_LINE_POSITIONS - 1];
        __m512i position[4];
        __m128i distance[4], rest[4];
        /* Nothing is below the very first position. */
        __mmask16 fall = 0, known = i ? 0xffff : 0xfffe;
        for (int j = 0; j < 4; j++) {
            position[j] = _mm512_loadu_si512(line + 16 * j);
            const __m512i before = _mm512_alignr_epi32(position[j], tail, 15);
            fall = _kor_mask16(fall, _mm512_mask_cmple_epu32_mask(known, position[j], before));
            known = 0xffff;
            aiops_index_cut_sixteen(position[j], low, mask, distance + j, rest + j);
            tail = position[j];
        }
        const __m512i distances =
            aiops_join_lines(distance[0], distance[1], distance[2], distance[3]);
        /* The first of each eight. */
        const __m512i some = _mm512_permutex2var_epi32(position[0], eighth, position[1]);
        const __m512i more = _mm512_permutex2var_epi32(position[2], eighth, position[3]);
        const __m512i eights = _mm512_cvtepu32_epi64(_mm256_inserti128_si256(
            _mm512_castsi512_si256(some), _mm512_castsi512_si128(more), 1));
        const __m512i highs = _mm512_srl_epi64(eights, low);
        const __m512i bit = _mm512_add_epi64(
            _mm512_add_epi64(highs, starts), _mm512_set1_epi64((long long)i));
        const __m512i byte = _mm512_srli_epi64(bit, 3);
        uint64_t to[8], words[8];
        _mm512_storeu_si512(to, byte);
        if (fall || last >= (uint64_t)at->n || to[7] + 8 > (uint64_t)at->packed
            || _mm512_cmpge_epu64_mask(distances, widest))
            break;
        const __m512i word = _mm512_sllv_epi64(
            aiops_bits_of_eight(distances), _mm512_and_si512(bit, _mm512_set1_epi64(7)));
        const __m512i moved = _mm512_slli_epi64(
            _mm512_sub_epi64(_mm512_alignr_epi64(byte, byte, 1), byte), 3);
        const __m512i carried = _mm512_srlv_epi64(word, moved);
        _mm512_storeu_si512(words, _mm512_or_si512(
            word, _mm512_maskz_permutexvar_epi64(0xfe, _mm512_setr_epi64(0, 0, 1, 2, 3, 4, 5, 6),
                                                 carried)));
        words[0] |= code[to[0]];
        for (int j = 0; j < 8; j++)
            aiops_store64(code + to[j], words[j]);
        if (at->rest) {
            const ptrdiff_t packed = at->packed + i / 8 * at->rest;
            aiops_pack_line(&pack, aiops_join_lines(rest[0], rest[1], rest[2], rest[3]),
                            code + packed, at->plane - packed);
        }
        for (int p = 0; p < at->planes; p++) {
            const __m128i shift = _mm_cvtsi32_si128(at->rest + 8 * p);
            uint8_t *const plane = code + at->plane + p * at->k + i;
            for (int j = 0; j < 4; j++)
                _mm_storeu_si128(
                    (__m128i *)(plane + 16 * j),
                    _mm512_cvtepi32_epi8(_mm512_srl_epi32(position[j], shift)));
        }
    }
    return i - first;
}

/* Sixteen positions from the numbers of their words' zeros and their low bits. */
AIOPS_TARGET_VBMI2 AIOPS_INLINE void
aiops_make_sixteen(const aiops_index_layout *at, __m512i base, __m128i zeros, const uint8_t *low,
                   const uint8_t *plane, uint32_t *to)
{
    const __m512i high = _mm512_add_epi32(base, _mm512_cvtepu8_epi32(zeros));
    __m512i position = _mm512_or_si512(
        _mm512_sll_epi32(high, _mm_cvtsi32_si128(at->low)),
        _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)low)));
    for (int p = 0; p < at->planes; p++, plane += at->k) {
        const __m512i part = _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)plane));
        position = _mm512_or_si512(
            position, _mm512_sll_epi32(part, _mm_cvtsi32_si128(at->rest + 8 * p)));
    }
    _mm512_storeu_si512(to, position);
}

/* As aiops_index_next, while enough is left that whole registers may be read and written. What is
 * made beyond the block is where the next call wants it, so nothing is read that has just been
 * written: to copy it took as long as to make it, as loads waited for stores that they straddle. */
AIOPS_TARGET_VBMI2 static ptrdiff_t
aiops_index_next_vbmi2(aiops_index_reader *from, uint32_t *index)
{
    const aiops_index_layout layout = *from->at, *const at = &layout;
    const ptrdiff_t first = from->first;
    const uint8_t *const low = from->low, *const code = from->code;
    const uint8_t *const plane = code + at->plane + first;
    ptrdiff_t ready = from->ready, word = from->word;
    if (at->rest) {
        const ptrdiff_t groups = (AIOPS_INDEX_BLOCK + AIOPS_WORD - from->unpacked) / 8;
        aiops_unpack_vbmi2(code + at->packed + (first + from->unpacked) / 8 * at->rest,
                           from->low + from->unpacked, at->rest, groups);
    }
    uint8_t count_up[AIOPS_WORD];
    for (int j = 0; j < AIOPS_WORD; j++)
        count_up[j] = (uint8_t)j;
    const __m512i step = _mm512_loadu_si512(count_up);
    for (; ready < AIOPS_INDEX_BLOCK; word++) {
        const uint64_t bits = aiops_load64(code + 8 * word);
        const int ones = aiops_ones(bits);
        /* What lies beyond the ones is overwritten by the next word. */
        const __m512i zeros = _mm512_sub_epi8(_mm512_maskz_compress_epi8(bits, step), step);
        const __m512i base = _mm512_set1_epi32((int)(AIOPS_WORD * word - first - ready));
        aiops_make_sixteen(at, base, _mm512_castsi512_si128(zeros), low + ready, plane + ready,
                           index + ready);
        aiops_make_sixteen(at, base, _mm512_extracti32x4_epi32(zeros, 1), low + ready + 16,
                           plane + ready + 16, index + ready + 16);
        if (ones > 32) {
            aiops_make_sixteen(at, base, _mm512_extracti32x4_epi32(zeros, 2), low + ready + 32,
                               plane + ready + 32, index + ready + 32);
            aiops_make_sixteen(at, base, _mm512_extracti32x4_epi32(zeros, 3), low + ready + 48,
                               plane + ready + 48, index + ready + 48);
        }
        ready += ones;
    }
    memcpy(from->low, low + AIOPS_INDEX_BLOCK, AIOPS_WORD);
    from->unpacked = AIOPS_WORD;
    from->ready = ready - AIOPS_INDEX_BLOCK;
    from->word = word;
    from->first = first + AIOPS_INDEX_BLOCK;
    return AIOPS_INDEX_BLOCK;
}

/* Whether each of `count` positions, a multiple of 16, is above the one before it. */
AIOPS_TARGET_VBMI2 static int
aiops_ascends_vbmi2(const uint32_t *index, ptrdiff_t count, int64_t before)
{
    const __m512i first = _mm512_loadu_si512(index);
    __m512i tail = _mm512_alignr_epi32(first, _mm512_set1_epi32((int)before), 15);
    /* Nothing is below the very first position. */
    __mmask16 fall = _mm512_mask_cmple_epu32_mask(before < 0 ? 0xfffe : 0xffff, first, tail);
    tail = first;
    for (ptrdiff_t i = 16; i < count; i += 16) {
        const __m512i position = _mm512_loadu_si512(index + i);
        const __m512i below = _mm512_alignr_epi32(position, tail, 15);
        fall = _kor_mask16(fall, _mm512_cmple_epu32_mask(position, below));
        tail = position;
    }
    return !fall;
}
#endif
#endif
