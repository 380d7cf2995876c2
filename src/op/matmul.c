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

#define BY_HALVES (OP_OPENED_BY(TEMPER_LOSSY_F16_BLOCK) | OP_OPENED_BY(TEMPER_LOSSY_F16_SUMS))

static const op_kernel_row rows_of_matmul[] = {
    {.name = "int8",
     .kernel = &kernel_matvec_fixed,
     .invocations = 128,
     .lossy = OP_OPENED_BY(TEMPER_LOSSY_INT8),
     .fits = op_fixed_fits,
     .tile_rows = 1,
     .why = "one row of quantised products, lossy: inputs are bytes, four products an instruction"},
    {.name = "int8_16",
     .kernel = &kernel_product_bytes,
     .invocations = 256,
     .workgroup_memory = 10240,
     .lossy = OP_OPENED_BY(TEMPER_LOSSY_INT8),
     .yields = true,
     .fits = op_int8_fits_few,
     .tile_rows = 16,
     .tile_cols = 64,
     .why = "up to 16 rows, lossy: bytes of x and of the weight pass through workgroup memory"},
    {.name = "int8_64",
     .kernel = &kernel_product_bytes,
     .invocations = 256,
     .workgroup_memory = 14336,
     .lossy = OP_OPENED_BY(TEMPER_LOSSY_INT8),
     .yields = true,
     .fits = op_int8_fits,
     .tile_rows = 64,
     .tile_cols = 64,
     .why = "more rows, lossy: the same, four rows a lane"},
    {.name = "matrix_sums_128",
     .kernel = &kernel_product_matrix,
     .invocations = 128,
     .workgroup_memory = 20480,
     .lossy = OP_OPENED_BY(TEMPER_LOSSY_F16_SUMS),
     .tile = &op_tiles[OP_TILE_128],
     .runs = op_half_sums_run,
     .fits = op_tile_fits_128,
     .why = "many rows on matrix units, lossy: as matrix_128, with sums in f16"},
    {.name = "matrix_sums_64",
     .kernel = &kernel_product_matrix,
     .invocations = 256,
     .workgroup_memory = 34816,
     .lossy = OP_OPENED_BY(TEMPER_LOSSY_F16_SUMS),
     .tile = &op_tiles[OP_TILE_64],
     .runs = op_half_sums_run,
     .fits = op_tile_fits_64,
     .why = "the same where there are few tiles"},
    {.name = "matrix_sums_32",
     .kernel = &kernel_product_matrix,
     .invocations = 256,
     .workgroup_memory = 30720,
     .lossy = OP_OPENED_BY(TEMPER_LOSSY_F16_SUMS),
     .tile = &op_tiles[OP_TILE_32],
     .runs = op_half_sums_run,
     .fits = op_tile_fits_32,
     .why = "the same for tens of rows"},
    {.name = "matrix_sums_16",
     .kernel = &kernel_product_matrix,
     .invocations = 256,
     .workgroup_memory = 20480,
     .lossy = OP_OPENED_BY(TEMPER_LOSSY_F16_SUMS),
     .tile = &op_tiles[OP_TILE_16],
     .runs = op_half_sums_run,
     .fits = op_tile_fits_16,
     .why = "the same for few rows"},
    {.name = "matrix_sums_16_deep",
     .kernel = &kernel_product_matrix,
     .invocations = 256,
     .workgroup_memory = 34816,
     .lossy = OP_OPENED_BY(TEMPER_LOSSY_F16_SUMS),
     .tile = &op_tiles[OP_TILE_16_DEEP],
     .runs = op_half_sums_run,
     .fits = op_tile_fits_16_deep,
     .why = "the same for weights of few rows: blocks of 128"},
    {.name = "halves_16",
     .kernel = &kernel_product_halves,
     .invocations = 256,
     .workgroup_memory = 6400,
     .lossy = BY_HALVES,
     .yields = true,
     .fits = op_halves_fit_few,
     .tile_rows = 16,
     .tile_cols = 64,
     .why = "up to 16 rows, lossy, without matrix units: pairs of f16 sums in registers"},
    {.name = "halves_64",
     .kernel = &kernel_product_halves,
     .invocations = 256,
     .workgroup_memory = 10240,
     .lossy = BY_HALVES,
     .yields = true,
     .fits = op_halves_fit,
     .tile_rows = 64,
     .tile_cols = 64,
     .why = "more rows, lossy: the same, four rows a lane"},
    {.name = "fixed",
     .kernel = &kernel_matvec_fixed,
     .invocations = 128,
     .gpu_only = true,
     .fits = op_fixed_fits,
     .tile_rows = 1,
     .why = "one row of quantised products: inputs in 16-bit fixed point once a workgroup, four "
            "products an instruction"},
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
    {.name = "matrix_128",
     .kernel = &kernel_product_matrix,
     .invocations = 128,
     .workgroup_memory = 20480,
     .gpu_only = true,
     .tile = &op_tiles[OP_TILE_128],
     .runs = op_half_runs,
     .fits = op_tile_fits_128,
     .why = "many rows on matrix units: the weight is unpacked to f16 on its way into the tile, "
            "products are added up in f32"},
    {.name = "matrix_64",
     .kernel = &kernel_product_matrix,
     .invocations = 256,
     .workgroup_memory = 34816,
     .gpu_only = true,
     .tile = &op_tiles[OP_TILE_64],
     .runs = op_half_runs,
     .fits = op_tile_fits_64,
     .why = "the same where there are few tiles: halves of them, two teams along K"},
    {.name = "matrix_32",
     .kernel = &kernel_product_matrix,
     .invocations = 256,
     .workgroup_memory = 30720,
     .gpu_only = true,
     .tile = &op_tiles[OP_TILE_32],
     .runs = op_half_runs,
     .fits = op_tile_fits_32,
     .why = "tens of rows: tiles of 32 by 64, four teams along K"},
    {.name = "matrix_16",
     .kernel = &kernel_product_matrix,
     .invocations = 256,
     .workgroup_memory = 20480,
     .gpu_only = true,
     .tile = &op_tiles[OP_TILE_16],
     .runs = op_half_runs,
     .fits = op_tile_fits_16,
     .why = "few rows: eight teams along K read the weight at once"},
    {.name = "matrix_16_deep",
     .kernel = &kernel_product_matrix,
     .invocations = 256,
     .workgroup_memory = 34816,
     .gpu_only = true,
     .tile = &op_tiles[OP_TILE_16_DEEP],
     .runs = op_half_runs,
     .fits = op_tile_fits_16_deep,
     .why = "the same for weights of few rows: narrow tiles, steps of 128 along K"},
    {.name = "matrix_few",
     .kernel = &kernel_product_few,
     .invocations = 320,
     .workgroup_memory = 23040,
     .gpu_only = true,
     .tile = &op_tile_few,
     .runs = op_half_runs,
     .fits = op_tile_fits_few,
     .why = "few rows: all words of a subgroup are under way at once, x stays in registers, "
            "workgroups walk over tiles"},
    {.name = "steel",
     .kernel = &kernel_product_steel,
     .invocations = 256,
     .workgroup_memory = 16384,
     .gpu_only = true,
     .fits = op_steel_fits,
     .tile_rows = 128,
     .tile_cols = 128,
     .why = "many rows in f32: tiles pass through workgroup memory; K is split where they are few"},
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
    op_record_product_work(rec, w->format, part->rows, w->k, rows, mode);
    for (uint64_t tile = 0; tile < tiles; tile += step) {
        params.first_tile = (uint32_t)tile;
        params.tile_end = (uint32_t)min_u64(tile + step, tiles);
        const op_grid grid = op_fold(device, params.tile_end - params.first_tile);
        kernel_matmul_dispatch(rec, pipeline, &views, &params, grid.x, grid.y, 1);
    }
}

/* Whether rows of x and y, each a view of its own, may be bound. */
static bool rows_are_aligned(gpu_device *device, uint64_t k, uint64_t width)
{
    const uint64_t alignment = gpu_device_limits(device)->storage_alignment;
    return k * 4 % alignment == 0 && width * 4 % alignment == 0;
}

const op_kernel_row *op_matmul_row(gpu_device *device, const op_weight *weight, uint32_t rows,
                                   uint64_t width, const op_products *with)
{
    const gpu_limits *limits = gpu_device_limits(device);
    op_shape shape = {.rows = rows,
                      .n = weight->n,
                      .k = weight->k,
                      .format = weight->format,
                      .workgroup_memory = limits->max_workgroup_memory,
                      .invocations = min_u64(limits->max_invocations, limits->max_workgroup_x),
                      .fixed = with != NULL && with->fixed,
                      .scratch = with != NULL && with->scratch.buffer != NULL,
                      .half = with != NULL && with->half && weight->halves,
                      .holds = weight->halves,
                      .half_sums = with != NULL && with->half_sums,
                      .lossy = with != NULL ? with->lossy : TEMPER_LOSSY_NONE};
    if (op_single_rows_fit(&shape) && rows_are_aligned(device, weight->k, width))
        shape.rows = 1;
    shape.tile = op_tile_best(&shape);
    return op_choose(device, &op_table_matmul, &shape);
}

bool op_row_takes(const op_kernel_row *row, op_prologue_kind kind)
{
    return row->tile != NULL || op_row_is_lossy_product(row) ||
           (row->kernel == &kernel_matvec_fixed && kind != OP_PROLOGUE_SILU_GATE);
}

/* Rows that bind; one, where the row of the table is for one. */
static void record_rows(gpu_recorder *rec, const op_weight *weight, const op_kernel_row *row,
                        const op_prologue *before, gpu_view x, gpu_view y, uint32_t rows,
                        columns to, op_mode mode)
{
    for (uint32_t i = 0; i < weight->part_count; i++) {
        const op_weight_part *part = &weight->parts[i];
        if (row->kernel == &kernel_matvec_fixed)
            op_record_fixed(rec, weight, part, row, before, OP_GATE_NONE, x, y, to.first, mode);
        else if (row->kernel == &kernel_matvec)
            op_record_matvec(rec, weight, part, row, x, y, to.first, mode);
        else
            record_part(rec, weight, part, row, x, y, rows, to, mode);
    }
}

void op_record_matmul(gpu_recorder *rec, const op_weight *weight, const op_kernel_row *row,
                      const op_prologue *before, gpu_view x, gpu_view y, uint32_t rows,
                      uint64_t column, uint64_t width, op_mode mode, const op_products *with)
{
    gpu_device *device = gpu_recorder_device(rec);
    const uint64_t x_bytes = weight->k * (before->kind == OP_PROLOGUE_SILU_GATE ? 8 : 4);
    const uint64_t y_bytes = width * 4;
    const bool tiles = op_row_is_product(row);
    uint64_t step = op_rows_that_bind(device, rows, max_u64(x_bytes, y_bytes));
    if (tiles)
        step = min_u64(step, OP_PRODUCT_ROWS);
    else if (row->tile_rows == 1)
        step = 1;
    for (uint64_t r = 0; r < rows; r += step) {
        const uint64_t count = min_u64(step, rows - r);
        const gpu_view some_x = op_view_rows(device, x, r, count, x_bytes);
        const gpu_view some_y = op_view_rows(device, y, r, count, y_bytes);
        if (tiles)
            op_record_product(rec, weight, row, before, some_x, some_y, (uint32_t)count, column,
                              width, mode, with);
        else
            record_rows(rec, weight, row, before, some_x, some_y, (uint32_t)count,
                        (columns){column, width}, mode);
    }
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
    if (rows == 0 || !op_check_view(rec, "matmul", "x", x, rows * weight->k * 4) ||
        !op_check_view(rec, "matmul", "y", y, rows * width * 4))
        return;
    assert(column <= width && weight->n <= width - column && width <= UINT32_MAX);
    gpu_device *device = gpu_recorder_device(rec);
    for (uint32_t count = op_first_rows(rec, rows); count > 0; count = op_next_rows(count, rows)) {
        const op_kernel_row *row = op_matmul_row(device, weight, count, width, with);
        op_record_matmul(rec, weight, row, &(op_prologue){0}, x, y, count, column, width, mode,
                         with);
    }
}
