#include "text/plamo2.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "base/mem.h"

/* Costs are scores with the other sign. A token of score -2000 or less is never used. */
enum { UNITS = 10000, UNKNOWN_COST = 1000 * UNITS, UNUSABLE_COST = 2000 * UNITS };

static bool begins_character(char byte)
{
    return ((uint8_t)byte & 0xC0) != 0x80;
}

/* Scores are finite; what no real file has is brought into the range of 32 bits. */
static int32_t cost_of(float score)
{
    const double cost = -round((double)score * UNITS);
    return (int32_t)fmax(fmin(cost, UNUSABLE_COST), INT32_MIN);
}

temper_status plamo2_open(const vocabulary *vocab, const bool *wanted, const float *scores,
                          plamo2 *p, error *err)
{
    for (int byte = 0; byte < 256; byte++)
        p->byte_ids[byte] = -1;
    for (uint32_t id = 0; id < vocab->size; id++) {
        size_t length;
        const char *spelling = vocabulary_spelling(vocab, id, &length);
        const int byte = vocabulary_byte_spelled(spelling, length);
        if (vocab->types[id] == TOKEN_TYPE_BYTE && byte >= 0)
            p->byte_ids[byte] = (int32_t)id;
    }
    for (int byte = 0; byte < 256; byte++)
        if (p->byte_ids[byte] < 0)
            return error_set(err, TEMPER_BAD_FILE,
                             "a plamo2 vocabulary has a token for each byte; this one has none "
                             "spelled <0x%02X>",
                             (unsigned)byte);
    p->costs = mem_calloc(vocab->size, sizeof *p->costs);
    if (p->costs == NULL)
        return error_set(err, TEMPER_NO_MEMORY, "no memory for the scores");
    for (uint32_t id = 0; id < vocab->size; id++)
        p->costs[id] = cost_of(scores[id]);
    return prefix_index_build(vocab, vocabulary_spelling, wanted, &p->index, err);
}

void plamo2_free(plamo2 *p)
{
    prefix_index_free(&p->index);
    mem_free(p->costs);
    memset(p, 0, sizeof *p);
}

/* The best way from `at`, a character of `unit` bytes, once those from all later places are known.
 * Longer tokens come later, and win where they are as good; the lone character must be better. */
static plamo2_node best_from(const plamo2 *p, const plamo2_node *nodes, const char *text,
                             size_t length, size_t at, size_t unit)
{
    prefix_walk walk = prefix_walk_start(&p->index);
    plamo2_node best = {.cost = INT64_MAX, .id = -1, .length = (uint32_t)unit};

    for (size_t i = at; i < length && prefix_walk_step(&walk, (uint8_t)text[i]); i++) {
        if (walk.id < 0 || p->costs[walk.id] >= UNUSABLE_COST ||
            (i + 1 < length && !begins_character(text[i + 1])))
            continue;
        const int64_t cost = nodes[i + 1].cost + p->costs[walk.id];
        if (cost <= best.cost)
            best = (plamo2_node){cost, walk.id, (uint32_t)(i + 1 - at)};
    }
    const int64_t alone = nodes[at + unit].cost + UNKNOWN_COST;
    if (alone < best.cost)
        best = (plamo2_node){alone, -1, (uint32_t)unit};
    return best;
}

static temper_status append_way(const plamo2 *p, const plamo2_node *nodes, const char *text,
                                size_t length, token_list *out, error *err)
{
    temper_status status = TEMPER_OK;

    for (size_t at = 0; at < length && status == TEMPER_OK; at += nodes[at].length) {
        if (nodes[at].id >= 0)
            status = token_list_push(out, (uint32_t)nodes[at].id, err);
        for (size_t i = 0; nodes[at].id < 0 && i < nodes[at].length && status == TEMPER_OK; i++)
            status = token_list_push(out, (uint32_t)p->byte_ids[(uint8_t)text[at + i]], err);
    }
    return status;
}

temper_status plamo2_encode(const plamo2 *p, plamo2_work *work, const char *text, size_t length,
                            token_list *out, error *err)
{
    assert(length <= PLAMO2_TEXT_MAX);
    plamo2_node *grown = token_nodes(work->nodes, &work->capacity, length, sizeof *grown, err);
    if (grown == NULL)
        return TEMPER_NO_MEMORY;
    work->nodes = grown;
    work->nodes[length] = (plamo2_node){0};
    size_t unit = 1;
    for (size_t at = length; at-- > 0; unit++) {
        if (!begins_character(text[at]))
            continue;
        work->nodes[at] = best_from(p, work->nodes, text, length, at, unit);
        unit = 0;
    }
    return append_way(p, work->nodes, text, length, out, err);
}

void plamo2_work_free(plamo2_work *work)
{
    mem_free(work->nodes);
    memset(work, 0, sizeof *work);
}
