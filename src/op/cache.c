/*
 * cache.c - the three types of the blocked cache, and where their numbers lie.
 */
#include <assert.h>

#include "base/checked.h"
#include "op/op.h"

uint32_t op_cache_row_words(op_cache_type type, uint32_t head_dim)
{
    assert(type < OP_CACHE_TYPES);
    uint32_t bytes = head_dim * 4;
    if (type == OP_CACHE_F16)
        bytes = head_dim * 2;
    if (type == OP_CACHE_Q8)
        bytes = ceil_div_u32(head_dim, 4) * 4 + ceil_div_u32(head_dim, OP_CACHE_GROUP) * 4;
    return ceil_div_u32(bytes, 16);
}

uint64_t op_cache_block_bytes(op_cache_type type, uint32_t kv_heads, uint32_t head_dim)
{
    return (uint64_t)kv_heads * OP_CACHE_BLOCK * op_cache_row_words(type, head_dim) * 16;
}

const char *op_cache_type_name(op_cache_type type)
{
    static const char *const names[OP_CACHE_TYPES] = {"f32", "f16", "q8"};
    assert(type < OP_CACHE_TYPES);
    return names[type];
}
