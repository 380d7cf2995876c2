/*
 * bias_logits.c - numbers added to the logits of some tokens.
 */
#include "base/checked.h"
#include "kernels/kernels.gen.h"
#include "op/op.h"
#include "op/rows.h"

static const op_kernel_row rows_of_bias_logits[] = {
    {.name = "pair", .kernel = &kernel_bias_logits, .invocations = 64, .why = "a handful of pairs"},
};

const op_table op_table_bias_logits = {"bias_logits", rows_of_bias_logits, 1};

void op_bias_logits(gpu_recorder *rec, gpu_view logits, gpu_view pairs, uint32_t row,
                    uint32_t vocab, uint32_t first, uint32_t count)
{
    if (vocab == 0 || count == 0 ||
        !op_check_view(rec, "bias_logits", "logits", logits, ((uint64_t)row + 1) * vocab * 4) ||
        !op_check_view(rec, "bias_logits", "pairs", pairs,
                       ((uint64_t)first + count) * sizeof(op_logit_bias)))
        return;
    gpu_device *device = gpu_recorder_device(rec);
    const op_grid grid = op_fold(device, ceil_div(count, 64));
    const struct kernel_bias_logits_views views = {.pairs = pairs, .logits = logits};
    const struct kernel_bias_logits_params params = {
        .vocab = vocab, .row = row, .first = first, .count = count};
    gpu_record_work(rec, (uint64_t)count * 16, count);
    kernel_bias_logits_dispatch(rec, kernel_bias_logits_get(device), &views, &params, grid.x,
                                grid.y, 1);
}
