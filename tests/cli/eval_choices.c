/*
 * eval_choices.c - `temper eval choices`.
 */
#include "support/program.h"

#include <math.h>

#include "base/strbuf.h"

/* Runs over a file of data; the lines that it printed, one after the other. */
static json_t *answers_of(const char *const *args)
{
    program_result r = program_run(args);
    if (r.code != 0)
        fail_msg("code %d: %s", r.code, r.err);
    json_t *lines = json_array();
    for (char *line = strtok(r.out, "\n"); line != NULL; line = strtok(NULL, "\n")) {
        json_t *object = json_loads(line, JSON_REJECT_DUPLICATES, NULL);
        if (object == NULL)
            fail_msg("no JSON: %s", line);
        json_array_append_new(lines, object);
    }
    program_free(&r);
    return lines;
}

static double number(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    if (!json_is_number(value))
        fail_msg("no number %s", key);
    return json_number_value(value);
}

/* The golden's questions, each on its line, with blank lines between. */
static const char *golden_data(const json_t *golden, size_t most)
{
    strbuf data = {0};
    const json_t *list = json_object_get(golden, "questions");
    for (size_t i = 0; i < json_array_size(list) && i < most; i++)
        strbuf_printf(&data, "%s%s",
                      i == 0       ? ""
                      : i % 2 == 0 ? "\r\n  \n"
                                   : "\n",
                      json_string_value(json_object_get(json_array_get(list, i), "data")));
    const char *path = program_file("questions.jsonl", strbuf_text(&data), data.length);
    strbuf_free(&data);
    return path;
}

/* f32 sums of up to 30 log-probabilities near 5: off by 1e-6 of the logits' range (15) each. */
static void expect_logprobs(const json_t *found, const json_t *wanted)
{
    assert_int_equal(json_array_size(found), json_array_size(wanted));
    for (size_t i = 0; i < json_array_size(wanted); i++) {
        const double right = json_number_value(json_array_get(wanted, i));
        const double got = json_number_value(json_array_get(found, i));
        if (fabs(got - right) > 1e-3)
            fail_msg("choice %zu: %.9g, not %.9g", i, got, right);
    }
}

static void scores_are_the_goldens(void **state)
{
    static const char *const sums[] = {"acc", "acc_stderr", "acc_norm", "acc_norm_stderr"};
    static const char *const places[] = {"answer", "best", "best_norm"};
    (void)state;
    json_t *golden = test_golden("eval/choices.json");
    const json_t *list = json_object_get(golden, "questions");
    const size_t count = json_array_size(list);
    json_t *lines = answers_of(ARGS("eval", "choices", TINY("q4_1"), "--data",
                                    golden_data(golden, count), "--exact", "--json"));
    assert_int_equal(json_array_size(lines), count + 1);
    for (size_t i = 0; i < count; i++) {
        const json_t *wanted = json_array_get(list, i), *found = json_array_get(lines, i);
        assert_int_equal(json_object_size(found), 6);
        assert_int_equal(json_integer_value(json_object_get(found, "line")), i + i / 2 + 1);
        for (size_t k = 0; k < sizeof places / sizeof places[0]; k++)
            assert_true(
                json_equal(json_object_get(found, places[k]), json_object_get(wanted, places[k])));
        assert_true(json_equal(json_object_get(found, "bytes"), json_object_get(wanted, "bytes")));
        expect_logprobs(json_object_get(found, "logprobs"), json_object_get(wanted, "logprobs"));
    }
    const json_t *all = json_array_get(lines, count);
    assert_int_equal(json_object_size(all), 5);
    assert_int_equal(json_integer_value(json_object_get(all, "questions")), count);
    for (size_t k = 0; k < sizeof sums / sizeof sums[0]; k++)
        assert_true(fabs(number(all, sums[k]) - number(golden, sums[k])) < 1e-6);
    json_decref(lines);
    json_decref(golden);
}

/* Nothing between prompt and choice: the tokens at the boundary change, and the split with them. */
static void choices_that_go_on_a_word(void **state)
{
    (void)state;
    json_t *golden = test_golden("eval/choices.json");
    const json_t *list = json_object_get(golden, "questions");
    json_t *lines = answers_of(ARGS("eval", "choices", TINY("q4_1"), "--data",
                                    golden_data(golden, 4), "--join", "", "--exact", "--json"));
    assert_int_equal(json_array_size(lines), 5);
    for (size_t i = 0; i < 4; i++)
        expect_logprobs(json_object_get(json_array_get(lines, i), "logprobs"),
                        json_object_get(json_array_get(list, i), "tight_logprobs"));
    json_decref(lines);
    json_decref(golden);
}

/* What a model with BOS finds of " e" after "Th" is what the best tokens say after the same ids. */
static void bos_stands_before_the_prompt(void **state)
{
    static const char data[] = "{\"prompt\": \"T\", \"choices\": [\" a\", \" of\"], \"answer\": 0}";
    (void)state;
    const char *path = program_file("bos.jsonl", data, sizeof data - 1);
    json_t *lines =
        answers_of(ARGS("eval", "choices", TINY("f16"), "--data", path, "--exact", "--json"));
    const json_t *found = json_object_get(json_array_get(lines, 0), "logprobs");
    json_t *tokens = program_json(ARGS("tokenize", TINY("f16"), "--json", "--bos", "-p", "T a"));
    const json_t *ids = json_object_get(tokens, "ids");
    assert_int_equal(json_array_size(ids), 3);
    char list[64];
    snprintf(list, sizeof list, "%d %d", (int)json_integer_value(json_array_get(ids, 0)),
             (int)json_integer_value(json_array_get(ids, 1)));
    json_t *result = program_json(
        ARGS("eval", "next", TINY("f16"), "--ids", list, "-k", "291", "--exact", "--json"));
    const json_t *next = json_object_get(result, "next");
    double sum = 0.0, logit = 0.0;
    for (size_t i = 0; i < json_array_size(next); i++) {
        const json_t *row = json_array_get(next, i);
        sum += exp(number(row, "logit"));
        if (json_equal(json_object_get(row, "id"), json_array_get(ids, 2)))
            logit = number(row, "logit");
    }
    assert_true(fabs(json_number_value(json_array_get(found, 0)) - (logit - log(sum))) < 1e-4);
    json_decref(result);
    json_decref(tokens);
    json_decref(lines);
}

static void sums_without_json(void **state)
{
    (void)state;
    json_t *golden = test_golden("eval/choices.json");
    program_result r = program_run(
        ARGS("eval", "choices", TINY("q4_1"), "--data", golden_data(golden, 100), "--exact"));
    assert_int_equal(r.code, 0);
    assert_int_equal(r.err_length, 0);
    assert_string_equal(r.out, "questions           7\n"
                               "accuracy            57.14 \xc2\xb1 20.20 %\n"
                               "accuracy, per byte  85.71 \xc2\xb1 14.29 %\n");
    program_free(&r);
    json_decref(golden);
}

/* ---- data that is wrong ---------------------------------------------------------------------- */

static void bad_lines_are_named(void **state)
{
    static const struct {
        const char *line, *part;
    } rows[] = {
        {"{", "is not JSON"},
        {"not JSON", "is not JSON"},
        {"{\"prompt\": \"\xff\"}", "is not JSON"},
        {"{\"prompt\": \"a\", \"prompt\": \"b\"}", "is not JSON"},
        {"[1, 2]", "no JSON object"},
        {"{\"choices\": [\"a\", \"b\"], \"answer\": 0}", "\"question\" or \"prompt\""},
        {"{\"prompt\": \"a\", \"question\": \"b\", \"choices\": [\"a\", \"b\"], \"answer\": 0}",
         "\"question\" or \"prompt\""},
        {"{\"prompt\": 1, \"choices\": [\"a\", \"b\"], \"answer\": 0}", "\"prompt\" is no text"},
        {"{\"question\": [], \"choices\": [\"a\", \"b\"], \"answer\": 0}",
         "\"question\" is no text"},
        {"{\"prompt\": \"a\", \"answer\": 0}", "\"choices\" must be"},
        {"{\"prompt\": \"a\", \"choices\": \"ab\", \"answer\": 0}", "\"choices\" must be"},
        {"{\"prompt\": \"a\", \"choices\": [\"b\"], \"answer\": 0}", "\"choices\" must be"},
        {"{\"prompt\": \"a\", \"choices\": [\"b\", 1], \"answer\": 0}", "choice 1 is no text"},
        {"{\"prompt\": \"a\", \"choices\": [\"b\", \"\"], \"answer\": 0}", "choice 1 is no text"},
        {"{\"prompt\": \"a\", \"choices\": [\"b\", \"c\"]}", "\"answer\" must be"},
        {"{\"prompt\": \"a\", \"choices\": [\"b\", \"c\"], \"answer\": 2}", "0 to 1"},
        {"{\"prompt\": \"a\", \"choices\": [\"b\", \"c\"], \"answer\": -1}", "\"answer\" must be"},
        {"{\"prompt\": \"a\", \"choices\": [\"b\", \"c\"], \"answer\": 0.5}", "\"answer\" must be"},
        {"{\"prompt\": \"a\", \"choices\": [\"b\", \"c\"], \"answer\": \"C\"}",
         "\"answer\" must be"},
        {"{\"prompt\": \"a\", \"choices\": [\"b\", \"c\"], \"answer\": \"AB\"}",
         "\"answer\" must be"},
        {"{\"prompt\": \"a\", \"choices\": [\"b\", \"c\"], \"answer\": \"\"}",
         "\"answer\" must be"},
    };
    static const char good[] = "{\"prompt\": \"a\", \"choices\": [\"b\", \"c\"], \"answer\": 1}";
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char data[512];
        snprintf(data, sizeof data, "%s\n\n%s\n%s\n", good, rows[i].line, good);
        const char *path = program_file("bad.jsonl", data, strlen(data));
        program_refuses(&(program_call){.args = ARGS("eval", "choices", TINY("q4_1"), "--data",
                                                     path, "--json")},
                        1, ARGS("bad.jsonl:3: ", rows[i].part));
    }
}

static void what_does_not_fit_is_named(void **state)
{
    (void)state;
    strbuf data = {0};
    strbuf_puts(&data, "{\"prompt\": \"");
    for (int i = 0; i < 5000; i++)
        strbuf_puts(&data, "z ");
    strbuf_puts(&data, "\", \"choices\": [\"a\", \"b\"], \"answer\": 0}");
    const char *path = program_file("long.jsonl", strbuf_text(&data), data.length);
    strbuf_free(&data);
    program_refuses(
        &(program_call){.args = ARGS("eval", "choices", TINY("q4_1"), "--data", path, "--json")}, 1,
        ARGS("long.jsonl:1: ", "context 4096"));
    assert_refuses(1, "holds no question", "eval", "choices", TINY("q4_1"), "--data", "/dev/null");
    assert_refuses(1, "/nowhere", "eval", "choices", TINY("q4_1"), "--data", "/nowhere");
    /* Before the model is looked at. */
    assert_refuses(1, "/no/data", "eval", "choices", "/no/model", "--data", "/no/data");
    assert_refuses(1, "is not JSON", "eval", "choices", "/no/model", "--data",
                   program_file("text.jsonl", "why?\n", 5));
    assert_refuses(2, "--data FILE", "eval", "choices", TINY("q4_1"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scores_are_the_goldens),
        cmocka_unit_test(choices_that_go_on_a_word),
        cmocka_unit_test(bos_stands_before_the_prompt),
        cmocka_unit_test(sums_without_json),
        cmocka_unit_test(bad_lines_are_named),
        cmocka_unit_test(what_does_not_fit_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
