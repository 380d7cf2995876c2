/*
 * sample.c - the next token, chosen on the GPU over the whole vocabulary.
 */
#include <assert.h>

#include "base/checked.h"
#include "kernels/kernels.gen.h"
#include "op/op.h"
#include "op/rows.h"

enum { MAX_SLICES = 256, SLICE_AT_LEAST = 512 };

/* Slices of a vocabulary for the two-step argmax. */
static uint32_t slices_of(uint32_t vocab)
{
    const uint32_t slices = vocab / SLICE_AT_LEAST;
    return slices > MAX_SLICES ? MAX_SLICES : slices > 0 ? slices : 1;
}

static bool is_greedy(const op_shape *shape)
{
    return shape->greedy && shape->n >= 4 * SLICE_AT_LEAST;
}

static const op_kernel_row rows_of_sample[] = {
    {.name = "greedy_slices",
     .kernel = &kernel_argmax_parts,
     .invocations = 64,
     .workgroup_memory = 512,
     .fits = is_greedy,
     .gpu_only = true,
     .why = "temperature 0 on a GPU: a large vocabulary is read by many workgroups, then joined"},
    {.name = "row_a_workgroup",
     .kernel = &kernel_sample,
     .invocations = 256,
     .workgroup_memory = 6404,
     .why = "thresholds by digits of the order-preserving key instead of a sort, noise by id "
            "instead of a running sum"},
};

const op_table op_table_sample = {"sample", rows_of_sample,
                                  sizeof rows_of_sample / sizeof *rows_of_sample};

uint64_t op_sample_scratch_bytes(uint32_t rows, uint32_t vocab)
{
    return (uint64_t)rows * slices_of(vocab) * 2 * sizeof(uint32_t);
}

static void record_greedy(gpu_recorder *rec, gpu_view logits, gpu_view scratch, gpu_view ids,
                          uint32_t first, uint32_t rows, uint32_t vocab)
{
    gpu_device *device = gpu_recorder_device(rec);
    const uint32_t slices = slices_of(vocab);
    const struct kernel_argmax_parts_views views = {.logits = logits, .parts = scratch};
    struct kernel_argmax_parts_params params = {
        .vocab = vocab, .slices = slices, .slice = ceil_div_u32(vocab, slices)};
    gpu_pipeline *pipeline = kernel_argmax_parts_get(device);
    const uint64_t parts = (uint64_t)rows * slices;
    const uint64_t step = op_cut(device, parts, params.slice, 1);
    for (uint64_t part = 0; part < parts; part += step) {
        params.first_part = (uint32_t)part;
        params.part_end = (uint32_t)min_u64(part + step, parts);
        const op_grid grid = op_fold(device, params.part_end - params.first_part);
        const uint64_t values = (uint64_t)(params.part_end - params.first_part) * params.slice;
        gpu_record_work(rec, values * 4, values);
        kernel_argmax_parts_dispatch(rec, pipeline, &views, &params, grid.x, grid.y, 1);
    }
    const struct kernel_argmax_join_views join = {.parts = scratch, .chosen = ids};
    const struct kernel_argmax_join_params join_params = {
        .rows = rows, .slices = slices, .first = first};
    const op_grid grid = op_fold(device, rows);
    gpu_record_work(rec, parts * 8, parts);
    kernel_argmax_join_dispatch(rec, kernel_argmax_join_get(device), &join, &join_params, grid.x,
                                grid.y, 1);
}

/* Written so that NaN fails. */
static bool is_sound(const op_sample_params *p)
{
    return p->temperature >= 0.0f && p->temperature < 3.0e38f && p->top_p >= 0.0f &&
           p->min_p >= 0.0f && p->min_p <= 1.0f;
}

static bool check(gpu_recorder *rec, uint32_t rows, uint32_t vocab, const op_sample_params *params)
{
    for (uint32_t r = 0; r < rows; r++) {
        if (vocab <= 1u << 24 && is_sound(&params[r]))
            continue;
        gpu_record_fail(
            rec, TEMPER_BAD_ARGUMENT, "sample: temperature %g, top-p %g, min-p %g over %u tokens",
            (double)params[r].temperature, (double)params[r].top_p, (double)params[r].min_p, vocab);
        return false;
    }
    return true;
}

void op_sample(gpu_recorder *rec, gpu_view logits, gpu_view choices, gpu_view scratch, gpu_view ids,
               uint32_t first, uint32_t rows, uint32_t vocab, const op_sample_params *params)
{
    const uint64_t places = (uint64_t)first + rows;
    if (rows == 0 || vocab == 0 ||
        !op_check_view(rec, "sample", "logits", logits, (uint64_t)rows * vocab * 4) ||
        !op_check_view(rec, "sample", "choices", choices, places * sizeof *params) ||
        !op_check_view(rec, "sample", "scratch", scratch, op_sample_scratch_bytes(rows, vocab)) ||
        !op_check_view(rec, "sample", "ids", ids, places * 4) || !check(rec, rows, vocab, params))
        return;
    gpu_device *device = gpu_recorder_device(rec);
    op_shape shape = {.rows = rows, .n = vocab, .greedy = true};
    for (uint32_t r = 0; r < rows; r++)
        shape.greedy = shape.greedy && params[r].temperature <= 1e-6f;
    if (op_choose(device, &op_table_sample, &shape)->kernel == &kernel_argmax_parts) {
        record_greedy(rec, logits, scratch, ids, first, rows, vocab);
        return;
    }
    const struct kernel_sample_views views = {.logits = logits, .choices = choices, .ids = ids};
    const struct kernel_sample_params sample_params = {
        .rows = rows, .vocab = vocab, .first = first, .digits = 8};
    const op_grid grid = op_fold(device, rows);
    gpu_record_work(rec, (uint64_t)rows * vocab * 4, (uint64_t)rows * vocab * 2);
    kernel_sample_dispatch(rec, kernel_sample_get(device), &views, &sample_params, grid.x, grid.y,
                           1);
}
