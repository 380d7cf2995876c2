/*
 * sampling.c - what a request may ask for, and what the GPU is given of it.
 */
#include <math.h>

#include "base/checked.h"
#include "infer/infer.h"

temper_status infer_check_context(const temper_engine *engine, uint32_t wanted, uint32_t *out,
                                  error *err)
{
    if (engine->net == NULL)
        return error_set(err, TEMPER_BAD_ARGUMENT,
                         "an engine that holds only a vocabulary cannot run sessions");
    *out = wanted == 0 ? engine->info.default_context : wanted;
    if (*out > engine->info.context)
        return error_set(err, TEMPER_BAD_ARGUMENT,
                         "a context of %u is more than the %u positions the model was trained "
                         "for",
                         *out, engine->info.context);
    return TEMPER_OK;
}

temper_status infer_check_prompt(temper_tokens prompt, uint32_t vocabulary, uint32_t context,
                                 error *err)
{
    if (prompt.count == 0 || prompt.ids == NULL)
        return error_set(err, TEMPER_BAD_ARGUMENT,
                         "the prompt is empty: it needs at least one token");
    if (prompt.count > context)
        return error_set(err, TEMPER_CONTEXT_FULL,
                         "the prompt has %zu tokens and the context %u: shorten the prompt or ask "
                         "for a larger context (--ctx)",
                         prompt.count, context);
    for (size_t i = 0; i < prompt.count; i++)
        if (prompt.ids[i] >= vocabulary)
            return error_set(err, TEMPER_BAD_ARGUMENT,
                             "id %u at place %zu is not in the vocabulary of %u", prompt.ids[i], i,
                             vocabulary);
    return TEMPER_OK;
}

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
    if (status != TEMPER_OK)
        return status;
    if (!isfinite(sampling->repeat_penalty) || sampling->repeat_penalty < 0.0f)
        return error_set(err, TEMPER_BAD_ARGUMENT,
                         "repeat_penalty is %g; it must be a finite number above 0",
                         (double)sampling->repeat_penalty);
    if (!isfinite(sampling->presence_penalty))
        return error_set(err, TEMPER_BAD_ARGUMENT, "presence_penalty is %g; it must be finite",
                         (double)sampling->presence_penalty);
    if (!isfinite(sampling->frequency_penalty))
        return error_set(err, TEMPER_BAD_ARGUMENT, "frequency_penalty is %g; it must be finite",
                         (double)sampling->frequency_penalty);
    return check_unit("min_p", sampling->min_p, err);
}

temper_status infer_check_biases(const temper_sampling *sampling, uint32_t vocabulary, error *err)
{
    if (sampling->bias_count > TEMPER_MAX_BIASES)
        return error_set(err, TEMPER_BAD_ARGUMENT, "%zu logit biases; at most %d can be given",
                         sampling->bias_count, TEMPER_MAX_BIASES);
    for (size_t i = 0; i < sampling->bias_count; i++) {
        const temper_logit_bias *bias = &sampling->biases[i];
        if (bias->id >= vocabulary)
            return error_set(err, TEMPER_BAD_ARGUMENT,
                             "a logit bias is for id %u, which is not in the vocabulary of %u",
                             bias->id, vocabulary);
        if (isnan(bias->bias) || (isinf(bias->bias) && bias->bias > 0.0f))
            return error_set(err, TEMPER_BAD_ARGUMENT,
                             "the logit bias of id %u is %g; it must be finite or -infinity",
                             bias->id, (double)bias->bias);
        for (size_t j = 0; j < i; j++)
            if (sampling->biases[j].id == bias->id)
                return error_set(err, TEMPER_BAD_ARGUMENT, "id %u has two logit biases", bias->id);
    }
    return TEMPER_OK;
}

op_penalties infer_penalties(const temper_sampling *sampling, uint32_t position)
{
    const float repeat = sampling->repeat_penalty > 0.0f ? sampling->repeat_penalty : 1.0f;
    const bool off = fabsf(repeat - 1.0f) <= 0.0f && fabsf(sampling->presence_penalty) <= 0.0f &&
                     fabsf(sampling->frequency_penalty) <= 0.0f;
    uint64_t window = position;
    if (sampling->penalty_window == 0)
        window = INFER_DEFAULT_WINDOW;
    else if (sampling->penalty_window > 0)
        window = (uint64_t)sampling->penalty_window;
    const uint32_t count = off ? 0 : (uint32_t)min_u64(window, position);
    return (op_penalties){
        .first = position - count,
        .count = count,
        .repeat = repeat,
        .presence = sampling->presence_penalty,
        .frequency = sampling->frequency_penalty,
    };
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
