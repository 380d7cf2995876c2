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
    {.name = "staged_4",
     .kernel = &kernel_matvec_staged,
     .invocations = 256,
     .gpu_only = true,
     .fits = op_staged_fits_tall,
     .tile_rows = 1,
     .tile_cols = 128,
     .why = "one row of 4-bit products: inputs in 16-bit fixed point once a workgroup, four "
            "products an instruction"},
    {.name = "staged_2",
     .kernel = &kernel_matvec_staged,
     .invocations = 256,
     .gpu_only = true,
     .fits = op_staged_fits_middle,
     .tile_rows = 1,
     .tile_cols = 64,
     .why = "the same for weights of fewer rows: more workgroups"},
    {.name = "staged_1",
     .kernel = &kernel_matvec_staged,
     .invocations = 256,
     .gpu_only = true,
     .fits = op_staged_fits,
     .tile_rows = 1,
     .tile_cols = 32,
     .why = "the same for weights of few rows"},
    {.name = "columns_64",
     .kernel = &kernel_matvec,
     .invocations = 256,
     .workgroup_memory = 1024,
     .gpu_only = true,
     .fits = op_matvec_fits_tall,
     .tile_rows = 1,
     .tile_cols = 64,
     .why = "one row: neighbouring lanes read neighbouring columns, slices of K share their sums"},
    {.name = "columns_32",
     .kernel = &kernel_matvec,
     .invocations = 256,
     .workgroup_memory = 1024,
     .gpu_only = true,
     .fits = op_matvec_fits_middle,
     .tile_rows = 1,
     .tile_cols = 32,
     .why = "the same for weights of fewer rows: more workgroups"},
    {.name = "columns_16",
     .kernel = &kernel_matvec,
     .invocations = 256,
     .workgroup_memory = 1024,
     .gpu_only = true,
     .fits = op_matvec_fits,
     .tile_rows = 1,
     .tile_cols = 16,
     .why = "the same for weights of few rows"},
    {.name = "one_row",
     .kernel = &kernel_matmul,
     .invocations = 32,
     .fits = is_one_row,
     .tile_rows = 1,
     .tile_cols = 4,
     .why = "a decoding step: bound by reading the weight once"},
    {.name = "half_matrix",
     .kernel = &kernel_product_half_matrix,
     .invocations = 128,
     .workgroup_memory = 20 << 10,
     .gpu_only = true,
     .tiles = OP_TILES_F16,
     .runs = op_half_runs,
     .fits = op_half_fits,
     .tile_rows = 128,
     .tile_cols = 128,
     .why =
         "many rows on matrix units: the weight is unpacked to f16 once, products are added up in "
         "f32"},
    {.name = "steel",
     .kernel = &kernel_product_steel,
     .invocations = 256,
     .workgroup_memory = 17 << 10,
     .gpu_only = true,
     .tiles = OP_TILES_F32,
     .fits = op_steel_fits,
     .tile_rows = 128,
     .tile_cols = 128,
     .why = "many rows in f32: the weight is unpacked once, tiles pass through workgroup memory"},
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

static gpu_pipeline *pipeline_of(gpu_device *device, weight_format format, const op_kernel_row *row)
{
    const struct kernel_matmul_options options = {
        .layout = (uint32_t)format.layout,
        .scale = (uint32_t)format.scale,
        .group = format.group ? format.group : 8,
        .lanes = row->invocations,
        .rows = row->tile_rows,
        .cols = row->tile_cols,
    };
    return kernel_matmul_get(device, &options);
}

/* One part of the weight, its tiles cut into dispatches. */
static void record_part(gpu_recorder *rec, const op_weight *w, const op_weight_part *part,
                        const op_kernel_row *row, gpu_view x, gpu_view y, uint32_t rows, columns to,
                        op_mode mode)
{
    gpu_device *device = gpu_recorder_device(rec);
    gpu_pipeline *pipeline = pipeline_of(device, w->format, row);
    const gpu_view data = gpu_whole(part->data);
    const struct kernel_matmul_views views = {
        .data = data,
        .high_bits = part->high != NULL ? gpu_whole(part->high) : data,
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
        .stride = (uint32_t)part->stride,
        .col0 = (uint32_t)(to.first + part->row0),
        .y_cols = (uint32_t)to.width,
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

const op_kernel_row *op_matmul_row(gpu_device *device, const op_weight *weight, uint32_t rows,
                                   const op_products *with)
{
    const op_shape shape = {.rows = rows,
                            .n = weight->n,
                            .k = weight->k,
                            .format = weight->format,
                            .workgroup_memory = gpu_device_limits(device)->max_workgroup_memory,
                            .fixed = with != NULL && with->fixed,
                            .scratch = with != NULL && with->scratch.buffer != NULL,
                            .half = with != NULL && with->half};
    return op_choose(device, &op_table_matmul, &shape);
}

void op_matmul(gpu_recorder *rec, const op_weight *weight, gpu_view x, gpu_view y, uint32_t rows,
               op_mode mode)
{
    op_matmul_columns(rec, weight, x, y, rows, 0, weight->n, mode, NULL);
}

void op_matmul_columns(gpu_recorder *rec, const op_weight *weight, gpu_view x, gpu_view y,
                       uint32_t rows, uint64_t column, uint64_t width, op_mode mode,
                       const op_products *with)
{
    const uint64_t x_bytes = weight->k * 4, y_bytes = width * 4;
    if (rows == 0 || !op_check_view(rec, "matmul", "x", x, rows * x_bytes) ||
        !op_check_view(rec, "matmul", "y", y, rows * y_bytes))
        return;
    assert(column <= width && weight->n <= width - column && width <= UINT32_MAX);
    gpu_device *device = gpu_recorder_device(rec);
    const op_kernel_row *row = op_matmul_row(device, weight, rows, with);
    const bool tiles = row->tiles != OP_TILES_NONE;
    if (tiles) /* fewer rows, as a prompt's last ones may be, need the row that fits everything */
        pipeline_of(device, weight->format, &rows_of_matmul[op_table_matmul.count - 1]);
    const uint64_t fit = op_rows_that_bind(device, rows, max_u64(x_bytes, y_bytes));
    const uint64_t step = tiles ? min_u64(fit, OP_PRODUCT_ROWS) : fit;
    for (uint64_t r = 0; r < rows; r += step) {
        const uint64_t count = min_u64(step, rows - r);
        const gpu_view some_x = op_view_rows(device, x, r, count, x_bytes);
        const gpu_view some_y = op_view_rows(device, y, r, count, y_bytes);
        if (tiles)
            op_record_product(rec, weight, row, some_x, some_y, (uint32_t)count, column, width,
                              mode, with);
        for (uint32_t i = 0; !tiles && i < weight->part_count; i++) {
            const op_weight_part *part = &weight->parts[i];
            if (row->kernel == &kernel_matvec_staged)
                op_record_staged(rec, weight, part, row, &(op_prologue){0}, some_x, some_y, column,
                                 mode);
            else if (row->kernel == &kernel_matvec)
                op_record_matvec(rec, weight, part, row, some_x, some_y, column, mode);
            else
                record_part(rec, weight, part, row, some_x, some_y, (uint32_t)count,
                            (columns){column, width}, mode);
        }
    }
}
