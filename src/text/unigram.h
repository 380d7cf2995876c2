/*
 * unigram.h - SentencePiece's unigram model: of all ways to cut a text into tokens, the one whose
 * scores (logarithms of probabilities) add up to the most.
 *
 * Method: Kudo, "Subword Regularization", ACL 2018; the best path by Viterbi.
 */
#ifndef TEMPER_TEXT_UNIGRAM_H
#define TEMPER_TEXT_UNIGRAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "text/prefix_index.h"
#include "text/tokenizer.h"
#include "text/vocabulary.h"

typedef struct unigram {
    const vocabulary *vocab;   /* borrowed */
    prefix_index index;
    double *scores;            /* [vocab->size] owned; set by the caller */
    double unknown_score;      /* of a character that is no token */
    int32_t unknown;           /* TOKEN_NONE: unknown characters vanish */
    bool byte_fallback;        /* unknown characters become their bytes' tokens, if all have one */
    int32_t byte_ids[256];
} unigram;

/* One place between two characters: the best way there. */
typedef struct unigram_node {
    double score;
    uint32_t start;   /* where its last token begins */
    int32_t id;       /* that token, -1: an unknown character, -2: there is no way here yet */
} unigram_node;

/* Zeroed before, unigram_work_free after. One a thread. */
typedef struct unigram_work {
    unigram_node *nodes;
    size_t capacity;
} unigram_work;

/* Fills in the index over the tokens that `wanted` marks and the ids of bytes; u is zeroed but for
 * what the caller sets, now or later. unigram_free also after a failure. vocab outlives u. */
temper_status unigram_open(const vocabulary *vocab, const bool *wanted, unigram *u, error *err);
void unigram_free(unigram *u);

/* Appends the ids of a text of at most UNIGRAM_TEXT_MAX bytes, valid UTF-8. Unknown characters in a
 * row are one unknown token. */
#define UNIGRAM_TEXT_MAX ((size_t)0xF0000000)
temper_status unigram_encode(const unigram *u, unigram_work *work, const char *text, size_t length,
                             token_list *out, error *err);
void unigram_work_free(unigram_work *work);

#endif
