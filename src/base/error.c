/*
 * error.c - statuses and texts of failures. Nothing here allocates: running out of memory is one of
 * the failures it must be able to tell.
 */
#include "base/error.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/strbuf.h"

enum {
    MAX_LINES = 6,
    /* Longer than the stored text, so that what is cut off here would not be stored anyway. */
    SCRATCH_BYTES = 2 * ERROR_TEXT_BYTES
};

static const char cut_mark[] = "...";

const char *temper_status_text(temper_status status)
{
    switch (status) {
#define X(name, value, sentence)                                                                   \
    case name:                                                                                     \
        return sentence;
        TEMPER_STATUS_TABLE(X)
#undef X
    }
    return "an unknown status";
}

/* Copies text into out[ERROR_TEXT_BYTES], escaped, cut with a mark where it has too many bytes or
 * lines. */
static void store_text(char *out, const char *text)
{
    const size_t limit = ERROR_TEXT_BYTES - sizeof cut_mark;
    const size_t length = strlen(text);
    size_t at = 0, used = 0, safe = 0;
    int lines = 1;
    bool cut = false;

    while (at < length && !cut) {
        char unit[ESCAPE_UNIT_BYTES];
        size_t unit_length = 0;
        const size_t taken = escape_next(text + at, length - at, unit, &unit_length);

        if (unit[0] == '\n' && ++lines > MAX_LINES) {
            cut = at + taken < length;
            break;
        }
        if (used + unit_length >= ERROR_TEXT_BYTES) {
            used = safe;
            cut = true;
            break;
        }
        memcpy(out + used, unit, unit_length);
        used += unit_length;
        at += taken;
        /* The mark replaces what lies past the last place where it still fits. */
        if (used <= limit)
            safe = used;
    }
    if (cut) {
        if (used > limit)
            used = safe;
        memcpy(out + used, cut_mark, sizeof cut_mark - 1);
        used += sizeof cut_mark - 1;
    }
    assert(used < ERROR_TEXT_BYTES);
    out[used] = '\0';
}

temper_status error_set(error *err, temper_status status, const char *format, ...)
{
    char scratch[SCRATCH_BYTES];
    va_list arguments;

    assert(status != TEMPER_OK);
    if (err == NULL)
        return status;
    if (err->status != TEMPER_OK)
        return err->status;

    va_start(arguments, format);
    if (vsnprintf(scratch, sizeof scratch, format, arguments) < 0)
        snprintf(scratch, sizeof scratch, "%s", temper_status_text(status));
    va_end(arguments);

    err->status = status;
    store_text(err->text, scratch);
    return status;
}

temper_status error_prefix(error *err, const char *format, ...)
{
    char scratch[SCRATCH_BYTES];
    va_list arguments;

    if (err == NULL || err->status == TEMPER_OK)
        return TEMPER_OK;

    va_start(arguments, format);
    const int wanted = vsnprintf(scratch, ERROR_TEXT_BYTES / 2, format, arguments);
    va_end(arguments);
    if (wanted < 0)
        return err->status;

    const size_t length = strlen(scratch);
    snprintf(scratch + length, sizeof scratch - length, ": %s", err->text);
    store_text(err->text, scratch);
    return err->status;
}

void error_clear(error *err)
{
    if (err == NULL)
        return;
    err->status = TEMPER_OK;
    err->text[0] = '\0';
}
