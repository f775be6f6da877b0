/* What a selection decides from the passes of topk.h: which values to collect, and which of those
 * collected are the k largest.
 */
#ifndef AIOPS_SELECT_H
#define AIOPS_SELECT_H

#include <stdlib.h>

#include "topk.h"

#if defined(__linux__)
#  include <sys/mman.h>
#endif

enum {
    AIOPS_FEWEST_LINES = 64,
    AIOPS_MOST_LINES = 4096,
    /* Below so many values a sample costs what it saves. */
    AIOPS_SMALLEST_SAMPLED = 2048,
};

/* What a sample says. Some more than k values reach `low`, some fewer `sure`, most likely; the
 * candidates, which reach `low`, are `rare` if most blocks have none. */
typedef struct {
    uint32_t low, sure;
    int rare;
} aiops_aim;

/* A sample of n^(2/3) values: a larger one costs more than the candidates that it spares. */
static ptrdiff_t aiops_lines(ptrdiff_t n)
{
    ptrdiff_t lines = AIOPS_FEWEST_LINES;
    const double due = cbrt((double)n) * cbrt((double)n) / AIOPS_LINE;
    while (lines < AIOPS_MOST_LINES && 1.5 * (double)lines < due)
        lines *= 2;
    return lines;
}

/* Whether candidates are collected: not for so many that the scratch would outgrow x. */
static int aiops_has_room(ptrdiff_t n, ptrdiff_t k)
{
    return n >= AIOPS_SMALLEST_SAMPLED && 0 < k && k <= n / 4;
}

/* How many magnitudes are kept beside the candidates: as many, or two samples, or the share of x
 * that lies between the bounds of a guess at k = n / 2, twice. */
static ptrdiff_t aiops_key_room(ptrdiff_t n, ptrdiff_t room)
{
    const ptrdiff_t sample = aiops_lines(n) * AIOPS_LINE;
    const ptrdiff_t band = (ptrdiff_t)(10 * (double)n / sqrt((double)sample)) + 2 * AIOPS_CHUNK;
    const ptrdiff_t most = 2 * sample > band ? 2 * sample : band;
    return room > most ? room : most;
}

/* For how many candidates there must be room. */
static ptrdiff_t aiops_room(ptrdiff_t n, ptrdiff_t k)
{
    const ptrdiff_t least = 2 * (AIOPS_CHUNK + AIOPS_SPILL);
    if (!aiops_has_room(n, k))
        return least;
    const double due = (double)k / (double)n * (double)(aiops_lines(n) * AIOPS_LINE);
    const double more = 12 * (sqrt(due) + 1) / due;
    const ptrdiff_t room = k + (ptrdiff_t)((double)k * (more > 0.25 ? more : 0.25));
    return (room < n ? room : n) + least;
}

/* Memory for `size` numbers of 32 bits, or NULL; free() takes it back. The first touch of many small
 * pages would take longer than a selection. */
static void *aiops_scratch(ptrdiff_t size)
{
    const size_t bytes = (size_t)size * sizeof(uint32_t);
    char *memory = malloc(bytes);
#if defined(__linux__) && defined(MADV_HUGEPAGE)
    const uintptr_t page = 4096, huge = (uintptr_t)1 << 21;
    if (memory && bytes >= 2 * huge) {
        const uintptr_t begin = ((uintptr_t)memory + page - 1) & ~(page - 1);
        madvise((void *)begin, ((uintptr_t)memory + bytes - begin) & ~(page - 1), MADV_HUGEPAGE);
    }
#endif
    return memory;
}

/* `key` has room for two samples. The lower bound lies five standard deviations of an even sample
 * below k: a pass is lost if fewer reach it. At the second attempt it is 24, as data in clumps may
 * defeat the first, and then there is no guess at all. */
static aiops_aim
aiops_aim_at(int level, const float *x, const float *update, ptrdiff_t n, ptrdiff_t k,
             int attempt, uint32_t *key)
{
    const ptrdiff_t lines = aiops_lines(n), size = lines * AIOPS_LINE;
    const double share = (double)k / (double)n, due = share * (double)size;
    const double deviation = sqrt(due * (1 - share)) + 1;
    const ptrdiff_t more = (ptrdiff_t)(due + (attempt ? 24 : 5) * deviation);
    const ptrdiff_t fewer = (ptrdiff_t)(due - (attempt ? 24 : 4) * deviation);
    aiops_aim aim = {0, AIOPS_NEVER, more * AIOPS_BLOCK < 2 * size};
    if (attempt > 1)
        return aim;
    aiops_sample(x, update, n, lines, 0x9E3779B97F4A7C15u + (uint64_t)attempt, key);
    if (more <= size) {
        const aiops_cut cut =
            aiops_cut_at(level, key, size, more, 0, AIOPS_NEVER - 1, key + size);
        aim.low = cut.sure - (cut.ties > 0);
        /* NaN and infinity must stay candidates. */
        if (aim.low > AIOPS_INFINITY_BITS)
            aim.low = AIOPS_INFINITY_BITS;
    }
    if (fewer > 0) {
        const uint32_t span = AIOPS_NEVER - 1 - aim.low;
        const ptrdiff_t some = aiops_keep(level, key, size, aim.low, span, key);
        aim.sure = aiops_cut_at(level, key, some, fewer, aim.low, span, key).sure;
        if (aim.sure <= aim.low)
            aim.sure = aim.low + 1;
    }
    return aim;
}

/* Takes the k largest of m values, none of which is below `low`; those from `sure` on need no
 * search unless they are too many. The outputs may be the inputs. */
static aiops_cut
aiops_finish(int level, const float *x, const uint32_t *from, ptrdiff_t m, ptrdiff_t k,
             uint32_t low, uint32_t sure, uint32_t *key, uint32_t *index, float *value)
{
    ptrdiff_t band = aiops_keep(level, x, m, low, sure - 1 - low, key), above = m - band;
    aiops_cut cut = {sure, 0};
    if (above > k) {
        low = sure;
        sure = AIOPS_NEVER;
        above = 0;
        band = aiops_keep(level, x, m, low, sure - 1 - low, key);
    }
    if (above < k)
        cut = aiops_cut_at(level, key, band, k - above, low, sure - 1 - low, key);
    aiops_take(level, x, from, m, cut, index, value, k);
    return cut;
}

/* Where the k largest of x end, if that lies in [low, sure) and `above` values lie over it: found
 * in a few passes, with no scratch. */
static aiops_cut
aiops_cut_by_counting(int level, const float *x, ptrdiff_t n, ptrdiff_t k, uint32_t low,
                      uint32_t sure, ptrdiff_t above)
{
    aiops_histogram seen;
    uint32_t span = sure - 1 - low;
    for (int shift = aiops_width(span); shift > 0;) {
        const int width = shift < AIOPS_DIGIT ? shift : AIOPS_DIGIT;
        shift -= width;
        aiops_clear(&seen, width);
        aiops_count(level, x, n, low, span, shift, &seen);
        const uint32_t bucket = aiops_bucket(&seen, width, k, &above);
        low += bucket << shift;
        span = (1u << shift) - 1;
        if (above + aiops_held(&seen, bucket) == k)
            return (aiops_cut){low, 0};
    }
    return (aiops_cut){low + 1, k - above};
}

/* Where the k largest of x end, when that many are not collected: only the magnitudes between the
 * bounds of a guess are, until there is no `room`. *bad is the position of the first value that is
 * not finite, or -1. */
static aiops_cut
aiops_cut_of_all(int level, const float *x, ptrdiff_t n, ptrdiff_t k, uint32_t *key,
                 ptrdiff_t room, ptrdiff_t *bad)
{
    const aiops_aim aim = aiops_aim_at(level, x, NULL, n, k, 0, key);
    const uint32_t span = aim.sure - 1 - aim.low;
    aiops_tally total = {0, 0, 0};
    ptrdiff_t band = 0;
    int whole = 1;
    for (ptrdiff_t i = 0; i < n; i += AIOPS_CHUNK) {
        const ptrdiff_t m = n - i < AIOPS_CHUNK ? n - i : AIOPS_CHUNK;
        const aiops_tally tally = aiops_tally_of(x + i, m, aim.low, aim.sure);
        total.low += tally.low;
        total.high += tally.high;
        total.nonfinite += tally.nonfinite;
        whole = whole && room - band >= m;
        if (whole)
            band += aiops_keep(level, x + i, m, aim.low, span, key + band);
    }
    *bad = total.nonfinite ? aiops_first_nonfinite(x, n) : -1;
    if (*bad >= 0)
        return (aiops_cut){0, 0};
    if (total.high >= k || k > total.low)
        return aiops_cut_by_counting(level, x, n, k, 0, AIOPS_NEVER, 0);
    if (whole && band == total.low - total.high)
        return aiops_cut_at(level, key, band, k - total.high, aim.low, span, key);
    return aiops_cut_by_counting(level, x, n, k, aim.low, aim.sure, total.high);
}

#endif
