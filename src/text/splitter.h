/*
 * splitter.h - cuts a text into the words inside which a model works: a list of steps, each of
 * which cuts every part that the one before it left.
 */
#ifndef TEMPER_TEXT_SPLITTER_H
#define TEMPER_TEXT_SPLITTER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/strbuf.h"
#include "text/pattern.h"

/* What becomes of the matches of a step, and of the gaps between them. */
typedef enum split_behaviour {
    SPLIT_ISOLATED,               /* each is a part of its own */
    SPLIT_REMOVED,                /* only the gaps are parts */
    SPLIT_MERGED_WITH_PREVIOUS,   /* a match belongs to the gap before it */
    SPLIT_MERGED_WITH_NEXT,       /* or to the gap after it */
    SPLIT_CONTIGUOUS              /* neighbouring matches are one part */
} split_behaviour;

typedef enum split_prefix {
    SPLIT_PREFIX_NONE,
    SPLIT_PREFIX_FIRST,   /* only where the whole text begins */
    SPLIT_PREFIX_ALWAYS   /* every part, unless it begins so already */
} split_prefix;

enum { SPLIT_STEPS_MAX = 16 };

/* First the spaces, then the prefix, then the cutting, then the bytes. What cuts is a pattern, a
 * kind of character, or nothing. */
typedef struct split_step {
    char *space_mark;            /* owned; spaces become this; NULL: they stay */
    char *prefix;                /* owned; what `prefixed` puts in front; NULL with NONE */
    split_prefix prefixed;
    pattern *pattern;            /* owned */
    bool (*is)(uint32_t c);      /* every character of this kind is a match */
    split_behaviour behaviour;
    bool invert;                 /* matches are gaps, gaps are matches */
    bool spell_bytes;            /* a part's bytes become characters (byte_level.h) */
} split_step;

/* Zeroed: a text is one word. splitter_free after. */
typedef struct splitter {
    split_step steps[SPLIT_STEPS_MAX];
    size_t count;
} splitter;

/* Appends a zeroed step; NULL when there are too many, TEMPER_UNSUPPORTED. */
split_step *splitter_add(splitter *s, error *err);
void splitter_free(splitter *s);

/* Zeroed before, split_work_free after. One a thread. */
typedef struct split_work {
    strbuf texts[SPLIT_STEPS_MAX];
    strbuf bytes[SPLIT_STEPS_MAX];
    pattern_work patterns;
} split_work;
void split_work_free(split_work *work);

typedef temper_status (*word_callback)(void *user, const char *word, size_t length, error *err);

/* Calls back with each word of text[0..length), valid UTF-8, in order; no word is empty. `first`
 * says that the whole text begins here. Stops at the first callback that fails. */
temper_status splitter_run(const splitter *s, split_work *work, const char *text, size_t length,
                           bool first, word_callback callback, void *user, error *err);

#endif
