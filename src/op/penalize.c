/*
 * penalize.c - repetition, presence and frequency penalties over a window of the text.
 */
#include "base/checked.h"
#include "kernels/kernels.gen.h"
#include "op/op.h"
#include "op/rows.h"

static const op_kernel_row rows_of_penalize[] = {
    {.name = "place",
     .kernel = &kernel_penalize,
     .invocations = 64,
     .why = "a lane a place of the window, which is short beside a vocabulary"},
};

const op_table op_table_penalize = {"penalize", rows_of_penalize, 1};

void op_penalize(gpu_recorder *rec, gpu_view logits, gpu_view history, uint32_t row, uint32_t vocab,
                 const op_penalties *penalties)
{
    const uint64_t end = (uint64_t)penalties->first + penalties->count;
    if (vocab == 0 || penalties->count == 0 ||
        !op_check_view(rec, "penalize", "logits", logits, ((uint64_t)row + 1) * vocab * 4) ||
        !op_check_view(rec, "penalize", "history", history, end * 4))
        return;
    gpu_device *device = gpu_recorder_device(rec);
    const op_grid grid = op_fold(device, ceil_div(penalties->count, 64));
    const struct kernel_penalize_views views = {.history = history, .logits = logits};
    const struct kernel_penalize_params params = {
        .vocab = vocab,
        .row = row,
        .first = penalties->first,
        .count = penalties->count,
        .repeat = penalties->repeat,
        .presence = penalties->presence,
        .frequency = penalties->frequency,
    };
    gpu_record_work(rec, (uint64_t)penalties->count * 12, penalties->count);
    kernel_penalize_dispatch(rec, kernel_penalize_get(device), &views, &params, grid.x, grid.y, 1);
}
