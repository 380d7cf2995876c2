/*
 * plamo2.h - PLaMo 2's model: of all ways to cut a text into tokens the one whose scores add up to
 * the most, in whole ten-thousandths; a character that is no token costs 1000 and becomes its
 * bytes' tokens. Of several best ways the one with the longest first token, at every place.
 *
 * Method: pfnet/plamo-2, tokenization_plamo.py. Its table of suffixes finds, at each place, the
 * tokens that the text goes on with, from the end of the text to its beginning; here a walk through
 * a sorted index finds the same ones.
 */
#ifndef TEMPER_TEXT_PLAMO2_H
#define TEMPER_TEXT_PLAMO2_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "text/prefix_index.h"
#include "text/tokenizer.h"
#include "text/vocabulary.h"

typedef struct plamo2 {
    prefix_index index;
    int32_t *costs; /* [vocab->size] owned */
    int32_t byte_ids[256];
} plamo2;

/* A place between two characters: the best way from here to the end. */
typedef struct plamo2_node {
    int64_t cost;
    int32_t id;      /* its first token; -1: a character as its bytes */
    uint32_t length; /* of that, in bytes */
} plamo2_node;

/* Zeroed before, plamo2_work_free after. One a thread. */
typedef struct plamo2_work {
    plamo2_node *nodes;
    size_t capacity;
} plamo2_work;

/* Fills *p (zeroed by the caller; plamo2_free also after a failure) with the tokens that `wanted`
 * marks. scores is [vocab->size]; vocab outlives p. A vocabulary without a token for each byte is
 * TEMPER_BAD_FILE. */
temper_status plamo2_open(const vocabulary *vocab, const bool *wanted, const float *scores,
                          plamo2 *p, error *err);
void plamo2_free(plamo2 *p);

/* Appends the ids of a text of at most PLAMO2_TEXT_MAX bytes, valid UTF-8. */
#define PLAMO2_TEXT_MAX ((size_t)0xF0000000)
temper_status plamo2_encode(const plamo2 *p, plamo2_work *work, const char *text, size_t length,
                            token_list *out, error *err);
void plamo2_work_free(plamo2_work *work);

#endif
