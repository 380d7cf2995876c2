/*
 * file_gguf.c - the GGUF reader on files built here: everything a right one holds, a table of wrong
 * ones, every cut, every changed byte, every failing allocation.
 */
#include "file/gguf.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "support/gguf_build.h"

/* ---- the right file -------------------------------------------------------------------------- */

static void put_scalars(strbuf *file)
{
    gguf_put_key(file, "general.architecture", GGUF_STRING);
    gguf_put_string(file, "test");
    gguf_put_key(file, "u8", GGUF_UINT8);
    strbuf_append(file, "\xff", 1);
    gguf_put_key(file, "i8", GGUF_INT8);
    strbuf_append(file, "\xff", 1);
    gguf_put_key(file, "u16", GGUF_UINT16);
    strbuf_append(file, "\xfe\xff", 2);
    gguf_put_key(file, "i16", GGUF_INT16);
    strbuf_append(file, "\xfe\xff", 2);
    gguf_put_key_u32(file, "u32", 0xfffffffd);
    gguf_put_key(file, "i32", GGUF_INT32);
    gguf_put_u32(file, 0xfffffffd);
    gguf_put_key(file, "u64", GGUF_UINT64);
    gguf_put_u64(file, UINT64_MAX - 3);
    gguf_put_key(file, "i64", GGUF_INT64);
    gguf_put_u64(file, UINT64_MAX - 3);
    gguf_put_key(file, "f32", GGUF_FLOAT32);
    gguf_put_f32(file, -0.15625f);
    gguf_put_key(file, "f64", GGUF_FLOAT64);
    gguf_put_u64(file, 0x7e37e43c8800759cu);   /* 1e300 */
    gguf_put_key(file, "yes", GGUF_BOOL);
    strbuf_putc(file, 1);
    gguf_put_key(file, "no", GGUF_BOOL);
    strbuf_putc(file, 0);
}

static void put_arrays(strbuf *file)
{
    gguf_put_array(file, "texts", GGUF_STRING, 3);
    gguf_put_string(file, "one");
    gguf_put_string(file, "");
    gguf_put_u64(file, 3);
    strbuf_append(file, "\0\xff" "3", 3);
    gguf_put_array(file, "ints", GGUF_INT32, 2);
    gguf_put_u32(file, 7);
    gguf_put_u32(file, 0xffffffff);
    gguf_put_array(file, "floats", GGUF_FLOAT32, 2);
    gguf_put_f32(file, 0.5f);
    gguf_put_f32(file, -2.0f);
    gguf_put_array(file, "bools", GGUF_BOOL, 2);
    strbuf_append(file, "\0\1", 2);
    gguf_put_array(file, "scores", GGUF_UINT8, 2);
    strbuf_append(file, "\xfe\1", 2);
    gguf_put_array(file, "empty", GGUF_STRING, 0);
}

enum { RIGHT_KEYS = 13 + 6, RIGHT_DATA = 32 + 20 + 12 + 8 };

static void build_right(strbuf *file, uint32_t version)
{
    gguf_put_header(file, "GGUF", version, 3, RIGHT_KEYS);
    put_scalars(file);
    put_arrays(file);
    gguf_put_tensor(file, "matrix", 2, (const uint64_t[]){4, 2}, DTYPE_F32, 0);
    gguf_put_tensor(file, "blocks", 1, (const uint64_t[]){32}, DTYPE_Q4_1, 32);
    gguf_put_tensor(file, "cube", 4, (const uint64_t[]){1, 2, 1, 2}, DTYPE_F16, 64);
    gguf_put_padding(file, 32);
    for (int i = 0; i < RIGHT_DATA; i++)
        strbuf_putc(file, (char)i);
    assert_false(file->failed);
}

/* Opens bytes that end where their heap block ends, so that a sanitizer sees every byte too far. */
static temper_status open_exact(const void *bytes, size_t length, error *err, uint64_t *sum)
{
    const uint64_t live = mem_live_bytes();
    uint8_t *exact = malloc(length > 0 ? length : 1);
    source *src = NULL;
    gguf_file *file = NULL;

    assert_non_null(exact);
    memcpy(exact, bytes, length);
    assert_int_equal(source_open_memory("test.gguf", exact, length, &src, err), TEMPER_OK);
    const temper_status status = gguf_open(src, &file, err);
    if (status == TEMPER_OK) {
        *sum = gguf_walk(file);
        gguf_close(file);
    } else {
        assert_null(file);
        assert_int_equal(err->status, status);
    }
    free(exact);
    assert_int_equal(mem_live_bytes(), live);
    return status;
}

static gguf_file *open_built(const strbuf *built)
{
    source *src = NULL;
    gguf_file *file = NULL;
    error err = {0};

    assert_int_equal(source_open_memory("test.gguf", built->data, built->length, &src, &err), 0);
    if (gguf_open(src, &file, &err) != TEMPER_OK)
        fail_msg("%s", err.text);
    return file;
}

static void check_string(gguf_string got, const char *wanted, size_t length)
{
    assert_int_equal(got.length, length);
    assert_memory_equal(got.data, wanted, length);
}

static void test_values(void **state)
{
    strbuf built = {0};

    (void)state;
    build_right(&built, 3);
    gguf_file *file = open_built(&built);
    assert_int_equal(gguf_version(file), 3);
    assert_string_equal(gguf_name(file), "test.gguf");
    assert_int_equal(gguf_alignment(file), 32);
    assert_int_equal(gguf_value_count(file), RIGHT_KEYS);
    check_string(gguf_value_at(file, 1)->key, "u8", 2);
    check_string(gguf_find(file, "general.architecture")->as.string, "test", 4);
    assert_int_equal(gguf_find(file, "u8")->as.u, 255);
    assert_int_equal(gguf_find(file, "i8")->as.i, -1);
    assert_int_equal(gguf_find(file, "u16")->as.u, 0xfffe);
    assert_int_equal(gguf_find(file, "i16")->as.i, -2);
    assert_int_equal(gguf_find(file, "u32")->as.u, 0xfffffffd);
    assert_int_equal(gguf_find(file, "i32")->as.i, -3);
    assert_true(gguf_find(file, "u64")->as.u == UINT64_MAX - 3);
    assert_int_equal(gguf_find(file, "i64")->as.i, -4);
    assert_true(gguf_find(file, "f32")->as.f == -0.15625);
    assert_true(gguf_find(file, "f64")->as.f == 1e300);
    assert_true(gguf_find(file, "yes")->as.b);
    assert_false(gguf_find(file, "no")->as.b);
    assert_null(gguf_find(file, "u"));
    assert_null(gguf_find(file, "u88"));
    assert_null(gguf_find(file, ""));

    const gguf_value *texts = gguf_find(file, "texts");
    assert_int_equal(texts->type, GGUF_ARRAY);
    assert_int_equal(texts->element, GGUF_STRING);
    assert_int_equal(texts->count, 3);
    check_string(gguf_array_string(texts, 0), "one", 3);
    check_string(gguf_array_string(texts, 1), "", 0);
    check_string(gguf_array_string(texts, 2), "\0\xff" "3", 3);
    assert_int_equal(gguf_array_int(gguf_find(file, "ints"), 0), 7);
    assert_int_equal(gguf_array_int(gguf_find(file, "ints"), 1), -1);
    assert_true(gguf_array_float(gguf_find(file, "floats"), 1) == -2.0);
    assert_int_equal(gguf_array_int(gguf_find(file, "bools"), 1), 1);
    assert_int_equal(gguf_find(file, "scores")->element, GGUF_UINT8);
    assert_int_equal(gguf_array_int(gguf_find(file, "scores"), 0), 254);
    assert_int_equal(gguf_find(file, "empty")->count, 0);
    assert_true(gguf_host_bytes(file) <= mem_live_bytes());
    gguf_close(file);
    strbuf_free(&built);
}

static void test_tensors(void **state)
{
    strbuf built = {0};
    uint8_t bytes[32];
    error err = {0};

    (void)state;
    build_right(&built, 2);
    gguf_file *file = open_built(&built);
    const uint64_t data = built.length - RIGHT_DATA;
    assert_int_equal(gguf_version(file), 2);
    assert_int_equal(gguf_tensor_count(file), 3);
    const gguf_tensor *matrix = gguf_find_tensor(file, "matrix");
    const gguf_tensor *blocks = gguf_find_tensor(file, "blocks");
    const gguf_tensor *cube = gguf_find_tensor(file, "cube");
    assert_ptr_equal(matrix, gguf_tensor_at(file, 0));
    assert_ptr_equal(cube, gguf_tensor_at(file, 2));
    assert_null(gguf_find_tensor(file, "matri"));
    assert_int_equal(matrix->dim_count, 2);
    assert_int_equal(matrix->dims[0], 4);
    assert_int_equal(matrix->dims[1], 2);
    assert_int_equal(matrix->dims[2], 1);
    assert_int_equal(matrix->elements, 8);
    assert_int_equal(matrix->bytes, 32);
    assert_int_equal(matrix->offset, data);
    assert_int_equal(blocks->type, DTYPE_Q4_1);
    assert_int_equal(blocks->bytes, 20);
    assert_int_equal(blocks->offset, data + 32);
    assert_int_equal(cube->elements, 4);
    assert_int_equal(cube->dims[3], 2);
    assert_int_equal(gguf_read_tensor(file, blocks, 4, bytes, 16, &err), TEMPER_OK);
    for (int i = 0; i < 16; i++)
        assert_int_equal(bytes[i], 36 + i);
    gguf_close(file);
    strbuf_free(&built);
}

static void expect_bad_key(error *err, temper_status status, const char *key, const char *reason)
{
    assert_int_equal(status, TEMPER_BAD_FILE);
    assert_non_null(strstr(err->text, "test.gguf"));
    assert_non_null(strstr(err->text, key));
    if (strstr(err->text, reason) == NULL)
        fail_msg("'%s' says nothing of '%s'", err->text, reason);
    error_clear(err);
}

static void test_typed_look_ups(void **state)
{
    strbuf built = {0};
    error err = {0};
    uint32_t u32 = 5;
    uint64_t u64 = 5;
    float f32 = 5;
    bool truth = true, found = true;
    gguf_string text = {"kept", 4};

    (void)state;
    build_right(&built, 3);
    gguf_file *f = open_built(&built);
    assert_int_equal(gguf_get_u32(f, "u16", &u32, &found, &err), TEMPER_OK);
    assert_true(found && u32 == 0xfffe);
    assert_int_equal(gguf_get_u64(f, "u64", &u64, NULL, &err), TEMPER_OK);
    assert_true(u64 == UINT64_MAX - 3);
    assert_int_equal(gguf_get_f32(f, "f32", &f32, NULL, &err), TEMPER_OK);
    assert_true(f32 == -0.15625f);
    assert_int_equal(gguf_get_bool(f, "no", &truth, NULL, &err), TEMPER_OK);
    assert_false(truth);
    assert_int_equal(gguf_get_string(f, "general.architecture", &text, &found, &err), TEMPER_OK);
    check_string(text, "test", 4);

    assert_int_equal(gguf_get_u32(f, "none", &u32, &found, &err), TEMPER_OK);
    assert_true(!found && u32 == 0xfffe);
    assert_int_equal(gguf_get_string(f, "none", &text, &found, &err), TEMPER_OK);
    assert_int_equal(text.length, 4);
    expect_bad_key(&err, gguf_get_u32(f, "none", &u32, NULL, &err), "none", "missing");
    expect_bad_key(&err, gguf_get_f32(f, "none", &f32, NULL, &err), "none", "missing");
    expect_bad_key(&err, gguf_get_u32(f, "u64", &u32, &found, &err), "u64", "uint32");
    expect_bad_key(&err, gguf_get_u32(f, "i8", &u32, &found, &err), "i8", "-1");
    expect_bad_key(&err, gguf_get_u64(f, "i64", &u64, &found, &err), "i64", "-4");
    expect_bad_key(&err, gguf_get_u64(f, "f32", &u64, &found, &err), "f32", "float32, not uint64");
    expect_bad_key(&err, gguf_get_u32(f, "yes", &u32, &found, &err), "yes", "bool, not uint32");
    expect_bad_key(&err, gguf_get_f32(f, "f64", &f32, &found, &err), "f64", "1e+300");
    expect_bad_key(&err, gguf_get_f32(f, "u8", &f32, &found, &err), "u8", "uint8, not float32");
    expect_bad_key(&err, gguf_get_bool(f, "u8", &truth, &found, &err), "u8", "uint8, not bool");
    expect_bad_key(&err, gguf_get_string(f, "texts", &text, &found, &err), "texts",
                   "array of string, not string");
    assert_true(u32 == 0xfffe && u64 == UINT64_MAX - 3 && f32 == -0.15625f && !truth);
    gguf_close(f);
    strbuf_free(&built);
}

/* ---- wrong files ----------------------------------------------------------------------------- */

/* A key as bytes, its parts written with their lengths; only the low byte of a number is given. */
#define U32(low) low "\0\0\0"
#define U64(low) low "\0\0\0\0\0\0\0"
#define RAW(bytes) bytes, sizeof(bytes) - 1
#define HUGE "\0\0\0\0\0\0\0\x80"

typedef struct tensor_row {
    const char *name;
    uint32_t dim_count;
    uint64_t dims[4];
    uint32_t type;
    uint64_t offset;
} tensor_row;

/* What differs from a right file of one key and two tensors of 32 bytes each. */
typedef struct recipe {
    const char *text;           /* in the message; NULL: the file is right */
    temper_status status;       /* 0 stands for TEMPER_BAD_FILE */
    const char *magic;
    uint32_t version;
    uint64_t tensor_count, key_count;
    const char *key;            /* bytes of one more key */
    size_t key_length;
    tensor_row a, b;
    uint64_t cut, more;         /* bytes taken off the end or added to it */
    bool no_tensors;
} recipe;

static void build_recipe(strbuf *file, const recipe *r)
{
    static const tensor_row right_a = {"a", 2, {4, 2}, DTYPE_F32, 0};
    static const tensor_row right_b = {"b", 1, {8}, DTYPE_F32, 32};
    const tensor_row *a = r->a.name ? &r->a : &right_a, *b = r->b.name ? &r->b : &right_b;
    const uint64_t tensors = r->no_tensors ? 0 : 2;

    gguf_put_header(file, r->magic ? r->magic : "GGUF", r->version ? r->version : 3,
                    r->tensor_count ? r->tensor_count : tensors,
                    r->key_count ? r->key_count : 1u + (r->key != NULL));
    gguf_put_key_u32(file, "first", 1);
    strbuf_append(file, r->key, r->key_length);
    if (!r->no_tensors) {
        gguf_put_tensor(file, a->name, a->dim_count, a->dims, a->type, a->offset);
        gguf_put_tensor(file, b->name, b->dim_count, b->dims, b->type, b->offset);
        gguf_put_padding(file, 32);
        for (int i = 0; i < 64; i++)
            strbuf_putc(file, (char)i);
    }
    for (uint64_t i = 0; i < r->more; i++)
        strbuf_putc(file, '!');
    assert_true(!file->failed && r->cut < file->length);
    file->length -= r->cut;
}

static const uint64_t big = (uint64_t)1 << 42;

static void check_recipes(const recipe *rows, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        strbuf built = {0};
        error err = {0};
        uint64_t sum = 0;
        const temper_status wanted = rows[i].text == NULL ? TEMPER_OK
                                     : rows[i].status     ? rows[i].status
                                                          : TEMPER_BAD_FILE;
        build_recipe(&built, &rows[i]);
        const temper_status got = open_exact(built.data, built.length, &err, &sum);
        if (got != wanted)
            fail_msg("row %d: status %d, '%s'", (int)i, (int)got, err.text);
        if (wanted != TEMPER_OK && (strstr(err.text, rows[i].text) == NULL ||
                                    strstr(err.text, "test.gguf: ") != err.text ||
                                    strstr(err.text + 1, "test.gguf: ") != NULL))
            fail_msg("row %d: '%s' instead of '%s'", (int)i, err.text, rows[i].text);
        strbuf_free(&built);
    }
}

static void test_wrong_headers(void **state)
{
    static const recipe rows[] = {
        {.text = NULL},
        {.no_tensors = true},
        {.more = 5},                                   /* bytes after the last tensor */
        {.no_tensors = true, .more = 1},
        {.text = "no GGUF file: it starts with the bytes 47 47 4d 4c", .magic = "GGML"},
        {.text = "big-endian", .status = TEMPER_UNSUPPORTED, .version = 0x03000000},
        {.text = "big-endian", .status = TEMPER_UNSUPPORTED, .magic = "FUGG"},
        {.text = "version 1;", .status = TEMPER_UNSUPPORTED, .version = 1},
        {.text = "version 4;", .status = TEMPER_UNSUPPORTED, .version = 4},
        {.text = "18446744073709551615 tensors, but only", .tensor_count = UINT64_MAX},
        {.text = "18446744073709551615 keys, but only", .key_count = UINT64_MAX},
        {.text = "9 keys, but only", .key_count = 9, .no_tensors = true},
        {.text = "tensor 'b': its 32 bytes at offset 32", .cut = 1},
        {.text = "the header takes 8 bytes at byte 16", .no_tensors = true, .cut = 25},
        {.text = "key 2 of 2", .key_count = 2, .no_tensors = true, .more = 12},
    };

    (void)state;
    check_recipes(rows, sizeof rows / sizeof rows[0]);
}

static void test_wrong_keys(void **state)
{
    static const recipe rows[] = {
        {.text = "key 'first' is there twice", .key = RAW(U64("\5") "first" U32("\7") "\1")},
        {.text = "'k': has the unknown value type 13", .key = RAW(U64("\1") "k" U32("\x0d") "\1")},
        {.text = "'k': has the unknown value type 4294967295",
         .key = RAW(U64("\1") "k" "\xff\xff\xff\xff" "\1")},
        {.text = "'k': bool 1 of 1 is 2", .key = RAW(U64("\1") "k" U32("\7") "\2")},
        {.text = "'k': bool 2 of 2 is 255",
         .key = RAW(U64("\1") "k" U32("\x09") U32("\7") U64("\2") "\1\xff")},
        {.text = "'k': is an array of arrays", .status = TEMPER_UNSUPPORTED,
         .key = RAW(U64("\1") "k" U32("\x09") U32("\x09") U64("\1") U32("\0") U64("\1") "\1")},
        {.text = "'k': is an array of the unknown type 14",
         .key = RAW(U64("\1") "k" U32("\x09") U32("\x0e") U64("\0"))},
        {.text = "array of 9223372036854775808 elements of type uint16",
         .key = RAW(U64("\1") "k" U32("\x09") U32("\2") HUGE)},
        {.text = "array of 9223372036854775808 elements of type string",
         .key = RAW(U64("\1") "k" U32("\x09") U32("\x08") HUGE)},
        {.text = "'k': the string takes 9223372036854775808 bytes",
         .key = RAW(U64("\1") "k" U32("\x08") HUGE)},
        {.text = "key 2 of 2: its name takes 9223372036854775808 bytes", .key = RAW(HUGE "k")},
        {.text = "'k': a string of the array takes 9223372036854775808 bytes",
         .key = RAW(U64("\1") "k" U32("\x09") U32("\x08") U64("\1") HUGE)},
        {.text = "general.alignment' is of type string, not uint64",
         .key = RAW(U64("\x11") "general.alignment" U32("\x08") U64("\2") "32")},
        {.text = "general.alignment' is of type array of uint8",
         .key = RAW(U64("\x11") "general.alignment" U32("\x09") U32("\0") U64("\1") "\x20")},
        {.text = "general.alignment' is 0; a power of two",
         .key = RAW(U64("\x11") "general.alignment" U32("\4") U32("\0"))},
        {.text = "general.alignment' is 24; a power of two",
         .key = RAW(U64("\x11") "general.alignment" U32("\4") U32("\x18"))},
        {.text = "general.alignment' is 4; a power of two of at least 8",
         .key = RAW(U64("\x11") "general.alignment" U32("\4") U32("\4"))},
        {.text = "general.alignment' (int8) is -32",
         .key = RAW(U64("\x11") "general.alignment" U32("\1") "\xe0")},
        {.text = "no multiple of the alignment of 64",
         .key = RAW(U64("\x11") "general.alignment" U32("\4") U32("\x40"))},
        {.text = "reach past the end",   /* an alignment of 2^63 */
         .key = RAW(U64("\x11") "general.alignment" U32("\x0a") HUGE)},
        {.text = NULL, .key = RAW(U64("\x11") "general.alignment" U32("\4") U32("\x20"))},
        {.text = NULL, .key = RAW(U64("\x11") "general.alignment" U32("\x0a") HUGE),
         .no_tensors = true},
        {.text = NULL, .key = RAW(U64("\0") U32("\7") "\1")},
        {.text = "key 'k\\xff\\x0d': has the unknown",
         .key = RAW(U64("\3") "k\xff\r" U32("\x0d") "\1")},
    };

    (void)state;
    check_recipes(rows, sizeof rows / sizeof rows[0]);
}

static void test_wrong_tensors(void **state)
{
    const recipe rows[] = {
        {.text = "tensor 'a': has 9 dimensions", .a = {"a", 9, {1, 1, 1, 1}, DTYPE_F32, 0}},
        {.text = "tensor 'a': has 4294967295 dimensions",
         .a = {"a", UINT32_MAX, {1, 1, 1, 1}, DTYPE_F32, 0}},
        {.text = "tensor 'a': has 0 dimensions", .a = {"a", 0, {1}, DTYPE_F32, 0}},
        {.text = "tensor 'a': dimension 2 of 2 is 0", .a = {"a", 2, {4, 0}, DTYPE_F32, 0}},
        {.text = "tensor 'a': dimension 1 of 1 is 0", .a = {"a", 1, {0}, DTYPE_Q4_0, 0}},
        {.text = "4398046511104 x 4194304 x 1 x 1 elements of F32 do not fit",
         .a = {"a", 2, {big, (uint64_t)1 << 22}, DTYPE_F32, 0}},
        {.text = "do not fit", .a = {"a", 2, {big, ((uint64_t)1 << 20) + 1}, DTYPE_F32, 0}},
        {.text = "do not fit", .a = {"a", 4, {big, big, big, big}, DTYPE_F16, 0}},
        {.text = "do not fit", .a = {"a", 1, {(uint64_t)1 << 62}, DTYPE_F32, 0}},
        {.text = "do not fit", .a = {"a", 2, {32, (uint64_t)1 << 60}, DTYPE_Q4_0, 0}},
        {.text = "reach past the end of the file",
         .a = {"a", 1, {((uint64_t)1 << 63) - 1}, DTYPE_I8, 0}},
        {.text = "reach past the end of the file", .a = {"a", 1, {big}, DTYPE_F32, 0}},
        /* 2^63 - 1 bytes, padded or added to an offset, must not wrap. */
        {.text = "reach past the end of the file",
         .a = {"a", 1, {((uint64_t)1 << 63) - 1}, DTYPE_I8, (uint64_t)1 << 63}},
        {.text = "tensor 'b': its 32 bytes at offset 64 of the data (from byte",
         .b = {"b", 1, {8}, DTYPE_F32, 64}},
        {.text = "tensor 'b': its offset 65 is no multiple of the alignment of 32",
         .b = {"b", 1, {8}, DTYPE_F32, 65}},
        {.text = "reach past the end", .b = {"b", 1, {8}, DTYPE_F32, 96}},
        {.text = "reach past the end", .b = {"b", 1, {8}, DTYPE_F32, UINT64_MAX - 31}},
        {.text = "reach past the end", .b = {"b", 1, {9}, DTYPE_F32, 32}},
        {.text = "its offset 8 is no multiple", .b = {"b", 1, {4}, DTYPE_F32, 8}},
        {.text = "tensor 'a' is there twice", .b = {"a", 1, {8}, DTYPE_F32, 32}},
        {.text = "tensor 'a' is there twice", .b = {"a", 1, {8}, DTYPE_F32, 0}},
        {.text = "'a' (36 bytes at byte ", .a = {"a", 1, {9}, DTYPE_F32, 0}},
        {.text = "overlap", .b = {"b", 1, {8}, DTYPE_F32, 0}},
        {.text = "rows have 576 elements, no multiple of the block of 256 of Q4_K",
         .a = {"a", 2, {576, 1}, DTYPE_Q4_K, 0}},
        {.text = "rows have 2880 elements, no multiple of the block of 256 of Q6_K",
         .a = {"a", 2, {2880, 64}, DTYPE_Q6_K, 0}},
        {.text = "rows have 31 elements, no multiple of the block of 32 of Q8_0",
         .a = {"a", 2, {31, 32}, DTYPE_Q8_0, 0}},
        {.text = "type is 4 (Q4_2)", .status = TEMPER_UNSUPPORTED, .a = {"a", 1, {32}, 4, 0}},
        {.text = "type is 77 (type 77)", .status = TEMPER_UNSUPPORTED, .a = {"a", 1, {32}, 77, 0}},
        {.text = NULL, .a = {"a", 1, {32}, DTYPE_IQ4_NL, 0}},      /* listed, not loadable */
        {.text = NULL, .a = {"a", 4, {1, 1, 1, 1}, DTYPE_I8, 0}},  /* and a gap after it */
        {.text = NULL, .a = {"a", 1, {8}, DTYPE_F32, 32}, .b = {"b", 1, {8}, DTYPE_F32, 0}},
    };

    (void)state;
    check_recipes(rows, sizeof rows / sizeof rows[0]);
}

static void test_long_names(void **state)
{
    char *name = calloc(1, 65537);

    (void)state;
    assert_non_null(name);
    memset(name, 'n', 65536);
    for (size_t length = 65535; length <= 65536; length++)
        for (int tensor = 0; tensor < 2; tensor++) {
            strbuf built = {0};
            error err = {0};
            uint64_t sum = 0;
            name[65535] = length == 65535 ? '\0' : 'n';
            gguf_put_header(&built, "GGUF", 3, (uint64_t)tensor, 1);
            gguf_put_key_u32(&built, tensor ? "k" : name, 1);
            if (tensor)
                gguf_put_tensor(&built, name, 1, (const uint64_t[]){1}, DTYPE_I8, 0);
            gguf_put_padding(&built, 32);
            strbuf_putc(&built, 0);
            const temper_status got = open_exact(built.data, built.length, &err, &sum);
            assert_int_equal(got, length == 65535 ? TEMPER_OK : TEMPER_BAD_FILE);
            if (got != TEMPER_OK)
                assert_non_null(strstr(err.text, "65536 bytes, more than the limit of 65535"));
            strbuf_free(&built);
        }
    free(name);
}

/* ---- everything that can be done to a right file --------------------------------------------- */

static void test_every_prefix(void **state)
{
    strbuf built = {0};

    (void)state;
    build_right(&built, 3);
    for (size_t length = 0; length <= built.length; length++) {
        error err = {0};
        uint64_t sum = 0;
        const temper_status status = open_exact(built.data, length, &err, &sum);
        if ((status == TEMPER_OK) != (length == built.length))
            fail_msg("%d of %d bytes: %s", (int)length, (int)built.length, err.text);
    }
    strbuf_free(&built);
}

static void test_every_byte_changed(void **state)
{
    strbuf built = {0};
    int opened = 0, refused = 0;

    (void)state;
    build_right(&built, 3);
    for (size_t at = 0; at < built.length; at++) {
        const uint8_t old = (uint8_t)built.data[at];
        const uint8_t values[] = {0,    1,    2,    8,    9,    13,  0x1f, 0x20,
                                  0x7f, 0x80, 0xc3, 0xff, (uint8_t)(old ^ 1), (uint8_t)(old ^ 0x80),
                                  (uint8_t)(old + 1), (uint8_t)(old - 1)};
        for (size_t i = 0; i < sizeof values; i++) {
            error err = {0};
            uint64_t sum = 0;
            built.data[at] = (char)values[i];
            if (open_exact(built.data, built.length, &err, &sum) == TEMPER_OK)
                opened++;
            else
                refused++;
        }
        built.data[at] = (char)old;
    }
    assert_true(opened > 1000 && refused > 1000);
    strbuf_free(&built);
}

static void test_every_allocation_fails(void **state)
{
    strbuf built = {0};

    (void)state;
    build_right(&built, 3);
    for (int all_after = 0; all_after < 2; all_after++) {
        const uint64_t live = mem_live_bytes();
        bool opened = false;
        uint64_t n = 0;
        while (!opened) {
            source *src = NULL;
            gguf_file *file = NULL;
            error err = {0};
            mem_fail_at(++n, all_after);
            temper_status status =
                source_open_memory("test.gguf", built.data, built.length, &src, &err);
            if (status == TEMPER_OK)
                status = gguf_open(src, &file, &err);
            mem_fail_at(0, 0);
            opened = status == TEMPER_OK;
            if (opened) {
                gguf_close(file);
            } else {
                assert_int_equal(status, TEMPER_NO_MEMORY);
                assert_non_null(strstr(err.text, "test.gguf"));
            }
            assert_int_equal(mem_live_bytes(), live);
        }
        assert_true(n > 8);
    }
    strbuf_free(&built);
}

/* ---- sources that are large, or fail --------------------------------------------------------- */

/* Bytes, then zeros up to any size. */
typedef struct long_source {
    source base;
    const strbuf *bytes;
    uint64_t fail_at;   /* a read that reaches this position fails; 0: none */
    bool closed;
} long_source;

static temper_status long_read(source *self, uint64_t offset, void *out, uint64_t size, error *err)
{
    const long_source *s = (const long_source *)self;

    if (s->fail_at != 0 && offset + size > s->fail_at)
        return error_set(err, TEMPER_IO, "%s: the disk is gone", self->name);
    for (uint64_t i = 0; i < size; i++, offset++)
        ((char *)out)[i] = offset < s->bytes->length ? s->bytes->data[offset] : '\0';
    return TEMPER_OK;
}

static void long_close(source *self)
{
    ((long_source *)self)->closed = true;
}

static void expect_long_refused(const strbuf *bytes, uint64_t size, uint64_t fail_at,
                                temper_status wanted, const char *text)
{
    const uint64_t live = mem_live_bytes();
    long_source s = {.base = {.name = "long.gguf",
                              .size = size,
                              .read_at = long_read,
                              .close = long_close},
                     .bytes = bytes,
                     .fail_at = fail_at};
    gguf_file *file = NULL;
    error err = {0};

    mem_reset_peak();
    assert_int_equal(gguf_open(&s.base, &file, &err), wanted);
    assert_true(s.closed);
    if (strstr(err.text, text) == NULL || strstr(err.text, "long.gguf: ") != err.text ||
        strstr(err.text + 1, "long.gguf") != NULL)
        fail_msg("'%s' instead of '%s'", err.text, text);
    assert_int_equal(mem_live_bytes(), live);
    assert_true(mem_peak_bytes() - live < (uint64_t)1 << 21);
}

/* What a huge file could hold, temper does not take: refused before anything is allocated for it.
 * */
static void test_limits(void **state)
{
    const uint64_t size = (uint64_t)1 << 50;
    strbuf built = {0};

    (void)state;
    gguf_put_header(&built, "GGUF", 3, ((uint64_t)1 << 20) + 1, 0);
    expect_long_refused(&built, size, 0, TEMPER_UNSUPPORTED, "1048577 tensors, more than the");
    strbuf_clear(&built);
    gguf_put_header(&built, "GGUF", 3, 0, ((uint64_t)1 << 20) + 1);
    expect_long_refused(&built, size, 0, TEMPER_UNSUPPORTED, "1048577 keys, more than the limit");
    strbuf_clear(&built);
    gguf_put_header(&built, "GGUF", 3, 0, 1);
    gguf_put_key(&built, "k", GGUF_STRING);
    gguf_put_u64(&built, (uint64_t)1 << 40);
    expect_long_refused(&built, size, 0, TEMPER_UNSUPPORTED, "'k': the string takes 1099511627776");
    strbuf_clear(&built);
    gguf_put_header(&built, "GGUF", 3, 0, 1);
    gguf_put_array(&built, "k", GGUF_UINT16, (uint64_t)1 << 40);
    expect_long_refused(&built, size, 0, TEMPER_UNSUPPORTED, "larger than the limit of 268435456");
    strbuf_clear(&built);
    gguf_put_header(&built, "GGUF", 3, 0, 1);
    gguf_put_array(&built, "k", GGUF_UINT16, (uint64_t)1 << 50);
    expect_long_refused(&built, size, 0, TEMPER_BAD_FILE, "array of 1125899906842624 elements");
    strbuf_free(&built);
}

static void test_failing_source(void **state)
{
    strbuf built = {0};

    (void)state;
    build_right(&built, 3);
    expect_long_refused(&built, built.length, 20, TEMPER_IO, "the disk is gone");
    strbuf_clear(&built);
    gguf_put_header(&built, "GGUF", 3, 0, 2);
    gguf_put_key_u32(&built, "first", 1);
    gguf_put_array(&built, "k", GGUF_UINT8, 400000);
    expect_long_refused(&built, 500000, 300000, TEMPER_IO, "the disk is gone");
    strbuf_free(&built);
}

static gguf_string text_of(uint64_t i, char out[64])
{
    gguf_string text = {out, 1 + i % 60};

    for (uint64_t j = 0; j < text.length; j++)
        out[j] = (char)('a' + (i * 7 + j) % 26);
    return text;
}

/* A vocabulary of 262144 strings and as many scores: longer than the reader's buffer many times,
 * with strings that lie across its ends, and a string that is longer than it. */
static void test_large_arrays(void **state)
{
    enum { COUNT = 262144, LONG = 700001 };
    strbuf built = {0};
    char text[64];

    (void)state;
    gguf_put_header(&built, "GGUF", 3, 0, 3);
    gguf_put_array(&built, "tokens", GGUF_STRING, COUNT);
    for (uint64_t i = 0; i < COUNT; i++) {
        const gguf_string wanted = text_of(i, text);
        gguf_put_u64(&built, wanted.length);
        strbuf_append(&built, wanted.data, wanted.length);
    }
    gguf_put_array(&built, "scores", GGUF_FLOAT32, COUNT);
    for (int i = 0; i < COUNT; i++)
        gguf_put_f32(&built, (float)-i);
    gguf_put_key(&built, "long", GGUF_STRING);
    gguf_put_u64(&built, LONG);
    for (int i = 0; i < LONG; i++)
        strbuf_putc(&built, (char)('0' + i % 10));

    gguf_file *file = open_built(&built);
    const gguf_value *tokens = gguf_find(file, "tokens"), *scores = gguf_find(file, "scores");
    assert_true(tokens->count == COUNT && scores->count == COUNT);
    for (uint64_t i = 0; i < COUNT; i++) {
        const gguf_string wanted = text_of(i, text), got = gguf_array_string(tokens, i);
        if (got.length != wanted.length || memcmp(got.data, wanted.data, got.length) != 0)
            fail_msg("string %d differs", (int)i);
        if (gguf_array_float(scores, i) != -(double)i)
            fail_msg("score %d differs", (int)i);
    }
    const gguf_string text_long = gguf_find(file, "long")->as.string;
    assert_int_equal(text_long.length, LONG);
    for (int i = 0; i < LONG; i++)
        if (text_long.data[i] != '0' + i % 10)
            fail_msg("byte %d differs", i);
    assert_true(gguf_host_bytes(file) < built.length + COUNT * sizeof(gguf_string) + (1 << 18));
    gguf_close(file);
    strbuf_free(&built);
}

/* Many keys and tensors, in no order, are all found. */
static void test_many_names(void **state)
{
    enum { COUNT = 5000 };
    strbuf built = {0}, name = {0};

    (void)state;
    gguf_put_header(&built, "GGUF", 3, COUNT, COUNT);
    for (uint64_t i = 0; i < COUNT; i++) {
        strbuf_clear(&name);
        strbuf_printf(&name, "key.%d", (int)(i * 1237 % COUNT));
        gguf_put_key_u32(&built, strbuf_text(&name), (uint32_t)(i * 1237 % COUNT));
    }
    for (uint64_t i = 0; i < COUNT; i++) {
        strbuf_clear(&name);
        strbuf_printf(&name, "blk.%d.weight", (int)(i * 1237 % COUNT));
        gguf_put_tensor(&built, strbuf_text(&name), 1, (const uint64_t[]){3}, DTYPE_F16,
                        (COUNT - 1 - i) * 32);
    }
    gguf_put_padding(&built, 32);
    for (uint64_t i = 0; i < COUNT * 32; i++)
        strbuf_putc(&built, 0);
    gguf_file *file = open_built(&built);
    for (uint32_t i = 0; i < COUNT; i++) {
        uint32_t number = 0;
        strbuf_clear(&name);
        strbuf_printf(&name, "key.%d", (int)i);
        assert_int_equal(gguf_get_u32(file, strbuf_text(&name), &number, NULL, NULL), TEMPER_OK);
        assert_int_equal(number, i);
        strbuf_clear(&name);
        strbuf_printf(&name, "blk.%d.weight", (int)i);
        assert_non_null(gguf_find_tensor(file, strbuf_text(&name)));
    }
    assert_null(gguf_find_tensor(file, "blk.5000.weight"));
    gguf_close(file);
    strbuf_free(&built);
    strbuf_free(&name);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values),
        cmocka_unit_test(test_tensors),
        cmocka_unit_test(test_typed_look_ups),
        cmocka_unit_test(test_wrong_headers),
        cmocka_unit_test(test_wrong_keys),
        cmocka_unit_test(test_wrong_tensors),
        cmocka_unit_test(test_long_names),
        cmocka_unit_test(test_every_prefix),
        cmocka_unit_test(test_every_byte_changed),
        cmocka_unit_test(test_every_allocation_fails),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_failing_source),
        cmocka_unit_test(test_large_arrays),
        cmocka_unit_test(test_many_names),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
