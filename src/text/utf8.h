/*
 * utf8.h - what to do with bytes that should be UTF-8 and are not.
 *
 * The unit of damage is the one that Unicode recommends and that Python and browsers use: the
 * longest beginning of some valid sequence ("maximal subpart") counts as one error, and becomes one
 * U+FFFD.
 */
#ifndef TEMPER_TEXT_UTF8_H
#define TEMPER_TEXT_UTF8_H

#include <stddef.h>

#include "base/strbuf.h"

typedef enum utf8_state {
    UTF8_WHOLE,    /* a whole character */
    UTF8_BROKEN,   /* no character, and no later byte can make it one */
    UTF8_CUT       /* the beginning of a character that the end of the text cuts off */
} utf8_state;

/* Looks at the start of bytes[0..length), length > 0; returns how many bytes the unit there has. */
size_t utf8_next(const char *bytes, size_t length, utf8_state *state);

/* Length of the longest beginning of bytes[0..length) that is valid UTF-8. */
size_t utf8_valid_length(const char *bytes, size_t length);

/* Appends bytes with U+FFFD for every unit that is broken or cut off. */
void utf8_append_clean(strbuf *out, const char *bytes, size_t length);

/* Appends U+FFFD. */
void utf8_append_replacement(strbuf *out);

#endif
