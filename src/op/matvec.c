/*
 * matvec.c - the product of one row in f32 on a GPU: a step of decoding.
 */
#include <assert.h>

#include "base/checked.h"
#include "kernels/kernels.gen.h"
#include "op/op.h"
#include "op/rows.h"

enum { LANES = 256 };

bool op_matvec_fits(const op_shape *shape)
{
    return shape->rows == 1 && shape->k % 8 == 0;
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
        .cols = row->tile_cols,
        .slices = LANES / row->tile_cols,
        .lanes = LANES,
        .eighths = (uint32_t)(w->k / 8),
    };
    gpu_pipeline *pipeline = kernel_matvec_get(device, &options);
    const gpu_view data = gpu_whole(part->data);
    const struct kernel_matvec_views views = {
        .data = data,
        .high_bits = part->high != NULL ? gpu_whole(part->high) : data,
        .scales = part->scales != NULL ? gpu_whole(part->scales) : data,
        .x = x,
        .y = y,
    };
    struct kernel_matvec_params params = {
        .k = (uint32_t)w->k,
        .stride = (uint32_t)part->stride,
        .cols = (uint32_t)part->rows,
        .col0 = (uint32_t)(column + part->row0),
    };
    const uint64_t groups = ceil_div(part->rows, row->tile_cols);
    assert(groups <= UINT32_MAX);
    const uint64_t step = op_cut(device, groups, row->tile_cols * w->k, 1);
    op_record_product_work(rec, w->format, part->rows, w->k, 1, mode);
    for (uint64_t first = 0; first < groups; first += step) {
        params.first_group = (uint32_t)first;
        params.group_end = (uint32_t)min_u64(first + step, groups);
        const op_grid grid = op_fold(device, params.group_end - params.first_group);
        kernel_matvec_dispatch(rec, pipeline, &views, &params, grid.x, grid.y, 1);
    }
}
