/*
 * trial.c - rows whose operands are rounded are trusted on a device only after they have computed
 * there what a row in f32 computes: what is enough, and what a failure means.
 */
#include <math.h>

#include "op/rows.h"

const op_tolerance op_tolerance_operands = {0.01, 0.005};

bool op_close_enough(const float *got, const float *want, uint64_t count, op_tolerance allowed)
{
    double size = 0, largest = 0, sum = 0;
    for (uint64_t i = 0; i < count; i++) {
        const double off = fabs((double)got[i] - (double)want[i]);
        if (!isfinite(got[i]))
            return false;
        size += fabs((double)want[i]);
        largest = fmax(largest, off);
        sum += off;
    }
    return largest < allowed.largest * size / (double)count && sum < allowed.mean * size;
}

temper_status op_judge(gpu_device *device, const char *row, temper_status status, bool *good,
                       error *why, error *err)
{
    if (status == TEMPER_OK && !*good)
        error_set(why, TEMPER_INTERNAL, "the results of %s are wrong", row);
    if (status == TEMPER_OK)
        return TEMPER_OK;
    if (status == TEMPER_NO_MEMORY || status == TEMPER_DEVICE_MEMORY)
        return error_set(err, status, "%s", why->text);
    const temper_status device_status = gpu_device_status(device, err);
    if (device_status == TEMPER_OK)
        gpu_pipelines_wait(device, NULL); /* what it tells is told here */
    *good = false;
    return device_status;
}
