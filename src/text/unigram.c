/*
 * unigram.c - forward: the best way to every place; backward: the tokens of the best way to the
 * end.
 */
#include "text/unigram.h"

#include <assert.h>
#include <string.h>

#include "base/mem.h"
#include "text/unicode.h"

enum { UNKNOWN = -1, NO_WAY = -2 };

temper_status unigram_open(const vocabulary *vocab, const bool *wanted, unigram *u, error *err)
{
    u->vocab = vocab;
    for (int byte = 0; byte < 256; byte++)
        u->byte_ids[byte] = vocabulary_find_byte(vocab, (uint8_t)byte);
    return prefix_index_build(vocab, vocabulary_spelling, wanted, &u->index, err);
}

void unigram_free(unigram *u)
{
    prefix_index_free(&u->index);
    mem_free(u->scores);
    memset(u, 0, sizeof *u);
}

static void offer(unigram_node *node, double score, size_t start, int32_t id)
{
    if (node->id == NO_WAY || score > node->score)
        *node = (unigram_node){.score = score, .start = (uint32_t)start, .id = id};
}

/* Offers every token that begins at `at` to the place where it ends. */
static void step_forward(const unigram *u, unigram_node *nodes, const char *text, size_t length,
                         size_t at, size_t unit)
{
    prefix_walk walk = prefix_walk_start(&u->index);
    const double before = nodes[at].score;
    bool whole_character = false;

    assert(nodes[at].id != NO_WAY || at == 0);
    for (size_t i = at; i < length && prefix_walk_step(&walk, (uint8_t)text[i]); i++) {
        if (walk.id < 0)
            continue;
        offer(&nodes[i + 1], before + u->scores[walk.id], at, walk.id);
        whole_character = whole_character || i + 1 - at == unit;
    }
    if (!whole_character)
        offer(&nodes[at + unit], before + u->unknown_score, at, UNKNOWN);
}

static temper_status append_unknown(const unigram *u, const char *text, size_t length,
                                    token_list *out, error *err)
{
    bool spelled = u->byte_fallback;

    for (size_t i = 0; i < length && spelled; i++)
        spelled = u->byte_ids[(uint8_t)text[i]] >= 0;
    if (!spelled)
        return u->unknown < 0 ? TEMPER_OK : token_list_push(out, (uint32_t)u->unknown, err);
    temper_status status = TEMPER_OK;
    for (size_t i = 0; i < length && status == TEMPER_OK; i++)
        status = token_list_push(out, (uint32_t)u->byte_ids[(uint8_t)text[i]], err);
    return status;
}

/* Turns the links of the best path around: nodes[start].start becomes the end of the token that
 * begins there. Only places on the path are touched. */
static void turn_around(unigram_node *nodes, size_t length)
{
    size_t end = length;
    uint32_t start = nodes[end].start;
    int32_t id = nodes[end].id;

    while (end > 0) {
        const size_t next_end = start;
        const uint32_t next_start = nodes[next_end].start;
        const int32_t next_id = nodes[next_end].id;
        nodes[start].start = (uint32_t)end;
        nodes[start].id = id;
        end = next_end;
        start = next_start;
        id = next_id;
    }
}

static temper_status append_path(const unigram *u, const unigram_node *nodes, const char *text,
                                 size_t length, token_list *out, error *err)
{
    temper_status status = TEMPER_OK;

    for (size_t at = 0; at < length && status == TEMPER_OK;) {
        size_t end = nodes[at].start;
        if (nodes[at].id != UNKNOWN) {
            status = token_list_push(out, (uint32_t)nodes[at].id, err);
        } else {
            while (end < length && nodes[end].id == UNKNOWN)
                end = nodes[end].start;
            status = append_unknown(u, text + at, end - at, out, err);
        }
        at = end;
    }
    return status;
}

temper_status unigram_encode(const unigram *u, unigram_work *work, const char *text, size_t length,
                             token_list *out, error *err)
{
    assert(length <= UNIGRAM_TEXT_MAX);
    unigram_node *grown = token_nodes(work->nodes, &work->capacity, length, sizeof *grown, err);
    if (grown == NULL)
        return TEMPER_NO_MEMORY;
    work->nodes = grown;
    unigram_node *nodes = work->nodes;
    for (size_t i = 0; i <= length; i++)
        nodes[i] = (unigram_node){.id = NO_WAY};
    for (size_t at = 0; at < length;) {
        uint32_t c;
        const size_t unit = codepoint_decode(text + at, length - at, &c);
        step_forward(u, nodes, text, length, at, unit);
        at += unit;
    }
    turn_around(nodes, length);
    return append_path(u, nodes, text, length, out, err);
}

void unigram_work_free(unigram_work *work)
{
    mem_free(work->nodes);
    memset(work, 0, sizeof *work);
}
