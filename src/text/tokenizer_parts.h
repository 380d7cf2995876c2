/*
 * tokenizer_parts.h - what a tokenizer is made of: private to the files that read one from a model
 * file, from tokenizer.json, and use it.
 *
 * A text goes this way: special tokens are found in it; what lies between them is normalised;
 * special tokens that stand in normalised text are found; what lies between those is cut into
 * words; the model makes ids of each word.
 */
#ifndef TEMPER_TEXT_TOKENIZER_PARTS_H
#define TEMPER_TEXT_TOKENIZER_PARTS_H

#include <stdbool.h>
#include <stdint.h>

#include "text/bpe.h"
#include "text/dna.h"
#include "text/greedy.h"
#include "text/normalizer.h"
#include "text/plamo2.h"
#include "text/special.h"
#include "text/splitter.h"
#include "text/spm.h"
#include "text/tokenizer.h"
#include "text/unigram.h"
#include "text/vocabulary.h"
#include "text/wordpiece.h"

typedef enum model_kind {
    MODEL_BPE,
    MODEL_SPM,
    MODEL_WORDPIECE,
    MODEL_UNIGRAM,
    MODEL_GREEDY,
    MODEL_PLAMO2
} model_kind;

/* What happens to bytes that are no UTF-8. */
typedef enum broken_rule {
    BROKEN_AS_BYTES,   /* each becomes the token of its byte (broken_ids), or nothing */
    BROKEN_AS_IS,      /* the model sees to it */
    BROKEN_REPLACED    /* U+FFFD stands in for them */
} broken_rule;

struct tokenizer {
    vocabulary vocab;
    special_tokens special;
    special_tokens special_normalized;
    normalizer normalizer;
    splitter splitter;
    model_kind model;
    bpe bpe;
    spm spm;
    wordpiece wordpiece;
    unigram unigram;
    greedy greedy;
    plamo2 plamo2;
    dna dna;
    char *inner_prefix;     /* owned; what bpe's options borrow */
    char *end_suffix;       /* owned; the same */
    broken_rule broken;
    int32_t broken_ids[256];
    int32_t bos;
    int32_t eos;
    bool adds_bos;
    bool adds_eos;
    bool strips_space;      /* the first piece of a text begins with a space that is not shown */
    bool *ends;             /* [vocab.size] */
    char kind[48];
};

/* Decodes spellings whose words begin with U+2581, and spellings that stand for their own bytes (no
 * rules: NULL). */
size_t piece_of_marked_spaces(const void *rules, const char *spelling, size_t length, char *out);
size_t piece_as_spelled(const void *rules, const char *spelling, size_t length, char *out);

/* Allocates tok->ends and marks the tokens that end a generation by their names, and eos. */
temper_status tokenizer_find_ends(tokenizer *tok, error *err);

#endif
