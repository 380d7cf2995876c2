/*
 * cache.h - a blocked cache for the cases: sequences with shuffled blocks.
 */
#ifndef TEMPER_CHECK_CACHE_H
#define TEMPER_CHECK_CACHE_H

#include "check/context.h"
#include "ref/ref.h"

typedef struct check_cache {
    ref_heads heads;
    uint32_t blocks;          /* in the cache */
    uint32_t sequence_blocks; /* table entries of a sequence */
    uint32_t table_words;
    uint32_t *table; /* starts with words that no row refers to */
    uint64_t values; /* of K or V */
} check_cache;

enum { CHECK_TABLE_GAP = 3 };

/* A table for `sequences` sequences of up to `positions` positions each; sequence s starts at
 * CHECK_TABLE_GAP + s * sequence_blocks. Physical blocks are shuffled; of more than `most` the
 * table uses the first `most` again and again. */
check_cache check_make_cache(check_context *c, ref_heads heads, uint32_t sequences,
                             uint32_t positions, uint32_t most);

uint32_t check_table_offset(const check_cache *cache, uint32_t sequence);

/* Index of the first value of (sequence's table offset, position, KV head). */
uint64_t check_cache_at(const check_cache *cache, uint32_t table_offset, uint32_t position,
                        uint32_t kv_head);

#endif
