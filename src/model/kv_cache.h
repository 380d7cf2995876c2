/*
 * kv_cache.h - the keys and values of the positions that sequences have seen.
 *
 * A layer has two buffers, K and V, each [block][kv_heads][256] rows of head_dim values in one of
 * three types (op_cache_type). A block holds 256 positions; the block table says which physical
 * block holds positions 256 i to 256 i + 255 of a sequence, so that sequences can grow, share and
 * be batched without copies: a row of a step carries the offset of its sequence's table. Blocks
 * belong to all sequences of a cache: one takes them as it grows and gives them back when it ends.
 */
#ifndef TEMPER_MODEL_KV_CACHE_H
#define TEMPER_MODEL_KV_CACHE_H

#include <stdint.h>

#include "gpu/gpu.h"
#include "model/config.h"
#include "op/op.h"

enum { KV_BLOCK_POSITIONS = 256 };

typedef struct kv_cache kv_cache;

/* How much a cache holds. */
typedef struct kv_cache_shape {
    uint32_t sequences; /* 1 or more */
    uint32_t positions; /* of one sequence at most, 1 or more */
    uint32_t blocks;    /* of all together; at least those of one whole sequence */
    op_cache_type type;
} kv_cache_shape;

/* The blocks that `positions` of one sequence take. */
uint32_t kv_cache_blocks_for(uint32_t positions);

/* Reserves the blocks. *out is owned by the caller. */
temper_status kv_cache_open(gpu_device *device, const model_config *config, kv_cache_shape shape,
                            kv_cache **out, error *err);
void kv_cache_close(kv_cache *cache);

/* Gives a sequence the blocks of its first `positions` (at most those of the shape), beside those
 * that it has. Takes effect before the next submit. The caller asks kv_cache_free before. */
temper_status kv_cache_grow(kv_cache *cache, uint32_t sequence, uint32_t positions, error *err);

/* Takes all blocks of a sequence back. Steps submitted before may still use them: steps run in
 * order, so whoever gets them next writes later. */
void kv_cache_drop(kv_cache *cache, uint32_t sequence);

uint32_t kv_cache_held(const kv_cache *cache, uint32_t sequence); /* blocks that it has */
uint32_t kv_cache_free(const kv_cache *cache);                    /* blocks that nobody has */
uint32_t kv_cache_blocks(const kv_cache *cache);                  /* blocks in all */
uint32_t kv_cache_positions(const kv_cache *cache);               /* of one sequence at most */

op_cache_type kv_cache_type(const kv_cache *cache);

/* Where the sequence's blocks begin in the table: op_row_info.table_offset. */
uint32_t kv_cache_table_offset(const kv_cache *cache, uint32_t sequence);

gpu_view kv_cache_keys(const kv_cache *cache, uint32_t layer);
gpu_view kv_cache_values(const kv_cache *cache, uint32_t layer);
gpu_view kv_cache_table(const kv_cache *cache); /* u32 [sequences][blocks of one] */

/* Bytes of GPU memory that one sequence of `positions` of this network takes. */
uint64_t kv_cache_bytes(const model_config *config, uint32_t positions, op_cache_type type);

#endif
