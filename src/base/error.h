/*
 * error.h - how every room reports a failure.
 *
 * A function that can fail returns a temper_status and takes an `error *` as its last parameter.
 * The status tells the program what kind of failure it was; the text tells the person what failed,
 * on which file or value, and what to do. The first failure wins: error_set on an error that
 * already holds one keeps the old text, so that a clean-up path cannot hide the cause.
 *
 *     temper_status thing_open(const char *path, thing **out, error *err)
 *     {
 *         if (broken)
 *             return error_set(err, TEMPER_BAD_FILE, "%s: the header says %u tensors", path, n);
 *         return TEMPER_OK;
 *     }
 *
 * `err` may be NULL where the caller wants only the status.
 */
#ifndef TEMPER_BASE_ERROR_H
#define TEMPER_BASE_ERROR_H

#include "temper/temper.h"

/* status, and a text that is valid UTF-8, of at most six lines, with control characters escaped. */
typedef temper_error error;

enum { ERROR_TEXT_BYTES = TEMPER_ERROR_BYTES };

#if defined(__GNUC__)
#define ERROR_PRINTF(format_at, first_at) __attribute__((format(printf, format_at, first_at)))
#else
#define ERROR_PRINTF(format_at, first_at)
#endif

/* Stores the status and the formatted text, unless an earlier failure is stored; returns the stored
 * status. Bytes that are no valid UTF-8 become \xNN, control characters (newline excepted)
 * likewise. */
temper_status error_set(error *err, temper_status status, const char *format, ...)
    ERROR_PRINTF(3, 4);

/* Puts "PREFIX: " before the text of a stored failure: a caller adds the file or the tensor it was
 * at. Does nothing when nothing is stored. Returns the stored status; TEMPER_OK when err is NULL,
 * so a function that passes its caller's err on returns the status it was given, not this one. */
temper_status error_prefix(error *err, const char *format, ...) ERROR_PRINTF(2, 3);

/* Forgets a stored failure. */
void error_clear(error *err);

#endif
