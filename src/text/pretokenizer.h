/*
 * pretokenizer.h - how BPE vocabularies of model files cut text into words: the patterns that
 * tokenizer.ggml.pre names.
 */
#ifndef TEMPER_TEXT_PRETOKENIZER_H
#define TEMPER_TEXT_PRETOKENIZER_H

#include <stdbool.h>

#include "base/error.h"
#include "file/gguf.h"
#include "text/splitter.h"

typedef struct pretokenizer_traits {
    bool whole_words;        /* a word that is a token needs no merging */
    bool adds_bos;           /* what holds where the file has no add_bos_token */
    bool marked_spaces;      /* no byte-level vocabulary, but one of characters that spells spaces
                              * as U+2581 */
    bool whole_line_ends;    /* a word of nothing but newlines that is a token needs no merging */
} pretokenizer_traits;

/* Fills *out (zeroed by the caller; splitter_free also after a failure) with the steps of the
 * pre-tokeniser of this name (need not be NUL-terminated), and *traits. An unknown name is
 * TEMPER_UNSUPPORTED, and so is none (name.data NULL), with the names that are known. */
temper_status pretokenizer_open(gguf_string name, pretokenizer_traits *traits, splitter *out,
                                error *err);

#endif
