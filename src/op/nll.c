/*
 * nll.c - the negative log-likelihood of given tokens, for perplexity.
 */
#include "base/checked.h"
#include "kernels/kernels.gen.h"
#include "op/op.h"
#include "op/rows.h"

static const op_kernel_row rows_of_nll[] = {
    {.name = "row_a_workgroup",
     .kernel = &kernel_nll,
     .invocations = 256,
     .workgroup_memory = 1088,
     .why = "maximum, then sum, in two passes over a row"},
};

const op_table op_table_nll = {"nll", rows_of_nll, 1};

void op_nll(gpu_recorder *rec, gpu_view logits, gpu_view targets, gpu_view out, uint32_t first,
            uint32_t rows, uint32_t vocab)

{
    const uint64_t places = (uint64_t)first + rows;
    if (rows == 0 || vocab == 0 ||
        !op_check_view(rec, "nll", "logits", logits, (uint64_t)rows * vocab * 4) ||
        !op_check_view(rec, "nll", "targets", targets, places * 4) ||
        !op_check_view(rec, "nll", "out", out, places * 4))
        return;
    gpu_device *device = gpu_recorder_device(rec);
    gpu_pipeline *pipeline = kernel_nll_get(device);
    const struct kernel_nll_views views = {.logits = logits, .targets = targets, .out = out};
    const uint64_t step = op_cut(device, rows, (uint64_t)vocab * 32, 1);
    for (uint64_t row = 0; row < rows; row += step) {
        const struct kernel_nll_params params = {
            .row0 = (uint32_t)row,
            .row_end = (uint32_t)min_u64(row + step, rows),
            .vocab = vocab,
            .first = first,
        };
        const op_grid grid = op_fold(device, params.row_end - params.row0);
        const uint64_t values = (uint64_t)(params.row_end - params.row0) * vocab;
        gpu_record_work(rec, values * 4, values * 3);
        kernel_nll_dispatch(rec, pipeline, &views, &params, grid.x, grid.y, 1);
    }
}
