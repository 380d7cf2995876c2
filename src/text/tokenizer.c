/*
 * tokenizer.c - what every kind of tokenizer shares: the vocabulary, the special tokens in the
 * text, the ids with a meaning. What lies between two special tokens goes to the kind (byte-level
 * BPE).
 */
#include "text/tokenizer.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "text/bpe.h"
#include "text/byte_level.h"
#include "text/pretokenizer.h"
#include "text/special.h"
#include "text/utf8.h"
#include "text/vocabulary.h"

struct tokenizer {
    vocabulary vocab;
    special_tokens special;
    pretokenizer *pre;
    bpe bpe;
    int32_t bos;
    int32_t eos;
    bool adds_bos;
    bool adds_eos;
    bool *ends;       /* [vocab.size] */
    char kind[48];
};

/* ---- lists of ids ---------------------------------------------------------------------------- */

void token_list_free(token_list *list)
{
    mem_free(list->ids);
    memset(list, 0, sizeof *list);
}

temper_status token_list_push(token_list *list, uint32_t id, error *err)
{
    if (list->count == list->capacity) {
        const size_t capacity = list->capacity == 0 ? 64 : 2 * list->capacity;
        uint32_t *grown = NULL;
        if (capacity <= SIZE_MAX / sizeof *grown)
            grown = mem_realloc(list->ids, capacity * sizeof *grown);
        if (grown == NULL)
            return error_set(err, TEMPER_NO_MEMORY, "no memory for %zu token ids", capacity);
        list->ids = grown;
        list->capacity = capacity;
    }
    list->ids[list->count++] = id;
    return TEMPER_OK;
}

/* ---- opening --------------------------------------------------------------------------------- */

/* Refuses kinds other than byte-level BPE. */
static temper_status check_kind(const gguf_file *file, error *err)
{
    gguf_string model;
    temper_status status = gguf_get_string(file, "tokenizer.ggml.model", &model, NULL, err);

    if (status != TEMPER_OK)
        return status;
    if (model.length == 4 && memcmp(model.data, "gpt2", 4) == 0)
        return TEMPER_OK;
    return error_set(err, TEMPER_UNSUPPORTED,
                     "the tokenizer is of kind \"%.*s\" (tokenizer.ggml.model); temper reads gpt2, "
                     "which is byte-level BPE", (int)(model.length < 64 ? model.length : 64),
                     model.data);
}

static temper_status open_pretokenizer(const gguf_file *file, tokenizer *tok, error *err)
{
    gguf_string name = {0};
    bool found;
    temper_status status = gguf_get_string(file, "tokenizer.ggml.pre", &name, &found, err);

    if (status == TEMPER_OK)
        status = pretokenizer_open(name, &tok->pre, err);
    if (status == TEMPER_OK)
        snprintf(tok->kind, sizeof tok->kind, "gpt2 (%s)", pretokenizer_get_traits(tok->pre)->name);
    return status;
}

/* Reads an id that must be a token where the file names it; TOKEN_NONE where it does not. */
static temper_status read_id(const gguf_file *file, const char *key, uint32_t size, int32_t *out,
                             error *err)
{
    uint32_t id = 0;
    bool found = false;
    const temper_status status = gguf_get_u32(file, key, &id, &found, err);

    *out = TOKEN_NONE;
    if (status != TEMPER_OK || !found)
        return status;
    if (id >= size)
        return error_set(err, TEMPER_BAD_FILE, "%s is %u, but the vocabulary has %u tokens", key,
                         id, size);
    *out = (int32_t)id;
    return TEMPER_OK;
}

/* What the file says about adding BOS or EOS; `usual` where it says nothing. */
static temper_status read_adds(const gguf_file *file, const char *key, const char *id_key,
                               int32_t id, bool usual, bool *out, error *err)
{
    bool adds = usual && id != TOKEN_NONE;
    bool found;
    const temper_status status = gguf_get_bool(file, key, &adds, &found, err);

    *out = adds;
    if (status == TEMPER_OK && adds && id == TOKEN_NONE)
        return error_set(err, TEMPER_BAD_FILE, "%s is true, but there is no %s", key, id_key);
    return status;
}

static temper_status read_ends(const gguf_file *file, tokenizer *tok, error *err)
{
    static const char *const keys[] = {"tokenizer.ggml.eot_token_id",
                                       "tokenizer.ggml.eom_token_id"};

    tok->ends = mem_calloc(tok->vocab.size, sizeof *tok->ends);
    if (tok->ends == NULL)
        return error_set(err, TEMPER_NO_MEMORY, "no memory for %u tokens", tok->vocab.size);
    special_mark_ends(&tok->vocab, tok->ends);
    if (tok->eos != TOKEN_NONE)
        tok->ends[tok->eos] = true;
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        int32_t id;
        const temper_status status = read_id(file, keys[i], tok->vocab.size, &id, err);
        if (status != TEMPER_OK)
            return status;
        if (id != TOKEN_NONE)
            tok->ends[id] = true;
    }
    return TEMPER_OK;
}

static temper_status read_ids(const gguf_file *file, tokenizer *tok, error *err)
{
    static const char bos_key[] = "tokenizer.ggml.bos_token_id";
    static const char eos_key[] = "tokenizer.ggml.eos_token_id";
    const bool usual = pretokenizer_get_traits(tok->pre)->adds_bos;

    temper_status status = read_id(file, bos_key, tok->vocab.size, &tok->bos, err);
    if (status == TEMPER_OK)
        status = read_id(file, eos_key, tok->vocab.size, &tok->eos, err);
    if (status == TEMPER_OK)
        status = read_adds(file, "tokenizer.ggml.add_bos_token", bos_key, tok->bos, usual,
                           &tok->adds_bos, err);
    if (status == TEMPER_OK)
        status = read_adds(file, "tokenizer.ggml.add_eos_token", eos_key, tok->eos, false,
                           &tok->adds_eos, err);
    if (status == TEMPER_OK)
        status = read_ends(file, tok, err);
    return status;
}

temper_status tokenizer_open(const gguf_file *file, tokenizer **out, error *err)
{
    error failure = {0};

    *out = NULL;
    tokenizer *tok = mem_calloc(1, sizeof *tok);
    if (tok == NULL)
        return error_set(err, TEMPER_NO_MEMORY, "%s: no memory for a tokenizer", gguf_name(file));

    temper_status status = check_kind(file, &failure);
    if (status == TEMPER_OK)
        status = open_pretokenizer(file, tok, &failure);
    if (status == TEMPER_OK)
        status = vocabulary_read(file, byte_level_decode, &tok->vocab, &failure);
    if (status == TEMPER_OK)
        status = special_read(&tok->vocab, &tok->special, &failure);
    if (status == TEMPER_OK)
        status = bpe_read(file, &tok->vocab, pretokenizer_get_traits(tok->pre)->whole_words,
                          &tok->bpe, &failure);
    if (status == TEMPER_OK)
        status = read_ids(file, tok, &failure);
    if (status != TEMPER_OK) {
        tokenizer_close(tok);
        /* Some look-ups name the file themselves. */
        if (strncmp(failure.text, gguf_name(file), strlen(gguf_name(file))) == 0)
            return error_set(err, status, "%s", failure.text);
        return error_set(err, status, "%s: %s", gguf_name(file), failure.text);
    }
    *out = tok;
    return TEMPER_OK;
}

void tokenizer_close(tokenizer *tok)
{
    if (tok == NULL)
        return;
    bpe_free(&tok->bpe);
    special_free(&tok->special);
    vocabulary_free(&tok->vocab);
    pretokenizer_close(tok->pre);
    mem_free(tok->ends);
    mem_free(tok);
}

/* ---- what it says of itself ------------------------------------------------------------------ */

uint32_t tokenizer_size(const tokenizer *tok)
{
    return tok->vocab.size;
}

int32_t tokenizer_bos(const tokenizer *tok)
{
    return tok->bos;
}

int32_t tokenizer_eos(const tokenizer *tok)
{
    return tok->eos;
}

bool tokenizer_adds_bos(const tokenizer *tok)
{
    return tok->adds_bos;
}

bool tokenizer_adds_eos(const tokenizer *tok)
{
    return tok->adds_eos;
}

bool tokenizer_ends(const tokenizer *tok, uint32_t id)
{
    return id < tok->vocab.size && tok->ends[id];
}

const char *tokenizer_kind(const tokenizer *tok)
{
    return tok->kind;
}

const char *tokenizer_piece(const tokenizer *tok, uint32_t id, bool special, size_t *length)
{
    const char *piece = vocabulary_piece(&tok->vocab, id, length);

    if (!special && vocabulary_is_mark(&tok->vocab, id))
        *length = 0;
    return piece;
}

const char *tokenizer_spelling(const tokenizer *tok, uint32_t id, size_t *length)
{
    return vocabulary_spelling(&tok->vocab, id, length);
}

/* ---- text to ids ----------------------------------------------------------------------------- */

typedef struct encoder {
    const tokenizer *tok;
    bpe_work work;
    token_list *out;
} encoder;

static temper_status encode_word(void *user, const char *word, size_t length, error *err)
{
    encoder *e = user;

    return bpe_encode_word(&e->tok->bpe, &e->work, word, length, e->out, err);
}

/* Text without special tokens: valid parts go through the pre-tokeniser, broken bytes are words. */
static temper_status encode_plain(encoder *e, const char *text, size_t length, error *err)
{
    temper_status status = TEMPER_OK;
    size_t at = 0;

    while (at < length && status == TEMPER_OK) {
        const size_t valid = utf8_valid_length(text + at, length - at);
        status = pretokenizer_split(e->tok->pre, text + at, valid, encode_word, e, err);
        at += valid;
        if (at < length && status == TEMPER_OK) {
            utf8_state state;
            const size_t broken = utf8_next(text + at, length - at, &state);
            for (size_t i = 0; i < broken && status == TEMPER_OK; i++)
                status = encode_word(e, text + at + i, 1, err);
            at += broken;
        }
    }
    return status;
}

static temper_status encode_all(encoder *e, const char *text, size_t length, bool parse_special,
                                error *err)
{
    temper_status status = TEMPER_OK;

    while (length > 0 && status == TEMPER_OK) {
        size_t at = length, match_length = 0;
        uint32_t id = 0;
        const bool found = special_find(&e->tok->special, &e->tok->vocab, text, length,
                                        parse_special, &at, &match_length, &id);
        status = encode_plain(e, text, at, err);
        if (found && status == TEMPER_OK)
            status = token_list_push(e->out, id, err);
        text += at + match_length;
        length -= at + match_length;
    }
    return status;
}

temper_status tokenizer_encode(const tokenizer *tok, const char *text, size_t length,
                               bool parse_special, token_list *out, error *err)
{
    assert(text != NULL || length == 0);
    if (length > TOKENIZER_TEXT_MAX)
        return error_set(err, TEMPER_BAD_ARGUMENT, "a text of %zu bytes: %d is the most", length,
                         TOKENIZER_TEXT_MAX);
    const size_t had = out->count;
    encoder e = {.tok = tok, .out = out};
    const temper_status status = encode_all(&e, text, length, parse_special, err);
    bpe_work_free(&e.work);
    if (status != TEMPER_OK)
        out->count = had;
    return status;
}

temper_status tokenizer_encode_prompt(const tokenizer *tok, const char *text, size_t length,
                                      bool parse_special, bool add_bos, token_list *out,
                                      error *err)
{
    const size_t had = out->count;
    const bool adds = add_bos && tok->bos != TOKEN_NONE;
    temper_status status = adds ? token_list_push(out, (uint32_t)tok->bos, err) : TEMPER_OK;

    if (status == TEMPER_OK)
        status = tokenizer_encode(tok, text, length, parse_special, out, err);
    if (status != TEMPER_OK) {
        out->count = had;
        return status;
    }
    if (adds && out->count > had + 1 && out->ids[had + 1] == (uint32_t)tok->bos) {
        memmove(out->ids + had, out->ids + had + 1, (out->count - had - 1) * sizeof *out->ids);
        out->count--;
    }
    return TEMPER_OK;
}
