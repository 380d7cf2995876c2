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

uint64_t weight_stride(uint64_t n)
{
    return ceil_div(n, WEIGHT_ROWS) * WEIGHT_ROWS;
}

/* Words of one entry of the data plane: 32 elements. */
static uint32_t data_words(layout of)
{
    switch (of) {
    case LAYOUT_F32:
        return 32;
    case LAYOUT_F16:
    case LAYOUT_BF16:
        return 16;
    case LAYOUT_Q8:
        return 8;
    case LAYOUT_Q4:
    case LAYOUT_Q5:
    case LAYOUT_Q6:
        return 4;
    case LAYOUT_COUNT:
        break;
    }
    assert(false && "a layout");
    return 0;
}

static uint32_t scale_tables(weight_format format, uint64_t k, weight_table tables[WEIGHT_TABLES])
{
    const uint64_t blocks = ceil_div(k, WEIGHT_BLOCK);

    switch (format.scale) {
    case SCALE_NONE:
        return 0;
    case SCALE_F16:
        tables[0] = (weight_table){ceil_div(k, format.group), 2};
        return 1;
    case SCALE_F32:
    case SCALE_F16_MIN:
        tables[0] = (weight_table){ceil_div(k, format.group), 4};
        return 1;
    case SCALE_K:
    case SCALE_K_MIN:
        tables[0] = (weight_table){ceil_div(k, SCALE_K_BLOCK), 4};
        tables[1] = (weight_table){blocks, 2};
        if (format.scale == SCALE_K_MIN && format.group == 16)
            tables[1].entry_bytes = 4;
        return 2;
    }
    assert(false && "a kind of scales");
    return 0;
}

uint32_t weight_tables(weight_format format, weight_plane plane, uint64_t k,
                       weight_table tables[WEIGHT_TABLES])
{
    const uint64_t blocks = ceil_div(k, WEIGHT_BLOCK);

    assert(plane < WEIGHT_PLANES && (format.scale == SCALE_NONE || format.group > 0));
    if (plane == WEIGHT_SCALES)
        return scale_tables(format, k, tables);
    if (plane == WEIGHT_DATA)
        tables[0] = (weight_table){blocks, 4 * data_words(format.layout)};
    else if (format.layout == LAYOUT_Q5)
        tables[0] = (weight_table){blocks, 4};
    else if (format.layout == LAYOUT_Q6)
        tables[0] = (weight_table){blocks, 8};
    else
        return 0;
    return 1;
}

uint64_t weight_plane_words(weight_format format, weight_plane plane, uint64_t k, uint64_t stride)
{
    weight_table tables[WEIGHT_TABLES];
    uint64_t bytes = 0;

    assert(stride % WEIGHT_ROWS == 0);
    for (uint32_t i = weight_tables(format, plane, k, tables); i > 0; i--)
        bytes += tables[i - 1].lines * stride * tables[i - 1].entry_bytes;
    return bytes / 4;
}

/* ---- from files ------------------------------------------------------------------------------ */

/* Where a row goes. */
typedef struct target {
    weight_planes planes;
    uint64_t k, stride, place;
} target;

static uint32_t *data_entry(const target *to, uint32_t words, uint64_t block)
{
    return to->planes.plane[WEIGHT_DATA] + (block * to->stride + to->place) * words;
}

/* Rows come in ascending order, so that an even one may clear the other half of its word. */
static void put_half(const target *to, uint32_t *table, uint64_t line, uint32_t value)
{
    const uint64_t at = line * to->stride + to->place;
    if (at % 2 == 0)
        table[at / 2] = value;
    else
        table[at / 2] |= value << 16;
}

static void put_word(const target *to, uint32_t *table, uint64_t line, uint32_t value)
{
    table[line * to->stride + to->place] = value;
}

/* Eight numbers of `bits` bits (1, 2 or 4), each in the lowest bits of a byte: the even ones pushed
 * together in the low half, the odd ones in the high half. */
static uint32_t gather_pairs(uint64_t bytes, uint32_t bits)
{
    const uint64_t mask = 0x0001000100010001u * ((UINT64_C(1) << bits) - 1);
    uint64_t even = bytes & mask, odd = bytes >> 8 & mask;

    even |= even >> (16 - bits);
    odd |= odd >> (16 - bits);
    even |= even >> (32 - 2 * bits);
    odd |= odd >> (32 - 2 * bits);
    const uint64_t four = (UINT64_C(1) << 4 * bits) - 1;
    return (uint32_t)(even & four) | (uint32_t)(odd & four) << 16;
}

static const uint64_t low_nibbles = 0x0f0f0f0f0f0f0f0fu;

/* A file block has element i in the low nibble of byte i and element i + 16 in its high nibble. */
static void repack_nibbles(const uint8_t *packed, uint32_t words[4])
{
    const uint64_t first = load_u64(packed), second = load_u64(packed + 8);

    words[0] = gather_pairs(first & low_nibbles, 4);
    words[1] = gather_pairs(second & low_nibbles, 4);
    words[2] = gather_pairs(first >> 4 & low_nibbles, 4);
    words[3] = gather_pairs(second >> 4 & low_nibbles, 4);
}

/* 32 numbers of four, five or six bits, a byte each, into the planes of nibbles and of high bits.
 */
static void pack_codes(layout of, const uint8_t codes[WEIGHT_BLOCK], const target *to,
                       uint64_t block)
{
    const uint32_t bits = of == LAYOUT_Q5 ? 1 : 2, eighths = 4 / bits;
    const uint64_t at = block * to->stride + to->place;
    uint32_t *data = data_entry(to, 4, block);
    uint32_t high[2] = {0, 0};

    for (uint32_t i = 0; i < 4; i++) {
        const uint64_t eight = load_u64(codes + 8 * i);
        data[i] = gather_pairs(eight & low_nibbles, 4);
        high[i / eighths] |= gather_pairs(eight >> 4 & low_nibbles, bits)
                             << (i % eighths * 4 * bits);
    }
    if (of != LAYOUT_Q4)
        to->planes.plane[WEIGHT_HIGH][at * bits] = high[0];
    if (of == LAYOUT_Q6)
        to->planes.plane[WEIGHT_HIGH][at * bits + 1] = high[1];
}

/* Up to 32 words, or halves in pairs; what is missing at the end of a row is zero. */
static void repack_plain(dtype type, const uint8_t *bytes, uint64_t block, const target *to)
{
    const uint32_t words = data_words(weight_format_of(type).layout), each = WEIGHT_BLOCK / words;
    const uint64_t count = min_u64(WEIGHT_BLOCK, to->k - block * WEIGHT_BLOCK);
    uint32_t *data = data_entry(to, words, block);
    uint32_t w = 0;

    for (; (uint64_t)(w + 1) * each <= count; w++)
        data[w] = load_u32(bytes + 4 * w);
    if (count % each != 0)
        data[w++] = load_u16(bytes + 2 * (count - 1));
    for (; w < words; w++)
        data[w] = 0;
}

static void repack_q8(const uint8_t *bytes, uint32_t words[8])
{
    for (uint32_t w = 0; w < 8; w++) {
        const uint32_t in_order = load_u32(bytes + 4 * w);
        words[w] =
            (in_order & 0xff0000ffu) | (in_order >> 8 & 0xff00u) | (in_order << 8 & 0xff0000u);
    }
}

static void repack_k(dtype type, const uint8_t *bytes, uint64_t block, const target *to)
{
    const weight_format format = weight_format_of(type);
    uint32_t *factors = to->planes.plane[WEIGHT_SCALES];
    uint32_t *scales = factors + to->k / BLOCK_K * to->stride;
    k_block in;

    k_block_read(type, bytes, &in);
    const uint8_t *s = in.scales, *m = in.minimums;
    put_word(to, factors, block, in.d | (uint32_t)in.dmin << 16);
    for (uint32_t e = 0; e < BLOCK_K / WEIGHT_BLOCK; e++) {
        const uint64_t line = block * (BLOCK_K / WEIGHT_BLOCK) + e;
        pack_codes(format.layout, in.codes + e * WEIGHT_BLOCK, to, line);
        if (format.scale == SCALE_K)
            put_half(to, scales, line, s[2 * e] | (uint32_t)s[2 * e + 1] << 8);
        else if (format.group == 32)
            put_half(to, scales, line, s[e] | (uint32_t)m[e] << 8);
        else
            put_word(to, scales, line,
                     s[2 * e] | (uint32_t)m[2 * e] << 8 | (uint32_t)s[2 * e + 1] << 16 |
                         (uint32_t)m[2 * e + 1] << 24);
    }
}

static void repack_block(dtype type, const uint8_t *bytes, uint64_t block, const target *to)
{
    uint32_t *scales = to->planes.plane[WEIGHT_SCALES];
    uint8_t codes[BLOCK_32];

    switch (type) {
    case DTYPE_F32:
    case DTYPE_F16:
    case DTYPE_BF16:
        repack_plain(type, bytes, block, to);
        break;
    case DTYPE_Q4_0:
        put_half(to, scales, block, load_u16(bytes));
        repack_nibbles(bytes + 2, data_entry(to, 4, block));
        break;
    case DTYPE_Q4_1:
        put_word(to, scales, block, load_u32(bytes));
        repack_nibbles(bytes + 4, data_entry(to, 4, block));
        break;
    case DTYPE_Q5_0:
        put_half(to, scales, block, load_u16(bytes));
        block_codes_5(bytes + 6, bytes + 2, codes);
        pack_codes(LAYOUT_Q5, codes, to, block);
        break;
    case DTYPE_Q5_1:
        put_word(to, scales, block, load_u32(bytes));
        block_codes_5(bytes + 8, bytes + 4, codes);
        pack_codes(LAYOUT_Q5, codes, to, block);
        break;
    case DTYPE_Q8_0:
        put_half(to, scales, block, load_u16(bytes));
        repack_q8(bytes + 2, data_entry(to, 8, block));
        break;
    default:
        repack_k(type, bytes, block, to);
        break;
    }
}

void weight_repack_rows(dtype type, uint64_t k, uint64_t count, const uint8_t *const *file_rows,
                        weight_planes out, uint64_t stride, uint64_t first)
{
    /* Neighbouring rows share lines of a processor's cache, in the planes and across blocks in the
     * file: a few of them go together. */
    enum { TOGETHER = 16 };
    const dtype_info *info = dtype_find((uint32_t)type);
    assert(info != NULL && info->loadable && k % info->block == 0);
    assert(stride % WEIGHT_ROWS == 0 && first % 2 == 0 && count <= stride - first);
    const uint64_t unit = max_u64(info->block, WEIGHT_BLOCK);
    const uint64_t unit_bytes = unit / info->block * info->block_bytes;
    target to = {.planes = out, .k = k, .stride = stride};

    for (uint64_t begin = 0; begin < count; begin += TOGETHER) {
        const uint64_t end = min_u64(begin + TOGETHER, count);
        for (uint64_t block = 0; block < ceil_div(k, unit); block++)
            for (uint64_t row = begin; row < end; row++) {
                to.place = first + row;
                repack_block(type, file_rows[row] + block * unit_bytes, block, &to);
            }
    }
}

/* ---- what planes mean ------------------------------------------------------------------------ */

static float float_of(uint32_t bits)
{
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

/* Entry of 16 bits `at` of a table. */
static uint32_t half_of(const uint32_t *table, uint64_t at)
{
    return table[at / 2] >> (at % 2 * 16) & 0xffffu;
}

/* Scale and minimum of element i of a row. */
static void scale_of(weight_format format, uint64_t k, const uint32_t *scales, uint64_t stride,
                     uint64_t row, uint64_t i, float *scale, float *minimum)
{
    const uint64_t at = format.scale == SCALE_NONE ? 0 : i / format.group * stride + row;
    *scale = 1.0f;
    *minimum = 0.0f;
    if (format.scale == SCALE_F16) {
        *scale = f16_to_f32((uint16_t)half_of(scales, at));
    } else if (format.scale == SCALE_F32) {
        *scale = float_of(scales[at]);
    } else if (format.scale == SCALE_F16_MIN) {
        *scale = f16_to_f32((uint16_t)scales[at]);
        *minimum = f16_to_f32((uint16_t)(scales[at] >> 16));
    } else if (format.scale != SCALE_NONE) {
        const uint32_t factor = scales[i / SCALE_K_BLOCK * stride + row];
        const uint32_t *entries = scales + ceil_div(k, SCALE_K_BLOCK) * stride;
        const uint64_t entry = i / WEIGHT_BLOCK * stride + row, second = i / 16 % 2;
        if (format.scale == SCALE_K) {
            const uint32_t s = half_of(entries, entry) >> (8 * second) & 0xffu;
            *scale = f16_to_f32((uint16_t)factor) * (float)(int8_t)(uint8_t)s;
            return;
        }
        const uint32_t pair = format.group == 32 ? half_of(entries, entry)
                                                 : entries[entry] >> (16 * second) & 0xffffu;
        *scale = f16_to_f32((uint16_t)factor) * (float)(pair & 0xffu);
        *minimum = -(f16_to_f32((uint16_t)(factor >> 16)) * (float)(pair >> 8));
    }
}

static bool has_minimum(weight_format format)
{
    return format.scale == SCALE_F16_MIN || format.scale == SCALE_K_MIN;
}

/* The place of element i in its word, which holds `count` of them: the even ones come first. */
static uint32_t slot(uint64_t i, uint32_t count)
{
    return (uint32_t)(i % count / 2 + i % 2 * (count / 2));
}

/* One element of a row, before scale and minimum. */
static float plane_element(weight_format format, weight_planes planes, uint64_t stride,
                           uint64_t row, uint64_t i)
{
    const uint64_t at = i / WEIGHT_BLOCK * stride + row;
    const uint32_t words = data_words(format.layout), each = WEIGHT_BLOCK / words;
    const uint32_t in = (uint32_t)(i % WEIGHT_BLOCK), pair = in / 2;
    const uint32_t word =
        planes.plane[WEIGHT_DATA][at * words + in / each] >> (slot(i, each) * (32 / each));
    uint32_t code = word & 15u, zero = 8;

    switch (format.layout) {
    case LAYOUT_F32:
        return float_of(word);
    case LAYOUT_F16:
        return f16_to_f32((uint16_t)word);
    case LAYOUT_BF16:
        return bf16_to_f32((uint16_t)word);
    case LAYOUT_Q8:
        return (float)(int8_t)(uint8_t)word;
    case LAYOUT_Q5:
        code |= (planes.plane[WEIGHT_HIGH][at] >> (pair + 16 * (in % 2)) & 1u) << 4;
        zero = 16;
        break;
    case LAYOUT_Q6:
        code |=
            (planes.plane[WEIGHT_HIGH][2 * at + pair / 8] >> (2 * (pair % 8) + 16 * (in % 2)) & 3u)
            << 4;
        zero = 32;
        break;
    default:
        break;
    }
    return (float)code - (float)(has_minimum(format) ? 0 : zero);
}

void weight_dequantize_row(weight_format format, uint64_t k, weight_planes planes, uint64_t stride,
                           uint64_t row, float *out)
{
    float scale = 1.0f, minimum = 0.0f;

    for (uint64_t i = 0; i < k; i++) {
        const float element = plane_element(format, planes, stride, row, i);
        if (format.scale == SCALE_NONE) {
            out[i] = element;
            continue;
        }
        if (i % format.group == 0)
            scale_of(format, k, planes.plane[WEIGHT_SCALES], stride, row, i, &scale, &minimum);
        out[i] = scale * element;
        /* Adding a zero minimum where the format has none would turn -0 into 0. */
        if (has_minimum(format))
            out[i] += minimum;
    }
}
