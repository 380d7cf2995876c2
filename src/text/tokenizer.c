/*
 * tokenizer.c - what every kind of tokenizer shares: the way of a text through its parts.
 */
#include "text/tokenizer.h"

#include <assert.h>
#include <string.h>

#include "base/mem.h"
#include "text/tokenizer_parts.h"
#include "text/utf8.h"

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

void *token_nodes(void *nodes, size_t *capacity, size_t length, size_t node_bytes, error *err)
{
    enum { LEAST = 256 };

    if (length < *capacity)
        return nodes;
    const size_t count = length < LEAST ? LEAST : length + 1;
    void *grown = count <= SIZE_MAX / node_bytes ? mem_realloc(nodes, count * node_bytes) : NULL;
    if (grown == NULL)
        error_set(err, TEMPER_NO_MEMORY, "no memory to encode %zu bytes", length);
    else
        *capacity = count;
    return grown;
}

/* ---- opening and closing --------------------------------------------------------------------- */

size_t piece_of_marked_spaces(const void *rules, const char *spelling, size_t length, char *out)
{
    size_t count = 0;

    (void)rules;
    for (size_t at = 0; at < length; count++) {
        const bool mark = length - at >= 3 && memcmp(spelling + at, "\xE2\x96\x81", 3) == 0;
        out[count] = mark ? ' ' : spelling[at];
        at += mark ? 3 : 1;
    }
    return count;
}

size_t piece_as_spelled(const void *rules, const char *spelling, size_t length, char *out)
{
    (void)rules;
    if (length > 0)
        memcpy(out, spelling, length);
    return length;
}

temper_status tokenizer_find_ends(tokenizer *tok, error *err)
{
    assert(tok->ends == NULL);
    tok->ends = mem_calloc(tok->vocab.size, sizeof *tok->ends);
    if (tok->ends == NULL)
        return error_set(err, TEMPER_NO_MEMORY, "no memory for %u tokens", tok->vocab.size);
    special_mark_ends(&tok->vocab, tok->ends);
    if (tok->eos != TOKEN_NONE)
        tok->ends[tok->eos] = true;
    return TEMPER_OK;
}

void tokenizer_close(tokenizer *tok)
{
    if (tok == NULL)
        return;
    bpe_free(&tok->bpe);
    spm_free(&tok->spm);
    wordpiece_free(&tok->wordpiece);
    unigram_free(&tok->unigram);
    greedy_free(&tok->greedy);
    plamo2_free(&tok->plamo2);
    mem_free(tok->inner_prefix);
    mem_free(tok->end_suffix);
    normalizer_free(&tok->normalizer);
    splitter_free(&tok->splitter);
    special_free(&tok->special);
    special_free(&tok->special_normalized);
    vocabulary_free(&tok->vocab);
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

bool tokenizer_strips_space(const tokenizer *tok)
{
    return tok->strips_space;
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
    token_list *out;
    bool parse_special;
    strbuf clean;
    normal_work normal;
    split_work split;
    bpe_work bpe;
    spm_work spm;
    unigram_work unigram;
    plamo2_work plamo2;
} encoder;

static void encoder_free(encoder *e)
{
    strbuf_free(&e->clean);
    normal_work_free(&e->normal);
    split_work_free(&e->split);
    bpe_work_free(&e->bpe);
    spm_work_free(&e->spm);
    unigram_work_free(&e->unigram);
    plamo2_work_free(&e->plamo2);
}

static temper_status encode_word(void *user, const char *word, size_t length, error *err)
{
    encoder *e = user;
    const tokenizer *tok = e->tok;

    /* What normalising and splitting made of the text may be longer than the text. */
    if (length > BPE_WORD_MAX)
        return error_set(err, TEMPER_BAD_ARGUMENT, "a word of %zu bytes: %zu is the most", length,
                         BPE_WORD_MAX);
    switch (tok->model) {
    case MODEL_BPE:
        return bpe_encode_word(&tok->bpe, &e->bpe, word, length, e->out, err);
    case MODEL_SPM:
        return spm_encode(&tok->spm, &e->spm, word, length, e->out, err);
    case MODEL_WORDPIECE:
        return wordpiece_encode(&tok->wordpiece, word, length, e->out, err);
    case MODEL_UNIGRAM:
        return unigram_encode(&tok->unigram, &e->unigram, word, length, e->out, err);
    case MODEL_GREEDY:
        return greedy_encode(&tok->greedy, word, length, e->out, err);
    default:
        assert(tok->model == MODEL_PLAMO2);
        return plamo2_encode(&tok->plamo2, &e->plamo2, word, length, e->out, err);
    }
}

/* Text without special tokens, or only such that stand in normalised text. `first` says that the
 * whole text begins here. */
static temper_status encode_part(encoder *e, const char *text, size_t length, bool first,
                                 error *err)
{
    temper_status status = normalizer_run(&e->tok->normalizer, &e->normal, &text, &length, err);

    for (size_t at = 0; at < length && status == TEMPER_OK;) {
        special_match match = {.start = length, .end = length};
        const bool found =
            special_find(&e->tok->special_normalized, text, length, at, e->parse_special, &match);
        status = splitter_run(&e->tok->splitter, &e->split, text + at, match.start - at,
                              first && at == 0, encode_word, e, err);
        if (found && status == TEMPER_OK)
            status = token_list_push(e->out, match.id, err);
        at = match.end;
    }
    return status;
}

/* Text without special tokens: broken bytes stand alone where they have tokens. */
static temper_status encode_plain(encoder *e, const char *text, size_t length, bool first,
                                  error *err)
{
    temper_status status = TEMPER_OK;

    if (e->tok->broken != BROKEN_AS_BYTES)
        return encode_part(e, text, length, first, err);
    for (size_t at = 0; at < length && status == TEMPER_OK;) {
        const size_t valid = utf8_valid_length(text + at, length - at);
        status = encode_part(e, text + at, valid, first && at == 0, err);
        at += valid;
        if (at == length)
            break;
        utf8_state state;
        const size_t end = at + utf8_next(text + at, length - at, &state);
        for (; at < end && status == TEMPER_OK; at++) {
            const int32_t id = e->tok->broken_ids[(uint8_t)text[at]];
            if (id >= 0)
                status = token_list_push(e->out, (uint32_t)id, err);
        }
    }
    return status;
}

/* Text without special tokens, but maybe with sequences of DNA. */
static temper_status encode_between(encoder *e, const char *text, size_t length, bool first,
                                    error *err)
{
    temper_status status = TEMPER_OK;

    for (size_t at = 0; at < length && status == TEMPER_OK;) {
        const dna_part part = dna_find(&e->tok->dna, text, length, at);
        status = encode_plain(e, text + at, part.text_end - at, first && at == 0, err);
        if (status == TEMPER_OK && part.text_end < length)
            status = dna_encode(&e->tok->dna, text + part.text_end, part.next - part.text_end,
                                e->out, err);
        at = part.next;
    }
    return status;
}

static temper_status encode_all(encoder *e, const char *text, size_t length, error *err)
{
    temper_status status = TEMPER_OK;

    if (e->tok->broken == BROKEN_REPLACED && utf8_valid_length(text, length) != length) {
        utf8_append_clean(&e->clean, text, length);
        if (e->clean.failed)
            return error_set(err, TEMPER_NO_MEMORY, "no memory to encode %zu bytes", length);
        text = strbuf_text(&e->clean);
        length = e->clean.length;
    }
    for (size_t at = 0; at < length && status == TEMPER_OK;) {
        special_match match = {.start = length, .end = length};
        const bool found =
            special_find(&e->tok->special, text, length, at, e->parse_special, &match);
        status = encode_between(e, text + at, match.start - at, at == 0, err);
        if (found && status == TEMPER_OK)
            status = token_list_push(e->out, match.id, err);
        at = match.end;
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
    encoder e = {.tok = tok, .out = out, .parse_special = parse_special};
    const temper_status status = encode_all(&e, text, length, err);
    encoder_free(&e);
    if (status != TEMPER_OK)
        out->count = had;
    return status;
}

temper_status tokenizer_encode_prompt(const tokenizer *tok, const char *text, size_t length,
                                      bool parse_special, bool add_bos, token_list *out, error *err)
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

/* ---- ids to text ----------------------------------------------------------------------------- */

temper_status tokenizer_decode(const tokenizer *tok, const uint32_t *ids, size_t count,
                               bool special, strbuf *out, error *err)
{
    bool strips = tok->strips_space;

    for (size_t i = 0; i < count; i++) {
        size_t length;
        if (ids[i] >= tok->vocab.size)
            return error_set(err, TEMPER_BAD_ARGUMENT, "token id %u: the vocabulary has %u tokens",
                             ids[i], tok->vocab.size);
        const char *piece = tokenizer_piece(tok, ids[i], special, &length);
        const size_t skip = strips && length > 0 && piece[0] == ' ';
        strips = strips && length == 0;
        strbuf_append(out, piece + skip, length - skip);
    }
    return out->failed ? error_set(err, TEMPER_NO_MEMORY, "no memory for the text") : TEMPER_OK;
}
