/* The passes over memory that exact top-k selection is made of: collect candidates, take the
 * winners, and, where there is no room for candidates, count.
 *
 * All look at blocks of 64 values through a mask of those that matter (block.h), and are inlined
 * into one set of functions for each instruction set.
 */
#ifndef AIOPS_TOPK_H
#define AIOPS_TOPK_H

#include "block.h"
#include "rank.h"

enum {
    /* Blocks are scanned so many at a time, which keeps them in the first-level cache. */
    AIOPS_CHUNK = 64 * AIOPS_BLOCK,
    /* A sample takes whole cache lines. */
    AIOPS_LINE = 16,
    /* Three vectors of so many values leave nothing of use in the cache. */
    AIOPS_SMALLEST_PAST = 1 << 22,
};

/* A walk over x that collects candidates. */
typedef struct {
    const float *x;
    ptrdiff_t n, at;
    uint32_t low;   /* what a magnitude must reach to become a candidate */
    uint32_t least; /* what those there are have reached */
    uint32_t *index;
    float *value;
    ptrdiff_t some, room; /* candidates there are, and may be */
    int rare;             /* whether most blocks have none */
} aiops_scan;

/* What a scan does besides in an error-feedback step: out = x + update. */
typedef struct {
    const float *update;
    float *out;
    uint32_t sure;              /* magnitudes from here on are zero in `out` */
    ptrdiff_t phase;            /* the first position that is squared into energy[0] */
    double energy[AIOPS_BLOCK]; /* of every 64th position, added in order */
} aiops_feedback;

/* How many values have a magnitude of at least `low`, of at least `high`, and none. */
typedef struct {
    ptrdiff_t low, high, nonfinite;
} aiops_tally;

/* Values one by one: where a block is not whole. */
static void aiops_scan_singly(aiops_scan *scan, aiops_feedback *step, ptrdiff_t count)
{
    for (const ptrdiff_t end = scan->at + count; scan->at < end; scan->at++) {
        float x = scan->x[scan->at];
        if (step)
            x += step->update[scan->at];
        const uint32_t key = aiops_magnitude(x);
        if (key >= scan->low) {
            scan->index[scan->some] = (uint32_t)scan->at;
            scan->value[scan->some++] = x;
        }
        if (step) {
            step->energy[(scan->at - step->phase) & (AIOPS_BLOCK - 1)] += (double)x * (double)x;
            step->out[scan->at] = key >= step->sure ? 0.0f : x;
        }
    }
}

/* Collects candidates from `at` on, until all of x is seen or fewer than a chunk may fit. Where
 * most blocks have none (`rare`) those that have are listed first: at one candidate in a hundred
 * values a branch is guessed wrong in half of the blocks. Elsewhere every block is emitted, which
 * takes no branch at all. */
AIOPS_INLINE void aiops_scan_by(aiops_mask *mask, aiops_emit *emit, aiops_scan *scan, int rare)
{
    while (scan->at < scan->n && scan->room - scan->some >= AIOPS_CHUNK + AIOPS_SPILL) {
        const ptrdiff_t left = (scan->n - scan->at) / AIOPS_BLOCK;
        const int blocks = left < AIOPS_CHUNK / AIOPS_BLOCK ? (int)left : AIOPS_CHUNK / AIOPS_BLOCK;
        const float *x = scan->x + scan->at;
        const uint32_t at = (uint32_t)scan->at, low = scan->low;
        ptrdiff_t some = scan->some;
        if (rare) {
            uint64_t hit[AIOPS_CHUNK / AIOPS_BLOCK], any = 0;
            for (int b = 0; b < blocks; b++) {
                hit[b] = mask(x + b * AIOPS_BLOCK, low);
                any |= (uint64_t)(hit[b] != 0) << b;
            }
            for (; any; any &= any - 1) {
                const int b = aiops_lowest(any);
                aiops_emit_pair(x + b * AIOPS_BLOCK, at + (uint32_t)(b * AIOPS_BLOCK), hit[b],
                                scan->index + some, scan->value + some);
                some += aiops_ones(hit[b]);
            }
        } else {
            for (int b = 0; b < blocks; b++) {
                const uint64_t hit = mask(x + b * AIOPS_BLOCK, low);
                emit(x + b * AIOPS_BLOCK, NULL, at + (uint32_t)(b * AIOPS_BLOCK), hit,
                     scan->index + some, scan->value + some);
                some += aiops_ones(hit);
            }
        }
        scan->some = some;
        scan->at += blocks * AIOPS_BLOCK;
        if (blocks < AIOPS_CHUNK / AIOPS_BLOCK)
            aiops_scan_singly(scan, NULL, scan->n - scan->at);
    }
}

/* Whole blocks of an error-feedback step. Each place of a block has an energy of its own: fewer
 * would make a chain of additions that is slower than memory. */
AIOPS_INLINE void
aiops_feed_blocks(aiops_mask *mask, aiops_emit *emit, aiops_scan *scan, aiops_feedback *step,
                  int blocks)
{
    const uint32_t low = scan->low, sure = step->sure;
    for (; blocks > 0; blocks--, scan->at += AIOPS_BLOCK) {
        const float *x = scan->x + scan->at, *update = step->update + scan->at;
        float *out = step->out + scan->at, total[AIOPS_BLOCK];
        for (int j = 0; j < AIOPS_BLOCK; j++) {
            total[j] = x[j] + update[j];
            step->energy[j] += (double)total[j] * (double)total[j];
        }
        const uint64_t hit = mask(total, low);
        emit(total, NULL, (uint32_t)scan->at, hit, scan->index + scan->some,
             scan->value + scan->some);
        scan->some += aiops_ones(hit);
        for (int j = 0; j < AIOPS_BLOCK; j++)
            out[j] = aiops_magnitude(total[j]) >= sure ? 0.0f : total[j];
    }
}

#if AIOPS_X86

/* A quarter of a block: the sum is stored, its squares are added to two energies and it is
 * returned as bits. */
AIOPS_TARGET_AVX512 AIOPS_INLINE __m512i
aiops_feed_quarter(const float *x, const float *update, float *out, uint32_t sure, int past,
                   __m512d *first, __m512d *second)
{
    const __m512 total = _mm512_add_ps(_mm512_loadu_ps(x), _mm512_loadu_ps(update));
    const __m512i bits = _mm512_castps_si512(total);
    const __m512i key = _mm512_and_si512(bits, _mm512_set1_epi32(0x7fffffff));
    const __mmask16 kept =
        sure == AIOPS_NEVER ? 0xffff
                            : _mm512_cmplt_epu32_mask(key, _mm512_set1_epi32((int)sure));
    if (past)
        _mm512_stream_ps(out, _mm512_maskz_mov_ps(kept, total));
    else
        _mm512_storeu_ps(out, _mm512_maskz_mov_ps(kept, total));
    const __m512d a = _mm512_cvtps_pd(_mm512_castps512_ps256(total));
    const __m512d b = _mm512_cvtps_pd(
        _mm256_castsi256_ps(_mm512_extracti64x4_epi64(bits, 1)));
    /* The square of a float is exact in a double, so that one rounding is what two would give. */
    *first = _mm512_fmadd_pd(a, a, *first);
    *second = _mm512_fmadd_pd(b, b, *second);
    return bits;
}

/* One block of sums; see aiops_feed_quarter. */
typedef struct {
    __m512i a, b, c, d;
} aiops_sums;

AIOPS_TARGET_AVX512 AIOPS_INLINE uint64_t aiops_hits_avx512(aiops_sums sums, uint32_t low)
{
    const __m512i magnitude = _mm512_set1_epi32(0x7fffffff), lows = _mm512_set1_epi32((int)low);
    return (uint64_t)_mm512_cmpge_epu32_mask(_mm512_and_si512(sums.a, magnitude), lows)
           | (uint64_t)_mm512_cmpge_epu32_mask(_mm512_and_si512(sums.b, magnitude), lows) << 16
           | (uint64_t)_mm512_cmpge_epu32_mask(_mm512_and_si512(sums.c, magnitude), lows) << 32
           | (uint64_t)_mm512_cmpge_epu32_mask(_mm512_and_si512(sums.d, magnitude), lows) << 48;
}

/* Where candidates are rare and none is set to zero, their blocks are listed as in aiops_scan_by. */
AIOPS_TARGET_AVX512 AIOPS_INLINE void
aiops_feed_blocks_avx512(aiops_scan *scan, aiops_feedback *step, int blocks, int past, int rare)
{
    const uint32_t low = scan->low, sure = rare ? AIOPS_NEVER : step->sure;
    const float *x = scan->x + scan->at, *update = step->update + scan->at;
    float *out = step->out + scan->at;
    uint32_t at = (uint32_t)scan->at;
    ptrdiff_t some = scan->some;
    double *energy = step->energy;
    uint64_t hits[AIOPS_CHUNK / AIOPS_BLOCK], any = 0;
    __m512d e0 = _mm512_loadu_pd(energy), e1 = _mm512_loadu_pd(energy + 8);
    __m512d e2 = _mm512_loadu_pd(energy + 16), e3 = _mm512_loadu_pd(energy + 24);
    __m512d e4 = _mm512_loadu_pd(energy + 32), e5 = _mm512_loadu_pd(energy + 40);
    __m512d e6 = _mm512_loadu_pd(energy + 48), e7 = _mm512_loadu_pd(energy + 56);
    for (int b = 0; b < blocks; b++) {
        const ptrdiff_t i = b * AIOPS_BLOCK;
        const float *from = x + i, *more = update + i;
        float *to = out + i;
        const aiops_sums sums = {
            aiops_feed_quarter(from, more, to, sure, past, &e0, &e1),
            aiops_feed_quarter(from + 16, more + 16, to + 16, sure, past, &e2, &e3),
            aiops_feed_quarter(from + 32, more + 32, to + 32, sure, past, &e4, &e5),
            aiops_feed_quarter(from + 48, more + 48, to + 48, sure, past, &e6, &e7),
        };
        const uint64_t hit = aiops_hits_avx512(sums, low);
        if (rare) {
            hits[b] = hit;
            any |= (uint64_t)(hit != 0) << b;
            continue;
        }
        aiops_emit_few_avx512(sums.a, sums.b, sums.c, sums.d, at + (uint32_t)i, hit,
                              scan->index + some, scan->value + some);
        some += aiops_ones(hit);
    }
    for (; any; any &= any - 1) {
        const int b = aiops_lowest(any);
        aiops_emit_pair(out + b * AIOPS_BLOCK, at + (uint32_t)(b * AIOPS_BLOCK), hits[b],
                        scan->index + some, scan->value + some);
        some += aiops_ones(hits[b]);
    }
    _mm512_storeu_pd(energy, e0);
    _mm512_storeu_pd(energy + 8, e1);
    _mm512_storeu_pd(energy + 16, e2);
    _mm512_storeu_pd(energy + 24, e3);
    _mm512_storeu_pd(energy + 32, e4);
    _mm512_storeu_pd(energy + 40, e5);
    _mm512_storeu_pd(energy + 48, e6);
    _mm512_storeu_pd(energy + 56, e7);
    scan->some = some;
    scan->at += (ptrdiff_t)blocks * AIOPS_BLOCK;
}

#endif

/* Writes every value with |x| >= sure and the first `ties` values with |x| == sure - 1, in order:
 * k of them. Another thread that writes to x can change what is taken, and no memory but this. */
AIOPS_INLINE void
aiops_take_by(aiops_mask *mask, aiops_emit *emit, const float *x, const uint32_t *from,
              ptrdiff_t m, aiops_cut cut, uint32_t *index, float *value, ptrdiff_t k)
{
    ptrdiff_t out = 0, i = 0;
    for (; i + AIOPS_BLOCK <= m && out < k; i += AIOPS_BLOCK) {
        uint64_t hit = mask(x + i, cut.sure);
        if (cut.ties) {
            uint64_t tied = mask(x + i, cut.sure - 1) & ~hit;
            const int ones = aiops_ones(tied);
            if (ones <= cut.ties) {
                hit |= tied;
                cut.ties -= ones;
            } else {
                for (; cut.ties; tied &= tied - 1, cut.ties--)
                    hit |= tied & -tied;
            }
        }
        if (!hit)
            continue;
        const uint32_t *names = from ? from + i : NULL;
        int ones = aiops_ones(hit);
        if (k - out >= AIOPS_BLOCK + AIOPS_SPILL) {
            emit(x + i, names, (uint32_t)i, hit, index + out, value + out);
        } else {
            for (; ones > k - out; ones--)
                hit &= ~((uint64_t)1 << aiops_highest(hit));
            aiops_emit_bits(x + i, names, (uint32_t)i, hit, index + out, value + out);
        }
        out += ones;
    }
    for (; i < m && out < k; i++) {
        const uint32_t key = aiops_magnitude(x[i]);
        if (key < cut.sure && (!cut.ties || key != cut.sure - 1))
            continue;
        cut.ties -= key < cut.sure;
        index[out] = from ? from[i] : (uint32_t)i;
        value[out++] = x[i];
    }
    for (; out < k; out++) {
        index[out] = 0;
        value[out] = 0.0f;
    }
}

AIOPS_INLINE void
aiops_count_one(aiops_histogram *seen, ptrdiff_t table, float x, uint32_t low, int shift)
{
    const uint32_t bucket = (aiops_magnitude(x) - low) >> shift;
    seen->count[bucket & (AIOPS_BUCKETS - 1)][table % AIOPS_TABLES]++;
}

/* Adds every |x| in [low, low + span] to bucket (|x| - low) >> shift. */
AIOPS_INLINE void
aiops_count_by(aiops_mask *mask, const float *x, ptrdiff_t n, uint32_t low, uint32_t span,
               int shift, aiops_histogram *seen)
{
    ptrdiff_t i = 0;
    for (; i + AIOPS_BLOCK <= n; i += AIOPS_BLOCK) {
        uint64_t hit = mask(x + i, low) & ~mask(x + i, low + span + 1);
        /* A tie mass (zeros, a constant, whole numbers) is counted as one number. */
        while (aiops_ones(hit) > AIOPS_BLOCK / 8) {
            const uint32_t tie = aiops_magnitude(x[i + aiops_lowest(hit)]);
            const uint64_t same = mask(x + i, tie) & ~mask(x + i, tie + 1);
            const uint32_t bucket = ((tie - low) >> shift) & (AIOPS_BUCKETS - 1);
            seen->count[bucket][i / AIOPS_BLOCK % AIOPS_TABLES] += (uint32_t)aiops_ones(same);
            hit &= ~same;
            if (aiops_ones(same) < AIOPS_BLOCK / 8)
                break;
        }
        for (; hit; hit &= hit - 1) {
            const int j = aiops_lowest(hit);
            aiops_count_one(seen, j, x[i + j], low, shift);
        }
    }
    for (; i < n; i++)
        if (aiops_magnitude(x[i]) - low <= span)
            aiops_count_one(seen, i, x[i], low, shift);
}

/* Sets to zero out[index[i]] for each |value[i]| < sure: the others are zero already. */
AIOPS_INLINE void
aiops_zero_by(aiops_mask *mask, float *out, const uint32_t *index, const float *value, ptrdiff_t k,
              uint32_t sure)
{
    ptrdiff_t i = 0;
    for (; i + AIOPS_BLOCK <= k; i += AIOPS_BLOCK)
        for (uint64_t left = ~mask(value + i, sure); left; left &= left - 1)
            out[index[i + aiops_lowest(left)]] = 0.0f;
    for (; i < k; i++)
        if (aiops_magnitude(value[i]) < sure)
            out[index[i]] = 0.0f;
}

AIOPS_CLONES static aiops_tally
aiops_tally_of(const float *x, ptrdiff_t n, uint32_t low, uint32_t high)
{
    aiops_tally total = {0, 0, 0};
    for (ptrdiff_t i = 0; i < n; i += 4096) {
        const ptrdiff_t end = n - i < 4096 ? n - i : 4096;
        uint32_t at_low = 0, at_high = 0, nonfinite = 0;
        for (ptrdiff_t j = 0; j < end; j++) {
            const uint32_t key = aiops_magnitude(x[i + j]);
            at_low += key >= low;
            at_high += key >= high;
            nonfinite += key >= AIOPS_INFINITY_BITS;
        }
        total.low += at_low;
        total.high += at_high;
        total.nonfinite += nonfinite;
    }
    return total;
}

/* Magnitudes of `lines` pieces of AIOPS_LINE values, one somewhere in every stride of x (plus
 * update, if there is one). */
static void
aiops_sample(const float *x, const float *update, ptrdiff_t n, ptrdiff_t lines, uint64_t seed,
             uint32_t *key)
{
    const ptrdiff_t stride = n / lines;
    for (ptrdiff_t line = 0; line < lines; line++, key += AIOPS_LINE) {
        /* A linear congruential step: jitter keeps the sample off any period of the data. */
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        const uint64_t jitter = (seed >> 33) * (uint64_t)(stride - AIOPS_LINE + 1) >> 31;
        const float *from = x + line * stride + jitter;
        const float *more = update ? update + line * stride + jitter : NULL;
        for (int j = 0; j < AIOPS_LINE; j++)
            key[j] = aiops_magnitude(more ? from[j] + more[j] : from[j]);
    }
}

/* One set of functions per instruction set, `name` being its suffix. */
#define AIOPS_SET(target, name, emit)                                                            \
    target static void aiops_scan_##name(aiops_scan *scan)                                       \
    {                                                                                            \
        if (scan->rare)                                                                          \
            aiops_scan_by(aiops_mask_##name, emit, scan, 1);                                     \
        else                                                                                     \
            aiops_scan_by(aiops_mask_##name, emit, scan, 0);                                     \
    }                                                                                            \
    target static void aiops_take_##name(const float *x, const uint32_t *from, ptrdiff_t m,      \
                                         aiops_cut cut, uint32_t *index, float *value,           \
                                         ptrdiff_t k)                                            \
    {                                                                                            \
        if (from)                                                                                \
            aiops_take_by(aiops_mask_##name, emit, x, from, m, cut, index, value, k);            \
        else                                                                                     \
            aiops_take_by(aiops_mask_##name, emit, x, NULL, m, cut, index, value, k);            \
    }                                                                                            \
    target static void aiops_count_##name(const float *x, ptrdiff_t n, uint32_t low,             \
                                          uint32_t span, int shift, aiops_histogram *seen)       \
    {                                                                                            \
        aiops_count_by(aiops_mask_##name, x, n, low, span, shift, seen);                         \
    }                                                                                            \
    target static void aiops_zero_##name(float *out, const uint32_t *index, const float *value,  \
                                         ptrdiff_t k, uint32_t sure)                             \
    {                                                                                            \
        aiops_zero_by(aiops_mask_##name, out, index, value, k, sure);                            \
    }

AIOPS_SET(, portable, aiops_emit_bits)
static void aiops_feed_portable(aiops_scan *scan, aiops_feedback *step, int blocks, int past)
{
    (void)past;
    aiops_feed_blocks(aiops_mask_portable, aiops_emit_bits, scan, step, blocks);
}

#if AIOPS_X86
AIOPS_SET(AIOPS_TARGET_AVX2, avx2, aiops_emit_avx2)
AIOPS_SET(AIOPS_TARGET_AVX512, avx512, aiops_emit_avx512)
AIOPS_TARGET_AVX2 static void
aiops_feed_avx2(aiops_scan *scan, aiops_feedback *step, int blocks, int past)
{
    (void)past;
    aiops_feed_blocks(aiops_mask_avx2, aiops_emit_avx2, scan, step, blocks);
}
AIOPS_TARGET_AVX512 static void
aiops_feed_avx512(aiops_scan *scan, aiops_feedback *step, int blocks, int past)
{
    if (past)
        aiops_feed_blocks_avx512(scan, step, blocks, 1, 0);
    else if (scan->rare && step->sure == AIOPS_NEVER)
        aiops_feed_blocks_avx512(scan, step, blocks, 0, 1);
    else
        aiops_feed_blocks_avx512(scan, step, blocks, 0, 0);
}
#  define AIOPS_BY_LEVEL(level, name, ...)                                                       \
      do {                                                                                       \
          if (level == AIOPS_AVX512)                                                             \
              aiops_##name##_avx512(__VA_ARGS__);                                                \
          else if (level == AIOPS_AVX2)                                                          \
              aiops_##name##_avx2(__VA_ARGS__);                                                  \
          else                                                                                   \
              aiops_##name##_portable(__VA_ARGS__);                                              \
      } while (0)
#else
#  define AIOPS_BY_LEVEL(level, name, ...) ((void)level, aiops_##name##_portable(__VA_ARGS__))
#endif

/* The instruction set to use where `level` is wanted, -1 being the best: what is written here for
 * AVX-512 needs its byte compression too. */
static int aiops_topk_level(int level)
{
    if (level < 0)
        level = aiops_simd_level();
#if AIOPS_X86
    if (level == AIOPS_AVX512 && !__builtin_cpu_supports("avx512vbmi2"))
        return AIOPS_AVX2;
#endif
    return level;
}

/* How many values come before the first whole cache line. */
AIOPS_INLINE ptrdiff_t aiops_before_line(const float *x, ptrdiff_t n)
{
    const ptrdiff_t head =
        (ptrdiff_t)((uintptr_t)0 - (uintptr_t)x) / (ptrdiff_t)sizeof *x & (AIOPS_LINE - 1);
    return head < n ? head : n;
}

/* Whole cache lines are read: numpy's large arrays begin 16 bytes into one, and a register that
 * straddles two costs a tenth of the time. */
static void aiops_collect(int level, aiops_scan *scan)
{
    if (scan->at == 0)
        aiops_scan_singly(scan, NULL, aiops_before_line(scan->x, scan->n));
    AIOPS_BY_LEVEL(level, scan, scan);
}

/* The same with an error-feedback step: everything is read once and written once. A large sum in
 * memory of its own is written past the cache, which saves reading `out` before. */
static void aiops_feed(int level, aiops_scan *scan, aiops_feedback *step)
{
    const int past = level == AIOPS_AVX512 && scan->n >= AIOPS_SMALLEST_PAST
                     && step->out != scan->x && step->out != step->update;
    if (scan->at == 0) {
        step->phase = aiops_before_line(step->out, scan->n);
        aiops_scan_singly(scan, step, step->phase);
    }
    while (scan->at < scan->n && scan->room - scan->some >= AIOPS_CHUNK + AIOPS_SPILL) {
        const ptrdiff_t left = (scan->n - scan->at) / AIOPS_BLOCK;
        const int blocks = left < AIOPS_CHUNK / AIOPS_BLOCK ? (int)left : AIOPS_CHUNK / AIOPS_BLOCK;
        AIOPS_BY_LEVEL(level, feed, scan, step, blocks, past);
        if (blocks < AIOPS_CHUNK / AIOPS_BLOCK)
            aiops_scan_singly(scan, step, scan->n - scan->at);
    }
#if AIOPS_X86
    if (past)
        _mm_sfence();
#endif
}

static void
aiops_take(int level, const float *x, const uint32_t *from, ptrdiff_t m, aiops_cut cut,
           uint32_t *index, float *value, ptrdiff_t k)
{
    AIOPS_BY_LEVEL(level, take, x, from, m, cut, index, value, k);
}

static void
aiops_count(int level, const float *x, ptrdiff_t n, uint32_t low, uint32_t span, int shift,
            aiops_histogram *seen)
{
    AIOPS_BY_LEVEL(level, count, x, n, low, span, shift, seen);
}

static void
aiops_zero(int level, float *out, const uint32_t *index, const float *value, ptrdiff_t k,
           uint32_t sure)
{
    AIOPS_BY_LEVEL(level, zero, out, index, value, k, sure);
}

/* Puts back what a guess had set to zero. */
static void
aiops_restore(float *out, const uint32_t *index, const float *value, ptrdiff_t some)
{
    for (ptrdiff_t i = 0; i < some; i++)
        out[index[i]] = value[i];
}

/* The sum of all squares. */
static double aiops_energy(const aiops_feedback *step)
{
    double total = 0;
    for (ptrdiff_t place = 0; place < AIOPS_BLOCK; place++)
        total += step->energy[(place - step->phase) & (AIOPS_BLOCK - 1)];
    return total;
}

AIOPS_CLONES static double aiops_energy_of(const float *x, ptrdiff_t n)
{
    double energy[AIOPS_BLOCK] = {0}, total = 0;
    ptrdiff_t i = 0;
    for (; i + AIOPS_BLOCK <= n; i += AIOPS_BLOCK)
        for (int j = 0; j < AIOPS_BLOCK; j++)
            energy[j] += (double)x[i + j] * (double)x[i + j];
    for (; i < n; i++)
        energy[i % AIOPS_BLOCK] += (double)x[i] * (double)x[i];
    for (int place = 0; place < AIOPS_BLOCK; place++)
        total += energy[place];
    return total;
}

#endif
