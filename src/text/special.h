/*
 * special.h - the tokens that are found in text as they are spelled ("<|im_end|>"), before any
 * other rule applies; and the ids that end a generation.
 */
#ifndef TEMPER_TEXT_SPECIAL_H
#define TEMPER_TEXT_SPECIAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "text/prefix_index.h"
#include "text/vocabulary.h"

enum {
    /* Longer marks are refused: a search costs their length wherever one might begin. */
    SPECIAL_LENGTH_MAX = 1024,
    /* Known files have some hundreds; they are compared each with each. */
    SPECIAL_RESPELLED_MAX = 1 << 14
};

/* How a token is found, beside its spelling. */
enum {
    SPECIAL_LSTRIP = 1,       /* takes the whitespace before it */
    SPECIAL_RSTRIP = 2,       /* takes the whitespace after it */
    SPECIAL_SINGLE_WORD = 4   /* is none inside a word */
};

typedef struct special_tokens {
    const vocabulary *vocab;   /* borrowed: which ids are marks */
    prefix_index index;        /* over vocab, or over `spellings` */
    vocabulary spellings;      /* where the tokens are spelled in another way than in vocab */
    uint32_t *ids;             /* [spellings.size] their ids in vocab; NULL: the index has those */
    uint8_t *flags;            /* [vocab->size]; NULL: none are set */
} special_tokens;

/* Fills *special (zeroed by the caller; special_free also after a failure) with the control,
 * unknown and user-defined tokens. vocab outlives it. */
temper_status special_read(const vocabulary *vocab, special_tokens *special, error *err);

/* The same with the tokens that `wanted` marks. */
temper_status special_choose(const vocabulary *vocab, const bool *wanted, special_tokens *special,
                             error *err);

/* The same with the tokens entries[0..count), which are the ids[] of vocab in other spellings. Of
 * two with one spelling the first counts. */
temper_status special_respell(const vocabulary *vocab, const vocabulary_entry *entries,
                              const uint32_t *ids, size_t count, special_tokens *special,
                              error *err);

/* Gives every id of vocab flags, [vocab->size], zeroed; before or after the tokens are chosen. */
temper_status special_make_flags(const vocabulary *vocab, special_tokens *special, error *err);
void special_free(special_tokens *special);

typedef struct special_match {
    size_t start, end;   /* with the whitespace that the token takes */
    uint32_t id;
} special_match;

/* Finds the leftmost special token in text[from..length), the longest of those that begin there.
 * What lies before `from` only says whether a word begins there. Without parse_special only
 * user-defined tokens count. */
bool special_find(const special_tokens *special, const char *text, size_t length, size_t from,
                  bool parse_special, special_match *match);

/* Marks in ends[vocab->size] (zeroed by the caller) the control tokens whose names are known to end
 * a generation: they do, whatever ids the file names. */
void special_mark_ends(const vocabulary *vocab, bool *ends);

#endif
