/*
 * tj_model.c - the tokens of a tokenizer.json and its model: BPE, WordPiece or Unigram.
 */
#include <assert.h>
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "text/byte_level.h"
#include "text/tj_read.h"

static const char model_where[] = "model";

/* ---- which model ----------------------------------------------------------------------------- */

/* Files of old versions have no type: what they hold tells the models apart. */
static const char *type_of(const json_t *model)
{
    const char *type = json_string_value(json_object_get(model, "type"));

    if (type != NULL)
        return type;
    if (json_object_get(model, "merges") != NULL)
        return "BPE";
    if (json_is_array(json_object_get(model, "vocab")))
        return "Unigram";
    return json_object_get(model, "max_input_chars_per_word") != NULL ? "WordPiece" : "";
}

static temper_status read_kind(const json_t *model, tj_vocabulary *out, error *err)
{
    static const struct {
        const char *type;
        model_kind kind;
    } rows[] = {{"BPE", MODEL_BPE}, {"WordPiece", MODEL_WORDPIECE}, {"Unigram", MODEL_UNIGRAM}};

    if (!json_is_object(model))
        return error_set(err, TEMPER_BAD_FILE, "%s is missing or not an object", model_where);
    const char *type = type_of(model);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (strcmp(type, rows[i].type) == 0) {
            out->model = rows[i].kind;
            return tj_get_bool(model, model_where, "byte_fallback", &out->byte_fallback, err);
        }
    }
    return tj_refuse(model_where, type, err);
}

/* ---- tokens ---------------------------------------------------------------------------------- */

/* Ids have few holes: what reserves memory for more was made to. */
static temper_status check_id(const json_t *value, size_t tokens, const char *spelling,
                              uint64_t *id, error *err)
{
    const json_int_t number = json_integer_value(value);

    if (!json_is_integer(value) || number < 0 || number >= VOCABULARY_MAX
        || (uint64_t)number >= 4 * (uint64_t)tokens + 1024)
        return error_set(err, TEMPER_BAD_FILE,
                         "the token \"%.100s\" has the id %lld, of %zu tokens", spelling,
                         (long long)number, tokens);
    *id = (uint64_t)number;
    return TEMPER_OK;
}

/* The number of ids that a list of tokens takes: the greatest and one. */
static temper_status count_ids(const json_t *model, const json_t *added, tj_vocabulary *out,
                               error *err)
{
    const json_t *vocab = json_object_get(model, "vocab");
    const bool array = out->model == MODEL_UNIGRAM;
    const size_t tokens = (array ? json_array_size(vocab) : json_object_size(vocab))
                          + json_array_size(added);
    const char *spelling;
    json_t *value;
    size_t index;
    uint64_t id = 0, count = 0;
    temper_status status = TEMPER_OK;

    if (array ? !json_is_array(vocab) : !json_is_object(vocab))
        return error_set(err, TEMPER_BAD_FILE, "%s: \"vocab\" is not %s", model_where,
                         array ? "an array" : "an object");
    if (array)
        count = json_array_size(vocab);
    json_object_foreach((json_t *)(uintptr_t)vocab, spelling, value)
    {
        status = check_id(value, tokens, spelling, &id, err);
        if (status != TEMPER_OK)
            return status;
        count = id + 1 > count ? id + 1 : count;
    }
    json_array_foreach((json_t *)(uintptr_t)added, index, value)
    {
        spelling = json_string_value(json_object_get(value, "content"));
        if (spelling == NULL)
            return error_set(err, TEMPER_BAD_FILE, "added_tokens: number %zu has no \"content\"",
                             index);
        status = check_id(json_object_get(value, "id"), tokens, spelling, &id, err);
        if (status != TEMPER_OK)
            return status;
        count = id + 1 > count ? id + 1 : count;
    }
    if (count > VOCABULARY_MAX)
        return error_set(err, TEMPER_BAD_FILE, "%s: more than %d tokens", model_where,
                         VOCABULARY_MAX);
    out->count = (size_t)count;
    return TEMPER_OK;
}

static temper_status put_entry(tj_vocabulary *out, size_t id, const char *spelling, size_t length,
                               error *err)
{
    vocabulary_entry *entry = &out->entries[id];

    assert(id < out->count);
    if (entry->spelling != NULL
        && (entry->length != length || memcmp(entry->spelling, spelling, length) != 0))
        return error_set(err, TEMPER_BAD_FILE, "the tokens \"%.100s\" and \"%.100s\" both have the "
                         "id %zu", entry->spelling, spelling, id);
    *entry = (vocabulary_entry){.spelling = spelling, .length = length, .type = TOKEN_TYPE_NORMAL};
    return TEMPER_OK;
}

static temper_status put_model_tokens(const json_t *model, tj_vocabulary *out, error *err)
{
    json_t *vocab = json_object_get(model, "vocab");
    const char *spelling;
    json_t *value;
    size_t index;
    temper_status status = TEMPER_OK;

    json_object_foreach(vocab, spelling, value)
    {
        const size_t id = (size_t)json_integer_value(value);
        status = put_entry(out, id, spelling, strlen(spelling), err);
        if (status != TEMPER_OK)
            return status;
        out->in_model[id] = true;
    }
    json_array_foreach(vocab, index, value)
    {
        const json_t *piece = json_array_get(value, 0);
        if (!json_is_string(piece) || !json_is_number(json_array_get(value, 1)))
            return error_set(err, TEMPER_BAD_FILE,
                             "%s: \"vocab\" number %zu is no token with its score", model_where,
                             index);
        status = put_entry(out, index, json_string_value(piece), json_string_length(piece), err);
        if (status != TEMPER_OK)
            return status;
        out->in_model[index] = true;
    }
    return status;
}

static temper_status put_added_tokens(const json_t *added, tj_vocabulary *out, error *err)
{
    json_t *value;
    size_t index;

    json_array_foreach((json_t *)(uintptr_t)added, index, value)
    {
        const json_t *content = json_object_get(value, "content");
        const size_t id = (size_t)json_integer_value(json_object_get(value, "id"));
        bool special = false;
        temper_status status = put_entry(out, id, json_string_value(content),
                                         json_string_length(content), err);
        if (status == TEMPER_OK)
            status = tj_get_bool(value, "added_tokens", "special", &special, err);
        if (status != TEMPER_OK)
            return status;
        out->entries[id].type = special ? TOKEN_TYPE_CONTROL : TOKEN_TYPE_USER_DEFINED;
        out->entries[id].plain = special;
    }
    return TEMPER_OK;
}

temper_status tj_read_vocabulary(const json_t *model, const json_t *added, tj_vocabulary *out,
                                 error *err)
{
    temper_status status = read_kind(model, out, err);

    assert(out->entries == NULL);
    if (status == TEMPER_OK)
        status = count_ids(model, added, out, err);
    if (status != TEMPER_OK)
        return status;
    out->entries = mem_calloc(out->count, sizeof *out->entries);
    out->in_model = mem_calloc(out->count, sizeof *out->in_model);
    if (out->entries == NULL || out->in_model == NULL)
        return error_set(err, TEMPER_NO_MEMORY, "no memory for %zu tokens", out->count);
    for (size_t id = 0; id < out->count; id++)
        out->entries[id].type = TOKEN_TYPE_NORMAL;
    status = put_model_tokens(model, out, err);
    return status == TEMPER_OK ? put_added_tokens(added, out, err) : status;
}

void tj_vocabulary_free(tj_vocabulary *v)
{
    mem_free(v->entries);
    mem_free(v->in_model);
    memset(v, 0, sizeof *v);
}

/* ---- models ---------------------------------------------------------------------------------- */

static temper_status find_unknown(const json_t *model, const vocabulary *vocab, int32_t *out,
                                  error *err)
{
    const char *name = NULL;
    size_t length = 0;
    const temper_status status = tj_get_text(model, model_where, "unk_token", &name, &length, err);

    *out = name == NULL ? TOKEN_NONE : vocabulary_find(vocab, name, length);
    return status;
}

static temper_status copy_text(const json_t *model, const char *key, char **out, error *err)
{
    const char *text = NULL;
    size_t length = 0;
    const temper_status status = tj_get_text(model, model_where, key, &text, &length, err);

    if (status != TEMPER_OK || length == 0)
        return status;
    *out = mem_strdup(text);
    return *out == NULL ? error_set(err, TEMPER_NO_MEMORY, "no memory for a model") : TEMPER_OK;
}

static temper_status read_merges(const json_t *model, bpe *b, error *err)
{
    json_t *merges = json_object_get(model, "merges"), *merge;
    strbuf scratch = {0};
    size_t rank;
    temper_status status = TEMPER_OK;

    json_array_foreach(merges, rank, merge)
    {
        const json_t *left = json_array_get(merge, 0), *right = json_array_get(merge, 1);
        if (json_is_string(merge))
            status = bpe_add_merge_text(b, json_string_value(merge), json_string_length(merge),
                                        (uint32_t)rank, &scratch, err);
        else if (json_array_size(merge) == 2 && json_is_string(left) && json_is_string(right))
            status = bpe_add_merge(b, json_string_value(left), json_string_length(left),
                                   json_string_value(right), json_string_length(right),
                                   (uint32_t)rank, &scratch, err);
        else
            status = error_set(err, TEMPER_BAD_FILE, "merges: merge %zu is no pair of strings",
                               rank);
        if (status != TEMPER_OK)
            break;
    }
    strbuf_free(&scratch);
    return status;
}

static temper_status read_bpe(const json_t *model, const tj_vocabulary *v, tokenizer *tok,
                              error *err)
{
    const json_t *merges = json_object_get(model, "merges");
    const json_t *dropout = json_object_get(model, "dropout");
    bpe_options options = {.characters = true, .byte_fallback = v->byte_fallback,
                           .last_merge_counts = true};
    temper_status status = tj_get_bool(model, model_where, "ignore_merges", &options.whole_words,
                                       err);

    if (dropout != NULL && !json_is_null(dropout) && json_number_value(dropout) != 0)
        return error_set(err, TEMPER_UNSUPPORTED, "%s: \"dropout\" makes ids random", model_where);
    if (!json_is_array(merges) || json_array_size(merges) > MERGES_MAX)
        return error_set(err, TEMPER_BAD_FILE, "%s: \"merges\" is not an array of at most %d",
                         model_where, MERGES_MAX);
    if (status == TEMPER_OK)
        status = tj_get_bool(model, model_where, "fuse_unk", &options.fuse_unknown, err);
    if (status == TEMPER_OK)
        status = find_unknown(model, &tok->vocab, &options.unknown, err);
    if (status == TEMPER_OK)
        status = copy_text(model, "continuing_subword_prefix", &tok->inner_prefix, err);
    if (status == TEMPER_OK)
        status = copy_text(model, "end_of_word_suffix", &tok->end_suffix, err);
    options.inner_prefix = tok->inner_prefix;
    options.end_suffix = tok->end_suffix;
    if (status == TEMPER_OK)
        status = bpe_open(&tok->vocab, &options, json_array_size(merges), &tok->bpe, err);
    return status == TEMPER_OK ? read_merges(model, &tok->bpe, err) : status;
}

/* *wanted becomes [vocab.size], owned by the caller: the tokens that text may become. */
static temper_status choose_text_tokens(const tj_vocabulary *v, const vocabulary *vocab,
                                        bool **wanted, error *err)
{
    *wanted = mem_calloc(vocab->size, sizeof **wanted);
    if (*wanted == NULL)
        return error_set(err, TEMPER_NO_MEMORY, "no memory for %u tokens", vocab->size);
    for (uint32_t id = 0; id < vocab->size; id++)
        (*wanted)[id] = v->in_model[id] && !vocabulary_is_mark(vocab, id)
                        && vocab->types[id] != TOKEN_TYPE_BYTE;
    return TEMPER_OK;
}

static temper_status read_wordpiece(const json_t *model, const tj_vocabulary *v, tokenizer *tok,
                                    error *err)
{
    const json_t *longest = json_object_get(model, "max_input_chars_per_word");
    const char *prefix = "##";
    size_t length;
    bool *wanted = NULL;
    temper_status status = tj_get_text(model, model_where, "continuing_subword_prefix", &prefix,
                                       &length, err);

    if (status == TEMPER_OK)
        status = choose_text_tokens(v, &tok->vocab, &wanted, err);
    if (status == TEMPER_OK)
        status = wordpiece_open(&tok->vocab, wanted, "", prefix, &tok->wordpiece, err);
    mem_free(wanted);
    if (status == TEMPER_OK)
        status = find_unknown(model, &tok->vocab, &tok->wordpiece.unknown, err);
    tok->wordpiece.longest_word = 100;
    if (json_is_integer(longest) && json_integer_value(longest) > 0)
        tok->wordpiece.longest_word = (size_t)json_integer_value(longest);
    return status;
}

static temper_status read_scores(const json_t *model, const vocabulary *vocab, unigram *u,
                                 error *err)
{
    json_t *list = json_object_get(model, "vocab"), *value;
    double worst = 0;
    size_t index;

    u->scores = mem_calloc(vocab->size, sizeof *u->scores);
    if (u->scores == NULL)
        return error_set(err, TEMPER_NO_MEMORY, "no memory for %u scores", vocab->size);
    json_array_foreach(list, index, value)
    {
        const double score = json_number_value(json_array_get(value, 1));
        if (!isfinite(score))
            return error_set(err, TEMPER_BAD_FILE, "%s: the score of token %zu is not finite",
                             model_where, index);
        worst = index == 0 || score < worst ? score : worst;
        u->scores[index] = score;
    }
    u->unknown_score = worst - 10;
    return TEMPER_OK;
}

static temper_status read_unigram(const json_t *model, const tj_vocabulary *v, tokenizer *tok,
                                  error *err)
{
    const json_t *unknown = json_object_get(model, "unk_id");
    const json_int_t id = json_is_integer(unknown) ? json_integer_value(unknown) : TOKEN_NONE;
    bool *wanted = NULL;

    if (id < TOKEN_NONE || id >= (json_int_t)tok->vocab.size)
        return error_set(err, TEMPER_BAD_FILE, "%s: unk_id is %lld, of %u tokens", model_where,
                         (long long)id, tok->vocab.size);
    temper_status status = choose_text_tokens(v, &tok->vocab, &wanted, err);
    if (status == TEMPER_OK)
        status = unigram_open(&tok->vocab, wanted, &tok->unigram, err);
    mem_free(wanted);
    tok->unigram.unknown = (int32_t)id;
    tok->unigram.byte_fallback = v->byte_fallback;
    return status == TEMPER_OK ? read_scores(model, &tok->vocab, &tok->unigram, err) : status;
}

temper_status tj_read_model(const json_t *model, const tj_vocabulary *v, tokenizer *tok, error *err)
{
    tok->model = v->model;
    switch (v->model) {
    case MODEL_BPE:
        return read_bpe(model, v, tok, err);
    case MODEL_WORDPIECE:
        return read_wordpiece(model, v, tok, err);
    default:
        return read_unigram(model, v, tok, err);
    }
}
