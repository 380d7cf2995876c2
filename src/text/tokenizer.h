/*
 * tokenizer.h - text to ids and back, from the vocabulary that a model carries.
 *
 * From model files: byte-level BPE for the pre-tokeniser names it knows (the table in
 * pretokenizer.c), SentencePiece's merging by score ("llama"), its unigram models ("t5"), WordPiece
 * ("bert"), BPE over characters ("gemma4", "whitespace"), RWKV's longest tokens ("rwkv"), PLaMo 2's
 * cheapest cut ("plamo2") and BPE with sequences of DNA ("hybriddna"). From tokenizer.json: BPE,
 * WordPiece and Unigram with the normalizers and pre-tokenizers of Hugging Face's library. What it
 * does not know is refused by name: never split wrongly in silence.
 *
 *     tokenizer *tok = NULL;
 *     token_list ids = {0};
 *     temper_status status = tokenizer_open(file, &tok, err);
 *     if (status == TEMPER_OK)
 *         status = tokenizer_encode(tok, text, strlen(text), true, &ids, err);
 *     for (size_t i = 0; status == TEMPER_OK && i < ids.count; i++) {
 *         size_t length;
 *         const char *piece = tokenizer_piece(tok, ids.ids[i], false, &length);
 *         fwrite(piece, 1, length, stdout);
 *     }
 *     token_list_free(&ids);
 *     tokenizer_close(tok);
 *
 * A tokenizer is immutable once open: any number of threads may use it at once. A single piece may
 * end in half a character; stream.h makes showable text of a sequence of ids.
 */
#ifndef TEMPER_TEXT_TOKENIZER_H
#define TEMPER_TEXT_TOKENIZER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/source.h"
#include "base/strbuf.h"
#include "file/gguf.h"

typedef struct tokenizer tokenizer;

enum {
    TOKEN_NONE = -1,
    TOKENIZER_TEXT_MAX = 1 << 30 /* bytes that one call encodes at most */
};

typedef struct token_list {
    uint32_t *ids; /* owned by whoever holds the list; free with token_list_free */
    size_t count;
    size_t capacity;
} token_list;

/* The list is empty and usable again afterwards. */
void token_list_free(token_list *list);
temper_status token_list_push(token_list *list, uint32_t id, error *err);

/* For kinds that keep a node for each place of a text of `length` bytes, its end included: the
 * block that the caller has (NULL: none), grown to hold as many nodes, and *capacity to that count.
 * NULL without memory; the block is then as it was. */
void *token_nodes(void *nodes, size_t *capacity, size_t length, size_t node_bytes, error *err);

/* Reads tokenizer.ggml.* . Keeps no reference to the file. Works on files with no tensors and on
 * any architecture. Errors name the file and the key: TEMPER_UNSUPPORTED for a kind or a
 * pre-tokeniser that temper does not know, TEMPER_BAD_FILE for a vocabulary that contradicts itself
 * (a token twice, a merge of no tokens, a BOS, EOS, EOT or EOM id that is no token). */
temper_status tokenizer_open(const gguf_file *file, tokenizer **out, error *err);

/* The files of a Hugging Face directory; borrowed for the call, NULL where there is none. */
typedef struct tokenizer_files {
    source *tokenizer;         /* tokenizer.json: must be there */
    source *tokenizer_config;  /* tokenizer_config.json: bos_token, eos_token, add_bos_token */
    source *config;            /* config.json: bos_token_id and eos_token_id, where the one above
                                * names no tokens */
    source *generation_config; /* generation_config.json: more eos_token_id */
} tokenizer_files;

/* The same from these files. Errors name the file; TEMPER_UNSUPPORTED names the component (a
 * normalizer, a pre-tokenizer, a model) that temper does not know. */
temper_status tokenizer_open_json(const tokenizer_files *files, tokenizer **out, error *err);

/* The chat template of a tokenizer_config.json (of several that of the name "default"), appended to
 * *out; nothing and TEMPER_OK when it has none. */
temper_status tokenizer_json_template(source *tokenizer_config, strbuf *out, error *err);
void tokenizer_close(tokenizer *tok);

uint32_t tokenizer_size(const tokenizer *tok); /* ids are 0 .. size-1 */
int32_t tokenizer_bos(const tokenizer *tok);   /* TOKEN_NONE when there is none */
int32_t tokenizer_eos(const tokenizer *tok);
bool tokenizer_adds_bos(const tokenizer *tok); /* the file says so, or its pre-tokeniser does */
bool tokenizer_adds_eos(const tokenizer *tok);

/* True where encoding puts a space in front of a text that decoding leaves out again (the first
 * piece begins with it): see tokenizer_decode and text_stream_begin_text. */
bool tokenizer_strips_space(const tokenizer *tok);

/* True for the ids that end a generation: eos, eot and eom as the file names them, and control
 * tokens whose name is known to be an end ("<|im_end|>", "<|endoftext|>", ...). False for ids past
 * the end. */
bool tokenizer_ends(const tokenizer *tok, uint32_t id);
const char *tokenizer_kind(const tokenizer *tok); /* "gpt2 (smollm)": for messages */

/* Appends the ids of text to *out. With parse_special, special tokens written in the text
 * ("<|im_end|>") become their ids, the leftmost first and the longest of several that begin at one
 * place; without, they are plain text (user-defined tokens are matched either way). Never adds BOS
 * or EOS. Text that is not valid UTF-8 is encoded byte by byte where it is broken, by vocabularies
 * that have tokens for bytes, else as U+FFFD; NUL is a byte like others. A text above
 * TOKENIZER_TEXT_MAX bytes is TEMPER_BAD_ARGUMENT. On failure *out keeps what it had. */
temper_status tokenizer_encode(const tokenizer *tok, const char *text, size_t length,
                               bool parse_special, token_list *out, error *err);

/* As tokenizer_encode, for the beginning of a prompt: with add_bos the ids appended begin with BOS
 * exactly once, whether or not the text (a rendered chat template) already writes it. Without a BOS
 * id add_bos does nothing. */
temper_status tokenizer_encode_prompt(const tokenizer *tok, const char *text, size_t length,
                                      bool parse_special, bool add_bos, token_list *out,
                                      error *err);

/* The bytes of one id, a view of `*length` bytes that lives as long as the tokenizer. Control
 * tokens give their text ("<|im_end|>") only with `special`, else nothing. id < tokenizer_size
 * (assert). */
const char *tokenizer_piece(const tokenizer *tok, uint32_t id, bool special, size_t *length);

/* Appends the bytes of a whole text: its pieces, without the space that encoding put in front of it
 * (tokenizer_strips_space). An id that is no token is TEMPER_BAD_ARGUMENT. */
temper_status tokenizer_decode(const tokenizer *tok, const uint32_t *ids, size_t count,
                               bool special, strbuf *out, error *err);

/* How the vocabulary itself spells the id ("Ġsky", "▁sky", "##ky"), for listings. */
const char *tokenizer_spelling(const tokenizer *tok, uint32_t id, size_t *length);

#endif
