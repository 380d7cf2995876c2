/*
 * strbuf.c - a growing byte string, and what there is to know about UTF-8.
 */
#include "base/strbuf.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"

/* Makes room for `more` bytes and the NUL; false when there is none. */
static bool reserve(strbuf *buf, size_t more)
{
    assert(buf->length <= buf->capacity);
    if (buf->failed)
        return false;
    if (more < buf->capacity - buf->length)
        return true;
    if (more > SIZE_MAX / 2 - buf->length - 1) {
        buf->failed = true;
        return false;
    }

    const size_t needed = buf->length + more + 1;
    size_t capacity = buf->capacity < 32 ? 32 : buf->capacity;
    while (capacity < needed)
        capacity = capacity > SIZE_MAX / 4 ? needed : capacity * 2;
    char *data = mem_realloc(buf->data, capacity);
    if (data == NULL) {
        buf->failed = true;
        return false;
    }
    buf->data = data;
    buf->capacity = capacity;
    return true;
}

void strbuf_append(strbuf *buf, const void *bytes, size_t length)
{
    if (!reserve(buf, length))
        return;
    if (length > 0)
        memcpy(buf->data + buf->length, bytes, length);
    buf->length += length;
    buf->data[buf->length] = '\0';
}

void strbuf_puts(strbuf *buf, const char *text)
{
    strbuf_append(buf, text, strlen(text));
}

void strbuf_putc(strbuf *buf, char c)
{
    strbuf_append(buf, &c, 1);
}

void strbuf_printf(strbuf *buf, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    const int length = vsnprintf(NULL, 0, format, arguments);
    va_end(arguments);
    if (length < 0) {
        buf->failed = true;
        return;
    }
    if (!reserve(buf, (size_t)length))
        return;
    va_start(arguments, format);
    vsnprintf(buf->data + buf->length, (size_t)length + 1, format, arguments);
    va_end(arguments);
    buf->length += (size_t)length;
}

void strbuf_clear(strbuf *buf)
{
    buf->length = 0;
    if (buf->data != NULL)
        buf->data[0] = '\0';
}

void strbuf_free(strbuf *buf)
{
    mem_free(buf->data);
    *buf = (strbuf){0};
}

const char *strbuf_text(const strbuf *buf)
{
    return buf->data != NULL ? buf->data : "";
}

int utf8_sequence(const char *text, size_t length)
{
    const unsigned char *s = (const unsigned char *)text;
    unsigned low = 0x80, high = 0xbf;   /* of the second byte: excludes the bad forms */
    int wanted;

    if (length == 0)
        return 0;
    if (s[0] < 0x80)
        return 1;
    if (s[0] >= 0xc2 && s[0] <= 0xdf) {
        wanted = 2;
    } else if (s[0] >= 0xe0 && s[0] <= 0xef) {
        wanted = 3;
        if (s[0] == 0xe0)
            low = 0xa0;    /* overlong */
        else if (s[0] == 0xed)
            high = 0x9f;   /* surrogates */
    } else if (s[0] >= 0xf0 && s[0] <= 0xf4) {
        wanted = 4;
        if (s[0] == 0xf0)
            low = 0x90;    /* overlong */
        else if (s[0] == 0xf4)
            high = 0x8f;   /* past U+10FFFF */
    } else {
        return 0;
    }

    for (int i = 1; i < wanted; i++) {
        if ((size_t)i >= length)
            return -i;
        if (s[i] < low || s[i] > high)
            return 0;
        low = 0x80;
        high = 0xbf;
    }
    return wanted;
}

/* True for a valid sequence that a message must not print as it is: controls (newline excepted),
 * and the Unicode separators that some programs take for a new line. */
static bool is_control(const unsigned char *s, int length)
{
    if (length == 1)
        return (s[0] < 0x20 && s[0] != '\n') || s[0] == 0x7f;
    if (length == 2)
        return s[0] == 0xc2 && s[1] < 0xa0;
    return length == 3 && s[0] == 0xe2 && s[1] == 0x80 && (s[2] == 0xa8 || s[2] == 0xa9);
}

size_t escape_next(const char *text, size_t length, char out[ESCAPE_UNIT_BYTES], size_t *out_length)
{
    static const char digits[] = "0123456789abcdef";
    const unsigned char *s = (const unsigned char *)text;
    const int sequence = utf8_sequence(text, length);
    const bool plain = sequence > 0 && !is_control(s, sequence);
    const size_t taken = sequence > 0 ? (size_t)sequence : 1;

    assert(length > 0);
    if (plain) {
        memcpy(out, text, taken);
        *out_length = taken;
        return taken;
    }
    size_t used = 0;
    for (size_t i = 0; i < taken; i++) {
        out[used++] = '\\';
        out[used++] = 'x';
        out[used++] = digits[s[i] >> 4];
        out[used++] = digits[s[i] & 15];
    }
    assert(used <= ESCAPE_UNIT_BYTES);
    *out_length = used;
    return taken;
}

void strbuf_escape(strbuf *buf, const char *text, size_t length)
{
    size_t at = 0;

    while (at < length) {
        char unit[ESCAPE_UNIT_BYTES];
        size_t unit_length = 0;
        at += escape_next(text + at, length - at, unit, &unit_length);
        strbuf_append(buf, unit, unit_length);
    }
}
