/*
 * widen.c - a function a type: one block of the file to its f32 values. Numbers of a block are in
 * the order of its elements unless said otherwise; d is the block's f16 factor.
 */
#include "base/widen.h"

#include <assert.h>
#include <math.h>
#include <stddef.h>
#include <string.h>

#include "base/blocks.h"
#include "base/half.h"
#include "base/iq_grids.h"

static float load_f16(const uint8_t *p)
{
    return f16_to_f32((uint16_t)load_u16(p));
}

/* Nibble `i` of packed pairs, the lower one first. */
static uint32_t nibble(const uint8_t *packed, uint32_t i)
{
    return (uint32_t)packed[i / 2] >> (i % 2 * 4) & 15;
}

/* ---- numbers from a list --------------------------------------------------------------------- */

static const int8_t iq4_values[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                      1,    13,   25,  38,  53,  69,  89,  113};

/* Twice the values of the four-bit float E2M1. */
static const int8_t e2m1_values[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

/* 32 elements of 16 bytes: the low nibbles first, then the high ones. */
static void from_nibbles(float scale, const int8_t values[16], const uint8_t *packed, float *out)
{
    for (uint32_t i = 0; i < 16; i++) {
        out[i] = scale * (float)values[packed[i] & 15];
        out[i + 16] = scale * (float)values[packed[i] >> 4];
    }
}

/* d, 16 bytes of nibbles. */
static void iq4_nl(const uint8_t *block, float *out)
{
    from_nibbles(load_f16(block), iq4_values, block + 2, out);
}

/* d, the high two bits of eight scales, their low four bits, then 32 elements a scale. */
static void iq4_xs(const uint8_t *block, float *out)
{
    const float d = load_f16(block);
    const uint32_t high = load_u16(block + 2);

    for (uint32_t i = 0; i < 8; i++) {
        const uint32_t scale = nibble(block + 4, i) | (high >> (2 * i) & 3) << 4;
        from_nibbles(d * (float)((int)scale - 32), iq4_values, block + 8 + 16 * i, out + 32 * i);
    }
}

/* A power of two, 2^(e - 128) since the values are doubled, then nibbles. */
static void mxfp4(const uint8_t *block, float *out)
{
    from_nibbles(ldexpf(1.0f, (int)block[0] - 128), e2m1_values, block + 1, out);
}

/* ---- three values ---------------------------------------------------------------------------- */

/* Element `i` of a byte that holds five base-3 digits as a fraction of 256: shifting the fraction
 * up by i digits leaves digit i on top. */
static float trit(uint8_t fraction, uint32_t i)
{
    static const uint8_t powers[5] = {1, 3, 9, 27, 81};
    const uint32_t shifted = (uint8_t)(fraction * powers[i]);

    return (float)(int)(shifted * 3 >> 8) - 1.0f;
}

/* `width` bytes of `digits` digits each: the first digits of all bytes, then the second ones. */
static float *from_trits(float d, const uint8_t *bytes, uint32_t width, uint32_t digits, float *out)
{
    for (uint32_t i = 0; i < digits; i++)
        for (uint32_t j = 0; j < width; j++)
            *out++ = d * trit(bytes[j], i);
    return out;
}

/* 160, 80 and 16 elements, d. */
static void tq1_0(const uint8_t *block, float *out)
{
    const float d = load_f16(block + 52);

    out = from_trits(d, block, 32, 5, out);
    out = from_trits(d, block + 32, 16, 5, out);
    from_trits(d, block + 48, 4, 4, out);
}

/* Twice 32 bytes, each of four elements 32 apart; d. */
static void tq2_0(const uint8_t *block, float *out)
{
    const float d = load_f16(block + 64);

    for (uint32_t half = 0; half < 2; half++)
        for (uint32_t i = 0; i < 4; i++)
            for (uint32_t j = 0; j < 32; j++)
                *out++ = d * (float)((int)(block[32 * half + j] >> (2 * i) & 3) - 1);
}

/* ---- rows of grids --------------------------------------------------------------------------- */

static const uint8_t iq2_magnitudes[4] = {8, 25, 43, 0};
static const uint8_t iq3_xxs_magnitudes[8] = {4, 12, 20, 28, 36, 44, 52, 62};
static const uint8_t iq3_s_magnitudes[8] = {1, 3, 5, 7, 9, 11, 13, 15};

/* The eight signs of which seven are stored: the last one makes the number of minuses even. */
static uint32_t eight_signs(uint32_t seven)
{
    uint32_t parity = seven ^ seven >> 4;

    parity ^= parity >> 2;
    parity ^= parity >> 1;
    return seven | (parity & 1) << 7;
}

/* Elements with a sign bit each, lowest first, from a row of a grid with `bits` bits an element. */
static void from_row(float scale, uint32_t row, uint32_t bits, const uint8_t *magnitudes,
                     uint32_t signs, float *out)
{
    for (uint32_t i = 0; i < 16 / bits; i++) {
        const float value = scale * (float)magnitudes[row >> (bits * i) & ((1u << bits) - 1)];
        out[i] = signs >> i & 1 ? -value : value;
    }
}

/* d; a pair of words for 32 elements: four rows, four times seven signs and a scale of four bits.
 */
static void iq2_xxs(const uint8_t *block, float *out)
{
    const float d = load_f16(block);

    for (uint32_t i = 0; i < 32; i++) {
        const uint8_t *pair = block + 2 + i / 4 * 8;
        const uint32_t rest = load_u32(pair + 4);
        const float scale = d * (0.5f + (float)(rest >> 28)) * 0.25f;
        from_row(scale, iq2_xxs_grid[pair[i % 4]], 2, iq2_magnitudes,
                 eight_signs(rest >> (7 * (i % 4)) & 127), out + 8 * i);
    }
}

/* d; 32 times a row of nine bits and seven signs; scales of four bits for 16 elements. */
static void iq2_xs(const uint8_t *block, float *out)
{
    const float d = load_f16(block);

    for (uint32_t i = 0; i < 32; i++) {
        const uint32_t word = load_u16(block + 2 + 2 * i);
        const float scale = d * (0.5f + (float)nibble(block + 66, i / 2)) * 0.25f;
        from_row(scale, iq2_xs_grid[word & 511], 2, iq2_magnitudes, eight_signs(word >> 9),
                 out + 8 * i);
    }
}

/* d; the rows' low eight bits; all signs; the rows' high two bits; scales as above. */
static void iq2_s(const uint8_t *block, float *out)
{
    const float d = load_f16(block);

    for (uint32_t i = 0; i < 32; i++) {
        const uint32_t row = block[2 + i] | ((uint32_t)block[66 + i / 4] >> (i % 4 * 2) & 3) << 8;
        const float scale = d * (0.5f + (float)nibble(block + 74, i / 2)) * 0.25f;
        from_row(scale, iq2_s_grid[row], 2, iq2_magnitudes, block[34 + i], out + 8 * i);
    }
}

/* d; 64 rows of four elements; a word for 32 elements: four times seven signs and a scale. */
static void iq3_xxs(const uint8_t *block, float *out)
{
    const float d = load_f16(block);

    for (uint32_t i = 0; i < 64; i++) {
        const uint32_t word = load_u32(block + 66 + i / 8 * 4);
        const float scale = d * (0.5f + (float)(word >> 28)) * 0.5f;
        const uint32_t signs = eight_signs(word >> (i / 2 % 4 * 7) & 127) >> (i % 2 * 4);
        from_row(scale, iq3_xxs_grid[block[2 + i]], 4, iq3_xxs_magnitudes, signs, out + 4 * i);
    }
}

/* d; the rows' low eight bits; their ninth bits; all signs; scales of four bits for 32 elements. */
static void iq3_s(const uint8_t *block, float *out)
{
    const float d = load_f16(block);

    for (uint32_t i = 0; i < 64; i++) {
        const uint32_t row = block[2 + i] | ((uint32_t)block[66 + i / 8] >> i % 8 & 1) << 8;
        const float scale = d * (float)(1 + 2 * nibble(block + 106, i / 8));
        const uint32_t signs = (uint32_t)block[74 + i / 2] >> (i % 2 * 4);
        from_row(scale, iq3_s_grid[row], 4, iq3_s_magnitudes, signs, out + 4 * i);
    }
}

/* Eight elements of -1, 0 or 1, all moved by an eighth up or down. */
static void from_iq1_row(float scale, uint32_t row, bool down, float *out)
{
    for (uint32_t i = 0; i < 8; i++)
        out[i] =
            scale * ((float)(int)(iq1_grid[row] >> (2 * i) & 3) - 1.0f + (down ? -0.125f : 0.125f));
}

/* d; the rows' low eight bits; a half word for 32 elements: four times the three high bits of a
 * row, a scale of three bits, and which way all move. */
static void iq1_s(const uint8_t *block, float *out)
{
    const float d = load_f16(block);

    for (uint32_t i = 0; i < 32; i++) {
        const uint32_t word = load_u16(block + 34 + i / 4 * 2);
        const uint32_t row = block[2 + i] | (word >> (i % 4 * 3) & 7) << 8;
        from_iq1_row(d * (float)(2 * (word >> 12 & 7) + 1), row, word >> 15 != 0, out + 8 * i);
    }
}

/* The rows' low eight bits; a nibble a row: its three high bits, and which way it moves; then four
 * half words, each of four scales of three bits under a nibble of d. */
static void iq1_m(const uint8_t *block, float *out)
{
    uint32_t bits = 0;

    for (uint32_t i = 0; i < 4; i++)
        bits |= load_u16(block + 48 + 2 * i) >> 12 << (4 * i);
    const float d = f16_to_f32((uint16_t)bits);
    for (uint32_t i = 0; i < 32; i++) {
        const uint32_t high = nibble(block + 32, i);
        const uint32_t scale = load_u16(block + 48 + i / 8 * 2) >> (i / 2 % 4 * 3) & 7;
        from_iq1_row(d * (float)(2 * scale + 1), block[i] | (high & 7) << 8, high >> 3 != 0,
                     out + 8 * i);
    }
}

/* ---- two to four values ---------------------------------------------------------------------- */

/* d, a bit an element: -1 or 1. */
static void q1_0(const uint8_t *block, float *out)
{
    const float d = load_f16(block);

    for (uint32_t i = 0; i < 128; i++)
        out[i] = (block[2 + i / 8] >> (i % 8) & 1) != 0 ? d : -d;
}

/* d, two bits an element: -1 to 2. */
static void q2_0(const uint8_t *block, float *out)
{
    const float d = load_f16(block);

    for (uint32_t i = 0; i < 64; i++)
        out[i] = d * ((float)(block[2 + i / 4] >> (i % 4 * 2) & 3) - 1.0f);
}

/* ---- rows ------------------------------------------------------------------------------------ */

typedef void (*block_reader)(const uint8_t *block, float *out);

static const struct {
    dtype type;
    block_reader read;
} readers[] = {
    {DTYPE_IQ1_S, iq1_s},   {DTYPE_IQ1_M, iq1_m},   {DTYPE_IQ2_XXS, iq2_xxs},
    {DTYPE_IQ2_XS, iq2_xs}, {DTYPE_IQ2_S, iq2_s},   {DTYPE_IQ3_XXS, iq3_xxs},
    {DTYPE_IQ3_S, iq3_s},   {DTYPE_IQ4_NL, iq4_nl}, {DTYPE_IQ4_XS, iq4_xs},
    {DTYPE_MXFP4, mxfp4},   {DTYPE_TQ1_0, tq1_0},   {DTYPE_TQ2_0, tq2_0},
    {DTYPE_Q1_0, q1_0},     {DTYPE_Q2_0, q2_0},
};

static block_reader find_reader(uint32_t gguf_type)
{
    for (size_t i = 0; i < sizeof readers / sizeof readers[0]; i++)
        if ((uint32_t)readers[i].type == gguf_type)
            return readers[i].read;
    return NULL;
}

bool widen_knows(uint32_t gguf_type)
{
    return find_reader(gguf_type) != NULL;
}

void widen_to_f32(dtype type, uint64_t k, const uint8_t *file_row, float *out)
{
    const block_reader read = find_reader((uint32_t)type);
    const dtype_info *info = dtype_find((uint32_t)type);

    assert(read != NULL && k % info->block == 0);
    for (uint64_t i = 0; i < k / info->block; i++)
        read(file_row + i * info->block_bytes, out + i * info->block);
}

bool widen_to_f16(dtype type, uint64_t k, const uint8_t *file_row, uint8_t *out)
{
    const uint32_t infinite = 0x7c00;
    const dtype_info *info = dtype_find((uint32_t)type);
    float values[WIDEN_BLOCK_MAX];
    bool fits = true;

    assert(info->block <= WIDEN_BLOCK_MAX);
    for (uint64_t i = 0; i < k / info->block; i++) {
        widen_to_f32(type, info->block, file_row + i * info->block_bytes, values);
        for (uint32_t j = 0; j < info->block; j++) {
            const uint32_t half = f32_to_f16(values[j]);
            fits = fits && (half & infinite) != infinite;
            store_u16(out + 2 * (i * info->block + j), half);
        }
    }
    return fits;
}
