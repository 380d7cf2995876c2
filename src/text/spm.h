/*
 * spm.h - merging by score, as SentencePiece's BPE models do it: of all neighbours whose joined
 * spelling is a token, the pair with the highest score becomes one symbol, the leftmost of several,
 * until no neighbours spell a token. No list of merges is needed.
 *
 * The text has its spaces spelled as U+2581 already. A character that is no token becomes the
 * tokens of its bytes ("<0x0A>"); where the vocabulary lacks those, the unknown token, or nothing.
 * Control, unknown and byte tokens are never spelled by text.
 */
#ifndef TEMPER_TEXT_SPM_H
#define TEMPER_TEXT_SPM_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "file/gguf.h"
#include "text/merge_heap.h"
#include "text/tokenizer.h"
#include "text/vocabulary.h"

typedef struct spm {
    const vocabulary *vocab;   /* borrowed */
    float *scores;             /* [vocab->size] */
    int32_t byte_ids[256];     /* -1: no token for this byte */
    int32_t unknown;           /* TOKEN_NONE: there is none */
} spm;

typedef struct spm_symbol {
    uint32_t start;
    uint32_t length;     /* 0: merged into the symbol before it */
    uint32_t previous;
    uint32_t next;
} spm_symbol;

/* Zeroed before, spm_work_free after. One a thread. */
typedef struct spm_work {
    spm_symbol *symbols;
    size_t capacity;
    merge_heap heap;
} spm_work;

/* Fills *s (zeroed by the caller; spm_free also after a failure). vocab outlives s. */
temper_status spm_read(const gguf_file *file, const vocabulary *vocab, int32_t unknown, spm *s,
                       error *err);
void spm_free(spm *s);

/* Appends the ids of a text of at most SPM_TEXT_MAX bytes. */
#define SPM_TEXT_MAX ((size_t)0xF0000000)
temper_status spm_encode(const spm *s, spm_work *work, const char *text, size_t length,
                         token_list *out, error *err);
void spm_work_free(spm_work *work);

#endif
