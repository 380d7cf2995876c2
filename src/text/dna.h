/*
 * dna.h - sequences of DNA inside a text, as hybrid vocabularies have them: what stands between
 * <dna> and </dna> (or the end) is cut into pieces of six bases, each of which is a token. Lower
 * case is upper case, a last piece that is short is filled up with A, a piece with another letter
 * is <oov>. The tokens of pieces are spelled with U+E000 behind them, which tells them from words
 * of the same letters.
 *
 * Method: HuggingFaceBio/Carbon's tokenizer.
 */
#ifndef TEMPER_TEXT_DNA_H
#define TEMPER_TEXT_DNA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "text/tokenizer.h"
#include "text/vocabulary.h"

/* Zeroed: there are no sequences, and all is text. */
typedef struct dna {
    const vocabulary *vocab; /* borrowed */
    int32_t begin, end, unknown;
} dna;

/* Finds <dna>, </dna> and <oov>; a vocabulary that lacks one has no sequences. */
void dna_open(const vocabulary *vocab, dna *d);

/* What comes from `start` on: text up to `text_end`, then a sequence with its marks up to `next`;
 * both are `length` where there is no sequence. */
typedef struct dna_part {
    size_t text_end, next;
} dna_part;
dna_part dna_find(const dna *d, const char *text, size_t length, size_t start);

/* Appends the ids of the sequence text[0..length), from its <dna> on. */
temper_status dna_encode(const dna *d, const char *text, size_t length, token_list *out,
                         error *err);

/* Decodes spellings: without the mark of a piece, else as byte_level_decode. */
size_t dna_decode(const void *rules, const char *spelling, size_t length, char *out);

#endif
