/*
 * attention_row.c - attention of single rows on a GPU: a decode step, spread over many workgroups.
 */
#include <assert.h>

#include "base/checked.h"
#include "kernels/kernels.gen.h"
#include "op/op.h"
#include "op/rows.h"

enum {
    CHUNK = 64,    /* positions that a workgroup takes at once */
    ENOUGH = 1024, /* workgroups that fill a large device */
    MAX_HEADS = 8,
};

typedef struct dealing {
    uint32_t heads, head_tiles;
    uint32_t splits, split_chunks;
} dealing;

/* Chunks of positions that a row sees at most. */
static uint64_t chunks_of(const op_attention_shape *s)
{
    const uint64_t chunks = ceil_div(s->longest, CHUNK);
    return s->window == 0 ? chunks
                          : min_u64(chunks, ceil_div((uint64_t)s->window + CHUNK - 1, CHUNK));
}

static dealing deal(const op_attention_shape *s, uint64_t scratch_bytes)
{
    const uint32_t heads = s->q_heads / s->kv_heads;
    dealing d;
    d.head_tiles = ceil_div_u32(heads, MAX_HEADS);
    d.heads = ceil_div_u32(heads, d.head_tiles);
    const uint64_t tiles = (uint64_t)s->rows * d.head_tiles * s->kv_heads;
    const uint64_t chunks = chunks_of(s);
    const uint64_t wanted =
        min_u64(min_u64(chunks, OP_ATTENTION_SPLITS), max_u64(ENOUGH / tiles, 1));
    const uint64_t splits = max_u64(min_u64(wanted, scratch_bytes / op_attention_part_bytes(s)), 1);
    d.split_chunks = (uint32_t)ceil_div(chunks, splits);
    d.splits = (uint32_t)ceil_div(chunks, d.split_chunks);
    return d;
}

uint64_t op_attention_row_parts(const op_attention_shape *s)
{
    const uint64_t chunks = min_u64(chunks_of(s), OP_ATTENTION_SPLITS);
    return max_u64(s->rows, min_u64(s->rows * chunks, ceil_div(ENOUGH, s->kv_heads)));
}

static gpu_pipeline *get_pipeline(gpu_device *device, const op_attention_shape *s)
{
    const struct kernel_attention_row_options options = {.cache = s->cache,
                                                         .heads = deal(s, 0).heads};
    return kernel_attention_row_get(device, &options);
}

void op_prepare_attention_row(gpu_device *device, const op_attention_shape *s)
{
    get_pipeline(device, s);
}

uint32_t op_record_attention_row(gpu_recorder *rec, const op_attention_views *v,
                                 const op_attention_shape *s)
{
    gpu_device *device = gpu_recorder_device(rec);
    const dealing d = deal(s, v->scratch.size);
    gpu_pipeline *pipeline = get_pipeline(device, s);
    const struct kernel_attention_row_views views = {
        .q = v->q,
        .k_cache = v->k_cache,
        .v_cache = v->v_cache,
        .row_info = v->row_info,
        .block_table = v->block_table,
        .out = d.splits == 1 ? v->out : v->scratch,
    };
    struct kernel_attention_row_params params = {
        .first_row = v->first_row,
        .q_heads = s->q_heads,
        .kv_heads = s->kv_heads,
        .head_dim = s->head_dim,
        .head_tiles = d.head_tiles,
        .splits = d.splits,
        .split_chunks = d.split_chunks,
        .scale = s->scale,
        .window = s->window == 0 ? UINT32_MAX : s->window,
        .softcap = s->softcap,
        .row_words = op_cache_row_words(s->cache, s->head_dim),
    };
    const uint64_t tiles = (uint64_t)s->rows * d.head_tiles * s->kv_heads * d.splits;
    assert(tiles <= UINT32_MAX);
    const uint64_t cost = (uint64_t)d.split_chunks * CHUNK * d.heads * s->head_dim * 2;
    const uint64_t step = op_cut(device, tiles, cost, 1);
    for (uint64_t tile = 0; tile < tiles; tile += step) {
        params.first_tile = (uint32_t)tile;
        params.tile_end = (uint32_t)min_u64(tile + step, tiles);
        const op_grid grid = op_fold(device, params.tile_end - params.first_tile);
        kernel_attention_row_dispatch(rec, pipeline, &views, &params, grid.x, grid.y, 1);
    }
    return d.splits;
}
