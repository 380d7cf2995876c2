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
#include "text/vocabulary.h"

enum {
    /* Longer marks are refused: a search costs their length wherever one might begin. */
    SPECIAL_LENGTH_MAX = 1024
};

typedef struct special_tokens {
    uint32_t *ids;         /* [count] control, unknown, user-defined tokens, sorted by spelling */
    uint32_t count;
    uint32_t first[257];   /* with byte b begin ids[first[b]] to ids[first[b + 1] - 1] */
} special_tokens;

/* Fills *special (zeroed by the caller; special_free also after a failure). */
temper_status special_read(const vocabulary *vocab, special_tokens *special, error *err);
void special_free(special_tokens *special);

/* Finds the leftmost special token in text[0..length), the longest of those that begin there; true
 * with its place, length and id. Without parse_special only user-defined tokens count. */
bool special_find(const special_tokens *special, const vocabulary *vocab, const char *text,
                  size_t length, bool parse_special, size_t *at, size_t *match_length,
                  uint32_t *id);

/* Marks in ends[vocab->size] (zeroed by the caller) the control tokens whose names are known to end
 * a generation: they do, whatever ids the file names. */
void special_mark_ends(const vocabulary *vocab, bool *ends);

#endif
