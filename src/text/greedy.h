/*
 * greedy.h - RWKV's way: of all tokens whose bytes the text begins with the longest one, again and
 * again until the text is over. Knows no words and no characters.
 *
 * Method: the greedy trie of RWKV's "world" vocabulary.
 */
#ifndef TEMPER_TEXT_GREEDY_H
#define TEMPER_TEXT_GREEDY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "text/prefix_index.h"
#include "text/tokenizer.h"
#include "text/vocabulary.h"

typedef struct greedy {
    prefix_index index;
    int32_t unknown; /* TOKEN_NONE: a byte that begins no token vanishes */
} greedy;

/* Fills *g (zeroed by the caller; greedy_free also after a failure) with the tokens that `wanted`
 * marks. vocab outlives g. */
temper_status greedy_open(const vocabulary *vocab, const bool *wanted, greedy *g, error *err);
void greedy_free(greedy *g);

/* Appends the ids of a text of any bytes. */
temper_status greedy_encode(const greedy *g, const char *text, size_t length, token_list *out,
                             error *err);

/* Reads a spelling of the world vocabulary: bytes in Python's escapes (\t, \n, \r, \x0a), a
 * backslash before any other character standing for that character. A spelling_decoder that needs
 * no rules: NULL. */
size_t greedy_decode(const void *rules, const char *spelling, size_t length, char *out);

#endif
