/*
 * products.c - the product of many rows through tiles in workgroup memory: on matrix units with f16
 * operands, or in f32 registers. Both read the weight from scratch, where it is unpacked once a
 * call (a chunk of its rows at a time).
 *
 * Rounding: with matrix units a weight and an input are rounded to f16 (half a unit in 2^11 each)
 * and products are added up in f32; a row whose largest value f16 does not hold well is moved by a
 * power of two and back. In f32 nothing is rounded but the sums.
 */
#include <assert.h>
#include <math.h>

#include "base/checked.h"
#include "base/half.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/random.h"
#include "kernels/kernels.gen.h"
#include "op/op.h"
#include "op/rows.h"

enum {
    CHUNK_ROWS = 128,     /* chunks of a weight are multiples of it: whole tiles, aligned views */
    MOST_K = 32768,       /* so that one chunk fits every device's binding */
    LEAST_ROWS_HALF = 16, /* of x: below it the register tile reads the packed weight sooner */
    LEAST_ROWS_STEEL = 48,
    LEAST_COLS = 32,
    MOST_ROWS = OP_PRODUCT_ROWS,
    ALIGNMENT = 256,
    UNPACK_LANES = 64,
    TO_HALF_LANES = 128,
    JOIN_LANES = 256,
    SCALE_LANES = 64,
};

/* Bytes of an unpacked chunk: more reads the inputs less often, less stays in the cache. */
static const uint64_t chunk_bytes = UINT64_C(64) << 20;

static bool is_half(const op_kernel_row *row)
{
    return row->tiles == OP_TILES_F16;
}

/* ---- which shapes, which devices ------------------------------------------------------------- */

bool op_half_runs(gpu_device *device)
{
    const gpu_adapter_info *info = gpu_device_adapter(device);
    if (info->subgroup_min != 32 || info->subgroup_max != 32)
        return false;
    for (uint32_t i = 0; i < info->matrix_count; i++) {
        const gpu_matrix_shape *m = &info->matrices[i];
        if (m->component == GPU_COMPONENT_F16 && m->result == GPU_COMPONENT_F32 && m->m == 16 &&
            m->n == 16 && m->k == 16)
            return true;
    }
    return false;
}

bool op_half_fits(const op_shape *shape)
{
    return shape->scratch && shape->half && shape->rows >= LEAST_ROWS_HALF &&
           shape->n >= LEAST_COLS && shape->k % 32 == 0 && shape->k <= MOST_K;
}

bool op_steel_fits(const op_shape *shape)
{
    return shape->scratch && shape->rows >= LEAST_ROWS_STEEL && shape->n >= LEAST_COLS &&
           shape->k % 16 == 0 && shape->k <= MOST_K;
}

/* ---- scratch --------------------------------------------------------------------------------- */

/* Nothing but the end of x depends on the rows: one bind group serves any number of them. */
typedef struct scratch_plan {
    uint64_t chunk;                        /* rows of the weight unpacked at a time */
    uint64_t w_scale, w, x_scale, x, size; /* offsets, and the bytes in all */
    uint64_t sums;                         /* bytes of that buffer */
} scratch_plan;

static uint64_t aligned(uint64_t bytes)
{
    return ceil_div(bytes, ALIGNMENT) * ALIGNMENT;
}

static scratch_plan plan(gpu_device *device, uint64_t n, uint64_t k, uint64_t rows, bool half)
{
    const gpu_limits *limits = gpu_device_limits(device);
    const uint64_t most =
        min_u64(chunk_bytes, min_u64(limits->max_storage_binding, limits->max_buffer_size / 2));
    const uint64_t row_bytes = k * (half ? 2 : 4);
    scratch_plan p = {0};
    p.chunk = min_u64(ceil_div(n, CHUNK_ROWS), max_u64(most / row_bytes / CHUNK_ROWS, 1));
    p.chunk *= CHUNK_ROWS;
    p.w = half ? aligned(p.chunk * 4) : 0;
    p.x_scale = p.w + aligned(p.chunk * row_bytes);
    p.x = p.x_scale + (half ? aligned(MOST_ROWS * 4) : 0);
    p.size = p.x + (half ? aligned(rows * row_bytes) : 0);
    if (half)
        p.sums = min_u64(most, ceil_div(rows, 128) * 128 * p.chunk * 4);
    return p;
}

static gpu_view part_of(gpu_view scratch, uint64_t offset, uint64_t size)
{
    return (gpu_view){scratch.buffer, scratch.offset + offset, size};
}

op_product_bytes op_product_scratch_bytes(gpu_device *device, const op_kernel_row *row, uint64_t n,
                                          uint64_t k, uint32_t rows)
{
    const scratch_plan p = plan(device, n, k, min_u64(rows, MOST_ROWS), is_half(row));
    return (op_product_bytes){max_u64(p.size, 4), p.sums};
}

op_product_bytes op_matmul_scratch_bytes(gpu_device *device, weight_format format, uint64_t n,
                                         uint64_t k, uint32_t rows)
{
    op_product_bytes bytes = {0, 0};
    op_shape shape = {.rows = rows, .n = n, .k = k, .format = format, .scratch = true};
    for (int half = 0; half < 2; half++) {
        shape.half = half != 0;
        const op_kernel_row *row = op_choose(device, &op_table_matmul, &shape);
        if (row->tiles == OP_TILES_NONE)
            continue;
        const op_product_bytes own = op_product_scratch_bytes(device, row, n, k, rows);
        bytes.scratch = max_u64(bytes.scratch, own.scratch);
        bytes.sums = max_u64(bytes.sums, own.sums);
    }
    return bytes;
}

/* ---- recording ------------------------------------------------------------------------------- */

typedef struct product {
    gpu_recorder *rec;
    const op_kernel_row *row;
    const op_weight *weight;
    bool half;
    gpu_view x, y, scratch, sums;
    uint32_t rows;
    uint64_t column, width; /* where the first column goes, and how wide y is */
    op_mode mode;
    scratch_plan plan;
} product;

static gpu_view w_view(const product *p)
{
    return part_of(p->scratch, p->plan.w, p->plan.chunk * p->weight->k * (p->half ? 2 : 4));
}

static gpu_view w_scale_view(const product *p)
{
    return part_of(p->scratch, p->plan.w_scale, p->plan.chunk * 4);
}

static gpu_view x_scale_view(const product *p)
{
    return part_of(p->scratch, p->plan.x_scale, MOST_ROWS * 4);
}

static gpu_view x_view(const product *p)
{
    const gpu_limits *limits = gpu_device_limits(gpu_recorder_device(p->rec));
    const uint64_t all = (p->scratch.size - p->plan.x) / 16 * 16;
    const uint64_t own = p->rows * p->weight->k * 2;
    return part_of(p->scratch, p->plan.x, all <= limits->max_storage_binding ? all : own);
}

static void to_half(const product *p)
{
    gpu_device *device = gpu_recorder_device(p->rec);
    const uint64_t k = p->weight->k;
    gpu_pipeline *pipeline =
        kernel_to_half_get(device, &(struct kernel_to_half_options){.lanes = TO_HALF_LANES});
    const struct kernel_to_half_views views = {
        .x = p->x,
        .out = x_view(p),
        .scale = x_scale_view(p),
    };
    const struct kernel_to_half_params params = {.rows = p->rows, .k = (uint32_t)k};
    const op_grid grid = op_fold(device, p->rows);
    kernel_to_half_dispatch(p->rec, pipeline, &views, &params, grid.x, grid.y, 1);
}

static void unpack(const product *p, const op_weight_part *part, uint64_t row0, uint64_t rows)
{
    gpu_device *device = gpu_recorder_device(p->rec);
    const op_weight *w = p->weight;
    const struct kernel_unpack_half_options options = {
        .layout = (uint32_t)w->format.layout,
        .scale = (uint32_t)w->format.scale,
        .group = w->format.group ? w->format.group : 8,
        .lanes = UNPACK_LANES,
    };
    gpu_pipeline *pipeline = kernel_unpack_half_get(device, &options);
    const gpu_view data = gpu_whole(part->data);
    const struct kernel_unpack_half_views views = {
        .data = data,
        .high_bits = part->high != NULL ? gpu_whole(part->high) : data,
        .scales = part->scales != NULL ? gpu_whole(part->scales) : data,
        .out = w_view(p),
        .scale = w_scale_view(p),
    };
    const struct kernel_unpack_half_params params = {
        .row0 = (uint32_t)row0,
        .row_end = (uint32_t)(row0 + rows),
        .k = (uint32_t)w->k,
        .stride = (uint32_t)part->stride,
    };
    const op_grid grid = op_fold(device, rows);
    kernel_unpack_half_dispatch(p->rec, pipeline, &views, &params, grid.x, grid.y, 1);
}

/* How many of `tiles` a dispatch may take: the work of the register tile in the same time, times
 * how much faster the row is. */
static uint64_t tiles_at_once(const product *p, uint64_t tiles)
{
    enum { SPEEDUP_HALF = 32, SPEEDUP_STEEL = 4 };
    const uint64_t tile = (uint64_t)p->row->tile_rows * p->row->tile_cols * p->weight->k;
    assert(tiles <= UINT32_MAX);
    return op_cut(gpu_recorder_device(p->rec), tiles,
                  tile / (p->half ? SPEEDUP_HALF : SPEEDUP_STEEL), 1);
}

static uint64_t tiles_of(const product *p, uint64_t cols)
{
    return ceil_div(p->rows, p->row->tile_rows) * ceil_div(cols, p->row->tile_cols);
}

/* y's columns from column + first on, by `cols` f32 rows of the weight that begin at w. */
static void multiply_f32(const product *p, gpu_view w, uint64_t first, uint64_t cols)
{
    gpu_device *device = gpu_recorder_device(p->rec);
    gpu_pipeline *pipeline = gpu_pipeline_get(device, p->row->kernel, NULL);
    const uint64_t tiles = tiles_of(p, cols), step = tiles_at_once(p, tiles);
    for (uint64_t tile = 0; tile < tiles; tile += step) {
        const struct kernel_product_steel_views views = {.x = p->x, .w = w, .y = p->y};
        const struct kernel_product_steel_params params = {
            .rows = p->rows,
            .cols = (uint32_t)cols,
            .k = (uint32_t)p->weight->k,
            .col0 = (uint32_t)(p->column + first),
            .y_cols = (uint32_t)p->width,
            .first_tile = (uint32_t)tile,
            .tile_end = (uint32_t)min_u64(tile + step, tiles),
            .accumulate = p->mode == OP_ACCUMULATE,
        };
        const op_grid grid = op_fold(device, params.tile_end - params.first_tile);
        kernel_product_steel_dispatch(p->rec, pipeline, &views, &params, grid.x, grid.y, 1);
    }
}

/* Where f16 products are added up: whole tiles of `pitch` columns a row, from column `first` on. */
typedef struct sums {
    gpu_view view;
    uint64_t first, pitch;
} sums;

static void multiply_half(const product *p, gpu_view w, uint64_t cols, sums to)
{
    gpu_device *device = gpu_recorder_device(p->rec);
    gpu_pipeline *pipeline = gpu_pipeline_get(device, p->row->kernel, NULL);
    const uint64_t tiles = tiles_of(p, cols), step = tiles_at_once(p, tiles);
    for (uint64_t tile = 0; tile < tiles; tile += step) {
        const struct kernel_product_half_matrix_views views = {
            .x = x_view(p),
            .w = w,
            .sums = to.view,
        };
        const struct kernel_product_half_matrix_params params = {
            .rows = p->rows,
            .cols = (uint32_t)cols,
            .k = (uint32_t)p->weight->k,
            .to0 = (uint32_t)to.first,
            .pitch = (uint32_t)to.pitch,
            .first_tile = (uint32_t)tile,
            .tile_end = (uint32_t)min_u64(tile + step, tiles),
        };
        const op_grid grid = op_fold(device, params.tile_end - params.first_tile);
        kernel_product_half_matrix_dispatch(p->rec, pipeline, &views, &params, grid.x, grid.y, 1);
    }
}

/* From sums to y. w_scale: of the first column, or an empty view: 1 for all. */
static void join(const product *p, gpu_pipeline *pipeline, gpu_view w_scale, uint64_t first,
                 uint64_t cols, uint64_t pitch)
{
    const bool scaled = w_scale.buffer != NULL;
    const struct kernel_product_join_views views = {
        .sums = p->sums,
        .x_scale = x_scale_view(p),
        .w_scale = scaled ? w_scale : x_scale_view(p),
        .y = p->y,
    };
    const struct kernel_product_join_params params = {
        .rows = p->rows,
        .cols = (uint32_t)cols,
        .pitch = (uint32_t)pitch,
        .col0 = (uint32_t)(p->column + first),
        .y_cols = (uint32_t)p->width,
        .w_scaled = scaled,
        .accumulate = p->mode == OP_ACCUMULATE,
    };
    const op_grid grid = op_fold(gpu_recorder_device(p->rec), p->rows * ceil_div(cols, JOIN_LANES));
    kernel_product_join_dispatch(p->rec, pipeline, &views, &params, grid.x, grid.y, 1);
}

/* The scales of sums that were written to y. */
static void scale_y(const product *p, gpu_pipeline *pipeline, gpu_view w_scale, uint64_t first,
                    uint64_t cols)
{
    const bool scaled = w_scale.buffer != NULL;
    const struct kernel_product_scale_views views = {
        .x_scale = x_scale_view(p),
        .w_scale = scaled ? w_scale : x_scale_view(p),
        .y = p->y,
    };
    const struct kernel_product_scale_params params = {
        .rows = p->rows,
        .cols = (uint32_t)cols,
        .col0 = (uint32_t)(p->column + first),
        .y_cols = (uint32_t)p->width,
        .w_scaled = scaled,
    };
    const op_grid grid = op_fold(gpu_recorder_device(p->rec),
                                 ceil_div(p->rows, SCALE_LANES) * ceil_div(cols, SCALE_LANES));
    kernel_product_scale_dispatch(p->rec, pipeline, &views, &params, grid.x, grid.y, 1);
}

/* The same as multiply_f32 with f16 rows: whole tiles that nothing is added to go straight to y,
 * others by way of sums, as many columns at a time as fit there. */
static void multiply(const product *p, gpu_view w, uint64_t first, uint64_t cols)
{
    const uint64_t tile = p->row->tile_rows, row_bytes = p->weight->k * 2;
    const bool whole = p->rows % tile == 0 && cols % tile == 0 && p->width % 4 == 0 &&
                       (p->column + first) % 4 == 0;
    const gpu_view scales = w_scale_view(p);
    /* Both are asked for each time: which one runs depends on the number of rows. */
    gpu_device *device = gpu_recorder_device(p->rec);
    gpu_pipeline *joining =
        kernel_product_join_get(device, &(struct kernel_product_join_options){.lanes = JOIN_LANES});
    gpu_pipeline *scaling = kernel_product_scale_get(
        device, &(struct kernel_product_scale_options){.lanes = SCALE_LANES});
    if (whole && p->mode == OP_WRITE) {
        multiply_half(p, w, cols, (sums){p->y, p->column + first, p->width});
        scale_y(p, scaling, scales, first, cols);
        return;
    }
    const uint64_t sum_rows = ceil_div(p->rows, tile) * tile;
    const uint64_t fit = p->sums.size / (sum_rows * 4) / tile * tile;
    for (uint64_t at = 0; at < cols; at += fit) {
        const uint64_t count = min_u64(fit, cols - at), pitch = ceil_div(count, tile) * tile;
        const gpu_view some_w = {w.buffer, w.offset + at * row_bytes,
                                 at == 0 ? w.size : count * row_bytes};
        const gpu_view some_scales = {scales.buffer, scales.offset + at * 4,
                                      at == 0 ? scales.size : count * 4};
        multiply_half(p, some_w, count, (sums){p->sums, 0, pitch});
        join(p, joining, some_scales, first + at, count, pitch);
    }
}

static product prepare(gpu_recorder *rec, const op_weight *w, const op_kernel_row *row, gpu_view x,
                       uint32_t rows, gpu_view scratch, bool half)
{
    assert(rows <= MOST_ROWS);
    return (product){
        .rec = rec,
        .row = row,
        .weight = w,
        .half = half,
        .x = {x.buffer, x.offset, x.size / 16 * 16}, /* whole words of four */
        .scratch = scratch,
        .rows = rows,
        .plan = plan(gpu_recorder_device(rec), w->n, w->k, rows, half),
    };
}

void op_record_product(gpu_recorder *rec, const op_weight *w, const op_kernel_row *row, gpu_view x,
                       gpu_view y, uint32_t rows, uint64_t column, uint64_t width, op_mode mode,
                       const op_products *with)
{
    const gpu_view scratch = with->scratch;
    const bool half = is_half(row);
    product p = prepare(rec, w, row, x, rows, scratch, half);
    p.y = y;
    p.column = column;
    p.width = width;
    p.mode = mode;
    p.sums = with->sums;
    if (p.plan.size > 0 && !op_check_view(rec, "matmul", "scratch", scratch, p.plan.size))
        return;
    if (half && !op_check_view(rec, "matmul", "sums", p.sums, p.plan.sums))
        return;
    if (half)
        to_half(&p);
    for (uint32_t i = 0; i < w->part_count; i++) {
        const op_weight_part *part = &w->parts[i];
        for (uint64_t at = 0; at < part->rows; at += p.plan.chunk) {
            const uint64_t count = min_u64(p.plan.chunk, part->rows - at);
            if (half) {
                unpack(&p, part, at, count);
                multiply(&p, w_view(&p), part->row0 + at, count);
            } else {
                op_dequantize(rec, w, part->row0 + at, (uint32_t)count, w_view(&p));
                multiply_f32(&p, w_view(&p), part->row0 + at, count);
            }
        }
    }
}

op_halves op_halves_of(gpu_device *device, const op_weight *w, uint32_t rows)
{
    const scratch_plan p = plan(device, w->n, w->k, rows, true);
    return (op_halves){p.w, p.w_scale, p.x, p.x_scale, p.size};
}

void op_record_halves(gpu_recorder *rec, const op_weight *w, gpu_view x, uint32_t rows,
                      gpu_view scratch)
{
    const product p = prepare(rec, w, NULL, x, rows, scratch, true);
    if (!op_check_view(rec, "matmul", "scratch", scratch, p.plan.size))
        return;
    to_half(&p);
    unpack(&p, &w->parts[0], 0, min_u64(w->parts[0].rows, p.plan.chunk));
}

/* ---- is the device good at it? --------------------------------------------------------------- */

/* Marks that this room keeps with a device. */
enum { MARK_CHECKED = 1, MARK_HALF_GOOD = 2 };

enum { CHECK_ROWS = 70, CHECK_COLS = 200 };

typedef struct trial {
    gpu_buffer *x, *y, *scratch, *sums;
    op_weight *weight;
    float *got, *want;
} trial;

static void trial_close(trial *t)
{
    gpu_buffer_destroy(t->x);
    gpu_buffer_destroy(t->y);
    gpu_buffer_destroy(t->scratch);
    gpu_buffer_destroy(t->sums);
    op_weight_destroy(t->weight);
    mem_free(t->got);
    mem_free(t->want);
}

/* 4-bit weights and inputs around 1, from a generator. */
static temper_status trial_fill(trial *t, gpu_device *device, uint32_t k, error *err)
{
    const weight_format format = {LAYOUT_Q4, SCALE_F16, 32};
    random_state random = {.state = k};
    const uint64_t stride = weight_stride(CHECK_COLS);
    const uint64_t words = weight_plane_words(format, WEIGHT_DATA, k, stride);
    const uint64_t scales = weight_plane_words(format, WEIGHT_SCALES, k, stride);
    uint32_t *data = mem_calloc(words, sizeof *data), *scale = mem_calloc(scales, sizeof *scale);
    float *x = mem_calloc(CHECK_ROWS, k * sizeof *x);
    temper_status status = TEMPER_OK;
    if (data == NULL || scale == NULL || x == NULL)
        status = error_set(err, TEMPER_NO_MEMORY, "no memory to check the device");
    for (uint64_t i = 0; status == TEMPER_OK && i < words; i++)
        data[i] = (uint32_t)random_u64(&random);
    for (uint64_t i = 0; status == TEMPER_OK && i < scales; i++) {
        const uint32_t low = f32_to_f16((float)(0.01 + 0.02 * random_unit(&random)));
        scale[i] = low | (uint32_t)f32_to_f16((float)(0.01 + 0.02 * random_unit(&random))) << 16;
    }
    for (uint64_t i = 0; status == TEMPER_OK && i < (uint64_t)CHECK_ROWS * k; i++)
        x[i] = (float)random_normal(&random);
    if (status == TEMPER_OK)
        status = op_weight_create(device, format, CHECK_COLS, k, "device check", &t->weight, err);
    if (status == TEMPER_OK)
        status = op_weight_write_rows(t->weight, 0, CHECK_COLS,
                                      (weight_planes){{data, NULL, scale}}, err);
    if (status == TEMPER_OK)
        status = gpu_write(device, t->x, 0, x, (uint64_t)CHECK_ROWS * k * 4, err);
    mem_free(data);
    mem_free(scale);
    mem_free(x);
    return status;
}

static temper_status trial_open(trial *t, gpu_device *device, uint32_t k, error *err)
{
    const uint64_t y_bytes = (uint64_t)CHECK_ROWS * CHECK_COLS * 4;
    const scratch_plan half = plan(device, CHECK_COLS, k, CHECK_ROWS, true);
    const uint64_t scratch =
        max_u64(half.size, plan(device, CHECK_COLS, k, CHECK_ROWS, false).size);
    t->got = mem_calloc(1, y_bytes);
    t->want = mem_calloc(1, y_bytes);
    if (t->got == NULL || t->want == NULL)
        return error_set(err, TEMPER_NO_MEMORY, "no memory to check the device");
    temper_status status = gpu_buffer_create(device, (uint64_t)CHECK_ROWS * k * 4,
                                             GPU_PURPOSE_SCRATCH, "device check x", &t->x, err);
    if (status == TEMPER_OK)
        status =
            gpu_buffer_create(device, y_bytes, GPU_PURPOSE_SCRATCH, "device check y", &t->y, err);
    if (status == TEMPER_OK)
        status = gpu_buffer_create(device, scratch, GPU_PURPOSE_SCRATCH, "device check scratch",
                                   &t->scratch, err);
    if (status == TEMPER_OK)
        status = gpu_buffer_create(device, half.sums, GPU_PURPOSE_SCRATCH, "device check sums",
                                   &t->sums, err);
    return status == TEMPER_OK ? trial_fill(t, device, k, err) : status;
}

/* One product by the row, or with NULL as op_matmul computes it. */
static temper_status trial_run(trial *t, gpu_device *device, const op_kernel_row *row, float *out,
                               error *err)
{
    gpu_recorder *rec = gpu_record_begin(device);
    const gpu_view y = gpu_whole(t->y);
    const op_products with = {.scratch = gpu_whole(t->scratch), .sums = gpu_whole(t->sums)};
    if (row == NULL)
        op_matmul(rec, t->weight, gpu_whole(t->x), y, CHECK_ROWS, OP_WRITE);
    else
        op_record_product(rec, t->weight, row, gpu_whole(t->x), y, CHECK_ROWS, 0, CHECK_COLS,
                          OP_WRITE, &with);
    gpu_record_readback(rec, y);
    gpu_ticket ticket = {0};
    const temper_status status = gpu_submit(rec, &ticket, err);
    return status == TEMPER_OK ? gpu_wait(device, ticket, out, y.size, err) : status;
}

/* Largest difference under 1 % of the mean magnitude, mean difference under 0.5 % of it. */
static bool close_enough(const float *got, const float *want, uint64_t count)
{
    double size = 0, largest = 0, sum = 0;
    for (uint64_t i = 0; i < count; i++) {
        const double off = fabs((double)got[i] - (double)want[i]);
        if (!isfinite(got[i]))
            return false;
        size += fabs((double)want[i]);
        largest = fmax(largest, off);
        sum += off;
    }
    return largest < 0.01 * size / (double)count && sum < 0.005 * size;
}

temper_status op_row_agrees(gpu_device *device, const op_kernel_row *row, bool *agrees, error *err)
{
    static const uint32_t ks[] = {32, 576, 2048, 8192};
    *agrees = true;
    for (uint32_t i = 0; *agrees && i < sizeof ks / sizeof *ks; i++) {
        trial t = {0};
        temper_status status = trial_open(&t, device, ks[i], err);
        if (status == TEMPER_OK)
            status = trial_run(&t, device, NULL, t.want, err);
        if (status == TEMPER_OK)
            status = trial_run(&t, device, row, t.got, err);
        if (status == TEMPER_OK)
            *agrees = close_enough(t.got, t.want, (uint64_t)CHECK_ROWS * CHECK_COLS);
        trial_close(&t);
        if (status != TEMPER_OK)
            return status;
    }
    return TEMPER_OK;
}

/* Whether the row is good, and why not where it is not. Memory that is lacking and a device that
 * has failed are errors; a kernel that the driver does not take is a row that is no good. */
static temper_status judge(gpu_device *device, const op_kernel_row *row, bool *good, error *why,
                           error *err)
{
    const temper_status status = op_row_agrees(device, row, good, why);
    if (status == TEMPER_OK && !*good)
        error_set(why, TEMPER_INTERNAL, "its results are wrong");
    if (status == TEMPER_OK)
        return TEMPER_OK;
    if (status == TEMPER_NO_MEMORY || status == TEMPER_DEVICE_MEMORY)
        return error_set(err, status, "%s", why->text);
    const temper_status device_status = gpu_device_status(device, err);
    if (device_status == TEMPER_OK)
        gpu_pipelines_wait(device, NULL); /* what it tells is told here */
    *good = false;
    return device_status;
}

temper_status op_matmul_check(gpu_device *device, bool *half, error *err)
{
    *half = (gpu_device_marks(device) & MARK_HALF_GOOD) != 0;
    if (gpu_device_marks(device) & MARK_CHECKED)
        return TEMPER_OK;
    bool any = false, good = true;
    for (uint32_t i = 0; good && i < op_table_matmul.count; i++) {
        const op_kernel_row *row = &op_table_matmul.rows[i];
        if (!is_half(row) || !op_row_runs(device, row))
            continue;
        any = true;
        error why = {0};
        const temper_status status = judge(device, row, &good, &why, err);
        if (status != TEMPER_OK)
            return status;
        if (!good)
            log_message(LOG_WARNING, "%s does not multiply f16 matrices (%s): products stay in f32",
                        gpu_device_adapter(device)->name, why.text);
    }
    *half = any && good;
    gpu_device_mark(device, MARK_CHECKED | (*half ? MARK_HALF_GOOD : 0u));
    return TEMPER_OK;
}
