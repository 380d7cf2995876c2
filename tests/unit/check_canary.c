/*
 * check_canary.c - measuring between canaries, with canaries that tell a given story: no clock and
 * no card is needed.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "check/canary.h"

/* Seconds of each run in turn; the last one goes on for ever. */
typedef struct story {
    const double *seconds;
    size_t count, runs;
    size_t fails_at;   /* 1: the first run; 0: never */
    uint32_t measured; /* how often */
    size_t slow_at[4]; /* the runs after the nth measurement begin again with a slow canary */
    double slow;
    bool was_slow;
} story;

static temper_status tell(void *user, double *seconds, error *err)
{
    story *s = user;
    s->runs++;
    if (s->fails_at == s->runs)
        return error_set(err, TEMPER_DEVICE_LOST, "the canary is gone");
    if (s->was_slow) {
        s->was_slow = false;
        *seconds = s->slow;
        return TEMPER_OK;
    }
    *seconds = s->seconds[s->runs <= s->count ? s->runs - 1 : s->count - 1];
    return TEMPER_OK;
}

static temper_status measure(void *user, error *err)
{
    (void)err;
    story *s = user;
    for (size_t i = 0; i < sizeof s->slow_at / sizeof s->slow_at[0]; i++)
        s->was_slow |= s->slow_at[i] == s->measured + 1;
    s->measured++;
    return TEMPER_OK;
}

static temper_status measure_and_fail(void *user, error *err)
{
    (void)user;
    return error_set(err, TEMPER_DEVICE_ERROR, "the kernel is gone");
}

static const double always[] = {1.0};

static check_canary canary_of(story *s)
{
    return (check_canary){.run = tell, .user = s};
}

static void a_card_that_is_awake_is_measured_once(void **state)
{
    (void)state;
    story s = {.seconds = always, .count = 1};
    check_canary canary = canary_of(&s);
    bool steady = false;
    error err = {0};
    assert_int_equal(check_between_canaries(&canary, measure, &s, &steady, &err), TEMPER_OK);
    assert_true(steady);
    assert_int_equal(s.measured, 1);
}

/* A card that waited for the compiler: 350 MHz, then its 1980 again. Nothing is measured before. */
static void a_slow_start_is_waited_for(void **state)
{
    (void)state;
    enum { ASLEEP = 150, WAKING = 6 };
    static const double rise[WAKING] = {5.0, 4.0, 2.5, 1.4, 1.02, 1.0};
    double waking[ASLEEP + WAKING];
    for (size_t i = 0; i < ASLEEP + WAKING; i++)
        waking[i] = i < ASLEEP ? 5.6 : rise[i - ASLEEP];
    story s = {.seconds = waking, .count = ASLEEP + WAKING};
    check_canary canary = canary_of(&s);
    bool up = false;
    error err = {0};
    assert_int_equal(check_canary_await(&canary, &up, &err), TEMPER_OK);
    assert_true(up);
    assert_true(canary.least <= 1.0);
    /* What looked steady at 5.6 was not believed. Once awake, a few runs are enough. */
    const size_t before = s.runs;
    assert_int_equal(check_canary_await(&canary, &up, &err), TEMPER_OK);
    assert_true(up && s.runs - before < 10);
}

static void a_drop_meanwhile_measures_again(void **state)
{
    (void)state;
    story s = {.seconds = always, .count = 1, .slow_at = {1, 2}, .slow = 3.0};
    check_canary canary = canary_of(&s);
    bool steady = false;
    error err = {0};
    assert_int_equal(check_between_canaries(&canary, measure, &s, &steady, &err), TEMPER_OK);
    assert_true(steady);
    assert_int_equal(s.measured, 3);
}

static void a_card_that_never_settles_is_said_so(void **state)
{
    (void)state;
    story s = {.seconds = always, .count = 1, .slow_at = {1, 2, 3, 4}, .slow = 1.05};
    check_canary canary = canary_of(&s);
    bool steady = true;
    error err = {0};
    assert_int_equal(check_between_canaries(&canary, measure, &s, &steady, &err), TEMPER_OK);
    assert_false(steady);
    assert_int_equal(s.measured, 4);
}

/* Once at its best and then throttled for good: the wait ends, and the figure is marked. */
static void a_throttled_card_is_not_waited_for_ever(void **state)
{
    (void)state;
    static const double throttled[] = {1.0, 1.2};
    story s = {.seconds = throttled, .count = 2};
    check_canary canary = canary_of(&s);
    bool up = true;
    error err = {0};
    assert_int_equal(check_canary_await(&canary, &up, &err), TEMPER_OK);
    assert_false(up);
    assert_true(s.runs > 100 && s.runs < 10000);
    /* It counts as woken: the next wait ends too, and as soon as the card is at its best. */
    s.seconds = always;
    s.count = 1;
    assert_int_equal(check_canary_await(&canary, &up, &err), TEMPER_OK);
    assert_true(up);
}

static void three_percent_is_noise(void **state)
{
    (void)state;
    static const double noisy[] = {1.0, 1.03, 1.0, 1.029, 1.031};
    story s = {.seconds = noisy, .count = 5};
    check_canary canary = canary_of(&s);
    error err = {0};
    for (int i = 0; i < 5; i++) {
        bool up = false;
        assert_int_equal(check_canary_look(&canary, &up, &err), TEMPER_OK);
        assert_int_equal(up, i < 4);
    }
}

static void a_device_without_a_clock_counts_as_awake(void **state)
{
    (void)state;
    story s = {.seconds = always, .count = 1};
    check_canary canary = {0};
    bool steady = false;
    error err = {0};
    assert_int_equal(check_between_canaries(&canary, measure, &s, &steady, &err), TEMPER_OK);
    assert_true(steady);
    assert_int_equal(s.measured, 1);
    assert_int_equal(s.runs, 0);
}

static void failures_come_out(void **state)
{
    (void)state;
    bool steady = false;
    for (size_t at = 1; at <= 4; at++) { /* the last: the look after the measurement */
        story s = {.seconds = always, .count = 1, .fails_at = at};
        check_canary canary = canary_of(&s);
        canary.woken = true;
        error err = {0};
        assert_int_equal(check_between_canaries(&canary, measure, &s, &steady, &err),
                         TEMPER_DEVICE_LOST);
        assert_string_equal(err.text, "the canary is gone");
        assert_int_equal(s.measured, at == 4);
    }
    story s = {.seconds = always, .count = 1};
    check_canary canary = canary_of(&s);
    error err = {0};
    assert_int_equal(check_between_canaries(&canary, measure_and_fail, &s, &steady, &err),
                     TEMPER_DEVICE_ERROR);
    assert_string_equal(err.text, "the kernel is gone");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_card_that_is_awake_is_measured_once),
        cmocka_unit_test(a_slow_start_is_waited_for),
        cmocka_unit_test(a_drop_meanwhile_measures_again),
        cmocka_unit_test(a_card_that_never_settles_is_said_so),
        cmocka_unit_test(a_throttled_card_is_not_waited_for_ever),
        cmocka_unit_test(three_percent_is_noise),
        cmocka_unit_test(a_device_without_a_clock_counts_as_awake),
        cmocka_unit_test(failures_come_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
