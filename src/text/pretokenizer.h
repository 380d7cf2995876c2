/*
 * pretokenizer.h - cuts text into the words inside which byte-level BPE merges, by the patterns
 * that tokenizer.ggml.pre names.
 *
 * A pre-tokeniser is a list of patterns. The first cuts the text into its matches and the gaps
 * between them, each next one cuts every part that the one before it left; the parts after the last
 * are the words.
 */
#ifndef TEMPER_TEXT_PRETOKENIZER_H
#define TEMPER_TEXT_PRETOKENIZER_H

#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"
#include "file/gguf.h"

typedef struct pretokenizer pretokenizer;

typedef struct pretokenizer_traits {
    const char *name;        /* as the file says it; static */
    bool whole_words;        /* a word that is a token needs no merging */
    bool adds_bos;           /* what holds where the file has no add_bos_token */
} pretokenizer_traits;

/* Opens the pre-tokeniser of this name (need not be NUL-terminated). An unknown name is
 * TEMPER_UNSUPPORTED, and so is none (name.data NULL), with the names that are known. */
temper_status pretokenizer_open(gguf_string name, pretokenizer **out, error *err);
void pretokenizer_close(pretokenizer *pre);
const pretokenizer_traits *pretokenizer_get_traits(const pretokenizer *pre);

typedef temper_status (*word_callback)(void *user, const char *word, size_t length, error *err);

/* Calls back with each word of text[0..length), in order; the words joined are the text. The text
 * is valid UTF-8. Stops at the first callback that fails. May run on several threads at once. */
temper_status pretokenizer_split(const pretokenizer *pre, const char *text, size_t length,
                                 word_callback callback, void *user, error *err);

#endif
