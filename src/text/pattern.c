/*
 * pattern.c - PCRE2, with its memory counted and its steps limited.
 */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "text/pattern.h"

#include <assert.h>
#include <pcre2.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"

enum {
    /* Steps that a pattern of a file may take for one match: a run of a million spaces needs two
     * million, and ten million take a fraction of a second. */
    FOREIGN_STEPS_MAX = 10000000
};

struct pattern {
    pcre2_code *code;
    pcre2_match_context *limits;
    pcre2_general_context *memory;
    bool foreign;
    char *text;   /* owned, for messages */
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

static temper_status no_memory(error *err)
{
    return error_set(err, TEMPER_NO_MEMORY, "no memory for a pattern");
}

static temper_status compile(pattern *p, const char *text, error *err)
{
    int code;
    PCRE2_SIZE at;

    p->memory = pcre2_general_context_create(pcre_alloc, pcre_free, NULL);
    if (p->memory == NULL)
        return no_memory(err);
    p->limits = pcre2_match_context_create(p->memory);
    pcre2_compile_context *options = pcre2_compile_context_create(p->memory);
    if (p->limits == NULL || options == NULL) {
        pcre2_compile_context_free(options);
        return no_memory(err);
    }
    /* Our own patterns backtrack over one run of spaces at most; the limit that guards against
     * others would end a long run early. */
    pcre2_set_match_limit(p->limits, p->foreign ? FOREIGN_STEPS_MAX : UINT32_MAX);
    pcre2_set_newline(options, PCRE2_NEWLINE_LF);
    pcre2_set_parens_nest_limit(options, 100);
    p->code = pcre2_compile((PCRE2_SPTR)text, PCRE2_ZERO_TERMINATED, PCRE2_UTF | PCRE2_UCP, &code,
                            &at, options);
    pcre2_compile_context_free(options);
    if (p->code == NULL && (code == PCRE2_ERROR_NOMEMORY || code == PCRE2_ERROR_HEAP_FAILED))
        return no_memory(err);
    if (p->code == NULL) {
        PCRE2_UCHAR reason[128] = {0};
        pcre2_get_error_message(code, reason, sizeof reason);
        return error_set(err, p->foreign ? TEMPER_BAD_FILE : TEMPER_INTERNAL,
                         "the pattern \"%.200s\" does not compile: %s", p->text,
                         (const char *)reason);
    }
    /* Where the system allows no executable memory, PCRE2 interprets the pattern instead. Patterns
     * of files are always interpreted: only then does a step cost the same everywhere. */
    if (!p->foreign)
        pcre2_jit_compile(p->code, PCRE2_JIT_COMPLETE);
    return TEMPER_OK;
}

static temper_status open_text(const char *shown, size_t shown_length, const char *text,
                               bool foreign, pattern **out, error *err)
{
    pattern *p = mem_calloc(1, sizeof *p);

    *out = NULL;
    if (p == NULL)
        return no_memory(err);
    p->foreign = foreign;
    p->text = mem_strndup(shown, shown_length);
    const temper_status status = p->text == NULL ? no_memory(err) : compile(p, text, err);
    if (status != TEMPER_OK) {
        pattern_close(p);
        return status;
    }
    *out = p;
    return TEMPER_OK;
}

bool pattern_is_script(const char *name, size_t length, bool *failed)
{
    char text[64];
    int code = 0;
    PCRE2_SIZE at;

    *failed = false;
    if (length > sizeof text - sizeof "\\p{sc:}")
        return false;
    snprintf(text, sizeof text, "\\p{sc:%.*s}", (int)length, name);
    pcre2_general_context *memory = pcre2_general_context_create(pcre_alloc, pcre_free, NULL);
    pcre2_compile_context *options = memory == NULL ? NULL : pcre2_compile_context_create(memory);
    pcre2_code *compiled = options == NULL ? NULL
                                           : pcre2_compile((PCRE2_SPTR)text, PCRE2_ZERO_TERMINATED,
                                                           PCRE2_UTF, &code, &at, options);
    const bool known = compiled != NULL;
    *failed = options == NULL || code == PCRE2_ERROR_NOMEMORY || code == PCRE2_ERROR_HEAP_FAILED;
    pcre2_code_free(compiled);
    pcre2_compile_context_free(options);
    pcre2_general_context_free(memory);
    return known;
}

temper_status pattern_open(const char *text, pattern **out, error *err)
{
    return open_text(text, strlen(text), text, false, out, err);
}

temper_status pattern_open_onig(const char *text, size_t length, pattern **out, error *err)
{
    const char *reason = NULL;
    strbuf translated = {0};
    temper_status status;

    *out = NULL;
    if (!pattern_translate(text, length, &translated, &reason))
        status = error_set(err, TEMPER_UNSUPPORTED,
                           "the pattern \"%.*s\" has %s, which temper does not know",
                           (int)(length < 200 ? length : 200), text, reason);
    else if (translated.failed)
        status = no_memory(err);
    else
        status = open_text(text, length, strbuf_text(&translated), true, out, err);
    strbuf_free(&translated);
    return status;
}

void pattern_close(pattern *p)
{
    if (p == NULL)
        return;
    pcre2_code_free(p->code);
    pcre2_match_context_free(p->limits);
    pcre2_general_context_free(p->memory);
    mem_free(p->text);
    mem_free(p);
}

void pattern_work_free(pattern_work *work)
{
    pcre2_match_data_free(work->match);
    pcre2_general_context_free(work->memory);
    memset(work, 0, sizeof *work);
}

temper_status pattern_find(const pattern *p, pattern_work *work, const char *text, size_t length,
                           size_t from, bool *found, size_t *start, size_t *end, error *err)
{
    assert(from <= length);
    *found = false;
    if (work->memory == NULL)
        work->memory = pcre2_general_context_create(pcre_alloc, pcre_free, NULL);
    if (work->memory != NULL && work->match == NULL)
        work->match = pcre2_match_data_create(1, work->memory);
    if (work->match == NULL)
        return error_set(err, TEMPER_NO_MEMORY, "no memory to match a pattern");

    const int result = pcre2_match(p->code, (PCRE2_SPTR)(text == NULL ? "" : text), length, from,
                                   PCRE2_NO_UTF_CHECK, work->match, p->limits);
    if (result == PCRE2_ERROR_NOMATCH)
        return TEMPER_OK;
    if (result == PCRE2_ERROR_NOMEMORY || (result == PCRE2_ERROR_HEAPLIMIT && !p->foreign))
        return error_set(err, TEMPER_NO_MEMORY, "no memory to split a text of %zu bytes", length);
    if (result < 0)
        return error_set(err, p->foreign ? TEMPER_BAD_FILE : TEMPER_INTERNAL,
                         "the pattern \"%.200s\" fails on a text of %zu bytes: PCRE2 error %d%s",
                         p->text, length, result,
                         result == PCRE2_ERROR_MATCHLIMIT ? ", too many steps" : "");
    const PCRE2_SIZE *bounds = pcre2_get_ovector_pointer(work->match);
    *found = true;
    *start = bounds[0];
    *end = bounds[1];
    assert(from <= *end && *end <= length);
    return TEMPER_OK;
}
