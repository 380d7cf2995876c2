/*
 * kv_cache.h - the keys and values of the positions a sequence has seen.
 *
 * A layer has two buffers, K and V, each [block][kv_heads][256][head_dim] f32. A block holds 256
 * positions; the block table says which physical block holds positions 256 i to 256 i + 255 of a
 * sequence, so that sequences can grow, share and be batched without copies: a row of a step
 * carries the offset of its sequence's table.
 */
#ifndef TEMPER_MODEL_KV_CACHE_H
#define TEMPER_MODEL_KV_CACHE_H

#include <stdint.h>

#include "gpu/gpu.h"
#include "model/config.h"

enum { KV_BLOCK_POSITIONS = 256 };

typedef struct kv_cache kv_cache;

/* Reserves room for one sequence of `positions`. *out is owned by the caller. */
temper_status kv_cache_open(gpu_device *device, const model_config *config, uint32_t positions,
                            kv_cache **out, error *err);
void kv_cache_close(kv_cache *cache);

uint32_t kv_cache_positions(const kv_cache *cache); /* as asked for */
gpu_view kv_cache_keys(const kv_cache *cache, uint32_t layer);
gpu_view kv_cache_values(const kv_cache *cache, uint32_t layer);
gpu_view kv_cache_table(const kv_cache *cache); /* u32 [blocks] */

/* Bytes of GPU memory that `positions` of this network take. */
uint64_t kv_cache_bytes(const model_config *config, uint32_t positions);

#endif
