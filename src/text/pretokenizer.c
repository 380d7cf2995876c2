/*
 * pretokenizer.c - the table of pre-tokenisers, on PCRE2.
 *
 * Whitespace is spelled \p{White_Space}: PCRE2's own \s also holds U+180E, which the tokenisers
 * that models were trained with do not count. The names and which of them share a pattern are facts
 * of published files; the patterns are those of the models' tokenizer.json.
 */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "text/pretokenizer.h"

#include <assert.h>
#include <pcre2.h>
#include <stdint.h>
#include <string.h>

#include "base/mem.h"
#include "base/strbuf.h"

#define SPACE "\\p{White_Space}"
#define NOT_SPACE "\\P{White_Space}"
#define SPACES_BUT_LAST SPACE "+(?!" NOT_SPACE ")|" SPACE "+"
#define SUFFIX "(?i:'s|'t|'re|'ve|'m|'ll|'d)"

#define ONE_DIGIT "\\p{N}"
#define GPT2                                                                                       \
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^" SPACE "\\p{L}\\p{N}]+|" SPACES_BUT_LAST
/* The llama 3 family: letters with whatever stands before them, digits in groups, punctuation with
 * the line ends after it. */
#define LLAMA3(letters, not_punctuation, digits)                                                   \
    SUFFIX "|[^\\r\\n\\p{L}\\p{N}]?" letters "+|" digits                                           \
    "| ?[^" SPACE not_punctuation "]+[\\r\\n]*|" SPACE "*[\\r\\n]+|" SPACES_BUT_LAST

enum { PATTERNS_MAX = 2 };

typedef struct family {
    const char *patterns[PATTERNS_MAX];
    int count;
} family;

static const family gpt2 = {{GPT2}, 1};
static const family digits_gpt2 = {{ONE_DIGIT, GPT2}, 2};
static const family llama3 = {{LLAMA3("\\p{L}", "\\p{L}\\p{N}", "\\p{N}{1,3}")}, 1};
static const family qwen2 = {{LLAMA3("\\p{L}", "\\p{L}\\p{N}", "\\p{N}")}, 1};
static const family qwen35 = {{LLAMA3("[\\p{L}\\p{M}]", "\\p{L}\\p{M}\\p{N}", "\\p{N}")}, 1};

typedef struct row {
    pretokenizer_traits traits;
    const family *family;
} row;

static const row rows[] = {
    {{"gpt-2", false, false}, &gpt2},
    {{"phi-2", false, false}, &gpt2},
    {{"mpt", false, false}, &gpt2},
    {{"olmo", false, false}, &gpt2},
    {{"jais", false, false}, &gpt2},
    {{"trillion", false, false}, &gpt2},
    {{"granite-docling", false, false}, &gpt2},
    {{"exaone4", false, false}, &gpt2},
    {{"gigachat", false, false}, &gpt2},
    {{"a.x-4.0", false, false}, &gpt2},
    {{"mellum", false, false}, &gpt2},
    {{"smollm", false, false}, &digits_gpt2},
    {{"starcoder", false, false}, &digits_gpt2},
    {{"refact", false, false}, &digits_gpt2},
    {{"command-r", false, false}, &digits_gpt2},
    {{"codeshell", false, false}, &digits_gpt2},
    {{"exaone", false, false}, &digits_gpt2},
    {{"minerva-7b", false, false}, &digits_gpt2},
    {{"mellum2", false, false}, &digits_gpt2},
    {{"llama-bpe", true, true}, &llama3},
    {{"llama3", true, true}, &llama3},
    {{"llama-v3", true, true}, &llama3},
    {{"falcon3", true, true}, &llama3},
    {{"falcon-h1", true, true}, &llama3},
    {{"pixtral", true, true}, &llama3},
    {{"midm-2.0", true, true}, &llama3},
    {{"lfm2", true, true}, &llama3},
    {{"smaug-bpe", true, false}, &llama3},
    {{"glm4", false, false}, &llama3},
    {{"chatglm-bpe", false, false}, &llama3},
    {{"qwen2", false, false}, &qwen2},
    {{"deepseek-r1-qwen", false, false}, &qwen2},
    {{"megrez", false, false}, &qwen2},
    {{"stablelm2", false, false}, &qwen2},
    {{"hunyuan", false, false}, &qwen2},
    {{"solar-open", false, false}, &qwen2},
    {{"grok-2", false, false}, &qwen2},
    {{"kormo", false, false}, &qwen2},
    {{"qwen35", false, false}, &qwen35},
};

enum { ROW_COUNT = sizeof rows / sizeof *rows };

struct pretokenizer {
    const row *row;
    pcre2_general_context *memory;
    pcre2_match_context *limits;
    pcre2_code *codes[PATTERNS_MAX];
};

static void *pcre_alloc(PCRE2_SIZE size, void *user)
{
    (void)user;
    return mem_alloc(size);
}

static void pcre_free(void *block, void *user)
{
    (void)user;
    mem_free(block);
}

static temper_status refuse(gguf_string name, error *err)
{
    strbuf known = {0};

    for (size_t i = 0; i < ROW_COUNT; i++)
        strbuf_printf(&known, "%s%s", i == 0 ? "" : ", ", rows[i].traits.name);
    if (name.data == NULL)
        error_set(err, TEMPER_UNSUPPORTED,
                  "tokenizer.ggml.pre is missing, so nothing says how this vocabulary splits "
                  "words; convert the model again with a converter that writes it. Known: %s",
                  strbuf_text(&known));
    else
        error_set(err, TEMPER_UNSUPPORTED,
                  "tokenizer.ggml.pre is \"%.*s\", which is not known. Known: %s",
                  (int)(name.length < 64 ? name.length : 64), name.data, strbuf_text(&known));
    strbuf_free(&known);
    return TEMPER_UNSUPPORTED;
}

static const row *find_row(gguf_string name)
{
    for (size_t i = 0; name.data != NULL && i < ROW_COUNT; i++) {
        const char *known = rows[i].traits.name;
        if (strlen(known) == name.length && memcmp(known, name.data, name.length) == 0)
            return &rows[i];
    }
    return NULL;
}

static temper_status compile(pretokenizer *pre, error *err)
{
    pcre2_compile_context *options = pcre2_compile_context_create(pre->memory);
    temper_status status = TEMPER_OK;

    if (options == NULL)
        return error_set(err, TEMPER_NO_MEMORY, "no memory for a pattern");
    for (int i = 0; i < pre->row->family->count && status == TEMPER_OK; i++) {
        int code;
        PCRE2_SIZE at;
        pre->codes[i] = pcre2_compile((PCRE2_SPTR)pre->row->family->patterns[i],
                                      PCRE2_ZERO_TERMINATED, PCRE2_UTF | PCRE2_UCP, &code, &at,
                                      options);
        /* Where the system allows no executable memory, PCRE2 interprets the pattern instead. */
        if (pre->codes[i] != NULL)
            pcre2_jit_compile(pre->codes[i], PCRE2_JIT_COMPLETE);
        else if (code == PCRE2_ERROR_NOMEMORY || code == PCRE2_ERROR_HEAP_FAILED)
            status = error_set(err, TEMPER_NO_MEMORY, "no memory for a pattern");
        else
            status = error_set(err, TEMPER_INTERNAL,
                               "the pattern of pre-tokeniser %s does not compile (PCRE2 error %d "
                               "at %zu)", pre->row->traits.name, code, (size_t)at);
    }
    pcre2_compile_context_free(options);
    return status;
}

temper_status pretokenizer_open(gguf_string name, pretokenizer **out, error *err)
{
    const row *found = find_row(name);

    *out = NULL;
    if (found == NULL)
        return refuse(name, err);
    pretokenizer *pre = mem_calloc(1, sizeof *pre);
    if (pre == NULL)
        return error_set(err, TEMPER_NO_MEMORY, "no memory for a pre-tokeniser");
    pre->row = found;
    pre->memory = pcre2_general_context_create(pcre_alloc, pcre_free, NULL);
    pre->limits = pre->memory == NULL ? NULL : pcre2_match_context_create(pre->memory);
    temper_status status = TEMPER_OK;
    if (pre->limits == NULL)
        status = error_set(err, TEMPER_NO_MEMORY, "no memory for a pre-tokeniser");
    else
        /* The patterns are this file's own and backtrack over one run of spaces at most; the limit
         * that guards against others would end a long run early. */
        pcre2_set_match_limit(pre->limits, UINT32_MAX);
    if (status == TEMPER_OK)
        status = compile(pre, err);
    if (status != TEMPER_OK) {
        pretokenizer_close(pre);
        return status;
    }
    *out = pre;
    return TEMPER_OK;
}

void pretokenizer_close(pretokenizer *pre)
{
    if (pre == NULL)
        return;
    for (int i = 0; i < PATTERNS_MAX; i++)
        pcre2_code_free(pre->codes[i]);
    pcre2_match_context_free(pre->limits);
    pcre2_general_context_free(pre->memory);
    mem_free(pre);
}

const pretokenizer_traits *pretokenizer_get_traits(const pretokenizer *pre)
{
    return &pre->row->traits;
}

typedef struct splitter {
    const pretokenizer *pre;
    pcre2_match_data *match;
    word_callback callback;
    void *user;
} splitter;

/* Cuts one part by the patterns from `level` on. */
static temper_status split_part(const splitter *s, int level, const char *text, size_t length,
                                error *err)
{
    if (level == s->pre->row->family->count)
        return s->callback(s->user, text, length, err);

    temper_status status = TEMPER_OK;
    size_t at = 0;
    while (status == TEMPER_OK && at < length) {
        const int found = pcre2_match(s->pre->codes[level], (PCRE2_SPTR)text, length, at,
                                      PCRE2_NO_UTF_CHECK, s->match, s->pre->limits);
        if (found == PCRE2_ERROR_NOMATCH)
            break;
        if (found == PCRE2_ERROR_NOMEMORY || found == PCRE2_ERROR_HEAPLIMIT)
            return error_set(err, TEMPER_NO_MEMORY, "no memory to split a text of %zu bytes",
                             length);
        if (found < 0)
            return error_set(err, TEMPER_INTERNAL, "pre-tokeniser %s: PCRE2 error %d",
                             s->pre->row->traits.name, found);

        const PCRE2_SIZE *bounds = pcre2_get_ovector_pointer(s->match);
        const size_t start = bounds[0], end = bounds[1];
        assert(at <= start && start < end && end <= length);
        if (start > at)
            status = split_part(s, level + 1, text + at, start - at, err);
        if (status == TEMPER_OK)
            status = split_part(s, level + 1, text + start, end - start, err);
        at = end;
    }
    if (status == TEMPER_OK && at < length)
        status = split_part(s, level + 1, text + at, length - at, err);
    return status;
}

temper_status pretokenizer_split(const pretokenizer *pre, const char *text, size_t length,
                                 word_callback callback, void *user, error *err)
{
    if (length == 0)
        return TEMPER_OK;
    splitter s = {.pre = pre, .callback = callback, .user = user};
    s.match = pcre2_match_data_create(1, pre->memory);
    if (s.match == NULL)
        return error_set(err, TEMPER_NO_MEMORY, "no memory to split a text");
    const temper_status status = split_part(&s, 0, text, length, err);
    pcre2_match_data_free(s.match);
    return status;
}
