/*
 * add.c - the sum of two tensors.
 */
#include "base/checked.h"
#include "kernels/kernels.gen.h"
#include "op/op.h"
#include "op/rows.h"

static const op_kernel_row rows_of_add[] = {
    {.name = "element", .kernel = &kernel_add, .invocations = 64, .why = "bound by memory"},
};

const op_table op_table_add = {"add", rows_of_add, 1};

void op_add(gpu_recorder *rec, gpu_view a, gpu_view b, gpu_view out, uint64_t count)
{
    if (count == 0 || !op_check_view(rec, "add", "a", a, count * 4) ||
        !op_check_view(rec, "add", "b", b, count * 4) ||
        !op_check_view(rec, "add", "out", out, count * 4))
        return;
    gpu_device *device = gpu_recorder_device(rec);
    gpu_pipeline *pipeline = kernel_add_get(device);
    const uint64_t step =
        min_u64(op_rows_that_bind(device, count, 4), op_cut(device, count, 8, 64));
    for (uint64_t at = 0; at < count; at += step) {
        const uint64_t some = min_u64(step, count - at);
        const op_grid grid = op_fold(device, ceil_div(some, 64));
        const struct kernel_add_views views = {
            .a = op_view_rows(device, a, at, some, 4),
            .b = op_view_rows(device, b, at, some, 4),
            .out = op_view_rows(device, out, at, some, 4),
        };
        const struct kernel_add_params params = {.count = (uint32_t)some};
        gpu_record_work(rec, some * 12, some);
        kernel_add_dispatch(rec, pipeline, &views, &params, grid.x, grid.y, 1);
    }
}
