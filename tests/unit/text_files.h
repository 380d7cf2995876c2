/*
 * text_files.h - for the tests of the text room: model files with nothing but a vocabulary, made in
 * memory.
 *
 *     model_file file = {0};
 *     put_string(&file, "tokenizer.ggml.model", "gpt2");
 *     ...
 *     gguf_file *gguf = open_model_file(&file);
 */
#ifndef TEXT_FILES_H
#define TEXT_FILES_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/source.h"
#include "base/strbuf.h"
#include "file/gguf.h"
#include "support/gguf_build.h"
#include "text/byte_level.h"
#include "text/tokenizer.h"

typedef struct model_file {
    strbuf keys;        /* the key-value section */
    uint64_t key_count;
    strbuf whole;       /* the file, once it was opened */
} model_file;

static inline void put_string(model_file *file, const char *key, const char *text)
{
    gguf_put_key(&file->keys, key, GGUF_STRING);
    gguf_put_string(&file->keys, text);
    file->key_count++;
}

static inline void put_u32(model_file *file, const char *key, uint32_t value)
{
    gguf_put_key_u32(&file->keys, key, value);
    file->key_count++;
}

static inline void put_bool(model_file *file, const char *key, bool value)
{
    gguf_put_key(&file->keys, key, GGUF_BOOL);
    strbuf_putc(&file->keys, value);
    file->key_count++;
}

/* The elements follow, by gguf_put_... into file->keys. */
static inline void put_array(model_file *file, const char *key, gguf_type element, uint64_t count)
{
    gguf_put_array(&file->keys, key, element, count);
    file->key_count++;
}

/* Opens what was put so far; the file's bytes stay in *file. */
static inline gguf_file *open_model_file(model_file *file)
{
    error err = {0};
    source *src = NULL;
    gguf_file *gguf = NULL;

    strbuf_clear(&file->whole);
    gguf_put_header(&file->whole, "GGUF", 3, 0, file->key_count);
    strbuf_append(&file->whole, file->keys.data, file->keys.length);
    assert_false(file->whole.failed || file->keys.failed);
    source_open_memory("made.gguf", file->whole.data, file->whole.length, &src, &err);
    gguf_open(src, &gguf, &err);
    if (err.status != TEMPER_OK)
        fail_msg("%s", err.text);
    return gguf;
}

static inline void free_model_file(model_file *file)
{
    strbuf_free(&file->keys);
    strbuf_free(&file->whole);
    file->key_count = 0;
}

/* The small vocabulary: the 256 bytes in order, then these. */
enum {
    SMALL_HE = 256, SMALL_LL, SMALL_LLO, SMALL_HELLO, SMALL_SPACE_HELLO, SMALL_BOS, SMALL_END,
    SMALL_END_LONG, SMALL_UNKNOWN, SMALL_ADDED, SMALL_EMPTY, SMALL_COUNT
};

static const struct {
    const char *spelling;
    int type;
} small_tokens[] = {
    {"he", 1}, {"ll", 1}, {"llo", 1}, {"hello", 1}, {"\xC4\xA0hello", 1}, {"<s>", 3},
    {"<|im_end|>", 3}, {"<|im_end|>\n", 3}, {"<unk>", 2}, {"a b", 4}, {"", 5},
};

static const char *const small_merges[] = {"h e", "l l", "ll o", "he llo", "\xC4\xA0 hello"};

static inline void put_small_tokens(model_file *file)
{
    put_array(file, "tokenizer.ggml.tokens", GGUF_STRING, SMALL_COUNT);
    for (int byte = 0; byte < 256; byte++) {
        char spelling[BYTE_LEVEL_SPELLING + 1] = {0};
        byte_level_spell((uint8_t)byte, spelling);
        gguf_put_string(&file->keys, spelling);
    }
    for (int i = 0; i < SMALL_COUNT - 256; i++)
        gguf_put_string(&file->keys, small_tokens[i].spelling);
}

static inline void put_small_types(model_file *file)
{
    put_array(file, "tokenizer.ggml.token_type", GGUF_INT32, SMALL_COUNT);
    for (int i = 0; i < SMALL_COUNT; i++)
        gguf_put_u32(&file->keys, i < 256 ? 1u : (uint32_t)small_tokens[i - 256].type);
}

static inline void put_small_merges(model_file *file)
{
    const size_t count = sizeof small_merges / sizeof *small_merges;

    put_array(file, "tokenizer.ggml.merges", GGUF_STRING, count);
    for (size_t i = 0; i < count; i++)
        gguf_put_string(&file->keys, small_merges[i]);
}

static inline void put_small_vocabulary(model_file *file, const char *pre)
{
    put_string(file, "tokenizer.ggml.model", "gpt2");
    put_string(file, "tokenizer.ggml.pre", pre);
    put_small_tokens(file);
    put_small_types(file);
    put_small_merges(file);
    put_u32(file, "tokenizer.ggml.bos_token_id", SMALL_BOS);
    put_u32(file, "tokenizer.ggml.eos_token_id", SMALL_END);
}

/* Opens the tokenizer of what was put so far; frees the file. */
static inline tokenizer *open_made_tokenizer(model_file *file)
{
    error err = {0};
    tokenizer *tok = NULL;
    gguf_file *gguf = open_model_file(file);

    if (tokenizer_open(gguf, &tok, &err) != TEMPER_OK)
        fail_msg("%s", err.text);
    gguf_close(gguf);
    free_model_file(file);
    return tok;
}

static inline tokenizer *open_small_tokenizer(const char *pre)
{
    model_file file = {0};

    put_small_vocabulary(&file, pre);
    return open_made_tokenizer(&file);
}

static inline void encode_to(const tokenizer *tok, const char *text, size_t length,
                             bool parse_special, token_list *ids)
{
    error err = {0};

    ids->count = 0;
    if (tokenizer_encode(tok, text, length, parse_special, ids, &err) != TEMPER_OK)
        fail_msg("%s", err.text);
}

/* The bytes of ids joined, special tokens as their text. */
static inline void join_pieces(const tokenizer *tok, const token_list *ids, strbuf *out)
{
    for (size_t i = 0; i < ids->count; i++) {
        size_t length;
        const char *piece = tokenizer_piece(tok, ids->ids[i], true, &length);
        strbuf_append(out, piece, length);
    }
    assert_false(out->failed);
}

static inline void assert_round_trip(const tokenizer *tok, const char *text, size_t length,
                                     bool parse_special)
{
    token_list ids = {0};
    strbuf joined = {0};

    encode_to(tok, text, length, parse_special, &ids);
    join_pieces(tok, &ids, &joined);
    if (joined.length != length || (length > 0 && memcmp(joined.data, text, length) != 0)) {
        strbuf shown = {0};
        strbuf_escape(&shown, text, length < 200 ? length : 200);
        fail_msg("%s does not come back: %s", tokenizer_kind(tok), strbuf_text(&shown));
    }
    strbuf_free(&joined);
    token_list_free(&ids);
}

#endif
