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
    program_type(p, "/help you\n"); /* two words: for the model, which says much to these */
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
    program_type(p, "/help you\n");
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

/* ---- commands ------------------------------------------------------------------------------- */

/* Types a command and expects what it tells. */
static void command(program *p, const char *line, const char *told)
{
    program_type(p, line);
    program_type(p, "\n");
    program_until(p, told);
    program_until(p, READY);
}

static void a_chat_is_saved_and_loaded(void **state)
{
    (void)state;
    char line[600];
    char *path = strdup(program_path("chat.json"));
    const char *other = program_file("other.txt", "other", 5);
    char *first = wanted("<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nT<|im_end|>\n"
                         "<|im_start|>assistant\n");
    program *p = chat(ARGS("run", TINY("q4_1"), "-n", "6", "--system", "Be brief."));
    program_type(p, "T\n");
    expect_answer(p, first);
    snprintf(line, sizeof line, "/save %s", other);
    command(p, line, "holds no chat");
    snprintf(line, sizeof line, "/save %s  ", path);
    command(p, line, "saved: 3 messages");
    command(p, line, "saved: 3 messages"); /* over itself */
    program_type(p, "/exit\n");
    program_result r = program_end(p);
    assert_int_equal(r.code, 0);
    program_free(&r);

    json_t *saved = json_load_file(path, 0, NULL);
    const json_t *messages = json_object_get(saved, "messages");
    static const char *const roles[] = {"system", "user", "assistant"};
    const char *const contents[] = {"Be brief.", "T", first};
    assert_int_equal(json_array_size(messages), 3);
    for (size_t i = 0; i < 3; i++) {
        const json_t *message = json_array_get(messages, i);
        assert_string_equal(json_string_value(json_object_get(message, "role")), roles[i]);
        assert_string_equal(json_string_value(json_object_get(message, "content")), contents[i]);
    }
    json_decref(saved);

    /* Loaded elsewhere, it goes on: what /undo leaves gives the same answer, the system message
     * stays after /clear. */
    p = chat(ARGS("run", TINY("q4_1"), "-n", "6"));
    snprintf(line, sizeof line, "/load %s", path);
    command(p, line, "loaded: 3 messages");
    command(p, "/undo", "taken back");
    command(p, "/undo", "nothing was said yet");
    program_type(p, "T\n");
    expect_answer(p, first);
    command(p, "/clear", "forgotten");
    program_type(p, "T\n");
    expect_answer(p, first);
    program_type(p, "/exit\n");
    r = program_end(p);
    assert_int_equal(r.code, 0);
    program_free(&r);
    free(first);
    free(path);
}

static void files_that_are_no_chats(void **state)
{
    static const struct {
        const char *text, *told;
    } rows[] = {
        {"", "is not JSON"},
        {"[1", "is not JSON"},
        {"[]", "no list of messages"},
        {"{\"messages\": 1}", "no list of messages"},
        {"{\"messages\": [1]}", "message 0: its role"},
        {"{\"messages\": [{\"role\": \"tool\", \"content\": \"x\"}]}", "message 0: its role"},
        {"{\"messages\": [{\"role\": \"user\", \"content\": 1}]}", "its content is no text"},
        {"{\"messages\": [{\"role\": \"user\", \"content\": \"a\\u0000b\"}]}", "is not JSON"},
    };
    (void)state;
    program *p = chat(ARGS("run", TINY("q4_1"), "-n", "6"));
    char *first = wanted("<|im_start|>user\nT<|im_end|>\n<|im_start|>assistant\n");
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char line[600];
        snprintf(line, sizeof line, "/load %s",
                 program_file("no-chat", rows[i].text, strlen(rows[i].text)));
        command(p, line, rows[i].told);
    }
    command(p, "/load /nowhere", "No such file");
    command(p, "/save /nowhere/x", "No such file");
    command(p, "/load", "/load needs a FILE");
    command(p, "/save ", "/save needs a FILE");
    command(p, "/file -", "No such file"); /* not standard input, which is the chat's own */
    command(p, "/nonsense", "there is no command /nonsense");
    /* Nothing of that was said to the model. */
    program_type(p, "T\n");
    expect_answer(p, first);
    program_type(p, "/exit\n");
    program_result r = program_end(p);
    assert_int_equal(r.code, 0);
    program_free(&r);
    free(first);
}

static void a_file_goes_before_the_message(void **state)
{
    (void)state;
    char line[600];
    char *first = wanted("<|im_start|>user\none\ntwo\n\nT<|im_end|>\n<|im_start|>assistant\n");
    program *p = chat(ARGS("run", TINY("q4_1"), "-n", "6"));
    snprintf(line, sizeof line, "/file %s", program_file("nul", "a\0b", 3));
    command(p, line, "NUL byte");
    snprintf(line, sizeof line, "/file %s", program_file("text", "one\ntwo", 7));
    command(p, line, "7 bytes go before your next message");
    program_type(p, "T\n");
    expect_answer(p, first);
    command(p, "/undo", "taken back");
    command(p, line, "7 bytes");
    command(p, "/clear", "forgotten"); /* the text too */
    command(p, line, "7 bytes");
    program_type(p, "T\n");
    expect_answer(p, first);
    program_type(p, "/exit\n");
    program_result r = program_end(p);
    assert_int_equal(r.code, 0);
    program_free(&r);
    free(first);
}

/* ---- the line ------------------------------------------------------------------------------- */

static void a_backslash_goes_on(void **state)
{
    (void)state;
    char *first = wanted("<|im_start|>user\none\n two\\\nthree<|im_end|>\n"
                         "<|im_start|>assistant\n");
    program *p = chat(ARGS("run", TINY("q4_1"), "-n", "6"));
    program_type(p, "thrown away\\\n");
    program_until(p, ". ");
    program_signal(p, SIGINT);
    program_until(p, READY);
    program_type(p, "one\\\n");
    program_until(p, ". ");
    program_type(p, " two\\\\\n");
    program_until(p, ". ");
    program_type(p, "three\n");
    expect_answer(p, first);
    /* Up brings all of it back. */
    command(p, "/undo", "taken back");
    program_type(p, "\033[A\033[A\n");
    expect_answer(p, first);
    program_type(p, "\004");
    program_result r = program_end(p);
    assert_int_equal(r.code, 0);
    program_free(&r);
    free(first);
}

static void ctrl_c_twice_ends_the_chat(void **state)
{
    (void)state;
    program *p = chat(ARGS("run", TINY("q4_1"), "-n", "1"));
    program_signal(p, SIGINT);
    program_until(p, "Ctrl-C again");
    program_until(p, READY);
    program_type(p, "T\n"); /* not in a row */
    program_until_any_output(p);
    program_until(p, READY);
    program_signal(p, SIGINT);
    program_until(p, "Ctrl-C again");
    program_until(p, READY);
    program_signal(p, SIGINT);
    program_result r = program_end(p);
    assert_int_equal(r.code, 130);
    program_free(&r);
}

/* The terminal becomes narrower while a line is typed, and a shell has had it in between. */
static void the_terminal_changes(void **state)
{
    (void)state;
    char *first = wanted("<|im_start|>user\nabcdefghij abcdefghij abcdefghij abcdefghij<|im_end|>\n"
                         "<|im_start|>assistant\n");
    program *p = chat(ARGS("run", TINY("q4_1"), "-n", "6"));
    program_resize(p, 20);
    program_type(p, "abcdefghij abcdefghij ");
    program_until(p, "abcdefghij abcdefg \bhij "); /* broken at the 20th column */
    program_resize(p, 80);
    program_type(p, "abcdefghij ");
    program_until(p, "abcdefghij ");
    program_cook(p);
    program_signal(p, SIGCONT);
    program_until(p, "> abcdefghij abcdefghij abcdefghij "); /* drawn again */
    program_type(p, "abcdefghij\n");
    expect_answer(p, first);
    program_type(p, "\004");
    program_result r = program_end(p);
    assert_int_equal(r.code, 0);
    program_free(&r);
    free(first);
}

/* ---- how an answer ends --------------------------------------------------------------------- */

static void what_cuts_an_answer_off_is_told(void **state)
{
    (void)state;
    program *p = chat(ARGS("run", TINY("q4_1"), "-n", "3"));
    program_type(p, "T\n");
    program_until(p, "[cut off after 3 tokens: -n]");
    program_until(p, READY);
    program_type(p, "\004");
    program_result r = program_end(p);
    program_free(&r);
    p = chat(ARGS("run", TINY("f32"), "--ctx", "48"));
    program_type(p, "T\n");
    program_until(p, "the context of 48 tokens is full");
    program_until(p, READY);
    program_type(p, "T\n");
    program_until(p, "/undo takes back the last turn");
    program_until(p, READY);
    program_type(p, "\004");
    r = program_end(p);
    program_free(&r);
    p = chat(ARGS("run", TINY("f32")));
    program_type(p, "T\n");
    program_until_any_output(p);
    program_signal(p, SIGINT);
    program_until(p, "[stopped]");
    program_until(p, READY);
    program_type(p, "\004");
    r = program_end(p);
    assert_int_equal(r.code, 0);
    program_free(&r);
}

/* What a model says cannot command the terminal; in a pipe it is as it is. */
static void control_characters_are_shown(void **state)
{
    (void)state;
    /* The likeliest tokens of this model have control characters among them. */
    const char *const args[] = {"run", TINY("q4_1"), "--raw", "-p", "T", "-n", "200", NULL};
    program_result raw = program_run(args);
    program_result shown =
        program_call_all(&(program_call){.args = args, .terminal = ON_OUTPUT | ON_ERRORS});
    size_t controls = 0;
    for (size_t i = 0; i < raw.out_length; i++)
        controls += (unsigned char)raw.out[i] < 0x20 && strchr("\n\t", raw.out[i]) == NULL;
    assert_true(controls > 0);
    const char *answer = shown.err;
    for (size_t i = 0; i < shown.err_length; i++) {
        /* Progress on stderr draws with sequences of its own. */
        if (answer[i] == '\033')
            assert_int_equal(answer[i + 1], '[');
        else if ((unsigned char)answer[i] < 0x20 && strchr("\r\n\t", answer[i]) == NULL)
            fail_msg("byte %02x at %zu", (unsigned char)answer[i], i);
    }
    assert_non_null(strstr(answer, "\\x"));
    program_free(&raw);
    program_free(&shown);
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
    program_refuses(
        &(program_call){.args = ARGS("run", "Why is the sky blue?"), .terminal = ON_INPUT}, 1,
        ARGS("Why is the sky blue?", "-p TEXT"));
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
        cmocka_unit_test(a_chat_is_saved_and_loaded),
        cmocka_unit_test(files_that_are_no_chats),
        cmocka_unit_test(a_file_goes_before_the_message),
        cmocka_unit_test(a_backslash_goes_on),
        cmocka_unit_test(ctrl_c_twice_ends_the_chat),
        cmocka_unit_test(the_terminal_changes),
        cmocka_unit_test(what_cuts_an_answer_off_is_told),
        cmocka_unit_test(control_characters_are_shown),
        cmocka_unit_test(a_template_that_refuses_is_quoted),
        cmocka_unit_test(a_broken_template_is_told),
        cmocka_unit_test(no_template_names_raw),
        cmocka_unit_test(what_no_chat_can_do_is_refused),
        cmocka_unit_test(fits_a_narrow_terminal),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
