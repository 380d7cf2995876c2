/*
 * eval_kl.c - `temper eval kl`.
 */
#include "support/program.h"

#include <glob.h>
#include <math.h>
#include <signal.h>

#define GPL "/usr/share/common-licenses/GPL-3"

static double number(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    if (!json_is_number(value))
        fail_msg("no number %s", key);
    return json_number_value(value);
}

/* The golden's text as a file; and a saved reference of the model that it calls the reference. */
static const char *golden_text(const json_t *golden)
{
    const char *text = json_string_value(json_object_get(golden, "text"));
    return program_file("text", text, strlen(text));
}

static const char *save_reference(const char *text, const char *name)
{
    const char *path = program_path(name);
    program_result r =
        program_run(ARGS("eval", "kl", TINY("f32"), "--save", path, "--text", text, "--ctx", "64"));
    assert_int_equal(r.code, 0);
    assert_int_equal(r.err_length, 0);
    assert_non_null(strstr(r.out, "perplexity "));
    program_free(&r);
    return path;
}

/* Every statistic against what numpy makes of the double-precision reference's logits. Logits of
 * f32 are off by 1e-6 of their range (about 15), and a perplexity by that times itself. */
static void expect_golden(const json_t *result, const json_t *golden)
{
    const char *key;
    json_t *wanted, *list = json_object_get(golden, "result");
    assert_int_equal(json_object_size(result), json_object_size(list));
    json_object_foreach(list, key, wanted)
    {
        const double right = json_number_value(wanted), found = number(result, key);
        if (fabs(found - right) > 1e-4 * fmax(1.0, fabs(right)))
            fail_msg("%s is %.9g, not %.9g", key, found, right);
    }
}

static void statistics_are_the_goldens(void **state)
{
    (void)state;
    json_t *golden = test_golden("eval/kl.json");
    const char *text = golden_text(golden);
    json_t *both = program_json(ARGS("eval", "kl", TINY("q4_1"), "--against", TINY("f32"), "--text",
                                     text, "--ctx", "64", "--exact", "--json"));
    expect_golden(both, golden);
    /* Saved logits say the same to the bit, with their own text and with the same one given. */
    const char *saved = save_reference(text, "saved.kl");
    json_t *later =
        program_json(ARGS("eval", "kl", TINY("q4_1"), "--against", saved, "--exact", "--json"));
    assert_true(json_equal(both, later));
    json_t *given = program_json(ARGS("eval", "kl", TINY("q4_1"), "--against", saved, "--text",
                                      text, "--ctx", "64", "--exact", "--json"));
    assert_true(json_equal(both, given));
    json_decref(given);
    json_decref(later);
    json_decref(both);
    json_decref(golden);
}

static void of_itself_there_is_none(void **state)
{
    (void)state;
    json_t *result = program_json(ARGS("eval", "kl", TINY("f16"), "--against", TINY("f16"),
                                       "--text", GPL, "--ctx", "64", "--chunks", "2", "--json"));
    static const char *const zeros[] = {"kl_mean",       "kl_stderr",    "kl_median",
                                        "kl_90",         "kl_95",        "kl_99",
                                        "p_change_mean", "p_change_rms", "kl_max"};
    for (size_t i = 0; i < sizeof zeros / sizeof zeros[0]; i++)
        assert_true(fabs(number(result, zeros[i])) <= 0.0);
    assert_int_equal(json_integer_value(json_object_get(result, "tokens")), 62);
    assert_true(fabs(number(result, "same_best") - 1.0) <= 0.0);
    assert_true(fabs(number(result, "ppl") - number(result, "ppl_against")) <= 0.0);
    /* The windows are those of eval ppl, BOS in them. */
    json_t *ppl = program_json(
        ARGS("eval", "ppl", TINY("f16"), "--text", GPL, "--ctx", "64", "--chunks", "2", "--json"));
    assert_true(fabs(number(ppl, "ppl") / number(result, "ppl") - 1.0) < 1e-5);
    json_decref(ppl);
    json_decref(result);
}

/* An option that rounds more is used, also where a CPU computes: a divergence that is not nothing,
 * and far below what four bits cost. */
static void lossy_options_diverge_a_little(void **state)
{
    (void)state;
    const char *saved = program_path("lossy.kl");
    program_result r = program_run(ARGS("eval", "kl", TINY("q4_1"), "--text", GPL, "--ctx", "64",
                                        "--chunks", "2", "--exact", "--save", saved));
    assert_int_equal(r.code, 0);
    program_free(&r);
    json_t *result = program_json(
        ARGS("eval", "kl", TINY("q4_1"), "--against", saved, "--lossy", "int8", "--json"));
    assert_true(number(result, "kl_mean") > 1e-9 && number(result, "kl_mean") < 1e-2);
    assert_string_equal(json_string_value(json_object_get(result, "lossy")), "int8");
    json_decref(result);
    /* What a model is compared with is never lossy. */
    r = program_run(ARGS("eval", "kl", TINY("q4_1"), "--against", TINY("q4_1"), "--text", GPL,
                         "--ctx", "64", "--chunks", "1", "--lossy", "int8"));
    assert_int_equal(r.code, 0);
    assert_non_null(strstr(r.out, "tokens (lossy int8)"));
    assert_null(strstr(r.out, "KL divergence  0.000000 "));
    program_free(&r);
}

/* Fewer bits, a divergence that is small and not nothing. */
static void a_quantised_model_is_near(void **state)
{
    (void)state;
    const char *path = program_path("q8.gguf");
    program_result r = program_run(ARGS("quantize", TINY("f32"), path, "--type", "Q8_0"));
    assert_int_equal(r.code, 0);
    program_free(&r);
    json_t *result = program_json(ARGS("eval", "kl", path, "--against", TINY("f32"), "--text", GPL,
                                       "--ctx", "64", "--chunks", "4", "--json"));
    assert_true(number(result, "kl_mean") > 0.0 && number(result, "kl_mean") < 0.1);
    assert_true(number(result, "kl_median") <= number(result, "kl_90"));
    assert_true(number(result, "kl_90") <= number(result, "kl_95"));
    assert_true(number(result, "kl_95") <= number(result, "kl_99"));
    assert_true(number(result, "kl_99") <= number(result, "kl_max"));
    assert_true(number(result, "same_best") > 0.5);
    json_decref(result);
}

static void windows_are_told(void **state)
{
    (void)state;
    program_result r = program_run(ARGS("eval", "kl", TINY("q4_1"), "--against", TINY("f32"),
                                        "--text", GPL, "--ctx", "64", "--chunks", "3"));
    assert_int_equal(r.code, 0);
    assert_int_equal(r.err_length, 0);
    assert_non_null(strstr(r.out, "[1] "));
    assert_non_null(strstr(r.out, "\n[3] "));
    assert_null(strstr(r.out, "[4] "));
    assert_non_null(strstr(r.out, "over 93 tokens"));
    assert_non_null(strstr(r.out, "median"));
    program_free(&r);
    /* Of what was saved only as much as is asked for. */
    json_t *golden = test_golden("eval/kl.json");
    const char *saved = save_reference(golden_text(golden), "part.kl");
    json_t *result = program_json(
        ARGS("eval", "kl", TINY("q4_1"), "--against", saved, "--chunks", "1", "--json"));
    assert_int_equal(json_integer_value(json_object_get(result, "tokens")), 31);
    json_decref(result);
    json_decref(golden);
}

/* ---- saved logits that are wrong ------------------------------------------------------------ */

/* A copy of a saved reference of `length` bytes, with a word of its head replaced. */
static const char *damaged(const char *saved, size_t length, size_t at, uint32_t word)
{
    size_t all = 0;
    char *bytes = program_read(saved, &all);
    char *copy = calloc(all + 8, 1);
    assert_non_null(copy);
    memcpy(copy, bytes, all);
    memcpy(copy + at, &word, sizeof word);
    const char *path = program_file("damaged.kl", copy, length == 0 ? all : length);
    free(copy);
    free(bytes);
    return path;
}

static void damaged_references_are_refused(void **state)
{
    (void)state;
    json_t *golden = test_golden("eval/kl.json");
    /* Paths are views for eight calls, and there are more. */
    char *text = strdup(golden_text(golden)), *saved = strdup(save_reference(text, "whole.kl"));
    size_t all = 0;
    char *bytes = program_read(saved, &all);
    uint32_t words[8];
    memcpy(words, bytes, sizeof words);
    free(bytes);
    /* The head: magic, version, vocabulary, context, windows, hash; 31 rows of a window are scored.
     */
    assert_memory_equal(words, "TEMPERKL", 8);
    assert_int_equal(words[2], 1);
    assert_int_equal(words[3], 291);
    assert_int_equal(words[4], 64);
    assert_int_equal(all, 32 + words[5] * (64 * 4 + 31 * 291 * 4));
    const struct {
        size_t length, at;
        uint32_t word;
        const char *part;
    } rows[] = {
        {all - 1, 8, 1, "its head says"},
        {all + 1, 8, 1, "its head says"},
        {33, 8, 1, "its head says"},
        {31, 8, 1, "the file has 31 bytes"},
        {8, 8, 1, "the file has 8 bytes"},
        {0, 8, 2, "version 2"},
        {0, 12, 290, "its head says"},
        {0, 12, UINT32_MAX, "its head says"},
        {0, 16, 3, "windows of 3 ids"},
        {0, 16, UINT32_MAX, "windows of 4294967295 ids"},
        {0, 20, 0, "as 0 windows"},
        {0, 20, UINT32_MAX, "its head says"},
        {0, 24, 12345, "other tokens"},
        {0, 32, 291, "id 291 is not in its vocabulary of 291"},
        {0, 32 + 64 * 4 * words[5], 0x7fc00000, "not finite"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const char *path = damaged(saved, rows[i].length, rows[i].at, rows[i].word);
        program_refuses(
            &(program_call){.args = ARGS("eval", "kl", TINY("q4_1"), "--against", path, "--json")},
            1,
            i + 1 < sizeof rows / sizeof rows[0] ? ARGS("damaged.kl", rows[i].part)
                                                 : ARGS(rows[i].part));
    }
    /* What does not begin like one is taken for a model. */
    const char *foreign = damaged(saved, 0, 0, 0x12345678);
    assert_refuses(2, "--text", "eval", "kl", TINY("q4_1"), "--against", foreign);
    assert_refuses(1, "damaged.kl", "eval", "kl", TINY("q4_1"), "--against", foreign, "--text",
                   text, "--ctx", "64");
    assert_refuses(1, "another text", "eval", "kl", TINY("q4_1"), "--against", saved, "--text",
                   GPL);
    assert_refuses(1, "--ctx is 128", "eval", "kl", TINY("q4_1"), "--against", saved, "--ctx",
                   "128");
    assert_refuses(1, "this one has", "eval", "kl", TEST_GOLDEN "/arch/qwen2.gguf", "--against",
                   saved);
    free(saved);
    free(text);
    json_decref(golden);
}

static void wrong_calls(void **state)
{
    (void)state;
    assert_refuses(2, "--against MODEL", "eval", "kl", TINY("q4_1"), "--text", GPL);
    assert_refuses(2, "--save FILE", "eval", "kl", TINY("q4_1"), "--text", GPL, "--save", "x",
                   "--against", "y");
    assert_refuses(2, "--text FILE", "eval", "kl", TINY("q4_1"), "--save", "x");
    assert_refuses(2, "--ctx is 3", "eval", "kl", TINY("q4_1"), "--text", GPL, "--ctx", "3",
                   "--save", "x");
    assert_refuses(2, "--ctx is 0", "eval", "kl", TINY("q4_1"), "--text", GPL, "--ctx", "0",
                   "--save", "x");
    assert_refuses(1, "/nowhere", "eval", "kl", TINY("q4_1"), "--text", GPL, "--against",
                   "/nowhere");
    /* Before the model is looked at. */
    assert_refuses(1, "/no/text", "eval", "kl", "/no/model", "--text", "/no/text", "--save", "x");
    assert_refuses(1, "/no/text", "eval", "kl", "/no/model", "--text", "/no/text", "--against",
                   "/no/reference");
    assert_refuses(1, "/no/reference", "eval", "kl", "/no/model", "--text", GPL, "--against",
                   "/no/reference");
    assert_refuses(1, "/no/model", "eval", "kl", "/no/model", "--text", GPL, "--against",
                   TINY("q4_1"));
    assert_refuses(1, "/nowhere/x.kl", "eval", "kl", TINY("q4_1"), "--text", GPL, "--save",
                   "/nowhere/x.kl", "--json");
    assert_refuses(1, "one vocabulary", "eval", "kl", TINY("q4_1"), "--text", GPL, "--ctx", "64",
                   "--against", TEST_GOLDEN "/arch/qwen2.gguf");
    assert_refuses(1, "fewer than one window", "eval", "kl", TINY("q4_1"), "--text", "/dev/null",
                   "--against", TINY("q8_0"));
}

/* A failure leaves what was there before, and nothing beside it. */
static void a_failed_save_leaves_the_file(void **state)
{
    (void)state;
    const char *path = program_file("kept.kl", "kept", 4);
    assert_refuses(1, "5000", "eval", "kl", TINY("q4_1"), "--text", GPL, "--ctx", "5000", "--save",
                   path);
    size_t length = 0;
    char *bytes = program_read(path, &length);
    assert_int_equal(length, 4);
    assert_memory_equal(bytes, "kept", 4);
    free(bytes);
}

static void an_interrupted_save_leaves_nothing(void **state)
{
    (void)state;
    char pattern[512];
    glob_t found;
    char *path = strdup(program_path("interrupted.kl"));
    snprintf(pattern, sizeof pattern, "%s*", path);
    program *p = program_start(&(program_call){
        .args = ARGS("eval", "kl", TINY("f32"), "--text", GPL, "--ctx", "64", "--save", path)});
    program_until_output(p, "[2] ");
    assert_int_equal(glob(pattern, 0, NULL, &found), 0);
    globfree(&found);
    program_signal(p, SIGINT);
    program_result r = program_end(p);
    assert_int_equal(r.code, 130);
    assert_int_equal(r.err_length, 0);
    assert_int_equal(glob(pattern, 0, NULL, &found), GLOB_NOMATCH);
    program_free(&r);
    free(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(statistics_are_the_goldens),
        cmocka_unit_test(of_itself_there_is_none),
        cmocka_unit_test(a_quantised_model_is_near),
        cmocka_unit_test(lossy_options_diverge_a_little),
        cmocka_unit_test(windows_are_told),
        cmocka_unit_test(damaged_references_are_refused),
        cmocka_unit_test(wrong_calls),
        cmocka_unit_test(a_failed_save_leaves_the_file),
        cmocka_unit_test(an_interrupted_save_leaves_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
