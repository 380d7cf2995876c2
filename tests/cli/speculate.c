/*
 * speculate.c - `temper run` with --lookup and --draft: the same text, what is told of it, and what
 * is refused.
 */
#include "support/program.h"

/* Greedy, this prompt of this model repeats itself now and then. */
#define REPEATING TINY("f32"), "--raw", "-p", "The", "-n", "60"

static json_int_t number(const json_t *result, const char *name)
{
    const json_t *value = json_object_get(json_object_get(result, "timings"), name);
    assert_true(json_is_integer(value));
    return json_integer_value(value);
}

static void the_text_stays_the_same(void **state)
{
    (void)state;
    json_t *wanted = program_json(ARGS("run", REPEATING, "--json"));
    assert_null(json_object_get(json_object_get(wanted, "timings"), "proposed"));
    const char *const *calls[] = {
        ARGS("run", REPEATING, "--json", "--lookup", "8"),
        ARGS("run", REPEATING, "--json", "--lookup", "1"),
        ARGS("run", REPEATING, "--json", "--draft", TINY("q4_1")),
        ARGS("run", REPEATING, "--json", "--draft", TINY("f32"), "--draft-n", "2"),
    };
    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++) {
        json_t *got = program_json(calls[i]);
        static const char *const same[] = {"text", "tokens", "prompt_tokens", "finish"};
        for (size_t k = 0; k < sizeof same / sizeof same[0]; k++)
            assert_true(
                json_equal(json_object_get(got, same[k]), json_object_get(wanted, same[k])));
        assert_true(number(got, "accepted") <= number(got, "proposed"));
        const json_t *gain = json_object_get(json_object_get(got, "timings"), "gain");
        assert_true(json_is_real(gain) && json_real_value(gain) >= 1.0);
        if (i < 2)
            assert_true(number(got, "accepted") > 0 && json_real_value(gain) > 1.0);
        json_decref(got);
    }
    json_decref(wanted);
    /* At a temperature the seed decides, not who proposed. */
    json_t *drawn = program_json(ARGS("run", REPEATING, "--json", "--temp", "1", "--seed", "3"));
    json_t *checked = program_json(
        ARGS("run", REPEATING, "--json", "--temp", "1", "--seed", "3", "--lookup", "8"));
    assert_true(json_equal(json_object_get(drawn, "tokens"), json_object_get(checked, "tokens")));
    json_decref(drawn);
    json_decref(checked);
}

/* Where speeds are shown, so is what speculation brought. */
static void a_terminal_is_told(void **state)
{
    (void)state;
    program_result r = program_call_all(
        &(program_call){.args = ARGS("run", REPEATING, "--lookup", "8"), .terminal = ON_ERRORS});
    assert_int_equal(r.code, 0);
    assert_non_null(strstr(r.err, "proposed tokens were right, 1."));
    program_free(&r);
    r = program_call_all(&(program_call){.args = ARGS("run", REPEATING), .terminal = ON_ERRORS});
    assert_non_null(strstr(r.err, "a second]"));
    assert_null(strstr(r.err, "proposed"));
    program_free(&r);
}

static void what_cannot_propose_is_refused(void **state)
{
    (void)state;
    assert_refuses(2, "--lookup is 17; it must be 0 to 16", "run", REPEATING, "--lookup", "17");
    assert_refuses(2, "--draft-n is 0; it must be 1 to 16", "run", REPEATING, "--draft",
                   TINY("f32"), "--draft-n", "0");
    assert_refuses(2, "--draft-n is 17", "run", REPEATING, "--draft", TINY("f32"), "--draft-n",
                   "17");
    assert_refuses(2, "give one with --draft", "run", REPEATING, "--draft-n", "4");
    assert_refuses(2, "use one of them", "run", REPEATING, "--lookup", "4", "--draft", TINY("f32"));
    assert_refuses(1, "no-such-model.gguf", "run", REPEATING, "--draft", "/no-such-model.gguf");
    assert_refuses(1, "tokens and the model 291", "run", REPEATING, "--draft",
                   TEST_GOLDEN "/arch/gemma3.gguf");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_text_stays_the_same),
        cmocka_unit_test(a_terminal_is_told),
        cmocka_unit_test(what_cannot_propose_is_refused),
    };
    return cmocka_run_group_tests_name("cli_speculate", tests, NULL, NULL);
}
