/*
 * splitter.c - steps within steps: a part goes through all later steps before the next part is
 * looked for, so that nothing but the parts that a step rewrites is ever copied.
 */
#include "text/splitter.h"

#include <assert.h>
#include <string.h>

#include "base/mem.h"
#include "text/byte_level.h"
#include "text/unicode.h"

split_step *splitter_add(splitter *s, error *err)
{
    if (s->count == SPLIT_STEPS_MAX) {
        error_set(err, TEMPER_UNSUPPORTED, "more than %d pre-tokenizers in a row", SPLIT_STEPS_MAX);
        return NULL;
    }
    return &s->steps[s->count++];
}

void splitter_free(splitter *s)
{
    for (size_t i = 0; i < s->count; i++) {
        mem_free(s->steps[i].space_mark);
        mem_free(s->steps[i].prefix);
        pattern_close(s->steps[i].pattern);
    }
    memset(s, 0, sizeof *s);
}

void split_work_free(split_work *work)
{
    for (int i = 0; i < SPLIT_STEPS_MAX; i++) {
        strbuf_free(&work->texts[i]);
        strbuf_free(&work->bytes[i]);
    }
    pattern_work_free(&work->patterns);
}

typedef struct run {
    const splitter *s;
    split_work *work;
    word_callback callback;
    void *user;
} run;

/* Where a step is in its part. `pending` is a part that may still grow. */
typedef struct cutter {
    const run *r;
    size_t level;
    const char *text;
    bool first;
    bool pending, was_match;
    size_t start, end;
} cutter;

static temper_status run_level(const run *r, size_t level, const char *text, size_t length,
                               bool first, error *err);

/* Hands a part to the next step. */
static temper_status emit(const cutter *c, size_t start, size_t end, error *err)
{
    const char *part = c->text + start;
    size_t length = end - start;

    if (length == 0)
        return TEMPER_OK;
    if (c->r->s->steps[c->level].spell_bytes) {
        strbuf *bytes = &c->r->work->bytes[c->level];
        strbuf_clear(bytes);
        for (size_t i = 0; i < length; i++) {
            char spelling[BYTE_LEVEL_SPELLING];
            strbuf_append(bytes, spelling, byte_level_spell((uint8_t)part[i], spelling));
        }
        if (bytes->failed)
            return error_set(err, TEMPER_NO_MEMORY, "no memory to spell %zu bytes", length);
        part = strbuf_text(bytes);
        length = bytes->length;
    }
    return run_level(c->r, c->level + 1, part, length, c->first && start == 0, err);
}

static temper_status flush(cutter *c, error *err)
{
    const bool pending = c->pending;

    c->pending = false;
    return pending ? emit(c, c->start, c->end, err) : TEMPER_OK;
}

/* Takes the next match or gap. */
static temper_status take(cutter *c, size_t start, size_t end, bool match, error *err)
{
    const split_step *step = &c->r->s->steps[c->level];
    const bool was_match = c->was_match;
    bool grows;

    match = match != step->invert;
    c->was_match = match;
    switch (step->behaviour) {
    case SPLIT_ISOLATED:
        return emit(c, start, end, err);
    case SPLIT_REMOVED:
        return match ? TEMPER_OK : emit(c, start, end, err);
    case SPLIT_MERGED_WITH_PREVIOUS:
        grows = match && !was_match;
        break;
    case SPLIT_MERGED_WITH_NEXT:
        grows = !match && was_match;
        break;
    default:
        grows = match == was_match;
        break;
    }
    temper_status status = TEMPER_OK;
    if (!grows || !c->pending) {
        status = flush(c, err);
        c->start = start;
    }
    c->pending = true;
    c->end = end;
    return status;
}

static temper_status take_with_gap(cutter *c, size_t *done, size_t start, size_t end, error *err)
{
    temper_status status = TEMPER_OK;

    if (start > *done)
        status = take(c, *done, start, false, err);
    if (status == TEMPER_OK)
        status = take(c, start, end, true, err);
    *done = end;
    return status;
}

static temper_status cut_by_pattern(cutter *c, const pattern *p, size_t length, size_t *done,
                                    error *err)
{
    bool any = false;

    for (size_t at = 0; at <= length;) {
        bool found;
        size_t start, end;
        temper_status status = pattern_find(p, &c->r->work->patterns, c->text, length, at, &found,
                                            &start, &end, err);
        if (status != TEMPER_OK || !found)
            return status;
        /* An empty match right behind another one does not count. */
        if (end > start || !any || start > *done)
            status = take_with_gap(c, done, start, end, err);
        if (status != TEMPER_OK)
            return status;
        any = true;
        at = end;
        if (end == start) {
            uint32_t character;
            at += at < length ? codepoint_decode(c->text + at, length - at, &character) : 1;
        }
    }
    return TEMPER_OK;
}

static temper_status cut_by_kind(cutter *c, bool (*is)(uint32_t), size_t length, size_t *done,
                                 error *err)
{
    temper_status status = TEMPER_OK;

    for (size_t at = 0; at < length && status == TEMPER_OK;) {
        uint32_t character;
        const size_t unit = codepoint_decode(c->text + at, length - at, &character);
        if (is(character))
            status = take_with_gap(c, done, at, at + unit, err);
        at += unit;
    }
    return status;
}

/* Puts marks for the spaces and the prefix in front; the text stays a view where neither is due. */
static temper_status rewrite(const split_step *step, strbuf *out, const char **text, size_t *length,
                             bool first, error *err)
{
    const char *mark = step->space_mark == NULL ? " " : step->space_mark;
    const bool due = step->prefixed == SPLIT_PREFIX_ALWAYS
                     || (step->prefixed == SPLIT_PREFIX_FIRST && first);
    const size_t prefix_length = due ? strlen(step->prefix) : 0;

    if (step->space_mark == NULL && !due)
        return TEMPER_OK;
    const bool has = (*text)[0] == ' ' ? strcmp(mark, due ? step->prefix : mark) == 0
                     : *length >= prefix_length
                           && memcmp(*text, due ? step->prefix : "", prefix_length) == 0;
    strbuf_clear(out);
    if (due && !has)
        strbuf_append(out, step->prefix, prefix_length);
    for (size_t i = 0; i < *length; i++) {
        if ((*text)[i] == ' ')
            strbuf_puts(out, mark);
        else
            strbuf_putc(out, (*text)[i]);
    }
    if (out->failed)
        return error_set(err, TEMPER_NO_MEMORY, "no memory to split %zu bytes", *length);
    *text = strbuf_text(out);
    *length = out->length;
    return TEMPER_OK;
}

static temper_status run_level(const run *r, size_t level, const char *text, size_t length,
                               bool first, error *err)
{
    if (length == 0)
        return TEMPER_OK;
    if (level == r->s->count)
        return r->callback(r->user, text, length, err);

    const split_step *step = &r->s->steps[level];
    size_t done = 0;
    temper_status status = rewrite(step, &r->work->texts[level], &text, &length, first, err);
    if (status != TEMPER_OK)
        return status;
    cutter c = {.r = r, .level = level, .text = text, .first = first};
    if (step->pattern != NULL)
        status = cut_by_pattern(&c, step->pattern, length, &done, err);
    else if (step->is != NULL)
        status = cut_by_kind(&c, step->is, length, &done, err);
    if (status == TEMPER_OK && done < length)
        status = take(&c, done, length, false, err);
    if (status == TEMPER_OK)
        status = flush(&c, err);
    return status;
}

temper_status splitter_run(const splitter *s, split_work *work, const char *text, size_t length,
                           bool first, word_callback callback, void *user, error *err)
{
    const run r = {.s = s, .work = work, .callback = callback, .user = user};

    return run_level(&r, 0, text, length, first, err);
}
