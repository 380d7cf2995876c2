/*
 * base_checked.c - arithmetic at the edges of 64 bits.
 */
#include "base/checked.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static const uint64_t half = (uint64_t)1 << 63;

static void test_add(void **state)
{
    uint64_t out = 7;

    (void)state;
    assert_true(checked_add(UINT64_MAX - 1, 1, &out) && out == UINT64_MAX);
    assert_false(checked_add(UINT64_MAX, 1, &out));
    assert_false(checked_add(half, half, &out));
    assert_true(out == UINT64_MAX);
}

static void test_mul(void **state)
{
    uint64_t out = 7;

    (void)state;
    assert_true(checked_mul(UINT64_MAX, 1, &out) && out == UINT64_MAX);
    assert_true(checked_mul(0, UINT64_MAX, &out) && out == 0);
    assert_true(checked_mul(UINT64_MAX, 0, &out) && out == 0);
    assert_true(checked_mul(UINT32_MAX, (uint64_t)UINT32_MAX + 2, &out) && out == UINT64_MAX);
    assert_false(checked_mul((uint64_t)1 << 32, (uint64_t)1 << 32, &out));
    assert_false(checked_mul(half, 2, &out));
    assert_true(out == UINT64_MAX);
}

static void test_round_up(void **state)
{
    uint64_t out = 7;

    (void)state;
    assert_true(checked_round_up(0, 32, &out) && out == 0);
    assert_true(checked_round_up(1, 32, &out) && out == 32);
    assert_true(checked_round_up(32, 32, &out) && out == 32);
    assert_true(checked_round_up(1, half, &out) && out == half);
    assert_true(checked_round_up(UINT64_MAX, 1, &out) && out == UINT64_MAX);
    assert_false(checked_round_up(UINT64_MAX, 2, &out));
    assert_false(checked_round_up(half + 1, half, &out));
    assert_true(out == UINT64_MAX);
}

static void test_division(void **state)
{
    (void)state;
    assert_true(ceil_div(0, 3) == 0 && ceil_div(1, 3) == 1 && ceil_div(3, 3) == 1);
    assert_true(ceil_div(UINT64_MAX, 2) == half && ceil_div(UINT64_MAX, UINT64_MAX) == 1);
    assert_true(ceil_div_u32(UINT32_MAX, 2) == 0x80000000u && ceil_div_u32(4, 3) == 2);
    assert_true(min_u64(3, 4) == 3 && min_u64(4, 3) == 3 && max_u64(3, 4) == 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_add),
        cmocka_unit_test(test_mul),
        cmocka_unit_test(test_round_up),
        cmocka_unit_test(test_division),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
