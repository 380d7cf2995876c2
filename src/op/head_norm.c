/*
 * head_norm.c - the root-mean-square norm of single q and k heads.
 */
#include <assert.h>

#include "base/checked.h"
#include "kernels/kernels.gen.h"
#include "op/op.h"
#include "op/rows.h"

static const op_kernel_row rows_of_head_norm[] = {
    {.name = "head_a_workgroup",
     .kernel = &kernel_head_norm,
     .invocations = 64,
     .workgroup_memory = 256,
     .why = "one dispatch for q and k, one barrier a head"},
};

const op_table op_table_head_norm = {"head_norm", rows_of_head_norm, 1};

void op_head_norm(gpu_recorder *rec, gpu_view qkv, gpu_view weights, const op_heads *h, float eps)
{
    const uint64_t width = ((uint64_t)h->q_heads + 2 * (uint64_t)h->kv_heads) * h->head_dim;
    const uint64_t heads = (uint64_t)h->rows * ((uint64_t)h->q_heads + h->kv_heads);
    if (heads == 0 || h->head_dim == 0 ||
        !op_check_view(rec, "head_norm", "qkv", qkv, h->rows * width * 4) ||
        !op_check_view(rec, "head_norm", "weights", weights, (uint64_t)h->head_dim * 8))
        return;
    assert(heads <= UINT32_MAX / 2);
    gpu_device *device = gpu_recorder_device(rec);
    gpu_pipeline *pipeline = kernel_head_norm_get(device);
    const struct kernel_head_norm_views views = {.qkv = qkv, .weights = weights};
    struct kernel_head_norm_params params = {
        .count = (uint32_t)heads,
        .q_heads = h->q_heads,
        .kv_heads = h->kv_heads,
        .head_dim = h->head_dim,
        .eps = eps,
    };
    const uint64_t step = op_cut(device, heads, (uint64_t)h->head_dim * 8, 1);
    for (uint64_t at = 0; at < heads; at += step) {
        const uint64_t some = min_u64(step, heads - at);
        const op_grid grid = op_fold(device, some);
        params.base = (uint32_t)at;
        gpu_record_work(rec, some * h->head_dim * 8, some * h->head_dim * 4);
        kernel_head_norm_dispatch(rec, pipeline, &views, &params, grid.x, grid.y, 1);
    }
}
