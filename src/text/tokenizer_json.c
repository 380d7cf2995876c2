/*
 * tokenizer_json.c - tokenizers of Hugging Face directories.
 */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include <jansson.h>

#include "base/mem.h"
#include "text/byte_level.h"
#include "text/tj_read.h"

enum { JSON_BYTES_MAX = 256 << 20 };   /* the largest known tokenizer.json has 33 MB */

/* ---- files ----------------------------------------------------------------------------------- */

/* Parses a whole file; *out is NULL where there is none. */
static temper_status load(source *src, json_t **out, error *err)
{
    json_error_t problem;

    *out = NULL;
    if (src == NULL)
        return TEMPER_OK;
    if (src->size > JSON_BYTES_MAX)
        return error_set(err, TEMPER_UNSUPPORTED, "%s: more than %d bytes of JSON", src->name,
                         JSON_BYTES_MAX);
    char *bytes = mem_alloc((size_t)src->size);
    if (bytes == NULL)
        return error_set(err, TEMPER_NO_MEMORY, "%s: no memory to read %llu bytes", src->name,
                         (unsigned long long)src->size);
    temper_status status = source_read(src, 0, bytes, src->size, err);
    if (status == TEMPER_OK) {
        *out = json_loadb(bytes, (size_t)src->size, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL,
                          &problem);
        if (*out == NULL && json_error_code(&problem) == json_error_out_of_memory)
            status = error_set(err, TEMPER_NO_MEMORY, "%s: no memory for its JSON", src->name);
        else if (*out == NULL)
            status = error_set(err, TEMPER_BAD_FILE, "%s:%d: %s", src->name, problem.line,
                               problem.text);
    }
    mem_free(bytes);
    if (status == TEMPER_OK && !json_is_object(*out)) {
        json_decref(*out);
        *out = NULL;
        status = error_set(err, TEMPER_BAD_FILE, "%s: not a JSON object", src->name);
    }
    return status;
}

/* ---- added tokens ---------------------------------------------------------------------------- */

typedef struct added_lists {
    bool *plain;                  /* [vocabulary] found in the text as it is */
    uint8_t *flags;               /* [vocabulary] */
    vocabulary_entry *entries;    /* [count] found in the normalised text, spelled so */
    uint32_t *ids;                /* [count] */
    char **spellings;             /* [count] owned: what entries view */
    size_t count;
} added_lists;

static void added_lists_free(added_lists *lists)
{
    for (size_t i = 0; i < lists->count; i++)
        mem_free(lists->spellings[i]);
    mem_free(lists->plain);
    mem_free(lists->flags);
    mem_free(lists->entries);
    mem_free(lists->ids);
    mem_free(lists->spellings);
}

/* Normalises a token as the text will be, in which it is looked for; that is also what it stands
 * for in an answer. */
static temper_status add_normalized(const normalizer *n, size_t id, vocabulary_entry *token,
                                    added_lists *lists, error *err)
{
    normal_work work = {0};
    const char *text = token->spelling;
    size_t length = token->length;
    temper_status status = normalizer_run(n, &work, &text, &length, err);
    char *copy = status == TEMPER_OK && length > 0 ? mem_strndup(text, length) : NULL;

    if (copy != NULL) {
        lists->spellings[lists->count] = copy;
        lists->ids[lists->count] = (uint32_t)id;
        lists->entries[lists->count++] = (vocabulary_entry){.spelling = copy, .length = length,
                                                            .type = TOKEN_TYPE_NORMAL};
        token->written = copy;
        token->written_length = length;
    } else if (status == TEMPER_OK && length > 0) {
        status = error_set(err, TEMPER_NO_MEMORY, "no memory for an added token");
    }
    normal_work_free(&work);
    return status;
}

static temper_status read_added_token(const json_t *value, const normalizer *n, tj_vocabulary *v,
                                      added_lists *lists, error *err)
{
    static const char where[] = "added_tokens";
    static const struct {
        const char *key;
        uint8_t flag;
    } rows[] = {{"lstrip", SPECIAL_LSTRIP}, {"rstrip", SPECIAL_RSTRIP},
                {"single_word", SPECIAL_SINGLE_WORD}};
    const size_t id = (size_t)json_integer_value(json_object_get(value, "id"));
    bool special = false, normalized;
    temper_status status = tj_get_bool(value, where, "special", &special, err);

    assert(id < v->count);
    normalized = !special;
    if (status == TEMPER_OK)
        status = tj_get_bool(value, where, "normalized", &normalized, err);
    for (size_t i = 0; i < sizeof rows / sizeof *rows && status == TEMPER_OK; i++) {
        bool on = false;
        status = tj_get_bool(value, where, rows[i].key, &on, err);
        lists->flags[id] = (uint8_t)(on ? lists->flags[id] | rows[i].flag : lists->flags[id]);
    }
    if (status == TEMPER_OK && normalized)
        return add_normalized(n, id, &v->entries[id], lists, err);
    lists->plain[id] = true;
    return status;
}

static temper_status read_added(const json_t *added, const normalizer *n, tj_vocabulary *v,
                                added_lists *lists, error *err)
{
    const size_t most = json_array_size(added);
    json_t *value;
    size_t index;

    lists->plain = mem_calloc(v->count, sizeof *lists->plain);
    lists->flags = mem_calloc(v->count, sizeof *lists->flags);
    lists->entries = mem_calloc(most, sizeof *lists->entries);
    lists->ids = mem_calloc(most, sizeof *lists->ids);
    lists->spellings = mem_calloc(most, sizeof *lists->spellings);
    if (lists->plain == NULL || lists->flags == NULL || lists->entries == NULL
        || lists->ids == NULL || lists->spellings == NULL)
        return error_set(err, TEMPER_NO_MEMORY, "no memory for %zu added tokens", most);
    json_array_foreach((json_t *)(uintptr_t)added, index, value)
    {
        const temper_status status = read_added_token(value, n, v, lists, err);
        if (status != TEMPER_OK)
            return status;
    }
    return TEMPER_OK;
}

static temper_status set_added(const added_lists *lists, tokenizer *tok, error *err)
{
    temper_status status = special_choose(&tok->vocab, lists->plain, &tok->special, err);

    if (status == TEMPER_OK)
        status = special_respell(&tok->vocab, lists->entries, lists->ids, lists->count,
                                 &tok->special_normalized, err);
    if (status == TEMPER_OK)
        status = special_make_flags(&tok->vocab, &tok->special, err);
    if (status == TEMPER_OK)
        status = special_make_flags(&tok->vocab, &tok->special_normalized, err);
    if (status != TEMPER_OK)
        return status;
    memcpy(tok->special.flags, lists->flags, tok->vocab.size);
    memcpy(tok->special_normalized.flags, lists->flags, tok->vocab.size);
    return TEMPER_OK;
}

/* ---- tokenizer.json -------------------------------------------------------------------------- */

/* Text that is no UTF-8 goes byte by byte where the vocabulary has tokens for bytes. */
static void set_broken_rule(tokenizer *tok, bool byte_level, bool byte_fallback)
{
    tok->broken = byte_level || byte_fallback ? BROKEN_AS_BYTES : BROKEN_REPLACED;
    for (int byte = 0; byte < 256; byte++) {
        char spelling[BYTE_LEVEL_SPELLING];
        const size_t length = byte_level_spell((uint8_t)byte, spelling);
        tok->broken_ids[byte] = byte_level ? vocabulary_find(&tok->vocab, spelling, length)
                                           : vocabulary_find_byte(&tok->vocab, (uint8_t)byte);
    }
}

static bool spells_bytes(const tokenizer *tok)
{
    for (size_t i = 0; i < tok->splitter.count; i++) {
        if (tok->splitter.steps[i].spell_bytes)
            return true;
    }
    for (size_t i = 0; i < tok->normalizer.count; i++) {
        if (tok->normalizer.steps[i].kind == NORMAL_BYTE_LEVEL)
            return true;
    }
    return false;
}

static temper_status build_vocabulary(const json_t *root, tj_vocabulary *v, tokenizer *tok,
                                      error *err)
{
    tj_decoder decoder = {0};
    temper_status status = tj_read_decoder(json_object_get(root, "decoder"), &decoder, err);

    if (status != TEMPER_OK)
        return status;
    for (size_t id = 0; id < v->count; id++) {
        if ((decoder.byte_fallback || v->byte_fallback)
            && v->entries[id].type == TOKEN_TYPE_NORMAL && v->entries[id].length > 0
            && vocabulary_byte_spelled(v->entries[id].spelling, v->entries[id].length) >= 0)
            v->entries[id].type = TOKEN_TYPE_BYTE;
    }
    tok->strips_space = decoder.strips_space;
    return vocabulary_build(v->entries, v->count, "vocab", tj_decode_piece, &decoder, &tok->vocab,
                            err);
}

static temper_status read_model(const json_t *root, tokenizer *tok, error *err)
{
    static const char *const names[] = {
        [MODEL_BPE] = "BPE", [MODEL_WORDPIECE] = "WordPiece", [MODEL_UNIGRAM] = "Unigram"};
    const json_t *model = json_object_get(root, "model");
    const json_t *added = json_object_get(root, "added_tokens");
    tj_vocabulary v = {0};
    added_lists lists = {0};

    if (added != NULL && !json_is_array(added) && !json_is_null(added))
        return error_set(err, TEMPER_BAD_FILE, "added_tokens is not an array");
    temper_status status = tj_read_vocabulary(model, added, &v, err);
    if (status == TEMPER_OK)
        status = read_added(added, &tok->normalizer, &v, &lists, err);
    if (status == TEMPER_OK)
        status = build_vocabulary(root, &v, tok, err);
    if (status == TEMPER_OK)
        status = tj_read_model(model, &v, tok, err);
    if (status == TEMPER_OK) {
        set_broken_rule(tok, spells_bytes(tok), v.byte_fallback);
        snprintf(tok->kind, sizeof tok->kind, "tokenizer.json (%s)", names[v.model]);
        status = set_added(&lists, tok, err);
    }
    added_lists_free(&lists);
    tj_vocabulary_free(&v);
    return status;
}

static temper_status read_tokenizer(const json_t *root, tokenizer *tok, tj_frame *frame, error *err)
{
    temper_status status = tj_read_normalizer(json_object_get(root, "normalizer"), &tok->normalizer,
                                              err);
    if (status == TEMPER_OK)
        status = tj_read_splitter(json_object_get(root, "pre_tokenizer"), &tok->splitter, err);
    if (status == TEMPER_OK)
        status = read_model(root, tok, err);
    if (status == TEMPER_OK)
        status = tj_read_frame(json_object_get(root, "post_processor"), frame, err);
    return status;
}

/* ---- ids with a meaning ---------------------------------------------------------------------- */

/* The token that tokenizer_config.json names: a string, or an object with "content". */
static temper_status find_named(const json_t *config, const char *key, const tokenizer *tok,
                                int32_t *out, error *err)
{
    const json_t *value = json_object_get(config, key);

    if (json_is_object(value))
        value = json_object_get(value, "content");
    if (value == NULL || json_is_null(value))
        return TEMPER_OK;
    if (!json_is_string(value))
        return error_set(err, TEMPER_BAD_FILE, "\"%s\" is no token", key);
    const char *name = json_string_value(value);
    const int32_t id = vocabulary_find(&tok->vocab, name, json_string_length(value));
    if (id < 0)
        return error_set(err, TEMPER_BAD_FILE, "\"%s\" is \"%.100s\", which is no token", key,
                         name);
    *out = id;
    return TEMPER_OK;
}

static temper_status take_id(const json_t *value, const char *key, tokenizer *tok, bool ends,
                             int32_t *out, error *err)
{
    const json_int_t id = json_integer_value(value);

    if (!json_is_integer(value) || id < 0 || id >= (json_int_t)tok->vocab.size)
        return error_set(err, TEMPER_BAD_FILE, "\"%s\" is %lld, but the vocabulary has %u tokens",
                         key, (long long)id, tok->vocab.size);
    if (*out == TOKEN_NONE)
        *out = (int32_t)id;
    if (ends)
        tok->ends[id] = true;
    return TEMPER_OK;
}

/* A number or a list of them; the first becomes *out where it is none yet, with `ends` all end a
 * generation. */
static temper_status read_numbers(const json_t *config, const char *key, tokenizer *tok, bool ends,
                                  int32_t *out, error *err)
{
    json_t *value = json_object_get(config, key), *element;
    size_t index;

    if (value == NULL)
        value = json_object_get(json_object_get(config, "text_config"), key);
    if (value == NULL || json_is_null(value))
        return TEMPER_OK;
    if (!json_is_array(value))
        return take_id(value, key, tok, ends, out, err);
    json_array_foreach(value, index, element)
    {
        const temper_status status = take_id(element, key, tok, ends, out, err);
        if (status != TEMPER_OK)
            return status;
    }
    return TEMPER_OK;
}

/* Puts the name of the file before what a look-up in it says. */
static temper_status named(temper_status status, const source *src, error *err)
{
    if (status != TEMPER_OK && src != NULL)
        error_prefix(err, "%s", src->name);
    return status;
}

typedef struct open_files {
    json_t *root, *config, *model_config, *generation;
} open_files;

static temper_status read_named_ids(const tokenizer_files *files, const open_files *json,
                                    tokenizer *tok, error *err)
{
    temper_status status = find_named(json->config, "bos_token", tok, &tok->bos, err);

    if (status == TEMPER_OK)
        status = find_named(json->config, "eos_token", tok, &tok->eos, err);
    status = named(status, files->tokenizer_config, err);
    return status == TEMPER_OK ? tokenizer_find_ends(tok, err) : status;
}

static temper_status read_ids_of(const json_t *config, const source *src, tokenizer *tok,
                                 error *err)
{
    temper_status status = read_numbers(config, "bos_token_id", tok, false, &tok->bos, err);

    if (status == TEMPER_OK)
        status = read_numbers(config, "eos_token_id", tok, true, &tok->eos, err);
    return named(status, src, err);
}

static temper_status read_adds(const json_t *config, const source *src, tokenizer *tok, error *err)
{
    static const char where[] = "the tokens around a text";
    temper_status status = tj_get_bool(config, where, "add_bos_token", &tok->adds_bos, err);

    if (status == TEMPER_OK)
        status = tj_get_bool(config, where, "add_eos_token", &tok->adds_eos, err);
    if (status == TEMPER_OK && ((tok->adds_bos && tok->bos == TOKEN_NONE)
                                || (tok->adds_eos && tok->eos == TOKEN_NONE)))
        status = error_set(err, TEMPER_BAD_FILE, "add_%s_token is true, but there is none",
                           tok->adds_bos && tok->bos == TOKEN_NONE ? "bos" : "eos");
    return named(status, src, err);
}

static temper_status read_ids(const tokenizer_files *files, const open_files *json,
                              const tj_frame *frame, tokenizer *tok, error *err)
{
    const uint32_t size = tok->vocab.size;

    if (frame->first >= (int32_t)size || frame->last >= (int32_t)size)
        return error_set(err, TEMPER_BAD_FILE,
                         "%s: post_processor adds a token past the %u of the vocabulary",
                         files->tokenizer->name, size);
    tok->bos = tok->eos = TOKEN_NONE;
    temper_status status = read_named_ids(files, json, tok, err);
    if (status == TEMPER_OK)
        status = read_ids_of(json->model_config, files->config, tok, err);
    if (status == TEMPER_OK)
        status = read_ids_of(json->generation, files->generation_config, tok, err);
    if (status != TEMPER_OK)
        return status;
    /* What the template puts in front is the BOS, whatever else is called so. */
    if (frame->first != TOKEN_NONE)
        tok->bos = frame->first;
    if (tok->eos == TOKEN_NONE)
        tok->eos = frame->last;
    if (tok->eos != TOKEN_NONE)
        tok->ends[tok->eos] = true;
    tok->adds_bos = frame->first != TOKEN_NONE;
    tok->adds_eos = frame->last != TOKEN_NONE;
    return read_adds(json->config, files->tokenizer_config, tok, err);
}

static temper_status load_all(const tokenizer_files *files, open_files *json, error *err)
{
    temper_status status = load(files->tokenizer, &json->root, err);

    if (status == TEMPER_OK)
        status = load(files->tokenizer_config, &json->config, err);
    if (status == TEMPER_OK)
        status = load(files->config, &json->model_config, err);
    if (status == TEMPER_OK)
        status = load(files->generation_config, &json->generation, err);
    return status;
}

temper_status tokenizer_open_json(const tokenizer_files *files, tokenizer **out, error *err)
{
    open_files json = {0};
    tj_frame frame;
    error failure = {0};

    assert(files->tokenizer != NULL);
    *out = NULL;
    tokenizer *tok = mem_calloc(1, sizeof *tok);
    if (tok == NULL)
        return error_set(err, TEMPER_NO_MEMORY, "%s: no memory for a tokenizer",
                         files->tokenizer->name);
    temper_status status = load_all(files, &json, &failure);
    if (status == TEMPER_OK)
        status = named(read_tokenizer(json.root, tok, &frame, &failure), files->tokenizer,
                       &failure);
    if (status == TEMPER_OK)
        status = read_ids(files, &json, &frame, tok, &failure);
    json_decref(json.root);
    json_decref(json.config);
    json_decref(json.model_config);
    json_decref(json.generation);
    if (status != TEMPER_OK) {
        tokenizer_close(tok);
        return error_set(err, status, "%s", failure.text);
    }
    *out = tok;
    return TEMPER_OK;
}

/* ---- the chat template ----------------------------------------------------------------------- */

temper_status tokenizer_json_template(source *tokenizer_config, strbuf *out, error *err)
{
    json_t *root, *element;
    size_t index;
    temper_status status = load(tokenizer_config, &root, err);
    const json_t *text = json_object_get(root, "chat_template");

    if (status != TEMPER_OK || root == NULL)
        return status;
    if (json_is_array(text)) {
        const json_t *list = text;
        text = NULL;
        json_array_foreach((json_t *)(uintptr_t)list, index, element)
        {
            const char *name = json_string_value(json_object_get(element, "name"));
            if (name != NULL && strcmp(name, "default") == 0)
                text = json_object_get(element, "template");
        }
    }
    if (text != NULL && !json_is_null(text) && !json_is_string(text))
        status = error_set(err, TEMPER_BAD_FILE, "%s: \"chat_template\" is no text",
                           tokenizer_config->name);
    else if (json_is_string(text))
        strbuf_append(out, json_string_value(text), json_string_length(text));
    json_decref(root);
    if (status == TEMPER_OK && out->failed)
        status = error_set(err, TEMPER_NO_MEMORY, "no memory for the chat template");
    return status;
}
