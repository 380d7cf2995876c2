/*
 * hf_vocabulary.c - tokenizer.json and its neighbours to GGUF's keys: byte-level BPE ("gpt2") and
 * BPE with byte fallback ("llama", whose scores are minus the rank of the merge that makes a
 * piece).
 */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "file/hf_internal.h"

enum {
    TYPE_NORMAL = 1,
    TYPE_UNKNOWN = 2,
    TYPE_CONTROL = 3,
    TYPE_USER_DEFINED = 4,
    TYPE_UNUSED = 5,
    TYPE_BYTE = 6,
};

typedef struct token {
    const char *text; /* view into the JSON; NULL: the tokenizer has no such id */
    size_t length;
    uint32_t type;
    float score;
} token;

static temper_status wrong(const hf_directory *hf, const char *what, error *err)
{
    return error_set(err, TEMPER_BAD_FILE, "%s/tokenizer.json: %s", hf->path, what);
}

static temper_status no_memory(const hf_directory *hf, error *err)
{
    return error_set(err, TEMPER_NO_MEMORY, "%s: no memory left for its vocabulary", hf->path);
}

/* ---- the pre-tokenizer's name ---------------------------------------------------------------- */

#define LLAMA3_HEAD "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|"
#define LLAMA3_TAIL "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define O200K_UPPER "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define O200K_LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define O200K_SUFFIX "(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"

/* Published patterns and GGUF's names for them. */
static const struct {
    const char *pattern, *name;
} known_patterns[] = {
    {LLAMA3_HEAD "\\p{N}{1,3}" LLAMA3_TAIL, "llama-bpe"},
    {LLAMA3_HEAD "\\p{N}" LLAMA3_TAIL, "qwen2"},
    {O200K_UPPER "*" O200K_LOWER "+" O200K_SUFFIX O200K_UPPER "+" O200K_LOWER "*" O200K_SUFFIX
                 "\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
     "gpt-4o"},
};

static bool type_is(const json_t *step, const char *type)
{
    const char *given = json_string_value(json_object_get(step, "type"));
    return given != NULL && strcmp(given, type) == 0;
}

/* GGUF's name for what one step, or two, of the pre-tokenizer do; NULL: it has none. */
static const char *name_of_steps(const json_t *first, const json_t *second)
{
    const json_t *regex = json_object_get(second, "use_regex");
    if (!type_is(second, "ByteLevel"))
        return NULL;
    if (first == NULL)
        return json_is_false(regex) ? NULL : "gpt-2";
    if (type_is(first, "Digits") && json_is_true(json_object_get(first, "individual_digits")))
        return json_is_false(regex) ? NULL : "smollm";
    const char *pattern =
        json_string_value(json_object_get(json_object_get(first, "pattern"), "Regex"));
    if (!type_is(first, "Split") || pattern == NULL || !json_is_false(regex))
        return NULL;
    for (size_t i = 0; i < sizeof known_patterns / sizeof known_patterns[0]; i++)
        if (strcmp(known_patterns[i].pattern, pattern) == 0)
            return known_patterns[i].name;
    return NULL;
}

static const char *pre_name(const hf_directory *hf)
{
    const json_t *pre = json_object_get(hf->tokenizer, "pre_tokenizer");
    if (!type_is(pre, "Sequence"))
        return name_of_steps(NULL, pre);
    const json_t *steps = json_object_get(pre, "pretokenizers");
    if (json_array_size(steps) == 1)
        return name_of_steps(NULL, json_array_get(steps, 0));
    return json_array_size(steps) == 2
               ? name_of_steps(json_array_get(steps, 0), json_array_get(steps, 1))
               : NULL;
}

/* ---- tokens ---------------------------------------------------------------------------------- */

static temper_status take_id(const hf_directory *hf, const json_t *value, const char *text,
                             uint32_t *out, error *err)
{
    if (json_is_integer(value) && json_integer_value(value) >= 0 &&
        json_integer_value(value) < (json_int_t)hf->vocabulary) {
        *out = (uint32_t)json_integer_value(value);
        return TEMPER_OK;
    }
    return error_set(err, TEMPER_BAD_FILE,
                     "%s/tokenizer.json: the id of '%.80s' is no number below vocab_size (%u)",
                     hf->path, text, hf->vocabulary);
}

static bool is_byte(const char *text, size_t length)
{
    return length == 6 && memcmp(text, "<0x", 3) == 0 && text[5] == '>';
}

static temper_status read_vocabulary(const hf_directory *hf, bool spm, token *tokens, error *err)
{
    json_t *vocabulary = json_object_get(json_object_get(hf->tokenizer, "model"), "vocab");
    const char *text;
    json_t *value;
    if (!json_is_object(vocabulary))
        return wrong(hf, "\"model\" has no \"vocab\"", err);
    json_object_foreach(vocabulary, text, value)
    {
        uint32_t id = 0;
        const temper_status status = take_id(hf, value, text, &id, err);
        if (status != TEMPER_OK)
            return status;
        if (tokens[id].text != NULL)
            return error_set(err, TEMPER_BAD_FILE,
                             "%s/tokenizer.json: '%.80s' and '%.80s' have the id %u", hf->path,
                             tokens[id].text, text, id);
        tokens[id] = (token){text, strlen(text), TYPE_NORMAL, 0.0f};
        if (spm && is_byte(text, tokens[id].length))
            tokens[id].type = TYPE_BYTE;
    }
    return TEMPER_OK;
}

/* What a merge joins: "a b" or ["a", "b"]. */
static bool join_merge(const json_t *merge, strbuf *joined, const char **first, const char **second)
{
    strbuf_clear(joined);
    if (json_is_array(merge) && json_array_size(merge) == 2) {
        *first = json_string_value(json_array_get(merge, 0));
        *second = json_string_value(json_array_get(merge, 1));
        if (*first == NULL || *second == NULL)
            return false;
        strbuf_puts(joined, *first);
        strbuf_puts(joined, *second);
        return true;
    }
    const char *text = json_string_value(merge), *space = text == NULL ? NULL : strchr(text, ' ');
    if (space == NULL || space == text || space[1] == '\0' || strchr(space + 1, ' ') != NULL)
        return false;
    strbuf_append(joined, text, (size_t)(space - text));
    strbuf_puts(joined, space + 1);
    return true;
}

/* Gives every piece minus the rank of the merge that makes it; single characters come after, in the
 * order of their ids. */
static temper_status rank_pieces(const hf_directory *hf, token *tokens, error *err)
{
    const json_t *merges = json_object_get(json_object_get(hf->tokenizer, "model"), "merges");
    json_t *ranks = json_object();
    strbuf joined = {0};
    temper_status status = ranks == NULL ? no_memory(hf, err) : TEMPER_OK;
    for (size_t i = 0; status == TEMPER_OK && i < json_array_size(merges); i++) {
        const char *first, *second;
        if (!join_merge(json_array_get(merges, i), &joined, &first, &second))
            status = wrong(hf, "a merge is no pair of texts", err);
        else if (json_object_get(ranks, strbuf_text(&joined)) == NULL &&
                 json_object_set_new(ranks, strbuf_text(&joined),
                                     json_integer((json_int_t)json_object_size(ranks))) != 0)
            status = no_memory(hf, err);
    }
    for (uint32_t i = 0; status == TEMPER_OK && i < hf->vocabulary; i++) {
        token *t = &tokens[i];
        if (t->text == NULL || t->type != TYPE_NORMAL)
            continue;
        const json_t *rank = json_object_get(ranks, t->text);
        const json_int_t next = (json_int_t)json_object_size(ranks);
        t->score = -(float)(rank == NULL ? next : json_integer_value(rank));
        if (rank == NULL && json_object_set_new(ranks, t->text, json_integer(next)) != 0)
            status = no_memory(hf, err);
    }
    if (joined.failed)
        status = no_memory(hf, err);
    strbuf_free(&joined);
    json_decref(ranks);
    return status;
}

static temper_status read_added(const hf_directory *hf, token *tokens, error *err)
{
    const json_t *added = json_object_get(hf->tokenizer, "added_tokens");
    for (size_t i = 0; i < json_array_size(added); i++) {
        const json_t *entry = json_array_get(added, i);
        const char *text = json_string_value(json_object_get(entry, "content"));
        uint32_t id = 0;
        if (text == NULL)
            return wrong(hf, "an added token has no \"content\"", err);
        const temper_status status = take_id(hf, json_object_get(entry, "id"), text, &id, err);
        if (status != TEMPER_OK)
            return status;
        const size_t length = strlen(text);
        const bool marked =
            length >= 4 && memcmp(text, "<|", 2) == 0 && memcmp(text + length - 2, "|>", 2) == 0;
        const bool control =
            marked || strcmp(text, "<pad>") == 0 || json_is_true(json_object_get(entry, "special"));
        tokens[id] = (token){text, length, control ? TYPE_CONTROL : TYPE_USER_DEFINED, -1000.0f};
    }
    return TEMPER_OK;
}

/* ---- writing --------------------------------------------------------------------------------- */

/* A token's spelling; user-defined ones have their spaces as spaces, missing ids a name of their
 * own. */
static void write_token(gguf_head *head, const token *t, uint32_t id)
{
    static const char mark[] = "\xe2\x96\x81";
    char padding[24];
    if (t->text == NULL) {
        snprintf(padding, sizeof padding, "[PAD%u]", id);
        gguf_head_element_text(head, padding, strlen(padding));
        return;
    }
    if (t->type != TYPE_USER_DEFINED || strstr(t->text, mark) == NULL) {
        gguf_head_element_text(head, t->text, t->length);
        return;
    }
    strbuf text = {0};
    for (const char *at = t->text; *at != '\0';) {
        const bool space = strncmp(at, mark, 3) == 0;
        strbuf_putc(&text, space ? ' ' : *at);
        at += space ? 3 : 1;
    }
    head->keys.failed = head->keys.failed || text.failed;
    gguf_head_element_text(head, strbuf_text(&text), text.length);
    strbuf_free(&text);
}

static void write_tokens(const hf_directory *hf, bool spm, const token *tokens)
{
    gguf_head *head = assembly_head(hf->whole);
    gguf_head_array(head, "tokenizer.ggml.tokens", GGUF_STRING, hf->vocabulary);
    for (uint32_t i = 0; i < hf->vocabulary; i++)
        write_token(head, &tokens[i], i);
    gguf_head_array(head, "tokenizer.ggml.token_type", GGUF_INT32, hf->vocabulary);
    for (uint32_t i = 0; i < hf->vocabulary; i++)
        gguf_head_element_u32(head, tokens[i].text == NULL ? TYPE_UNUSED : tokens[i].type);
    if (!spm)
        return;
    gguf_head_array(head, "tokenizer.ggml.scores", GGUF_FLOAT32, hf->vocabulary);
    for (uint32_t i = 0; i < hf->vocabulary; i++)
        gguf_head_element_f32(head, tokens[i].text == NULL ? -10000.0f : tokens[i].score);
}

static temper_status write_merges(const hf_directory *hf, error *err)
{
    gguf_head *head = assembly_head(hf->whole);
    const json_t *merges = json_object_get(json_object_get(hf->tokenizer, "model"), "merges");
    strbuf joined = {0};
    temper_status status = TEMPER_OK;
    gguf_head_array(head, "tokenizer.ggml.merges", GGUF_STRING, json_array_size(merges));
    for (size_t i = 0; status == TEMPER_OK && i < json_array_size(merges); i++) {
        const json_t *merge = json_array_get(merges, i);
        const char *first = NULL, *second = NULL;
        if (!join_merge(merge, &joined, &first, &second)) {
            status = wrong(hf, "a merge is no pair of texts", err);
        } else if (first == NULL) {
            gguf_head_element_text(head, json_string_value(merge), json_string_length(merge));
        } else {
            strbuf_clear(&joined);
            strbuf_puts(&joined, first);
            strbuf_putc(&joined, ' ');
            strbuf_puts(&joined, second);
            gguf_head_element_text(head, strbuf_text(&joined), joined.length);
        }
    }
    head->keys.failed = head->keys.failed || joined.failed;
    strbuf_free(&joined);
    return status;
}

/* ---- special tokens and the chat template ---------------------------------------------------- */

/* The text of a special token, given as a text or as an object; NULL: not given. */
static const char *special_text(const hf_directory *hf, const char *key)
{
    const json_t *value = json_object_get(hf->tokenizer_config, key);
    if (json_is_object(value))
        value = json_object_get(value, "content");
    return json_string_value(value);
}

static const char *write_special(const hf_directory *hf, const token *tokens, const char *kind,
                                 const char *gguf_kind)
{
    char key[64];
    snprintf(key, sizeof key, "%s_token", kind);
    const char *text = special_text(hf, key);
    int64_t id = -1;
    for (uint32_t i = 0; text != NULL && id < 0 && i < hf->vocabulary; i++)
        if (tokens[i].text != NULL && strcmp(tokens[i].text, text) == 0)
            id = i;
    snprintf(key, sizeof key, "%s_token_id", kind);
    const json_t *number = json_object_get(hf->config, key);
    if (json_is_array(number))
        number = json_array_get(number, 0);
    if (id < 0 && json_is_integer(number) && json_integer_value(number) >= 0 &&
        json_integer_value(number) < (json_int_t)hf->vocabulary)
        id = json_integer_value(number);
    if (id < 0)
        return NULL;
    snprintf(key, sizeof key, "tokenizer.ggml.%s_token_id", gguf_kind);
    gguf_head_u32(assembly_head(hf->whole), key, (uint32_t)id);
    return tokens[id].text;
}

/* True when the post-processor puts this token before (or after) a text. */
static bool template_adds(const json_t *step, const char *text, bool before)
{
    if (type_is(step, "Sequence")) {
        const json_t *steps = json_object_get(step, "processors");
        for (size_t i = 0; i < json_array_size(steps); i++)
            if (template_adds(json_array_get(steps, i), text, before))
                return true;
        return false;
    }
    const json_t *single = json_object_get(step, "single");
    const size_t count = json_array_size(single);
    if (!type_is(step, "TemplateProcessing") || count == 0)
        return false;
    const json_t *end = json_array_get(single, before ? 0 : count - 1);
    const char *id = json_string_value(json_object_get(json_object_get(end, "SpecialToken"), "id"));
    return id != NULL && text != NULL && strcmp(id, text) == 0;
}

static void write_adds(const hf_directory *hf, const char *key, const char *gguf_key,
                       const char *text, bool before)
{
    const json_t *post = json_object_get(hf->tokenizer, "post_processor");
    const json_t *said = json_object_get(hf->tokenizer_config, key);
    if (json_is_boolean(said))
        gguf_head_bool(assembly_head(hf->whole), gguf_key, json_is_true(said));
    else if (json_is_object(post))
        gguf_head_bool(assembly_head(hf->whole), gguf_key, template_adds(post, text, before));
}

/* True when a step of the normalizer or the pre-tokenizer puts a space before a text. */
static bool adds_space(const json_t *step)
{
    const json_t *steps = json_object_get(step, type_is(step, "Sequence") ? "normalizers" : "");
    if (steps == NULL && type_is(step, "Sequence"))
        steps = json_object_get(step, "pretokenizers");
    for (size_t i = 0; i < json_array_size(steps); i++)
        if (adds_space(json_array_get(steps, i)))
            return true;
    const char *scheme = json_string_value(json_object_get(step, "prepend_scheme"));
    return type_is(step, "Prepend") ||
           (type_is(step, "Metaspace") &&
            (scheme == NULL ? !json_is_false(json_object_get(step, "add_prefix_space"))
                            : strcmp(scheme, "never") != 0));
}

static void write_space_prefix(const hf_directory *hf, bool spm)
{
    static const char key[] = "tokenizer.ggml.add_space_prefix";
    const json_t *said = json_object_get(hf->tokenizer_config, "add_prefix_space");
    if (!spm && json_is_boolean(said))
        gguf_head_bool(assembly_head(hf->whole), key, json_is_true(said));
    if (spm && !adds_space(json_object_get(hf->tokenizer, "normalizer")) &&
        !adds_space(json_object_get(hf->tokenizer, "pre_tokenizer")))
        gguf_head_bool(assembly_head(hf->whole), key, false);
}

static temper_status write_template(const hf_directory *hf, error *err)
{
    static const char key[] = "tokenizer.chat_template";
    gguf_head *head = assembly_head(hf->whole);
    char *text = NULL;
    uint64_t length = 0;
    json_t *alone = NULL;
    temper_status status = hf_read_text(hf, "chat_template.jinja", &text, &length, err);
    if (status == TEMPER_OK && text == NULL)
        status = hf_read_json(hf, "chat_template.json", false, &alone, err);
    if (status != TEMPER_OK)
        return status;
    const json_t *chosen = json_object_get(alone, "chat_template");
    if (chosen == NULL)
        chosen = json_object_get(hf->tokenizer_config, "chat_template");
    const json_t *list = json_is_array(chosen) ? chosen : NULL;
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *entry = json_array_get(list, i);
        const char *name = json_string_value(json_object_get(entry, "name"));
        if (i == 0 || (name != NULL && strcmp(name, "default") == 0))
            chosen = json_object_get(entry, "template");
    }
    if (text != NULL)
        gguf_head_text(head, key, text, length);
    else if (json_is_string(chosen))
        gguf_head_text(head, key, json_string_value(chosen), json_string_length(chosen));
    mem_free(text);
    json_decref(alone);
    return TEMPER_OK;
}

/* Writes what the tokenizer is. *known is false where GGUF has no name for it and none is needed.
 */
static temper_status write_kind(const hf_directory *hf, bool *known, bool *spm, error *err)
{
    const json_t *model = json_object_get(hf->tokenizer, "model");
    const char *type = json_string_value(json_object_get(model, "type"));
    const bool bpe = type_is(model, "BPE");
    *spm = json_is_true(json_object_get(model, "byte_fallback"));
    const char *pre = !bpe ? NULL : *spm ? "default" : pre_name(hf);
    *known = pre != NULL;
    if (*known) {
        gguf_head_string(assembly_head(hf->whole), "tokenizer.ggml.model", *spm ? "llama" : "gpt2");
        gguf_head_string(assembly_head(hf->whole), "tokenizer.ggml.pre", pre);
        return TEMPER_OK;
    }
    if (!hf->must_have_vocabulary)
        return TEMPER_OK;
    if (!bpe)
        return error_set(
            err, TEMPER_UNSUPPORTED,
            "%s/tokenizer.json: a tokenizer of the kind %.40s; only BPE can be written "
            "to GGUF here",
            hf->path, type != NULL ? type : "that is not named");
    return error_set(err, TEMPER_UNSUPPORTED,
                     "%s/tokenizer.json: its pre-tokenizer has no name in GGUF that temper knows",
                     hf->path);
}

/* Tokens, their types and scores, merges, special tokens. */
static temper_status write_vocabulary(const hf_directory *hf, bool spm, token *tokens, error *err)
{
    const json_t *model = json_object_get(hf->tokenizer, "model");
    temper_status status;
    if ((status = read_vocabulary(hf, spm, tokens, err)) != TEMPER_OK ||
        (spm && (status = rank_pieces(hf, tokens, err)) != TEMPER_OK) ||
        (status = read_added(hf, tokens, err)) != TEMPER_OK)
        return status;
    const char *unknown = json_string_value(json_object_get(model, "unk_token"));
    for (uint32_t i = 0; spm && unknown != NULL && i < hf->vocabulary; i++)
        if (tokens[i].text != NULL && strcmp(tokens[i].text, unknown) == 0) {
            tokens[i].type = TYPE_UNKNOWN;
            tokens[i].score = 0.0f;
        }
    write_tokens(hf, spm, tokens);
    if (!spm && (status = write_merges(hf, err)) != TEMPER_OK)
        return status;
    const char *bos = write_special(hf, tokens, "bos", "bos");
    const char *eos = write_special(hf, tokens, "eos", "eos");
    write_special(hf, tokens, "unk", "unknown");
    write_special(hf, tokens, "pad", "padding");
    write_space_prefix(hf, spm);
    write_adds(hf, "add_bos_token", "tokenizer.ggml.add_bos_token", bos, true);
    write_adds(hf, "add_eos_token", "tokenizer.ggml.add_eos_token", eos, false);
    return TEMPER_OK;
}

temper_status hf_write_vocabulary(hf_directory *hf, error *err)
{
    bool spm = false, known = false;
    temper_status status = write_kind(hf, &known, &spm, err);
    if (status == TEMPER_OK && known) {
        assert(hf->vocabulary > 0);
        token *tokens = mem_calloc(hf->vocabulary, sizeof *tokens);
        status = tokens == NULL ? no_memory(hf, err) : write_vocabulary(hf, spm, tokens, err);
        mem_free(tokens);
    }
    return status == TEMPER_OK ? write_template(hf, err) : status;
}
