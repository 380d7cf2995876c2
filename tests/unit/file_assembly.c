/*
 * file_assembly.c - what a file that is put together tells the files behind it before it is read.
 * What it reads is in file_model.c and file_widened.c.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "file/assembly.h"
#include "file/gguf.h"

typedef struct told {
    source base;
    uint64_t offset, size; /* of the last range */
    int times;
} told;

static void told_expect(source *self, uint64_t offset, uint64_t size)
{
    told *t = (told *)self;
    t->offset = offset;
    t->size = size;
    t->times++;
}

static void told_close(source *self)
{
    (void)self;
}

static void add(assembly *a, const char *name, uint64_t elements, uint32_t type,
                const assembly_piece *piece)
{
    error err = {0};
    const gguf_string text = {name, strlen(name)};
    assert_int_equal(assembly_add(a, text, 1, &elements, type, piece, &err), TEMPER_OK);
}

#define assert_told(file, from, bytes)                                                             \
    do {                                                                                           \
        assert_int_equal((file).times, 1);                                                         \
        assert_int_equal((file).offset, from);                                                     \
        assert_int_equal((file).size, bytes);                                                      \
        (file).times = 0;                                                                          \
    } while (0)

static void parts_are_told_of_their_bytes(void **state)
{
    (void)state;
    const uint64_t live = mem_live_bytes();
    told plain = {
        .base = {.name = "plain", .size = 200, .expect = told_expect, .close = told_close}};
    told packed = {
        .base = {.name = "packed", .size = 60, .expect = told_expect, .close = told_close}};
    assembly *a = NULL;
    source *whole = NULL;
    error err = {0};
    assert_int_equal(assembly_open("whole", &a, &err), TEMPER_OK);
    assert_int_equal(assembly_keep(a, &plain.base, &err), TEMPER_OK);
    assert_int_equal(assembly_keep(a, &packed.base, &err), TEMPER_OK);
    add(a, "first", 8, DTYPE_F32, &(assembly_piece){.from = &plain.base, .offset = 100});
    add(a, "second", 8, DTYPE_F32, &(assembly_piece){.memory = mem_alloc(32)});
    /* Two blocks of 32: 18 bytes each, 64 when they are read. */
    add(a, "third", 64, DTYPE_F16,
        &(assembly_piece){.from = &packed.base, .offset = 10, .widened = DTYPE_IQ4_NL});
    assert_int_equal(assembly_finish(a, &whole, &err), TEMPER_OK);
    const uint64_t data = whole->size - 32 - 32 - 128;

    source_expect(whole, 0, whole->size);
    assert_told(plain, 100, 32);
    assert_told(packed, 10, 36);
    source_expect(whole, data + 8, 16);
    assert_told(plain, 108, 16);
    source_expect(whole, data + 64 + 70, UINT64_MAX);
    assert_told(packed, 28, 18);
    source_expect(whole, 0, data);         /* the directory is here */
    source_expect(whole, data + 32, 32);   /* in memory */
    source_expect(whole, whole->size, 10); /* past the end */
    assert_int_equal(plain.times + packed.times, 0);
    source_close(whole);
    assert_int_equal(mem_live_bytes(), live);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parts_are_told_of_their_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
