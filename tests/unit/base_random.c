/*
 * base_random.c - the generators against the known answers of their authors.
 */
#include "base/random.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* kat_vectors of the Random123 distribution, philox4x32 with 10 rounds. */
static void test_philox(void **state)
{
    static const struct {
        uint32_t counter[4], key[2], out[4];
    } rows[] = {
        {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
         {0xffffffff, 0xffffffff},
         {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
         {0xa4093822, 0x299f31d0},
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        uint32_t out[4];
        philox4x32(rows[i].counter, rows[i].key, out);
        assert_memory_equal(out, rows[i].out, sizeof out);
    }
    uint32_t in_place[4] = {0, 0, 0, 0};
    const uint32_t key[2] = {0, 0};
    philox4x32(in_place, key, in_place);
    assert_memory_equal(in_place, rows[0].out, sizeof in_place);
}

static void test_splitmix64(void **state)
{
    random_state r = {1234567};
    static const uint64_t known[] = {6457827717110365317u, 3203168211198807973u,
                                     9817491932198370423u, 4593380528125082431u,
                                     16408922859458223821u};

    (void)state;
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        assert_true(random_u64(&r) == known[i]);
}

static void test_distributions(void **state)
{
    enum { COUNT = 1000000 };
    random_state r = {42};
    double unit_sum = 0, sum = 0, squares = 0, fourth = 0;

    (void)state;
    for (int i = 0; i < COUNT; i++) {
        const double unit = random_unit(&r), normal = random_normal(&r);
        assert_true(unit >= 0 && unit < 1 && isfinite(normal));
        unit_sum += unit;
        sum += normal;
        squares += normal * normal;
        fourth += normal * normal * normal * normal;
    }
    /* Five standard deviations of each mean. */
    assert_true(fabs(unit_sum / COUNT - 0.5) < 5 * 0.2887e-3);
    assert_true(fabs(sum / COUNT) < 5 * 1e-3);
    assert_true(fabs(squares / COUNT - 1) < 5 * 1.4142e-3);
    assert_true(fabs(fourth / COUNT - 3) < 5 * 9.798e-3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_philox),
        cmocka_unit_test(test_splitmix64),
        cmocka_unit_test(test_distributions),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
