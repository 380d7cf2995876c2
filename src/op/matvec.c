/*
 * matvec.c - the product of one row on devices with subgroups: a step of decoding.
 */
#include <assert.h>

#include "base/checked.h"
#include "kernels/kernels.gen.h"
#include "op/op.h"
#include "op/rows.h"

bool op_matvec_fits(const op_shape *shape)
{
    if (shape->rows != 1 || shape->k % 8 != 0)
        return false;
    switch (shape->format.layout) {
    case LAYOUT_F32:
    case LAYOUT_F16:
    case LAYOUT_BF16:
        return true;
    case LAYOUT_Q8:
        return shape->format.scale == SCALE_F16;
    case LAYOUT_Q4:
        return shape->format.scale == SCALE_F16 || shape->format.scale == SCALE_F32 ||
               shape->format.scale == SCALE_F16_MIN;
    default:
        return false;
    }
}

bool op_matvec_fits_tall(const op_shape *shape)
{
    return op_matvec_fits(shape) && shape->n >= OP_MATVEC_TALL;
}

bool op_matvec_fits_middle(const op_shape *shape)
{
    return op_matvec_fits(shape) && shape->n >= OP_MATVEC_MIDDLE;
}

void op_record_matvec(gpu_recorder *rec, const op_weight *w, const op_weight_part *part,
                      const op_kernel_row *row, gpu_view x, gpu_view y, uint64_t column,
                      op_mode mode)
{
    gpu_device *device = gpu_recorder_device(rec);
    const struct kernel_matvec_options options = {
        .layout = (uint32_t)w->format.layout,
        .scale = (uint32_t)w->format.scale,
        .group = w->format.group ? w->format.group : 8,
        .accumulate = mode == OP_ACCUMULATE,
        .lanes = gpu_device_adapter(device)->subgroup_max,
        .eighths = (uint32_t)(w->k / 8),
        .rows = row->tile_cols,
    };
    gpu_pipeline *pipeline = kernel_matvec_get(device, &options);
    const gpu_view data = gpu_whole(part->data);
    const struct kernel_matvec_views views = {
        .data = data,
        .scales = part->scales != NULL ? gpu_whole(part->scales) : data,
        .x = x,
        .y = y,
    };
    struct kernel_matvec_params params = {
        .cols = (uint32_t)part->rows,
        .col0 = (uint32_t)(column + part->row0),
        .data_words = (uint32_t)weight_row_words(w->format, w->k),
        .scale_words = (uint32_t)weight_scale_row_words(w->format, w->k),
    };
    const uint64_t groups = ceil_div(part->rows, row->tile_cols);
    assert(groups <= UINT32_MAX);
    const uint64_t step = op_cut(device, groups, row->tile_cols * w->k, 1);
    for (uint64_t first = 0; first < groups; first += step) {
        params.first_group = (uint32_t)first;
        params.group_end = (uint32_t)min_u64(first + step, groups);
        const op_grid grid = op_fold(device, params.group_end - params.first_group);
        kernel_matvec_dispatch(rec, pipeline, &views, &params, grid.x, grid.y, 1);
    }
}
