/*
 * log.c - hands diagnostics to the program's sink.
 */
#include "base/log.h"

#include <stdarg.h>
#include <stdio.h>

#include "base/error.h"

static log_sink current_sink;
static void *current_user;

void log_set_sink(log_sink sink, void *user)
{
    current_sink = sink;
    current_user = user;
}

void log_message(log_level level, const char *format, ...)
{
    char text[ERROR_TEXT_BYTES];
    va_list arguments;

    if (current_sink == NULL)
        return;
    va_start(arguments, format);
    const int length = vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    if (length >= 0)
        current_sink(level, text, current_user);
}
