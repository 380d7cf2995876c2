/*
 * check_peak.c - what a card's peak is as text, and the share of it.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "check/peak.h"

static const check_peak card = {4.6e12, {6.45e13, 1.2e14, 6.37e14}, true};

static void assert_near(double got, double want)
{
    assert_true(got >= want * (1 - 1e-6) && got <= want * (1 + 1e-6));
}

static void a_peak_survives_its_note(void **state)
{
    (void)state;
    strbuf text = {0};
    check_peak again = {0};
    check_peak_print(&card, &text);
    assert_true(check_peak_parse(strbuf_text(&text), &again));
    assert_near(again.read_bytes, card.read_bytes);
    for (int unit = 0; unit < GPU_UNITS; unit++)
        assert_near(again.operations[unit], card.operations[unit]);
    assert_true(again.steady);
    strbuf_free(&text);
}

static void anything_else_is_no_note(void **state)
{
    (void)state;
    strbuf text = {0};
    check_peak out;
    check_peak_print(&card, &text);
    /* Every prefix, and every byte changed to one that no number has. */
    for (size_t i = 0; i < text.length; i++) {
        char copy[256];
        assert_true(text.length < sizeof copy);
        memcpy(copy, text.data, text.length + 1);
        copy[i] = '\0';
        assert_false(check_peak_parse(copy, &out));
        memcpy(copy, text.data, text.length + 1);
        copy[i] = '?';
        assert_false(check_peak_parse(copy, &out));
    }
    strbuf_free(&text);
    static const char *const wrong[] = {
        "",
        "read 0\nf32 1e12\ndot4 0\nmatrix 0\nsteady 1\n",
        "read -1e12\nf32 1e12\ndot4 0\nmatrix 0\nsteady 1\n",
        "read nan\nf32 1e12\ndot4 0\nmatrix 0\nsteady 1\n",
        "read inf\nf32 1e12\ndot4 0\nmatrix 0\nsteady 1\n",
        "read 1e999\nf32 1e12\ndot4 0\nmatrix 0\nsteady 1\n",
        "read 1e12\nf32 0\ndot4 0\nmatrix 0\nsteady 1\n",
        "read 1e12\nf32 1e12\nmatrix 0\ndot4 0\nsteady 1\n",
        "read 1e12\nf32 1e12\ndot4 0\nmatrix 0\n",
        "read 1e12\nf32 1e12\ndot4 0\nmatrix 0\nsteady 1\nmore 1\n",
        "read  1e12\nf32 1e12\ndot4 0\nmatrix 0\nsteady 1\n",
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        assert_false(check_peak_parse(wrong[i], &out));
    /* A device without matrix units has a peak. */
    assert_true(check_peak_parse("read 1e9\nf32 1e9\ndot4 0\nmatrix 0\nsteady 0\n", &out));
    assert_false(out.steady);
}

static void the_longer_of_moving_and_computing_counts(void **state)
{
    (void)state;
    const double none[GPU_UNITS] = {0}, f32[GPU_UNITS] = {6.45e13, 0, 0},
                 all[GPU_UNITS] = {6.45e13, 1.2e14, 6.37e14};
    assert_near(check_peak_seconds(&card, 4.6e12, none), 1.0);
    assert_near(check_peak_seconds(&card, 4.6e12, f32), 1.0);
    assert_near(check_peak_seconds(&card, 9.2e12, f32), 2.0);
    /* Units take their time one after the other. */
    assert_near(check_peak_seconds(&card, 4.6e12, all), 3.0);
    /* A unit without a rate cannot be the bound. */
    const check_peak little = {1e9, {1e9, 0, 0}, true};
    assert_near(check_peak_seconds(&little, 1e9, all), 6.45e4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_peak_survives_its_note),
        cmocka_unit_test(anything_else_is_no_note),
        cmocka_unit_test(the_longer_of_moving_and_computing_counts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
