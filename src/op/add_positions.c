/*
 * add_positions.c - learned positions.
 */
#include "base/checked.h"
#include "kernels/kernels.gen.h"
#include "op/op.h"
#include "op/rows.h"

static const op_kernel_row rows_of_add_positions[] = {
    {.name = "element", .kernel = &kernel_add_positions, .invocations = 64, .why = "once a step"},
};

const op_table op_table_add_positions = {"add_positions", rows_of_add_positions, 1};

void op_add_positions(gpu_recorder *rec, gpu_view x, gpu_view table, gpu_view row_info,
                      uint32_t rows, uint32_t cols, uint32_t positions)
{
    const uint64_t row_bytes = (uint64_t)cols * 4;
    if (rows == 0 || cols == 0 || !op_check_view(rec, "add_positions", "x", x, rows * row_bytes) ||
        !op_check_view(rec, "add_positions", "table", table, positions * row_bytes) ||
        !op_check_view(rec, "add_positions", "row_info", row_info,
                       (uint64_t)rows * sizeof(op_row_info)))
        return;
    gpu_device *device = gpu_recorder_device(rec);
    gpu_pipeline *pipeline = kernel_add_positions_get(device);
    const uint64_t step = min_u64(op_rows_that_bind(device, rows, row_bytes),
                                  op_cut(device, rows, (uint64_t)cols * 8, 64));
    for (uint64_t row = 0; row < rows; row += step) {
        const uint64_t count = min_u64(step, rows - row);
        const op_grid grid = op_fold(device, ceil_div(count * cols, 64));
        const struct kernel_add_positions_views views = {
            .x = op_view_rows(device, x, row, count, row_bytes),
            .table = table,
            .row_info = op_view_rows(device, row_info, row, count, sizeof(op_row_info)),
        };
        const struct kernel_add_positions_params params = {
            .count = (uint32_t)(count * cols), .cols = cols, .positions = positions};
        gpu_record_work(rec, count * cols * 12, count * cols);
        kernel_add_positions_dispatch(rec, pipeline, &views, &params, grid.x, grid.y, 1);
    }
}
