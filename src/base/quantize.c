#include "base/quantize.h"

#include <assert.h>
#include <math.h>
#include <stddef.h>
#include <string.h>

#include "base/blocks.h"
#include "base/half.h"

bool quantize_knows(dtype type)
{
    switch (type) {
    case DTYPE_F32:
    case DTYPE_F16:
    case DTYPE_BF16:
    case DTYPE_Q4_0:
    case DTYPE_Q4_1:
    case DTYPE_Q5_0:
    case DTYPE_Q5_1:
    case DTYPE_Q8_0:
    case DTYPE_Q4_K:
    case DTYPE_Q6_K:
        return true;
    default:
        return false;
    }
}

/* ---- blocks of 32 ---------------------------------------------------------------------------- */

/* Numbers of four or five bits as nibbles (element i low, element i + 16 high in byte i) and, for
 * five, the fifth bits. */
static void store_codes(const uint8_t codes[BLOCK_32], uint8_t *nibbles, uint8_t *fifths)
{
    uint32_t high = 0;
    for (uint32_t i = 0; i < BLOCK_32 / 2; i++)
        nibbles[i] = (uint8_t)((codes[i] & 15) | (codes[i + 16] & 15) << 4);
    for (uint32_t i = 0; i < BLOCK_32; i++)
        high |= (codes[i] >> 4 & 1u) << i;
    if (fifths != NULL)
        store_u32(fifths, high);
}

static float inverse(float d)
{
    return d == 0.0f ? 0.0f : 1.0f / d;
}

/* A number cut to 0 .. most; a NaN (0 times an inverse past the largest float) is 0. */
static uint8_t code_of(double q, int most)
{
    return (uint8_t)(!(q > 0.0) ? 0 : q > most ? most : (int)q);
}

/* Q4_0 and Q5_0: the value of the largest magnitude becomes the most negative number, -half. The
 * product and its half are rounded once, in double: that is the reference's own convention. */
static void quantize_symmetric(const float *x, int half, uint8_t *scale, uint8_t *nibbles,
                               uint8_t *fifths)
{
    uint8_t codes[BLOCK_32];
    float most = x[0];
    for (uint32_t i = 1; i < BLOCK_32; i++)
        if (fabsf(x[i]) > fabsf(most))
            most = x[i];
    const float d = most / (float)-half, id = inverse(d);
    for (uint32_t i = 0; i < BLOCK_32; i++)
        codes[i] = code_of((double)x[i] * (double)id + (half + 0.5), 2 * half - 1);
    store_u16(scale, f32_to_f16(d));
    store_codes(codes, nibbles, fifths);
}

/* Q4_1 and Q5_1: `most` is the largest number. */
static void quantize_affine(const float *x, int most, uint8_t *factors, uint8_t *nibbles,
                            uint8_t *fifths)
{
    uint8_t codes[BLOCK_32];
    float low = x[0], high = x[0];
    for (uint32_t i = 1; i < BLOCK_32; i++) {
        low = x[i] < low ? x[i] : low;
        high = x[i] > high ? x[i] : high;
    }
    const float d = (high - low) / (float)most, id = inverse(d);
    for (uint32_t i = 0; i < BLOCK_32; i++)
        codes[i] = code_of((double)((x[i] - low) * id + 0.5f), most);
    store_u16(factors, f32_to_f16(d));
    store_u16(factors + 2, f32_to_f16(low));
    store_codes(codes, nibbles, fifths);
}

static void quantize_q8_0(const float *x, uint8_t *block)
{
    float most = 0.0f;
    for (uint32_t i = 0; i < BLOCK_32; i++)
        most = fmaxf(most, fabsf(x[i]));
    const float d = most / 127.0f, id = inverse(d);
    store_u16(block, f32_to_f16(d));
    for (uint32_t i = 0; i < BLOCK_32; i++)
        block[2 + i] = (uint8_t)(code_of((double)(roundf(x[i] * id) + 127.0f), 254) - 127);
}

/* ---- K types --------------------------------------------------------------------------------- */

/* The nearest whole number from low to high, halves to even. Adding and taking away 1.5 * 2^23
 * rounds, in instructions that compilers do several of at once; the range is far below that. */
static inline float nearest(float value, float low, float high)
{
    const float shift = 12582912.0f;
    value = value > low ? value : low; /* NaN, of scales that are infinite, becomes low */
    value = value < high ? value : high;
    return value + shift - shift;
}

/* The scale s for which s * q, q in -32 .. 31, is closest to 16 values, each error weighted by the
 * square of its value: scales around the one that maps the largest value to an end are tried, and
 * for the numbers that each gives the best scale is known in closed form. */
static float search_scale(const float *x)
{
    float most = 0.0f, best_scale = 0.0f, best_gain = 0.0f, t[16], q[16];
    for (int i = 0; i < 16; i++)
        if (fabsf(x[i]) > fabsf(most))
            most = x[i];
    if (fabsf(most) < 1e-30f)
        return 0.0f;
    for (int i = 0; i < 16; i++)
        t[i] = x[i] / most; /* -1 to 1: no square of it overflows */
    for (int step = -10; step <= 10; step++) {
        const float id = -(32.0f + 0.1f * (float)step);
        float tq = 0.0f, qq = 0.0f;
        for (int i = 0; i < 16; i++)
            q[i] = nearest(t[i] * id, -32.0f, 31.0f);
        for (int i = 0; i < 16; i++) {
            tq += t[i] * t[i] * t[i] * q[i];
            qq += t[i] * t[i] * q[i] * q[i];
        }
        if (qq > 0.0f && tq * tq > best_gain * qq) {
            best_gain = tq * tq / qq;
            best_scale = tq / qq * most;
        }
    }
    return best_scale;
}

static void store_q6_k(float d, const int8_t scales[16], const uint8_t codes[BLOCK_K],
                       uint8_t *block)
{
    for (uint32_t half = 0; half < 2; half++)
        for (uint32_t i = 0; i < 32; i++) {
            const uint8_t *c = codes + 128 * half + i;
            block[64 * half + i] = (uint8_t)((c[0] & 15) | (c[64] & 15) << 4);
            block[64 * half + 32 + i] = (uint8_t)((c[32] & 15) | (c[96] & 15) << 4);
            block[128 + 32 * half + i] =
                (uint8_t)(c[0] >> 4 | c[32] >> 4 << 2 | c[64] >> 4 << 4 | c[96] >> 4 << 6);
        }
    memcpy(block + 192, scales, 16);
    store_u16(block + 208, f32_to_f16(d));
}

static void quantize_q6_k(const float *x, uint8_t *block)
{
    float scale[16], most = 0.0f;
    int8_t scales[16];
    uint8_t codes[BLOCK_K];
    for (int g = 0; g < 16; g++) {
        scale[g] = search_scale(x + 16 * g);
        if (fabsf(scale[g]) > fabsf(most))
            most = scale[g];
    }
    const float d = f16_to_f32(f32_to_f16(most / -128.0f)), id = inverse(d);
    for (int g = 0; g < 16; g++) {
        scales[g] = (int8_t)nearest(scale[g] * id, -128.0f, 127.0f);
        const float inverse_scale = inverse(d * (float)scales[g]);
        for (int i = 16 * g; i < 16 * g + 16; i++)
            codes[i] = (uint8_t)(nearest(x[i] * inverse_scale, -32.0f, 31.0f) + 32.0f);
    }
    store_q6_k(d, scales, codes, block);
}

/* value = scale * q - minimum, minimum >= 0: for a group of 32 values. */
typedef struct line {
    float scale, minimum;
} line;

/* The weighted squared error of a line whose numbers are chosen for it. */
static float line_error(const float *x, const float *w, float scale, float minimum)
{
    const float id = inverse(scale);
    float off[32], error = 0.0f;
    for (int i = 0; i < 32; i++)
        off[i] = scale * nearest((x[i] + minimum) * id, 0.0f, 15.0f) - minimum - x[i];
    for (int i = 0; i < 32; i++)
        error += w[i] * off[i] * off[i];
    return error;
}

/* The least-squares line through the numbers that (x - low) * id gives; returns by how much it
 * lowers the sum of squares of the values. */
static float fit_line(const float *x, const float *w, float low, float id, line *out)
{
    float q[32], wq[32], sw = 0, sq = 0, sqq = 0, sx = 0, sxq = 0;
    for (int i = 0; i < 32; i++) {
        q[i] = nearest((x[i] - low) * id, 0.0f, 15.0f);
        wq[i] = w[i] * q[i];
    }
    for (int i = 0; i < 32; i++) {
        sw += w[i];
        sq += wq[i];
        sqq += wq[i] * q[i];
        sx += w[i] * x[i];
        sxq += wq[i] * x[i];
    }
    const float determinant = sw * sqq - sq * sq;
    *out = (line){0};
    if (determinant > 0.0f) {
        out->scale = (sw * sxq - sx * sq) / determinant;
        out->minimum = (sq * sxq - sqq * sx) / determinant;
    }
    if (!(determinant > 0.0f) || out->minimum < 0.0f) {
        out->minimum = 0.0f;
        out->scale = sqq > 0.0f ? sxq / sqq : 0.0f;
    }
    if (out->scale < 0.0f)
        out->scale = 0.0f;
    return out->scale * sxq - out->minimum * sx;
}

/* Large values matter more: they meet large activations as often as small ones do. */
static void line_weights(const float *x, float *w)
{
    float sum = 0.0f;
    for (int i = 0; i < 32; i++)
        sum += x[i] * x[i];
    const float deviation = sqrtf(sum / 32.0f);
    for (int i = 0; i < 32; i++)
        w[i] = deviation + fabsf(x[i]);
}

static line search_line(const float *x, const float *w)
{
    float low = x[0], high = x[0];
    for (int i = 1; i < 32; i++) {
        low = fminf(low, x[i]);
        high = fmaxf(high, x[i]);
    }
    low = fminf(low, 0.0f);
    line best = {(high - low) / 15.0f, -low};
    float most = 0.0f;
    for (int step = 0; high > low && step <= 20; step++) {
        line other;
        const float gain = fit_line(x, w, low, (14.0f + 0.1f * (float)step) / (high - low), &other);
        if (gain > most) {
            most = gain;
            best = other;
        }
    }
    return best;
}

/* The six-bit scale and minimum of a group whose stored values come closest, around the rounded
 * ones. */
static void choose_six_bits(const float *x, const float *w, const line *fit, float d, float dmin,
                            uint8_t *scale, uint8_t *minimum)
{
    const int s0 = (int)nearest(fit->scale * inverse(d), 0.0f, 63.0f);
    const int m0 = (int)nearest(fit->minimum * inverse(dmin), 0.0f, 63.0f);
    float best = INFINITY;
    for (int s = s0 - 1; s <= s0 + 1; s++)
        for (int m = m0 - 1; m <= m0 + 1; m++) {
            if (s < 0 || s > 63 || m < 0 || m > 63)
                continue;
            const float error = line_error(x, w, d * (float)s, dmin * (float)m);
            if (error < best) {
                best = error;
                *scale = (uint8_t)s;
                *minimum = (uint8_t)m;
            }
        }
}

static void store_q4_k(float d, float dmin, const uint8_t *scales, const uint8_t *minimums,
                       const uint8_t *codes, uint8_t *block)
{
    uint8_t *packed = block + 4, *nibbles = block + 16;
    store_u16(block, f32_to_f16(d));
    store_u16(block + 2, f32_to_f16(dmin));
    for (uint32_t j = 0; j < 4; j++) {
        packed[j] = (uint8_t)(scales[j] | scales[j + 4] >> 4 << 6);
        packed[j + 4] = (uint8_t)(minimums[j] | minimums[j + 4] >> 4 << 6);
        packed[j + 8] = (uint8_t)((scales[j + 4] & 15) | (minimums[j + 4] & 15) << 4);
    }
    for (uint32_t part = 0; part < 4; part++)
        for (uint32_t i = 0; i < 32; i++)
            nibbles[32 * part + i] =
                (uint8_t)(codes[64 * part + i] | codes[64 * part + 32 + i] << 4);
}

static void quantize_q4_k(const float *x, uint8_t *block)
{
    float w[BLOCK_K], most_scale = 0.0f, most_minimum = 0.0f;
    line fits[8];
    uint8_t scales[8] = {0}, minimums[8] = {0}, codes[BLOCK_K];
    for (int g = 0; g < 8; g++) {
        line_weights(x + 32 * g, w + 32 * g);
        fits[g] = search_line(x + 32 * g, w + 32 * g);
        most_scale = fmaxf(most_scale, fits[g].scale);
        most_minimum = fmaxf(most_minimum, fits[g].minimum);
    }
    const float d = f16_to_f32(f32_to_f16(most_scale / 63.0f));
    const float dmin = f16_to_f32(f32_to_f16(most_minimum / 63.0f));
    for (int g = 0; g < 8; g++) {
        choose_six_bits(x + 32 * g, w + 32 * g, &fits[g], d, dmin, &scales[g], &minimums[g]);
        const float id = inverse(d * (float)scales[g]), minimum = dmin * (float)minimums[g];
        for (int i = 32 * g; i < 32 * g + 32; i++)
            codes[i] = (uint8_t)nearest((x[i] + minimum) * id, 0.0f, 15.0f);
    }
    store_q4_k(d, dmin, scales, minimums, codes, block);
}

/* ---- rows ------------------------------------------------------------------------------------ */

static void quantize_block(dtype type, const float *x, uint8_t *block)
{
    switch (type) {
    case DTYPE_Q4_0:
        quantize_symmetric(x, 8, block, block + 2, NULL);
        break;
    case DTYPE_Q4_1:
        quantize_affine(x, 15, block, block + 4, NULL);
        break;
    case DTYPE_Q5_0:
        quantize_symmetric(x, 16, block, block + 6, block + 2);
        break;
    case DTYPE_Q5_1:
        quantize_affine(x, 31, block, block + 8, block + 4);
        break;
    case DTYPE_Q8_0:
        quantize_q8_0(x, block);
        break;
    case DTYPE_Q4_K:
        quantize_q4_k(x, block);
        break;
    default:
        assert(type == DTYPE_Q6_K);
        quantize_q6_k(x, block);
        break;
    }
}

void quantize_row(dtype type, uint64_t k, const float *values, uint8_t *file_row)
{
    const dtype_info *info = dtype_find((uint32_t)type);
    assert(quantize_knows(type) && info != NULL && k % info->block == 0);

    for (uint64_t i = 0; type == DTYPE_F32 && i < k; i++) {
        uint32_t bits;
        memcpy(&bits, &values[i], sizeof bits);
        store_u32(file_row + 4 * i, bits);
    }
    for (uint64_t i = 0; type == DTYPE_F16 && i < k; i++)
        store_u16(file_row + 2 * i, f32_to_f16(values[i]));
    for (uint64_t i = 0; type == DTYPE_BF16 && i < k; i++)
        store_u16(file_row + 2 * i, f32_to_bf16(values[i]));
    for (uint64_t b = 0; info->block > 1 && b < k / info->block; b++)
        quantize_block(type, values + b * info->block, file_row + b * info->block_bytes);
}
