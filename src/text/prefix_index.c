/*
 * prefix_index.c - a sorted array and two binary searches a byte.
 */
#include "text/prefix_index.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

typedef struct sort_entry {
    const char *text;
    size_t length;
    uint32_t id;
} sort_entry;

static int by_text(const void *left, const void *right)
{
    const sort_entry *a = left, *b = right;
    const size_t common = a->length < b->length ? a->length : b->length;
    const int order = memcmp(a->text, b->text, common);

    if (order != 0)
        return order;
    if (a->length != b->length)
        return a->length < b->length ? -1 : 1;
    return a->id > b->id ? -1 : a->id < b->id;
}

temper_status prefix_index_build(const vocabulary *vocab, prefix_text text, const bool *wanted,
                                 prefix_index *index, error *err)
{
    size_t most = 0, count = 0;

    assert(index->ids == NULL);
    for (uint32_t id = 0; id < vocab->size; id++)
        most += wanted[id];
    sort_entry *entries = mem_calloc(most, sizeof *entries);
    index->ids = mem_calloc(most, sizeof *index->ids);
    if (entries == NULL || index->ids == NULL) {
        mem_free(entries);
        return error_set(err, TEMPER_NO_MEMORY, "no memory to sort %zu tokens", most);
    }
    index->vocab = vocab;
    index->text = text;
    for (uint32_t id = 0; id < vocab->size; id++) {
        sort_entry entry = {.id = id};
        entry.text = text(vocab, id, &entry.length);
        if (wanted[id] && entry.length > 0)
            entries[count++] = entry;
    }
    qsort(entries, count, sizeof *entries, by_text);
    for (size_t i = 0; i < count; i++) {
        index->ids[i] = entries[i].id;
        index->first[(uint8_t)entries[i].text[0] + 1]++;
    }
    for (int byte = 0; byte < 256; byte++)
        index->first[byte + 1] += index->first[byte];
    index->count = (uint32_t)count;
    mem_free(entries);
    return TEMPER_OK;
}

void prefix_index_free(prefix_index *index)
{
    mem_free(index->ids);
    memset(index, 0, sizeof *index);
}

/* The first of ids[low..high), which agree in their first `depth` bytes, whose next byte is at
 * least `byte` (0 to 256). A text that ends there comes before all others. */
static uint32_t lower_bound(const prefix_index *index, uint32_t low, uint32_t high, size_t depth,
                            int byte)
{
    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;
        size_t length;
        const char *text = index->text(index->vocab, index->ids[middle], &length);
        const int next = length > depth ? (uint8_t)text[depth] : -1;

        if (next < byte)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

bool prefix_walk_step(prefix_walk *walk, uint8_t byte)
{
    const prefix_index *index = walk->index;

    if (walk->depth == 0) {
        walk->low = index->first[byte];
        walk->high = index->first[byte + 1];
    } else {
        walk->low = lower_bound(index, walk->low, walk->high, walk->depth, byte);
        walk->high = lower_bound(index, walk->low, walk->high, walk->depth, byte + 1);
    }
    walk->depth++;
    walk->id = -1;
    if (walk->low == walk->high)
        return false;
    size_t length;
    index->text(index->vocab, index->ids[walk->low], &length);
    assert(length >= walk->depth);
    if (length == walk->depth)
        walk->id = (int32_t)index->ids[walk->low];
    return true;
}
