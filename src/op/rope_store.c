/*
 * rope_store.c - rotary positions, and the way of k and v into the blocked cache.
 */
#include <assert.h>
#include <math.h>

#include "base/checked.h"
#include "kernels/kernels.gen.h"
#include "op/op.h"
#include "op/rows.h"

static const op_kernel_row rows_of_rope_store[] = {
    {.name = "quad",
     .kernel = &kernel_rope_store,
     .invocations = 64,
     .workgroup_memory = 64 * 4,
     .why = "one lane four values; angles as exact fractions of a turn"},
};

const op_table op_table_rope_store = {"rope_store", rows_of_rope_store, 1};

op_turns op_turns_of(double inv_freq)
{
    const double turns = inv_freq / 6.283185307179586476925286766559;
    const double fraction = turns - floor(turns);
    const double high = floor(ldexp(fraction, 32));
    const double low = floor(ldexp(ldexp(fraction, 32) - high, 32));
    return (op_turns){.low = (uint32_t)low, .high = (uint32_t)high};
}

bool op_check_rope(gpu_recorder *rec, gpu_view qkv, gpu_view turns, gpu_view row_info,
                   gpu_view q_out, const op_rope_shape *s)
{
    const uint64_t heads = (uint64_t)s->q_heads + 2 * (uint64_t)s->kv_heads;
    if (s->head_dim % 4 != 0 || s->rotary_dim % 2 != 0 || s->rotary_dim > s->head_dim) {
        gpu_record_fail(rec, TEMPER_UNSUPPORTED, "rope: %u rotary values in heads of %u",
                        s->rotary_dim, s->head_dim);
        return false;
    }
    return op_check_view(rec, "rope", "qkv", qkv, s->rows * heads * s->head_dim * 4) &&
           op_check_view(rec, "rope", "turns", turns,
                         (uint64_t)s->rotary_dim / 2 * sizeof(op_turns)) &&
           op_check_view(rec, "rope", "row_info", row_info,
                         (uint64_t)s->rows * sizeof(op_row_info)) &&
           op_check_view(rec, "rope", "q_out", q_out,
                         (uint64_t)s->rows * s->q_heads * s->head_dim * 4);
}

void op_rope_store(gpu_recorder *rec, gpu_view qkv, gpu_view turns, gpu_view row_info,
                   gpu_view block_table, gpu_view q_out, gpu_view k_cache, gpu_view v_cache,
                   const op_rope_shape *shape)
{
    const uint64_t heads = (uint64_t)shape->q_heads + 2 * (uint64_t)shape->kv_heads;
    if (shape->rows == 0 || heads == 0 || shape->head_dim == 0 ||
        !op_check_rope(rec, qkv, turns, row_info, q_out, shape))
        return;
    gpu_device *device = gpu_recorder_device(rec);
    const struct kernel_rope_store_options options = {.cache = shape->cache};
    gpu_pipeline *pipeline = kernel_rope_store_get(device, &options);
    const struct kernel_rope_store_views views = {
        .qkv = qkv,
        .turns = turns,
        .row_info = row_info,
        .block_table = block_table,
        .q_out = q_out,
        .k_cache = k_cache,
        .v_cache = v_cache,
    };
    /* A scale belongs to eight lanes, whole. */
    const uint32_t lanes = shape->cache == OP_CACHE_Q8
                               ? ceil_div_u32(shape->head_dim, OP_CACHE_GROUP) * 8
                               : shape->head_dim / 4;
    const uint64_t count = shape->rows * heads * lanes;
    assert(count <= UINT32_MAX / 4);
    struct kernel_rope_store_params params = {
        .count = (uint32_t)count,
        .q_heads = shape->q_heads,
        .kv_heads = shape->kv_heads,
        .head_dim = shape->head_dim,
        .rotary = shape->rotary_dim,
        .row_words = op_cache_row_words(shape->cache, shape->head_dim),
        .magnitude = shape->magnitude == 0.0f ? 1.0f : shape->magnitude,
    };
    const uint64_t step = op_cut(device, count, 128, 64);
    for (uint64_t at = 0; at < count; at += step) {
        const uint64_t some = min_u64(step, count - at);
        const op_grid grid = op_fold(device, ceil_div(some, 64));
        params.base = (uint32_t)at;
        gpu_record_work(rec, some * 16, some * 6);
        kernel_rope_store_dispatch(rec, pipeline, &views, &params, grid.x, grid.y, 1);
    }
}
