/*
 * spm.c - the symbols of a text in a linked list, the candidate pairs in a heap. Candidates are
 * never removed: one that no longer holds is seen when it comes up, because the pair that stands at
 * its place then has another score or spells no token.
 */
#include "text/spm.h"

#include <assert.h>
#include <string.h>

#include "base/mem.h"
#include "text/utf8.h"

#define SPM_END UINT32_MAX

temper_status spm_read(const gguf_file *file, const vocabulary *vocab, int32_t unknown, spm *s,
                       error *err)
{
    assert(s->scores == NULL);
    s->vocab = vocab;
    s->unknown = unknown;
    for (int byte = 0; byte < 256; byte++) {
        const char plain = (char)byte;
        s->byte_ids[byte] = vocabulary_find_byte(vocab, (uint8_t)byte);
        if (s->byte_ids[byte] < 0)
            s->byte_ids[byte] = vocabulary_find(vocab, &plain, 1);
    }
    return vocabulary_scores(file, vocab, &s->scores, err);
}

void spm_free(spm *s)
{
    mem_free(s->scores);
    memset(s, 0, sizeof *s);
}

/* The token that text may become, or -1. */
static int32_t find_token(const spm *s, const char *text, size_t length)
{
    const int32_t id = vocabulary_find(s->vocab, text, length);

    if (id < 0 || vocabulary_is_mark(s->vocab, (uint32_t)id)
        || s->vocab->types[id] == TOKEN_TYPE_BYTE)
        return -1;
    return id;
}

/* A number that is smaller for a higher score. */
static uint32_t urgency_of(float score)
{
    const float no_minus_zero = score + 0.0f;
    uint32_t bits;

    memcpy(&bits, &no_minus_zero, sizeof bits);
    /* The bits of positive floats rise with the value, those of negative ones fall. */
    const uint32_t rising = bits >> 31 != 0 ? ~bits : bits | UINT32_C(0x80000000);
    return ~rising;
}

/* True with the urgency of joining a symbol with the next one, if that spells a token. */
static bool find_pair(const spm *s, const spm_work *work, const char *text, uint32_t left,
                      uint32_t *urgency)
{
    const spm_symbol *symbol = &work->symbols[left];

    if (symbol->length == 0 || symbol->next == SPM_END)
        return false;
    const size_t length = (size_t)symbol->length + work->symbols[symbol->next].length;
    const int32_t id = find_token(s, text + symbol->start, length);
    if (id < 0)
        return false;
    *urgency = urgency_of(s->scores[id]);
    return true;
}

static temper_status push_pair(const spm *s, spm_work *work, const char *text, uint32_t left,
                               error *err)
{
    uint32_t urgency;

    if (!find_pair(s, work, text, left, &urgency))
        return TEMPER_OK;
    return merge_heap_push(&work->heap, (uint64_t)urgency << 32 | left, err);
}

/* Lays out one symbol a character; a byte that belongs to none is one of its own. */
static temper_status start_symbols(spm_work *work, const char *text, size_t length, uint32_t *count,
                                   error *err)
{
    if (length > work->capacity) {
        const size_t capacity = length < 128 ? 128 : length;
        spm_symbol *grown = mem_realloc(work->symbols, capacity * sizeof *grown);
        if (grown == NULL)
            return error_set(err, TEMPER_NO_MEMORY, "no memory to encode %zu bytes", length);
        work->symbols = grown;
        work->capacity = capacity;
    }
    *count = 0;
    for (size_t at = 0; at < length;) {
        utf8_state state;
        size_t unit = utf8_next(text + at, length - at, &state);
        if (state != UTF8_WHOLE)
            unit = 1;
        work->symbols[*count] = (spm_symbol){.start = (uint32_t)at, .length = (uint32_t)unit,
                                             .previous = *count - 1, .next = *count + 1};
        (*count)++;
        at += unit;
    }
    work->symbols[*count - 1].next = SPM_END;
    return TEMPER_OK;
}

/* Takes the best candidate; joins it if it still holds. */
static temper_status merge_best(const spm *s, spm_work *work, const char *text, error *err)
{
    const uint64_t best = merge_heap_pop(&work->heap);
    const uint32_t left = (uint32_t)best;
    spm_symbol *symbol = &work->symbols[left];
    uint32_t urgency;

    if (!find_pair(s, work, text, left, &urgency) || urgency != best >> 32)
        return TEMPER_OK;

    spm_symbol *right = &work->symbols[symbol->next];
    symbol->length += right->length;
    symbol->next = right->next;
    right->length = 0;
    if (symbol->next != SPM_END)
        work->symbols[symbol->next].previous = left;
    temper_status status = push_pair(s, work, text, left, err);
    if (status == TEMPER_OK && symbol->previous != SPM_END)
        status = push_pair(s, work, text, symbol->previous, err);
    return status;
}

static temper_status append_symbol(const spm *s, const char *text, size_t length, token_list *out,
                                   error *err)
{
    const int32_t id = find_token(s, text, length);

    if (id >= 0)
        return token_list_push(out, (uint32_t)id, err);
    bool spelled = true;
    for (size_t i = 0; i < length; i++)
        spelled = spelled && s->byte_ids[(uint8_t)text[i]] >= 0;
    if (!spelled)
        return s->unknown < 0 ? TEMPER_OK : token_list_push(out, (uint32_t)s->unknown, err);
    temper_status status = TEMPER_OK;
    for (size_t i = 0; i < length && status == TEMPER_OK; i++)
        status = token_list_push(out, (uint32_t)s->byte_ids[(uint8_t)text[i]], err);
    return status;
}

temper_status spm_encode(const spm *s, spm_work *work, const char *text, size_t length,
                         token_list *out, error *err)
{
    uint32_t count = 0;

    assert(length <= SPM_TEXT_MAX);
    if (length == 0)
        return TEMPER_OK;
    temper_status status = start_symbols(work, text, length, &count, err);
    work->heap.count = 0;
    for (uint32_t i = 0; status == TEMPER_OK && i + 1 < count; i++)
        status = push_pair(s, work, text, i, err);
    while (status == TEMPER_OK && work->heap.count > 0)
        status = merge_best(s, work, text, err);
    for (uint32_t i = 0; status == TEMPER_OK && i != SPM_END; i = work->symbols[i].next)
        status = append_symbol(s, text + work->symbols[i].start, work->symbols[i].length, out, err);
    return status;
}

void spm_work_free(spm_work *work)
{
    mem_free(work->symbols);
    merge_heap_free(&work->heap);
    memset(work, 0, sizeof *work);
}
