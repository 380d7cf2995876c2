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
    {.name = "pair",
     .kernel = &kernel_rope_store,
     .invocations = 64,
     .why = "one lane a pair of values; angles as exact fractions of a turn"},
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

uint64_t op_cache_block_bytes(uint32_t kv_heads, uint32_t head_dim)
{
    return (uint64_t)kv_heads * OP_CACHE_BLOCK * head_dim * 4;
}

static bool check(gpu_recorder *rec, gpu_view qkv, gpu_view turns, gpu_view row_info,
                  gpu_view q_out, const op_rope_shape *s)
{
    const uint64_t heads = (uint64_t)s->q_heads + 2 * (uint64_t)s->kv_heads;
    if (s->head_dim % 2 != 0 || s->rotary_dim % 2 != 0 || s->rotary_dim > s->head_dim) {
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
    const uint64_t pairs = shape->rows * heads * (shape->head_dim / 2);
    if (pairs == 0 || !check(rec, qkv, turns, row_info, q_out, shape))
        return;
    assert(pairs <= UINT32_MAX / 2);
    gpu_device *device = gpu_recorder_device(rec);
    gpu_pipeline *pipeline = kernel_rope_store_get(device);
    const struct kernel_rope_store_views views = {
        .qkv = qkv,
        .turns = turns,
        .row_info = row_info,
        .block_table = block_table,
        .q_out = q_out,
        .k_cache = k_cache,
        .v_cache = v_cache,
    };
    struct kernel_rope_store_params params = {
        .count = (uint32_t)pairs,
        .q_heads = shape->q_heads,
        .kv_heads = shape->kv_heads,
        .head_dim = shape->head_dim,
        .rotary = shape->rotary_dim,
        .magnitude = shape->magnitude == 0.0f ? 1.0f : shape->magnitude,
    };
    const uint64_t step = op_cut(device, pairs, 64, 64);
    for (uint64_t at = 0; at < pairs; at += step) {
        const op_grid grid = op_fold(device, ceil_div(min_u64(step, pairs - at), 64));
        params.base = (uint32_t)at;
        kernel_rope_store_dispatch(rec, pipeline, &views, &params, grid.x, grid.y, 1);
    }
}
