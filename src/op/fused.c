/*
 * fused.c - products with what comes before or after them: together where a row of matmul's table
 * can do it, else one after the other.
 */
#include <inttypes.h>

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
        if (op_row_takes(row, before.kind)) {
            op_record_matmul(rec, weight, row, &before, x, y, count, 0, n, mode, with);
            continue;
        }
        op_rmsnorm(rec, x, norm, h, count, (uint32_t)k, eps);
        op_record_matmul(rec, weight, row, &(op_prologue){0}, h, y, count, 0, n, mode, with);
    }
}

/* y (+)= act W^T, the gate of two halves of gate_up being act: by way of act, but for a row of the
 * table that does it with its inputs. */
static void gate_matmul(gpu_recorder *rec, gpu_view gate_up, op_gate gate, gpu_view act,
                        const op_weight *weight, gpu_view y, uint32_t rows, op_mode mode,
                        const op_products *with)
{
    const uint64_t n = weight->n;
    const op_prologue before = {.kind = OP_PROLOGUE_SILU_GATE};
    const op_kernel_row *row = op_matmul_row(gpu_recorder_device(rec), weight, rows, n, with);
    if (gate == OP_GATE_SILU && op_row_takes(row, before.kind)) {
        op_record_matmul(rec, weight, row, &before, gate_up, y, rows, 0, n, mode, with);
        return;
    }
    if (gate == OP_GATE_GELU)
        op_gelu_gate(rec, gate_up, act, rows, (uint32_t)weight->k);
    else
        op_silu_gate(rec, gate_up, act, rows, (uint32_t)weight->k);
    op_record_matmul(rec, weight, row, &(op_prologue){0}, act, y, rows, 0, n, mode, with);
}

/* The rows of gate_up's product one by one, each with its norm and its gate. */
static void record_gated(gpu_recorder *rec, const op_gated *g, const op_kernel_row *row, gpu_view x,
                         uint32_t rows)
{
    gpu_device *device = gpu_recorder_device(rec);
    const op_prologue before = {OP_PROLOGUE_RMSNORM, g->norm, g->eps};
    const uint64_t x_bytes = g->gate_up->k * 4, act_bytes = g->down->k * 4;
    for (uint32_t r = 0; r < rows; r++)
        op_record_fixed(rec, g->gate_up, &g->gate_up->parts[0], row, &before, g->gate,
                        op_view_rows(device, x, r, 1, x_bytes),
                        op_view_rows(device, g->act, r, 1, act_bytes), 0, OP_WRITE);
}

/* Whether rows of act, each a view of its own, may be bound. */
static bool act_is_aligned(gpu_device *device, const op_gated *g, uint32_t rows)
{
    return rows == 1 || g->down->k * 4 % gpu_device_limits(device)->storage_alignment == 0;
}

void op_gated_matmul(gpu_recorder *rec, gpu_view x, const op_gated *g, gpu_view y, uint32_t rows,
                     op_mode mode, const op_products *with)
{
    gpu_device *device = gpu_recorder_device(rec);
    const uint64_t k = g->gate_up->k, f = g->down->k;
    if (g->gate_up->n != 2 * f) {
        gpu_record_fail(rec, TEMPER_BAD_ARGUMENT,
                        "gated_matmul: %s has %" PRIu64 " rows, not twice the %" PRIu64
                        " columns of %s",
                        g->gate_up->label, g->gate_up->n, f, g->down->label);
        return;
    }
    if (!op_check_view(rec, "gated_matmul", "x", x, rows * k * 4) ||
        !op_check_view(rec, "gated_matmul", "norm", g->norm, k * 4) ||
        !op_check_view(rec, "gated_matmul", "act", g->act, rows * f * 4) ||
        !op_check_view(rec, "gated_matmul", "gate_up", g->gate_products, rows * f * 8) ||
        !op_check_view(rec, "gated_matmul", "y", y, rows * g->down->n * 4))
        return;
    for (uint32_t count = op_first_rows(rec, rows); count > 0; count = op_next_rows(count, rows)) {
        const op_kernel_row *row = op_matmul_row(device, g->gate_up, count, 2 * f, with);
        if (row->kernel == &kernel_matvec_fixed && g->gate_up->part_count == 1 &&
            act_is_aligned(device, g, count)) {
            record_gated(rec, g, row, x, count);
            op_record_matmul(rec, g->down, op_matmul_row(device, g->down, count, g->down->n, with),
                             &(op_prologue){0}, g->act, y, count, 0, g->down->n, mode, with);
            continue;
        }
        op_rmsnorm_matmul(rec, x, g->norm, g->eps, g->h, g->gate_up, g->gate_products, count,
                          OP_WRITE, with);
        gate_matmul(rec, g->gate_products, g->gate, g->act, g->down, y, count, mode, with);
    }
}
