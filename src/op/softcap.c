/*
 * softcap.c - logits kept within a cap, smoothly.
 */
#include <assert.h>

#include "base/checked.h"
#include "kernels/kernels.gen.h"
#include "op/op.h"
#include "op/rows.h"

static const op_kernel_row rows_of_softcap[] = {
    {.name = "element", .kernel = &kernel_softcap, .invocations = 64, .why = "bound by memory"},
};

const op_table op_table_softcap = {"softcap", rows_of_softcap, 1};

void op_softcap(gpu_recorder *rec, gpu_view x, uint64_t count, float cap)
{
    assert(cap > 0.0f);
    if (count == 0 || !op_check_view(rec, "softcap", "x", x, count * 4))
        return;
    gpu_device *device = gpu_recorder_device(rec);
    gpu_pipeline *pipeline = kernel_softcap_get(device);
    const uint64_t step =
        min_u64(op_rows_that_bind(device, count, 4), op_cut(device, count, 16, 64));
    for (uint64_t at = 0; at < count; at += step) {
        const uint64_t some = min_u64(step, count - at);
        const op_grid grid = op_fold(device, ceil_div(some, 64));
        const struct kernel_softcap_views views = {.x = op_view_rows(device, x, at, some, 4)};
        const struct kernel_softcap_params params = {.count = (uint32_t)some, .cap = cap};
        gpu_record_work(rec, some * 8, some * 4);
        kernel_softcap_dispatch(rec, pipeline, &views, &params, grid.x, grid.y, 1);
    }
}
