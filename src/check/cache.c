/*
 * cache.c - a blocked cache for the cases.
 */
#include "check/cache.h"

#include "base/checked.h"

check_cache check_make_cache(check_context *c, ref_heads heads, uint32_t sequences,
                             uint32_t positions, uint32_t most)
{
    check_cache cache = {.heads = heads,
                         .sequence_blocks = ceil_div_u32(positions, OP_CACHE_BLOCK)};
    const uint32_t used = sequences * cache.sequence_blocks;
    cache.blocks = (uint32_t)min_u64(used, most);
    cache.table_words = CHECK_TABLE_GAP + used;
    cache.table = check_alloc(c, cache.table_words, 4);
    cache.values = (uint64_t)cache.blocks * heads.kv_heads * OP_CACHE_BLOCK * heads.head_dim;
    if (cache.table == NULL)
        return cache;
    for (uint32_t i = 0; i < used; i++)
        cache.table[CHECK_TABLE_GAP + i] = i % cache.blocks;
    for (uint32_t i = cache.blocks; i > 1; i--) {
        const uint32_t j = check_random_word(51, i) % i,
                       moved = cache.table[CHECK_TABLE_GAP + i - 1];
        cache.table[CHECK_TABLE_GAP + i - 1] = cache.table[CHECK_TABLE_GAP + j];
        cache.table[CHECK_TABLE_GAP + j] = moved;
    }
    return cache;
}

uint32_t check_table_offset(const check_cache *cache, uint32_t sequence)
{
    return CHECK_TABLE_GAP + sequence * cache->sequence_blocks;
}

uint64_t check_cache_at(const check_cache *cache, uint32_t table_offset, uint32_t position,
                        uint32_t kv_head)
{
    const uint64_t block = cache->table[table_offset + position / OP_CACHE_BLOCK];
    return ((block * cache->heads.kv_heads + kv_head) * OP_CACHE_BLOCK +
            position % OP_CACHE_BLOCK) *
           cache->heads.head_dim;
}
