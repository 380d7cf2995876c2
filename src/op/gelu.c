/*
 * gelu.c - gelu in its tanh form, alone (GPT-2) and as a gate (Gemma).
 */
#include "base/checked.h"
#include "kernels/kernels.gen.h"
#include "op/op.h"
#include "op/rows.h"

static const op_kernel_row rows_of_gelu[] = {
    {.name = "element", .kernel = &kernel_gelu, .invocations = 64, .why = "bound by memory"},
};
static const op_kernel_row rows_of_gelu_gate[] = {
    {.name = "element", .kernel = &kernel_gelu_gate, .invocations = 64, .why = "bound by memory"},
};

const op_table op_table_gelu = {"gelu", rows_of_gelu, 1};
const op_table op_table_gelu_gate = {"gelu_gate", rows_of_gelu_gate, 1};

void op_gelu(gpu_recorder *rec, gpu_view x, gpu_view out, uint64_t count)
{
    if (count == 0 || !op_check_view(rec, "gelu", "x", x, count * 4) ||
        !op_check_view(rec, "gelu", "out", out, count * 4))
        return;
    gpu_device *device = gpu_recorder_device(rec);
    gpu_pipeline *pipeline = kernel_gelu_get(device);
    const uint64_t step =
        min_u64(op_rows_that_bind(device, count, 4), op_cut(device, count, 16, 64));
    for (uint64_t at = 0; at < count; at += step) {
        const uint64_t some = min_u64(step, count - at);
        const op_grid grid = op_fold(device, ceil_div(some, 64));
        const struct kernel_gelu_views views = {
            .x = op_view_rows(device, x, at, some, 4),
            .out = op_view_rows(device, out, at, some, 4),
        };
        const struct kernel_gelu_params params = {.count = (uint32_t)some};
        gpu_record_work(rec, some * 8, some * 8);
        kernel_gelu_dispatch(rec, pipeline, &views, &params, grid.x, grid.y, 1);
    }
}

void op_gelu_gate(gpu_recorder *rec, gpu_view gate_up, gpu_view out, uint32_t rows, uint32_t f)
{
    const uint64_t in_bytes = (uint64_t)f * 8, out_bytes = (uint64_t)f * 4;
    if (rows == 0 || f == 0 ||
        !op_check_view(rec, "gelu_gate", "gate_up", gate_up, rows * in_bytes) ||
        !op_check_view(rec, "gelu_gate", "out", out, rows * out_bytes))
        return;
    gpu_device *device = gpu_recorder_device(rec);
    gpu_pipeline *pipeline = kernel_gelu_gate_get(device);
    const uint64_t step = min_u64(op_rows_that_bind(device, rows, in_bytes),
                                  op_cut(device, rows, (uint64_t)f * 16, 64));
    for (uint64_t row = 0; row < rows; row += step) {
        const uint64_t count = min_u64(step, rows - row);
        const op_grid grid = op_fold(device, ceil_div(count * f, 64));
        const struct kernel_gelu_gate_views views = {
            .gate_up = op_view_rows(device, gate_up, row, count, in_bytes),
            .out = op_view_rows(device, out, row, count, out_bytes),
        };
        const struct kernel_gelu_gate_params params = {.count = (uint32_t)(count * f), .f = f};
        gpu_record_work(rec, count * f * 12, count * f * 9);
        kernel_gelu_gate_dispatch(rec, pipeline, &views, &params, grid.x, grid.y, 1);
    }
}
