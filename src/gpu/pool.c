#include "gpu/pool.h"

#include <assert.h>
#include <stddef.h>

static bool fits(const gpu_pool *pool, const gpu_pool_slot *slot, uint64_t size, uint32_t moments)
{
    const bool binds = pool->most == 0 || size > pool->most || slot->size <= pool->most;
    return slot->size >= size && (pool->any_size || slot->size / 2 <= size) &&
           (slot->moments & moments) == 0 && binds;
}

uint32_t gpu_pool_take(gpu_pool *pool, uint64_t size, uint32_t moments)
{
    uint32_t best = GPU_POOL_SLOTS, unused = GPU_POOL_SLOTS;
    assert(size > 0 && moments != 0);
    for (uint32_t i = 0; i < GPU_POOL_SLOTS; i++) {
        const gpu_pool_slot *slot = &pool->slots[i];
        if (slot->size == 0 && unused == GPU_POOL_SLOTS)
            unused = i;
        if (slot->size > 0 && fits(pool, slot, size, moments) &&
            (best == GPU_POOL_SLOTS || slot->size < pool->slots[best].size))
            best = i;
    }
    if (best == GPU_POOL_SLOTS) {
        assert(unused < GPU_POOL_SLOTS);
        best = unused;
        pool->slots[best] = (gpu_pool_slot){.size = size};
    }
    pool->slots[best].moments |= moments;
    return best;
}

void gpu_pool_give(gpu_pool *pool, uint32_t slot, uint32_t moments)
{
    assert(slot < GPU_POOL_SLOTS && (pool->slots[slot].moments & moments) == moments);
    pool->slots[slot].moments &= ~moments;
    if (pool->slots[slot].moments != 0)
        return;
    gpu_buffer_destroy(pool->slots[slot].buffer);
    pool->slots[slot] = (gpu_pool_slot){0};
}

uint64_t gpu_pool_bytes(const gpu_pool *pool)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < GPU_POOL_SLOTS; i++)
        bytes += pool->slots[i].size;
    return bytes;
}

temper_status gpu_pool_fill(gpu_pool *pool, gpu_device *device, error *err)
{
    temper_status status = TEMPER_OK;
    for (uint32_t i = 0; status == TEMPER_OK && i < GPU_POOL_SLOTS; i++) {
        gpu_pool_slot *slot = &pool->slots[i];
        if (slot->size > 0 && slot->buffer == NULL)
            status = gpu_buffer_create(device, slot->size, GPU_PURPOSE_SCRATCH, "scratch",
                                       &slot->buffer, err);
    }
    return status;
}

gpu_buffer *gpu_pool_buffer(const gpu_pool *pool, uint32_t slot)
{
    assert(slot < GPU_POOL_SLOTS && pool->slots[slot].buffer != NULL);
    return pool->slots[slot].buffer;
}

void gpu_pool_close(gpu_pool *pool)
{
    for (uint32_t i = 0; i < GPU_POOL_SLOTS; i++)
        gpu_buffer_destroy(pool->slots[i].buffer);
    *pool = (gpu_pool){0};
}
