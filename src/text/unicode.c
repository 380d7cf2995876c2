/*
 * unicode.c - utf8proc behind our own names.
 */
#include "text/unicode.h"

#include <assert.h>
#include <utf8proc.h>

#include "base/mem.h"

enum { MARKS_MAX = 1000 };   /* ordering a run of marks takes the square of its length */

size_t codepoint_decode(const char *text, size_t length, uint32_t *character)
{
    utf8proc_int32_t c;

    assert(length > 0);
    if ((uint8_t)text[0] < 0x80) {
        *character = (uint8_t)text[0];
        return 1;
    }
    const utf8proc_ssize_t unit = utf8proc_iterate((const utf8proc_uint8_t *)text,
                                                   (utf8proc_ssize_t)length, &c);
    assert(unit > 0);
    *character = (uint32_t)c;
    return (size_t)unit;
}

void codepoint_append(strbuf *out, uint32_t character)
{
    utf8proc_uint8_t bytes[4];
    const utf8proc_ssize_t unit = utf8proc_encode_char((utf8proc_int32_t)character, bytes);

    strbuf_append(out, bytes, (size_t)unit);
}

static utf8proc_category_t category(uint32_t c)
{
    return utf8proc_category((utf8proc_int32_t)c);
}

bool codepoint_is_space(uint32_t c)
{
    return (c >= 9 && c <= 13) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680
           || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F
           || c == 0x205F || c == 0x3000;
}

bool codepoint_is_control(uint32_t c)
{
    const utf8proc_category_t kind = category(c);

    return kind == UTF8PROC_CATEGORY_CC || kind == UTF8PROC_CATEGORY_CF
           || kind == UTF8PROC_CATEGORY_CN || kind == UTF8PROC_CATEGORY_CO;
}

bool codepoint_is_mark(uint32_t c)
{
    const utf8proc_category_t kind = category(c);

    return kind == UTF8PROC_CATEGORY_MN || kind == UTF8PROC_CATEGORY_MC
           || kind == UTF8PROC_CATEGORY_ME;
}

bool codepoint_is_nonspacing(uint32_t c)
{
    return category(c) == UTF8PROC_CATEGORY_MN;
}

bool codepoint_is_number(uint32_t c)
{
    const utf8proc_category_t kind = category(c);

    return kind == UTF8PROC_CATEGORY_ND || kind == UTF8PROC_CATEGORY_NL
           || kind == UTF8PROC_CATEGORY_NO;
}

bool codepoint_is_punctuation(uint32_t c)
{
    if (c < 0x80)
        return (c >= 33 && c <= 47) || (c >= 58 && c <= 64) || (c >= 91 && c <= 96)
               || (c >= 123 && c <= 126);
    switch (category(c)) {
    case UTF8PROC_CATEGORY_PC: case UTF8PROC_CATEGORY_PD: case UTF8PROC_CATEGORY_PS:
    case UTF8PROC_CATEGORY_PE: case UTF8PROC_CATEGORY_PI: case UTF8PROC_CATEGORY_PF:
    case UTF8PROC_CATEGORY_PO:
        return true;
    default:
        return false;
    }
}

bool codepoint_is_word(uint32_t c)
{
    switch (category(c)) {
    case UTF8PROC_CATEGORY_LU: case UTF8PROC_CATEGORY_LL: case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM: case UTF8PROC_CATEGORY_LO: case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_MN: case UTF8PROC_CATEGORY_MC: case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND: case UTF8PROC_CATEGORY_PC:
        return true;
    default:
        /* The circled and squared letters, which are alphabetic symbols; the two joiners. */
        return (c >= 0x24B6 && c <= 0x24E9) || (c >= 0x1F130 && c <= 0x1F149)
               || (c >= 0x1F150 && c <= 0x1F169) || (c >= 0x1F170 && c <= 0x1F189)
               || c == 0x200C || c == 0x200D;
    }
}

bool codepoint_is_cjk(uint32_t c)
{
    /* 0x2B920 is Hugging Face's number; models were trained with it. */
    return (c >= 0x4E00 && c <= 0x9FFF) || (c >= 0x3400 && c <= 0x4DBF)
           || (c >= 0x20000 && c <= 0x2A6DF) || (c >= 0x2A700 && c <= 0x2B73F)
           || (c >= 0x2B740 && c <= 0x2B81F) || (c >= 0x2B920 && c <= 0x2CEAF)
           || (c >= 0xF900 && c <= 0xFAFF) || (c >= 0x2F800 && c <= 0x2FA1F);
}

void codepoint_append_lower(strbuf *out, uint32_t c)
{
    if (c == 0x130) {
        strbuf_puts(out, "i\xCC\x87");
        return;
    }
    codepoint_append(out, (uint32_t)utf8proc_tolower((utf8proc_int32_t)c));
}

/* ---- normal forms ---------------------------------------------------------------------------- */

/* Length of the part of text that can be normalised alone: all of it, but for absurd runs of
 * marks. */
static size_t part_length(const char *text, size_t length)
{
    size_t at = 0;
    int marks = 0;

    while (at < length) {
        uint32_t c;
        const size_t unit = codepoint_decode(text + at, length - at, &c);
        const bool mark = c >= 0x300 && utf8proc_get_property((utf8proc_int32_t)c)->combining_class;
        marks = mark ? marks + 1 : 0;
        if (marks > MARKS_MAX)
            break;
        at += unit;
    }
    return at;
}

static bool is_ascii(const char *text, size_t length)
{
    for (size_t i = 0; i < length; i++) {
        if ((uint8_t)text[i] >= 0x80)
            return false;
    }
    return true;
}

static temper_status normalize_part(utf8proc_option_t options, const char *text, size_t length,
                                    strbuf *out, error *err)
{
    const utf8proc_uint8_t *bytes = (const utf8proc_uint8_t *)text;
    const utf8proc_ssize_t count = utf8proc_decompose(bytes, (utf8proc_ssize_t)length, NULL, 0,
                                                      options);
    if (count < 0)
        return error_set(err, TEMPER_INTERNAL, "utf8proc: %s", utf8proc_errmsg(count));
    utf8proc_int32_t *buffer = mem_calloc((size_t)count + 1, sizeof *buffer);
    if (buffer == NULL)
        return error_set(err, TEMPER_NO_MEMORY, "no memory to normalise %zu bytes", length);
    utf8proc_decompose(bytes, (utf8proc_ssize_t)length, buffer, count, options);
    const utf8proc_ssize_t written = utf8proc_reencode(buffer, count, options);
    if (written >= 0)
        strbuf_append(out, buffer, (size_t)written);
    mem_free(buffer);
    return written < 0 ? error_set(err, TEMPER_INTERNAL, "utf8proc: %s", utf8proc_errmsg(written))
                       : TEMPER_OK;
}

temper_status text_normalize(normal_form form, const char *text, size_t length, strbuf *out,
                                error *err)
{
    static const utf8proc_option_t options[] = {
        [UNICODE_NFC] = UTF8PROC_STABLE | UTF8PROC_COMPOSE,
        [UNICODE_NFD] = UTF8PROC_STABLE | UTF8PROC_DECOMPOSE,
        [UNICODE_NFKC] = UTF8PROC_STABLE | UTF8PROC_COMPOSE | UTF8PROC_COMPAT,
        [UNICODE_NFKD] = UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT,
    };
    temper_status status = TEMPER_OK;

    if (is_ascii(text, length)) {
        strbuf_append(out, text, length);
        return TEMPER_OK;
    }
    for (size_t at = 0; at < length && status == TEMPER_OK;) {
        const size_t part = part_length(text + at, length - at);
        status = normalize_part(options[form], text + at, part, out, err);
        at += part;
    }
    return status;
}

size_t text_grapheme(const char *text, size_t length)
{
    utf8proc_int32_t state = 0;
    uint32_t c, next;
    size_t at = codepoint_decode(text, length, &c);

    while (at < length) {
        const size_t unit = codepoint_decode(text + at, length - at, &next);
        if (utf8proc_grapheme_break_stateful((utf8proc_int32_t)c, (utf8proc_int32_t)next, &state))
            break;
        c = next;
        at += unit;
    }
    return at;
}
