/*
 * bpe.h - byte-pair encoding of one word after the other, by the ranks of tokenizer.ggml.merges.
 *
 * A word begins as one symbol a byte. The pair of neighbours whose merge has the lowest rank (the
 * leftmost of several) becomes one symbol, until no pair has a merge. Time n log n for a word of n
 * bytes. A byte for which the vocabulary has no token vanishes, as in Hugging Face's library and
 * llama.cpp (smollm's vocabulary lacks 21 of the 256).
 */
#ifndef TEMPER_TEXT_BPE_H
#define TEMPER_TEXT_BPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "file/gguf.h"
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

typedef struct bpe {
    const vocabulary *vocab;   /* borrowed */
    merge_slot *slots;
    uint32_t slot_count;       /* a power of two */
    int32_t byte_ids[256];     /* -1: the vocabulary has no token for this byte */
    bool whole_words;
} bpe;

typedef struct bpe_symbol {
    int32_t id;        /* -1: a byte without a token, or merged into the symbol before it */
    uint32_t previous;
    uint32_t next;     /* BPE_END after the last */
} bpe_symbol;

/* What encoding needs beside the vocabulary; zeroed before, bpe_work_free after. One a thread. */
typedef struct bpe_work {
    bpe_symbol *symbols;
    size_t symbol_capacity;
    uint64_t *heap;    /* rank in the high half, index of the left symbol in the low one */
    size_t heap_count;
    size_t heap_capacity;
    char *spelling;    /* [longest_spelling] */
} bpe_work;

/* Fills *b (zeroed by the caller; bpe_free also after a failure). A merge that is not two tokens
 * whose joined spelling is a token is TEMPER_BAD_FILE with its number. vocab outlives b. */
temper_status bpe_read(const gguf_file *file, const vocabulary *vocab, bool whole_words, bpe *b,
                       error *err);
void bpe_free(bpe *b);

/* Appends the ids of one word of at most BPE_WORD_MAX bytes. */
enum { BPE_WORD_MAX = 1 << 30 };
temper_status bpe_encode_word(const bpe *b, bpe_work *work, const char *word, size_t length,
                              token_list *out, error *err);
void bpe_work_free(bpe_work *work);

#endif
