/* What the memory allows, and a plain byte code, compiled for the machine that is measured. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Looks once at every value. */
uint32_t read_pass(const float *x, ptrdiff_t n)
{
    uint32_t seen = 0, bits;
    for (ptrdiff_t i = 0; i < n; i++) {
        memcpy(&bits, x + i, sizeof bits);
        seen |= bits;
    }
    return seen;
}

typedef float lane __attribute__((vector_size(64), aligned(4), may_alias));

/* Reads some vectors and writes others, which may be among them, with an addition for each value that is read. Writes
 * go through the caches. */
void stream(float *const *to, int n_to, const float *const *from, int n_from, ptrdiff_t n)
{
    enum { LANE = sizeof(lane) / sizeof(float), LANES = 4 };
    ptrdiff_t at = 0;
    for (; at + LANES * LANE <= n; at += LANES * LANE) {
        lane sum[LANES] = {{0}};
        for (int v = 0; v < n_from; v++)
            for (int j = 0; j < LANES; j++)
                sum[j] += *(const lane *)(from[v] + at + j * LANE);
        for (int v = 0; v < n_to; v++)
            for (int j = 0; j < LANES; j++)
                *(lane *)(to[v] + at + j * LANE) = sum[j];
    }
    for (; at < n; at++) {
        float sum = 0;
        for (int v = 0; v < n_from; v++)
            sum += from[v][at];
        for (int v = 0; v < n_to; v++)
            to[v][at] = sum;
    }
}

/* Gaps of ascending positions, seven bits to a byte; returns the number of bytes. */
ptrdiff_t varint_encode(const uint32_t *index, ptrdiff_t k, uint8_t *out)
{
    uint8_t *const start = out;
    uint32_t last = 0;
    for (ptrdiff_t i = 0; i < k; i++) {
        uint32_t gap = index[i] - last;
        last = index[i];
        for (; gap >= 128; gap >>= 7)
            *out++ = (uint8_t)(gap | 128);
        *out++ = (uint8_t)gap;
    }
    return out - start;
}

void varint_decode(const uint8_t *code, ptrdiff_t k, uint32_t *index)
{
    uint32_t last = 0;
    for (ptrdiff_t i = 0; i < k; i++) {
        uint32_t gap = *code & 127;
        for (int shift = 7; *code++ & 128; shift += 7)
            gap |= (uint32_t)(*code & 127) << shift;
        index[i] = last += gap;
    }
}
