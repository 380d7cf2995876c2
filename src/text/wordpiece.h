/*
 * wordpiece.h - BERT's WordPiece: a word is the longest token that it begins with, then the longest
 * continuing token of the rest, and so on; a word with a rest that no token begins is unknown as a
 * whole.
 */
#ifndef TEMPER_TEXT_WORDPIECE_H
#define TEMPER_TEXT_WORDPIECE_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "text/prefix_index.h"
#include "text/tokenizer.h"
#include "text/vocabulary.h"

typedef struct wordpiece {
    prefix_index index;
    char *start_prefix;    /* owned; what tokens that begin a word are spelled with: "" or U+2581 */
    char *inner_prefix;    /* owned; the others: "##" or "" */
    int32_t unknown;       /* TOKEN_NONE: unknown words vanish */
    size_t longest_word;   /* characters; longer words are unknown; 0: no limit */
} wordpiece;

/* Fills *w (zeroed by the caller; wordpiece_free also after a failure). `wanted` marks the tokens
 * that words may become. vocab outlives w. */
temper_status wordpiece_open(const vocabulary *vocab, const bool *wanted, const char *start_prefix,
                             const char *inner_prefix, wordpiece *w, error *err);
void wordpiece_free(wordpiece *w);

/* Appends the ids of one word. */
temper_status wordpiece_encode(const wordpiece *w, const char *word, size_t length, token_list *out,
                               error *err);

#endif
