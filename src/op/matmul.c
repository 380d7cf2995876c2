/*
 * matmul.c - y = x W^T and y += x W^T for every weight format.
 */
#include <assert.h>

#include "base/checked.h"
#include "kernels/kernels.gen.h"
#include "op/op.h"
#include "op/rows.h"

static bool is_one_row(const op_shape *shape)
{
    return shape->rows == 1;
}

static const op_kernel_row rows_of_matmul[] = {
    {.name = "subgroup_4",
     .kernel = &kernel_matvec,
     .invocations = 1,
     .whole_subgroups = true,
     .fits = op_matvec_fits_tall,
     .tile_rows = 1,
     .tile_cols = 4,
     .why = "one row: a subgroup reads four rows of the weight in whole lines"},
    {.name = "subgroup_2",
     .kernel = &kernel_matvec,
     .invocations = 1,
     .whole_subgroups = true,
     .fits = op_matvec_fits_middle,
     .tile_rows = 1,
     .tile_cols = 2,
     .why = "the same for weights of fewer rows: more workgroups"},
    {.name = "subgroup_1",
     .kernel = &kernel_matvec,
     .invocations = 1,
     .whole_subgroups = true,
     .fits = op_matvec_fits,
     .tile_rows = 1,
     .tile_cols = 1,
     .why = "the same for weights of few rows"},
    {.name = "one_row",
     .kernel = &kernel_matmul,
     .invocations = 32,
     .fits = is_one_row,
     .tile_rows = 1,
     .tile_cols = 4,
     .why = "a decoding step: bound by reading the weight once"},
    {.name = "register_tile",
     .kernel = &kernel_matmul,
     .invocations = 64,
     .tile_rows = 4,
     .tile_cols = 4,
     .why = "a weight is decoded once for a tile of rows; no workgroup memory and no barrier, any "
            "shape"},
};

const op_table op_table_matmul = {"matmul", rows_of_matmul,
                                  sizeof rows_of_matmul / sizeof *rows_of_matmul};

/* Where the products go: columns [first, first + N) of rows `width` wide. */
typedef struct columns {
    uint64_t first, width;
} columns;

/* One part of the weight, its tiles cut into dispatches. */
static void record_part(gpu_recorder *rec, const op_weight *w, const op_weight_part *part,
                        const op_kernel_row *row, gpu_view x, gpu_view y, uint32_t rows, columns to,
                        op_mode mode)
{
    gpu_device *device = gpu_recorder_device(rec);
    const struct kernel_matmul_options options = {
        .layout = (uint32_t)w->format.layout,
        .scale = (uint32_t)w->format.scale,
        .group = w->format.group ? w->format.group : 8,
        .lanes = row->invocations,
        .rows = row->tile_rows,
        .cols = row->tile_cols,
    };
    gpu_pipeline *pipeline = kernel_matmul_get(device, &options);
    const gpu_view data = gpu_whole(part->data);
    const struct kernel_matmul_views views = {
        .data = data,
        .scales = part->scales != NULL ? gpu_whole(part->scales) : data,
        .x = x,
        .y = y,
    };
    struct kernel_matmul_params params = {
        .rows = rows,
        .accumulate = mode == OP_ACCUMULATE,
        .cols = (uint32_t)part->rows,
        .row_tiles = ceil_div_u32(rows, row->tile_rows),
        .k = (uint32_t)w->k,
        .col0 = (uint32_t)(to.first + part->row0),
        .y_cols = (uint32_t)to.width,
        .data_words = (uint32_t)weight_row_words(w->format, w->k),
        .scale_words = (uint32_t)weight_scale_row_words(w->format, w->k),
    };
    const uint64_t tile_cols = (uint64_t)row->invocations * row->tile_cols;
    const uint64_t tiles = ceil_div(part->rows, tile_cols) * params.row_tiles;
    assert(tiles <= UINT32_MAX);
    const uint64_t step = op_cut(device, tiles, tile_cols * row->tile_rows * w->k, 1);
    for (uint64_t tile = 0; tile < tiles; tile += step) {
        params.first_tile = (uint32_t)tile;
        params.tile_end = (uint32_t)min_u64(tile + step, tiles);
        const op_grid grid = op_fold(device, params.tile_end - params.first_tile);
        kernel_matmul_dispatch(rec, pipeline, &views, &params, grid.x, grid.y, 1);
    }
}

void op_matmul(gpu_recorder *rec, const op_weight *weight, gpu_view x, gpu_view y, uint32_t rows,
               op_mode mode)
{
    op_matmul_columns(rec, weight, x, y, rows, 0, weight->n, mode);
}

void op_matmul_columns(gpu_recorder *rec, const op_weight *weight, gpu_view x, gpu_view y,
                       uint32_t rows, uint64_t column, uint64_t width, op_mode mode)
{
    const uint64_t x_bytes = weight->k * 4, y_bytes = width * 4;
    if (rows == 0 || !op_check_view(rec, "matmul", "x", x, rows * x_bytes) ||
        !op_check_view(rec, "matmul", "y", y, rows * y_bytes))
        return;
    assert(column <= width && weight->n <= width - column && width <= UINT32_MAX);
    gpu_device *device = gpu_recorder_device(rec);
    const op_shape shape = {.rows = rows, .n = weight->n, .k = weight->k, .format = weight->format};
    const op_kernel_row *row = op_choose(device, &op_table_matmul, &shape);
    const uint64_t step = op_rows_that_bind(device, rows, max_u64(x_bytes, y_bytes));
    for (uint64_t r = 0; r < rows; r += step) {
        const uint64_t count = min_u64(step, rows - r);
        const gpu_view some_x = op_view_rows(device, x, r, count, x_bytes);
        const gpu_view some_y = op_view_rows(device, y, r, count, y_bytes);
        for (uint32_t i = 0; i < weight->part_count; i++) {
            const op_weight_part *part = &weight->parts[i];
            if (row->kernel == &kernel_matvec)
                op_record_matvec(rec, weight, part, row, some_x, some_y, column, mode);
            else
                record_part(rec, weight, part, row, some_x, some_y, (uint32_t)count,
                            (columns){column, width}, mode);
        }
    }
}
