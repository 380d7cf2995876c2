/*
 * vocabulary.h - the tokens of a model file: spellings, types, the bytes that each stands for, and
 * the way back from a spelling to its id. The same for every kind of tokenizer; how a spelling
 * becomes bytes is the kind's own and comes in as a function.
 */
#ifndef TEMPER_TEXT_VOCABULARY_H
#define TEMPER_TEXT_VOCABULARY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "file/gguf.h"

/* GGUF's numbers (tokenizer.ggml.token_type). */
typedef enum token_type {
    TOKEN_TYPE_UNDEFINED = 0,      /* treated as normal */
    TOKEN_TYPE_NORMAL = 1,
    TOKEN_TYPE_UNKNOWN = 2,
    TOKEN_TYPE_CONTROL = 3,        /* "<|im_end|>": a mark for the model, not text */
    TOKEN_TYPE_USER_DEFINED = 4,   /* added text, matched before anything else */
    TOKEN_TYPE_UNUSED = 5,         /* treated as normal */
    TOKEN_TYPE_BYTE = 6,           /* "<0x0A>" */
    TOKEN_TYPE_COUNT
} token_type;

enum {
    /* Above the largest known vocabulary (262144) by far; what it allows still fits 32-bit sums. */
    VOCABULARY_MAX = 1 << 24
};

typedef struct vocabulary {
    uint32_t size;
    uint8_t *types;           /* [size] token_type */
    char *spellings;          /* all spellings, one after the other */
    size_t *spelling_at;      /* [size + 1] where each begins */
    char *pieces;             /* the same for the bytes that the tokens stand for */
    size_t *piece_at;         /* [size + 1] */
    size_t longest_spelling;
    uint32_t *slots;          /* [slot_count] id + 1; 0 is empty */
    uint32_t slot_count;      /* a power of two */
} vocabulary;

/* Writes the bytes that a spelling stands for, at most `length + 1` of them; returns how many. */
typedef size_t (*spelling_decoder)(const void *rules, const char *spelling, size_t length,
                                   char *out);

/* Texts are borrowed for the call. */
typedef struct vocabulary_entry {
    const char *spelling;
    size_t length;
    token_type type;
    bool plain;              /* stands for its spelling as it is: nothing is decoded */
    const char *written;     /* stands for what this spells; NULL: for what the spelling spells */
    size_t written_length;
} vocabulary_entry;

/* Fills *vocab (zeroed by the caller; vocabulary_free also after a failure) with tokens whose ids
 * are their places. `where` names the list in messages. A token that occurs twice is
 * TEMPER_BAD_FILE. Empty spellings are kept as ids that no text gives. */
temper_status vocabulary_build(const vocabulary_entry *entries, size_t count, const char *where,
                               spelling_decoder decode, const void *rules, vocabulary *vocab,
                               error *err);

/* The same for tokenizer.ggml.tokens and token_type of a model file. */
temper_status vocabulary_read(const gguf_file *file, spelling_decoder decode, const void *rules,
                              vocabulary *vocab, error *err);
void vocabulary_free(vocabulary *vocab);

/* The byte of two hexadecimal digits, or -1. */
int vocabulary_byte_of_digits(const char digits[2]);
/* The byte that "<0x0A>" names, or -1. */
int vocabulary_byte_spelled(const char *spelling, size_t length);
/* The way back: the id of the token that is spelled "<0x0A>" for this byte, or -1. */
int32_t vocabulary_find_byte(const vocabulary *vocab, uint8_t byte);

/* The id with this spelling, or -1. */
int32_t vocabulary_find(const vocabulary *vocab, const char *spelling, size_t length);

/* Views of an id's spelling and bytes. id < size (assert). */
const char *vocabulary_spelling(const vocabulary *vocab, uint32_t id, size_t *length);
const char *vocabulary_piece(const vocabulary *vocab, uint32_t id, size_t *length);

/* True for control and unknown tokens: what they stand for is no text. */
bool vocabulary_is_mark(const vocabulary *vocab, uint32_t id);

/* The array value of a key that must be there with this element type (GGUF_STRING, GGUF_FLOAT32, or
 * any integer type for GGUF_INT32) and at most `most` elements; else TEMPER_BAD_FILE naming the
 * key. */
temper_status vocabulary_array(const gguf_file *file, const char *key, gguf_type element,
                               uint64_t most, const gguf_value **out, error *err);

/* The scores of the tokens, [vocab->size], owned by the caller (NULL after a failure). Scores that
 * are missing, no F32 array, too few or not finite are TEMPER_BAD_FILE. */
temper_status vocabulary_scores(const gguf_file *file, const vocabulary *vocab, float **out,
                                error *err);

/* Mixes 64 bits so that every input bit reaches the low ones. */
uint64_t hash_mix(uint64_t value);

enum {
    /* A hash table at half load has clusters of a few dozen slots. A file whose tokens form longer
     * ones was made to; it is refused before it costs quadratic time. */
    HASH_PROBES_MAX = 2000
};

#endif
