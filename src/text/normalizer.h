/*
 * normalizer.h - what happens to a text before it is cut into words: a list of steps, each a
 * rewriting of the whole.
 */
#ifndef TEMPER_TEXT_NORMALIZER_H
#define TEMPER_TEXT_NORMALIZER_H

#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"
#include "base/strbuf.h"
#include "text/charsmap.h"
#include "text/pattern.h"
#include "text/unicode.h"

typedef enum normal_kind {
    NORMAL_FORM,               /* form */
    NORMAL_LOWER,
    NORMAL_DROP_MARKS,         /* categories M* */
    NORMAL_DROP_NONSPACING,    /* category Mn */
    NORMAL_TRIM,               /* whitespace, on the sides that left and right say */
    NORMAL_PREPEND,            /* text, unless there is nothing to put it before */
    NORMAL_REPLACE,            /* find or pattern, by text */
    NORMAL_CLEAN,              /* BERT's: no control characters, all whitespace a space */
    NORMAL_SPACE_CJK,          /* BERT's: Chinese characters between spaces */
    NORMAL_NMT,                /* SentencePiece's "nmt": the like, with a list of its own */
    NORMAL_CHARSMAP,           /* map, as Hugging Face's library applies it: cluster by cluster */
    NORMAL_CHARSMAP_LONGEST,   /* map, as SentencePiece applies it: the longest part first */
    NORMAL_BYTE_LEVEL,         /* every byte spelled as a character */
    NORMAL_UNIGRAM_SPACES      /* spaces to U+2581; left: one more at the beginning; right: runs of
                                * them become one, and those at the end go */
} normal_kind;

typedef struct normal_step {
    normal_kind kind;
    normal_form form;
    bool left, right;
    char *find;            /* owned, as all below */
    size_t find_length;
    char *text;
    size_t text_length;
    pattern *pattern;
    charsmap *map;
} normal_step;

/* Zeroed: leaves a text as it is. normalizer_free after. */
typedef struct normalizer {
    normal_step *steps;
    size_t count;
} normalizer;

/* Appends a step, zeroed but for its kind; NULL when there is no memory. Valid until the next one
 * is added. */
normal_step *normalizer_add(normalizer *n, normal_kind kind, error *err);

/* The same for NORMAL_REPLACE of a plain string and NORMAL_PREPEND (find NULL). */
temper_status normalizer_add_text(normalizer *n, normal_kind kind, const char *find,
                                  size_t find_length, const char *text, size_t text_length,
                                  error *err);
void normalizer_free(normalizer *n);

/* Zeroed before, normal_work_free after. One a thread. */
typedef struct normal_work {
    strbuf buffers[2];
    pattern_work patterns;
} normal_work;
void normal_work_free(normal_work *work);

/* Replaces the view *text by what becomes of it, a view into *work or of the same bytes. The text
 * is valid UTF-8, but where only PREPEND and plain REPLACE steps are used. A text that grows beyond
 * all proportion is TEMPER_BAD_FILE: no model's own rules do that. */
temper_status normalizer_run(const normalizer *n, normal_work *work, const char **text,
                             size_t *length, error *err);

#endif
