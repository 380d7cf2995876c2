/*
 * eval.c - `temper eval next` and `temper eval ppl`.
 */
#include "support/program.h"

#include <math.h>

/* ---- next ----------------------------------------------------------------------------------- */

static json_t *next_of(const char *const *args)
{
    json_t *result = program_json(args);
    assert_int_equal(json_object_size(result), 1);
    json_t *next = json_incref(json_object_get(result, "next"));
    assert_true(json_is_array(next));
    json_decref(result);
    return next;
}

static json_int_t id_at(const json_t *next, size_t index)
{
    return json_integer_value(json_object_get(json_array_get(next, index), "id"));
}

static double logit_at(const json_t *next, size_t index)
{
    return json_number_value(json_object_get(json_array_get(next, index), "logit"));
}

/* Every logit of the last position against the golden, best first. */
static void all_logits_are_the_goldens(void **state)
{
    (void)state;
    json_t *golden = test_golden("tiny/llama-q8_0.json");
    const json_t *prompt = json_array_get(json_object_get(golden, "prompts"), 1);
    const json_t *positions = json_object_get(prompt, "logits");
    const json_t *wanted =
        json_object_get(json_array_get(positions, json_array_size(positions) - 1), "values");
    const double range = json_number_value(json_object_get(prompt, "range"));
    json_t *next = next_of(ARGS("eval", "next", TINY("q8_0"), "-k", "1000000", "--json", "-p",
                                json_string_value(json_object_get(prompt, "text"))));
    assert_int_equal(json_array_size(next), json_array_size(wanted));
    bool seen[1024] = {false};
    for (size_t i = 0; i < json_array_size(next); i++) {
        const json_t *row = json_array_get(next, i);
        const size_t id = (size_t)id_at(next, i);
        assert_int_equal(json_object_size(row), 3);
        assert_true(json_is_string(json_object_get(row, "piece")));
        assert_true(id < 1024 && !seen[id]);
        seen[id] = true;
        assert_true(i == 0 || logit_at(next, i) <= logit_at(next, i - 1));
        const double exact = json_number_value(json_array_get(wanted, id));
        assert_true(fabs(logit_at(next, i) - exact) <= 1e-3 * range);
    }
    json_decref(next);
    json_decref(golden);
}

static void ids_and_text_give_the_same(void **state)
{
    (void)state;
    json_t *text = next_of(ARGS("eval", "next", TINY("q4_1"), "-p", "The", "--json"));
    json_t *ids = next_of(ARGS("eval", "next", TINY("q4_1"), "--ids", "87 260", "--json"));
    json_t *commas = next_of(ARGS("eval", "next", TINY("q4_1"), "--ids", " 87,\n260 ", "--json"));
    assert_int_equal(json_array_size(text), 10); /* unless -k says otherwise */
    assert_true(json_equal(text, ids));
    assert_true(json_equal(text, commas));
    json_decref(text);
    json_decref(ids);
    json_decref(commas);
    /* BOS where the file says so; special tokens are parsed. */
    text = next_of(ARGS("eval", "next", TINY("f16"), "-p", "T<|im_end|>", "--json"));
    ids = next_of(ARGS("eval", "next", TINY("f16"), "--ids", "1 87 2", "--json"));
    assert_true(json_equal(text, ids));
    json_decref(text);
    json_decref(ids);
}

static void k_of_any_size(void **state)
{
    static const struct {
        const char *k;
        size_t rows;
    } rows[] = {{"0", 0}, {"1", 1}, {"291", 291}, {"292", 291}, {"99999999999999999999", 291}};
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        json_t *next =
            next_of(ARGS("eval", "next", TINY("q4_1"), "-p", "The", "--json", "-k", rows[i].k));
        assert_int_equal(json_array_size(next), rows[i].rows);
        json_decref(next);
    }
    assert_refuses(2, "-k is \"-1\"", "eval", "next", TINY("q4_1"), "-p", "The", "-k", "-1");
    program_expect(ARGS("eval", "next", TINY("q4_1"), "-p", "The", "-k", "0"), "");
}

static void ids_that_are_none(void **state)
{
    (void)state;
    assert_refuses(1, "291", "eval", "next", TINY("q4_1"), "--ids", "1 291", "--json");
    assert_refuses(1, "4294967295", "eval", "next", TINY("q4_1"), "--ids", "4294967295");
    assert_refuses(1, "\"4294967296\"", "eval", "next", TINY("q4_1"), "--ids", "4294967296");
    assert_refuses(1, "\"-1\"", "eval", "next", TINY("q4_1"), "--ids", "-1");
    assert_refuses(1, "\"1.5\"", "eval", "next", TINY("q4_1"), "--ids", "1.5");
    assert_refuses(1, "\"two\"", "eval", "next", TINY("q4_1"), "--ids", "1 two");
    assert_refuses(1, "empty", "eval", "next", TINY("q4_1"), "--ids", "");
    assert_refuses(1, "empty", "eval", "next", TINY("q4_1"), "-p", "", "--json");
}

/* ---- ppl ------------------------------------------------------------------------------------ */

static void ppl_counts_what_it_scores(void **state)
{
    static const struct {
        const char *context, *chunks;
        json_int_t tokens;
    } rows[] = {{"64", "4", 4 * 31}, {"64", "1", 31}, {"256", "2", 2 * 127}, {"4", "3", 3}};
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        json_t *result = program_json(ARGS("eval", "ppl", TINY("q4_1"), "--text",
                                           "/usr/share/common-licenses/GPL-3", "--ctx",
                                           rows[i].context, "--chunks", rows[i].chunks, "--json"));
        assert_int_equal(json_object_size(result), 2);
        assert_int_equal(json_integer_value(json_object_get(result, "tokens")), rows[i].tokens);
        assert_true(json_number_value(json_object_get(result, "ppl")) > 1.0);
        json_decref(result);
    }
}

/* The perplexity by hand: of one window of 8 ids, ids 5 to 7 are scored, each after all before. */
static void ppl_is_what_next_says(void **state)
{
    (void)state;
    const char *text = "The kernel reads", *path = program_file("text", text, strlen(text));
    json_t *tokens = program_json(ARGS("tokenize", TINY("q4_1"), "--json", "-p", text));
    const json_t *ids = json_object_get(tokens, "ids");
    assert_true(json_array_size(ids) >= 8 && json_array_size(ids) < 16);
    double sum = 0.0;
    for (size_t at = 5; at < 8; at++) {
        char list[256] = "";
        for (size_t i = 0; i < at; i++)
            snprintf(list + strlen(list), sizeof list - strlen(list), "%d ",
                     (int)json_integer_value(json_array_get(ids, i)));
        json_t *next =
            next_of(ARGS("eval", "next", TINY("q4_1"), "-k", "291", "--json", "--ids", list));
        double total = 0.0, chosen = 0.0;
        for (size_t i = 0; i < 291; i++) {
            total += exp(logit_at(next, i) - logit_at(next, 0));
            if (id_at(next, i) == json_integer_value(json_array_get(ids, at)))
                chosen = logit_at(next, i) - logit_at(next, 0);
        }
        sum += log(total) - chosen;
        json_decref(next);
    }
    json_t *result =
        program_json(ARGS("eval", "ppl", TINY("q4_1"), "--text", path, "--ctx", "8", "--json"));
    assert_int_equal(json_integer_value(json_object_get(result, "tokens")), 3);
    const double ppl = json_number_value(json_object_get(result, "ppl"));
    assert_true(fabs(ppl / exp(sum / 3.0) - 1.0) < 1e-3);
    json_decref(result);
    json_decref(tokens);
}

/* Without --json: the running value of every window, the whole at the end. */
static void ppl_runs(void **state)
{
    (void)state;
    program_result r =
        program_run(ARGS("eval", "ppl", TINY("q4_1"), "--text", "/usr/share/common-licenses/GPL-3",
                         "--ctx", "64", "--chunks", "3"));
    assert_int_equal(r.code, 0);
    assert_non_null(strstr(r.out, "[1] "));
    assert_non_null(strstr(r.out, "\n[3] "));
    assert_null(strstr(r.out, "[4] "));
    assert_non_null(strstr(r.out, "93 tokens"));
    assert_int_equal(r.err_length, 0);
    program_free(&r);
}

static void ppl_refuses(void **state)
{
    (void)state;
    const char *text = program_file("short", "T", 1);
    assert_refuses(1, "fewer than one window", "eval", "ppl", TINY("q4_1"), "--text", text,
                   "--json");
    assert_refuses(1, "0 tokens", "eval", "ppl", TINY("q4_1"), "--text", "/dev/null");
    assert_refuses(1, "/nowhere", "eval", "ppl", TINY("q4_1"), "--text", "/nowhere", "--json");
    /* Before the model is looked at. */
    assert_refuses(1, "/no/text", "eval", "ppl", "/no/model", "--text", "/no/text");
    assert_refuses(1, "/no/model", "eval", "ppl", "/no/model", "--text", text);
    assert_refuses(1, "5000", "eval", "ppl", TINY("q4_1"), "--ctx", "5000", "--text",
                   "/usr/share/common-licenses/GPL-3");
    assert_refuses(2, "--ctx is 3", "eval", "ppl", TINY("q4_1"), "--ctx", "3", "--text", text);
    assert_refuses(2, "--ctx is 0", "eval", "ppl", TINY("q4_1"), "--ctx", "0", "--text", text);
    assert_refuses(2, "--ctx", "eval", "ppl", TINY("q4_1"), "--ctx", "99999999999999999999",
                   "--text", text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_logits_are_the_goldens),
        cmocka_unit_test(ids_and_text_give_the_same),
        cmocka_unit_test(k_of_any_size),
        cmocka_unit_test(ids_that_are_none),
        cmocka_unit_test(ppl_counts_what_it_scores),
        cmocka_unit_test(ppl_is_what_next_says),
        cmocka_unit_test(ppl_runs),
        cmocka_unit_test(ppl_refuses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
