/*
 * layout.c - the GPU layouts: sizes, the exact way from a file's bytes into planes, and what the
 * planes mean.
 */
#include <assert.h>
#include <stddef.h>
#include <string.h>

#include "base/blocks.h"
#include "base/checked.h"
#include "base/dtype.h"
#include "base/half.h"

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
        return (weight_format){LAYOUT_Q8, SCALE_F16, 32};
    case DTYPE_Q4_0:
        return (weight_format){LAYOUT_Q4, SCALE_F16, 32};
    case DTYPE_Q4_1:
        return (weight_format){LAYOUT_Q4, SCALE_F16_MIN, 32};
    case DTYPE_Q5_0:
        return (weight_format){LAYOUT_Q5, SCALE_F16, 32};
    case DTYPE_Q5_1:
        return (weight_format){LAYOUT_Q5, SCALE_F16_MIN, 32};
    case DTYPE_Q2_K:
        return (weight_format){LAYOUT_Q4, SCALE_K_MIN, 16};
    case DTYPE_Q3_K:
        return (weight_format){LAYOUT_Q4, SCALE_K, 16};
    case DTYPE_Q4_K:
        return (weight_format){LAYOUT_Q4, SCALE_K_MIN, 32};
    case DTYPE_Q5_K:
        return (weight_format){LAYOUT_Q5, SCALE_K_MIN, 32};
    case DTYPE_Q6_K:
        return (weight_format){LAYOUT_Q6, SCALE_K, 16};
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
    case LAYOUT_Q5:
    case LAYOUT_Q6:
        return ceil_div(k, 8);
    case LAYOUT_COUNT:
        break;
    }
    assert(false && "a layout");
    return 0;
}

uint64_t weight_high_row_words(weight_format format, uint64_t k)
{
    if (format.layout == LAYOUT_Q5)
        return ceil_div(k, 32);
    return format.layout == LAYOUT_Q6 ? ceil_div(k, 16) : 0;
}

uint64_t weight_scale_row_words(weight_format format, uint64_t k)
{
    if (format.scale == SCALE_NONE)
        return 0;
    assert(format.group > 0);
    const uint64_t groups = ceil_div(k, format.group);
    switch (format.scale) {
    case SCALE_F16:
        return ceil_div(groups, 2);
    case SCALE_K:
        return ceil_div(k, SCALE_K_BLOCK) + ceil_div(groups, 4);
    case SCALE_K_MIN:
        return ceil_div(k, SCALE_K_BLOCK) + ceil_div(groups, 2);
    default:
        return groups;
    }
}

weight_planes weight_planes_at(weight_format format, uint64_t k, weight_planes planes, uint64_t row)
{
    if (planes.data != NULL)
        planes.data += row * weight_row_words(format, k);
    if (planes.high != NULL)
        planes.high += row * weight_high_row_words(format, k);
    if (planes.scales != NULL)
        planes.scales += row * weight_scale_row_words(format, k);
    return planes;
}

/* ---- from files ------------------------------------------------------------------------------ */

/* Eight nibbles, each in the low half of a byte, pushed together into one word. */
static uint32_t gather_nibbles(uint64_t bytes)
{
    bytes = (bytes | bytes >> 4) & 0x00ff00ff00ff00ffu;
    bytes = (bytes | bytes >> 8) & 0x0000ffff0000ffffu;
    return (uint32_t)(bytes | bytes >> 16);
}

/* Eight numbers of `bits` (1 or 2) bits, each in the lowest bits of a byte, pushed together. */
static uint32_t gather_bits(uint64_t bytes, uint32_t bits)
{
    bytes |= bytes >> (8 - bits);
    bytes &= 0x0001000100010001u * ((UINT64_C(1) << 2 * bits) - 1);
    bytes |= bytes >> (16 - 2 * bits);
    bytes &= 0x0000000100000001u * ((UINT64_C(1) << 4 * bits) - 1);
    bytes |= bytes >> (32 - 4 * bits);
    return (uint32_t)bytes & ((1u << 8 * bits) - 1);
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

/* Numbers of four, five or six bits, a byte each, into the plane of nibbles and that of high bits.
 * count is a multiple of 32. */
static void pack_codes(layout to, const uint8_t *codes, uint32_t count, uint32_t *data,
                       uint32_t *high)
{
    const uint64_t low_nibbles = 0x0f0f0f0f0f0f0f0fu;
    const uint32_t bits = to == LAYOUT_Q5 ? 1 : 2, eighths = 4 / bits;

    for (uint32_t i = 0; i < count / 8; i++) {
        const uint64_t eight = load_u64(codes + 8 * i);
        data[i] = gather_nibbles(eight & low_nibbles);
        if (to == LAYOUT_Q4)
            continue;
        const uint32_t word = gather_bits(eight >> 4 & low_nibbles, bits)
                              << (i % eighths * 8 * bits);
        high[i / eighths] = i % eighths == 0 ? word : high[i / eighths] | word;
    }
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

static void repack_q5(dtype type, uint64_t blocks, const uint8_t *row, weight_planes out)
{
    const uint32_t head = type == DTYPE_Q5_0 ? 2 : 4, bytes = head + 20;
    uint8_t codes[BLOCK_32];

    for (uint64_t b = 0; b < blocks; b++) {
        const uint8_t *block = row + b * bytes;
        block_codes_5(block + head + 4, block + head, codes);
        pack_codes(LAYOUT_Q5, codes, BLOCK_32, out.data + 4 * b, out.high + b);
        if (type == DTYPE_Q5_1)
            out.scales[b] = load_u32(block);
    }
    if (type == DTYPE_Q5_0)
        repack_scales(blocks, bytes, row, out.scales);
}

static void repack_k(dtype type, uint64_t blocks, const uint8_t *row, weight_planes out)
{
    const weight_format format = weight_format_of(type);
    const uint32_t bytes = dtype_find((uint32_t)type)->block_bytes;
    const uint64_t high_words = weight_high_row_words(format, BLOCK_K);
    const uint32_t groups = BLOCK_K / format.group;
    uint32_t *scales = out.scales + blocks;
    k_block block;

    for (uint64_t b = 0; b < blocks; b++, row += bytes) {
        k_block_read(type, row, &block);
        pack_codes(format.layout, block.codes, BLOCK_K, out.data + b * (BLOCK_K / 8),
                   high_words == 0 ? NULL : out.high + b * high_words);
        out.scales[b] = block.d | (uint32_t)block.dmin << 16;
        if (block.has_minimum)
            for (uint32_t g = 0; g < groups; g += 2)
                *scales++ = block.scales[g] | (uint32_t)block.minimums[g] << 8 |
                            (uint32_t)block.scales[g + 1] << 16 |
                            (uint32_t)block.minimums[g + 1] << 24;
        else
            for (uint32_t g = 0; g < groups; g += 4)
                *scales++ = load_u32(block.scales + g);
    }
}

void weight_repack_row(dtype type, uint64_t k, const uint8_t *file_row, weight_planes out)
{
    const dtype_info *info = dtype_find((uint32_t)type);
    assert(info != NULL && info->loadable && k % info->block == 0);
    assert((out.scales != NULL) == (weight_format_of(type).scale != SCALE_NONE));
    assert((out.high != NULL) == (weight_high_row_words(weight_format_of(type), 256) > 0));
    const uint64_t blocks = k / info->block;

    switch (type) {
    case DTYPE_F32:
        for (uint64_t i = 0; i < k; i++)
            out.data[i] = load_u32(file_row + 4 * i);
        break;
    case DTYPE_F16:
    case DTYPE_BF16:
        repack_halves(k, file_row, out.data);
        break;
    case DTYPE_Q4_0:
        for (uint64_t b = 0; b < blocks; b++)
            repack_nibbles(file_row + 18 * b + 2, out.data + 4 * b);
        repack_scales(blocks, 18, file_row, out.scales);
        break;
    case DTYPE_Q4_1:
        for (uint64_t b = 0; b < blocks; b++) {
            out.scales[b] = load_u32(file_row + 20 * b);
            repack_nibbles(file_row + 20 * b + 4, out.data + 4 * b);
        }
        break;
    case DTYPE_Q5_0:
    case DTYPE_Q5_1:
        repack_q5(type, blocks, file_row, out);
        break;
    case DTYPE_Q8_0:
        for (uint64_t b = 0; b < blocks; b++)
            for (uint64_t w = 0; w < 8; w++)
                out.data[8 * b + w] = load_u32(file_row + 34 * b + 2 + 4 * w);
        repack_scales(blocks, 34, file_row, out.scales);
        break;
    default:
        repack_k(type, blocks, file_row, out);
        break;
    }
}

/* ---- what planes mean ------------------------------------------------------------------------ */

static float float_of(uint32_t bits)
{
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

/* Scale and minimum of one group of a planes' row of k elements. */
static void group_scale(weight_format format, uint64_t k, const uint32_t *scales, uint64_t group,
                        float *scale, float *minimum)
{
    const uint64_t factors = ceil_div(k, SCALE_K_BLOCK);
    const uint32_t factor =
        format.scale >= SCALE_K ? scales[group * format.group / SCALE_K_BLOCK] : 0;
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
    case SCALE_K: {
        const uint32_t s = scales[factors + group / 4] >> (group % 4 * 8) & 0xffu;
        *scale = f16_to_f32((uint16_t)factor) * (float)(int8_t)(uint8_t)s;
        break;
    }
    case SCALE_K_MIN: {
        const uint32_t pair = scales[factors + group / 2] >> (group % 2 * 16);
        *scale = f16_to_f32((uint16_t)factor) * (float)(pair & 0xffu);
        *minimum = -(f16_to_f32((uint16_t)(factor >> 16)) * (float)(pair >> 8 & 0xffu));
        break;
    }
    }
}

static bool has_minimum(weight_format format)
{
    return format.scale == SCALE_F16_MIN || format.scale == SCALE_K_MIN;
}

/* One element of a row, before scale and minimum. */
static float plane_element(weight_format format, weight_planes planes, uint64_t i)
{
    const uint32_t *data = planes.data;
    switch (format.layout) {
    case LAYOUT_F32:
        return float_of(data[i]);
    case LAYOUT_F16:
        return f16_to_f32((uint16_t)(data[i / 2] >> (i % 2 * 16)));
    case LAYOUT_BF16:
        return bf16_to_f32((uint16_t)(data[i / 2] >> (i % 2 * 16)));
    case LAYOUT_Q8:
        return (float)(int8_t)(uint8_t)(data[i / 4] >> (i % 4 * 8));
    case LAYOUT_Q4:
    case LAYOUT_Q5:
    case LAYOUT_Q6: {
        uint32_t code = data[i / 8] >> (i % 8 * 4) & 15u, zero = 8;
        if (format.layout == LAYOUT_Q5) {
            code |= (planes.high[i / 32] >> (i % 32) & 1u) << 4;
            zero = 16;
        } else if (format.layout == LAYOUT_Q6) {
            code |= (planes.high[i / 16] >> (i % 16 * 2) & 3u) << 4;
            zero = 32;
        }
        return (float)code - (float)(has_minimum(format) ? 0 : zero);
    }
    case LAYOUT_COUNT:
        break;
    }
    assert(false && "a layout");
    return 0.0f;
}

void weight_dequantize_row(weight_format format, uint64_t k, weight_planes planes, float *out)
{
    const uint64_t group = format.scale == SCALE_NONE ? k : format.group;
    float scale = 1.0f, minimum = 0.0f;

    assert(k == 0 || group > 0);
    for (uint64_t i = 0; i < k; i++) {
        const float element = plane_element(format, planes, i);
        if (format.scale == SCALE_NONE) {
            out[i] = element;
            continue;
        }
        if (i % group == 0)
            group_scale(format, k, planes.scales, i / group, &scale, &minimum);
        out[i] = scale * element;
        /* Adding a zero minimum where the format has none would turn -0 into 0. */
        if (has_minimum(format))
            out[i] += minimum;
    }
}
