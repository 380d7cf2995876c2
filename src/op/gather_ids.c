/*
 * gather_ids.c - the ids of a step's rows, from the host and from the step before.
 */
#include "base/checked.h"
#include "kernels/kernels.gen.h"
#include "op/op.h"
#include "op/rows.h"

static const op_kernel_row rows_of_gather_ids[] = {
    {.name = "row",
     .kernel = &kernel_gather_ids,
     .invocations = 64,
     .why = "a lane a row: nothing beside a step"},
};

const op_table op_table_gather_ids = {"gather_ids", rows_of_gather_ids, 1};

void op_gather_ids(gpu_recorder *rec, gpu_view sources, gpu_view chosen, gpu_view ids,
                   uint32_t rows)
{
    if (rows == 0 || !op_check_view(rec, "gather_ids", "sources", sources, (uint64_t)rows * 4) ||
        !op_check_view(rec, "gather_ids", "chosen", chosen, 4) ||
        !op_check_view(rec, "gather_ids", "ids", ids, (uint64_t)rows * 4))
        return;
    gpu_device *device = gpu_recorder_device(rec);
    const struct kernel_gather_ids_views views = {.sources = sources, .chosen = chosen, .ids = ids};
    const struct kernel_gather_ids_params params = {
        .rows = rows, .count = (uint32_t)min_u64(chosen.size / 4, OP_CHOSEN)};
    const op_grid grid = op_fold(device, ceil_div(rows, 64));
    gpu_record_work(rec, (uint64_t)rows * 12, 0);
    kernel_gather_ids_dispatch(rec, kernel_gather_ids_get(device), &views, &params, grid.x, grid.y,
                               1);
}
