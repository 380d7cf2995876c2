/*
 * fused.c - products with what comes before them: one dispatch where a row of matmul's table can do
 * it, else one after the other.
 */
#include "base/checked.h"
#include "kernels/kernels.gen.h"
#include "op/op.h"
#include "op/rows.h"

static void record_parts(gpu_recorder *rec, const op_weight *weight, const op_kernel_row *row,
                         const op_prologue *before, gpu_view x, gpu_view y, uint64_t column,
                         op_mode mode)
{
    for (uint32_t i = 0; i < weight->part_count; i++)
        op_record_staged(rec, weight, &weight->parts[i], row, before, x, y, column, mode);
}

void op_rmsnorm_matmul(gpu_recorder *rec, gpu_view x, gpu_view norm, float eps, gpu_view h,
                       const op_weight *weight, gpu_view y, uint32_t rows, op_mode mode,
                       const op_products *with)
{
    const op_kernel_row *row = op_matmul_row(gpu_recorder_device(rec), weight, rows, with);
    if (row->kernel != &kernel_matvec_staged) {
        op_rmsnorm(rec, x, norm, h, rows, (uint32_t)weight->k, eps);
        op_matmul_columns(rec, weight, h, y, rows, 0, weight->n, mode, with);
        return;
    }
    const op_prologue before = {OP_PROLOGUE_RMSNORM, norm, eps};
    if (op_check_view(rec, "rmsnorm_matmul", "x", x, weight->k * 4) &&
        op_check_view(rec, "rmsnorm_matmul", "norm", norm, weight->k * 4) &&
        op_check_view(rec, "rmsnorm_matmul", "y", y, weight->n * 4))
        record_parts(rec, weight, row, &before, x, y, 0, mode);
}

void op_silu_gate_matmul(gpu_recorder *rec, gpu_view gate_up, gpu_view act, const op_weight *weight,
                         gpu_view y, uint32_t rows, op_mode mode, const op_products *with)
{
    const op_kernel_row *row = op_matmul_row(gpu_recorder_device(rec), weight, rows, with);
    if (row->kernel != &kernel_matvec_staged) {
        op_silu_gate(rec, gate_up, act, rows, (uint32_t)weight->k);
        op_matmul_columns(rec, weight, act, y, rows, 0, weight->n, mode, with);
        return;
    }
    const op_prologue before = {.kind = OP_PROLOGUE_SILU_GATE};
    if (op_check_view(rec, "silu_gate_matmul", "gate_up", gate_up, weight->k * 8) &&
        op_check_view(rec, "silu_gate_matmul", "y", y, weight->n * 4))
        record_parts(rec, weight, row, &before, gate_up, y, 0, mode);
}
