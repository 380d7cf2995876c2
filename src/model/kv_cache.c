#include "model/kv_cache.h"

#include <assert.h>
#include <stdio.h>

#include "base/checked.h"
#include "base/mem.h"

struct kv_cache {
    uint32_t layers;
    uint32_t positions;
    gpu_buffer **buffers; /* [layers][2]: K, V */
    gpu_buffer *table;
};

static uint32_t blocks_for(uint32_t positions)
{
    return ceil_div_u32(positions, KV_BLOCK_POSITIONS);
}

static uint64_t layer_bytes(const model_config *config, uint32_t positions)
{
    return (uint64_t)blocks_for(positions) * KV_BLOCK_POSITIONS * config->kv_heads *
           config->head_dim * sizeof(float);
}

uint64_t kv_cache_bytes(const model_config *config, uint32_t positions)
{
    return layer_bytes(config, positions) * 2 * config->layers +
           (uint64_t)blocks_for(positions) * sizeof(uint32_t);
}

static temper_status open_table(kv_cache *cache, gpu_device *device, error *err)
{
    const uint32_t blocks = blocks_for(cache->positions);
    const uint64_t bytes = (uint64_t)blocks * sizeof(uint32_t);
    uint32_t *table = mem_alloc((size_t)bytes);
    if (table == NULL)
        return error_set(err, TEMPER_NO_MEMORY, "no memory for a table of %u cache blocks", blocks);
    for (uint32_t i = 0; i < blocks; i++)
        table[i] = i;
    temper_status status =
        gpu_buffer_create(device, bytes, GPU_PURPOSE_INPUT, "kv block table", &cache->table, err);
    if (status == TEMPER_OK)
        status = gpu_write(device, cache->table, 0, table, bytes, err);
    mem_free(table);
    return status;
}

temper_status kv_cache_open(gpu_device *device, const model_config *config, uint32_t positions,
                            kv_cache **out, error *err)
{
    assert(device != NULL && config != NULL && positions > 0 && out != NULL);
    const uint64_t bytes = layer_bytes(config, positions);
    const gpu_limits *limits = gpu_device_limits(device);
    const uint64_t most = min_u64(limits->max_storage_binding, limits->max_buffer_size);
    if (bytes > most)
        return error_set(err, TEMPER_UNSUPPORTED,
                         "a context of %u positions takes %llu bytes a layer, and this device "
                         "binds %llu at once: "
                         "ask for a shorter context (--ctx)",
                         positions, (unsigned long long)bytes, (unsigned long long)most);
    kv_cache *cache = mem_calloc(1, sizeof *cache);
    if (cache == NULL)
        return error_set(err, TEMPER_NO_MEMORY, "no memory for a KV cache");
    cache->layers = config->layers;
    cache->positions = positions;
    cache->buffers = mem_calloc((size_t)config->layers * 2, sizeof *cache->buffers);
    temper_status status = cache->buffers != NULL
                               ? TEMPER_OK
                               : error_set(err, TEMPER_NO_MEMORY, "no memory for a KV cache");
    for (uint32_t i = 0; status == TEMPER_OK && i < config->layers * 2; i++) {
        char label[48];
        snprintf(label, sizeof label, "layer %u %s cache", i / 2, i % 2 == 0 ? "key" : "value");
        status =
            gpu_buffer_create(device, bytes, GPU_PURPOSE_CACHE, label, &cache->buffers[i], err);
    }
    if (status == TEMPER_OK)
        status = open_table(cache, device, err);
    if (status != TEMPER_OK) {
        kv_cache_close(cache);
        error_prefix(err, "a context of %u positions (%llu bytes of device memory)", positions,
                     (unsigned long long)kv_cache_bytes(config, positions));
        return status;
    }
    *out = cache;
    return TEMPER_OK;
}

void kv_cache_close(kv_cache *cache)
{
    if (cache == NULL)
        return;
    for (uint32_t i = 0; cache->buffers != NULL && i < cache->layers * 2; i++)
        gpu_buffer_destroy(cache->buffers[i]);
    gpu_buffer_destroy(cache->table);
    mem_free(cache->buffers);
    mem_free(cache);
}

uint32_t kv_cache_positions(const kv_cache *cache)
{
    return cache->positions;
}

gpu_view kv_cache_keys(const kv_cache *cache, uint32_t layer)
{
    assert(layer < cache->layers);
    return gpu_whole(cache->buffers[(size_t)layer * 2]);
}

gpu_view kv_cache_values(const kv_cache *cache, uint32_t layer)
{
    assert(layer < cache->layers);
    return gpu_whole(cache->buffers[(size_t)layer * 2 + 1]);
}

gpu_view kv_cache_table(const kv_cache *cache)
{
    return gpu_whole(cache->table);
}
