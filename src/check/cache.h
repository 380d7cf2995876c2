/*
 * cache.h - a blocked cache for the cases: sequences with shuffled blocks, numbers in any type.
 *
 * Cases and references see K and V as f32 [block][kv_heads][256][head_dim]; check_cache_encode
 * makes of that what the device keeps, check_cache_decode what a kernel reads there.
 */
#ifndef TEMPER_CHECK_CACHE_H
#define TEMPER_CHECK_CACHE_H

#include "check/context.h"
#include "ref/ref.h"

typedef struct check_cache {
    ref_heads heads;
    op_cache_type type;
    uint32_t blocks;          /* in the cache */
    uint32_t sequence_blocks; /* table entries of a sequence */
    uint32_t table_words;
    uint32_t *table; /* starts with words that no row refers to */
    uint64_t values; /* of K or V */
    uint64_t bytes;  /* of K or V on the device */
} check_cache;

enum { CHECK_TABLE_GAP = 3 };

/* A table for `sequences` sequences of up to `positions` positions each; sequence s starts at
 * CHECK_TABLE_GAP + s * sequence_blocks. Physical blocks are shuffled; of more than `most` the
 * table uses the first `most` again and again. */
check_cache check_make_cache(check_context *c, op_cache_type type, ref_heads heads,
                             uint32_t sequences, uint32_t positions, uint32_t most);

uint32_t check_table_offset(const check_cache *cache, uint32_t sequence);

/* Index of the first value of (sequence's table offset, position, KV head). */
uint64_t check_cache_at(const check_cache *cache, uint32_t table_offset, uint32_t position,
                        uint32_t kv_head);

/* values [cache->values] as the device keeps them, cache->bytes. */
uint32_t *check_cache_encode(check_context *c, const check_cache *cache, const float *values);

/* The other way: values [cache->values] of cache->bytes. */
float *check_cache_decode(check_context *c, const check_cache *cache, const uint32_t *words);

/* A row of head_dim values as a reader finds it once it was stored. */
void check_cache_round(const check_cache *cache, float *row);

/* What the device has in its cache against what was to be stored there, to half a step of the type;
 * `turned` values are off by the error of their angle before they are rounded. What a NaN makes NaN
 * with it becomes so in want. */
void check_cache_stored(check_context *c, const check_cache *cache, const uint32_t *words,
                        double *want, bool turned);

#endif
