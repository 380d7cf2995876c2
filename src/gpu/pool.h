/*
 * pool.h - scratch buffers that users who never need them at the same moment share.
 *
 * Work in one recording runs in order, so a buffer that one dispatch is done with may serve the
 * next: but never two users at one moment, and since a dispatch may not read and write one buffer,
 * a slot is a buffer of its own. A user gets the smallest slot of size to twice size that nobody
 * else needs at its moments, or a new one: a slot much larger than its user would keep it from one
 * that fits.
 *
 *     gpu_pool pool = {0};
 *     const uint32_t h = gpu_pool_take(&pool, bytes, AT_NORM | AT_PRODUCT);   // the largest first
 *     const uint32_t q = gpu_pool_take(&pool, bytes, AT_ATTENTION);           // perhaps the same
 *     status = gpu_pool_fill(&pool, device, err);
 *     gpu_buffer *buffer = gpu_pool_buffer(&pool, h);
 *     gpu_pool_close(&pool);
 *
 * Slots are planned first and filled then, so that a plan alone tells the memory it takes. The same
 * calls always give the same slots: bind groups stay what they are from step to step.
 */
#ifndef TEMPER_GPU_POOL_H
#define TEMPER_GPU_POOL_H

#include "gpu/gpu.h"

enum { GPU_POOL_SLOTS = 24 };

typedef struct gpu_pool_slot {
    uint64_t size;      /* 0: free to be anything */
    uint32_t moments;   /* bits at which somebody needs it */
    gpu_buffer *buffer; /* owned; NULL until it is filled */
} gpu_pool_slot;

/* Zeroed it is an empty pool. most: bytes that a binding takes (0: any); a user that a binding
 * takes gets no slot that it does not take. */
typedef struct gpu_pool {
    gpu_pool_slot slots[GPU_POOL_SLOTS];
    uint64_t most;
    bool any_size; /* tests only: a slot may be as large as it is, so that all who may share do */
} gpu_pool;

/* The slot of a user of size bytes (at least 1) at these moments (at least one bit). At most
 * GPU_POOL_SLOTS are in use (assert). */
uint32_t gpu_pool_take(gpu_pool *pool, uint64_t size, uint32_t moments);

/* The user that took the slot at these moments is done with it for good. A slot without users is
 * forgotten, and its buffer destroyed. */
void gpu_pool_give(gpu_pool *pool, uint32_t slot, uint32_t moments);

/* Bytes of all slots, filled or not. */
uint64_t gpu_pool_bytes(const gpu_pool *pool);

/* Creates the buffers that are missing. After a failure the pool can be filled again or closed. */
temper_status gpu_pool_fill(gpu_pool *pool, gpu_device *device, error *err);

/* The buffer of a filled slot; it may be larger than what was asked for. */
gpu_buffer *gpu_pool_buffer(const gpu_pool *pool, uint32_t slot);

void gpu_pool_close(gpu_pool *pool);

#endif
