/*
 * base_mem.c - counting, failing on request, and doing both from several threads.
 */
#include "base/mem.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/random.h"

static void test_counters(void **state)
{
    const uint64_t live = mem_live_bytes(), calls = mem_allocation_count();

    (void)state;
    mem_reset_peak();
    assert_int_equal(mem_peak_bytes(), live);
    char *a = mem_alloc(100);
    char *b = mem_calloc(10, 20);
    assert_non_null(a);
    assert_non_null(b);
    for (int i = 0; i < 200; i++)
        assert_int_equal(b[i], 0);
    assert_int_equal(mem_live_bytes(), live + 300);
    memset(a, 7, 100);
    a = mem_realloc(a, 1000);
    assert_non_null(a);
    assert_int_equal(a[99], 7);
    assert_int_equal(mem_live_bytes(), live + 1200);
    a = mem_realloc(a, 10);
    assert_int_equal(mem_live_bytes(), live + 210);
    assert_int_equal(mem_allocation_count(), calls + 4);
    mem_free(a);
    mem_free(b);
    mem_free(NULL);
    assert_int_equal(mem_live_bytes(), live);
    assert_int_equal(mem_peak_bytes(), live + 1200);
}

static void test_edges(void **state)
{
    const uint64_t live = mem_live_bytes();

    (void)state;
    void *a = mem_alloc(0), *b = mem_calloc(0, 8), *c = mem_realloc(NULL, 0);
    assert_true(a != NULL && b != NULL && c != NULL);
    assert_true(a != b && b != c && a != c);
    c = mem_realloc(c, 0);
    assert_non_null(c);
    mem_free(a);
    mem_free(b);
    mem_free(c);
    assert_null(mem_alloc(SIZE_MAX));
    assert_null(mem_calloc(SIZE_MAX / 2, 3));
    assert_null(mem_calloc(SIZE_MAX, 1));
    char *copy = mem_strndup("abc", 2), *whole = mem_strdup("x\xc3\xa9");
    assert_string_equal(copy, "ab");
    assert_string_equal(whole, "x\xc3\xa9");
    assert_null(mem_realloc(copy, SIZE_MAX));
    assert_string_equal(copy, "ab");
    mem_free(copy);
    mem_free(whole);
    assert_int_equal(mem_live_bytes(), live);
}

static void test_injection(void **state)
{
    (void)state;
    mem_fail_at(3, 0);
    for (int i = 1; i <= 5; i++) {
        void *block = mem_alloc(8);
        assert_int_equal(block == NULL, i == 3);
        mem_free(block);
    }
    mem_fail_at(3, 1);
    for (int i = 1; i <= 5; i++) {
        void *block = i % 2 ? mem_calloc(1, 8) : mem_realloc(NULL, 8);
        assert_int_equal(block == NULL, i >= 3);
        mem_free(block);
    }
    mem_fail_at(0, 0);
    char *block = mem_alloc(8);
    assert_non_null(block);
    block[0] = 5;
    mem_fail_at(1, 0);
    assert_null(mem_realloc(block, 800));
    assert_int_equal(block[0], 5);
    mem_fail_at(1, 0);
    assert_null(mem_strdup("text"));
    mem_fail_at(0, 0);
    mem_free(block);
}

static void *churn(void *seed)
{
    random_state r = {(uint64_t)(uintptr_t)seed};
    void *blocks[16] = {0};

    for (int i = 0; i < 20000; i++) {
        const uint64_t pick = random_u64(&r);
        void **block = &blocks[pick % 16];
        if (pick >> 8 & 1) {
            *block = mem_realloc(*block, pick >> 16 & 255);
        } else {
            mem_free(*block);
            *block = NULL;
        }
    }
    for (int i = 0; i < 16; i++)
        mem_free(blocks[i]);
    return NULL;
}

static void test_threads(void **state)
{
    const uint64_t live = mem_live_bytes();
    pthread_t threads[4];

    (void)state;
    for (uintptr_t i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, churn, (void *)(i + 1)), 0);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(mem_live_bytes(), live);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_counters),
        cmocka_unit_test(test_edges),
        cmocka_unit_test(test_injection),
        cmocka_unit_test(test_threads),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
