/*
 * tune.c - `temper kernels list --shape`, `tune` and `bench`: which row computes what and why, and
 * what a choice that was kept changes. Choices and peaks are planted; nothing depends on a clock.
 */
#include "support/planted.h"

#include <unistd.h>

static int plant(void **state)
{
    (void)state;
    planted_folder();
    return 0;
}

/* The lines of a call's output as a list of objects. */
static json_t *lines_of(const program_result *r)
{
    json_t *list = json_array();
    if (r->code != 0)
        fail_msg("exit code %d: %s", r->code, r->err);
    for (const char *at = r->out; *at != '\0'; at = strchr(at, '\n') + 1) {
        json_t *row = json_loadb(at, strcspn(at, "\n"), 0, NULL);
        assert_true(json_is_object(row));
        json_array_append_new(list, row);
    }
    return list;
}

static json_t *lines(const char *const *args)
{
    program_result r = program_run(args);
    json_t *list = lines_of(&r);
    program_free(&r);
    return list;
}

static const char *text(const json_t *row, const char *name)
{
    const json_t *value = json_object_get(row, name);
    assert_true(json_is_string(value));
    return json_string_value(value);
}

static const json_t *row_named(const json_t *list, const char *op, const char *name)
{
    size_t index;
    const json_t *row;
    json_array_foreach(list, index, row)
    {
        if (strcmp(text(row, "op"), op) == 0 && strcmp(text(row, "row"), name) == 0)
            return row;
    }
    fail_msg("no row %s of %s", name, op);
    return NULL;
}

/* The one row of an op that computes the shape. */
static const json_t *chosen(const json_t *list, const char *op)
{
    const json_t *found = NULL, *row;
    size_t index;
    json_array_foreach(list, index, row)
    {
        if (strcmp(text(row, "op"), op) != 0 || !json_is_true(json_object_get(row, "chosen")))
            continue;
        assert_null(found);
        found = row;
    }
    assert_non_null(found);
    return found;
}

#define ONE_ROW "1,64,64,Q4_0"

/* ---- list ------------------------------------------------------------------------------------ */

static void every_op_has_one_row_for_a_shape(void **state)
{
    (void)state;
    json_t *list = lines(ARGS("kernels", "list", "--shape", "70,128,256,Q4_K", "--json"));
    const json_t *row;
    size_t index;
    json_array_foreach(list, index, row)
    {
        assert_string_equal(text(row, "shape"), "70,128,256,Q4_K");
        assert_true(strlen(text(row, "reason")) > 5 && strlen(text(row, "self_check")) > 5);
        assert_string_equal(text(row, "name"), text(row, "kernel"));
        chosen(list, text(row, "op"));
    }
    assert_true(index > 20);
    json_decref(list);
    /* Patterns and several shapes. */
    list = lines(
        ARGS("kernels", "list", "matmul", "--shape", ONE_ROW, "--shape", "9,64,64,F16", "--json"));
    size_t first = 0, second = 0;
    json_array_foreach(list, index, row)
    {
        assert_string_equal(text(row, "op"), "matmul");
        first += strcmp(text(row, "shape"), ONE_ROW) == 0;
        second += strcmp(text(row, "shape"), "9,64,64,F16") == 0;
    }
    assert_true(first > 1 && first == second && index == first + second);
    json_decref(list);
}

static void a_row_that_does_not_run_says_why(void **state)
{
    (void)state;
    json_t *list = lines(ARGS("kernels", "list", "--json", "--no-feature", "f16,subgroups",
                              "--limit", "maxComputeInvocationsPerWorkgroup=128"));
    const json_t *row;
    size_t index, lacking = 0, narrow = 0;
    json_array_foreach(list, index, row)
    {
        const bool runs = json_is_true(json_object_get(row, "runs"));
        assert_true(!runs || strstr(text(row, "reason"), "needs") == NULL);
        assert_true(runs || strstr(text(row, "reason"), "needs") != NULL);
        lacking += strstr(text(row, "reason"), "subgroups") != NULL;
        narrow += strstr(text(row, "reason"), "has 128") != NULL;
    }
    assert_true(lacking >= 1 && narrow >= 1);
    json_decref(list);
    program_result r = program_run(ARGS("kernels", "list", "matmul", "--shape", ONE_ROW));
    assert_int_equal(r.code, 0);
    assert_non_null(strstr(r.out, ONE_ROW " on "));
    assert_non_null(strstr(r.out, "self-check"));
    assert_non_null(strstr(r.out, "  -> matmul"));
    program_free(&r);
}

static void exact_products_are_listed_too(void **state)
{
    (void)state;
    json_t *list = lines(
        ARGS("kernels", "list", "matmul", "--shape", "512,128,256,Q4_0", "--json", "--exact"));
    const json_t *row = json_array_get(list, 0);
    assert_non_null(strstr(text(row, "self_check"), "--exact"));
    json_decref(list);
}

/* --lossy opens rows, which then come before what was measured; who does not ask has none. */
static void lossy_rows_are_for_those_who_ask(void **state)
{
    static const char shape[] = "20,64,64,Q4_0";
    (void)state;
    json_t *list = lines(ARGS("kernels", "list", "matmul", "--shape", shape, "--json"));
    const json_t *row = row_named(list, "matmul", "int8_64");
    assert_false(json_is_true(json_object_get(row, "chosen")));
    assert_non_null(strstr(text(row, "reason"), "opened by --lossy int8"));
    json_decref(list);
    planted_choice(20, 64, 64);
    list = lines(ARGS("kernels", "list", "matmul", "--shape", shape, "--json", "--lossy", "int8"));
    assert_string_equal(text(chosen(list, "matmul"), "row"), "int8_64");
    assert_string_equal(text(chosen(list, "matmul"), "reason"), "asked for: --lossy int8");
    json_decref(list);
    assert_refuses(1, "not both", "kernels", "list", "--shape", shape, "--lossy", "int8",
                   "--exact");
    assert_refuses(1, "runs no kernel of lossy f16-sums", "kernels", "list", "--shape", shape,
                   "--lossy", "f16-sums", "--no-feature", "f16");
    assert_refuses(2, "it must be int8, f16-block or f16-sums", "kernels", "list", "--lossy",
                   "int9");
    assert_refuses(2, "no rivals", "kernels", "tune", TINY("q4_0"), "--lossy", "int8");
    assert_refuses(1, "not both", "run", TINY("q4_0"), "--lossy", "int8", "--exact", "-p", "x");
}

/* On a device with matrix units --exact is the reason; without them it is what the device lacks. */
static void attention_says_why_it_is_exact(void **state)
{
    (void)state;
    json_t *list = lines(
        ARGS("kernels", "list", "attention", "--shape", "512,128,256,Q4_0", "--json", "--exact"));
    const json_t *row;
    size_t index, found = 0;
    json_array_foreach(list, index, row)
    {
        if (strcmp(text(row, "row"), "matrix") != 0)
            continue;
        const char *reason = text(row, "reason");
        assert_false(json_is_true(json_object_get(row, "chosen")));
        assert_true(strstr(reason, "--exact") != NULL || strstr(reason, "lacks") != NULL);
        found++;
    }
    assert_int_equal(found, 1);
    json_decref(list);
}

static void wrong_shapes_are_refused(void **state)
{
    (void)state;
    static const char *const wrong[][2] = {
        {"", "is not M,N,K,TYPE"},
        {"1", "is not M,N,K,TYPE"},
        {"1,2,3", "is not M,N,K,TYPE"},
        {"0,2,32,Q4_0", "is not M,N,K,TYPE"},
        {"1,-2,32,Q4_0", "is not M,N"},
        {"1,2,99999999999,Q4_0", "is not M,N"},
        {"1,2,32,", "there is no type"},
        {"1,2,32,Q9_9", "there is no type \"Q9_9\""},
        {"1,2,33,Q4_0", "K is no multiple of 32"},
        {"1,2,32,Q4_K", "K is no multiple of 256"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        assert_refuses(2, wrong[i][1], "kernels", "list", "--shape", ONE_ROW, "--shape",
                       wrong[i][0]);
}

/* ---- choices --------------------------------------------------------------------------------- */

static void a_kept_choice_is_used_and_told(void **state)
{
    (void)state;
    json_t *list = lines(ARGS("kernels", "list", "matmul", "--shape", ONE_ROW, "--json"));
    char usual[64];
    snprintf(usual, sizeof usual, "%s", text(chosen(list, "matmul"), "row"));
    assert_non_null(strstr(text(chosen(list, "matmul"), "reason"), "the first of the table"));
    json_decref(list);

    const char *last = planted_choice(1, 64, 64);
    assert_string_not_equal(usual, last);
    list = lines(ARGS("kernels", "list", "matmul", "--shape", ONE_ROW, "--json"));
    assert_string_equal(text(chosen(list, "matmul"), "row"), last);
    assert_string_equal(text(chosen(list, "matmul"), "reason"), "the fastest as measured, 12.5 us");
    assert_non_null(strstr(text(row_named(list, "matmul", usual), "reason"), "comes before it"));
    json_decref(list);
    /* Of this shape alone, and not on a device with fewer features. */
    list = lines(ARGS("kernels", "list", "matmul", "--shape", "1,65,64,Q4_0", "--json"));
    assert_string_equal(text(chosen(list, "matmul"), "row"), usual);
    json_decref(list);
    list = lines(ARGS("kernels", "list", "matmul", "--shape", ONE_ROW, "--json", "--no-feature",
                      "timestamps"));
    assert_string_equal(text(chosen(list, "matmul"), "row"), usual);
    json_decref(list);
    /* And not where there is no folder to look in. */
    program_result r = program_call_all(
        &(program_call){.args = ARGS("kernels", "list", "matmul", "--shape", ONE_ROW, "--json"),
                        .env = ARGS("TEMPER_TUNE=")});
    list = lines_of(&r);
    assert_string_equal(text(chosen(list, "matmul"), "row"), usual);
    json_decref(list);
    program_free(&r);
}

static void an_answer_is_the_same_with_other_rows(void **state)
{
    (void)state;
    const char *const *args =
        ARGS("run", TINY("q4_0"), "--raw", "-p", "Why is it so?", "-n", "12", "--json", "--exact");
    program_result plain =
        program_call_all(&(program_call){.args = args, .env = ARGS("TEMPER_TUNE=")});
    planted_choice(1, 64, 64);
    program_result tuned = program_run(args);
    json_t *a = program_parse(&plain), *b = program_parse(&tuned);
    assert_true(json_equal(json_object_get(a, "tokens"), json_object_get(b, "tokens")));
    assert_int_equal(tuned.err_length, 0);
    json_decref(a);
    json_decref(b);
    program_free(&plain);
    program_free(&tuned);
}

/* A note that cannot be used is told on one line, and everything goes on without it. */
static void check_ignored(const char *why)
{
    program_result r = program_run(ARGS("kernels", "list", "matmul", "--shape", ONE_ROW, "--json"));
    json_t *list = lines_of(&r);
    assert_non_null(strstr(text(chosen(list, "matmul"), "reason"), "the first of the table"));
    if (strstr(r.err, why) == NULL)
        fail_msg("\"%s\" is not in: %s", why, r.err);
    assert_non_null(strstr(r.err, "kernels tune"));
    program_check_message(&r);
    json_decref(list);
    program_free(&r);
}

static void notes_that_are_no_use_are_told_and_ignored(void **state)
{
    (void)state;
    const char *path = planted_note("choices", "kernels 0123456789abcdef\n");
    check_ignored("other kernels");
    planted_note("choices", "not a list at all\n");
    check_ignored("other kernels");
    planted_choice(1, 64, 64);
    size_t length = 0;
    char *bytes = program_read(path, &length);
    assert_int_equal(truncate(path, (off_t)(length - 8)), 0);
    check_ignored("is cut or damaged");
    /* The same file from another driver. */
    char *driver = strstr(bytes, "driver ");
    assert_non_null(driver);
    driver[7] = driver[7] == 'x' ? 'y' : 'x';
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, length, file), length);
    fclose(file);
    check_ignored("was not written for this device");
    free(bytes);
    unlink(path);
}

/* ---- tune ------------------------------------------------------------------------------------ */

static void a_model_is_tuned(void **state)
{
    (void)state;
    program_result r = program_run(ARGS("kernels", "tune", TINY("q4_0"), "--rows", "1", "--json"));
    json_t *list = lines_of(&r);
    const json_t *row;
    size_t index, best = 0;
    json_array_foreach(list, index, row)
    {
        assert_string_equal(text(row, "op"), "matmul");
        assert_true(json_number_value(json_object_get(row, "us")) > 0);
        assert_true(json_is_true(json_object_get(row, "ok")));
        assert_true(json_is_boolean(json_object_get(row, "steady")));
        assert_true(json_is_boolean(json_object_get(row, "before")));
        best += json_is_true(json_object_get(row, "chosen"));
    }
    /* Four kinds of products and a head at least, each with a rival. */
    assert_true(best >= 4 && index >= 2 * best);
    assert_non_null(strstr(r.err, "choices are kept in "));
    json_decref(list);
    program_free(&r);

    list = lines(ARGS("kernels", "list", "matmul", "--shape", ONE_ROW, "--json"));
    assert_non_null(strstr(text(chosen(list, "matmul"), "reason"), "as measured"));
    json_decref(list);
    /* Another model adds to them. */
    r = program_run(ARGS("kernels", "tune", TINY("q8_0"), "--rows", "1"));
    assert_int_equal(r.code, 0);
    assert_non_null(strstr(r.out, "  -> "));
    assert_non_null(strstr(r.out, "as before"));
    program_free(&r);
    list = lines(
        ARGS("kernels", "list", "matmul", "--shape", ONE_ROW, "--shape", "1,64,64,Q8_0", "--json"));
    size_t measured = 0;
    json_array_foreach(list, index, row)
    {
        measured += json_is_true(json_object_get(row, "chosen")) &&
                    strstr(text(row, "reason"), "as measured") != NULL;
    }
    assert_int_equal(measured, 2);
    json_decref(list);
}

static void wrong_tunings_are_refused(void **state)
{
    (void)state;
    assert_refuses(2, "power of two", "kernels", "tune", TINY("q4_0"), "--rows", "3");
    assert_refuses(2, "power of two", "kernels", "tune", TINY("q4_0"), "--rows", "1,0");
    assert_refuses(2, "power of two", "kernels", "tune", TINY("q4_0"), "--rows", "8192");
    assert_refuses(2, "--rows is \"x\"", "kernels", "tune", TINY("q4_0"), "--rows", "x");
    assert_refuses(2, "use one of them", "kernels", "tune", TINY("q4_0"), "--shape", "llama-1b");
    assert_refuses(1, "llama-1b", "kernels", "tune", "--shape", "llama-2b");
    assert_refuses(1, "nowhere.gguf", "kernels", "tune", "nowhere.gguf");
    program_refuses(
        &(program_call){.args = ARGS("kernels", "tune", TINY("q4_0")), .env = ARGS("TEMPER_TUNE=")},
        2, ARGS("TEMPER_TUNE"));
    const char *file = program_file("file", "x", 1);
    char setting[4200];
    snprintf(setting, sizeof setting, "TEMPER_TUNE=%s/below", file);
    program_result r = program_call_all(&(program_call){
        .args = ARGS("kernels", "tune", TINY("q4_0"), "--rows", "1"), .env = ARGS(setting)});
    assert_int_equal(r.code, 1);
    assert_non_null(strstr(r.err, file));
    program_free(&r);
}

/* ---- bench ----------------------------------------------------------------------------------- */

static void cases_have_a_share_of_the_peak(void **state)
{
    (void)state;
    planted_note("peak", "read 1e9\nf32 1e30\ndot4 1e30\nmatrix 1e30\nsteady 1\n");
    json_t *list = lines(ARGS("kernels", "bench", "add/576", "add/65", "--json"));
    const json_t *row;
    size_t index;
    json_array_foreach(list, index, row)
    {
        assert_true(json_is_true(json_object_get(row, "ok")));
        const double us = json_number_value(json_object_get(row, "us")),
                     gbps = json_number_value(json_object_get(row, "gbps")),
                     share = json_number_value(json_object_get(row, "share"));
        assert_true(us > 0 && gbps > 0 && json_is_number(json_object_get(row, "tflops")));
        assert_true(share > gbps * 0.999999 && share < gbps * 1.000001);
        assert_string_equal(text(row, "unit"), "f32");
        assert_true(json_is_boolean(json_object_get(row, "steady")));
    }
    assert_int_equal(index, 2);
    json_decref(list);
    program_result r = program_run(ARGS("kernels", "bench", "add/576"));
    assert_int_equal(r.code, 0);
    assert_non_null(strstr(r.err, "peak: 1 GB/s read"));
    assert_non_null(strstr(r.out, " us"));
    assert_non_null(strstr(r.out, " %"));
    program_free(&r);
    /* --fresh forgets what was planted. */
    r = program_run(ARGS("kernels", "bench", "add/1", "--fresh"));
    assert_int_equal(r.code, 0);
    assert_null(strstr(r.err, "1e+18 TFLOP/s"));
    program_free(&r);
    r = program_run(ARGS("kernels", "bench", "add/1"));
    assert_int_equal(r.code, 0);
    assert_null(strstr(r.err, "1e+18 TFLOP/s"));
    program_free(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_op_has_one_row_for_a_shape),
        cmocka_unit_test(a_row_that_does_not_run_says_why),
        cmocka_unit_test(exact_products_are_listed_too),
        cmocka_unit_test(lossy_rows_are_for_those_who_ask),
        cmocka_unit_test(attention_says_why_it_is_exact),
        cmocka_unit_test(wrong_shapes_are_refused),
        cmocka_unit_test(a_kept_choice_is_used_and_told),
        cmocka_unit_test(an_answer_is_the_same_with_other_rows),
        cmocka_unit_test(notes_that_are_no_use_are_told_and_ignored),
        cmocka_unit_test(a_model_is_tuned),
        cmocka_unit_test(wrong_tunings_are_refused),
        cmocka_unit_test(cases_have_a_share_of_the_peak),
    };
    return cmocka_run_group_tests(tests, plant, NULL);
}
