/*
 * file_safetensors.c - the safetensors reader: a right file, a table of wrong headers, every cut,
 * every changed byte, every failing allocation.
 */
#include "file/safetensors.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "base/strbuf.h"

/* A file of this header and so many bytes of data. */
static strbuf make(const char *header, uint64_t data_bytes)
{
    strbuf file = {0};
    const uint64_t length = strlen(header);
    for (int i = 0; i < 8; i++)
        strbuf_putc(&file, (char)(uint8_t)(length >> (8 * i)));
    strbuf_puts(&file, header);
    for (uint64_t i = 0; i < data_bytes; i++)
        strbuf_putc(&file, (char)(uint8_t)(i + 1));
    assert_false(file.failed);
    return file;
}

/* Opens a copy in a block of the exact size, so that reading past it is found. */
static temper_status open_bytes(const void *bytes, size_t size, error *err, safetensors **file,
                                source **src, void **block)
{
    *block = malloc(size > 0 ? size : 1);
    assert_non_null(*block);
    memcpy(*block, bytes, size);
    assert_int_equal(source_open_memory("test.safetensors", *block, size, src, NULL), TEMPER_OK);
    return safetensors_open(*src, file, err);
}

static const char right[] =
    "{\"__metadata__\":{\"format\":\"pt\"},"
    "\"b\":{\"dtype\":\"F16\",\"shape\":[2,3],\"data_offsets\":[16,28]},"
    "\"a\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,16]},"
    "\"empty\":{\"dtype\":\"BF16\",\"shape\":[0,9223372036854775807,7],\"data_offsets\":[28,28]},"
    "\"one\":{\"dtype\":\"I64\",\"shape\":[],\"data_offsets\":[28,36]}}  ";

static void the_right_file(void **state)
{
    strbuf bytes = make(right, 36);
    safetensors *file = NULL;
    source *src = NULL;
    void *block = NULL;
    error err = {0};
    (void)state;
    if (open_bytes(bytes.data, bytes.length, &err, &file, &src, &block) != TEMPER_OK)
        fail_msg("%s", err.text);
    assert_int_equal(safetensors_count(file), 4);
    assert_string_equal(safetensors_at(file, 0)->name, "a");
    const safetensors_tensor *b = safetensors_find(file, "b");
    assert_non_null(b);
    assert_int_equal(b->type, DTYPE_F16);
    assert_true(b->loadable);
    assert_int_equal(b->dim_count, 2);
    assert_int_equal(b->dims[0], 2);
    assert_int_equal(b->dims[1], 3);
    assert_int_equal(b->elements, 6);
    assert_int_equal(b->offset, bytes.length - 36 + 16);
    assert_int_equal(b->bytes, 12);
    assert_int_equal(safetensors_find(file, "empty")->elements, 0);
    const safetensors_tensor *one = safetensors_find(file, "one");
    assert_int_equal(one->dim_count, 0);
    assert_int_equal(one->elements, 1);
    assert_false(one->loadable);
    assert_null(safetensors_find(file, "c"));
    safetensors_close(file);
    safetensors_close(NULL);
    source_close(src);
    free(block);
    strbuf_free(&bytes);
}

#define F32(shape, offsets)                                                                        \
    "{\"a\":{\"dtype\":\"F32\",\"shape\":" shape ",\"data_offsets\":" offsets "}}"

static void wrong_files(void **state)
{
    static const struct {
        const char *header;
        uint64_t data;
        temper_status status;
        const char *text;
    } rows[] = {
        {"", 0, TEMPER_BAD_FILE, "no JSON object"},
        {"[]", 0, TEMPER_BAD_FILE, "no JSON object"},
        {" {}", 0, TEMPER_BAD_FILE, "no JSON object"},
        {"{", 0, TEMPER_BAD_FILE, "no JSON object"},
        {"{} x", 0, TEMPER_BAD_FILE, "no JSON object"},
        {"{\"a\":1}", 0, TEMPER_BAD_FILE, "'a': is not described"},
        {"{\"a\":{}}", 0, TEMPER_BAD_FILE, "is not described"},
        {"{\"__metadata__\":1}", 0, TEMPER_BAD_FILE, "__metadata__"},
        {"{}", 4, TEMPER_BAD_FILE, "end at byte 0 of the data, which has 4"},
        {F32("[1]", "[0,4]"), 5, TEMPER_BAD_FILE, "end at byte 4 of the data, which has 5"},
        {F32("[1]", "[0,4]"), 3, TEMPER_BAD_FILE, "bytes 0 to 4 of 3"},
        {F32("[1]", "[4,8]"), 8, TEMPER_BAD_FILE, "begins at byte 4"},
        {F32("[1]", "[4,0]"), 4, TEMPER_BAD_FILE, "bytes 4 to 0"},
        {F32("[2]", "[0,4]"), 4, TEMPER_BAD_FILE, "has 4 bytes, but 2 elements of F32"},
        {F32("[1]", "[0]"), 4, TEMPER_BAD_FILE, "data_offsets"},
        {F32("[1]", "[0,4,4]"), 4, TEMPER_BAD_FILE, "data_offsets"},
        {F32("[1]", "[0,4.0]"), 4, TEMPER_BAD_FILE, "data_offsets"},
        {F32("[1]", "[-4,0]"), 4, TEMPER_BAD_FILE, "data_offsets"},
        {F32("[1]", "[0,18446744073709551620]"), 4, TEMPER_BAD_FILE, "no JSON object"},
        {F32("[1]", "[0,9223372036854775807]"), 4, TEMPER_BAD_FILE, "of 4"},
        {F32("[-1]", "[0,4]"), 4, TEMPER_BAD_FILE, "dimension"},
        {F32("[1.5]", "[0,4]"), 4, TEMPER_BAD_FILE, "dimension"},
        {F32("{}", "[0,4]"), 4, TEMPER_BAD_FILE, "shape"},
        /* 2^62 x 4 elements of 4 bytes wrap to 0. */
        {F32("[4611686018427387904,4]", "[0,0]"), 0, TEMPER_BAD_FILE, "does not fit 64 bits"},
        {F32("[4611686018427387904]", "[0,0]"), 0, TEMPER_BAD_FILE, "has 0 bytes"},
        {F32("[1,1,1,1,1,1,1,1,1]", "[0,4]"), 4, TEMPER_UNSUPPORTED, "9 dimensions"},
        {"{\"a\":{\"dtype\":\"Q4\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4, TEMPER_UNSUPPORTED,
         "type Q4"},
        {"{\"a\":{\"dtype\":7,\"shape\":[1],\"data_offsets\":[0,4]}}", 4, TEMPER_BAD_FILE, "dtype"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},"
         "\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}}",
         8, TEMPER_BAD_FILE, "duplicate"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},"
         "\"b\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[4,12]}}",
         12, TEMPER_BAD_FILE, "'b' begins at byte 4 of the data, the one before it ends at byte 8"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},"
         "\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}",
         4, TEMPER_BAD_FILE, "begins at byte 0"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        strbuf bytes = make(rows[i].header, rows[i].data);
        safetensors *file = NULL;
        source *src = NULL;
        void *block = NULL;
        error err = {0};
        const temper_status status =
            open_bytes(bytes.data, bytes.length, &err, &file, &src, &block);
        if (status != rows[i].status || strstr(err.text, rows[i].text) == NULL ||
            strstr(err.text, "test.safetensors") == NULL)
            fail_msg("row %zu: %d, %s", i, (int)status, err.text);
        source_close(src);
        free(block);
        strbuf_free(&bytes);
    }
}

static void lengths_of_the_header(void **state)
{
    static const struct {
        uint64_t length;
        const char *text;
    } rows[] = {{100, "100 bytes, but the file has 10"},
                {3, "3 bytes, but the file has 10"},
                {100000001, "more than the format's 100000000"},
                {UINT64_MAX, "more than the format's"},
                {UINT64_C(1) << 63, "more than the format's"}};
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        uint8_t bytes[10] = {0, 0, 0, 0, 0, 0, 0, 0, '{', '}'};
        safetensors *file = NULL;
        source *src = NULL;
        void *block = NULL;
        error err = {0};
        for (int k = 0; k < 8; k++)
            bytes[k] = (uint8_t)(rows[i].length >> (8 * k));
        assert_int_equal(open_bytes(bytes, sizeof bytes, &err, &file, &src, &block),
                         TEMPER_BAD_FILE);
        assert_non_null(strstr(err.text, rows[i].text));
        source_close(src);
        free(block);
    }
}

static void every_cut_and_every_changed_byte(void **state)
{
    strbuf bytes = make(right, 36);
    (void)state;
    for (size_t i = 0; i < 2 * bytes.length; i++) {
        safetensors *file = NULL;
        source *src = NULL;
        void *block = NULL;
        error err = {0};
        const bool cut = i < bytes.length;
        const size_t size = cut ? i : bytes.length;
        char *copy = malloc(bytes.length);
        assert_non_null(copy);
        memcpy(copy, bytes.data, bytes.length);
        if (!cut)
            copy[i - bytes.length] ^= (char)(i % 7 == 0 ? 0x80 : 0x11);
        const temper_status status = open_bytes(copy, size, &err, &file, &src, &block);
        if (status == TEMPER_OK)
            for (uint64_t t = 0; t < safetensors_count(file); t++) {
                const safetensors_tensor *tensor = safetensors_at(file, t);
                assert_true(tensor->offset <= size && tensor->bytes <= size - tensor->offset);
            }
        else
            assert_true(err.text[0] != '\0');
        assert_false(cut && status == TEMPER_OK);
        safetensors_close(file);
        source_close(src);
        free(block);
        free(copy);
    }
    strbuf_free(&bytes);
}

static void every_failing_allocation(void **state)
{
    strbuf bytes = make(right, 36);
    temper_status status = TEMPER_NO_MEMORY;
    (void)state;
    for (uint64_t n = 1; status != TEMPER_OK; n++) {
        safetensors *file = NULL;
        source *src = NULL;
        error err = {0};
        assert_int_equal(source_open_memory("m", bytes.data, bytes.length, &src, NULL), TEMPER_OK);
        mem_fail_at(n, 1);
        status = safetensors_open(src, &file, &err);
        mem_fail_at(0, 0);
        assert_true(status == TEMPER_OK || status == TEMPER_NO_MEMORY);
        safetensors_close(file);
        source_close(src);
        assert_true(n < 100);
    }
    strbuf_free(&bytes);
    assert_int_equal(mem_live_bytes(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_right_file),
        cmocka_unit_test(wrong_files),
        cmocka_unit_test(lengths_of_the_header),
        cmocka_unit_test(every_cut_and_every_changed_byte),
        cmocka_unit_test(every_failing_allocation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
