/*
 * pattern.h - regular expressions over valid UTF-8. The only file that sees PCRE2.
 *
 * Patterns come in two spellings: our own, which PCRE2 reads as it is (\p{White_Space} for
 * whitespace: PCRE2's own \s also holds U+180E), and Oniguruma's, which tokenizer.json uses. The
 * second kind is translated; what has no exact counterpart is refused.
 */
#ifndef TEMPER_TEXT_PATTERN_H
#define TEMPER_TEXT_PATTERN_H

#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"
#include "base/strbuf.h"

typedef struct pattern pattern;

/* Compiles a pattern of our own. One that does not compile is TEMPER_INTERNAL. */
temper_status pattern_open(const char *text, pattern **out, error *err);

/* Compiles a pattern from a file, in Oniguruma's spelling. One that is not valid is
 * TEMPER_BAD_FILE, one that uses what temper does not know TEMPER_UNSUPPORTED; both with the
 * pattern. */
temper_status pattern_open_onig(const char *text, size_t length, pattern **out, error *err);
void pattern_close(pattern *p);

/* Appends the translation of an Oniguruma pattern; false when it has none, with the reason. */
bool pattern_translate(const char *text, size_t length, strbuf *out, const char **reason);

/* True for the name of a script ("Han", "Cyrl"), letters and underscores only; *failed when there
 * is no memory to find out. */
bool pattern_is_script(const char *name, size_t length, bool *failed);

/* What matching needs beside the pattern; zeroed before, pattern_work_free after. One a thread,
 * for any number of patterns. */
typedef struct pattern_work {
    void *match;
    void *memory;
} pattern_work;
void pattern_work_free(pattern_work *work);

/* Looks for the leftmost match that begins at `from` or later; *found says whether there is one.
 * A match may be empty. A pattern of a file that takes too many steps is TEMPER_BAD_FILE. */
temper_status pattern_find(const pattern *p, pattern_work *work, const char *text, size_t length,
                           size_t from, bool *found, size_t *start, size_t *end, error *err);

#endif
