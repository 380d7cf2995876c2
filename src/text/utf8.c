/*
 * utf8.c - walks over bytes that may be UTF-8. The table of well-formed sequences is Unicode 15,
 * table 3-7.
 */
#include "text/utf8.h"

#include <assert.h>
#include <stdint.h>

/* The number of bytes that a sequence with this first byte has, and the range of its second byte;
 * 0 when no sequence starts so. */
static size_t sequence_shape(uint8_t first, uint8_t *low, uint8_t *high)
{
    *low = 0x80;
    *high = 0xBF;
    if (first < 0x80)
        return 1;
    if (first < 0xC2)
        return 0;
    if (first < 0xE0)
        return 2;
    if (first < 0xF0) {
        if (first == 0xE0)
            *low = 0xA0;    /* below: an overlong form */
        if (first == 0xED)
            *high = 0x9F;   /* above: a surrogate */
        return 3;
    }
    if (first < 0xF5) {
        if (first == 0xF0)
            *low = 0x90;
        if (first == 0xF4)
            *high = 0x8F;   /* above: past U+10FFFF */
        return 4;
    }
    return 0;
}

size_t utf8_next(const char *bytes, size_t length, utf8_state *state)
{
    uint8_t low, high;

    assert(length > 0);
    const size_t need = sequence_shape((uint8_t)bytes[0], &low, &high);
    if (need == 0) {
        *state = UTF8_BROKEN;
        return 1;
    }
    for (size_t i = 1; i < need; i++) {
        if (i == length) {
            *state = UTF8_CUT;
            return i;
        }
        const uint8_t next = (uint8_t)bytes[i];
        if (next < low || next > high) {
            *state = UTF8_BROKEN;
            return i;
        }
        low = 0x80;
        high = 0xBF;
    }
    *state = UTF8_WHOLE;
    return need;
}

size_t utf8_valid_length(const char *bytes, size_t length)
{
    size_t at = 0;

    while (at < length) {
        utf8_state state;
        const size_t unit = utf8_next(bytes + at, length - at, &state);
        if (state != UTF8_WHOLE)
            break;
        at += unit;
    }
    return at;
}

void utf8_append_replacement(strbuf *out)
{
    strbuf_append(out, "\xEF\xBF\xBD", 3);
}

void utf8_append_clean(strbuf *out, const char *bytes, size_t length)
{
    size_t at = 0;

    while (at < length) {
        const size_t valid = utf8_valid_length(bytes + at, length - at);
        strbuf_append(out, bytes + at, valid);
        at += valid;
        if (at < length) {
            utf8_state state;
            at += utf8_next(bytes + at, length - at, &state);
            utf8_append_replacement(out);
        }
    }
}
