/*
 * strbuf.h - a growing byte string. A failed allocation is remembered (`failed`), later appends do
 * nothing, and the caller checks once at the end.
 *
 *     strbuf text = {0};
 *     strbuf_printf(&text, "%d tokens", n);
 *     if (text.failed) ...
 *     strbuf_free(&text);
 */
#ifndef TEMPER_BASE_STRBUF_H
#define TEMPER_BASE_STRBUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct strbuf {
    char *data;       /* owned; NUL-terminated once anything was appended; NULL while empty */
    size_t length;    /* bytes without the NUL */
    size_t capacity;
    bool failed;
} strbuf;

void strbuf_append(strbuf *buf, const void *bytes, size_t length);
void strbuf_puts(strbuf *buf, const char *text);
void strbuf_putc(strbuf *buf, char c);
#if defined(__GNUC__)
__attribute__((format(printf, 2, 3)))
#endif
void strbuf_printf(strbuf *buf, const char *format, ...);
void strbuf_clear(strbuf *buf);           /* length 0, keeps the memory */
void strbuf_free(strbuf *buf);
const char *strbuf_text(const strbuf *buf); /* never NULL */

/* Length in bytes of the valid UTF-8 sequence at the start of text[0..length), 0 when the first
 * bytes are no valid sequence (overlong forms, surrogates and values past U+10FFFF included), and
 * the negative number of bytes seen when they are the beginning of one that is cut short. */
int utf8_sequence(const char *text, size_t length);

/* The one rule of escaping, without memory: writes the next unit of text[0..length), length > 0,
 * into out: a valid sequence as it is; an invalid byte, a control character but newline (U+0080 to
 * U+009F included) and the separators U+2028 and U+2029 as \xNN a byte. Returns the bytes of text
 * taken. */
enum { ESCAPE_UNIT_BYTES = 16 };
size_t escape_next(const char *text, size_t length, char out[ESCAPE_UNIT_BYTES],
                   size_t *out_length);

/* Appends text escaped by that rule. */
void strbuf_escape(strbuf *buf, const char *text, size_t length);

#endif
