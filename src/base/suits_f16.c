/*
 * suits_f16.c - whether f16 operands of a product hold a weight.
 */
#include <assert.h>
#include <math.h>
#include <string.h>

#include "base/checked.h"
#include "base/dtype.h"
#include "base/half.h"

/* Magnitudes of IEEE numbers are in the order of their bits: one bound for each size of word. */
enum { MASK_16 = 0x7fff };
static const uint32_t mask_32 = 0x7fffffff;

/* The largest magnitude that f16 holds well. The smallest is such that the steps of f16's subnormal
 * numbers are 2^-12 of it. */
static const double most = 32768, least = 1.0 / 4096;

typedef struct row_of {
    weight_format format;
    const uint32_t *data, *scales;
    uint64_t k, stride, row;
} row_of;

static uint32_t larger(uint32_t a, uint32_t b)
{
    return a > b ? a : b;
}

static double f32_of(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return (double)value;
}

/* The largest of the stored floats. */
static double plain_bound(const row_of *r)
{
    const bool wide = r->format.layout == LAYOUT_F32;
    const uint64_t words = wide ? 32 : 16;
    uint32_t even = 0, odd = 0;
    for (uint64_t kb = 0; kb < ceil_div(r->k, WEIGHT_BLOCK); kb++) {
        const uint32_t *entry = r->data + (kb * r->stride + r->row) * words;
        for (uint64_t i = 0; i < words; i++) {
            even = larger(even, entry[i] & (wide ? mask_32 : MASK_16));
            odd = larger(odd, entry[i] >> 16 & MASK_16);
        }
    }
    if (wide)
        return f32_of(even);
    const uint32_t half = larger(even, odd);
    return r->format.layout == LAYOUT_BF16 ? f32_of(half << 16)
                                           : (double)f16_to_f32((uint16_t)half);
}

static uint32_t half_at(const uint32_t *table, uint64_t at)
{
    return table[at / 2] >> (at % 2 * 16) & 0xffff;
}

/* What no scale times a stored number (`top` of them) passes, and no minimum beside it. */
static double group_bound(const row_of *r, double top)
{
    uint32_t scale = 0, minimum = 0;
    for (uint64_t line = 0; line < ceil_div(r->k, r->format.group); line++) {
        const uint64_t at = line * r->stride + r->row;
        if (r->format.scale == SCALE_F16) {
            scale = larger(scale, half_at(r->scales, at) & MASK_16);
        } else if (r->format.scale == SCALE_F32) {
            scale = larger(scale, r->scales[at] & mask_32);
        } else {
            scale = larger(scale, r->scales[at] & MASK_16);
            minimum = larger(minimum, r->scales[at] >> 16 & MASK_16);
        }
    }
    const double value =
        r->format.scale == SCALE_F32 ? f32_of(scale) : (double)f16_to_f32((uint16_t)scale);
    return value * top + (double)f16_to_f32((uint16_t)minimum);
}

static double k_bound(const row_of *r, double top)
{
    const uint32_t *entries = r->scales + r->k / SCALE_K_BLOCK * r->stride;
    const bool minimums = r->format.scale == SCALE_K_MIN, words = minimums && r->format.group == 16;
    double bound = 0;
    for (uint64_t kb = 0; kb < r->k / WEIGHT_BLOCK; kb++) {
        const uint64_t at = kb * r->stride + r->row;
        const uint32_t factors = r->scales[kb / 8 * r->stride + r->row];
        const double d = fabs((double)f16_to_f32((uint16_t)(factors & 0xffff)));
        const double d_min = fabs((double)f16_to_f32((uint16_t)(factors >> 16)));
        const uint32_t entry = words ? entries[at] : half_at(entries, at);
        for (uint32_t byte = 0; byte < (words ? 4u : 2u); byte += minimums ? 2 : 1) {
            const uint8_t s = (uint8_t)(entry >> (8 * byte));
            const double scale = minimums ? s : fabs((double)(int8_t)s);
            const double minimum = minimums ? (uint8_t)(entry >> (8 * byte + 8)) : 0;
            bound = fmax(bound, d * scale * top + d_min * minimum);
        }
    }
    return bound;
}

static double bound_of(const row_of *r)
{
    static const double tops[LAYOUT_COUNT] = {
        [LAYOUT_Q8] = 128, [LAYOUT_Q4] = 8, [LAYOUT_Q5] = 16, [LAYOUT_Q6] = 32};
    const scale_kind scale = r->format.scale;
    if (scale == SCALE_NONE)
        return plain_bound(r);
    const bool minimums = scale == SCALE_F16_MIN || scale == SCALE_K_MIN;
    const double top = tops[r->format.layout] * (minimums ? 2 : 1);
    return scale == SCALE_K || scale == SCALE_K_MIN ? k_bound(r, top) : group_bound(r, top);
}

bool weight_suits_f16(weight_format format, uint64_t k, weight_planes planes, uint64_t stride,
                      uint64_t first, uint64_t count, double *largest)
{
    row_of r = {format, planes.plane[WEIGHT_DATA], planes.plane[WEIGHT_SCALES], k, stride, 0};
    assert(first + count <= stride);
    for (r.row = first; r.row < first + count; r.row++) {
        const double bound = bound_of(&r);
        if (bound != 0 && !(bound >= least && bound <= most))
            return false;
        *largest = fmax(*largest, bound);
    }
    return true;
}
