#include "model/kv_cache.h"

#include <assert.h>
#include <stdio.h>

#include "base/checked.h"
#include "base/mem.h"

struct kv_cache {
    gpu_device *device; /* one reference */
    uint32_t layers;
    kv_cache_shape shape;
    uint32_t row;         /* blocks of one sequence at most: a row of the table */
    gpu_buffer **buffers; /* [layers][2]: K, V */
    gpu_buffer *table;
    uint32_t *host_table; /* [sequences][row] */
    uint32_t *held;       /* [sequences]: how many blocks of its row a sequence has */
    uint32_t *free;       /* [blocks]: the first free_count are nobody's */
    uint32_t free_count;
};

uint32_t kv_cache_blocks_for(uint32_t positions)
{
    return ceil_div_u32(positions, KV_BLOCK_POSITIONS);
}

/* Of K or V of a layer. */
static uint64_t layer_bytes(const model_config *config, uint32_t blocks, op_cache_type type)
{
    return blocks * op_cache_block_bytes(type, config->kv_heads, config->head_dim);
}

uint64_t kv_cache_bytes(const model_config *config, uint32_t positions, op_cache_type type)
{
    const uint32_t blocks = kv_cache_blocks_for(positions);
    return layer_bytes(config, blocks, type) * 2 * config->layers +
           (uint64_t)blocks * sizeof(uint32_t);
}

/* ---- opening and closing -------------------------------------------------------------------- */

static temper_status open_table(kv_cache *cache, error *err)
{
    const size_t sequences = cache->shape.sequences;
    cache->host_table = mem_calloc(sequences * cache->row, sizeof(uint32_t));
    cache->held = mem_calloc(sequences, sizeof(uint32_t));
    cache->free = mem_calloc(cache->shape.blocks, sizeof(uint32_t));
    if (cache->host_table == NULL || cache->held == NULL || cache->free == NULL)
        return error_set(err, TEMPER_NO_MEMORY, "no memory for a table of %u cache blocks",
                         cache->shape.blocks);
    /* The last is taken first: a lone sequence gets blocks 0, 1, 2 and so on. */
    for (uint32_t i = 0; i < cache->shape.blocks; i++)
        cache->free[i] = cache->shape.blocks - 1 - i;
    cache->free_count = cache->shape.blocks;
    return gpu_buffer_create(cache->device, sequences * cache->row * sizeof(uint32_t),
                             GPU_PURPOSE_INPUT, "kv block table", &cache->table, err);
}

static temper_status open_layers(kv_cache *cache, uint64_t bytes, error *err)
{
    cache->buffers = mem_calloc((size_t)cache->layers * 2, sizeof *cache->buffers);
    temper_status status = cache->buffers != NULL
                               ? TEMPER_OK
                               : error_set(err, TEMPER_NO_MEMORY, "no memory for a KV cache");
    for (uint32_t i = 0; status == TEMPER_OK && i < cache->layers * 2; i++) {
        char label[48];
        snprintf(label, sizeof label, "layer %u %s cache", i / 2, i % 2 == 0 ? "key" : "value");
        status = gpu_buffer_create(cache->device, bytes, GPU_PURPOSE_CACHE, label,
                                   &cache->buffers[i], err);
    }
    return status;
}

temper_status kv_cache_open(gpu_device *device, const model_config *config, kv_cache_shape shape,
                            kv_cache **out, error *err)
{
    assert(device != NULL && config != NULL && out != NULL);
    assert(shape.sequences > 0 && shape.positions > 0 &&
           shape.blocks >= kv_cache_blocks_for(shape.positions));
    const uint64_t positions = (uint64_t)shape.blocks * KV_BLOCK_POSITIONS;
    const uint64_t bytes = layer_bytes(config, shape.blocks, shape.type);
    const gpu_limits *limits = gpu_device_limits(device);
    const uint64_t most = min_u64(limits->max_storage_binding, limits->max_buffer_size);
    if (bytes > most)
        return error_set(err, TEMPER_UNSUPPORTED,
                         "a context of %llu positions takes %llu bytes a layer in %s, and this "
                         "device binds %llu at once: ask for a shorter context (--ctx)%s",
                         (unsigned long long)positions, (unsigned long long)bytes,
                         op_cache_type_name(shape.type), (unsigned long long)most,
                         shape.type == OP_CACHE_F32 ? " or a smaller type (--kv f16, --kv q8)"
                                                    : "");
    kv_cache *cache = mem_calloc(1, sizeof *cache);
    if (cache == NULL)
        return error_set(err, TEMPER_NO_MEMORY, "no memory for a KV cache");
    cache->device = gpu_device_retain(device);
    cache->layers = config->layers;
    cache->shape = shape;
    cache->row = kv_cache_blocks_for(shape.positions);
    temper_status status = open_layers(cache, bytes, err);
    if (status == TEMPER_OK)
        status = open_table(cache, err);
    if (status != TEMPER_OK) {
        kv_cache_close(cache);
        error_prefix(err, "a context of %llu positions (%llu bytes of device memory)",
                     (unsigned long long)positions,
                     (unsigned long long)(bytes * 2 * config->layers));
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
    gpu_device_release(cache->device);
    mem_free(cache->buffers);
    mem_free(cache->host_table);
    mem_free(cache->held);
    mem_free(cache->free);
    mem_free(cache);
}

/* ---- blocks --------------------------------------------------------------------------------- */

temper_status kv_cache_grow(kv_cache *cache, uint32_t sequence, uint32_t positions, error *err)
{
    const uint32_t wanted = kv_cache_blocks_for(positions), first = cache->held[sequence];
    assert(sequence < cache->shape.sequences && positions <= cache->shape.positions);
    if (wanted <= first)
        return TEMPER_OK;
    const uint32_t more = wanted - first, at = kv_cache_table_offset(cache, sequence) + first;
    assert(more <= cache->free_count);
    for (uint32_t i = 0; i < more; i++)
        cache->host_table[at + i] = cache->free[cache->free_count - 1 - i];
    const temper_status status = gpu_write(cache->device, cache->table, at * sizeof(uint32_t),
                                           cache->host_table + at, more * sizeof(uint32_t), err);
    if (status != TEMPER_OK)
        return status;
    cache->free_count -= more;
    cache->held[sequence] = wanted;
    return TEMPER_OK;
}

void kv_cache_drop(kv_cache *cache, uint32_t sequence)
{
    assert(sequence < cache->shape.sequences);
    const uint32_t *row = cache->host_table + kv_cache_table_offset(cache, sequence);
    while (cache->held[sequence] > 0)
        cache->free[cache->free_count++] = row[--cache->held[sequence]];
}

uint32_t kv_cache_held(const kv_cache *cache, uint32_t sequence)
{
    assert(sequence < cache->shape.sequences);
    return cache->held[sequence];
}

uint32_t kv_cache_free(const kv_cache *cache)
{
    return cache->free_count;
}

uint32_t kv_cache_blocks(const kv_cache *cache)
{
    return cache->shape.blocks;
}

uint32_t kv_cache_table_offset(const kv_cache *cache, uint32_t sequence)
{
    return sequence * cache->row;
}

uint32_t kv_cache_positions(const kv_cache *cache)
{
    return cache->shape.positions;
}

op_cache_type kv_cache_type(const kv_cache *cache)
{
    return cache->shape.type;
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
