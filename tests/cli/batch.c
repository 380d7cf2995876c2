/*
 * batch.c - `temper bench --batch`: answers that are written together, beside one alone.
 */
#include "support/program.h"

#define BENCH "bench", TINY("q4_1"), "-n", "6", "-r", "2"

static void a_row_for_one_and_a_row_for_all(void **state)
{
    static const char *const names[] = {"tg6x1", "tg6x5"};
    (void)state;
    program_result r = program_run(ARGS(BENCH, "--batch", "5", "-d", "20", "-o", "json"));
    assert_int_equal(r.code, 0);
    json_t *rows = program_parse(&r);
    assert_int_equal(json_array_size(rows), 2);
    for (size_t i = 0; i < 2; i++) {
        const json_t *row = json_array_get(rows, i);
        assert_string_equal(json_string_value(json_object_get(row, "test")), names[i]);
        assert_int_equal(json_integer_value(json_object_get(row, "depth")), 20);
        assert_true(json_number_value(json_object_get(row, "tokens_per_second")) > 0.0);
        /* A submit a token, however many answers there are; on a GPU one for up to four. */
        const json_int_t submits = json_integer_value(json_object_get(row, "submits"));
        assert_true(submits >= 3 && submits <= 7);
    }
    json_decref(rows);
    program_free(&r);
    /* As many as there may be, whatever the device's own step is. */
    r = program_run(ARGS(BENCH, "--batch", "256"));
    assert_int_equal(r.code, 0);
    assert_non_null(strstr(r.out, "x256 |"));
    program_free(&r);
    r = program_run(ARGS(BENCH, "--batch", "3"));
    assert_int_equal(r.code, 0);
    assert_non_null(strstr(r.out, "| tg6x1 | 0 |"));
    assert_non_null(strstr(r.out, "| tg6x3 | 0 |"));
    program_free(&r);
}

static void what_no_batch_holds_is_refused(void **state)
{
    (void)state;
    assert_refuses(2, "--batch is 257; it must be 1 to 256", BENCH, "--batch", "257");
    assert_refuses(2, "-n must be 1 or more", "bench", TINY("q4_1"), "-n", "0", "--batch", "2");
    assert_refuses(1, "9 sequences in a batch; it must be 1 to 8", BENCH, "--batch", "9", "--rows",
                   "8");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_row_for_one_and_a_row_for_all),
        cmocka_unit_test(what_no_batch_holds_is_refused),
    };
    return cmocka_run_group_tests_name("cli_batch", tests, NULL, NULL);
}
