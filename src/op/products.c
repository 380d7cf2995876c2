/*
 * products.c - the product of several rows through tiles in workgroup memory: on matrix units with
 * f16 operands, or in f32 registers. Both decode the weight on its way into the tile.
 *
 * Rounding: with matrix units a weight and an input are rounded to f16 (half a unit in 2^11 each)
 * and products are added up in f32. A row of inputs whose largest value f16 does not hold well is
 * moved by a power of two and back; a weight with such a row never comes here (op_weight.halves).
 * In f32 nothing is rounded but the sums.
 */
#include <assert.h>
#include <math.h>

#include "base/checked.h"
#include "kernels/kernels.gen.h"
#include "op/op.h"
#include "op/rows.h"

enum {
    BAND = 8,          /* rows of tiles in a band, as in the kernel */
    ROWS_UNIT = 16,    /* every tile is a multiple of so many rows */
    WIDEST_TILE = 128, /* columns and rows of the largest tile */
    WIDE_ROW = 1024,
    WIDE_LANES = 256, /* of product_input for such a row; half of them for less */
    JOIN_LANES = 256,
    STEEL_ROWS = 48, /* below, the register tile is sooner done */
    STEEL_COLS = 32,
};

/* ---- which devices, which shapes ------------------------------------------------------------- */

/* Halves by halves of 16 x 16 x 16, added up in `result`. */
static bool multiplies(gpu_device *device, gpu_component result)
{
    const gpu_adapter_info *info = gpu_device_adapter(device);
    if (info->subgroup_min != 32 || info->subgroup_max != 32)
        return false;
    for (uint32_t i = 0; i < info->matrix_count; i++) {
        const gpu_matrix_shape *m = &info->matrices[i];
        if (m->component == GPU_COMPONENT_F16 && m->result == result && m->m == 16 && m->n == 16 &&
            m->k == 16)
            return true;
    }
    return false;
}

bool op_half_runs(gpu_device *device)
{
    return multiplies(device, GPU_COMPONENT_F32);
}

bool op_half_sums_run(gpu_device *device)
{
    return multiplies(device, GPU_COMPONENT_F16);
}

bool op_steel_fits(const op_shape *shape)
{
    return shape->rows >= STEEL_ROWS && shape->n >= STEEL_COLS && shape->k % 16 == 0;
}

/* ---- scratch --------------------------------------------------------------------------------- */

/* Where the inputs' scales and halves lie. Nothing but the end of the halves depends on the rows:
 * one bind group serves any number of them. */
enum { SCALES_BYTES = OP_PRODUCT_ROWS * 4 };

uint64_t op_halves_scratch_bytes(uint64_t rows, uint64_t k)
{
    return SCALES_BYTES + ceil_div(rows, WIDEST_TILE) * WIDEST_TILE * k * 2;
}

/* A vec4 of sums is never cut: rows of sums are so many columns wide. */
static uint64_t pitch_of(uint64_t cols)
{
    return ceil_div(cols, 4) * 4;
}

/* Of up to so many rows. */
static uint64_t steel_sums_bytes(uint64_t n, uint64_t k, uint64_t rows, uint64_t most)
{
    uint64_t bytes = 0;
    for (uint64_t last = 0, next = STEEL_ROWS; last < rows; next = op_next_class(next)) {
        last = min_u64(next, rows);
        const uint32_t slices = op_steel_slices(last, n, k);
        const uint64_t own = last * slices * pitch_of(n) * 4;
        if (slices > 1 && own <= most)
            bytes = max_u64(bytes, own);
    }
    return bytes;
}

op_product_bytes op_product_scratch_bytes(gpu_device *device, const op_kernel_row *row,
                                          weight_format format, uint64_t n, uint64_t k,
                                          uint32_t rows)
{
    if (op_row_is_lossy_product(row))
        return op_lossy_scratch_bytes(row, k, rows);
    const uint64_t most = gpu_device_limits(device)->max_storage_binding;
    rows = rows < OP_PRODUCT_ROWS ? rows : OP_PRODUCT_ROWS;
    if (row->kernel == &kernel_product_steel)
        return (op_product_bytes){0, steel_sums_bytes(n, k, rows, most)};
    if (row->tile == NULL)
        return (op_product_bytes){0, 0};
    /* At least a column of tiles at a time, for results that do not lie in y as they should. */
    uint64_t sums = (uint64_t)rows * WIDEST_TILE * 4;
    for (uint64_t last = 0, next = 2; last < rows; next = op_next_class(next)) {
        last = min_u64(next, rows);
        const uint64_t slices = op_row_slices(device, row, format, last, n, k);
        const uint64_t least = last * slices * WIDEST_TILE * 4;
        const uint64_t all = slices > 1 ? last * slices * pitch_of(n) * 4 : 0;
        sums = max_u64(sums, max_u64(least, min_u64(all, most)));
    }
    return (op_product_bytes){op_halves_scratch_bytes(rows, k), sums};
}

op_product_bytes op_matmul_scratch_bytes(gpu_device *device, weight_format format, uint64_t n,
                                         uint64_t k, uint32_t rows, bool half, temper_lossy lossy)
{
    op_product_bytes bytes = {0, 0};
    op_shape shape = {.n = n,
                      .k = k,
                      .format = format,
                      .workgroup_memory = gpu_device_limits(device)->max_workgroup_memory,
                      .scratch = true,
                      .half = half,
                      .holds = true,
                      .half_sums = true,
                      .lossy = lossy};
    rows = rows < OP_PRODUCT_ROWS ? rows : OP_PRODUCT_ROWS;
    for (uint64_t next = 2; rows >= 2 && shape.rows < rows; next = op_next_class(next)) {
        shape.rows = min_u64(next, rows);
        shape.tile = op_tile_best(&shape);
        const op_kernel_row *row = op_choose(device, &op_table_matmul, &shape);
        const op_product_bytes own =
            op_product_scratch_bytes(device, row, format, n, k, (uint32_t)shape.rows);
        bytes.scratch = max_u64(bytes.scratch, own.scratch);
        bytes.sums = max_u64(bytes.sums, own.sums);
    }
    return bytes;
}

/* ---- recording: f16 -------------------------------------------------------------------------- */

typedef struct product {
    gpu_recorder *rec;
    const op_kernel_row *row;
    const op_weight *weight;
    gpu_view x, y;
    const op_products *with;
    uint32_t rows, x_rows;  /* x_rows: of whole tiles */
    uint64_t column, width; /* where the first column goes, and how wide y is */
    op_mode mode;
} product;

static uint32_t slices_of(const product *p)
{
    return op_row_slices(gpu_recorder_device(p->rec), p->row, p->weight->format, p->rows,
                         p->weight->n, p->weight->k);
}

gpu_view op_scales_view(gpu_view scratch)
{
    return (gpu_view){scratch.buffer, scratch.offset, SCALES_BYTES};
}

gpu_view op_halves_view(gpu_device *device, gpu_view scratch, uint64_t own)
{
    const uint64_t all = (scratch.size - SCALES_BYTES) / 16 * 16;
    return (gpu_view){scratch.buffer, scratch.offset + SCALES_BYTES,
                      all <= gpu_device_limits(device)->max_storage_binding ? all : own};
}

static gpu_view whole_quads(gpu_view view)
{
    return (gpu_view){view.buffer, view.offset, view.size / 16 * 16};
}

/* 2^-12 to 2^14 and more: neither end rounds. */
const op_lift op_lift_operands = {127 - 12, 127 + 14};

op_lift op_lift_for_sums(double largest, uint64_t count)
{
    enum { LEAST = -30, MOST = 14 };
    /* A row's largest is below 2^(high + 1). */
    const double room = largest > 0 ? 65504 / (largest * (double)count) : 65504;
    const int exponent = ilogb(room) - 1;
    const int high = exponent < LEAST ? LEAST : exponent > MOST ? MOST : exponent;
    return (op_lift){(uint32_t)(127 + high), (uint32_t)(127 + high)};
}

/* Where the last dispatch joined slices to just these rows of inputs, a norm takes it along. */
static bool record_join_input(gpu_recorder *rec, const struct kernel_product_input_views *views,
                              const struct kernel_product_input_params *p, const gpu_view *norm)
{
    const struct kernel_product_join_input_options options = {.lanes = WIDE_LANES};
    if (norm == NULL || p->k > 32 * WIDE_LANES)
        return false;
    /* Asked for each time: what was before is not known where pipelines are prepared. */
    gpu_device *device = gpu_recorder_device(rec);
    gpu_pipeline *pipeline = kernel_product_join_input_get(device, &options);
    gpu_recorded last;
    if (!gpu_record_last(rec, &last) || last.kernel != &kernel_product_join)
        return false;
    const struct kernel_product_join_views *before =
        (const struct kernel_product_join_views *)last.views;
    const struct kernel_product_join_params join = *(const struct kernel_product_join_params *)
                                                        last.params;
    if (before->y.buffer != views->x.buffer || before->y.offset != views->x.offset ||
        join.rows != p->rows || join.cols != p->k || join.pitch != p->k || join.col0 != 0 ||
        join.y_cols != p->k)
        return false;
    const struct kernel_product_join_input_views fused = {
        .sums = whole_quads(before->sums),
        .y = views->x,
        .weight = *norm,
        .out = views->out,
        .scale = views->scale,
    };
    const struct kernel_product_join_input_params params = {
        .rows = p->rows,
        .k = p->k,
        .x_rows = p->x_rows,
        .eps = p->eps,
        .low = p->low,
        .high = p->high,
        .slices = join.slices,
        .accumulate = join.accumulate,
    };
    const op_grid grid = op_fold(device, p->rows);
    const uint64_t elements = (uint64_t)p->rows * p->k;
    gpu_record_drop(rec);
    gpu_record_work(rec, elements * (4ull * join.slices + 10), elements * (join.slices + 2ull));
    kernel_product_join_input_dispatch(rec, pipeline, &fused, &params, grid.x, grid.y, 1);
    return true;
}

void op_record_product_input(gpu_recorder *rec, const op_prologue *before, op_lift lift, gpu_view x,
                             uint32_t rows, uint32_t x_rows, uint64_t k, gpu_view scratch)
{
    gpu_device *device = gpu_recorder_device(rec);
    const struct kernel_product_input_options options = {
        .prologue = (uint32_t)before->kind,
        .lanes = k >= WIDE_ROW ? WIDE_LANES : WIDE_LANES / 2,
    };
    gpu_pipeline *pipeline = kernel_product_input_get(device, &options);
    const struct kernel_product_input_views views = {
        .x = whole_quads(x),
        .weight = whole_quads(before->kind == OP_PROLOGUE_RMSNORM ? before->weight : x),
        .out = op_halves_view(device, scratch, x_rows * k * 2),
        .scale = op_scales_view(scratch),
    };
    const struct kernel_product_input_params params = {
        .rows = rows,
        .k = (uint32_t)k,
        .x_rows = x_rows,
        .eps = before->eps,
        .low = lift.low,
        .high = lift.high,
    };
    if (record_join_input(rec, &views, &params,
                          before->kind == OP_PROLOGUE_RMSNORM ? &views.weight : NULL))
        return;
    const op_grid grid = op_fold(device, rows);
    gpu_record_work(rec, rows * k * 6, rows * k * 2);
    kernel_product_input_dispatch(rec, pipeline, &views, &params, grid.x, grid.y, 1);
}

static bool sums_are_halves(const product *p)
{
    return p->row->lossy != 0;
}

static op_lift lift_of(const product *p)
{
    return sums_are_halves(p) ? op_lift_for_sums(p->weight->largest, p->weight->k)
                              : op_lift_operands;
}

static gpu_pipeline *pipeline_of(const product *p)
{
    const op_tile *t = p->row->tile;
    const weight_format format = p->weight->format;
    const struct kernel_product_matrix_options options = {
        .down = t->down,
        .across = t->across,
        .sub_m = t->sub_m,
        .sub_n = t->sub_n,
        .teams = t->teams,
        .units = t->units,
        .stage_x = t->stage_x,
        .result_bits = sums_are_halves(p) ? 16 : 32,
        .layout = (uint32_t)format.layout,
        .scale = (uint32_t)format.scale,
        .group = format.group ? format.group : 8,
    };
    return gpu_pipeline_get(gpu_recorder_device(p->rec), p->row->kernel, &options);
}

/* Where tiles go: y itself, or sums. Column c of the weight's part goes to quad0 + c / 4. */
typedef struct target {
    gpu_view view;
    uint32_t quad0, quads; /* of a row; modulo 2^32 */
    uint32_t slices;
    bool accumulate;
} target;

/* How many columns of tiles a dispatch may take: the work of the register tile in the same time,
 * times how much faster matrix units are. */
static uint64_t columns_at_once(const product *p, uint64_t columns)
{
    enum { SPEEDUP = 32 };
    gpu_device *device = gpu_recorder_device(p->rec);
    const uint64_t column = (uint64_t)p->x_rows * op_tile_cols(p->row->tile) * p->weight->k;
    return min_u64(op_cut(device, columns, max_u64(column / SPEEDUP, 1), 1),
                   gpu_device_limits(device)->max_workgroups);
}

static gpu_pipeline *few_pipeline_of(const product *p, uint32_t slices)
{
    const weight_format format = p->weight->format;
    const op_few_plan plan = op_few_plan_of(p->weight->k, slices);
    const struct kernel_product_few_options options = {
        .teams = plan.teams,
        .steps = plan.steps,
        .exact = plan.exact,
        .layout = (uint32_t)format.layout,
        .scale = (uint32_t)format.scale,
        .group = format.group ? format.group : 8,
    };
    return gpu_pipeline_get(gpu_recorder_device(p->rec), p->row->kernel, &options);
}

/* Columns [begin, end) of a part of the weight by product_few; begin is a tile's first. */
static void multiply_few(const product *p, const op_weight_part *part, target to, uint64_t begin,
                         uint64_t end)
{
    gpu_device *device = gpu_recorder_device(p->rec);
    const op_tile *t = p->row->tile;
    const uint32_t tiles = p->x_rows / op_tile_rows(t);
    gpu_pipeline *pipeline = few_pipeline_of(p, to.slices);
    const gpu_view data = gpu_whole(part->data);
    const struct kernel_product_few_views views = {
        .data = data,
        .high_bits = part->high != NULL ? gpu_whole(part->high) : data,
        .scales = part->scales != NULL ? gpu_whole(part->scales) : data,
        .x = op_halves_view(device, p->with->scratch, p->x_rows * p->weight->k * 2),
        .x_scale = op_scales_view(p->with->scratch),
        .y = whole_quads(to.view),
    };
    struct kernel_product_few_params params = {
        .rows = p->rows,
        .cols = (uint32_t)pitch_of(end),
        .k = (uint32_t)p->weight->k,
        .stride = (uint32_t)part->stride,
        .x_rows = p->x_rows,
        .quad0 = to.quad0,
        .y_quads = to.quads,
        .share = (uint32_t)ceil_div(p->weight->k / 32, to.slices),
        .slice_quads = p->rows * to.quads,
        .accumulate = to.accumulate,
    };
    const uint64_t first = begin / op_tile_cols(t), last = ceil_div(end, op_tile_cols(t));
    const uint64_t step = columns_at_once(p, last - first);
    op_record_product_work(p->rec, p->weight->format, end - begin, p->weight->k, p->rows, p->mode);
    for (uint64_t column = first; column < last; column += step) {
        params.first_column = (uint32_t)column;
        params.last_column = (uint32_t)min_u64(column + step, last);
        params.walk = op_few_walks(params.last_column - column, (uint64_t)tiles * to.slices);
        gpu_record_dispatch(p->rec, pipeline, (const gpu_view *)&views, &params, tiles, params.walk,
                            to.slices);
    }
}

/* The same by either kernel. */
static void multiply(const product *p, const op_weight_part *part, target to, uint64_t begin,
                     uint64_t end)
{
    if (p->row->tile->walks) {
        multiply_few(p, part, to, begin, end);
        return;
    }
    gpu_device *device = gpu_recorder_device(p->rec);
    const op_tile *t = p->row->tile;
    const uint32_t bands = ceil_div_u32(p->x_rows / op_tile_rows(t), BAND);
    const uint64_t blocks = p->weight->k / 32, last = ceil_div(end, op_tile_cols(t));
    gpu_pipeline *pipeline = pipeline_of(p);
    const gpu_view data = gpu_whole(part->data);
    const struct kernel_product_matrix_views views = {
        .data = data,
        .high_bits = part->high != NULL ? gpu_whole(part->high) : data,
        .scales = part->scales != NULL ? gpu_whole(part->scales) : data,
        .x = op_halves_view(device, p->with->scratch, p->x_rows * p->weight->k * 2),
        .x_scale = op_scales_view(p->with->scratch),
        .y = whole_quads(to.view),
    };
    struct kernel_product_matrix_params params = {
        .rows = p->rows,
        .cols = (uint32_t)pitch_of(end),
        .k = (uint32_t)p->weight->k,
        .stride = (uint32_t)part->stride,
        .x_rows = p->x_rows,
        .quad0 = to.quad0,
        .y_quads = to.quads,
        .slices = to.slices,
        .share = (uint32_t)ceil_div(blocks, to.slices),
        .slice_quads = p->rows * to.quads,
        .accumulate = to.accumulate,
    };
    assert(to.slices == 1 || bands == 1);
    const uint64_t first = begin / op_tile_cols(t), step = columns_at_once(p, last - first);
    op_record_product_work(p->rec, p->weight->format, end - begin, p->weight->k, p->rows, p->mode);
    for (uint64_t column = first; column < last; column += step) {
        params.first_column = (uint32_t)column;
        gpu_record_dispatch(p->rec, pipeline, (const gpu_view *)&views, &params,
                            (uint32_t)min_u64(p->x_rows / op_tile_rows(t), BAND),
                            (uint32_t)min_u64(step, last - column),
                            to.slices > 1 ? to.slices : bands);
    }
}

/* Columns [begin, end) of a part, from sums to y. */
static void join(const product *p, gpu_pipeline *pipeline, const op_weight_part *part,
                 uint32_t slices, uint64_t begin, uint64_t end)
{
    const struct kernel_product_join_views views = {.sums = p->with->sums, .y = p->y};
    const struct kernel_product_join_params params = {
        .rows = p->rows,
        .cols = (uint32_t)(end - begin),
        .pitch = (uint32_t)pitch_of(end - begin),
        .slices = slices,
        .col0 = (uint32_t)(p->column + part->row0 + begin),
        .y_cols = (uint32_t)p->width,
        .accumulate = p->mode == OP_ACCUMULATE,
    };
    const op_grid grid =
        op_fold(gpu_recorder_device(p->rec), p->rows * ceil_div(params.cols, JOIN_LANES));
    gpu_record_work(p->rec, p->rows * (end - begin) * (slices + 1) * 4,
                    p->rows * (end - begin) * slices);
    kernel_product_join_dispatch(p->rec, pipeline, &views, &params, grid.x, grid.y, 1);
}

/* One part of the weight: straight to y, or by way of sums where k is split or y's columns do not
 * begin and end with a vec4, then as many columns at a time as fit there. */
static void multiply_part(const product *p, const op_weight_part *part)
{
    const uint64_t tile = op_tile_cols(p->row->tile), to = p->column + part->row0;
    const uint32_t slices = slices_of(p);
    /* Asked for each time: which way it goes may depend on the number of rows. */
    gpu_pipeline *joining = kernel_product_join_get(
        gpu_recorder_device(p->rec), &(struct kernel_product_join_options){.lanes = JOIN_LANES});
    if (slices == 1 && to % 4 == 0 && p->width % 4 == 0 && part->rows % 4 == 0) {
        const target y = {p->y, (uint32_t)(to / 4), (uint32_t)(p->width / 4), 1,
                          p->mode == OP_ACCUMULATE};
        multiply(p, part, y, 0, part->rows);
        return;
    }
    const uint64_t fit = p->with->sums.size / ((uint64_t)p->rows * slices * 4) / tile * tile;
    for (uint64_t begin = 0; begin < part->rows; begin += fit) {
        const uint64_t end = min_u64(begin + fit, part->rows);
        const target sums = {p->with->sums, (uint32_t)0 - (uint32_t)(begin / 4),
                             (uint32_t)(pitch_of(end - begin) / 4), slices, false};
        multiply(p, part, sums, begin, end);
        join(p, joining, part, slices, begin, end);
    }
}

static void record_half(product *p, const op_prologue *before)
{
    const op_tile *t = p->row->tile;
    const uint64_t k = p->weight->k, least = (uint64_t)p->rows * op_tile_cols(t) * 4;
    const uint32_t slices = slices_of(p);
    p->x_rows = ceil_div_u32(p->rows, op_tile_rows(t)) * op_tile_rows(t);
    if (!op_check_view(p->rec, "matmul", "scratch", p->with->scratch,
                       SCALES_BYTES + p->x_rows * k * 2) ||
        !op_check_view(p->rec, "matmul", "sums", p->with->sums, least * slices))
        return;
    op_record_product_input(p->rec, before, lift_of(p), p->x, p->rows, p->x_rows, k,
                            p->with->scratch);
    for (uint32_t i = 0; i < p->weight->part_count; i++)
        multiply_part(p, &p->weight->parts[i]);
}

/* ---- recording: f32 -------------------------------------------------------------------------- */

/* Into how many slices K goes, with the room that there is for their sums. */
static uint32_t steel_slices(const product *p, const op_weight_part *part)
{
    const uint64_t room = p->with != NULL && p->with->sums.buffer != NULL ? p->with->sums.size : 0;
    uint32_t slices = op_steel_slices(p->rows, part->rows, p->weight->k);
    while (slices > 1 && p->rows * slices * pitch_of(part->rows) * 4 > room)
        slices /= 2;
    return slices;
}

static void multiply_steel(const product *p, const op_weight_part *part, uint32_t slices)
{
    enum { SPEEDUP = 4 }; /* over the register tile */
    gpu_device *device = gpu_recorder_device(p->rec);
    const weight_format format = p->weight->format;
    const uint64_t k = p->weight->k;
    const struct kernel_product_steel_options options = {
        .layout = (uint32_t)format.layout,
        .scale = (uint32_t)format.scale,
        .group = format.group ? format.group : 8,
    };
    gpu_pipeline *pipeline = kernel_product_steel_get(device, &options);
    const gpu_view data = gpu_whole(part->data);
    const struct kernel_product_steel_views views = {
        .data = data,
        .high_bits = part->high != NULL ? gpu_whole(part->high) : data,
        .scales = part->scales != NULL ? gpu_whole(part->scales) : data,
        .x = whole_quads(p->x),
        .y = slices > 1 ? p->with->sums : p->y,
    };
    struct kernel_product_steel_params params = {
        .rows = p->rows,
        .cols = (uint32_t)part->rows,
        .k = (uint32_t)k,
        .stride = (uint32_t)part->stride,
        .col0 = slices > 1 ? 0 : (uint32_t)(p->column + part->row0),
        .y_cols = (uint32_t)(slices > 1 ? pitch_of(part->rows) : p->width),
        .share = (uint32_t)(ceil_div(ceil_div(k, WEIGHT_BLOCK), slices) * WEIGHT_BLOCK),
        .accumulate = slices == 1 && p->mode == OP_ACCUMULATE,
    };
    const uint64_t tile = (uint64_t)p->row->tile_rows * p->row->tile_cols * ceil_div(k, slices);
    const uint64_t tiles =
        ceil_div(p->rows, p->row->tile_rows) * ceil_div(part->rows, p->row->tile_cols) * slices;
    const uint64_t step = op_cut(device, tiles, tile / SPEEDUP, 1);
    assert(tiles <= UINT32_MAX);
    op_record_product_work(p->rec, p->weight->format, part->rows, k, p->rows, p->mode);
    for (uint64_t first = 0; first < tiles; first += step) {
        params.first_tile = (uint32_t)first;
        params.tile_end = (uint32_t)min_u64(first + step, tiles);
        const op_grid grid = op_fold(device, params.tile_end - params.first_tile);
        kernel_product_steel_dispatch(p->rec, pipeline, &views, &params, grid.x, grid.y, 1);
    }
}

static void record_steel(const product *p, const op_weight_part *part)
{
    gpu_pipeline *joining = kernel_product_join_get(
        gpu_recorder_device(p->rec), &(struct kernel_product_join_options){.lanes = JOIN_LANES});
    const uint32_t slices = steel_slices(p, part);
    multiply_steel(p, part, slices);
    if (slices > 1)
        join(p, joining, part, slices, 0, part->rows);
}

bool op_row_is_product(const op_kernel_row *row)
{
    return row->tile != NULL || row->kernel == &kernel_product_steel ||
           op_row_is_lossy_product(row);
}

void op_record_product(gpu_recorder *rec, const op_weight *w, const op_kernel_row *row,
                       const op_prologue *before, gpu_view x, gpu_view y, uint32_t rows,
                       uint64_t column, uint64_t width, op_mode mode, const op_products *with)
{
    assert(rows <= OP_PRODUCT_ROWS);
    if (op_row_is_lossy_product(row)) {
        op_record_lossy(rec, w, row, before, x, y, rows, column, width, mode, with);
        return;
    }
    product p = {.rec = rec,
                 .row = row,
                 .weight = w,
                 .x = x,
                 .y = y,
                 .with = with,
                 .rows = rows,
                 .column = column,
                 .width = width,
                 .mode = mode};
    if (row->tile != NULL) {
        record_half(&p, before);
        return;
    }
    assert(before->kind == OP_PROLOGUE_NONE);
    for (uint32_t i = 0; i < w->part_count; i++)
        record_steel(&p, &w->parts[i]);
}
