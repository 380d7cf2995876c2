/*
 * gpu_pool.c - the plan of shared scratch: who may share, how much larger a slot may be, and that
 * nobody gets what somebody else needs. No device is used: a plan has no buffers.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/random.h"
#include "gpu/pool.h"

enum { A = 1, B = 2, C = 4, D = 8 };

static void users_that_never_meet_share(void **state)
{
    (void)state;
    gpu_pool pool = {0};
    const uint32_t first = gpu_pool_take(&pool, 1000, A | B);
    assert_int_equal(gpu_pool_take(&pool, 900, C), first);
    assert_int_equal(gpu_pool_take(&pool, 1000, D), first);
    assert_int_equal(gpu_pool_bytes(&pool), 1000);
    gpu_pool_close(&pool);
    assert_int_equal(gpu_pool_bytes(&pool), 0);
}

static void a_slot_in_use_is_refused(void **state)
{
    (void)state;
    gpu_pool pool = {0};
    const uint32_t first = gpu_pool_take(&pool, 1000, A | B);
    /* One moment in common is enough. */
    const uint32_t second = gpu_pool_take(&pool, 1000, B | C);
    assert_int_not_equal(first, second);
    /* Both are in use at B, the second at C, the first at none of the rest. */
    assert_int_equal(gpu_pool_take(&pool, 1000, C), first);
    const uint32_t third = gpu_pool_take(&pool, 1000, C);
    assert_true(third != first && third != second);
    assert_int_equal(gpu_pool_bytes(&pool), 3000);
}

static void a_slot_is_at_most_twice_as_large(void **state)
{
    (void)state;
    gpu_pool pool = {0};
    const uint32_t large = gpu_pool_take(&pool, 1000, A);
    assert_int_not_equal(gpu_pool_take(&pool, 499, B), large);
    assert_int_equal(gpu_pool_take(&pool, 500, C), large);
    assert_int_not_equal(gpu_pool_take(&pool, 1001, D), large);
}

static void the_smallest_that_fits_is_taken(void **state)
{
    (void)state;
    gpu_pool pool = {0};
    const uint32_t large = gpu_pool_take(&pool, 1900, A);
    const uint32_t middle = gpu_pool_take(&pool, 1500, A);
    const uint32_t small = gpu_pool_take(&pool, 900, A);
    assert_true(large != middle && middle != small);
    assert_int_equal(gpu_pool_take(&pool, 1000, B), middle);
    assert_int_equal(gpu_pool_take(&pool, 1000, B), large);
    assert_int_equal(gpu_pool_take(&pool, 900, B), small);
}

/* A view of a whole buffer that a binding does not take would be cut into pieces. */
static void what_binds_gets_what_binds(void **state)
{
    (void)state;
    gpu_pool pool = {.most = 1000};
    const uint32_t large = gpu_pool_take(&pool, 1500, A);
    assert_int_not_equal(gpu_pool_take(&pool, 1000, B), large);
    assert_int_equal(gpu_pool_take(&pool, 1200, C), large);
}

static void what_is_given_back_serves_again(void **state)
{
    (void)state;
    gpu_pool pool = {0};
    const uint32_t shared = gpu_pool_take(&pool, 1000, A);
    assert_int_equal(gpu_pool_take(&pool, 1000, B), shared);
    gpu_pool_give(&pool, shared, A);
    assert_int_equal(gpu_pool_bytes(&pool), 1000); /* B needs it still */
    assert_int_equal(gpu_pool_take(&pool, 800, A), shared);
    gpu_pool_give(&pool, shared, A);
    gpu_pool_give(&pool, shared, B);
    assert_int_equal(gpu_pool_bytes(&pool), 0); /* nobody does */
    assert_int_equal(gpu_pool_take(&pool, 7, A), shared);
    assert_int_equal(gpu_pool_bytes(&pool), 7);
}

static void for_a_test_sizes_do_not_matter(void **state)
{
    (void)state;
    gpu_pool pool = {.any_size = true};
    const uint32_t large = gpu_pool_take(&pool, 1000, A);
    assert_int_equal(gpu_pool_take(&pool, 1, B), large);
    assert_int_not_equal(gpu_pool_take(&pool, 1, A), large);
    assert_int_not_equal(gpu_pool_take(&pool, 1001, C), large);
}

/* Any plan keeps the rules: checked against a list of who has what. */
static void random_plans_keep_the_rules(void **state)
{
    (void)state;
    random_state r = {42};
    for (int plan = 0; plan < 200; plan++) {
        gpu_pool pool = {0};
        struct {
            uint64_t size;
            uint32_t moments, slot;
        } users[GPU_POOL_SLOTS];
        uint64_t bytes = 0;
        for (uint32_t i = 0; i < GPU_POOL_SLOTS; i++) {
            users[i].size = 1 + random_u64(&r) % 5000;
            users[i].moments = 1 + (uint32_t)(random_u64(&r) % 255);
            users[i].slot = gpu_pool_take(&pool, users[i].size, users[i].moments);
            const uint64_t size = pool.slots[users[i].slot].size;
            assert_true(size >= users[i].size && size <= 2 * users[i].size + 1);
            for (uint32_t k = 0; k < i; k++)
                assert_true(users[k].slot != users[i].slot ||
                            (users[k].moments & users[i].moments) == 0);
            bytes += users[i].size;
        }
        assert_true(gpu_pool_bytes(&pool) <= bytes);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(users_that_never_meet_share),
        cmocka_unit_test(a_slot_in_use_is_refused),
        cmocka_unit_test(a_slot_is_at_most_twice_as_large),
        cmocka_unit_test(the_smallest_that_fits_is_taken),
        cmocka_unit_test(what_binds_gets_what_binds),
        cmocka_unit_test(what_is_given_back_serves_again),
        cmocka_unit_test(for_a_test_sizes_do_not_matter),
        cmocka_unit_test(random_plans_keep_the_rules),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
