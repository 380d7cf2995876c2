/*
 * silu_gate.c - the gate of a llama feed-forward layer.
 */
#include "base/checked.h"
#include "kernels/kernels.gen.h"
#include "op/op.h"
#include "op/rows.h"

static const op_kernel_row rows_of_silu_gate[] = {
    {.name = "element", .kernel = &kernel_silu_gate, .invocations = 64, .why = "bound by memory"},
};

const op_table op_table_silu_gate = {"silu_gate", rows_of_silu_gate, 1};

void op_silu_gate(gpu_recorder *rec, gpu_view gate_up, gpu_view out, uint32_t rows, uint32_t f)
{
    const uint64_t in_bytes = (uint64_t)f * 8, out_bytes = (uint64_t)f * 4;
    if (rows == 0 || f == 0 ||
        !op_check_view(rec, "silu_gate", "gate_up", gate_up, rows * in_bytes) ||
        !op_check_view(rec, "silu_gate", "out", out, rows * out_bytes))
        return;
    gpu_device *device = gpu_recorder_device(rec);
    gpu_pipeline *pipeline = kernel_silu_gate_get(device);
    const uint64_t step = min_u64(op_rows_that_bind(device, rows, in_bytes),
                                  op_cut(device, rows, (uint64_t)f * 16, 64));
    for (uint64_t row = 0; row < rows; row += step) {
        const uint64_t count = min_u64(step, rows - row);
        const op_grid grid = op_fold(device, ceil_div(count * f, 64));
        const struct kernel_silu_gate_views views = {
            .gate_up = op_view_rows(device, gate_up, row, count, in_bytes),
            .out = op_view_rows(device, out, row, count, out_bytes),
        };
        const struct kernel_silu_gate_params params = {.count = (uint32_t)(count * f), .f = f};
        gpu_record_work(rec, count * f * 12, count * f * 4);
        kernel_silu_gate_dispatch(rec, pipeline, &views, &params, grid.x, grid.y, 1);
    }
}
