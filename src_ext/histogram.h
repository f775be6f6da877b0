/* How many values of each magnitude there are, and how much energy they hold.
 *
 * A bucket is the exponent and four bits of the mantissa, so buckets ascend with the magnitude and
 * each is 3 to 6 % wide. A square and a count are added at once, as two doubles in a register.
 * Neighbours often meet in one bucket, where an addition waits for the one before, through memory:
 * the value at position i is therefore added to lane i % 4, each a histogram of its own. One lane
 * took 47 ms for 25e6 normal values, two 20, four and eight 10 to 20 (EPYC); for equal ones one
 * took 150, four 25. The lanes are added in pairs, so the sums are the same bits everywhere.
 */
#ifndef AIOPS_HISTOGRAM_H
#define AIOPS_HISTOGRAM_H

#include "simd.h"

enum {
    AIOPS_ENERGY_SHIFT = 19,
    AIOPS_ENERGY_BUCKETS = 4096,
    AIOPS_ENERGY_LANES = 4,
    /* Where NaN and infinity are counted. */
    AIOPS_ENERGY_FINITE = 0x7f800000 >> AIOPS_ENERGY_SHIFT,
};

/* Doubles count exactly as far as memory reaches. */
typedef struct {
    double energy, count;
} aiops_energy_cell;

typedef aiops_energy_cell aiops_energy_lane[AIOPS_ENERGY_BUCKETS];

/* Of each stretch of `every` blocks one is looked at. */
typedef struct {
    const float *x;
    ptrdiff_t n, block, every;
    uint64_t seed;
} aiops_energy_sample;

/* Number `count` of the numbers that a seed stands for (Steele et al., 2014). */
static inline uint64_t aiops_split_mix(uint64_t seed, uint64_t count)
{
    uint64_t z = seed + (count + 1) * 0x9E3779B97F4A7C15u;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return z ^ z >> 31;
}

/* Where the block of the stretch that begins at `at` begins; the last stretch may be short. */
static inline ptrdiff_t aiops_energy_place(const aiops_energy_sample *of, ptrdiff_t at)
{
    const ptrdiff_t left = (of->n - at - 1) / of->block + 1;
    const ptrdiff_t blocks = left < of->every ? left : of->every;
    const uint64_t stretch = (uint64_t)(at / (of->block * of->every));
    const uint64_t random = aiops_split_mix(of->seed, stretch) >> 32;
    return at + (ptrdiff_t)(random * (uint64_t)blocks >> 32) * of->block;
}

static inline ptrdiff_t aiops_energy_end(const aiops_energy_sample *of, ptrdiff_t place)
{
    return of->n - place < of->block ? of->n : place + of->block;
}

AIOPS_INLINE void aiops_energy_add(aiops_energy_lane lane, float x)
{
    aiops_energy_cell *const cell = &lane[aiops_magnitude(x) >> AIOPS_ENERGY_SHIFT];
    const double wide = x;
    cell->energy += wide * wide;
    cell->count += 1;
}

/* Adds what lies between two positions. */
static inline void
aiops_energy_count(const float *x, ptrdiff_t i, ptrdiff_t end, aiops_energy_lane *lane)
{
    for (; i < end && i % AIOPS_ENERGY_LANES; i++)
        aiops_energy_add(lane[i % AIOPS_ENERGY_LANES], x[i]);
    for (; i + AIOPS_ENERGY_LANES <= end; i += AIOPS_ENERGY_LANES)
        for (int j = 0; j < AIOPS_ENERGY_LANES; j++)
            aiops_energy_add(lane[j], x[i + j]);
    for (; i < end; i++)
        aiops_energy_add(lane[i % AIOPS_ENERGY_LANES], x[i]);
}

/* Position of the first NaN or infinity that is looked at; there must be one. */
static inline ptrdiff_t aiops_energy_first_nonfinite(const aiops_energy_sample *of)
{
    ptrdiff_t at = 0, bad;
    for (;; at += of->block * of->every) {
        const ptrdiff_t place = aiops_energy_place(of, at);
        bad = aiops_first_nonfinite(of->x + place, aiops_energy_end(of, place) - place);
        if (bad >= 0)
            return place + bad;
    }
}

/* Writes counts and energies of the buckets. `lane` holds AIOPS_ENERGY_LANES, cleared. Returns -1,
 * or the position of the first NaN or infinity that is looked at; nothing is written then. */
static inline ptrdiff_t aiops_energy_histogram(const aiops_energy_sample *of,
                                               aiops_energy_lane *lane, int64_t *counts,
                                               double *energies)
{
    for (ptrdiff_t at = 0; at < of->n; at += of->block * of->every) {
        const ptrdiff_t place = aiops_energy_place(of, at);
        aiops_energy_count(of->x, place, aiops_energy_end(of, place), lane);
    }
    for (int j = 0; j < AIOPS_ENERGY_LANES; j++)
        for (int b = AIOPS_ENERGY_FINITE; b < AIOPS_ENERGY_BUCKETS; b++)
            if (lane[j][b].count > 0)
                return aiops_energy_first_nonfinite(of);
    for (int b = 0; b < AIOPS_ENERGY_BUCKETS; b++) {
        const aiops_energy_cell a = lane[0][b], c = lane[1][b], d = lane[2][b], e = lane[3][b];
        counts[b] = (int64_t)(a.count + c.count + d.count + e.count);
        energies[b] = (a.energy + c.energy) + (d.energy + e.energy);
    }
    return -1;
}

#endif
