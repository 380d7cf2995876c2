/*
 * layernorm.c - the norm of rows by mean and variance.
 */
#include "base/checked.h"
#include "kernels/kernels.gen.h"
#include "op/op.h"
#include "op/rows.h"

static const op_kernel_row rows_of_layernorm[] = {
    {.name = "row_a_workgroup",
     .kernel = &kernel_layernorm,
     .invocations = 64,
     .workgroup_memory = 512,
     .why = "two barriers a row; the variance from differences, in f32 as 64 short sums"},
};

const op_table op_table_layernorm = {"layernorm", rows_of_layernorm, 1};

void op_layernorm(gpu_recorder *rec, gpu_view x, gpu_view weight, gpu_view bias, gpu_view y,
                  uint32_t rows, uint32_t cols, float eps)
{
    const uint64_t row_bytes = (uint64_t)cols * 4;
    if (rows == 0 || cols == 0 || !op_check_view(rec, "layernorm", "x", x, rows * row_bytes) ||
        !op_check_view(rec, "layernorm", "weight", weight, row_bytes) ||
        !op_check_view(rec, "layernorm", "bias", bias, row_bytes) ||
        !op_check_view(rec, "layernorm", "y", y, rows * row_bytes))
        return;
    gpu_device *device = gpu_recorder_device(rec);
    gpu_pipeline *pipeline = kernel_layernorm_get(device);
    const uint64_t step = min_u64(op_rows_that_bind(device, rows, row_bytes),
                                  op_cut(device, rows, (uint64_t)cols * 12, 64));
    for (uint64_t row = 0; row < rows; row += step) {
        const uint64_t count = min_u64(step, rows - row);
        const op_grid grid = op_fold(device, count);
        const struct kernel_layernorm_views views = {
            .x = op_view_rows(device, x, row, count, row_bytes),
            .weight = weight,
            .bias = bias,
            .y = op_view_rows(device, y, row, count, row_bytes),
        };
        const struct kernel_layernorm_params params = {
            .rows = (uint32_t)count, .cols = cols, .eps = eps};
        gpu_record_work(rec, (count + 1) * row_bytes * 2, count * cols * 8);
        kernel_layernorm_dispatch(rec, pipeline, &views, &params, grid.x, grid.y, 1);
    }
}
