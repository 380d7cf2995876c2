/*
 * tokenizer_gguf.c - tokenizers of model files: one row a kind (tokenizer.ggml.model).
 *
 * The rules of each kind are llama.cpp's, for which these files are made: where a file says nothing
 * of an id or a flag, the kind's usual one holds.
 */
#include <assert.h>
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "text/byte_level.h"
#include "text/pretokenizer.h"
#include "text/tokenizer_parts.h"

#define SPACE_MARK "\xE2\x96\x81"

typedef struct kind_row kind_row;

struct kind_row {
    const char *name;
    temper_status (*open)(const kind_row *row, const gguf_file *file, tokenizer *tok, error *err);
    spelling_decoder decode;
    bool adds_bos, adds_eos;     /* where the file says nothing */
    int32_t bos, eos, unknown;   /* the same, if these tokens are control (unknown) tokens */
    const char *refusal;         /* why temper does not read it */
};

/* ---- keys ------------------------------------------------------------------------------------ */

/* Reads an id that must be a token where the file names it; *out keeps its value where it does
 * not. */
static temper_status read_id(const gguf_file *file, const char *key, uint32_t size, int32_t *out,
                             error *err)
{
    uint32_t id = 0;
    bool found = false;
    const temper_status status = gguf_get_u32(file, key, &id, &found, err);

    if (status != TEMPER_OK || !found)
        return status;
    if (id >= size)
        return error_set(err, TEMPER_BAD_FILE, "%s is %u, but the vocabulary has %u tokens", key,
                         id, size);
    *out = (int32_t)id;
    return TEMPER_OK;
}

/* The kind's usual id, if the vocabulary has a token of this type there. */
static int32_t usual_id(const vocabulary *vocab, int32_t id, token_type type)
{
    return id >= 0 && (uint32_t)id < vocab->size && vocab->types[id] == type ? id : TOKEN_NONE;
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
    temper_status status = tokenizer_find_ends(tok, err);

    for (size_t i = 0; i < sizeof keys / sizeof *keys && status == TEMPER_OK; i++) {
        int32_t id = TOKEN_NONE;
        status = read_id(file, keys[i], tok->vocab.size, &id, err);
        if (id != TOKEN_NONE)
            tok->ends[id] = true;
    }
    return status;
}

static temper_status read_ids(const kind_row *row, const gguf_file *file, bool adds_bos,
                              tokenizer *tok, error *err)
{
    static const char bos_key[] = "tokenizer.ggml.bos_token_id";
    static const char eos_key[] = "tokenizer.ggml.eos_token_id";
    const uint32_t size = tok->vocab.size;
    temper_status status = TEMPER_OK;

    tok->bos = usual_id(&tok->vocab, row->bos, TOKEN_TYPE_CONTROL);
    tok->eos = usual_id(&tok->vocab, row->eos, TOKEN_TYPE_CONTROL);
    if (tok->model == MODEL_WORDPIECE) {
        /* BERT's marks for the two ends. */
        status = read_id(file, "tokenizer.ggml.cls_token_id", size, &tok->bos, err);
        if (status == TEMPER_OK)
            status = read_id(file, "tokenizer.ggml.seperator_token_id", size, &tok->eos, err);
    }
    if (status == TEMPER_OK)
        status = read_id(file, bos_key, size, &tok->bos, err);
    if (status == TEMPER_OK)
        status = read_id(file, eos_key, size, &tok->eos, err);
    if (status == TEMPER_OK)
        status = read_adds(file, "tokenizer.ggml.add_bos_token", bos_key, tok->bos, adds_bos,
                           &tok->adds_bos, err);
    if (status == TEMPER_OK)
        status = read_adds(file, "tokenizer.ggml.add_eos_token", eos_key, tok->eos, row->adds_eos,
                           &tok->adds_eos, err);
    if (status == TEMPER_OK)
        status = read_ends(file, tok, err);
    return status;
}

static temper_status read_unknown(const kind_row *row, const gguf_file *file, tokenizer *tok,
                                  int32_t *unknown, error *err)
{
    *unknown = usual_id(&tok->vocab, row->unknown, TOKEN_TYPE_UNKNOWN);
    return read_id(file, "tokenizer.ggml.unknown_token_id", tok->vocab.size, unknown, err);
}

/* ---- whitespace beside special tokens -------------------------------------------------------- */

static bool contains(gguf_string text, const char *part)
{
    const size_t length = strlen(part);

    for (uint64_t at = 0; at + length <= text.length; at++) {
        size_t same = 0;
        while (same < length && tolower((unsigned char)text.data[at + same]) == part[same])
            same++;
        if (same == length)
            return true;
    }
    return false;
}

static void set_flag(tokenizer *tok, const char *name, uint8_t flag, bool on)
{
    const int32_t id = vocabulary_find(&tok->vocab, name, strlen(name));

    if (id >= 0)
        tok->special.flags[id] = on ? flag : 0;
}

/* Model files have no place for these attributes of tokens; three families are known by name. */
static temper_status read_strips(const gguf_file *file, tokenizer *tok, error *err)
{
    gguf_string name = {0}, arch = {0}, pre = {0};
    bool found;
    error ignored = {0};

    gguf_get_string(file, "general.name", &name, &found, &ignored);
    gguf_get_string(file, "general.architecture", &arch, &found, &ignored);
    gguf_get_string(file, "tokenizer.ggml.pre", &pre, &found, &ignored);
    const bool mask = contains(pre, "jina-v2-") || contains(arch, "nomic-bert-moe")
                      || contains(arch, "jina-bert-v3");
    const bool phi = contains(name, "phi-3") || contains(name, "phi3");
    const bool modern = contains(name, "modern-bert");

    if (!mask && !phi && !modern)
        return TEMPER_OK;
    const temper_status status = special_make_flags(&tok->vocab, &tok->special, err);
    if (status != TEMPER_OK)
        return status;
    if (mask || modern)
        set_flag(tok, mask ? "<mask>" : "[MASK]", SPECIAL_LSTRIP, true);
    for (uint32_t i = 0; phi && !mask && i < tok->special.index.count; i++)
        tok->special.flags[tok->special.index.ids[i]] = SPECIAL_RSTRIP;
    if (phi && !mask) {
        set_flag(tok, "<unk>", SPECIAL_RSTRIP, false);
        set_flag(tok, "<s>", SPECIAL_RSTRIP, false);
        set_flag(tok, "<|endoftext|>", SPECIAL_RSTRIP, false);
    }
    return TEMPER_OK;
}

/* ---- the kinds ------------------------------------------------------------------------------- */

/* BPE, once normalizer, splitter and vocabulary are there. */
static temper_status read_bpe(const kind_row *row, const gguf_file *file,
                              const bpe_options *options, bool adds_bos, tokenizer *tok,
                              error *err)
{
    temper_status status = bpe_read(file, &tok->vocab, options, &tok->bpe, err);

    tok->model = MODEL_BPE;
    tok->broken = BROKEN_AS_BYTES;
    memcpy(tok->broken_ids, tok->bpe.byte_ids, sizeof tok->broken_ids);
    if (status == TEMPER_OK)
        status = read_ids(row, file, adds_bos, tok, err);
    return status;
}

/* BPE over the words of a pre-tokeniser: bytes, or characters with spaces spelled as U+2581. */
static temper_status open_pre(const kind_row *row, const gguf_file *file, gguf_string name,
                              tokenizer *tok, error *err)
{
    pretokenizer_traits traits = {0};
    temper_status status = pretokenizer_open(name, &traits, &tok->splitter, err);
    const bool marked = traits.marked_spaces;
    const bpe_options options = {.characters = marked, .byte_fallback = marked,
                                 .whole_words = traits.whole_words,
                                 .whole_line_ends = traits.whole_line_ends, .unknown = TOKEN_NONE};

    if (status == TEMPER_OK)
        status = vocabulary_read(file, marked ? piece_of_marked_spaces : row->decode, NULL,
                                 &tok->vocab, err);
    if (status == TEMPER_OK && marked)
        status = normalizer_add_text(&tok->normalizer, NORMAL_REPLACE, " ", 1, SPACE_MARK, 3, err);
    if (status == TEMPER_OK)
        status = read_bpe(row, file, &options, traits.adds_bos, tok, err);
    return status;
}

static temper_status open_gpt2(const kind_row *row, const gguf_file *file, tokenizer *tok,
                               error *err)
{
    gguf_string name = {0};
    bool found;
    temper_status status = gguf_get_string(file, "tokenizer.ggml.pre", &name, &found, err);

    if (status == TEMPER_OK)
        status = open_pre(row, file, name, tok, err);
    if (status == TEMPER_OK)
        snprintf(tok->kind, sizeof tok->kind, "%s (%.*s)", row->name,
                 (int)(name.length < 32 ? name.length : 32), name.data);
    return status;
}

/* The kind says what the other files' pre-tokeniser says. */
static temper_status open_gemma4(const kind_row *row, const gguf_file *file, tokenizer *tok,
                                 error *err)
{
    return open_pre(row, file, (gguf_string){row->name, strlen(row->name)}, tok, err);
}

/* Words between whitespace, of which nothing is left. */
static temper_status open_whitespace(const kind_row *row, const gguf_file *file, tokenizer *tok,
                                     error *err)
{
    const bpe_options options = {.characters = true, .byte_fallback = true, .unknown = TOKEN_NONE};
    bool lower = false, found;
    temper_status status = gguf_get_bool(file, "tokenizer.ggml.normalizer.lowercase", &lower,
                                         &found, err);

    if (status == TEMPER_OK)
        status = vocabulary_read(file, row->decode, NULL, &tok->vocab, err);
    if (status == TEMPER_OK && lower && normalizer_add(&tok->normalizer, NORMAL_LOWER, err) == NULL)
        status = TEMPER_NO_MEMORY;
    split_step *step = status == TEMPER_OK ? splitter_add(&tok->splitter, err) : NULL;
    if (step != NULL) {
        step->is = codepoint_is_space;
        step->behaviour = SPLIT_REMOVED;
        status = read_bpe(row, file, &options, row->adds_bos, tok, err);
    }
    return status;
}

/* Byte-level BPE with sequences of DNA in it. */
static temper_status open_hybriddna(const kind_row *row, const gguf_file *file, tokenizer *tok,
                                    error *err)
{
    const temper_status status = open_gpt2(row, file, tok, err);

    if (status == TEMPER_OK)
        dna_open(&tok->vocab, &tok->dna);
    return status;
}

static temper_status open_llama(const kind_row *row, const gguf_file *file, tokenizer *tok,
                                error *err)
{
    bool prefix = true, found;
    int32_t unknown = TOKEN_NONE;
    temper_status status = gguf_get_bool(file, "tokenizer.ggml.add_space_prefix", &prefix, &found,
                                         err);

    if (status == TEMPER_OK)
        status = vocabulary_read(file, row->decode, NULL, &tok->vocab, err);
    if (status == TEMPER_OK)
        status = read_unknown(row, file, tok, &unknown, err);
    /* Every part begins the text or stands behind a special token, so each gets the space. */
    if (status == TEMPER_OK && prefix)
        status = normalizer_add_text(&tok->normalizer, NORMAL_PREPEND, NULL, 0, " ", 1, err);
    if (status == TEMPER_OK)
        status = normalizer_add_text(&tok->normalizer, NORMAL_REPLACE, " ", 1, SPACE_MARK, 3, err);
    tok->model = MODEL_SPM;
    tok->broken = BROKEN_AS_IS;
    tok->strips_space = prefix;
    if (status == TEMPER_OK)
        status = spm_read(file, &tok->vocab, unknown, &tok->spm, err);
    if (status == TEMPER_OK)
        status = read_ids(row, file, row->adds_bos, tok, err);
    return status;
}

/* BERT's cleaning, then words, punctuation and Chinese characters apart. */
static temper_status add_bert_steps(tokenizer *tok, bool lower, bool strip, error *err)
{
    normalizer *n = &tok->normalizer;
    normal_step *form = NULL;

    if (normalizer_add(n, NORMAL_CLEAN, err) == NULL
        || normalizer_add(n, NORMAL_SPACE_CJK, err) == NULL
        || (strip && (form = normalizer_add(n, NORMAL_FORM, err)) == NULL))
        return TEMPER_NO_MEMORY;
    if (strip) {
        form->form = UNICODE_NFD;
        if (normalizer_add(n, NORMAL_DROP_MARKS, err) == NULL)
            return TEMPER_NO_MEMORY;
    }
    if (lower && normalizer_add(n, NORMAL_LOWER, err) == NULL)
        return TEMPER_NO_MEMORY;
    split_step *step = splitter_add(&tok->splitter, err);
    step->is = codepoint_is_space;
    step->behaviour = SPLIT_REMOVED;
    step = splitter_add(&tok->splitter, err);
    step->is = codepoint_is_punctuation;
    step->behaviour = SPLIT_ISOLATED;
    return TEMPER_OK;
}

/* *wanted becomes [size], owned by the caller: the tokens that text may become. */
static temper_status choose_text_tokens(const vocabulary *vocab, bool **wanted, error *err)
{
    *wanted = mem_calloc(vocab->size, sizeof **wanted);
    if (*wanted == NULL)
        return error_set(err, TEMPER_NO_MEMORY, "no memory for %u tokens", vocab->size);
    for (uint32_t id = 0; id < vocab->size; id++)
        (*wanted)[id] = !vocabulary_is_mark(vocab, id) && vocab->types[id] != TOKEN_TYPE_BYTE;
    return TEMPER_OK;
}

static temper_status open_bert(const kind_row *row, const gguf_file *file, tokenizer *tok,
                               error *err)
{
    bool lower = true, strip = true, found;
    bool *wanted = NULL;
    temper_status status = gguf_get_bool(file, "tokenizer.ggml.normalizer.lowercase", &lower,
                                         &found, err);

    strip = lower;
    if (status == TEMPER_OK)
        status = gguf_get_bool(file, "tokenizer.ggml.normalizer.strip_accents", &strip, &found,
                               err);
    if (status == TEMPER_OK)
        status = vocabulary_read(file, row->decode, NULL, &tok->vocab, err);
    if (status == TEMPER_OK)
        status = add_bert_steps(tok, lower, strip, err);
    if (status == TEMPER_OK)
        status = choose_text_tokens(&tok->vocab, &wanted, err);
    if (status == TEMPER_OK)
        status = wordpiece_open(&tok->vocab, wanted, SPACE_MARK, "", &tok->wordpiece, err);
    mem_free(wanted);
    tok->model = MODEL_WORDPIECE;
    tok->broken = BROKEN_REPLACED;
    tok->strips_space = true;
    if (status == TEMPER_OK)
        status = read_unknown(row, file, tok, &tok->wordpiece.unknown, err);
    if (status == TEMPER_OK)
        status = read_ids(row, file, row->adds_bos, tok, err);
    return status;
}

static temper_status read_charsmap(const gguf_file *file, normalizer *n, error *err)
{
    static const char key[] = "tokenizer.ggml.precompiled_charsmap";
    const gguf_value *value = gguf_find(file, key);

    if (value == NULL)
        return TEMPER_OK;
    if (value->type != GGUF_ARRAY
        || (value->element != GGUF_UINT8 && value->element != GGUF_INT8))
        return error_set(err, TEMPER_BAD_FILE, "%s is not an array of bytes", key);
    if (value->count == 0)
        return TEMPER_OK;
    uint8_t *bytes = mem_alloc((size_t)value->count);
    normal_step *step = bytes == NULL ? NULL : normalizer_add(n, NORMAL_CHARSMAP_LONGEST, err);
    temper_status status = TEMPER_OK;
    if (step == NULL) {
        status = error_set(err, TEMPER_NO_MEMORY, "no memory for %s", key);
    } else {
        for (uint64_t i = 0; i < value->count; i++)
            bytes[i] = (uint8_t)gguf_array_int(value, i);
        status = charsmap_open(bytes, (size_t)value->count, &step->map, err);
    }
    mem_free(bytes);
    return status;
}

/* The scores of a unigram model: a user-defined token costs nothing, an unknown character ten more
 * than the worst normal token. */
static temper_status read_unigram_scores(const gguf_file *file, const vocabulary *vocab, unigram *u,
                                         error *err)
{
    float *scores = NULL;
    const temper_status status = vocabulary_scores(file, vocab, &scores, err);
    double worst = 0;
    bool any = false;

    if (status != TEMPER_OK)
        return status;
    u->scores = mem_calloc(vocab->size, sizeof *u->scores);
    for (uint32_t id = 0; id < vocab->size && u->scores != NULL; id++) {
        u->scores[id] = vocab->types[id] == TOKEN_TYPE_USER_DEFINED ? 0 : scores[id];
        if (vocab->types[id] != TOKEN_TYPE_NORMAL)
            continue;
        worst = !any || scores[id] < worst ? scores[id] : worst;
        any = true;
    }
    u->unknown_score = worst - 10;
    mem_free(scores);
    return u->scores == NULL ? error_set(err, TEMPER_NO_MEMORY, "no memory for the scores")
                             : TEMPER_OK;
}

static temper_status open_t5(const kind_row *row, const gguf_file *file, tokenizer *tok, error *err)
{
    bool prefix = false, merge = false, found;
    bool *wanted = NULL;
    temper_status status = gguf_get_bool(file, "tokenizer.ggml.add_space_prefix", &prefix, &found,
                                         err);

    if (status == TEMPER_OK)
        status = gguf_get_bool(file, "tokenizer.ggml.remove_extra_whitespaces", &merge, &found,
                               err);
    if (status == TEMPER_OK)
        status = vocabulary_read(file, row->decode, NULL, &tok->vocab, err);
    if (status == TEMPER_OK)
        status = read_charsmap(file, &tok->normalizer, err);
    normal_step *spaces = NULL;
    if (status == TEMPER_OK) {
        spaces = normalizer_add(&tok->normalizer, NORMAL_UNIGRAM_SPACES, err);
        status = spaces == NULL ? TEMPER_NO_MEMORY
                                : choose_text_tokens(&tok->vocab, &wanted, err);
    }
    if (spaces != NULL) {
        spaces->left = prefix;
        spaces->right = merge;
    }
    if (status == TEMPER_OK)
        status = unigram_open(&tok->vocab, wanted, &tok->unigram, err);
    mem_free(wanted);
    tok->model = MODEL_UNIGRAM;
    tok->broken = BROKEN_REPLACED;
    tok->strips_space = prefix || merge;
    if (status == TEMPER_OK)
        status = read_unigram_scores(file, &tok->vocab, &tok->unigram, err);
    if (status == TEMPER_OK)
        status = read_unknown(row, file, tok, &tok->unigram.unknown, err);
    if (status == TEMPER_OK)
        status = read_ids(row, file, row->adds_bos, tok, err);
    return status;
}

static temper_status open_rwkv(const kind_row *row, const gguf_file *file, tokenizer *tok,
                               error *err)
{
    bool *wanted = NULL;
    temper_status status = vocabulary_read(file, row->decode, NULL, &tok->vocab, err);

    if (status == TEMPER_OK)
        status = choose_text_tokens(&tok->vocab, &wanted, err);
    if (status == TEMPER_OK)
        status = greedy_open(&tok->vocab, wanted, &tok->greedy, err);
    mem_free(wanted);
    tok->model = MODEL_GREEDY;
    tok->broken = BROKEN_AS_IS;
    if (status == TEMPER_OK)
        status = read_unknown(row, file, tok, &tok->greedy.unknown, err);
    if (status == TEMPER_OK)
        status = read_ids(row, file, row->adds_bos, tok, err);
    return status;
}

static temper_status open_plamo2(const kind_row *row, const gguf_file *file, tokenizer *tok,
                                 error *err)
{
    bool *wanted = NULL;
    float *scores = NULL;
    temper_status status = vocabulary_read(file, row->decode, NULL, &tok->vocab, err);

    if (status == TEMPER_OK)
        status = choose_text_tokens(&tok->vocab, &wanted, err);
    if (status == TEMPER_OK)
        status = vocabulary_scores(file, &tok->vocab, &scores, err);
    if (status == TEMPER_OK)
        status = plamo2_open(&tok->vocab, wanted, scores, &tok->plamo2, err);
    mem_free(wanted);
    mem_free(scores);
    tok->model = MODEL_PLAMO2;
    tok->broken = BROKEN_REPLACED;
    if (status == TEMPER_OK)
        status = read_ids(row, file, row->adds_bos, tok, err);
    return status;
}

static const kind_row kinds[] = {
    {"gpt2", open_gpt2, byte_level_decode, false, false, TOKEN_NONE, TOKEN_NONE, TOKEN_NONE, NULL},
    {"llama", open_llama, piece_of_marked_spaces, true, false, 1, 2, 0, NULL},
    {"gemma4", open_gemma4, piece_of_marked_spaces, true, false, TOKEN_NONE, TOKEN_NONE, TOKEN_NONE,
     NULL},
    {"bert", open_bert, piece_of_marked_spaces, true, true, 101, 102, 100, NULL},
    {"t5", open_t5, piece_of_marked_spaces, false, true, TOKEN_NONE, 1, 2, NULL},
    {"rwkv", open_rwkv, greedy_decode, false, false, TOKEN_NONE, TOKEN_NONE, TOKEN_NONE, NULL},
    {"plamo2", open_plamo2, piece_as_spelled, false, false, 1, 2, 0, NULL},
    {"whitespace", open_whitespace, piece_as_spelled, false, false, TOKEN_NONE, TOKEN_NONE,
     TOKEN_NONE, NULL},
    {"hybriddna", open_hybriddna, dna_decode, false, false, TOKEN_NONE, TOKEN_NONE, TOKEN_NONE,
     NULL},
    {"no_vocab", NULL, NULL, false, false, TOKEN_NONE, TOKEN_NONE, TOKEN_NONE,
     "the file says that it has no vocabulary"},
    {"none", NULL, NULL, false, false, TOKEN_NONE, TOKEN_NONE, TOKEN_NONE,
     "the file says that it has no vocabulary"},
};

static temper_status find_kind(const gguf_file *file, const kind_row **out, error *err)
{
    gguf_string model;
    const temper_status status = gguf_get_string(file, "tokenizer.ggml.model", &model, NULL, err);

    if (status != TEMPER_OK)
        return status;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        const kind_row *row = &kinds[i];
        if (strlen(row->name) != model.length || memcmp(row->name, model.data, model.length) != 0)
            continue;
        *out = row;
        return row->refusal == NULL
                   ? TEMPER_OK
                   : error_set(err, TEMPER_UNSUPPORTED,
                               "the tokenizer is of kind \"%s\" (tokenizer.ggml.model): %s",
                               row->name, row->refusal);
    }
    return error_set(err, TEMPER_UNSUPPORTED,
                     "the tokenizer is of kind \"%.*s\" (tokenizer.ggml.model), which is not "
                     "known. Known: gpt2, llama, gemma4, bert, t5, rwkv, plamo2, whitespace, "
                     "hybriddna",
                     (int)(model.length < 64 ? model.length : 64), model.data);
}

temper_status tokenizer_open(const gguf_file *file, tokenizer **out, error *err)
{
    const kind_row *row = NULL;
    error failure = {0};

    *out = NULL;
    tokenizer *tok = mem_calloc(1, sizeof *tok);
    if (tok == NULL)
        return error_set(err, TEMPER_NO_MEMORY, "%s: no memory for a tokenizer", gguf_name(file));

    temper_status status = find_kind(file, &row, &failure);
    if (status == TEMPER_OK) {
        snprintf(tok->kind, sizeof tok->kind, "%s", row->name);
        status = row->open(row, file, tok, &failure);
    }
    if (status == TEMPER_OK)
        status = special_read(&tok->vocab, &tok->special, &failure);
    if (status == TEMPER_OK)
        status = read_strips(file, tok, &failure);
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
