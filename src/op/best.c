/*
 * best.c - the chosen token's logit and the largest ones, for log-probabilities.
 */
#include <assert.h>

#include "kernels/kernels.gen.h"
#include "op/op.h"
#include "op/rows.h"

static const op_kernel_row rows_of_best[] = {
    {.name = "one_workgroup",
     .kernel = &kernel_best,
     .invocations = 256,
     .workgroup_memory = 2048,
     .why = "a pass over the vocabulary for each place: no sort for a few places"},
};

const op_table op_table_best = {"best", rows_of_best, 1};

void op_best(gpu_recorder *rec, gpu_view logits, gpu_view chosen, gpu_view out, uint32_t vocab,
             uint32_t count)
{
    assert(count <= OP_MAX_BEST);
    if (vocab == 0 || !op_check_view(rec, "best", "logits", logits, (uint64_t)vocab * 4) ||
        !op_check_view(rec, "best", "chosen", chosen, 4) ||
        !op_check_view(rec, "best", "out", out, (count + 1) * sizeof(op_scored)))
        return;
    const struct kernel_best_views views = {.logits = logits, .chosen = chosen, .out = out};
    const struct kernel_best_params params = {.vocab = vocab, .count = count};
    kernel_best_dispatch(rec, kernel_best_get(gpu_recorder_device(rec)), &views, &params, 1, 1, 1);
}
