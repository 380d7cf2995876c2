/*
 * kv.c - the public types of a KV cache, as the ops know them.
 */
#include "infer/infer.h"

temper_status infer_cache_type(temper_kv kv, op_cache_type *out, error *err)
{
    static const op_cache_type types[] = {
        [TEMPER_KV_F32] = OP_CACHE_F32,
        [TEMPER_KV_F16] = OP_CACHE_F16,
        [TEMPER_KV_Q8] = OP_CACHE_Q8,
    };
    if ((uint32_t)kv >= sizeof types / sizeof *types)
        return error_set(err, TEMPER_BAD_ARGUMENT,
                         "kv is %d; it must be TEMPER_KV_F32, TEMPER_KV_F16 or TEMPER_KV_Q8",
                         (int)kv);
    *out = types[kv];
    return TEMPER_OK;
}
