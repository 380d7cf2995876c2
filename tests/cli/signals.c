/*
 * signals.c - Ctrl-C at every stage of a run: it ends within three seconds with code 130.
 */
#include "support/program.h"

#include <signal.h>

enum { INTERRUPTED = 130, SECONDS = 3 };

/* Sends the signal and expects the end in time. */
static program_result interrupt(program *p)
{
    const double before = program_seconds(p);
    program_signal(p, SIGINT);
    program_result r = program_end(p);
    if (r.code != INTERRUPTED)
        fail_msg("exit code %d\n--- stdout\n%s\n--- stderr\n%s", r.code, r.out, r.err);
    if (r.seconds - before > SECONDS)
        fail_msg("it took %.1f s", r.seconds - before);
    return r;
}

static void while_a_model_loads(void **state)
{
    (void)state;
    /* The progress of the default model, which takes long enough, shows where it is. */
    program *p = program_start(&(program_call){
        .args = ARGS("run", test_default_model(), "--raw", "-p", "x"), .terminal = ON_ERRORS});
    program_until(p, "loading");
    program_result r = interrupt(p);
    assert_int_equal(r.out_length, 0);
    program_free(&r);
}

static void while_a_prompt_is_read(void **state)
{
    (void)state;
    program *p =
        program_start(&(program_call){.args = ARGS("run", test_default_model(), "--raw", "--json",
                                                   "-f", "/usr/share/common-licenses/Apache-2.0"),
                                      .terminal = ON_ERRORS});
    program_until(p, "reading the prompt");
    program_result r = interrupt(p);
    assert_int_equal(r.out_length, 0);
    program_free(&r);
}

static void while_an_answer_comes(void **state)
{
    (void)state;
    program *p =
        program_start(&(program_call){.args = ARGS("run", TINY("f32"), "--raw", "-p", "The")});
    program_until_any_output(p);
    program_result r = interrupt(p);
    assert_true(r.out_length > 0);
    assert_int_equal(r.err_length, 0);
    program_free(&r);
}

/* With --json the answer is told at its end: an interrupted one is not told. */
static void an_answer_in_json(void **state)
{
    (void)state;
    program *p =
        program_start(&(program_call){.args = ARGS("run", test_default_model(), "--raw", "--json",
                                                   "-p", "Once upon a time", "--ctx", "512"),
                                      .terminal = ON_ERRORS});
    program_until(p, "loading");
    program_until(p, "\r\033[K");
    program_result r = interrupt(p);
    assert_int_equal(r.out_length, 0);
    program_free(&r);
}

static void twice(void **state)
{
    (void)state;
    program *p =
        program_start(&(program_call){.args = ARGS("run", TINY("f32"), "--raw", "-p", "The")});
    program_until_any_output(p);
    program_signal(p, SIGINT);
    program_result r = interrupt(p);
    program_free(&r);
}

static void while_stdin_is_awaited(void **state)
{
    (void)state;
    /* A terminal that nobody types on; -f - reads it to its end. What the progress of nothing else
     * could show is shown by the terminal's echo: it comes once the program's side is open. */
    program *p = program_start(&(program_call){.args = ARGS("tokenize", TINY("f32"), "-f", "-"),
                                               .terminal = ON_INPUT | ON_ERRORS});
    program_type(p, "abc\n");
    program_until(p, "abc");
    program_signal(p, SIGINT);
    program_result r = program_end(p);
    /* Before the program had asked for the signal it is killed by it, which shells tell as 130 too.
     */
    assert_true(r.code == INTERRUPTED || r.code == -SIGINT);
    assert_int_equal(r.out_length, 0);
    program_free(&r);
}

static void perplexity_and_kernels(void **state)
{
    (void)state;
    program *p =
        program_start(&(program_call){.args = ARGS("eval", "ppl", TINY("f32"), "--ctx", "64",
                                                   "--text", "/usr/share/common-licenses/GPL-3")});
    program_until_output(p, "[2]");
    program_result r = interrupt(p);
    program_free(&r);
    p = program_start(&(program_call){.args = ARGS("kernels", "test")});
    program_until_any_output(p);
    r = interrupt(p);
    program_free(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(while_a_model_loads),
        cmocka_unit_test(while_a_prompt_is_read),
        cmocka_unit_test(while_an_answer_comes),
        cmocka_unit_test(an_answer_in_json),
        cmocka_unit_test(twice),
        cmocka_unit_test(while_stdin_is_awaited),
        cmocka_unit_test(perplexity_and_kernels),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
