/*
 * best.c - the chosen tokens' logits and the largest ones, for log-probabilities.
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

void op_best(gpu_recorder *rec, gpu_view logits, gpu_view chosen, gpu_view out, uint32_t first,
             uint32_t rows, uint32_t vocab, uint32_t count)
{
    const uint64_t places = (uint64_t)first + rows;
    assert(count <= OP_MAX_BEST);
    if (rows == 0 || vocab == 0 ||
        !op_check_view(rec, "best", "logits", logits, (uint64_t)rows * vocab * 4) ||
        !op_check_view(rec, "best", "chosen", chosen, places * 4) ||
        !op_check_view(rec, "best", "out", out, places * (count + 1) * sizeof(op_scored)))
        return;
    const struct kernel_best_views views = {.logits = logits, .chosen = chosen, .out = out};
    const struct kernel_best_params params = {
        .rows = rows, .vocab = vocab, .first = first, .count = count};
    gpu_device *device = gpu_recorder_device(rec);
    const op_grid grid = op_fold(device, rows);
    gpu_record_work(rec, (uint64_t)rows * vocab * 4, ((uint64_t)count + 1) * rows * vocab);
    kernel_best_dispatch(rec, kernel_best_get(device), &views, &params, grid.x, grid.y, 1);
}
