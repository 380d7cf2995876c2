/*
 * bias.c - a vector added to every row: the bias of a product.
 */
#include "base/checked.h"
#include "kernels/kernels.gen.h"
#include "op/op.h"
#include "op/rows.h"

static const op_kernel_row rows_of_bias[] = {
    {.name = "element", .kernel = &kernel_bias, .invocations = 64, .why = "bound by memory"},
};

const op_table op_table_bias = {"bias", rows_of_bias, 1};

void op_bias(gpu_recorder *rec, gpu_view y, gpu_view bias, uint32_t rows, uint32_t cols)
{
    const uint64_t row_bytes = (uint64_t)cols * 4;
    if (rows == 0 || cols == 0 || !op_check_view(rec, "bias", "y", y, rows * row_bytes) ||
        !op_check_view(rec, "bias", "bias", bias, row_bytes))
        return;
    gpu_device *device = gpu_recorder_device(rec);
    gpu_pipeline *pipeline = kernel_bias_get(device);
    const uint64_t step = min_u64(op_rows_that_bind(device, rows, row_bytes),
                                  op_cut(device, rows, (uint64_t)cols * 8, 64));
    for (uint64_t row = 0; row < rows; row += step) {
        const uint64_t count = min_u64(step, rows - row);
        const op_grid grid = op_fold(device, ceil_div(count * cols, 64));
        const struct kernel_bias_views views = {.y = op_view_rows(device, y, row, count, row_bytes),
                                                .bias = bias};
        const struct kernel_bias_params params = {.count = (uint32_t)(count * cols), .cols = cols};
        gpu_record_work(rec, count * cols * 8 + row_bytes, count * cols);
        kernel_bias_dispatch(rec, pipeline, &views, &params, grid.x, grid.y, 1);
    }
}
