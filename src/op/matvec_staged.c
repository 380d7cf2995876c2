/*
 * matvec_staged.c - the product of one row in 16-bit fixed point, with a norm or a gate before it.
 */
#include <assert.h>

#include "base/checked.h"
#include "kernels/kernels.gen.h"
#include "op/op.h"
#include "op/rows.h"

enum { LANES = 256, COLS = 32 };

static uint64_t workgroup_bytes(uint64_t k, uint32_t rows)
{
    return k / 8 * 16 + k / 32 * 8 + (uint64_t)LANES * rows * 4 + LANES * 4 + 64;
}

bool op_staged_fits(const op_shape *shape)
{
    const weight_format f = shape->format;
    return shape->fixed && shape->rows == 1 && shape->k % 32 == 0 && f.layout == LAYOUT_Q4 &&
           f.group % 32 == 0 &&
           (f.scale == SCALE_F16 || f.scale == SCALE_F32 || f.scale == SCALE_F16_MIN) &&
           workgroup_bytes(shape->k, 4) <= shape->workgroup_memory;
}

bool op_staged_fits_middle(const op_shape *shape)
{
    return shape->n >= OP_MATVEC_MIDDLE && op_staged_fits(shape);
}

bool op_staged_fits_tall(const op_shape *shape)
{
    return shape->n >= OP_MATVEC_TALL && op_staged_fits(shape);
}

void op_record_staged(gpu_recorder *rec, const op_weight *w, const op_weight_part *part,
                      const op_kernel_row *row, const op_prologue *before, gpu_view x, gpu_view y,
                      uint64_t column, op_mode mode)
{
    gpu_device *device = gpu_recorder_device(rec);
    const struct kernel_matvec_staged_options options = {
        .layout = (uint32_t)w->format.layout,
        .scale = (uint32_t)w->format.scale,
        .group = w->format.group,
        .accumulate = mode == OP_ACCUMULATE,
        .prologue = (uint32_t)before->kind,
        .eighths = (uint32_t)(w->k / 8),
        .units = (uint32_t)(w->k / 32),
        .partials = LANES * (row->tile_cols / COLS),
        .cols = COLS,
        .rows = row->tile_cols / COLS,
    };
    gpu_pipeline *pipeline = kernel_matvec_staged_get(device, &options);
    const struct kernel_matvec_staged_views views = {
        .data = gpu_whole(part->data),
        .high_bits = gpu_whole(part->data),
        .scales = gpu_whole(part->scales),
        .x = x,
        .norm = before->kind == OP_PROLOGUE_RMSNORM ? before->weight : x,
        .y = y,
    };
    struct kernel_matvec_staged_params params = {
        .k = (uint32_t)w->k,
        .stride = (uint32_t)part->stride,
        .cols = (uint32_t)part->rows,
        .col0 = (uint32_t)(column + part->row0),
        .eps = before->eps,
    };
    const uint64_t groups = ceil_div(part->rows, row->tile_cols);
    assert(groups <= UINT32_MAX);
    const uint64_t step = op_cut(device, groups, row->tile_cols * w->k, 1);
    op_record_product_work(rec, w->format, part->rows, w->k, 1, mode);
    for (uint64_t first = 0; first < groups; first += step) {
        params.first_group = (uint32_t)first;
        params.group_end = (uint32_t)min_u64(first + step, groups);
        const op_grid grid = op_fold(device, params.group_end - params.first_group);
        kernel_matvec_staged_dispatch(rec, pipeline, &views, &params, grid.x, grid.y, 1);
    }
}
