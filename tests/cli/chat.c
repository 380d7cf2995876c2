/*
 * chat.c - the chat in a terminal. What the terminal shows and what is typed go over it; answers go
 * to stdout, which is a pipe here, so that they can be told apart.
 */
#include "support/program.h"

#include <signal.h>

#define READY "> "

static program *chat(const char *const *args)
{
    program *p = program_start(&(program_call){
        .args = args, .env = ARGS("TERM=xterm", "LC_ALL=C"), .terminal = ON_INPUT | ON_ERRORS});
    program_until(p, "Ctrl-C stops an answer");
    program_until(p, READY);
    return p;
}

/* The answer that the same messages get when they are given as one text. */
static char *wanted(const char *text)
{
    json_t *result =
        program_json(ARGS("run", TINY("q4_1"), "--raw", "-n", "6", "--json", "-p", text));
    char *answer = strdup(json_string_value(json_object_get(result, "text")));
    json_decref(result);
    return answer;
}

/* Takes the next answer off stdout. */
static void expect_answer(program *p, const char *answer)
{
    char line[256];
    snprintf(line, sizeof line, "%s\n", answer);
    program_until_output(p, line);
    program_until(p, READY);
}

static void remembers_what_was_said(void **state)
{
    (void)state;
    char text[1024];
    snprintf(text, sizeof text,
             "<|im_start|>user\nna\xc3\xafve T<|im_end|>\n"
             "<|im_start|>assistant\n");
    char *first = wanted(text);
    const size_t length = strlen(text);
    snprintf(text + length, sizeof text - length,
             "%s<|im_end|>\n<|im_start|>user\nT<|im_end|>\n<|im_start|>assistant\n", first);
    char *second = wanted(text);
    program *p = chat(ARGS("run", TINY("q4_1"), "-n", "6"));
    program_type(p, "na\xc3\xafve T\n");
    expect_answer(p, first);
    program_type(p, "T\n");
    expect_answer(p, second);
    /* Empty lines are no turns. */
    program_type(p, "\n   \n");
    program_until(p, READY);
    program_until(p, READY);
    program_type(p, "/clear\n");
    program_until(p, READY);
    program_type(p, "na\xc3\xafve T\n");
    expect_answer(p, first);
    program_type(p, "\004");
    program_result r = program_end(p);
    assert_int_equal(r.code, 0);
    char all[1024];
    snprintf(all, sizeof all, "%s\n%s\n%s\n", first, second, first);
    assert_string_equal(r.out, all);
    program_free(&r);
    free(first);
    free(second);
}

static void a_paste_is_one_message(void **state)
{
    (void)state;
    char *first = wanted("<|im_start|>user\none\ntw\xc3\xb6 three<|im_end|>\n"
                         "<|im_start|>assistant\n");
    program *p = chat(ARGS("run", TINY("q4_1"), "-n", "6"));
    program_type(p, "\033[200~one\ntw\xc3\xb6\033[201~ three\n");
    expect_answer(p, first);
    program_type(p, "/exit\n");
    program_result r = program_end(p);
    assert_int_equal(r.code, 0);
    program_free(&r);
    free(first);
}

static void a_system_message_stays(void **state)
{
    (void)state;
    char *first = wanted("<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nT<|im_end|>\n"
                         "<|im_start|>assistant\n");
    program *p = chat(ARGS("run", TINY("q4_1"), "-n", "6", "--system", "Be brief."));
    program_type(p, "T\n");
    expect_answer(p, first);
    program_type(p, "/clear\n");
    program_until(p, READY);
    program_type(p, "T\n");
    expect_answer(p, first);
    program_type(p, "/quit\n");
    program_result r = program_end(p);
    assert_int_equal(r.code, 0);
    program_free(&r);
    free(first);
}

/* Ctrl-C: an answer stops and the chat goes on; a line being typed is thrown away. */
static void ctrl_c_keeps_the_chat(void **state)
{
    (void)state;
    program *p = chat(ARGS("run", TINY("f32")));
    program_type(p, "T\n");
    program_until_any_output(p);
    program_type(p, "\003");
    program_until(p, READY);
    program_type(p, "half a line");
    program_until(p, "half a line");
    /* Not as a key: the kernel then throws away what the terminal has not shown yet. */
    program_signal(p, SIGINT);
    program_until(p, READY);
    program_type(p, "/help\n");
    program_until(p, "/clear");
    program_until(p, READY);
    program_type(p, "/clear\n"); /* what is said next must not hang on where the answer stopped */
    program_until(p, READY);
    program_skip_output(p);
    program_type(p, "/help me\n"); /* two words: for the model */
    program_until_any_output(p);
    program_signal(p, SIGINT);
    program_until(p, READY);
    program_type(p, "\004");
    program_result r = program_end(p);
    assert_int_equal(r.code, 0);
    program_free(&r);
}

/* Lines and a Ctrl-D typed during an answer wait for its end. */
static void what_is_typed_during_an_answer(void **state)
{
    (void)state;
    program *p = chat(ARGS("run", TINY("f32"), "-n", "500"));
    program_type(p, "T\n");
    program_until_any_output(p);
    program_type(p, "/clear\n\004");
    program_until(p, READY);
    program_until(p, READY);
    program_result r = program_end(p);
    assert_int_equal(r.code, 0);
    /* Shown at the prompt, not in the middle of the answer. */
    assert_non_null(program_find(r.err, r.err_length, READY "/clear"));
    program_free(&r);
}

static void a_full_context_is_told(void **state)
{
    (void)state;
    program *p = chat(ARGS("run", TINY("q4_1"), "-n", "1", "--ctx", "64"));
    program_type(p, "A message that takes many more tokens than this short context could hold.\n");
    program_until(p, "the context 64");
    program_until(p, "/clear");
    program_until(p, READY);
    program_skip_output(p);
    program_type(p, "T\n");
    program_until_any_output(p);
    program_until(p, READY);
    program_type(p, "\004");
    program_result r = program_end(p);
    assert_int_equal(r.code, 0);
    program_free(&r);
}

/* ---- templates ------------------------------------------------------------------------------ */

/* A copy of a tiny model with other bytes in the place of its template's first ones; "" takes the
 * template away by renaming its key. */
static const char *with_template(const char *name, const char *bytes)
{
    static const char key[] = "tokenizer.chat_template";
    size_t length = 0;
    char *model = program_read(TINY("q4_1"), &length);
    const char *found = program_find(model, length, key);
    assert_non_null(found);
    char *at = model + (found - model);
    if (bytes[0] == '\0') {
        at[0] = 'x';
    } else {
        uint64_t size = 0;
        char *text = at + sizeof key - 1 + 4 + 8;
        memcpy(&size, text - 8, sizeof size);
        assert_true(strlen(bytes) <= size);
        memset(text, ' ', size);
        memcpy(text, bytes, strlen(bytes));
    }
    const char *path = program_file(name, model, length);
    free(model);
    return path;
}

static void a_template_that_refuses_is_quoted(void **state)
{
    (void)state;
    const char *path = with_template(
        "refuses.gguf", "{% if messages|length > 1 %}{{ raise_exception('one turn only') }}"
                        "{% endif %}{{ messages[0].content }}");
    program *p = chat(ARGS("run", path, "-n", "1"));
    program_type(p, "T\n");
    program_until_any_output(p);
    program_until(p, READY);
    program_type(p, "T\n");
    program_until(p, "one turn only");
    program_until(p, READY);
    program_type(p, "/clear\n");
    program_until(p, READY);
    program_skip_output(p);
    program_type(p, "T\n");
    program_until_any_output(p);
    program_until(p, READY);
    program_type(p, "\004");
    program_result r = program_end(p);
    assert_int_equal(r.code, 0);
    program_free(&r);
    assert_refuses(1, "one turn only", "run", path, "-p", "T", "--system", "x");
}

static void a_broken_template_is_told(void **state)
{
    (void)state;
    const char *path = with_template("broken.gguf", "{% if %}");
    assert_refuses(1, "template", "run", path, "-p", "T");
    assert_refuses(1, "template", "run", path, "-p", "T", "--json");
    /* Only chats need it. */
    program_result r = program_run(ARGS("run", path, "-p", "T", "--raw", "-n", "1"));
    assert_int_equal(r.code, 0);
    program_free(&r);
}

static void no_template_names_raw(void **state)
{
    (void)state;
    const char *path = with_template("plain.gguf", "");
    assert_refuses(1, "--raw", "run", path, "-p", "T");
    program_result r = program_run(ARGS("run", path, "-p", "T", "--raw", "-n", "1"));
    assert_int_equal(r.code, 0);
    program_free(&r);
    r = program_call_all(&(program_call){.args = ARGS("run", path), .terminal = ON_INPUT});
    assert_int_equal(r.code, 1);
    assert_non_null(strstr(r.err, "--raw"));
    program_check_message(&r);
    program_free(&r);
}

/* ---- terminals ------------------------------------------------------------------------------ */

static void what_no_chat_can_do_is_refused(void **state)
{
    (void)state;
    program_refuses(
        &(program_call){.args = ARGS("run", TINY("q4_1"), "--json"), .terminal = ON_INPUT}, 1,
        ARGS("--json needs a text"));
    program_refuses(
        &(program_call){.args = ARGS("run", TINY("q4_1"), "--raw"), .terminal = ON_INPUT}, 1,
        ARGS("--raw needs a text"));
}

/* Nothing wraps on a terminal of 60 columns but what the model writes. */
static void fits_a_narrow_terminal(void **state)
{
    (void)state;
    program *p = program_start(&(program_call){.args = ARGS("run", TINY("q4_1"), "-n", "0"),
                                               .env = ARGS("TERM=xterm"),
                                               .terminal = ON_ALL,
                                               .columns = 60});
    program_until(p, READY);
    program_type(p, "/help\n");
    program_until(p, READY);
    program_type(p, "\004");
    program_result r = program_end(p);
    assert_int_equal(r.code, 0);
    size_t column = 0;
    for (size_t i = 0; i < r.err_length; i++) {
        if (r.err[i] == '\033') /* a control sequence takes no column */
            i += strcspn(r.err + i, "hlKmJHABCD");
        else
            column = r.err[i] == '\n' || r.err[i] == '\r' ? 0 : column + 1;
        if (column > 60)
            fail_msg("more than 60 columns: %s", r.err);
    }
    program_free(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(remembers_what_was_said),
        cmocka_unit_test(a_paste_is_one_message),
        cmocka_unit_test(a_system_message_stays),
        cmocka_unit_test(ctrl_c_keeps_the_chat),
        cmocka_unit_test(what_is_typed_during_an_answer),
        cmocka_unit_test(a_full_context_is_told),
        cmocka_unit_test(a_template_that_refuses_is_quoted),
        cmocka_unit_test(a_broken_template_is_told),
        cmocka_unit_test(no_template_names_raw),
        cmocka_unit_test(what_no_chat_can_do_is_refused),
        cmocka_unit_test(fits_a_narrow_terminal),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
