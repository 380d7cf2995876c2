/*
 * dtype.c - the types of files: their sizes, their names, and what their bytes mean.
 */
#include "base/dtype.h"

#include <assert.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "base/blocks.h"
#include "base/half.h"

static const dtype_info infos[] = {
    {DTYPE_F32, "F32", 1, 4, true},
    {DTYPE_F16, "F16", 1, 2, true},
    {DTYPE_BF16, "BF16", 1, 2, true},
    {DTYPE_Q4_0, "Q4_0", 32, 18, true}, /* f16 scale, 16 bytes of nibbles */
    {DTYPE_Q4_1, "Q4_1", 32, 20, true}, /* f16 scale, f16 minimum, 16 bytes of nibbles */
    {DTYPE_Q8_0, "Q8_0", 32, 34, true}, /* f16 scale, 32 int8 */
    {DTYPE_Q5_0, "Q5_0", 32, 22, true},
    {DTYPE_Q5_1, "Q5_1", 32, 24, true},
    {DTYPE_Q8_1, "Q8_1", 32, 36, false},
    {DTYPE_Q2_K, "Q2_K", 256, 84, true},
    {DTYPE_Q3_K, "Q3_K", 256, 110, true},
    {DTYPE_Q4_K, "Q4_K", 256, 144, true},
    {DTYPE_Q5_K, "Q5_K", 256, 176, true},
    {DTYPE_Q6_K, "Q6_K", 256, 210, true},
    {DTYPE_Q8_K, "Q8_K", 256, 292, false},
    {DTYPE_IQ2_XXS, "IQ2_XXS", 256, 66, false},
    {DTYPE_IQ2_XS, "IQ2_XS", 256, 74, false},
    {DTYPE_IQ2_S, "IQ2_S", 256, 82, false},
    {DTYPE_IQ3_XXS, "IQ3_XXS", 256, 98, false},
    {DTYPE_IQ3_S, "IQ3_S", 256, 110, false},
    {DTYPE_IQ1_S, "IQ1_S", 256, 50, false},
    {DTYPE_IQ1_M, "IQ1_M", 256, 56, false},
    {DTYPE_IQ4_NL, "IQ4_NL", 32, 18, false},
    {DTYPE_IQ4_XS, "IQ4_XS", 256, 136, false},
    {DTYPE_TQ1_0, "TQ1_0", 256, 54, false},
    {DTYPE_TQ2_0, "TQ2_0", 256, 66, false},
    {DTYPE_MXFP4, "MXFP4", 32, 17, false},
    {DTYPE_NVFP4, "NVFP4", 64, 36, false},
    {DTYPE_Q1_0, "Q1_0", 128, 18, false},
    {DTYPE_Q2_0, "Q2_0", 64, 18, false},
    {DTYPE_I8, "I8", 1, 1, false},
    {DTYPE_I16, "I16", 1, 2, false},
    {DTYPE_I32, "I32", 1, 4, false},
    {DTYPE_I64, "I64", 1, 8, false},
    {DTYPE_F64, "F64", 1, 8, false},
};

/* Numbers that GGUF once used and gave up. */
static const struct {
    uint32_t type;
    const char *name;
} retired[] = {
    {4, "Q4_2"},      {5, "Q4_3"},        {31, "Q4_0_4_4"},   {32, "Q4_0_4_8"},
    {33, "Q4_0_8_8"}, {36, "IQ4_NL_4_4"}, {37, "IQ4_NL_4_8"}, {38, "IQ4_NL_8_8"},
};

const dtype_info *dtype_find(uint32_t gguf_type)
{
    for (size_t i = 0; i < sizeof infos / sizeof infos[0]; i++)
        if ((uint32_t)infos[i].type == gguf_type)
            return &infos[i];
    return NULL;
}

const char *dtype_name(uint32_t gguf_type)
{
    static _Thread_local char unknown[24];
    const dtype_info *info = dtype_find(gguf_type);

    if (info != NULL)
        return info->name;
    for (size_t i = 0; i < sizeof retired / sizeof retired[0]; i++)
        if (retired[i].type == gguf_type)
            return retired[i].name;
    snprintf(unknown, sizeof unknown, "type %" PRIu32, gguf_type);
    return unknown;
}

static float float_of(uint32_t bits)
{
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

static float load_f16(const uint8_t *p)
{
    return f16_to_f32((uint16_t)load_u16(p));
}

static void dequantize_q4_0(uint64_t blocks, const uint8_t *row, float *out)
{
    for (uint64_t b = 0; b < blocks; b++, row += 18, out += BLOCK_32) {
        const float scale = load_f16(row);
        for (int i = 0; i < BLOCK_32 / 2; i++) {
            out[i] = scale * (float)((row[2 + i] & 15) - 8);
            out[i + BLOCK_32 / 2] = scale * (float)((row[2 + i] >> 4) - 8);
        }
    }
}

static void dequantize_q4_1(uint64_t blocks, const uint8_t *row, float *out)
{
    for (uint64_t b = 0; b < blocks; b++, row += 20, out += BLOCK_32) {
        const float scale = load_f16(row), minimum = load_f16(row + 2);
        for (int i = 0; i < BLOCK_32 / 2; i++) {
            out[i] = scale * (float)(row[4 + i] & 15) + minimum;
            out[i + BLOCK_32 / 2] = scale * (float)(row[4 + i] >> 4) + minimum;
        }
    }
}

static void dequantize_q5_0(uint64_t blocks, const uint8_t *row, float *out)
{
    uint8_t codes[BLOCK_32];
    for (uint64_t b = 0; b < blocks; b++, row += 22, out += BLOCK_32) {
        const float scale = load_f16(row);
        block_codes_5(row + 6, row + 2, codes);
        for (int i = 0; i < BLOCK_32; i++)
            out[i] = scale * (float)(codes[i] - 16);
    }
}

static void dequantize_q5_1(uint64_t blocks, const uint8_t *row, float *out)
{
    uint8_t codes[BLOCK_32];
    for (uint64_t b = 0; b < blocks; b++, row += 24, out += BLOCK_32) {
        const float scale = load_f16(row), minimum = load_f16(row + 2);
        block_codes_5(row + 8, row + 4, codes);
        for (int i = 0; i < BLOCK_32; i++)
            out[i] = scale * (float)codes[i] + minimum;
    }
}

static void dequantize_q8_0(uint64_t blocks, const uint8_t *row, float *out)
{
    for (uint64_t b = 0; b < blocks; b++, row += 34, out += BLOCK_32) {
        const float scale = load_f16(row);
        for (int i = 0; i < BLOCK_32; i++)
            out[i] = scale * (float)(int8_t)row[2 + i];
    }
}

static void dequantize_k(dtype type, uint64_t blocks, const uint8_t *row, float *out)
{
    const uint32_t bytes = dtype_find((uint32_t)type)->block_bytes;
    k_block block;

    for (uint64_t b = 0; b < blocks; b++, row += bytes, out += BLOCK_K) {
        k_block_read(type, row, &block);
        const float d = f16_to_f32(block.d), dmin = f16_to_f32(block.dmin);
        for (uint32_t i = 0; i < BLOCK_K; i++) {
            const uint32_t group = i / block.group;
            if (block.has_minimum) {
                const float scale = d * (float)block.scales[group];
                out[i] = scale * (float)block.codes[i] - dmin * (float)block.minimums[group];
            } else {
                const float scale = d * (float)(int8_t)block.scales[group];
                out[i] = scale * (float)(block.codes[i] - block.zero);
            }
        }
    }
}

void dtype_dequantize_row(dtype type, uint64_t k, const uint8_t *file_row, float *out)
{
    assert(dtype_find((uint32_t)type)->loadable);
    assert(k % dtype_find((uint32_t)type)->block == 0);

    switch (type) {
    case DTYPE_F32:
        for (uint64_t i = 0; i < k; i++)
            out[i] = float_of(load_u32(file_row + 4 * i));
        break;
    case DTYPE_F16:
        for (uint64_t i = 0; i < k; i++)
            out[i] = load_f16(file_row + 2 * i);
        break;
    case DTYPE_BF16:
        for (uint64_t i = 0; i < k; i++)
            out[i] = bf16_to_f32((uint16_t)load_u16(file_row + 2 * i));
        break;
    case DTYPE_Q4_0:
        dequantize_q4_0(k / BLOCK_32, file_row, out);
        break;
    case DTYPE_Q4_1:
        dequantize_q4_1(k / BLOCK_32, file_row, out);
        break;
    case DTYPE_Q5_0:
        dequantize_q5_0(k / BLOCK_32, file_row, out);
        break;
    case DTYPE_Q5_1:
        dequantize_q5_1(k / BLOCK_32, file_row, out);
        break;
    case DTYPE_Q8_0:
        dequantize_q8_0(k / BLOCK_32, file_row, out);
        break;
    default:
        dequantize_k(type, k / BLOCK_K, file_row, out);
        break;
    }
}

/* True when any of `count` 16-bit floats, `stride` bytes apart, has all the bits of `exponent` set.
 */
static bool any_16_nonfinite(uint64_t count, uint64_t stride, const uint8_t *p, uint32_t exponent)
{
    uint32_t found = 0; /* no way out of the loop: compilers take several at a time */
    for (uint64_t i = 0; i < count; i++)
        found |= (load_u16(p + i * stride) & exponent) == exponent;
    return found != 0;
}

bool dtype_row_has_nonfinite(dtype type, uint64_t k, const uint8_t *file_row)
{
    const uint32_t f16_exponent = 0x7c00u, bf16_exponent = 0x7f80u, f32_exponent = 0x7f800000u;
    /* Where the f16 factors of a block lie; the second one is the first again where there is one.
     */
    static const struct {
        dtype type;
        uint32_t first, second;
    } factors[] = {
        {DTYPE_F16, 0, 0},  {DTYPE_Q4_0, 0, 0}, {DTYPE_Q4_1, 0, 2},     {DTYPE_Q5_0, 0, 0},
        {DTYPE_Q5_1, 0, 2}, {DTYPE_Q8_0, 0, 0}, {DTYPE_Q2_K, 80, 82},   {DTYPE_Q3_K, 108, 108},
        {DTYPE_Q4_K, 0, 2}, {DTYPE_Q5_K, 0, 2}, {DTYPE_Q6_K, 208, 208},
    };
    const dtype_info *info = dtype_find((uint32_t)type);
    assert(info != NULL && info->loadable && k % info->block == 0);

    if (type == DTYPE_F32) {
        uint32_t found = 0;
        for (uint64_t i = 0; i < k; i++)
            found |= (load_u32(file_row + 4 * i) & f32_exponent) == f32_exponent;
        return found != 0;
    }
    if (type == DTYPE_BF16)
        return any_16_nonfinite(k, 2, file_row, bf16_exponent);
    size_t i = 0;
    while (factors[i].type != type)
        i++;
    const uint64_t blocks = k / info->block;
    return any_16_nonfinite(blocks, info->block_bytes, file_row + factors[i].first, f16_exponent) ||
           (factors[i].second != factors[i].first &&
            any_16_nonfinite(blocks, info->block_bytes, file_row + factors[i].second,
                             f16_exponent));
}
