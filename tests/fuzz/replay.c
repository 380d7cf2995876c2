/*
 * replay.c - a target as an ordinary test, under the sanitizers of the build: every find that is
 * kept in tests/fuzz/finds/TARGET, every seed, and what begins like a seed and ends too early.
 * Each input lies in a heap block of exactly its size.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <dirent.h>

#include "base/source.h"
#include "fuzz/fuzz.h"

/* How many prefixes of a seed are tried at most, and whether a prefix can never be taken for a
 * whole: formats whose last byte counts. */
static const struct {
    const char *target;
    size_t prefixes;
    bool strict;
} rows[] = {
    {"gguf", SIZE_MAX, true},
    {"split", SIZE_MAX, true},
    {"safetensors", SIZE_MAX, true},
    {"hf", 150, true},
    {"chat", 4, false},
    {"text", 60, false},
    {"program", SIZE_MAX, false},
};

static size_t row;

static void run(const void *bytes, size_t size)
{
    uint8_t *exact = malloc(size == 0 ? 1 : size);
    assert_non_null(exact);
    if (size > 0)
        memcpy(exact, bytes, size);
    assert_int_equal(LLVMFuzzerTestOneInput(exact, size), 0);
    free(exact);
}

typedef struct tally {
    size_t seeds, prefixes;
} tally;

static void run_seed(const char *name, const void *bytes, size_t size, void *user)
{
    tally *t = user;
    const unsigned long before = fuzz_accepted;
    run(bytes, size);
    t->seeds++;
    if (rows[row].strict && fuzz_accepted == before)
        fail_msg("the seed %s was refused", name);
}

static void every_seed(void **state)
{
    tally t = {0};
    (void)state;
    fuzz_seeds(rows[row].target, run_seed, &t);
    assert_true(t.seeds >= 3 && fuzz_accepted > 0);
    print_message("%s: %zu seeds, %lu times accepted\n", rows[row].target, t.seeds, fuzz_accepted);
}

static void run_prefixes(const char *name, const void *bytes, size_t size, void *user)
{
    tally *t = user;
    const size_t step = size / rows[row].prefixes + 1;
    for (size_t length = 0; length < size; length += step) {
        const unsigned long before = fuzz_accepted;
        run(bytes, length);
        t->prefixes++;
        if (rows[row].strict && fuzz_accepted != before)
            fail_msg("%zu of %zu bytes of the seed %s were accepted", length, size, name);
    }
}

static void every_prefix(void **state)
{
    tally t = {0};
    (void)state;
    fuzz_seeds(rows[row].target, run_prefixes, &t);
    print_message("%s: %zu prefixes\n", rows[row].target, t.prefixes);
}

static void every_find(void **state)
{
    const char *folder = TEST_SOURCE "/tests/fuzz/finds/" FUZZ_TARGET;
    DIR *finds = opendir(folder);
    size_t count = 0;
    (void)state;
    for (struct dirent *entry; finds != NULL && (entry = readdir(finds)) != NULL;) {
        char path[1024];
        source *src = NULL;
        if (entry->d_name[0] == '.')
            continue;
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        print_message("%s\n", entry->d_name);
        assert_int_equal(source_open_file(path, &src, NULL), TEMPER_OK);
        uint8_t *bytes = malloc((size_t)src->size + 1);
        assert_non_null(bytes);
        assert_int_equal(source_read(src, 0, bytes, src->size, NULL), TEMPER_OK);
        const size_t size = (size_t)src->size;
        source_close(src);
        run(bytes, size);
        free(bytes);
        count++;
    }
    if (finds != NULL)
        closedir(finds);
    print_message("%s: %zu finds\n", rows[row].target, count);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_find),
        cmocka_unit_test(every_seed),
        cmocka_unit_test(every_prefix),
    };
    while (strcmp(rows[row].target, FUZZ_TARGET) != 0)
        row++;
    return cmocka_run_group_tests_name("fuzz_" FUZZ_TARGET, tests, NULL, NULL);
}
