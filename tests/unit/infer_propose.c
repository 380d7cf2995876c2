/*
 * infer_propose.c - what is proposed out of a text, and how many proposals pay.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "infer/lookup.h"
#include "infer/pace.h"

enum { MOST = 16 };

/* ---- looking up ------------------------------------------------------------------------------ */

#define assert_proposes(text, most, ...)                                                           \
    do {                                                                                           \
        const uint32_t wanted_[] = {__VA_ARGS__};                                                  \
        const uint32_t count_ = sizeof wanted_ / sizeof wanted_[0];                                \
        uint32_t got_[MOST] = {0};                                                                 \
        assert_int_equal(lookup_propose(text, sizeof(text) / sizeof(text)[0], most, got_),         \
                         count_);                                                                  \
        assert_memory_equal(got_, wanted_, sizeof wanted_);                                        \
    } while (0)

static void what_followed_before_follows_again(void **state)
{
    (void)state;
    const uint32_t text[] = {5, 1, 2, 3, 4, 9, 9, 8, 1, 2};
    assert_proposes(text, 3, 3, 4, 9);
    assert_proposes(text, 1, 3);
}

static void the_longest_run_wins_then_the_latest(void **state)
{
    (void)state;
    /* "7 1 2" stood before 30, the later "1 2" before 40. */
    const uint32_t longest[] = {7, 1, 2, 30, 8, 1, 2, 40, 7, 1, 2};
    assert_proposes(longest, 1, 30);
    const uint32_t latest[] = {1, 2, 30, 1, 2, 40, 6, 1, 2};
    assert_proposes(latest, 1, 40);
}

static void a_loop_goes_on(void **state)
{
    (void)state;
    const uint32_t loop[] = {4, 1, 2, 3, 1, 2, 3, 1, 2};
    assert_proposes(loop, 7, 3, 1, 2, 3, 1, 2, 3);
    const uint32_t same[] = {4, 6, 6, 6, 6};
    assert_proposes(same, 4, 6, 6, 6, 6);
}

static void nothing_without_two_equal_ids(void **state)
{
    (void)state;
    uint32_t out[MOST];
    const uint32_t once[] = {1, 2, 3, 4, 2}, few[] = {7, 7};
    assert_int_equal(lookup_propose(once, 5, 4, out), 0);
    assert_int_equal(lookup_propose(few, 2, 4, out), 0);
    assert_int_equal(lookup_propose(few, 1, 4, out), 0);
    assert_int_equal(lookup_propose(few, 0, 4, out), 0);
    assert_int_equal(lookup_propose(once, 5, 0, out), 0);
}

/* ---- the pace -------------------------------------------------------------------------------- */

static const pace_costs gpu = {.wait = 0.25f, .row = 0.03f};

static void right_proposals_grow(void **state)
{
    (void)state;
    pace p = pace_begin(gpu, 8);
    assert_true(pace_length(&p) >= 2);
    for (int i = 0; i < 20; i++)
        pace_learn(&p, pace_length(&p), pace_length(&p));
    assert_int_equal(pace_length(&p), 8);
    /* A dear draft model is asked for fewer than a free lookup. */
    pace dear = pace_begin((pace_costs){.wait = 0.25f, .row = 0.03f, .draft = 0.4f}, 8);
    pace cheap = pace_begin(gpu, 8);
    assert_true(pace_length(&dear) < pace_length(&cheap));
}

/* Proposals that are never right cost four passes of the first hundred at most, and a fifth of a
 * percent in the end. */
static void wrong_proposals_cost_little(void **state)
{
    (void)state;
    pace p = pace_begin(gpu, 8);
    float spent = 0.0f, early = 0.0f;
    for (uint32_t pass = 0; pass < 10000; pass++) {
        const uint32_t n = pace_length(&p);
        const float cost = n > 0 ? gpu.wait + (float)n * gpu.row : 0.0f;
        spent += cost;
        early += pass < 100 ? cost : 0.0f;
        if (n > 0)
            pace_learn(&p, n, 0);
        else
            pace_skip(&p);
    }
    assert_true(early > 0.0f && early <= 4.0f);
    assert_true(spent <= 20.0f);
}

/* After a long rest one right proposal is enough to begin again. */
static void a_trial_begins_again(void **state)
{
    (void)state;
    pace p = pace_begin(gpu, 8);
    while (pace_length(&p) > 0)
        pace_learn(&p, pace_length(&p), 0);
    uint32_t passes = 0;
    while (pace_length(&p) == 0) {
        pace_skip(&p);
        assert_true(++passes <= 16);
    }
    assert_int_equal(pace_length(&p), 1);
    pace_learn(&p, 1, 1);
    assert_true(pace_length(&p) >= 1);
    for (int i = 0; i < 20; i++)
        pace_learn(&p, pace_length(&p), pace_length(&p));
    assert_int_equal(pace_length(&p), 8);
}

static void where_nothing_pays_nothing_is_proposed(void **state)
{
    (void)state;
    pace p = pace_begin((pace_costs){.wait = 0.1f, .row = 0.1f, .draft = 2.0f}, 8);
    assert_int_equal(pace_length(&p), 0);
    pace none = pace_begin(gpu, 0);
    assert_int_equal(pace_length(&none), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_followed_before_follows_again),
        cmocka_unit_test(the_longest_run_wins_then_the_latest),
        cmocka_unit_test(a_loop_goes_on),
        cmocka_unit_test(nothing_without_two_equal_ids),
        cmocka_unit_test(right_proposals_grow),
        cmocka_unit_test(wrong_proposals_cost_little),
        cmocka_unit_test(a_trial_begins_again),
        cmocka_unit_test(where_nothing_pays_nothing_is_proposed),
    };
    return cmocka_run_group_tests_name("unit_infer_propose", tests, NULL, NULL);
}
