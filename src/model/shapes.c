#include "model/shapes.h"

#include <assert.h>
#include <string.h>

#include "base/strbuf.h"

static const struct {
    const char *name;
    uint32_t layers, width, ffn, q_heads, kv_heads, head_dim, vocabulary, context;
    float rope_base;
} shapes[] = {
    {"smollm2-135m", 30, 576, 1536, 9, 3, 64, 49152, 8192, 100000.0f},
    {"smollm2-360m", 32, 960, 2560, 15, 5, 64, 49152, 8192, 100000.0f},
    {"smollm2-1.7b", 24, 2048, 8192, 32, 32, 64, 49152, 8192, 130000.0f},
    {"tinyllama-1.1b", 22, 2048, 5632, 32, 4, 64, 32000, 2048, 10000.0f},
    {"llama-1b", 16, 2048, 8192, 32, 8, 64, 128256, 131072, 500000.0f},
    {"llama-3b", 28, 3072, 8192, 24, 8, 128, 128256, 131072, 500000.0f},
    {"llama-8b", 32, 4096, 14336, 32, 8, 128, 128256, 131072, 500000.0f},
    {"mistral-7b", 32, 4096, 14336, 32, 8, 128, 32000, 32768, 1000000.0f},
};

temper_status model_shape_find(const char *name, model_config *out, error *err)
{
    assert(name != NULL && out != NULL);
    strbuf names = {0};
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        strbuf_printf(&names, "%s%s", i == 0 ? "" : ", ", shapes[i].name);
        if (strcmp(name, shapes[i].name) != 0)
            continue;
        *out = (model_config){
            .arch = MODEL_LLAMA,
            .layers = shapes[i].layers,
            .width = shapes[i].width,
            .ffn = shapes[i].ffn,
            .q_heads = shapes[i].q_heads,
            .kv_heads = shapes[i].kv_heads,
            .head_dim = shapes[i].head_dim,
            .vocabulary = shapes[i].vocabulary,
            .context = shapes[i].context,
            .rope_dims = shapes[i].head_dim,
            .rope_base = shapes[i].rope_base,
            .rope_factor = 1.0f,
            .norm_eps = 1e-5f,
        };
        strbuf_free(&names);
        return TEMPER_OK;
    }
    const temper_status status =
        error_set(err, TEMPER_BAD_ARGUMENT, "there is no shape \"%s\"; there are %s", name,
                  strbuf_text(&names));
    strbuf_free(&names);
    return status;
}
