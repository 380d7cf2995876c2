/*
 * calls.c - how the program is called: help, versions, commands and options right and wrong; where
 * its output goes. None of it needs a device.
 */
#include "support/program.h"

#include <signal.h>

#define NO_DRIVER ARGS("VK_DRIVER_FILES=/nonexistent", "VK_ICD_FILENAMES=/nonexistent")

static const char *const *const help_calls[] = {
    ARGS("--help"),
    ARGS("-h"),
    ARGS("help"),
    ARGS("run", "--help"),
    ARGS("run", "model.gguf", "-n", "3", "-h"),
    ARGS("run", "--no-such-option", "--help"),
    ARGS("eval", "--help"),
    ARGS("eval", "next", "--help"),
    ARGS("eval", "ppl", "--help"),
    ARGS("eval", "kl", "--help"),
    ARGS("eval", "choices", "--help"),
    ARGS("tokenize", "--help"),
    ARGS("inspect", "--help"),
    ARGS("kernels", "--help"),
    ARGS("kernels", "list", "--help"),
    ARGS("kernels", "test", "--help"),
    ARGS("doctor", "--help"),
};

enum { HELP_CALLS = sizeof help_calls / sizeof help_calls[0] };

/* No line of the text is wider. */
static void assert_fits(const char *text, size_t columns)
{
    while (*text != '\0') {
        const size_t length = strcspn(text, "\r\n");
        if (length > columns)
            fail_msg("%zu columns, not %zu: %.*s", length, columns, (int)length, text);
        text += length;
        text += strspn(text, "\r\n");
    }
}

static void help_answers_without_a_device(void **state)
{
    (void)state;
    for (size_t i = 0; i < HELP_CALLS; i++) {
        program_result r = program_call_all(
            &(program_call){.args = help_calls[i], .env = NO_DRIVER, .limit_s = 10});
        assert_int_equal(r.code, 0);
        assert_int_equal(strncmp(r.out, "usage: temper ", 14), 0);
        assert_int_equal(r.err_length, 0);
        assert_int_equal(r.out[r.out_length - 1], '\n');
        assert_fits(r.out, 80);
        program_free(&r);
    }
}

static void help_fits_a_narrow_terminal(void **state)
{
    (void)state;
    for (size_t i = 0; i < HELP_CALLS; i++) {
        program_result r = program_call_all(&(program_call){
            .args = help_calls[i], .env = NO_DRIVER, .terminal = ON_OUTPUT, .columns = 60});
        assert_int_equal(r.code, 0);
        assert_fits(r.out, 60);
        program_free(&r);
    }
}

static void help_names_every_option_of_run(void **state)
{
    static const char *const names[] = {
        "-p TEXT",   "-f FILE",     "-n N",    "--ctx N",          "--temp T",
        "--top-k K", "--top-p P",   "--min-p", "--repeat-penalty", "--repeat-last-n",
        "--seed N",  "--stop TEXT", "--raw",   "--system TEXT",    "--kv TYPE",
        "--json",    "--device",    "--limit", "--no-feature",     "--robust",
    };
    (void)state;
    program_result r = program_run(ARGS("run", "--help"));
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strstr(r.out, names[i]) == NULL)
            fail_msg("no %s in the help of run", names[i]);
    program_free(&r);
}

static void the_version_is_one_line(void **state)
{
    (void)state;
    char line[64];
    snprintf(line, sizeof line, "temper %s\n", temper_version());
    program_result r =
        program_call_all(&(program_call){.args = ARGS("--version"), .env = NO_DRIVER});
    assert_int_equal(r.code, 0);
    assert_string_equal(r.out, line);
    assert_int_equal(r.err_length, 0);
    program_free(&r);
}

static void wrong_calls_are_named(void **state)
{
    (void)state;
    program_refuses(&(program_call){.args = ARGS(NULL)}, 2, ARGS("run", "--help"));
    assert_refuses(2, "\"chat\"", "chat");
    assert_refuses(2, "\"--verbose\"", "--verbose");
    assert_refuses(2, "\"\"", "");
    assert_refuses(2, "--verbose", "run", "--verbose");
    assert_refuses(2, "-x", "run", "-x");
    assert_refuses(2, "-p needs a value", "run", TINY("q4_1"), "-p");
    assert_refuses(2, "--temp needs a value", "run", TINY("q4_1"), "--temp");
    assert_refuses(2, "\"b.gguf\"", "run", "a.gguf", "b.gguf");
    assert_refuses(2, "--json takes no value", "run", "--json=yes");
    assert_refuses(2, "\"--json\"", "run", "a.gguf", "--", "--json");
    assert_refuses(2, "next", "eval");
    assert_refuses(2, "\"choose\"", "eval", "choose");
    assert_refuses(2, "--ids", "eval", "next", TINY("q4_1"));
    assert_refuses(2, "--ids", "eval", "next", TINY("q4_1"), "-p", "a", "--ids", "1");
    assert_refuses(2, "--text", "eval", "ppl", TINY("q4_1"));
    assert_refuses(2, "--verbose", "eval", "ppl", "--verbose");
    assert_refuses(2, "list", "kernels");
    assert_refuses(2, "list", "kernels", "show");
    assert_refuses(2, "--verbose", "kernels", "list", "--verbose");
    assert_refuses(2, "\"one\"", "kernels", "test", "one");
    assert_refuses(2, "--verbose", "tokenize", "--verbose");
    assert_refuses(2, "--ctx", "inspect", TINY("q4_1"), "--ctx", "many");
    assert_refuses(2, "\"now\"", "doctor", "now");
}

/* What a user types may hold anything; a terminal must not be driven by the answer. */
static void hostile_arguments_are_escaped(void **state)
{
    static const char evil[] = "a\033[31m\n\r\t\x7f\xff\xc3\xe2\x80\xa8z";
    (void)state;
    assert_refuses(2, "\\x1b[31m", evil);
    assert_refuses(2, "\\x1b[31m", "run", "ok.gguf", evil);
    assert_refuses(1, "\\x1b[31m", "run", evil, "-p", "x");
    assert_refuses(1, "\\x1b[31m", "run", TINY("q4_1"), "-f", evil);
    assert_refuses(1, "\\x1b[31m", "tokenize", evil, "-p", "x");
    assert_refuses(1, "\\x1b[31m", "inspect", evil);
    assert_refuses(1, "\\x1b[31m", "inspect", "--json", evil);
    assert_refuses(2, "\\x1b[31m", "run", "-n", evil);
    assert_refuses(2, "\\x1b[31m", "run", "--temp", evil);
    assert_refuses(2, "\\x1b[31m", "run", "--kv", evil);
    assert_refuses(1, "\\x1b[31m", "run", TINY("q4_1"), "-p", "x", "--device", evil);
    assert_refuses(1, "\\x1b[31m", "run", TINY("q4_1"), "-p", "x", "--limit", evil);
    assert_refuses(1, "\\x1b[31m", "run", TINY("q4_1"), "-p", "x", "--no-feature", evil);
    assert_refuses(1, "\\x1b[31m", "eval", "next", TINY("q4_1"), "--ids", evil);
    assert_refuses(2, "\\x1b[31m", "kernels", "list", evil);
    assert_refuses(2, "\\x1b[31m", "kernels", "test", evil);
}

/* A name full of newlines, or longer than a message, still leaves the reason to be read. */
static void names_of_any_shape_leave_the_reason(void **state)
{
    char lines[64], longest[3000];
    (void)state;
    memset(lines, '\n', sizeof lines);
    lines[sizeof lines - 1] = '\0';
    memset(longest, 'a', sizeof longest);
    for (size_t i = 0; i < sizeof longest; i += 200)
        longest[i] = '/';
    longest[sizeof longest - 1] = '\0';
    assert_refuses(1, "No such file", "run", lines, "-p", "x");
    assert_refuses(1, "No such file", "inspect", lines);
    assert_refuses(1, "No such file", "inspect", longest);
    assert_refuses(1, "No such file", "tokenize", longest, "-p", "x");
    assert_refuses(2, "there is no command", longest);
    assert_refuses(2, "argument too many", "run", "a", longest);
}

static void the_default_model_is_found_or_named(void **state)
{
    (void)state;
    const char *empty = program_path("empty");
    char setting[4200];
    snprintf(setting, sizeof setting, "TEMPER_CACHE=%s", empty);
    const char *const parts[] = {empty, "tools/setup", NULL};
    program_refuses(&(program_call){.args = ARGS("run", "-p", "x"), .env = ARGS(setting)}, 1,
                    parts);
    program_refuses(&(program_call){.args = ARGS("tokenize", "-p", "x"), .env = ARGS(setting)}, 1,
                    parts);
    program_refuses(&(program_call){.args = ARGS("eval", "next", "-p", "x"), .env = ARGS(setting)},
                    1, parts);
    snprintf(setting, sizeof setting, "XDG_CACHE_HOME=%s", empty);
    program_refuses(&(program_call){.args = ARGS("run", "-p", "x", "--json"),
                                    .env = ARGS("TEMPER_CACHE", setting)},
                    1, ARGS(empty, "temper/models/"));
    snprintf(setting, sizeof setting, "HOME=%s", empty);
    program_refuses(&(program_call){.args = ARGS("run", "-p", "x", "--json"),
                                    .env = ARGS("TEMPER_CACHE", "XDG_CACHE_HOME", setting)},
                    1, ARGS(empty, ".cache/temper/models/"));
    /* Terminal control in a folder's name stays out of the message. */
    program_refuses(&(program_call){.args = ARGS("run", "-p", "x"),
                                    .env = ARGS("TEMPER_CACHE=/no\033[31m\nwhere")},
                    1, ARGS("\\x1b[31m", "tools/setup"));
}

static void no_device_is_told(void **state)
{
    const char *const *const calls[] = {
        ARGS("run", TINY("q4_1"), "--raw", "-p", "x"),
        ARGS("run", TINY("q4_1"), "--raw", "-p", "x", "--json"),
        ARGS("eval", "next", TINY("q4_1"), "-p", "x", "--json"),
        ARGS("kernels", "list"),
        ARGS("kernels", "test", "--json"),
        ARGS("doctor"),
        ARGS("doctor", "--json"),
    };
    (void)state;
    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++)
        program_refuses(&(program_call){.args = calls[i], .env = NO_DRIVER}, 1,
                        ARGS("no adapter", "VK_DRIVER_FILES", "/nonexistent"));
    /* What needs no device works without one. */
    program_result r = program_call_all(
        &(program_call){.args = ARGS("tokenize", TINY("q4_1"), "-p", "The"), .env = NO_DRIVER});
    assert_int_equal(r.code, 0);
    assert_string_equal(r.out, "87 260\n");
    program_free(&r);
    r = program_call_all(
        &(program_call){.args = ARGS("inspect", TINY("q4_1"), "--json"), .env = NO_DRIVER});
    json_t *shown = program_parse(&r);
    const json_t *memory = json_object_get(shown, "memory");
    assert_true(json_is_null(json_object_get(memory, "device")));
    assert_true(json_integer_value(json_object_get(memory, "total")) > 0);
    json_decref(shown);
    program_free(&r);
    program_refuses(
        &(program_call){.args = ARGS("inspect", TINY("q4_1"), "--device", "0"), .env = NO_DRIVER},
        1, ARGS("no adapter"));
}

static const char *const *const output_calls[] = {
    ARGS("--help"),
    ARGS("--version"),
    ARGS("run", "--help"),
    ARGS("run", TINY("q4_1"), "--raw", "-p", "The", "-n", "3"),
    ARGS("run", TINY("q4_1"), "--raw", "-p", "The", "-n", "3", "--json"),
    ARGS("tokenize", TINY("q4_1"), "-p", "The"),
    ARGS("inspect", TINY("q4_1")),
    ARGS("inspect", TINY("q4_1"), "--json"),
    ARGS("eval", "next", TINY("q4_1"), "-p", "The"),
    ARGS("kernels", "list"),
    ARGS("kernels", "test", "add"),
};

enum { OUTPUT_CALLS = sizeof output_calls / sizeof output_calls[0] };

static void a_full_output_is_an_error(void **state)
{
    (void)state;
    for (size_t i = 0; i < OUTPUT_CALLS; i++) {
        program_result r =
            program_call_all(&(program_call){.args = output_calls[i], .output = "/dev/full"});
        assert_int_equal(r.code, 1);
        assert_non_null(strstr(r.err, "No space left"));
        program_free(&r);
    }
}

/* With stdout closed the next file that is opened would be number 1: nothing may be written there.
 */
static void a_closed_output_is_an_error(void **state)
{
    (void)state;
    for (size_t i = 0; i < OUTPUT_CALLS; i++) {
        program_result r =
            program_call_all(&(program_call){.args = output_calls[i], .closed_output = true});
        assert_int_equal(r.code, 1);
        assert_non_null(strstr(r.err, "could not be written"));
        program_free(&r);
    }
}

/* Whoever reads goes away: the program ends, and says nothing about it. */
static void a_closed_pipe_ends_quietly(void **state)
{
    (void)state;
    program *p =
        program_start(&(program_call){.args = ARGS("run", TINY("f32"), "--raw", "-p", "The")});
    program_until_any_output(p);
    program_close_output(p);
    program_result r = program_end(p);
    assert_true(r.code == -SIGPIPE || r.code == 1);
    assert_int_equal(r.err_length, 0);
    program_free(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(help_answers_without_a_device),
        cmocka_unit_test(help_fits_a_narrow_terminal),
        cmocka_unit_test(help_names_every_option_of_run),
        cmocka_unit_test(the_version_is_one_line),
        cmocka_unit_test(wrong_calls_are_named),
        cmocka_unit_test(hostile_arguments_are_escaped),
        cmocka_unit_test(names_of_any_shape_leave_the_reason),
        cmocka_unit_test(the_default_model_is_found_or_named),
        cmocka_unit_test(no_device_is_told),
        cmocka_unit_test(a_full_output_is_an_error),
        cmocka_unit_test(a_closed_output_is_an_error),
        cmocka_unit_test(a_closed_pipe_ends_quietly),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
