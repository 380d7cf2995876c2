/*
 * rmsnorm.c - the root-mean-square norm of rows.
 */
#include "base/checked.h"
#include "kernels/kernels.gen.h"
#include "op/op.h"
#include "op/rows.h"

static bool is_wide(const op_shape *shape)
{
    return shape->n >= 512;
}

static const op_kernel_row rows_of_rmsnorm[] = {
    {.name = "wide_row",
     .kernel = &kernel_rmsnorm,
     .invocations = 256,
     .workgroup_memory = 1088,
     .fits = is_wide,
     .gpu_only = true,
     .why = "a wide row on a GPU: more lanes read it at once, the sum in two steps"},
    {.name = "row_a_workgroup",
     .kernel = &kernel_rmsnorm,
     .invocations = 64,
     .workgroup_memory = 320,
     .why = "one barrier a row; sums of squares in f32 as 64 short ones"},
};

const op_table op_table_rmsnorm = {"rmsnorm", rows_of_rmsnorm,
                                   sizeof rows_of_rmsnorm / sizeof *rows_of_rmsnorm};

static void record(gpu_recorder *rec, gpu_view x, gpu_view weight, gpu_view y, uint32_t rows,
                   uint32_t cols, float eps, op_mode mode)
{
    const uint64_t row_bytes = (uint64_t)cols * 4;
    if (rows == 0 || cols == 0 || !op_check_view(rec, "rmsnorm", "x", x, rows * row_bytes) ||
        !op_check_view(rec, "rmsnorm", "weight", weight, row_bytes) ||
        !op_check_view(rec, "rmsnorm", "y", y, rows * row_bytes))
        return;
    gpu_device *device = gpu_recorder_device(rec);
    const op_shape shape = {.rows = rows, .n = cols};
    const op_kernel_row *row_of = op_choose(device, &op_table_rmsnorm, &shape);
    const struct kernel_rmsnorm_options options = {.lanes = row_of->invocations};
    gpu_pipeline *pipeline = kernel_rmsnorm_get(device, &options);
    const uint64_t step = min_u64(op_rows_that_bind(device, rows, row_bytes),
                                  op_cut(device, rows, (uint64_t)cols * 8, 64));
    for (uint64_t row = 0; row < rows; row += step) {
        const uint64_t count = min_u64(step, rows - row);
        const op_grid grid = op_fold(device, count);
        const struct kernel_rmsnorm_views views = {
            .x = op_view_rows(device, x, row, count, row_bytes),
            .weight = weight,
            .y = op_view_rows(device, y, row, count, row_bytes),
        };
        const struct kernel_rmsnorm_params params = {
            .rows = (uint32_t)count,
            .cols = cols,
            .eps = eps,
            .accumulate = mode == OP_ACCUMULATE,
        };
        gpu_record_work(rec, (count * (mode == OP_ACCUMULATE ? 3 : 2) + 1) * row_bytes,
                        count * cols * 4);
        kernel_rmsnorm_dispatch(rec, pipeline, &views, &params, grid.x, grid.y, 1);
    }
}

void op_rmsnorm(gpu_recorder *rec, gpu_view x, gpu_view weight, gpu_view y, uint32_t rows,
                uint32_t cols, float eps)
{
    record(rec, x, weight, y, rows, cols, eps, OP_WRITE);
}

void op_rmsnorm_add(gpu_recorder *rec, gpu_view x, gpu_view weight, gpu_view y, uint32_t rows,
                    uint32_t cols, float eps)
{
    record(rec, x, weight, y, rows, cols, eps, OP_ACCUMULATE);
}
