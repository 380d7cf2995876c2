/*
 * merge_heap.h - the candidates of a merging tokenizer: the smallest number comes out first.
 */
#ifndef TEMPER_TEXT_MERGE_HEAP_H
#define TEMPER_TEXT_MERGE_HEAP_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

/* Zeroed before, merge_heap_free after. */
typedef struct merge_heap {
    uint64_t *entries;   /* urgency in the high half, index of the left symbol in the low one */
    size_t count;
    size_t capacity;
} merge_heap;

temper_status merge_heap_push(merge_heap *heap, uint64_t entry, error *err);
uint64_t merge_heap_pop(merge_heap *heap);   /* count > 0 (assert) */
void merge_heap_free(merge_heap *heap);

#endif
