/*
 * base_dtype.c - every loadable type, from file bytes to GPU planes and back, against its
 * definition written down once more, element by element.
 */
#include "base/dtype.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/half.h"
#include "base/random.h"

static const dtype loadable[] = {
    DTYPE_F32,  DTYPE_F16,  DTYPE_BF16, DTYPE_Q4_0, DTYPE_Q4_1, DTYPE_Q5_0, DTYPE_Q5_1,
    DTYPE_Q8_0, DTYPE_Q2_K, DTYPE_Q3_K, DTYPE_Q4_K, DTYPE_Q5_K, DTYPE_Q6_K,
};

enum { LOADABLE_COUNT = sizeof loadable / sizeof loadable[0] };

static void test_sizes(void **state)
{
    static const struct {
        uint32_t type;
        const char *name;
        uint32_t block, bytes;
        bool loadable;
    } rows[] = {
        {0, "F32", 1, 4, true},       {1, "F16", 1, 2, true},         {30, "BF16", 1, 2, true},
        {2, "Q4_0", 32, 18, true},    {3, "Q4_1", 32, 20, true},      {6, "Q5_0", 32, 22, true},
        {7, "Q5_1", 32, 24, true},    {8, "Q8_0", 32, 34, true},      {10, "Q2_K", 256, 84, true},
        {11, "Q3_K", 256, 110, true}, {12, "Q4_K", 256, 144, true},   {13, "Q5_K", 256, 176, true},
        {14, "Q6_K", 256, 210, true}, {17, "IQ2_XS", 256, 74, false}, {26, "I32", 1, 4, false},
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const dtype_info *info = dtype_find(rows[i].type);
        assert_non_null(info);
        assert_int_equal(info->type, rows[i].type);
        assert_string_equal(info->name, rows[i].name);
        assert_string_equal(dtype_name(rows[i].type), rows[i].name);
        assert_int_equal(info->block, rows[i].block);
        assert_int_equal(info->block_bytes, rows[i].bytes);
        assert_int_equal(info->loadable, rows[i].loadable);
    }
    assert_null(dtype_find(4));
    assert_string_equal(dtype_name(4), "Q4_2");
    assert_null(dtype_find(77));
    assert_string_equal(dtype_name(77), "type 77");
    assert_string_equal(dtype_name(UINT32_MAX), "type 4294967295");
}

static void test_tables(void **state)
{
    static const struct {
        weight_format format;
        uint64_t k;
        weight_plane plane;
        uint32_t count;
        weight_table tables[WEIGHT_TABLES];
    } rows[] = {
        {{LAYOUT_F32, SCALE_NONE, 0}, 7, WEIGHT_DATA, 1, {{1, 128}}},
        {{LAYOUT_F32, SCALE_NONE, 0}, 7, WEIGHT_HIGH, 0, {{0, 0}}},
        {{LAYOUT_F32, SCALE_NONE, 0}, 7, WEIGHT_SCALES, 0, {{0, 0}}},
        {{LAYOUT_BF16, SCALE_NONE, 0}, 33, WEIGHT_DATA, 1, {{2, 64}}},
        {{LAYOUT_Q8, SCALE_F16, 32}, 96, WEIGHT_DATA, 1, {{3, 32}}},
        {{LAYOUT_Q8, SCALE_F16, 32}, 96, WEIGHT_SCALES, 1, {{3, 2}}},
        {{LAYOUT_Q4, SCALE_F32, 8}, 40, WEIGHT_DATA, 1, {{2, 16}}},
        {{LAYOUT_Q4, SCALE_F32, 8}, 40, WEIGHT_SCALES, 1, {{5, 4}}},
        {{LAYOUT_Q4, SCALE_F16, 16}, 96, WEIGHT_SCALES, 1, {{6, 2}}},
        {{LAYOUT_Q4, SCALE_F16_MIN, 64}, 128, WEIGHT_SCALES, 1, {{2, 4}}},
        {{LAYOUT_Q4, SCALE_F16_MIN, 128}, 384, WEIGHT_SCALES, 1, {{3, 4}}},
        {{LAYOUT_Q5, SCALE_F16, 32}, 96, WEIGHT_HIGH, 1, {{3, 4}}},
        {{LAYOUT_Q6, SCALE_K, 16}, 512, WEIGHT_HIGH, 1, {{16, 8}}},
        {{LAYOUT_Q6, SCALE_K, 16}, 512, WEIGHT_SCALES, 2, {{2, 4}, {16, 2}}},
        {{LAYOUT_Q5, SCALE_K_MIN, 32}, 512, WEIGHT_SCALES, 2, {{2, 4}, {16, 2}}},
        {{LAYOUT_Q4, SCALE_K_MIN, 16}, 512, WEIGHT_SCALES, 2, {{2, 4}, {16, 4}}},
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        weight_table tables[WEIGHT_TABLES] = {{0}};
        uint64_t bytes = 0;
        assert_int_equal(weight_tables(rows[i].format, rows[i].plane, rows[i].k, tables),
                         rows[i].count);
        for (uint32_t t = 0; t < rows[i].count; t++) {
            assert_int_equal(tables[t].lines, rows[i].tables[t].lines);
            assert_int_equal(tables[t].entry_bytes, rows[i].tables[t].entry_bytes);
            bytes += tables[t].lines * tables[t].entry_bytes * 192;
        }
        assert_int_equal(4 * weight_plane_words(rows[i].format, rows[i].plane, rows[i].k, 192),
                         bytes);
    }
    assert_int_equal(weight_stride(1), 64);
    assert_int_equal(weight_stride(64), 64);
    assert_int_equal(weight_stride(65), 128);
    assert_true(weight_plane_words(weight_format_of(DTYPE_Q8_0), WEIGHT_DATA, (uint64_t)1 << 30,
                                   1 << 20) == (uint64_t)1 << 48);
}

/* A tensor takes about the bytes that its file takes; types of two and three bits take nibbles. */
static void test_plane_bytes(void **state)
{
    static const struct {
        dtype type;
        uint32_t data, high, scales; /* bytes of 512 elements */
    } rows[] = {
        {DTYPE_Q4_0, 256, 0, 32},   {DTYPE_Q4_1, 256, 0, 64}, {DTYPE_Q5_0, 256, 64, 32},
        {DTYPE_Q5_1, 256, 64, 64},  {DTYPE_Q8_0, 512, 0, 32}, {DTYPE_Q2_K, 256, 0, 72},
        {DTYPE_Q3_K, 256, 0, 40},   {DTYPE_Q4_K, 256, 0, 40}, {DTYPE_Q5_K, 256, 64, 40},
        {DTYPE_Q6_K, 256, 128, 40},
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const weight_format format = weight_format_of(rows[i].type);
        const dtype_info *info = dtype_find((uint32_t)rows[i].type);
        const uint64_t bytes = rows[i].data + rows[i].high + rows[i].scales;
        assert_int_equal(4 * weight_plane_words(format, WEIGHT_DATA, 512, 64), 64 * rows[i].data);
        assert_int_equal(4 * weight_plane_words(format, WEIGHT_HIGH, 512, 64), 64 * rows[i].high);
        assert_int_equal(4 * weight_plane_words(format, WEIGHT_SCALES, 512, 64),
                         64 * rows[i].scales);
        if (rows[i].type != DTYPE_Q2_K && rows[i].type != DTYPE_Q3_K)
            assert_true(bytes <= 512 / info->block * info->block_bytes * 103 / 100);
    }
}

static uint16_t half_at(const uint8_t *p)
{
    return (uint16_t)(p[0] | p[1] << 8);
}

static int bit(const uint8_t *p, uint64_t i)
{
    return p[i / 8] >> (i % 8) & 1;
}

/* Bits [at, at + count) of a number that lies in bytes, lowest first. */
static int bits(const uint8_t *p, uint64_t at, int count)
{
    int value = 0;
    for (int i = 0; i < count; i++)
        value |= bit(p, at + (uint64_t)i) << i;
    return value;
}

/* Scale (which 0) or minimum (1) `j` of a Q4_K or Q5_K block. */
static int six_bits(const uint8_t *packed, uint64_t j, int which)
{
    if (j < 4)
        return packed[j + 4 * (uint64_t)which] % 64;
    const int low = which == 0 ? packed[j + 4] % 16 : packed[j + 4] / 16;
    return low + 16 * (packed[j - 4 + 4 * (uint64_t)which] / 64);
}

static int six_bits_q3_k(const uint8_t *packed, uint64_t j)
{
    const int low = bits(packed + j % 8, 4 * (j / 8), 4);
    return low + 16 * bits(packed + 8 + j % 4, 2 * (j / 4), 2) - 32;
}

/* The same for the K types: `h` is which half of 128, `p` which part of 32 in it. */
static double element_k(dtype type, const uint8_t *row, uint64_t i)
{
    const uint64_t in = i % 256, h = in / 128, p = in / 32 % 4, l = in % 32;

    switch (type) {
    case DTYPE_Q2_K: {
        const uint8_t *b = row + 84 * (i / 256);
        const int q = bits(b + 16 + 32 * h + l, 2 * p, 2);
        return (double)f16_to_f32(half_at(b + 80)) * (b[in / 16] % 16) * q -
               (double)f16_to_f32(half_at(b + 82)) * (b[in / 16] / 16);
    }
    case DTYPE_Q3_K: {
        const uint8_t *b = row + 110 * (i / 256);
        const int q = bits(b + 32 + 32 * h + l, 2 * p, 2) - (bit(b + l, in / 32) ? 0 : 4);
        return (double)f16_to_f32(half_at(b + 108)) * six_bits_q3_k(b + 96, in / 16) * q;
    }
    case DTYPE_Q4_K:
    case DTYPE_Q5_K: {
        const int five = type == DTYPE_Q5_K;
        const uint8_t *b = row + (five ? 176 : 144) * (i / 256);
        const uint8_t *nibbles = b + (five ? 48 : 16) + 32 * (in / 64);
        const int q =
            bits(nibbles + l, in % 64 / 32 * 4, 4) + (five ? 16 * bit(b + 16 + l, in / 32) : 0);
        return (double)f16_to_f32(half_at(b)) * six_bits(b + 4, in / 32, 0) * q -
               (double)f16_to_f32(half_at(b + 2)) * six_bits(b + 4, in / 32, 1);
    }
    default: {
        const uint8_t *b = row + 210 * (i / 256);
        const int low = bits(b + 64 * h + 32 * (p % 2) + l, 4 * (p / 2), 4);
        const int q = low + 16 * bits(b + 128 + 32 * h + l, 2 * p, 2) - 32;
        return (double)f16_to_f32(half_at(b + 208)) * (int8_t)b[192 + in / 16] * q;
    }
    }
}

/* Element i of a row, in double: every product and sum of these formats is exact there, and the
 * rounding to float comes last, once, as the formats define it. */
static double element(dtype type, const uint8_t *row, uint64_t i)
{
    const uint64_t block = i / 32, in = i % 32;

    switch (type) {
    case DTYPE_F32: {
        float f;
        memcpy(&f, row + 4 * i, 4);
        return (double)f;
    }
    case DTYPE_F16:
        return (double)f16_to_f32(half_at(row + 2 * i));
    case DTYPE_BF16:
        return (double)bf16_to_f32(half_at(row + 2 * i));
    case DTYPE_Q4_0: {
        const uint8_t *b = row + 18 * block;
        const int q = in < 16 ? b[2 + in] % 16 : b[2 + in - 16] / 16;
        return (double)f16_to_f32(half_at(b)) * (q - 8);
    }
    case DTYPE_Q4_1: {
        const uint8_t *b = row + 20 * block;
        const int q = in < 16 ? b[4 + in] % 16 : b[4 + in - 16] / 16;
        return (double)f16_to_f32(half_at(b)) * q + (double)f16_to_f32(half_at(b + 2));
    }
    case DTYPE_Q5_0: {
        const uint8_t *b = row + 22 * block;
        const int q = in < 16 ? b[6 + in] % 16 : b[6 + in - 16] / 16;
        return (double)f16_to_f32(half_at(b)) * (q + 16 * bit(b + 2, in) - 16);
    }
    case DTYPE_Q5_1: {
        const uint8_t *b = row + 24 * block;
        const int q = in < 16 ? b[8 + in] % 16 : b[8 + in - 16] / 16;
        return (double)f16_to_f32(half_at(b)) * (q + 16 * bit(b + 4, in)) +
               (double)f16_to_f32(half_at(b + 2));
    }
    case DTYPE_Q8_0: {
        const uint8_t *b = row + 34 * block;
        const int q = b[2 + in] < 128 ? b[2 + in] : b[2 + in] - 256;
        return (double)f16_to_f32(half_at(b)) * q;
    }
    default:
        return element_k(type, row, i);
    }
}

static bool same(float a, float b)
{
    return (isnan(a) && isnan(b)) || memcmp(&a, &b, sizeof a) == 0;
}

/* Planes of the exact size, every bit of them wrong. */
static weight_planes make_planes(weight_format format, uint64_t k, uint64_t stride)
{
    weight_planes planes = {{NULL}};
    for (int p = 0; p < WEIGHT_PLANES; p++) {
        const size_t bytes = 4 * weight_plane_words(format, (weight_plane)p, k, stride);
        planes.plane[p] = bytes > 0 ? malloc(bytes) : NULL;
        assert_true(bytes == 0 || planes.plane[p] != NULL);
        if (bytes > 0)
            memset(planes.plane[p], 0xaa, bytes);
    }
    return planes;
}

static void free_planes(weight_planes planes)
{
    for (int p = 0; p < WEIGHT_PLANES; p++)
        free(planes.plane[p]);
}

/* Repacks rows, of which each has its own pointer, to rows `first` on, and compares all three ways
 * to read each. */
static void check_rows(dtype type, uint64_t k, const uint8_t *const *rows, uint64_t count,
                       uint64_t first)
{
    const weight_format format = weight_format_of(type);
    const uint64_t stride = weight_stride(first + count);
    const weight_planes planes = make_planes(format, k, stride);
    float *from_file = malloc(k * 4), *from_planes = malloc(k * 4);

    assert_true(from_file && from_planes);
    weight_repack_rows(type, k, count, rows, planes, stride, first);
    for (uint64_t r = 0; r < count; r++) {
        bool finite = true;
        dtype_dequantize_row(type, k, rows[r], from_file);
        weight_dequantize_row(format, k, planes, stride, first + r, from_planes);
        for (uint64_t i = 0; i < k; i++) {
            const float wanted = (float)element(type, rows[r], i);
            if (!same(from_file[i], wanted) || !same(from_planes[i], wanted))
                fail_msg("%s row %d element %d: %a and %a instead of %a", dtype_name(type), (int)r,
                         (int)i, (double)from_file[i], (double)from_planes[i], (double)wanted);
            finite = finite && isfinite(wanted);
        }
        assert_int_equal(dtype_row_has_nonfinite(type, k, rows[r]), !finite);
    }
    free_planes(planes);
    free(from_file);
    free(from_planes);
}

static void check_row(dtype type, uint64_t k, const uint8_t *row)
{
    check_rows(type, k, &row, 1, 0);
}

/* Rows of 1 to 40 blocks, K of 1 to 40 for plain types among them, in order and not, more of them
 * than are repacked together, at the start of the planes and later. */
static void test_random_rows(void **state)
{
    static const struct {
        uint64_t count, first;
    } places[] = {{1, 0}, {37, 0}, {2, 62}, {17, 64}, {64, 0}};
    random_state r = {7};

    (void)state;
    for (size_t t = 0; t < LOADABLE_COUNT; t++) {
        const dtype_info *info = dtype_find(loadable[t]);
        for (uint64_t blocks = 1; blocks <= 40; blocks++) {
            const uint64_t count = places[blocks % 5].count;
            const size_t bytes = blocks * info->block_bytes;
            uint8_t *rows = malloc(count * bytes);
            const uint8_t *pointers[64];
            assert_non_null(rows);
            for (size_t i = 0; i < count * bytes; i++)
                rows[i] = (uint8_t)random_u64(&r);
            for (uint64_t i = 0; i < count; i++)
                pointers[i] = rows + (i * 29 + 3) % count * bytes;
            check_rows(loadable[t], blocks * info->block, pointers, count,
                       places[blocks % 5].first);
            free(rows);
        }
    }
}

/* Element i of these rows is known by its bits, wherever it goes. */
static void test_order_of_bits(void **state)
{
    uint8_t q8[2 * 34] = {0}, q4[18] = {0}, f16[66];
    const uint8_t *rows[2] = {q8, q8 + 34};
    weight_planes planes = make_planes(weight_format_of(DTYPE_Q8_0), 32, 64);

    (void)state;
    for (uint8_t i = 0; i < 32; i++) {
        q8[2 + i] = i;
        q8[34 + 2 + i] = (uint8_t)(100 + i);
        q4[2 + i % 16] = (uint8_t)(q4[2 + i % 16] | i / 2 << (i / 16 * 4));
    }
    q8[0] = 1;
    q8[35] = 2;
    weight_repack_rows(DTYPE_Q8_0, 32, 2, rows, planes, 64, 2);
    assert_int_equal(planes.plane[WEIGHT_DATA][2 * 8], 0x03010200);
    assert_int_equal(planes.plane[WEIGHT_DATA][2 * 8 + 7], 0x1f1d1e1c);
    assert_int_equal(planes.plane[WEIGHT_DATA][3 * 8], 0x67656664);
    assert_int_equal(planes.plane[WEIGHT_SCALES][1], 0x02000001);
    free_planes(planes);

    /* Nibbles 0 0 1 1 2 2 3 3 in the first word; a row of its own leaves zeros beside its scale. */
    planes = make_planes(weight_format_of(DTYPE_Q4_0), 32, 64);
    rows[0] = q4;
    q4[1] = 0x3c;
    weight_repack_rows(DTYPE_Q4_0, 32, 1, rows, planes, 64, 4);
    assert_int_equal(planes.plane[WEIGHT_DATA][4 * 4], 0x32103210);
    assert_int_equal(planes.plane[WEIGHT_DATA][4 * 4 + 3], 0xfedcfedc);
    assert_int_equal(planes.plane[WEIGHT_SCALES][2], 0x00003c00);
    free_planes(planes);

    /* What is missing at the end of K is zero. */
    for (uint8_t i = 0; i < 66; i++)
        f16[i] = i;
    planes = make_planes(weight_format_of(DTYPE_F16), 33, 64);
    rows[0] = f16;
    weight_repack_rows(DTYPE_F16, 33, 1, rows, planes, 64, 0);
    assert_int_equal(planes.plane[WEIGHT_DATA][15], 0x3f3e3d3c);
    assert_int_equal(planes.plane[WEIGHT_DATA][64 * 16], 0x00004140);
    for (int w = 1; w < 16; w++)
        assert_int_equal(planes.plane[WEIGHT_DATA][64 * 16 + w], 0);
    free_planes(planes);
}

/* Fifth and sixth bits: element e of a block is 16 or 48 more than it would be without its own. */
static void test_high_bits(void **state)
{
    const weight_format five = {LAYOUT_Q5, SCALE_F32, 32}, six = {LAYOUT_Q6, SCALE_F32, 32};
    uint32_t data[64 * 4] = {0}, high[128], scales[64];
    const float one = 1.0f;
    float out[32];

    (void)state;
    memcpy(&scales[5], &one, 4);
    const weight_planes planes = {{data, high, scales}};
    for (uint32_t e = 0; e < 32; e++) {
        const uint32_t pair = e / 2, up = 16 * (e % 2);
        memset(high, 0, sizeof high);
        high[5] = 1u << (pair + up);
        weight_dequantize_row(five, 32, planes, 64, 5, out);
        for (uint32_t i = 0; i < 32; i++)
            assert_true(same(out[i], i == e ? 0.0f : -16.0f));
        memset(high, 0, sizeof high);
        high[2 * 5 + pair / 8] = 3u << (2 * (pair % 8) + up);
        weight_dequantize_row(six, 32, planes, 64, 5, out);
        for (uint32_t i = 0; i < 32; i++)
            assert_true(same(out[i], i == e ? 16.0f : -32.0f));
    }
}

/* All scales and minima there are (subnormal, negative zero, infinite, NaN), under all nibbles. */
static void test_every_scale(void **state)
{
    uint8_t row[34];

    (void)state;
    for (uint32_t scale = 0; scale <= 0xffff; scale += scale % 0x400 == 3 ? 0xfd : 1) {
        for (size_t i = 0; i < sizeof row; i++)
            row[i] = (uint8_t)(i * 0x1f + scale);
        row[0] = (uint8_t)scale;
        row[1] = (uint8_t)(scale >> 8);
        check_row(DTYPE_Q4_0, 32, row);
        check_row(DTYPE_Q8_0, 32, row);
        check_row(DTYPE_F16, 1, row);
        check_row(DTYPE_BF16, 1, row);
        check_row(DTYPE_Q4_1, 32, row);
        row[2] = (uint8_t)scale;
        row[3] = (uint8_t)(scale >> 8);
        check_row(DTYPE_Q4_1, 32, row);
        check_row(DTYPE_Q5_0, 32, row);
        check_row(DTYPE_Q5_1, 32, row);
    }
}

/* The same for the factors of the K types, with every other bit of the block at random. */
static void test_every_factor(void **state)
{
    static const struct {
        dtype type;
        size_t bytes, d, dmin;
    } types[] = {
        {DTYPE_Q2_K, 84, 80, 82}, {DTYPE_Q3_K, 110, 108, 108}, {DTYPE_Q4_K, 144, 0, 2},
        {DTYPE_Q5_K, 176, 0, 2},  {DTYPE_Q6_K, 210, 208, 208},
    };
    random_state r = {11};

    (void)state;
    for (size_t t = 0; t < sizeof types / sizeof types[0]; t++)
        for (uint32_t factor = 0; factor <= 0xffff; factor += factor % 0x400 == 3 ? 0xfd : 1) {
            uint8_t block[210];
            for (size_t i = 0; i < types[t].bytes; i++)
                block[i] = (uint8_t)random_u64(&r);
            const uint16_t other = (uint16_t)(factor * 31);
            block[types[t].dmin] = (uint8_t)other;
            block[types[t].dmin + 1] = (uint8_t)(other >> 8);
            block[types[t].d] = (uint8_t)factor;
            block[types[t].d + 1] = (uint8_t)(factor >> 8);
            check_row(types[t].type, 256, block);
        }
}

static void test_nonfinite_places(void **state)
{
    uint8_t row[210 * 3];
    static const uint16_t bad[] = {0x7c00, 0xfc00, 0x7c01, 0x7e00};

    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        for (int block = 0; block < 3; block++) {
            static const struct {
                dtype type;
                int bytes, at;
            } places[] = {{DTYPE_Q4_0, 18, 0},    {DTYPE_Q4_1, 20, 0},  {DTYPE_Q4_1, 20, 2},
                          {DTYPE_Q5_0, 22, 0},    {DTYPE_Q5_1, 24, 0},  {DTYPE_Q5_1, 24, 2},
                          {DTYPE_Q8_0, 34, 0},    {DTYPE_Q2_K, 84, 80}, {DTYPE_Q2_K, 84, 82},
                          {DTYPE_Q3_K, 110, 108}, {DTYPE_Q4_K, 144, 0}, {DTYPE_Q4_K, 144, 2},
                          {DTYPE_Q5_K, 176, 0},   {DTYPE_Q5_K, 176, 2}, {DTYPE_Q6_K, 210, 208}};
            for (size_t p = 0; p < sizeof places / sizeof places[0]; p++) {
                const uint64_t k = 3 * dtype_find((uint32_t)places[p].type)->block;
                memset(row, 0, sizeof row);
                assert_false(dtype_row_has_nonfinite(places[p].type, k, row));
                row[places[p].bytes * block + places[p].at] = (uint8_t)bad[i];
                row[places[p].bytes * block + places[p].at + 1] = (uint8_t)(bad[i] >> 8);
                assert_true(dtype_row_has_nonfinite(places[p].type, k, row));
            }
        }
    memset(row, 0xff, sizeof row); /* quants may have any bits */
    for (int block = 0; block < 3; block++)
        memset(row + 34 * block, 0, 2);
    assert_false(dtype_row_has_nonfinite(DTYPE_Q8_0, 96, row));
}

/* The formats that no file type has, written by hand: groups of 8 to 128. */
static void test_other_planes(void **state)
{
    static const uint32_t groups[] = {8, 16, 32, 64, 128};
    enum { K = 128, ROW = 65, STRIDE = 128 };
    static const scale_kind kinds[] = {SCALE_F32, SCALE_F16, SCALE_F16_MIN};
    float out[K];

    (void)state;
    for (size_t g = 0; g < 5; g++)
        for (size_t s = 0; s < 3; s++) {
            const weight_format format = {LAYOUT_Q4, kinds[s], groups[g]};
            const weight_planes planes = make_planes(format, K, STRIDE);
            uint32_t *data = planes.plane[WEIGHT_DATA], *scales = planes.plane[WEIGHT_SCALES];
            for (uint32_t word = 0; word < K / 8; word++)
                data[(word / 4 * STRIDE + ROW) * 4 + word % 4] = 0x75316420u;
            for (uint32_t group = 0; group < K / groups[g]; group++) {
                const uint32_t at = group * STRIDE + ROW;
                const float scale = (float)(group + 1);
                const uint32_t half = f32_to_f16(scale);
                if (kinds[s] == SCALE_F32)
                    memcpy(&scales[at], &scale, 4);
                else if (kinds[s] == SCALE_F16)
                    scales[at / 2] = half << 16; /* an odd row */
                else
                    scales[at] = half | 0xc000u << 16; /* -2 */
            }
            weight_dequantize_row(format, K, planes, STRIDE, ROW, out);
            for (uint32_t i = 0; i < K; i++) {
                const float q = (float)(i % 8), scale = (float)(i / groups[g] + 1);
                assert_true(same(out[i], kinds[s] == SCALE_F16_MIN ? scale * q - 2.0f
                                                                   : scale * (q - 8.0f)));
            }
            free_planes(planes);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_tables),
        cmocka_unit_test(test_plane_bytes),
        cmocka_unit_test(test_every_factor),
        cmocka_unit_test(test_random_rows),
        cmocka_unit_test(test_order_of_bits),
        cmocka_unit_test(test_high_bits),
        cmocka_unit_test(test_every_scale),
        cmocka_unit_test(test_nonfinite_places),
        cmocka_unit_test(test_other_planes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
