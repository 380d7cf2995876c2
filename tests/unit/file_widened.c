/*
 * file_widened.c - a file of types without a layout, read as F16: every byte of it in pieces of any
 * size, what is told of it, and what is refused.
 */
#include "file/widened.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "base/widen.h"
#include "support/gguf_build.h"

static gguf_file *open_golden(void)
{
    source *src = NULL;
    gguf_file *file = NULL;
    error err = {0};
    if (source_open_file(TEST_GOLDEN "/widen/llama.gguf", &src, &err) != TEMPER_OK ||
        gguf_open(src, &file, &err) != TEMPER_OK)
        fail_msg("%s", err.text);
    return file;
}

typedef struct told {
    char text[2048];
} told;

static void note(const temper_widened *what, void *user)
{
    told *t = user;
    const size_t at = strlen(t->text);
    snprintf(t->text + at, sizeof t->text - at, "%s %s %llu %llu\n", what->type, what->tensor,
             (unsigned long long)what->tensors, (unsigned long long)what->extra_bytes);
}

/* Extra bytes of n elements: 2 n, less their blocks. */
static const char all_told[] = "IQ2_XXS blk.0.ffn_gate.weight 1 114176\n"
                               "IQ2_XS blk.0.attn_k.weight 1 28032\n"
                               "IQ3_XXS blk.0.ffn_up.weight 1 105984\n"
                               "IQ1_S blk.1.ffn_gate.weight 1 118272\n"
                               "IQ4_NL blk.0.attn_v.weight 2 117760\n"
                               "IQ3_S blk.0.attn_q.weight 1 102912\n"
                               "IQ2_S blk.0.attn_output.weight 1 110080\n"
                               "IQ4_XS token_embd.weight 2 205672\n"
                               "IQ1_M blk.1.attn_output.weight 1 116736\n"
                               "TQ1_0 blk.1.attn_k.weight 1 29312\n"
                               "TQ2_0 blk.1.attn_q.weight 1 114176\n"
                               "MXFP4 blk.0.ffn_down.weight 1 96256\n";

/* The bytes of a tensor as they must come out; free with free(). */
static uint8_t *wanted_bytes(const gguf_file *file, const gguf_tensor *t, uint64_t *size)
{
    uint8_t *stored = malloc((size_t)t->bytes);
    assert_non_null(stored);
    assert_int_equal(gguf_read_tensor(file, t, 0, stored, t->bytes, NULL), TEMPER_OK);
    *size = t->bytes;
    if (!widen_knows(t->type))
        return stored;
    *size = 2 * t->elements;
    uint8_t *halves = malloc((size_t)*size);
    assert_non_null(halves);
    assert_true(widen_to_f16((dtype)t->type, t->elements, stored, halves));
    free(stored);
    return halves;
}

static void check_tensor(const gguf_file *file, const gguf_tensor *old, const gguf_file *wide,
                         const gguf_tensor *new)
{
    uint64_t size = 0;
    uint8_t *wanted = wanted_bytes(file, old, &size);
    assert_int_equal(new->type, widen_knows(old->type) ? DTYPE_F16 : old->type);
    assert_int_equal(new->dim_count, old->dim_count);
    assert_memory_equal(new->dims, old->dims, sizeof old->dims);
    assert_int_equal(new->bytes, size);
    /* The pieces begin and end anywhere in blocks; each buffer is exactly as long as its piece. */
    for (uint64_t at = 0, step = 1; at < size; step = step * 3 % 5003 + 1) {
        const uint64_t some = size - at < step ? size - at : step;
        uint8_t *piece = malloc((size_t)some);
        assert_non_null(piece);
        assert_int_equal(gguf_read_tensor(wide, new, at, piece, some, NULL), TEMPER_OK);
        assert_memory_equal(piece, wanted + at, some);
        free(piece);
        at += some;
    }
    free(wanted);
}

static void test_every_byte(void **state)
{
    gguf_file *file = open_golden(), *wide = NULL;
    told heard = {0};
    error err = {0};

    (void)state;
    assert_int_equal(gguf_widen(open_golden(), &(temper_widen){note, &heard}, &wide, &err),
                     TEMPER_OK);
    assert_string_equal(heard.text, all_told);
    assert_int_equal(gguf_tensor_count(wide), gguf_tensor_count(file));
    for (uint64_t i = 0; i < gguf_tensor_count(file); i++) {
        const gguf_tensor *old = gguf_tensor_at(file, i), *new = gguf_tensor_at(wide, i);
        assert_int_equal(new->name.length, old->name.length);
        assert_memory_equal(new->name.data, old->name.data, old->name.length);
        check_tensor(file, old, wide, new);
        assert_int_equal(gguf_check_loadable(wide, new, &err), TEMPER_OK);
    }
    assert_int_equal(gguf_value_count(wide), gguf_value_count(file));
    gguf_close(wide);
    gguf_close(file);
    assert_int_equal(mem_live_bytes(), 0);
}

/* A file with one tensor of so many rows of 256 elements: blocks of 66 bytes, as TQ2_0 has them. */
static void build_one(strbuf *out, uint32_t type, uint64_t rows)
{
    gguf_put_header(out, "GGUF", 3, 1, 2);
    gguf_put_key_u32(out, "general.alignment", 64);
    gguf_put_key_u32(out, "general.file_type", 37);
    gguf_put_tensor(out, "w\001", 2, (const uint64_t[]){256, rows}, type, 0);
    gguf_put_padding(out, 64);
    for (uint64_t i = 0; i < 256 * rows; i++)
        strbuf_putc(out, (char)(i % 66 > 63 ? 0x35 : i * 37)); /* the factors are 0.33 */
}

static gguf_file *open_bytes(const strbuf *bytes)
{
    source *src = NULL;
    gguf_file *file = NULL;
    error err = {0};
    assert_int_equal(source_open_memory("made", bytes->data, bytes->length, &src, &err), TEMPER_OK);
    if (gguf_open(src, &file, &err) != TEMPER_OK)
        fail_msg("%s", err.text);
    return file;
}

static void test_keys(void **state)
{
    strbuf built = {0};
    gguf_file *wide = NULL;
    uint32_t type = 0;

    (void)state;
    build_one(&built, DTYPE_TQ2_0, 2);
    assert_int_equal(gguf_widen(open_bytes(&built), &(temper_widen){0}, &wide, NULL), TEMPER_OK);
    assert_int_equal(gguf_get_u32(wide, "general.file_type", &type, NULL, NULL), TEMPER_OK);
    assert_int_equal(type, 1);
    assert_null(gguf_find(wide, "general.alignment"));
    assert_int_equal(gguf_alignment(wide), 32);
    gguf_close(wide);
    strbuf_free(&built);
}

/* Far behind the directory, so that opening the file does not come upon it. */
static void test_a_value_that_does_not_fit(void **state)
{
    enum { ROWS = 600 };
    strbuf built = {0};
    gguf_file *wide = NULL;
    uint8_t halves[1024];
    error err = {0};

    (void)state;
    build_one(&built, DTYPE_TQ2_0, ROWS);
    const size_t factor = built.length - ROWS * 256 + (ROWS - 1) * 66 + 64;
    built.data[factor] = 0;
    built.data[factor + 1] = 0x7c; /* the last block's factor is infinite */
    assert_int_equal(gguf_widen(open_bytes(&built), &(temper_widen){0}, &wide, &err), TEMPER_OK);
    const gguf_tensor *t = gguf_tensor_at(wide, 0);
    assert_int_equal(gguf_read_tensor(wide, t, 512 * (ROWS - 3), halves, 1024, &err), TEMPER_OK);
    assert_int_equal(gguf_read_tensor(wide, t, 512 * (ROWS - 1) - 2, halves, 4, &err),
                     TEMPER_BAD_FILE);
    assert_string_equal(err.text,
                        "made: block 599 of w\\x01 (TQ2_0) holds a value that is not finite "
                        "or too large for F16");
    gguf_close(wide);
    strbuf_free(&built);
}

static void test_nothing_to_widen(void **state)
{
    strbuf built = {0};
    told heard = {0};
    gguf_file *wide = NULL;

    (void)state;
    build_one(&built, DTYPE_I8, 2);
    gguf_file *file = open_bytes(&built);
    assert_int_equal(gguf_widen(file, &(temper_widen){note, &heard}, &wide, NULL), TEMPER_OK);
    assert_ptr_equal(wide, file);
    assert_string_equal(heard.text, "");
    gguf_close(wide);
    strbuf_free(&built);
}

static void test_refusals(void **state)
{
    static const struct {
        uint32_t type;
        const char *text;
    } rows[] = {
        {DTYPE_TQ2_0, "made: w\\x01 is TQ2_0, which has no layout on the device: --widen reads it "
                      "as F16, each weight rounded"},
        {DTYPE_I8, "made: w\\x01 is I8; temper reads F32, F16, "},
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        strbuf built = {0};
        error err = {0};
        build_one(&built, rows[i].type, 2);
        gguf_file *file = open_bytes(&built);
        assert_int_equal(gguf_check_loadable(file, gguf_tensor_at(file, 0), &err),
                         TEMPER_UNSUPPORTED);
        if (strncmp(err.text, rows[i].text, strlen(rows[i].text)) != 0)
            fail_msg("%s", err.text);
        gguf_close(file);
        strbuf_free(&built);
    }
}

static void test_every_allocation_fails(void **state)
{
    strbuf built = {0};
    temper_status status = TEMPER_NO_MEMORY;

    (void)state;
    build_one(&built, DTYPE_TQ2_0, 2);
    const uint64_t live = mem_live_bytes();
    for (uint64_t n = 1; status != TEMPER_OK; n++) {
        gguf_file *file = open_bytes(&built), *wide = NULL;
        uint8_t halves[1024];
        error err = {0};
        mem_fail_at(n, 1);
        status = gguf_widen(file, &(temper_widen){0}, &wide, &err);
        if (status == TEMPER_OK)
            status = gguf_read_tensor(wide, gguf_tensor_at(wide, 0), 0, halves, 1024, &err);
        mem_fail_at(0, 0);
        assert_true(status == TEMPER_OK || (status == TEMPER_NO_MEMORY && err.text[0] != '\0'));
        gguf_close(wide);
        assert_int_equal(mem_live_bytes(), live);
        assert_true(n < 1000);
    }
    strbuf_free(&built);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_byte),
        cmocka_unit_test(test_keys),
        cmocka_unit_test(test_a_value_that_does_not_fit),
        cmocka_unit_test(test_nothing_to_widen),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_every_allocation_fails),
    };
    return cmocka_run_group_tests_name("file_widened", tests, NULL, NULL);
}
