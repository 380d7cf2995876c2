/*
 * program.h - calls the built program as a user does: arguments, input, environment, a terminal, a
 * time limit; and what comes back, to the byte.
 *
 *     program_result r = program_run(ARGS("run", MODEL, "--raw", "-p", "Why?", "-n", "4"));
 *     assert_int_equal(r.code, 0);
 *     program_free(&r);
 *
 * or step by step, where the test must wait for something before it goes on:
 *
 *     program *p = program_start(&(program_call){.args = ARGS("run", MODEL), .terminal = ON_ALL});
 *     program_until(p, "> ");
 *     program_type(p, "Why?\n");
 *     program_result r = program_end(p);
 *
 * A program that outlives its limit is killed and fails the test with what it had written.
 */
#ifndef TEMPER_TESTS_PROGRAM_H
#define TEMPER_TESTS_PROGRAM_H

#include "support/model_test.h"

enum { ON_INPUT = 1, ON_OUTPUT = 2, ON_ERRORS = 4, ON_ALL = 7 };

#define ARGS(...) ((const char *const[]){__VA_ARGS__, NULL})

#define TINY(name) TEST_GOLDEN "/tiny/llama-" name ".gguf"

typedef struct program_call {
    const char *const *args; /* after the program's name; ends with NULL */
    const char *const
        *env;            /* "NAME=VALUE" sets, "NAME" takes away; ends with NULL; NULL: nothing */
    const char *input;   /* through a pipe; NULL: /dev/null */
    size_t input_length; /* 0: up to the NUL */
    const char *output;  /* a path that stdout is opened on, instead of being captured */
    bool closed_output;  /* no stdout at all */
    unsigned terminal;   /* which of the three are on a terminal: ON_INPUT and so on */
    unsigned short columns; /* of the terminal; 0: 80 */
    unsigned limit_s;       /* 0: 180 */
} program_call;

typedef struct program_result {
    char *out,
        *err; /* with a NUL behind; the terminal's is in err, else in out, whichever is on it */
    size_t out_length, err_length;
    int code; /* the exit code; the negative signal number when a signal ended it */
    double seconds;
} program_result;

typedef struct program program;

program *program_start(const program_call *call);

/* Waits until the text appears in what the terminal or stderr showed, after the place where the
 * last call found its text. The same for stdout. */
void program_until(program *p, const char *text);
void program_until_output(program *p, const char *text);
/* Waits for one byte of stdout, whatever it is, that no call has waited for yet. */
void program_until_any_output(program *p);

/* Looks past everything that stdout has brought so far. */
void program_skip_output(program *p);

void program_type(program *p, const char *text); /* on the terminal */
void program_signal(program *p, int number);
/* Gives the terminal another width and tells the program, as a terminal's window does. */
void program_resize(program *p, unsigned short columns);
/* What a shell does to the terminal while the program is stopped: echo and whole lines again. */
void program_cook(program *p);
void program_close_output(program *p);    /* the reader of stdout goes away */
double program_seconds(const program *p); /* since the start */

/* Waits for the end. */
program_result program_end(program *p);

program_result program_call_all(const program_call *call);
program_result program_run(const char *const *args);
void program_free(program_result *r);

/* Fails the test unless the call succeeded; returns the object that it printed (the caller's
 * reference). */
json_t *program_json(const char *const *args);
json_t *program_parse(const program_result *r);

/* Success with this very output. */
void program_expect(const char *const *args, const char *output);

/* The call fails with `code`, prints nothing on stdout, and a message that keeps the rules and
 * holds each of `parts` (ends with NULL). */
void program_refuses(const program_call *call, int code, const char *const *parts);
#define assert_refuses(code, part, ...)                                                            \
    program_refuses(&(program_call){.args = ARGS(__VA_ARGS__)}, code, ARGS(part))

/* At most six lines of valid UTF-8 that end with a newline, no control characters. */
void program_check_message(const program_result *r);

/* Where the text first is among bytes that may hold NULs; NULL: nowhere. */
const char *program_find(const char *bytes, size_t length, const char *text);

/* A path in a folder of this test, which goes when the test ends: a view until eight calls later.
 */
const char *program_path(const char *name);
/* The same, with the file written. */
const char *program_file(const char *name, const void *bytes, size_t length);
/* A whole file; free with free(). */
char *program_read(const char *path, size_t *length);

#endif
