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

static void test_row_words(void **state)
{
    const weight_format f16 = weight_format_of(DTYPE_F16), q4 = weight_format_of(DTYPE_Q4_0);
    const weight_format q4_1 = weight_format_of(DTYPE_Q4_1), q8 = weight_format_of(DTYPE_Q8_0);
    const weight_format wide = {LAYOUT_Q4, SCALE_F32, 64};

    (void)state;
    assert_int_equal(weight_row_words(weight_format_of(DTYPE_F32), 7), 7);
    assert_int_equal(weight_row_words(f16, 7), 4);
    assert_int_equal(weight_scale_row_words(f16, 7), 0);
    assert_int_equal(weight_row_words(q4, 96), 12);
    assert_int_equal(weight_scale_row_words(q4, 96), 2);
    assert_int_equal(weight_row_words(q4_1, 96), 12);
    assert_int_equal(weight_scale_row_words(q4_1, 96), 3);
    assert_int_equal(weight_row_words(q8, 96), 24);
    assert_int_equal(weight_scale_row_words(q8, 96), 2);
    assert_int_equal(weight_scale_row_words(wide, 128), 2);
    assert_true(weight_row_words(q8, (uint64_t)1 << 40) == (uint64_t)1 << 38);
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
        assert_int_equal(4 * weight_row_words(format, 512), rows[i].data);
        assert_int_equal(4 * weight_high_row_words(format, 512), rows[i].high);
        assert_int_equal(4 * weight_scale_row_words(format, 512), rows[i].scales);
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

/* Repacks a row between buffers of the exact size and compares all three ways to read it. */
static void check_row(dtype type, uint64_t k, const uint8_t *row)
{
    const weight_format format = weight_format_of(type);
    const size_t words = weight_row_words(format, k), high_words = weight_high_row_words(format, k);
    const size_t scale_words = weight_scale_row_words(format, k);
    const weight_planes planes = {malloc(words * 4), high_words > 0 ? malloc(high_words * 4) : NULL,
                                  scale_words > 0 ? malloc(scale_words * 4) : NULL};
    float *from_file = malloc(k * 4), *from_planes = malloc(k * 4);

    assert_true(planes.data && from_file && from_planes);
    memset(planes.data, 0xaa, words * 4);
    if (planes.high != NULL)
        memset(planes.high, 0xaa, high_words * 4);
    if (planes.scales != NULL)
        memset(planes.scales, 0xaa, scale_words * 4);
    weight_repack_row(type, k, row, planes);
    dtype_dequantize_row(type, k, row, from_file);
    weight_dequantize_row(format, k, planes, from_planes);
    bool finite = true;
    for (uint64_t i = 0; i < k; i++) {
        const float wanted = (float)element(type, row, i);
        if (!same(from_file[i], wanted) || !same(from_planes[i], wanted))
            fail_msg("%s element %d: %a and %a instead of %a", dtype_name(type), (int)i,
                     (double)from_file[i], (double)from_planes[i], (double)wanted);
        finite = finite && isfinite(wanted);
    }
    assert_int_equal(dtype_row_has_nonfinite(type, k, row), !finite);
    if (type == DTYPE_F16 && k % 2 != 0)
        assert_int_equal(planes.data[words - 1] >> 16, 0);
    if (type == DTYPE_Q8_0 && (k / 32) % 2 != 0)
        assert_int_equal(planes.scales[scale_words - 1] >> 16, 0);
    free(planes.data);
    free(planes.high);
    free(planes.scales);
    free(from_file);
    free(from_planes);
}

static void test_random_rows(void **state)
{
    random_state r = {7};

    (void)state;
    for (size_t t = 0; t < LOADABLE_COUNT; t++) {
        const dtype_info *info = dtype_find(loadable[t]);
        for (uint64_t blocks = 1; blocks <= 40; blocks++) {
            const size_t bytes = blocks * info->block_bytes;
            uint8_t *row = malloc(bytes);
            assert_non_null(row);
            for (size_t i = 0; i < bytes; i++)
                row[i] = (uint8_t)random_u64(&r);
            check_row(loadable[t], blocks * info->block, row);
            free(row);
        }
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

/* The formats that no file type has yet, written by hand. */
static void test_other_planes(void **state)
{
    const weight_format wide = {LAYOUT_Q4, SCALE_F32, 8};
    const uint32_t data[2] = {0x76543210, 0xfedcba98};
    uint32_t words[2], scales[2];
    const float scale[2] = {0.25f, -3.0f};
    float out[16];

    (void)state;
    memcpy(scales, scale, sizeof scales);
    memcpy(words, data, sizeof words);
    weight_dequantize_row(wide, 16, (weight_planes){.data = words, .scales = scales}, out);
    for (int i = 0; i < 16; i++)
        assert_true(same(out[i], scale[i / 8] * (float)(i - 8)));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_row_words),
        cmocka_unit_test(test_plane_bytes),
        cmocka_unit_test(test_every_factor),
        cmocka_unit_test(test_random_rows),
        cmocka_unit_test(test_every_scale),
        cmocka_unit_test(test_nonfinite_places),
        cmocka_unit_test(test_other_planes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
