/*
 * product_lossy.c - products of several rows that round more than others, for whoever asked for it.
 *
 * int8: 32 inputs are signed bytes under one f32 scale, weights the integers that they are stored
 * as, four products an instruction. Sums of 32 are exact, those across them f32.
 *
 * f16-block, f16-sums: f16 sums in registers, of a block of K or of all of it; on matrix units
 * (products.c) of all of it alone. Rows of inputs are moved by powers of two so that no sum
 * overflows.
 *
 * Where matrix units with f32 sums are open, rows of this file yield to them: a prompt of 2048
 * tokens of llama-1b is read at 76 581 tokens a second by those on one H200, at 27 479 by int8.
 */
#include <assert.h>

#include "base/checked.h"
#include "kernels/kernels.gen.h"
#include "op/op.h"
#include "op/rows.h"

enum {
    FEW_ROWS = 16,
    TILE_ROWS = 64,
    MOST_K = 1 << 17, /* inputs of one tile of rows bind everywhere */
    ENTRY_BYTES = 48, /* 32 inputs, as product_input_bytes.wgsl writes them */
    WIDE_ROW = 1024,
    WIDE_LANES = 256, /* of the inputs of such a row; half of them for less */
};

const char *temper_lossy_name(temper_lossy lossy)
{
    switch (lossy) {
    case TEMPER_LOSSY_NONE:
        return "";
    case TEMPER_LOSSY_INT8:
        return "int8";
    case TEMPER_LOSSY_F16_BLOCK:
        return "f16-block";
    case TEMPER_LOSSY_F16_SUMS:
        return "f16-sums";
    }
    return NULL;
}

bool op_int8_fits(const op_shape *shape)
{
    const weight_format f = shape->format;
    return shape->scratch && shape->rows >= 2 && shape->k % WEIGHT_BLOCK == 0 &&
           shape->k <= MOST_K && f.layout >= LAYOUT_Q8 &&
           (f.scale >= SCALE_K || f.group % WEIGHT_BLOCK == 0);
}

bool op_int8_fits_few(const op_shape *shape)
{
    return shape->rows <= FEW_ROWS && op_int8_fits(shape);
}

bool op_halves_fit(const op_shape *shape)
{
    return shape->scratch && shape->holds && shape->rows >= 2 && shape->k % WEIGHT_BLOCK == 0 &&
           shape->k <= MOST_K;
}

bool op_halves_fit_few(const op_shape *shape)
{
    return shape->rows <= FEW_ROWS && op_halves_fit(shape);
}

bool op_row_is_lossy_product(const op_kernel_row *row)
{
    return row->kernel == &kernel_product_bytes || row->kernel == &kernel_product_halves;
}

/* ---- scratch --------------------------------------------------------------------------------- */

static uint64_t whole_tiles(uint64_t rows, uint64_t tile)
{
    return ceil_div(rows, tile) * tile;
}

static uint64_t input_bytes(uint64_t x_rows, uint64_t k)
{
    return x_rows * (k / WEIGHT_BLOCK) * ENTRY_BYTES;
}

op_product_bytes op_lossy_scratch_bytes(const op_kernel_row *row, uint64_t k, uint32_t rows)
{
    if (row->kernel == &kernel_product_halves)
        return (op_product_bytes){op_halves_scratch_bytes(rows, k), 0};
    return (op_product_bytes){input_bytes(whole_tiles(rows, TILE_ROWS), k), 0};
}

/* ---- recording ------------------------------------------------------------------------------- */

typedef struct product {
    gpu_recorder *rec;
    const op_kernel_row *row;
    const op_weight *weight;
    gpu_view x, y, scratch;
    uint32_t rows, x_rows; /* x_rows: of whole tiles */
    uint64_t column, width;
    op_mode mode;
} product;

static gpu_view whole_quads(gpu_view view)
{
    return (gpu_view){view.buffer, view.offset, view.size / 16 * 16};
}

/* All of the scratch, so that one bind group serves any number of rows; what is needed of it where
 * all does not bind. */
static gpu_view inputs_view(gpu_device *device, gpu_view scratch, uint64_t own)
{
    const gpu_view all = whole_quads(scratch);
    return all.size <= gpu_device_limits(device)->max_storage_binding
               ? all
               : (gpu_view){scratch.buffer, scratch.offset, own};
}

static void record_bytes(const product *p, const op_prologue *before)
{
    gpu_device *device = gpu_recorder_device(p->rec);
    const uint64_t k = p->weight->k;
    const struct kernel_product_input_bytes_options options = {
        .prologue = (uint32_t)before->kind,
        .lanes = k >= WIDE_ROW ? WIDE_LANES : WIDE_LANES / 2,
        .fours = p->weight->format.layout == LAYOUT_Q8,
    };
    const gpu_view out = inputs_view(device, p->scratch, input_bytes(p->x_rows, k));
    gpu_pipeline *pipeline = kernel_product_input_bytes_get(device, &options);
    const struct kernel_product_input_bytes_views views = {
        .x = whole_quads(p->x),
        .weight = whole_quads(before->kind == OP_PROLOGUE_RMSNORM ? before->weight : p->x),
        .out = out,
    };
    const struct kernel_product_input_bytes_params params = {
        .rows = p->rows,
        .k = (uint32_t)k,
        .x_rows = p->x_rows,
        .eps = before->eps,
    };
    const op_grid grid = op_fold(device, p->rows);
    gpu_record_work(p->rec, p->rows * k * 4 + input_bytes(p->rows, k), p->rows * k * 3);
    kernel_product_input_bytes_dispatch(p->rec, pipeline, &views, &params, grid.x, grid.y, 1);
}

/* Tiles of a part: [first, end) at a time. */
typedef struct tiles {
    uint64_t count, step;
} tiles;

static tiles tiles_of(const product *p, const op_weight_part *part)
{
    enum { SPEEDUP = 4 }; /* over the register tile */
    const uint64_t work = (uint64_t)p->row->tile_rows * p->row->tile_cols * p->weight->k;
    const uint64_t count =
        ceil_div(p->rows, p->row->tile_rows) * ceil_div(part->rows, p->row->tile_cols);
    assert(count <= UINT32_MAX);
    return (tiles){count, op_cut(gpu_recorder_device(p->rec), count, work / SPEEDUP, 1)};
}

static void multiply_bytes(const product *p, const op_weight_part *part)
{
    gpu_device *device = gpu_recorder_device(p->rec);
    const weight_format format = p->weight->format;
    const uint64_t k = p->weight->k;
    const struct kernel_product_bytes_options options = {
        .layout = (uint32_t)format.layout,
        .scale = (uint32_t)format.scale,
        .group = format.group,
        .rows = p->row->tile_rows / 16,
    };
    gpu_pipeline *pipeline = kernel_product_bytes_get(device, &options);
    const gpu_view data = gpu_whole(part->data);
    const struct kernel_product_bytes_views views = {
        .data = data,
        .high_bits = part->high != NULL ? gpu_whole(part->high) : data,
        .scales = gpu_whole(part->scales),
        .x = inputs_view(device, p->scratch, input_bytes(p->x_rows, k)),
        .y = p->y,
    };
    struct kernel_product_bytes_params params = {
        .rows = p->rows,
        .cols = (uint32_t)part->rows,
        .k = (uint32_t)k,
        .stride = (uint32_t)part->stride,
        .x_rows = p->x_rows,
        .col0 = (uint32_t)(p->column + part->row0),
        .y_cols = (uint32_t)p->width,
        .accumulate = p->mode == OP_ACCUMULATE,
    };
    const tiles all = tiles_of(p, part);
    op_record_product_work(p->rec, format, part->rows, k, p->rows, p->mode);
    for (uint64_t first = 0; first < all.count; first += all.step) {
        params.first_tile = (uint32_t)first;
        params.tile_end = (uint32_t)min_u64(first + all.step, all.count);
        const op_grid grid = op_fold(device, params.tile_end - params.first_tile);
        kernel_product_bytes_dispatch(p->rec, pipeline, &views, &params, grid.x, grid.y, 1);
    }
}

static void multiply_halves(const product *p, const op_weight_part *part, bool all_of_k)
{
    gpu_device *device = gpu_recorder_device(p->rec);
    const weight_format format = p->weight->format;
    const uint64_t k = p->weight->k;
    const struct kernel_product_halves_options options = {
        .layout = (uint32_t)format.layout,
        .scale = (uint32_t)format.scale,
        .group = format.group ? format.group : 8,
        .rows = p->row->tile_rows / 16,
        .all = all_of_k,
    };
    gpu_pipeline *pipeline = kernel_product_halves_get(device, &options);
    const gpu_view data = gpu_whole(part->data);
    const struct kernel_product_halves_views views = {
        .data = data,
        .high_bits = part->high != NULL ? gpu_whole(part->high) : data,
        .scales = part->scales != NULL ? gpu_whole(part->scales) : data,
        .x = op_halves_view(device, p->scratch, p->x_rows * k * 2),
        .x_scale = op_scales_view(p->scratch),
        .y = p->y,
    };
    struct kernel_product_halves_params params = {
        .rows = p->rows,
        .cols = (uint32_t)part->rows,
        .k = (uint32_t)k,
        .stride = (uint32_t)part->stride,
        .x_rows = p->x_rows,
        .col0 = (uint32_t)(p->column + part->row0),
        .y_cols = (uint32_t)p->width,
        .accumulate = p->mode == OP_ACCUMULATE,
    };
    const tiles all = tiles_of(p, part);
    op_record_product_work(p->rec, format, part->rows, k, p->rows, p->mode);
    for (uint64_t first = 0; first < all.count; first += all.step) {
        params.first_tile = (uint32_t)first;
        params.tile_end = (uint32_t)min_u64(first + all.step, all.count);
        const op_grid grid = op_fold(device, params.tile_end - params.first_tile);
        kernel_product_halves_dispatch(p->rec, pipeline, &views, &params, grid.x, grid.y, 1);
    }
}

void op_record_lossy(gpu_recorder *rec, const op_weight *w, const op_kernel_row *row,
                     const op_prologue *before, gpu_view x, gpu_view y, uint32_t rows,
                     uint64_t column, uint64_t width, op_mode mode, const op_products *with)
{
    const product p = {.rec = rec,
                       .row = row,
                       .weight = w,
                       .x = x,
                       .y = y,
                       .scratch = with->scratch,
                       .rows = rows,
                       .x_rows = (uint32_t)whole_tiles(rows, row->tile_rows),
                       .column = column,
                       .width = width,
                       .mode = mode};
    const bool bytes = row->kernel == &kernel_product_bytes;
    const bool all_of_k = with->lossy == TEMPER_LOSSY_F16_SUMS;
    if (!op_check_view(rec, "matmul", "scratch", with->scratch,
                       op_lossy_scratch_bytes(row, w->k, rows).scratch))
        return;
    if (bytes)
        record_bytes(&p, before);
    else
        op_record_product_input(rec, before,
                                op_lift_for_sums(w->largest, all_of_k ? w->k : WEIGHT_BLOCK), x,
                                rows, p.x_rows, w->k, with->scratch);
    for (uint32_t i = 0; i < w->part_count; i++) {
        if (bytes)
            multiply_bytes(&p, &w->parts[i]);
        else
            multiply_halves(&p, &w->parts[i], all_of_k);
    }
}
