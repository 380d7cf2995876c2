/*
 * base_quantize.c - blocks and values by the gguf package (tests/golden/quant): what blocks mean,
 * bit for bit, from the file and from the planes; what values become, byte for byte; and how good
 * the searched types are.
 */
#include "base/quantize.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/random.h"

static uint8_t *read_golden(const char *name, const char *ending, size_t *size)
{
    char path[512];
    snprintf(path, sizeof path, "%s/quant/%s%s", TEST_GOLDEN, name, ending);
    FILE *file = fopen(path, "rb");
    if (file == NULL)
        fail_msg("%s is missing", path);
    assert_int_equal(fseek(file, 0, SEEK_END), 0);
    *size = (size_t)ftell(file);
    rewind(file);
    uint8_t *bytes = malloc(*size + 1);
    assert_non_null(bytes);
    assert_int_equal(fread(bytes, 1, *size, file), *size);
    fclose(file);
    return bytes;
}

static const dtype golden_types[] = {
    DTYPE_F16,  DTYPE_BF16, DTYPE_Q4_0, DTYPE_Q4_1, DTYPE_Q5_0, DTYPE_Q5_1,
    DTYPE_Q8_0, DTYPE_Q2_K, DTYPE_Q3_K, DTYPE_Q4_K, DTYPE_Q5_K, DTYPE_Q6_K,
};

/* Bit for bit but for NaN, of which there is one. */
static void check_same(dtype type, const float *got, const uint8_t *want, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++) {
        float value;
        memcpy(&value, want + 4 * i, sizeof value);
        if (memcmp(&value, &got[i], sizeof value) != 0 && !(isnan(value) && isnan(got[i])))
            fail_msg("%s value %d is %a, not %a", dtype_name((uint32_t)type), (int)i,
                     (double)got[i], (double)value);
    }
}

static void blocks_mean_what_gguf_says(void **state)
{
    (void)state;
    for (size_t t = 0; t < sizeof golden_types / sizeof golden_types[0]; t++) {
        const dtype type = golden_types[t];
        const dtype_info *info = dtype_find((uint32_t)type);
        const weight_format format = weight_format_of(type);
        size_t size, wanted_size;
        uint8_t *blocks = read_golden(info->name, ".bin", &size);
        uint8_t *wanted = read_golden(info->name, ".f32", &wanted_size);
        const uint64_t k = size / info->block_bytes * info->block;
        float *got = malloc(k * sizeof *got);
        weight_planes planes = {{NULL}};
        for (int p = 0; p < WEIGHT_PLANES; p++) {
            const uint64_t words = weight_plane_words(format, (weight_plane)p, k, WEIGHT_ROWS);
            planes.plane[p] = words > 0 ? malloc(words * 4) : NULL;
            assert_true(words == 0 || planes.plane[p] != NULL);
        }
        assert_non_null(got);
        assert_int_equal(wanted_size, k * 4);
        dtype_dequantize_row(type, k, blocks, got);
        check_same(type, got, wanted, k);
        const uint8_t *const row = blocks;
        weight_repack_rows(type, k, 1, &row, planes, WEIGHT_ROWS, 6);
        weight_dequantize_row(format, k, planes, WEIGHT_ROWS, 6, got);
        check_same(type, got, wanted, k);
        for (int p = 0; p < WEIGHT_PLANES; p++)
            free(planes.plane[p]);
        free(got);
        free(blocks);
        free(wanted);
    }
}

static void values_become_what_gguf_makes(void **state)
{
    static const dtype types[] = {DTYPE_F16,  DTYPE_BF16, DTYPE_Q4_0, DTYPE_Q4_1,
                                  DTYPE_Q5_0, DTYPE_Q5_1, DTYPE_Q8_0};
    size_t input_size;
    uint8_t *bytes = read_golden("input", ".f32", &input_size);
    const uint64_t k = input_size / 4;
    float *input = malloc(input_size);
    (void)state;
    assert_non_null(input);
    memcpy(input, bytes, input_size);
    for (size_t t = 0; t < sizeof types / sizeof types[0]; t++) {
        const dtype_info *info = dtype_find((uint32_t)types[t]);
        char name[32];
        size_t size;
        snprintf(name, sizeof name, "row-%s", info->name);
        uint8_t *wanted = read_golden(name, ".bin", &size);
        uint8_t *got = malloc(size);
        assert_non_null(got);
        assert_int_equal(size, k / info->block * info->block_bytes);
        assert_true(quantize_knows(types[t]));
        quantize_row(types[t], k, input, got);
        for (size_t i = 0; i < size; i++)
            if (got[i] != wanted[i])
                fail_msg("%s: byte %zu of block %zu is %02x, not %02x", info->name,
                         i % info->block_bytes, i / info->block_bytes, got[i], wanted[i]);
        free(got);
        free(wanted);
    }
    free(input);
    free(bytes);
}

/* Root mean square error over root mean square, of a type on these values. */
static double relative_error(dtype type, uint64_t k, const float *values)
{
    const dtype_info *info = dtype_find((uint32_t)type);
    uint8_t *row = malloc(k / info->block * info->block_bytes);
    float *back = malloc(k * sizeof *back);
    double off = 0, all = 0;
    assert_true(row && back);
    quantize_row(type, k, values, row);
    assert_false(dtype_row_has_nonfinite(type, k, row));
    dtype_dequantize_row(type, k, row, back);
    for (uint64_t i = 0; i < k; i++) {
        off += pow((double)(back[i] - values[i]), 2);
        all += pow((double)values[i], 2);
    }
    free(row);
    free(back);
    return all == 0 ? off : sqrt(off / all);
}

/* On normal values of many sizes Q4_K stays ahead of Q4_0 and of Q4_1, Q6_K far ahead of both. */
static void searched_types_are_good(void **state)
{
    enum { K = 256 * 64 };
    float *values = malloc(K * sizeof *values);
    random_state r = {5};
    (void)state;
    assert_non_null(values);
    for (int i = 0; i < K; i++)
        values[i] = (float)(random_normal(&r) * 0.02 * (1 + i / 256 % 7));
    const double q4_0 = relative_error(DTYPE_Q4_0, K, values);
    const double q4_1 = relative_error(DTYPE_Q4_1, K, values);
    const double q4_k = relative_error(DTYPE_Q4_K, K, values);
    const double q6_k = relative_error(DTYPE_Q6_K, K, values);
    print_message("Q4_0 %.4f, Q4_1 %.4f, Q4_K %.4f, Q6_K %.4f\n", q4_0, q4_1, q4_k, q6_k);
    assert_true(q4_k < 0.97 * q4_1 && q4_k < 0.9 * q4_0 && q6_k < 0.22 * q4_0);
    /* Mostly on one side of zero: what a minimum is for. */
    for (int i = 0; i < K; i++)
        values[i] = (float)(random_unit(&r) * (i % 512 < 256 ? 0.3 : -0.3)) - 0.02f;
    assert_true(relative_error(DTYPE_Q4_K, K, values) < 0.04);
    free(values);
}

/* Rows of zeros, of one value, of one outlier, of the smallest and largest numbers there are. */
static void odd_rows(void **state)
{
    static const float fills[] = {0.0f,    -0.0f, 1.0f,   -3.0f,   1e-42f,
                                  -1e-42f, 3e38f, -3e38f, 65504.0f};
    static const dtype types[] = {DTYPE_Q4_0, DTYPE_Q4_1, DTYPE_Q5_0, DTYPE_Q5_1,
                                  DTYPE_Q8_0, DTYPE_Q4_K, DTYPE_Q6_K};
    float values[256], back[256];
    uint8_t row[288];
    (void)state;
    for (size_t t = 0; t < sizeof types / sizeof types[0]; t++)
        for (size_t f = 0; f < sizeof fills / sizeof fills[0]; f++)
            for (int outlier = 0; outlier < 2; outlier++) {
                for (int i = 0; i < 256; i++)
                    values[i] = fills[f];
                if (outlier)
                    values[77] = -1000.0f;
                quantize_row(types[t], 256, values, row);
                if (fabsf(fills[f]) > 1e30f)
                    continue; /* no f16 scale holds it, and dtype_row_has_nonfinite says so */
                assert_false(dtype_row_has_nonfinite(types[t], 256, row));
                dtype_dequantize_row(types[t], 256, row, back);
                for (int i = 0; i < 256; i++)
                    if (!(fabsf(back[i] - values[i]) <=
                          0.04f * fmaxf(fabsf(fills[f]), outlier ? 1000.0f : 0.0f) + 1e-6f))
                        fail_msg("%s: %g became %g", dtype_name((uint32_t)types[t]),
                                 (double)values[i], (double)back[i]);
            }
    for (int i = 0; i < 256; i++)
        values[i] = 3e38f;
    for (size_t t = 0; t < sizeof types / sizeof types[0]; t++) {
        quantize_row(types[t], 256, values, row);
        assert_true(dtype_row_has_nonfinite(types[t], 256, row));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_mean_what_gguf_says),
        cmocka_unit_test(values_become_what_gguf_makes),
        cmocka_unit_test(searched_types_are_good),
        cmocka_unit_test(odd_rows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
