/*
 * pretokenizer.h - how byte-level BPE vocabularies of model files cut text into words: the patterns
 * that tokenizer.ggml.pre names.
 */
#ifndef TEMPER_TEXT_PRETOKENIZER_H
#define TEMPER_TEXT_PRETOKENIZER_H

#include <stdbool.h>

#include "base/error.h"
#include "file/gguf.h"
#include "text/splitter.h"

typedef struct pretokenizer_traits {
    const char *name;        /* as the file says it; static */
    bool whole_words;        /* a word that is a token needs no merging */
    bool adds_bos;           /* what holds where the file has no add_bos_token */
} pretokenizer_traits;

/* Fills *out (zeroed by the caller; splitter_free also after a failure) with the steps of the
 * pre-tokeniser of this name (need not be NUL-terminated). An unknown name is TEMPER_UNSUPPORTED,
 * and so is none (name.data NULL), with the names that are known. */
temper_status pretokenizer_open(gguf_string name, const pretokenizer_traits **traits, splitter *out,
                                error *err);

#endif
