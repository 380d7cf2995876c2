/*
 * lookup.c - rows of a weight as f32: the embedding, and the proof that every format is decoded
 * exactly.
 */
#include <assert.h>
#include <inttypes.h>

#include "base/checked.h"
#include "kernels/kernels.gen.h"
#include "op/op.h"
#include "op/rows.h"

static const op_kernel_row rows_of_lookup[] = {
    {.name = "eighth",
     .kernel = &kernel_lookup,
     .invocations = 64,
     .why = "one lane eight elements: exact in every format, and small beside the rest of a step"},
};

const op_table op_table_lookup = {"lookup", rows_of_lookup, 1};

typedef struct lookup {
    bool by_id;
    gpu_view ids;   /* by_id */
    uint64_t first; /* else: the first row */
    float scale;
} lookup;

static void record_part(gpu_recorder *rec, const op_weight *w, uint32_t index, const lookup *what,
                        gpu_view out, uint32_t rows)
{
    gpu_device *device = gpu_recorder_device(rec);
    const op_weight_part *part = &w->parts[index];
    const struct kernel_lookup_options options = {
        .layout = (uint32_t)w->format.layout,
        .scale = (uint32_t)w->format.scale,
        .group = w->format.group ? w->format.group : 8,
        .by_id = what->by_id,
    };
    gpu_pipeline *pipeline = kernel_lookup_get(device, &options);
    const gpu_view data = gpu_whole(part->data);
    const struct kernel_lookup_views views = {
        .data = data,
        .high_bits = part->high != NULL ? gpu_whole(part->high) : data,
        .scales = part->scales != NULL ? gpu_whole(part->scales) : data,
        .ids = what->by_id ? what->ids : data,
        .out = out,
    };
    struct kernel_lookup_params params = {
        .rows = rows,
        .k = (uint32_t)w->k,
        .row0 = (uint32_t)part->row0,
        .part_rows = (uint32_t)part->rows,
        .n_total = (uint32_t)w->n,
        .first = (uint32_t)what->first,
        .stride = (uint32_t)part->stride,
        .scale = what->scale,
    };
    const uint64_t step = op_cut(device, rows, w->k * 8, 1);
    for (uint64_t row = 0; row < rows; row += step) {
        const uint64_t count = min_u64(step, rows - row);
        const op_grid grid = op_fold(device, ceil_div(count * ceil_div(w->k, 8), 64));
        params.row_base = (uint32_t)row;
        params.rows = (uint32_t)(row + count);
        gpu_record_work(rec, op_weight_bytes(w->format, count, w->k) + count * w->k * 4,
                        count * w->k * 2);
        kernel_lookup_dispatch(rec, pipeline, &views, &params, grid.x, grid.y, 1);
    }
}

void op_embed(gpu_recorder *rec, const op_weight *weight, gpu_view ids, gpu_view out, uint32_t rows,
              float scale)
{
    if (rows == 0 || !op_check_view(rec, "embed", "ids", ids, (uint64_t)rows * 4) ||
        !op_check_view(rec, "embed", "out", out, (uint64_t)rows * weight->k * 4))
        return;
    const lookup what = {.by_id = true, .ids = ids, .scale = scale};
    for (uint32_t i = 0; i < weight->part_count; i++)
        record_part(rec, weight, i, &what, out, rows);
}

void op_dequantize(gpu_recorder *rec, const op_weight *weight, uint64_t row0, uint32_t rows,
                   gpu_view out)
{
    if (rows == 0 || !op_check_view(rec, "dequantize", "out", out, (uint64_t)rows * weight->k * 4))
        return;
    if (row0 > weight->n || rows > weight->n - row0) {
        gpu_record_fail(rec, TEMPER_BAD_ARGUMENT,
                        "dequantize: %s has %" PRIu64 " rows, not %" PRIu64, weight->label,
                        weight->n, row0 + rows);
        return;
    }
    const lookup what = {.by_id = false, .first = row0, .scale = 1.0f};
    for (uint32_t i = 0; i < weight->part_count; i++) {
        const op_weight_part *part = &weight->parts[i];
        if (part->row0 < row0 + rows && row0 < part->row0 + part->rows)
            record_part(rec, weight, i, &what, out, rows);
    }
}
