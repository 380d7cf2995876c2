/*
 * bpe.h - byte-pair encoding of one word after the other, by the ranks of a list of merges.
 *
 * A word begins as one symbol a byte (byte-level vocabularies of model files) or one a character.
 * The pair of neighbours whose merge has the lowest rank (the leftmost of several) becomes one
 * symbol, until no pair has a merge. Time n log n for a word of n bytes.
 *
 * A byte for which the vocabulary has no token vanishes, as in Hugging Face's library and llama.cpp
 * (smollm's vocabulary lacks 21 of the 256). A character without a token becomes the tokens of its
 * bytes ("<0xC3>"), the unknown token, or nothing.
 */
#ifndef TEMPER_TEXT_BPE_H
#define TEMPER_TEXT_BPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/strbuf.h"
#include "file/gguf.h"
#include "text/merge_heap.h"
#include "text/tokenizer.h"
#include "text/vocabulary.h"

enum {
    /* Known vocabularies have up to 515000 merges. */
    MERGES_MAX = 1 << 25
};

typedef struct merge_slot {
    uint64_t pair;     /* left id in the high half, right id in the low one */
    uint32_t rank;
    uint32_t result;   /* the id of both joined; NO_MERGE marks an empty slot */
} merge_slot;

typedef struct bpe_options {
    bool characters;          /* a word begins as characters, not as bytes */
    bool whole_words;         /* a word that is a token needs no merging */
    bool whole_line_ends;     /* the same for words of nothing but newlines */
    bool byte_fallback;       /* with characters: one without a token becomes its bytes' tokens */
    bool fuse_unknown;        /* neighbouring unknown characters become one unknown token */
    bool last_merge_counts;   /* of a pair that is listed twice; else the first counts */
    int32_t unknown;          /* TOKEN_NONE: unknown characters vanish */
    /* With characters: what the tokens of all but a word's first (last) character begin (end)
     * with; borrowed, NULL for nothing. */
    const char *inner_prefix;
    const char *end_suffix;
} bpe_options;

typedef struct bpe {
    const vocabulary *vocab;   /* borrowed */
    bpe_options options;
    merge_slot *slots;
    uint32_t slot_count;       /* a power of two */
    int32_t byte_ids[256];     /* -1: the vocabulary has no token for this byte */
} bpe;

typedef struct bpe_symbol {
    int32_t id;        /* -1: a byte without a token, or merged into the symbol before it */
    uint32_t previous;
    uint32_t next;     /* BPE_END after the last */
} bpe_symbol;

/* What encoding needs beside the vocabulary; zeroed before, bpe_work_free after. One a thread. */
typedef struct bpe_work {
    bpe_symbol *symbols;
    size_t symbol_count;
    size_t symbol_capacity;
    merge_heap heap;
    strbuf spelling;
} bpe_work;

/* Starts *b (zeroed by the caller; bpe_free also after a failure) with room for `merges`. vocab
 * outlives b. */
temper_status bpe_open(const vocabulary *vocab, const bpe_options *options, size_t merges, bpe *b,
                       error *err);
/* Adds the merge with this rank (its place in the list); ranks rise. One that is not two tokens
 * whose joined spelling is a token is TEMPER_BAD_FILE with its number. */
temper_status bpe_add_merge(bpe *b, const char *left, size_t left_length, const char *right,
                            size_t right_length, uint32_t rank, strbuf *scratch, error *err);
/* The same from "LEFT RIGHT". A space at the very beginning belongs to LEFT. */
temper_status bpe_add_merge_text(bpe *b, const char *text, size_t length, uint32_t rank,
                                 strbuf *scratch, error *err);
/* Opens, then adds the merges of tokenizer.ggml.merges. */
temper_status bpe_read(const gguf_file *file, const vocabulary *vocab, const bpe_options *options,
                       bpe *b, error *err);
void bpe_free(bpe *b);

/* Appends the ids of one word of at most BPE_WORD_MAX bytes. */
#define BPE_WORD_MAX ((size_t)0xF0000000)
temper_status bpe_encode_word(const bpe *b, bpe_work *work, const char *word, size_t length,
                              token_list *out, error *err);
void bpe_work_free(bpe_work *work);

#endif
