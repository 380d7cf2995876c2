/*
 * sample.c - the next token, chosen on the GPU over the whole vocabulary.
 */
#include <assert.h>

#include "base/checked.h"
#include "kernels/kernels.gen.h"
#include "op/op.h"
#include "op/rows.h"

static const op_kernel_row rows_of_sample[] = {
    {.name = "row_a_workgroup",
     .kernel = &kernel_sample,
     .invocations = 256,
     .workgroup_memory = 6404,
     .why = "thresholds by digits of the order-preserving key instead of a sort, noise by id "
            "instead of a running sum"},
};

const op_table op_table_sample = {"sample", rows_of_sample, 1};

void op_sample(gpu_recorder *rec, gpu_view logits, gpu_view ids, uint32_t rows, uint32_t vocab,
               const op_sample_params *p)
{
    if (rows == 0 || vocab == 0 ||
        !op_check_view(rec, "sample", "logits", logits, (uint64_t)rows * vocab * 4) ||
        !op_check_view(rec, "sample", "ids", ids, (uint64_t)rows * 4))
        return;
    /* Written so that NaN fails. */
    const bool sound = p->temperature >= 0.0f && p->temperature < 3.0e38f && p->top_p >= 0.0f &&
                       p->min_p >= 0.0f && p->min_p <= 1.0f && vocab <= 1u << 24;
    if (!sound) {
        gpu_record_fail(rec, TEMPER_BAD_ARGUMENT,
                        "sample: temperature %g, top-p %g, min-p %g over %u tokens",
                        (double)p->temperature, (double)p->top_p, (double)p->min_p, vocab);
        return;
    }
    gpu_device *device = gpu_recorder_device(rec);
    const struct kernel_sample_views views = {.logits = logits, .ids = ids};
    const struct kernel_sample_params params = {
        .rows = rows,
        .vocab = vocab,
        .top_k = p->top_k,
        .top_p = p->top_p,
        .min_p = p->min_p,
        .temperature = p->temperature > 1e-6f ? p->temperature : 0.0f,
        .seed_low = (uint32_t)p->seed,
        .seed_high = (uint32_t)(p->seed >> 32),
        .position = p->position,
        .first_filter = p->top_k > 0 && p->top_k < vocab ? 0 : 1,
        .filter_end = p->top_p < 1.0f ? 2 : 1,
        .digits = 8,
    };
    const op_grid grid = op_fold(device, rows);
    kernel_sample_dispatch(rec, kernel_sample_get(device), &views, &params, grid.x, grid.y, 1);
}
