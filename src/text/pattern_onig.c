/*
 * pattern_onig.c - Oniguruma's spelling of patterns (its Ruby syntax over UTF-8, which Hugging
 * Face's library uses) put into PCRE2's. Most is the same; classes and anchors differ.
 */
#include <string.h>

#include "text/pattern.h"

#define WORD "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}"

typedef struct translation {
    const char *at, *end;
    strbuf *out;
    const char *reason;   /* why it ends early, or NULL */
} translation;

static void refuse(translation *t, const char *reason)
{
    if (t->reason == NULL)
        t->reason = reason;
}

/* \uHHHH: the four digits follow. */
static void translate_unicode(translation *t)
{
    bool digits = t->end - t->at >= 4;

    for (int i = 0; digits && i < 4; i++)
        digits = t->at[i] != '\0' && strchr("0123456789abcdefABCDEF", t->at[i]) != NULL;
    if (!digits) {
        refuse(t, "\\u without four digits");
        return;
    }
    strbuf_printf(t->out, "\\x{%.4s}", t->at);
    t->at += 4;
}

/* {...}: what stands in the braces, and goes past them; NULL, refused, when there are none. */
static const char *read_braces(translation *t, size_t *length)
{
    const char *close = NULL, *inside = t->at + 1;

    if (t->at < t->end && *t->at == '{')
        close = memchr(t->at, '}', (size_t)(t->end - t->at));
    if (close == NULL) {
        refuse(t, "\\p or \\x without {}");
        return NULL;
    }
    *length = (size_t)(close - inside);
    t->at = close + 1;
    return inside;
}

static void translate_code(translation *t)
{
    size_t length;
    const char *digits = read_braces(t, &length);

    if (digits != NULL)
        strbuf_printf(t->out, "\\x{%.*s}", (int)length, digits);
}

/* \p{...}, \P{...}: the same but for scripts, whose bare names mean more in PCRE2: all characters
 * that are used with the script. */
static void translate_property(translation *t, char letter)
{
    size_t length;
    const char *name = read_braces(t, &length);

    if (name == NULL)
        return;
    const size_t inverted = length > 0 && name[0] == '^';
    bool word = length > inverted, failed = false;
    for (size_t i = inverted; i < length; i++)
        word = word && ((name[i] >= 'a' && name[i] <= 'z') || (name[i] >= 'A' && name[i] <= 'Z')
                        || name[i] == '_');
    const bool script = word && pattern_is_script(name + inverted, length - inverted, &failed);
    t->out->failed = t->out->failed || failed;
    strbuf_printf(t->out, "\\%c{%s%s", letter, inverted ? "^" : "", script ? "sc:" : "");
    strbuf_append(t->out, name + inverted, length - inverted);
    strbuf_putc(t->out, '}');
}

/* Escapes that are not letters stand for themselves. */
static void translate_other_escape(translation *t, char c)
{
    if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '\0') {
        refuse(t, "an escape of a letter or digit");
        return;
    }
    strbuf_putc(t->out, '\\');
    strbuf_putc(t->out, c);
}

/* What follows a backslash. */
static void translate_escape(translation *t, bool in_class)
{
    static const char boundary[] = "(?:(?<=[" WORD "])(?![" WORD "])|(?<![" WORD "])(?=[" WORD
                                   "]))";

    if (t->at == t->end) {
        refuse(t, "a \\ at its end");
        return;
    }
    const char letter = *t->at++;
    switch (letter) {
    case 's': strbuf_puts(t->out, "\\p{White_Space}"); break;
    case 'S': strbuf_puts(t->out, "\\P{White_Space}"); break;
    case 'd': strbuf_puts(t->out, "\\p{Nd}"); break;
    case 'D': strbuf_puts(t->out, "\\P{Nd}"); break;
    case 'w': strbuf_puts(t->out, in_class ? WORD : "[" WORD "]"); break;
    case 'h': strbuf_puts(t->out, in_class ? "0-9A-Fa-f" : "[0-9A-Fa-f]"); break;
    case 'b': strbuf_puts(t->out, in_class ? "\\x08" : boundary); break;
    case 'v': strbuf_puts(t->out, "\\x0B"); break;   /* PCRE2's \v is a class */
    case 'n': case 'r': case 't': case 'f': case 'a': case 'e':
        strbuf_printf(t->out, "\\%c", letter);
        break;
    case 'W': case 'A': case 'z': case 'Z':
        if (in_class)
            refuse(t, "\\W or an anchor in a class");
        else if (letter == 'W')
            strbuf_puts(t->out, "[^" WORD "]");
        else
            strbuf_printf(t->out, "\\%c", letter);
        break;
    case 'p': case 'P': translate_property(t, letter); break;
    case 'x': translate_code(t); break;
    case 'u': translate_unicode(t); break;
    default: translate_other_escape(t, letter); break;
    }
}

/* The inside of [...]; the bracket is read. */
static void translate_class(translation *t)
{
    strbuf_putc(t->out, '[');
    if (t->at < t->end && *t->at == '^')
        strbuf_putc(t->out, *t->at++);
    if (t->at < t->end && *t->at == ']') {
        strbuf_puts(t->out, "\\]");
        t->at++;
    }
    while (t->reason == NULL && t->at < t->end && *t->at != ']') {
        const char c = *t->at++;
        if (c == '\\')
            translate_escape(t, true);
        else if (c == '[')
            refuse(t, "a class in a class");
        else if (c == '&' && t->at < t->end && *t->at == '&')
            refuse(t, "&& in a class");
        else if (c == '\0')
            refuse(t, "a NUL");
        else
            strbuf_putc(t->out, c);
    }
    if (t->at == t->end) {
        refuse(t, "[ without ]");
        return;
    }
    t->at++;
    strbuf_putc(t->out, ']');
}

/* "(" is read. */
static void translate_group(translation *t)
{
    static const char *const known[] = {"?:", "?=", "?!", "?>", "?<=", "?<!", "?i:", "?-i:", "?i)"};
    const size_t left = (size_t)(t->end - t->at);

    strbuf_putc(t->out, '(');
    if (left == 0 || (*t->at != '?' && *t->at != '*'))
        return;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        const size_t length = strlen(known[i]);
        if (length <= left && memcmp(t->at, known[i], length) == 0) {
            strbuf_puts(t->out, known[i]);
            t->at += length;
            return;
        }
    }
    refuse(t, "a group of an unknown kind");
}

/* "{" is read. With a + behind {n,m}, Ruby repeats the repetition; PCRE2 would make it
 * possessive. */
static void check_braces(translation *t)
{
    const char *close = memchr(t->at, '}', (size_t)(t->end - t->at));

    if (close == NULL)
        return;
    if (close + 1 < t->end && close[1] == '+')
        refuse(t, "+ after {}");
    if (t->at[0] == ',')
        refuse(t, "{} without a first number");
}

static void translate_one(translation *t)
{
    const char c = *t->at++;

    switch (c) {
    case '\\': translate_escape(t, false); break;
    case '[': translate_class(t); break;
    case '(': translate_group(t); break;
    /* In Ruby these are the ends of lines. */
    case '^': strbuf_puts(t->out, "(?:(?<=\\n)(?!\\z)|\\A)"); break;
    case '$': strbuf_puts(t->out, "(?=\\n|\\z)"); break;
    case '\0': refuse(t, "a NUL"); break;
    case '{':
        check_braces(t);
        strbuf_putc(t->out, c);
        break;
    default: strbuf_putc(t->out, c); break;
    }
}

bool pattern_translate(const char *text, size_t length, strbuf *out, const char **reason)
{
    translation t = {.at = text, .end = text + length, .out = out};

    while (t.at < t.end && t.reason == NULL)
        translate_one(&t);
    *reason = t.reason;
    return t.reason == NULL;
}
