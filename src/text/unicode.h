/*
 * unicode.h - characters and what Unicode says of them. The only file that sees utf8proc.
 */
#ifndef TEMPER_TEXT_UNICODE_H
#define TEMPER_TEXT_UNICODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/strbuf.h"

/* Decodes the first character of text[0..length), valid UTF-8, length > 0; returns its bytes. */
size_t codepoint_decode(const char *text, size_t length, uint32_t *character);
void codepoint_append(strbuf *out, uint32_t character);

bool codepoint_is_space(uint32_t c);         /* White_Space */
bool codepoint_is_control(uint32_t c);       /* categories Cc, Cf, Cn, Co */
bool codepoint_is_mark(uint32_t c);          /* M* */
bool codepoint_is_nonspacing(uint32_t c);    /* Mn */
bool codepoint_is_number(uint32_t c);        /* N* */
bool codepoint_is_punctuation(uint32_t c);   /* P*, and ASCII's symbols */
bool codepoint_is_word(uint32_t c);          /* what \w is: letters, marks, digits, connectors */
bool codepoint_is_cjk(uint32_t c);           /* what BERT calls a Chinese character */

/* Appends the character in lower case (U+0130 gives two characters). */
void codepoint_append_lower(strbuf *out, uint32_t c);

typedef enum normal_form { UNICODE_NFC, UNICODE_NFD, UNICODE_NFKC, UNICODE_NFKD } normal_form;

/* Appends text, valid UTF-8, in a normal form. A run of more than a thousand combining marks is
 * treated as several. */
temper_status text_normalize(normal_form form, const char *text, size_t length, strbuf *out,
                                error *err);

/* Length of the first grapheme cluster of text[0..length), length > 0. */
size_t text_grapheme(const char *text, size_t length);

#endif
