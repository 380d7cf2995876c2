/*
 * script.h - runs @huggingface/jinja inside QuickJS-ng on a short leash: a heap of its own with a
 * limit, a limit on its stack and on its processor time, no files, no system, nothing but the
 * language.
 *
 * Private to chat.c. The program and the data come from files and users, so everything goes in as
 * values, never as source text.
 */
#ifndef TEMPER_TEXT_SCRIPT_H
#define TEMPER_TEXT_SCRIPT_H

#include <stddef.h>

#include <quickjs.h>

#include "base/error.h"

enum {
    SCRIPT_HEAP_BYTES = 64 << 20,
    SCRIPT_STACK_BYTES = 1 << 20,
    SCRIPT_SECONDS = 2    /* of this thread's processor time, for each script_run */
};

typedef struct script script;

/* Starts an engine with the Jinja module and the functions below. */
temper_status script_open(script **out, error *err);

/* Frees the engine and every value it made. NULL is fine. */
void script_close(script *s);

/* Runs body(s, user, err) with the clock started and the stack measured from here (runs may come
 * from several threads, one at a time). Everything that touches the engine happens inside a body.
 *
 * A body is left in the middle when the heap is full or the host has no more memory: the engine
 * never sees an allocation fail. So a body owns nothing that lies outside the engine. Limits are
 * TEMPER_TEMPLATE, "WHAT: the limit"; after any failure the engine is of no more use: close it. */
typedef temper_status (*script_body)(script *s, void *user, error *err);
temper_status script_run(script *s, const char *what, script_body body, void *user, error *err);

/* ---- inside a body --------------------------------------------------------------------------- */

JSContext *script_context(script *s);

/* Functions of the engine, called with the values of script_call: "parse" (text) gives a program,
 * "render" (program, variables) gives { text } or { refusal }. Takes ownership of the arguments,
 * returns an owned value or an exception. */
JSValue script_call(script *s, const char *function, int count, JSValue *arguments);

/* Turns the pending exception into an error: TEMPER_TEMPLATE for the time limit, else `status` with
 * "WHAT: the exception's message". */
temper_status script_failure(script *s, temper_status status, const char *what, error *err);

/* A string value from bytes, with U+FFFD for what is not valid UTF-8. */
JSValue script_string(script *s, const char *bytes, size_t length);

#endif
