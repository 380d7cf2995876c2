/*
 * fused.c - products with what comes before them: together where a row of matmul's table can do it,
 * else one after the other.
 */
#include "base/checked.h"
#include "kernels/kernels.gen.h"
#include "op/op.h"
#include "op/rows.h"

void op_rmsnorm_matmul(gpu_recorder *rec, gpu_view x, gpu_view norm, float eps, gpu_view h,
                       const op_weight *weight, gpu_view y, uint32_t rows, op_mode mode,
                       const op_products *with)
{
    const uint64_t k = weight->k, n = weight->n;
    const op_prologue before = {OP_PROLOGUE_RMSNORM, norm, eps};
    if (!op_check_view(rec, "rmsnorm_matmul", "x", x, rows * k * 4) ||
        !op_check_view(rec, "rmsnorm_matmul", "norm", norm, k * 4) ||
        !op_check_view(rec, "rmsnorm_matmul", "y", y, rows * n * 4))
        return;
    for (uint32_t count = op_first_rows(rec, rows); count > 0; count = op_next_rows(count, rows)) {
        const op_kernel_row *row = op_matmul_row(gpu_recorder_device(rec), weight, count, n, with);
        if (op_row_fuses(row)) {
            op_record_matmul(rec, weight, row, &before, x, y, count, 0, n, mode, with);
            continue;
        }
        op_rmsnorm(rec, x, norm, h, count, (uint32_t)k, eps);
        op_record_matmul(rec, weight, row, &(op_prologue){0}, h, y, count, 0, n, mode, with);
    }
}

void op_silu_gate_matmul(gpu_recorder *rec, gpu_view gate_up, gpu_view act, const op_weight *weight,
                         gpu_view y, uint32_t rows, op_mode mode, const op_products *with)
{
    const uint64_t k = weight->k, n = weight->n;
    const op_prologue before = {.kind = OP_PROLOGUE_SILU_GATE};
    if (!op_check_view(rec, "silu_gate_matmul", "gate_up", gate_up, rows * k * 8) ||
        !op_check_view(rec, "silu_gate_matmul", "y", y, rows * n * 4))
        return;
    for (uint32_t count = op_first_rows(rec, rows); count > 0; count = op_next_rows(count, rows)) {
        const op_kernel_row *row = op_matmul_row(gpu_recorder_device(rec), weight, count, n, with);
        if (op_row_fuses(row)) {
            op_record_matmul(rec, weight, row, &before, gate_up, y, count, 0, n, mode, with);
            continue;
        }
        op_silu_gate(rec, gate_up, act, count, (uint32_t)k);
        op_record_matmul(rec, weight, row, &(op_prologue){0}, act, y, count, 0, n, mode, with);
    }
}
