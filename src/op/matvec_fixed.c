/*
 * matvec_fixed.c - the product of one row in 16-bit fixed point, with a norm before it or a gate
 * after it.
 */
#include <assert.h>

#include "base/checked.h"
#include "kernels/kernels.gen.h"
#include "op/op.h"
#include "op/rows.h"

/* How the work of a weight of n rows by k is laid out; the first row that fits is taken. Measured
 * on an H200 (lab/RESULTS.md): a lane has two to eight blocks of a column, so that every workgroup
 * has about as many lanes as eights to turn into fixed point, and as many blocks in flight as
 * registers hold; two columns a lane as soon as there are workgroups for all multiprocessors. */
typedef struct fixed_plan {
    uint64_t least_k, least_n;
    uint32_t cols, rows, ahead;
    uint32_t blocks, lanes; /* of a column for each lane, unless that takes more lanes than these */
} fixed_plan;

static const fixed_plan plans[] = {
    {1024, 24576, 32, 2, 4, 8, 512}, /* heads, and gates of wide models */
    {1024, 12288, 16, 2, 2, 4, 512}, /* gates */
    {8193, 0, 32, 1, 4, 8, 512},     /* the way back from a wide gate */
    {3072, 0, 16, 1, 2, 4, 1024},    {1024, 3072, 16, 1, 2, 4, 1024}, {1024, 0, 8, 1, 2, 2, 1024},
    {0, 12288, 16, 2, 1, 2, 512},    {0, 0, 16, 1, 2, 2, 512},
};

static fixed_plan plan_of(uint64_t n, uint64_t k, bool gated, uint64_t most_lanes)
{
    enum { LEAST_LANES = 32 };
    const fixed_plan *found = plans;
    while (k < found->least_k || n < found->least_n)
        found++;
    fixed_plan plan = *found;
    if (gated) /* both columns of a gate are a lane's */
        plan.rows = 2;
    const uint64_t wanted = ceil_div(k / WEIGHT_BLOCK, plan.blocks) * plan.cols;
    const uint64_t most = min_u64(plan.lanes, most_lanes) / plan.cols * plan.cols;
    plan.lanes = (uint32_t)max_u64(min_u64(wanted, most), LEAST_LANES);
    return plan;
}

static uint32_t scratch_words(uint64_t k, const fixed_plan *plan)
{
    return (uint32_t)max_u64(k / 8 + plan->lanes, (uint64_t)plan->lanes * plan->rows);
}

bool op_fixed_fits(const op_shape *shape)
{
    enum { OTHER_BYTES = 256 }; /* of workgroup memory */
    const weight_format f = shape->format;
    if (!shape->fixed || shape->rows != 1 || shape->k % WEIGHT_BLOCK != 0 || f.layout < LAYOUT_Q8 ||
        (f.scale < SCALE_K && f.group % WEIGHT_BLOCK != 0))
        return false;
    const fixed_plan plan = plan_of(shape->n, shape->k, true, shape->invocations);
    return 16 * (shape->k / 8 + shape->k / 32) + 4 * scratch_words(shape->k, &plan) + OTHER_BYTES <=
           shape->workgroup_memory;
}

void op_record_fixed(gpu_recorder *rec, const op_weight *w, const op_weight_part *part,
                     const op_kernel_row *row, const op_prologue *before, op_gate gate, gpu_view x,
                     gpu_view y, uint64_t column, op_mode mode)
{
    gpu_device *device = gpu_recorder_device(rec);
    const bool normed = before->kind == OP_PROLOGUE_RMSNORM, gated = gate != OP_GATE_NONE;
    const gpu_limits *limits = gpu_device_limits(device);
    const fixed_plan plan =
        plan_of(w->n, w->k, gated, min_u64(limits->max_invocations, limits->max_workgroup_x));
    const struct kernel_matvec_fixed_options options = {
        .layout = (uint32_t)w->format.layout,
        .scale = (uint32_t)w->format.scale,
        .group = w->format.group,
        .accumulate = mode == OP_ACCUMULATE,
        .norm = normed,
        .gate = (uint32_t)gate,
        .bytes = row->lossy != 0 ? 1 : 2,
        .eighths = (uint32_t)(w->k / 8),
        .units = (uint32_t)(w->k / WEIGHT_BLOCK),
        .lanes = plan.lanes,
        .cols = plan.cols,
        .scratch = scratch_words(w->k, &plan),
        .rows = plan.rows,
        .ahead = plan.ahead,
        .turns = (uint32_t)ceil_div(w->k / 8, plan.lanes),
    };
    assert(before->kind != OP_PROLOGUE_SILU_GATE);
    assert(!gated || (w->part_count == 1 && w->n % 2 == 0 && mode == OP_WRITE));
    gpu_pipeline *pipeline = kernel_matvec_fixed_get(device, &options);
    const gpu_view data = gpu_whole(part->data);
    const struct kernel_matvec_fixed_views views = {
        .data = data,
        .high_bits = part->high != NULL ? gpu_whole(part->high) : data,
        .scales = gpu_whole(part->scales),
        .x = x,
        .norm = normed ? before->weight : x,
        .y = y,
    };
    struct kernel_matvec_fixed_params params = {
        .k = (uint32_t)w->k,
        .stride = (uint32_t)part->stride,
        .cols = (uint32_t)(gated ? part->rows / 2 : part->rows),
        .col0 = (uint32_t)(column + part->row0),
        .eps = before->eps,
    };
    const uint32_t width = plan.cols * plan.rows; /* rows of the weight a tile */
    const uint64_t tiles = ceil_div(params.cols, gated ? plan.cols : width);
    const uint64_t step = op_cut(device, tiles, width * w->k, 1);
    assert(tiles <= UINT32_MAX);
    op_record_product_work(rec, w->format, part->rows, w->k, 1, mode);
    for (uint64_t first = 0; first < tiles; first += step) {
        params.first_tile = (uint32_t)first;
        params.tile_end = (uint32_t)min_u64(first + step, tiles);
        const op_grid grid = op_fold(device, params.tile_end - params.first_tile);
        kernel_matvec_fixed_dispatch(rec, pipeline, &views, &params, grid.x, grid.y, 1);
    }
}
