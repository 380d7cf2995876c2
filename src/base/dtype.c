/*
 * dtype.c - file types, their GPU layouts, and the exact way from one to the other.
 *
 * File bytes are little-endian on every machine, so words are put together by value; the compilers
 * make single loads of it.
 */
#include "base/dtype.h"

#include <assert.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "base/checked.h"
#include "base/half.h"

enum { GROUP = 32 };   /* elements a block of Q4_0, Q4_1 and Q8_0 */

static const dtype_info infos[] = {
    {DTYPE_F32, "F32", 1, 4, true},
    {DTYPE_F16, "F16", 1, 2, true},
    {DTYPE_BF16, "BF16", 1, 2, true},
    {DTYPE_Q4_0, "Q4_0", 32, 18, true},        /* f16 scale, 16 bytes of nibbles */
    {DTYPE_Q4_1, "Q4_1", 32, 20, true},        /* f16 scale, f16 minimum, 16 bytes of nibbles */
    {DTYPE_Q8_0, "Q8_0", 32, 34, true},        /* f16 scale, 32 int8 */
    {DTYPE_Q5_0, "Q5_0", 32, 22, false},
    {DTYPE_Q5_1, "Q5_1", 32, 24, false},
    {DTYPE_Q8_1, "Q8_1", 32, 36, false},
    {DTYPE_Q2_K, "Q2_K", 256, 84, false},
    {DTYPE_Q3_K, "Q3_K", 256, 110, false},
    {DTYPE_Q4_K, "Q4_K", 256, 144, false},
    {DTYPE_Q5_K, "Q5_K", 256, 176, false},
    {DTYPE_Q6_K, "Q6_K", 256, 210, false},
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
    {4, "Q4_2"},         {5, "Q4_3"},         {31, "Q4_0_4_4"},    {32, "Q4_0_4_8"},
    {33, "Q4_0_8_8"},    {36, "IQ4_NL_4_4"},  {37, "IQ4_NL_4_8"},  {38, "IQ4_NL_8_8"},
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

weight_format weight_format_of(dtype type)
{
    switch (type) {
    case DTYPE_F32:
        return (weight_format){LAYOUT_F32, SCALE_NONE, 0};
    case DTYPE_F16:
        return (weight_format){LAYOUT_F16, SCALE_NONE, 0};
    case DTYPE_BF16:
        return (weight_format){LAYOUT_BF16, SCALE_NONE, 0};
    case DTYPE_Q8_0:
        return (weight_format){LAYOUT_Q8, SCALE_F16, GROUP};
    case DTYPE_Q4_0:
        return (weight_format){LAYOUT_Q4, SCALE_F16, GROUP};
    case DTYPE_Q4_1:
        return (weight_format){LAYOUT_Q4, SCALE_F16_MIN, GROUP};
    default:
        assert(false && "a loadable type");
        return (weight_format){LAYOUT_COUNT, SCALE_NONE, 0};
    }
}

uint64_t weight_row_words(weight_format format, uint64_t k)
{
    switch (format.layout) {
    case LAYOUT_F32:
        return k;
    case LAYOUT_F16:
    case LAYOUT_BF16:
        return ceil_div(k, 2);
    case LAYOUT_Q8:
        return ceil_div(k, 4);
    case LAYOUT_Q4:
        return ceil_div(k, 8);
    case LAYOUT_COUNT:
        break;
    }
    assert(false && "a layout");
    return 0;
}

uint64_t weight_scale_row_words(weight_format format, uint64_t k)
{
    if (format.scale == SCALE_NONE)
        return 0;
    assert(format.group > 0);
    const uint64_t groups = ceil_div(k, format.group);
    return format.scale == SCALE_F16 ? ceil_div(groups, 2) : groups;
}

static uint32_t load_u16(const uint8_t *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8;
}

static uint32_t load_u32(const uint8_t *p)
{
    return load_u16(p) | load_u16(p + 2) << 16;
}

static uint64_t load_u64(const uint8_t *p)
{
    return load_u32(p) | (uint64_t)load_u32(p + 4) << 32;
}

/* Eight nibbles, each in the low half of a byte, pushed together into one word. */
static uint32_t gather_nibbles(uint64_t bytes)
{
    bytes = (bytes | bytes >> 4) & 0x00ff00ff00ff00ffu;
    bytes = (bytes | bytes >> 8) & 0x0000ffff0000ffffu;
    return (uint32_t)(bytes | bytes >> 16);
}

/* A file block has element i in the low nibble of byte i and element i + 16 in its high nibble; the
 * layout has all 32 in order. */
static void repack_nibbles(const uint8_t *packed, uint32_t *words)
{
    const uint64_t low_nibbles = 0x0f0f0f0f0f0f0f0fu;
    const uint64_t first = load_u64(packed), second = load_u64(packed + 8);

    words[0] = gather_nibbles(first & low_nibbles);
    words[1] = gather_nibbles(second & low_nibbles);
    words[2] = gather_nibbles(first >> 4 & low_nibbles);
    words[3] = gather_nibbles(second >> 4 & low_nibbles);
}

/* The f16 scale that starts each of the row's blocks, two a word, the last odd one alone. */
static void repack_scales(uint64_t blocks, uint64_t block_bytes, const uint8_t *row,
                          uint32_t *scales)
{
    for (uint64_t b = 0; b + 1 < blocks; b += 2) {
        const uint8_t *block = row + b * block_bytes;
        scales[b / 2] = load_u16(block) | load_u16(block + block_bytes) << 16;
    }
    if (blocks % 2 != 0)
        scales[blocks / 2] = load_u16(row + (blocks - 1) * block_bytes);
}

static void repack_halves(uint64_t k, const uint8_t *row, uint32_t *data)
{
    for (uint64_t i = 0; i < k / 2; i++)
        data[i] = load_u32(row + 4 * i);
    if (k % 2 != 0)
        data[k / 2] = load_u16(row + 2 * (k - 1));
}

void weight_repack_row(dtype type, uint64_t k, const uint8_t *file_row, uint32_t *data,
                       uint32_t *scales)
{
    const dtype_info *info = dtype_find((uint32_t)type);
    assert(info != NULL && info->loadable && k % info->block == 0);
    assert((scales != NULL) == (weight_format_of(type).scale != SCALE_NONE));
    const uint64_t blocks = k / info->block;

    switch (type) {
    case DTYPE_F32:
        for (uint64_t i = 0; i < k; i++)
            data[i] = load_u32(file_row + 4 * i);
        break;
    case DTYPE_F16:
    case DTYPE_BF16:
        repack_halves(k, file_row, data);
        break;
    case DTYPE_Q4_0:
        for (uint64_t b = 0; b < blocks; b++)
            repack_nibbles(file_row + 18 * b + 2, data + 4 * b);
        repack_scales(blocks, 18, file_row, scales);
        break;
    case DTYPE_Q4_1:
        for (uint64_t b = 0; b < blocks; b++) {
            scales[b] = load_u32(file_row + 20 * b);
            repack_nibbles(file_row + 20 * b + 4, data + 4 * b);
        }
        break;
    case DTYPE_Q8_0:
        for (uint64_t b = 0; b < blocks; b++)
            for (uint64_t w = 0; w < 8; w++)
                data[8 * b + w] = load_u32(file_row + 34 * b + 2 + 4 * w);
        repack_scales(blocks, 34, file_row, scales);
        break;
    default:
        break;
    }
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
    for (uint64_t b = 0; b < blocks; b++, row += 18, out += GROUP) {
        const float scale = load_f16(row);
        for (int i = 0; i < GROUP / 2; i++) {
            out[i] = scale * (float)((row[2 + i] & 15) - 8);
            out[i + GROUP / 2] = scale * (float)((row[2 + i] >> 4) - 8);
        }
    }
}

static void dequantize_q4_1(uint64_t blocks, const uint8_t *row, float *out)
{
    for (uint64_t b = 0; b < blocks; b++, row += 20, out += GROUP) {
        const float scale = load_f16(row), minimum = load_f16(row + 2);
        for (int i = 0; i < GROUP / 2; i++) {
            out[i] = scale * (float)(row[4 + i] & 15) + minimum;
            out[i + GROUP / 2] = scale * (float)(row[4 + i] >> 4) + minimum;
        }
    }
}

static void dequantize_q8_0(uint64_t blocks, const uint8_t *row, float *out)
{
    for (uint64_t b = 0; b < blocks; b++, row += 34, out += GROUP) {
        const float scale = load_f16(row);
        for (int i = 0; i < GROUP; i++)
            out[i] = scale * (float)(int8_t)row[2 + i];
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
        dequantize_q4_0(k / GROUP, file_row, out);
        break;
    case DTYPE_Q4_1:
        dequantize_q4_1(k / GROUP, file_row, out);
        break;
    case DTYPE_Q8_0:
        dequantize_q8_0(k / GROUP, file_row, out);
        break;
    default:
        break;
    }
}

/* Scale and minimum of one group of a planes' row. */
static void group_scale(weight_format format, const uint32_t *scales, uint64_t group, float *scale,
                        float *minimum)
{
    *scale = 1.0f;
    *minimum = 0.0f;
    switch (format.scale) {
    case SCALE_NONE:
        break;
    case SCALE_F16:
        *scale = f16_to_f32((uint16_t)(scales[group / 2] >> (group % 2 * 16)));
        break;
    case SCALE_F32:
        *scale = float_of(scales[group]);
        break;
    case SCALE_F16_MIN:
        *scale = f16_to_f32((uint16_t)scales[group]);
        *minimum = f16_to_f32((uint16_t)(scales[group] >> 16));
        break;
    }
}

/* One element of a data plane's row, before scale and minimum. */
static float plane_element(weight_format format, const uint32_t *data, uint64_t i)
{
    switch (format.layout) {
    case LAYOUT_F32:
        return float_of(data[i]);
    case LAYOUT_F16:
        return f16_to_f32((uint16_t)(data[i / 2] >> (i % 2 * 16)));
    case LAYOUT_BF16:
        return bf16_to_f32((uint16_t)(data[i / 2] >> (i % 2 * 16)));
    case LAYOUT_Q8:
        return (float)(int8_t)(uint8_t)(data[i / 4] >> (i % 4 * 8));
    case LAYOUT_Q4: {
        const int nibble = (int)(data[i / 8] >> (i % 8 * 4) & 15u);
        return (float)(format.scale == SCALE_F16_MIN ? nibble : nibble - 8);
    }
    case LAYOUT_COUNT:
        break;
    }
    assert(false && "a layout");
    return 0.0f;
}

void weight_dequantize_row(weight_format format, uint64_t k, const uint32_t *data,
                           const uint32_t *scales, float *out)
{
    const uint64_t group = format.scale == SCALE_NONE ? k : format.group;
    float scale = 1.0f, minimum = 0.0f;

    assert(k == 0 || group > 0);
    for (uint64_t i = 0; i < k; i++) {
        const float element = plane_element(format, data, i);
        if (format.scale == SCALE_NONE) {
            out[i] = element;
            continue;
        }
        if (i % group == 0)
            group_scale(format, scales, i / group, &scale, &minimum);
        out[i] = scale * element;
        /* Adding a zero minimum where the format has none would turn -0 into 0. */
        if (format.scale == SCALE_F16_MIN)
            out[i] += minimum;
    }
}

/* True when any of `count` 16-bit floats, `stride` bytes apart, has all the bits of `exponent` set.
 * */
static bool any_16_nonfinite(uint64_t count, uint64_t stride, const uint8_t *p, uint32_t exponent)
{
    for (uint64_t i = 0; i < count; i++)
        if ((load_u16(p + i * stride) & exponent) == exponent)
            return true;
    return false;
}

bool dtype_row_has_nonfinite(dtype type, uint64_t k, const uint8_t *file_row)
{
    const uint32_t f16_exponent = 0x7c00u, bf16_exponent = 0x7f80u, f32_exponent = 0x7f800000u;

    switch (type) {
    case DTYPE_F32:
        for (uint64_t i = 0; i < k; i++)
            if ((load_u32(file_row + 4 * i) & f32_exponent) == f32_exponent)
                return true;
        return false;
    case DTYPE_F16:
        return any_16_nonfinite(k, 2, file_row, f16_exponent);
    case DTYPE_BF16:
        return any_16_nonfinite(k, 2, file_row, bf16_exponent);
    case DTYPE_Q4_0:
        return any_16_nonfinite(k / GROUP, 18, file_row, f16_exponent);
    case DTYPE_Q4_1:
        return any_16_nonfinite(k / GROUP, 20, file_row, f16_exponent) ||
               any_16_nonfinite(k / GROUP, 20, file_row + 2, f16_exponent);
    case DTYPE_Q8_0:
        return any_16_nonfinite(k / GROUP, 34, file_row, f16_exponent);
    default:
        assert(false && "a loadable type");
        return true;
    }
}
