/*
 * merge_heap.c - a binary heap in an array.
 */
#include "text/merge_heap.h"

#include <assert.h>
#include <string.h>

#include "base/mem.h"

temper_status merge_heap_push(merge_heap *heap, uint64_t entry, error *err)
{
    if (heap->count == heap->capacity) {
        const size_t capacity = heap->capacity == 0 ? 256 : 2 * heap->capacity;
        uint64_t *grown = mem_realloc(heap->entries, capacity * sizeof *grown);
        if (grown == NULL)
            return error_set(err, TEMPER_NO_MEMORY, "no memory to encode a long word");
        heap->entries = grown;
        heap->capacity = capacity;
    }
    size_t at = heap->count++;
    while (at > 0) {
        const size_t parent = (at - 1) / 2;
        if (heap->entries[parent] <= entry)
            break;
        heap->entries[at] = heap->entries[parent];
        at = parent;
    }
    heap->entries[at] = entry;
    return TEMPER_OK;
}

uint64_t merge_heap_pop(merge_heap *heap)
{
    assert(heap->count > 0);
    const uint64_t top = heap->entries[0];
    const size_t count = --heap->count;
    const uint64_t last = heap->entries[count];
    size_t at = 0;

    for (;;) {
        size_t child = 2 * at + 1;
        if (child >= count)
            break;
        if (child + 1 < count && heap->entries[child + 1] < heap->entries[child])
            child++;
        if (heap->entries[child] >= last)
            break;
        heap->entries[at] = heap->entries[child];
        at = child;
    }
    heap->entries[at] = last;
    return top;
}

void merge_heap_free(merge_heap *heap)
{
    mem_free(heap->entries);
    memset(heap, 0, sizeof *heap);
}
