#include <math.h>

#include "infer/infer.h"

static temper_status check_unit(const char *name, float value, error *err)
{
    if (!(value >= 0.0f && value <= 1.0f))
        return error_set(err, TEMPER_BAD_ARGUMENT, "%s is %g; it must be between 0 and 1", name,
                         (double)value);
    return TEMPER_OK;
}

temper_status infer_check_sampling(const temper_sampling *sampling, error *err)
{
    if (!isfinite(sampling->temperature) || sampling->temperature < 0.0f)
        return error_set(err, TEMPER_BAD_ARGUMENT,
                         "temperature is %g; it must be a finite number, 0 or above",
                         (double)sampling->temperature);
    const temper_status status = check_unit("top_p", sampling->top_p, err);
    return status == TEMPER_OK ? check_unit("min_p", sampling->min_p, err) : status;
}

op_sample_params infer_sample_params(const temper_sampling *sampling, uint32_t position)
{
    return (op_sample_params){
        .temperature = sampling->temperature,
        .top_k = sampling->top_k,
        .top_p = sampling->top_p > 0.0f ? sampling->top_p : 1.0f,
        .min_p = sampling->min_p,
        .seed = sampling->seed,
        .position = position,
    };
}
