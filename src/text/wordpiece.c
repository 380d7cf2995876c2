/*
 * wordpiece.c - greedy matching along a walk through the sorted vocabulary.
 */
#include "text/wordpiece.h"

#include <assert.h>
#include <string.h>

#include "base/mem.h"

temper_status wordpiece_open(const vocabulary *vocab, const bool *wanted, const char *start_prefix,
                             const char *inner_prefix, wordpiece *w, error *err)
{
    assert(w->start_prefix == NULL && w->inner_prefix == NULL);
    w->start_prefix = mem_strdup(start_prefix);
    w->inner_prefix = mem_strdup(inner_prefix);
    if (w->start_prefix == NULL || w->inner_prefix == NULL)
        return error_set(err, TEMPER_NO_MEMORY, "no memory for a vocabulary of word pieces");
    return prefix_index_build(vocab, vocabulary_spelling, wanted, &w->index, err);
}

void wordpiece_free(wordpiece *w)
{
    prefix_index_free(&w->index);
    mem_free(w->start_prefix);
    mem_free(w->inner_prefix);
    memset(w, 0, sizeof *w);
}

static size_t count_characters(const char *text, size_t length)
{
    size_t count = 0;

    for (size_t i = 0; i < length; i++)
        count += ((uint8_t)text[i] & 0xC0) != 0x80;
    return count;
}

/* The longest token that is `prefix` and a beginning of text: the bytes of text, 0 for none. */
static size_t longest_match(const wordpiece *w, const char *prefix, const char *text, size_t length,
                            uint32_t *id)
{
    prefix_walk walk = prefix_walk_start(&w->index);
    size_t longest = 0;

    for (; *prefix != '\0'; prefix++) {
        if (!prefix_walk_step(&walk, (uint8_t)*prefix))
            return 0;
    }
    for (size_t at = 0; at < length && prefix_walk_step(&walk, (uint8_t)text[at]); at++) {
        if (walk.id < 0)
            continue;
        *id = (uint32_t)walk.id;
        longest = at + 1;
    }
    return longest;
}

temper_status wordpiece_encode(const wordpiece *w, const char *word, size_t length, token_list *out,
                               error *err)
{
    const size_t had = out->count;
    bool known = w->longest_word == 0 || count_characters(word, length) <= w->longest_word;

    for (size_t at = 0; at < length && known;) {
        uint32_t id = 0;
        const size_t matched = longest_match(w, at == 0 ? w->start_prefix : w->inner_prefix,
                                             word + at, length - at, &id);
        known = matched > 0;
        at += matched;
        const temper_status status = known ? token_list_push(out, id, err) : TEMPER_OK;
        if (status != TEMPER_OK)
            return status;
    }
    if (known)
        return TEMPER_OK;
    out->count = had;
    return w->unknown < 0 ? TEMPER_OK : token_list_push(out, (uint32_t)w->unknown, err);
}
