/*
 * rows.c - choosing a row, cutting work into dispatches, folding grids.
 */
#include "op/rows.h"

#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "base/checked.h"
#include "op/choices.h"
#include "op/op.h"

const op_table *const op_tables[] = {
    &op_table_lookup,    &op_table_add_positions, &op_table_rmsnorm,
    &op_table_layernorm, &op_table_matmul,        &op_table_bias,
    &op_table_head_norm, &op_table_rope_store,    &op_table_attention,
    &op_table_silu_gate, &op_table_gelu_gate,     &op_table_gelu,
    &op_table_add,       &op_table_softcap,       &op_table_sample,
    &op_table_penalize,  &op_table_bias_logits,   &op_table_best,
    &op_table_nll,       &op_table_gather_ids,    NULL,
};

/* What is lossy is for those who ask for it; on matrix units it has passed the self-check. */
static bool is_open(const op_kernel_row *row, const op_shape *shape)
{
    return row->lossy == 0 || shape == NULL ||
           ((row->lossy & OP_OPENED_BY(shape->lossy)) != 0 &&
            (row->tile == NULL || shape->half_sums));
}

static bool matrices_are_open(gpu_device *device, const op_shape *shape)
{
    for (uint32_t i = 0; i < op_table_matmul.count; i++) {
        const op_kernel_row *row = &op_table_matmul.rows[i];
        if (row->tile != NULL && row->lossy == 0 &&
            op_row_verdict(device, row, shape) == OP_ROW_MAY)
            return true;
    }
    return false;
}

/* What the device alone says. */
static op_verdict device_verdict(gpu_device *device, const op_kernel_row *row)
{
    const gpu_limits *limits = gpu_device_limits(device);
    if ((row->kernel->needs & ~gpu_device_features(device)) != 0)
        return OP_ROW_LACKS_FEATURE;
    if (row->invocations > limits->max_invocations || row->invocations > limits->max_workgroup_x)
        return OP_ROW_LANES;
    if (row->workgroup_memory > limits->max_workgroup_memory)
        return OP_ROW_MEMORY;
    if (row->kernel->binding_count > limits->max_storage_buffers)
        return OP_ROW_BINDINGS;
    return row->runs == NULL || row->runs(device) ? OP_ROW_MAY : OP_ROW_DEVICE;
}

bool op_row_runs(gpu_device *device, const op_kernel_row *row)
{
    return device_verdict(device, row) == OP_ROW_MAY;
}

op_verdict op_row_verdict(gpu_device *device, const op_kernel_row *row, const op_shape *shape)
{
    const op_verdict verdict = device_verdict(device, row);
    if (verdict != OP_ROW_MAY)
        return verdict;
    if (row->gpu_only && op_device_is_software(device))
        return OP_ROW_SOFTWARE;
    if (!is_open(row, shape))
        return OP_ROW_CLOSED;
    if (shape == NULL)
        return OP_ROW_MAY;
    if (row->fits == NULL || row->fits(shape))
        return row->yields && matrices_are_open(device, shape) ? OP_ROW_YIELDS : OP_ROW_MAY;
    return row->tile != NULL && op_tile_takes(row->tile, shape) ? OP_ROW_SLOWER : OP_ROW_SHAPE;
}

static const char *preferred;
static uint64_t preferred_choices;

void op_prefer_row(const char *name)
{
    preferred = name;
}

uint64_t op_preferred_choices(void)
{
    return preferred_choices;
}

/* The row that a test prefers, where it can run and takes the shape; else the last one. */
static const op_kernel_row *preferred_row(gpu_device *device, const op_table *table,
                                          const op_shape *shape)
{
    for (uint32_t i = 0; i + 1 < table->count; i++) {
        const op_kernel_row *row = &table->rows[i];
        if (strcmp(preferred, row->name) != 0 || !op_row_runs(device, row) ||
            !is_open(row, shape) || (row->fits != NULL && !row->fits(shape)))
            continue;
        preferred_choices++;
        return row;
    }
    return &table->rows[table->count - 1];
}

const op_kernel_row *op_choose(gpu_device *device, const op_table *table, const op_shape *shape)
{
    assert(table->count > 0);
    if (preferred != NULL)
        return preferred_row(device, table, shape);
    for (uint32_t i = 0; shape->lossy != TEMPER_LOSSY_NONE && i < table->count; i++)
        if (table->rows[i].lossy != 0 &&
            op_row_verdict(device, &table->rows[i], shape) == OP_ROW_MAY)
            return &table->rows[i];
    const op_choice *choice = op_choices_find(op_choices_of(device), table, shape);
    for (uint32_t i = 0; choice != NULL && i < choice->count; i++) {
        const op_verdict verdict = op_row_verdict(device, choice->order[i].row, shape);
        if (verdict == OP_ROW_MAY || verdict == OP_ROW_SLOWER)
            return choice->order[i].row;
    }
    for (uint32_t i = 0; i + 1 < table->count; i++)
        if (op_row_verdict(device, &table->rows[i], shape) == OP_ROW_MAY)
            return &table->rows[i];
    return &table->rows[table->count - 1];
}

op_grid op_fold(gpu_device *device, uint64_t groups)
{
    const uint64_t most = gpu_device_limits(device)->max_workgroups;
    assert(groups <= UINT32_MAX);
    if (groups <= most)
        return (op_grid){(uint32_t)groups, 1};
    const uint64_t y = ceil_div(groups, most);
    return (op_grid){(uint32_t)ceil_div(groups, y), (uint32_t)y};
}

bool op_device_is_software(gpu_device *device)
{
    return strcmp(gpu_device_adapter(device)->type, "CPU") == 0;
}

uint64_t op_dispatch_work(gpu_device *device)
{
    /* A CPU driver does 1 to 4 G multiply-adds a second, the slowest GPU worth having a hundred. */
    return op_device_is_software(device) ? OP_DISPATCH_WORK : (uint64_t)OP_DISPATCH_WORK * 8;
}

uint64_t op_cut(gpu_device *device, uint64_t total, uint64_t cost, uint64_t unit)
{
    assert(cost > 0 && unit > 0);
    const uint64_t fit = op_dispatch_work(device) / cost;
    if (fit >= total)
        return total;
    return min_u64(total, max_u64(fit / unit, 1) * unit);
}

uint64_t op_rows_that_bind(gpu_device *device, uint64_t rows, uint64_t row_bytes)
{
    const uint64_t fit = gpu_device_limits(device)->max_storage_binding / row_bytes;
    return fit >= rows ? rows : max_u64(fit / 64, 1) * 64;
}

gpu_view op_view_rows(gpu_device *device, gpu_view view, uint64_t row0, uint64_t rows,
                      uint64_t row_bytes)
{
    if (row0 == 0 && view.size <= gpu_device_limits(device)->max_storage_binding)
        return view;
    return (gpu_view){view.buffer, view.offset + row0 * row_bytes, rows * row_bytes};
}

bool op_check_view(gpu_recorder *rec, const char *op, const char *name, gpu_view view,
                   uint64_t bytes)
{
    if (view.buffer != NULL && view.size >= bytes)
        return true;
    gpu_record_fail(rec, TEMPER_BAD_ARGUMENT,
                    "%s: %s takes %" PRIu64 " bytes, its view has %" PRIu64, op, name, bytes,
                    view.buffer != NULL ? view.size : 0);
    return false;
}
