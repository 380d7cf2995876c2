/*
 * base_widen.c - types without a layout against what the gguf package makes of the same blocks
 * (Q1_0 and Q2_0: numpy), bit for bit, and what f16 can hold of it.
 */
#include "base/widen.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

#include "base/half.h"

/* A file of the goldens, exactly as long as it is; free with free(). */
static void *read_golden(const char *name, size_t *size)
{
    char path[256];
    snprintf(path, sizeof path, "%s/widen/%s", TEST_GOLDEN, name);
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    assert_int_equal(fseek(file, 0, SEEK_END), 0);
    *size = (size_t)ftell(file);
    rewind(file);
    void *bytes = malloc(*size);
    assert_non_null(bytes);
    assert_int_equal(fread(bytes, 1, *size, file), *size);
    fclose(file);
    return bytes;
}

/* Numbers are compared, not bits: the sign of a zero depends on the order of the factors. */
static void check_blocks(const json_t *row)
{
    const char *name = json_string_value(json_object_get(row, "type"));
    const uint32_t type = (uint32_t)json_integer_value(json_object_get(row, "id"));
    const dtype_info *info = dtype_find(type);
    size_t size, wanted_size;
    uint8_t *blocks = read_golden(json_string_value(json_object_get(row, "bin")), &size);
    float *wanted = read_golden(json_string_value(json_object_get(row, "f32")), &wanted_size);

    assert_non_null(info);
    assert_string_equal(info->name, name);
    assert_true(widen_knows(type));
    assert_false(info->loadable);
    const size_t k = size / info->block_bytes * info->block;
    assert_int_equal(wanted_size, k * sizeof *wanted);
    float *got = malloc(k * sizeof *got);
    uint8_t *halves = malloc(2 * k);
    assert_true(got != NULL && halves != NULL);
    widen_to_f32(info->type, k, blocks, got);
    bool all_fit = true;
    for (size_t i = 0; i < k; i++) {
        if (!(got[i] == wanted[i]))
            fail_msg("%s: value %zu is %a, the golden has %a", name, i, (double)got[i],
                     (double)wanted[i]);
        all_fit = all_fit && isfinite(f16_to_f32(f32_to_f16(wanted[i])));
    }
    assert_int_equal(widen_to_f16(info->type, k, blocks, halves), all_fit);
    for (size_t i = 0; i < k; i++)
        assert_int_equal(halves[2 * i] | halves[2 * i + 1] << 8, f32_to_f16(got[i]));
    free(blocks);
    free(wanted);
    free(got);
    free(halves);
}

static void test_goldens(void **state)
{
    json_t *golden = json_load_file(TEST_GOLDEN "/widen/widen.json", 0, NULL);
    const json_t *blocks = json_object_get(golden, "blocks");

    (void)state;
    assert_int_equal(json_array_size(blocks), 14);
    for (size_t i = 0; i < json_array_size(blocks); i++)
        check_blocks(json_array_get(blocks, i));
    json_decref(golden);
}

/* A factor that is no number, and values past 65504. */
static void test_what_f16_cannot_hold(void **state)
{
    uint8_t block[66] = {0}, halves[512];
    static const struct {
        uint16_t d;
        bool fits;
    } rows[] = {
        {0x7bff, true}, {0xfbff, true}, {0x7c00, false}, {0xfc00, false}, {0x7e00, false},
    };

    (void)state;
    memset(block, 0xaa, 64); /* ones */
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        block[64] = (uint8_t)rows[i].d;
        block[65] = (uint8_t)(rows[i].d >> 8);
        assert_int_equal(widen_to_f16(DTYPE_TQ2_0, 256, block, halves), rows[i].fits);
    }
    memset(block, 0x77, 17); /* 7: twelve halves of a power of two */
    block[0] = 127 + 13;
    assert_true(widen_to_f16(DTYPE_MXFP4, 32, block, halves)); /* 6 * 2^13 */
    assert_true(f16_to_f32((uint16_t)(halves[0] | halves[1] << 8)) == 49152.0f);
    block[0] = 127 + 14;
    assert_false(widen_to_f16(DTYPE_MXFP4, 32, block, halves));
}

static void test_other_types(void **state)
{
    static const uint32_t types[] = {DTYPE_F32,  DTYPE_Q4_0, DTYPE_Q6_K, DTYPE_Q8_1,
                                     DTYPE_Q8_K, DTYPE_I32,  DTYPE_F64,  DTYPE_NVFP4,
                                     4,          77,         UINT32_MAX};

    (void)state;
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
        assert_false(widen_knows(types[i]));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_goldens),
        cmocka_unit_test(test_what_f16_cannot_hold),
        cmocka_unit_test(test_other_types),
    };
    return cmocka_run_group_tests_name("base_widen", tests, NULL, NULL);
}
