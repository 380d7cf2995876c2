#include "model/shapes.h"

#include <assert.h>
#include <string.h>

#include "base/strbuf.h"

static const struct {
    const char *name;
    model_arch arch;
    uint32_t layers, width, ffn, q_heads, kv_heads, head_dim, vocabulary, context;
    float rope_base;
    uint32_t window;
} shapes[] = {
    {"smollm2-135m", MODEL_LLAMA, 30, 576, 1536, 9, 3, 64, 49152, 8192, 1e5f, 0},
    {"smollm2-360m", MODEL_LLAMA, 32, 960, 2560, 15, 5, 64, 49152, 8192, 1e5f, 0},
    {"smollm2-1.7b", MODEL_LLAMA, 24, 2048, 8192, 32, 32, 64, 49152, 8192, 1.3e5f, 0},
    {"tinyllama-1.1b", MODEL_LLAMA, 22, 2048, 5632, 32, 4, 64, 32000, 2048, 1e4f, 0},
    {"llama-1b", MODEL_LLAMA, 16, 2048, 8192, 32, 8, 64, 128256, 131072, 5e5f, 0},
    {"llama-3b", MODEL_LLAMA, 28, 3072, 8192, 24, 8, 128, 128256, 131072, 5e5f, 0},
    {"llama-8b", MODEL_LLAMA, 32, 4096, 14336, 32, 8, 128, 128256, 131072, 5e5f, 0},
    {"mistral-7b", MODEL_LLAMA, 32, 4096, 14336, 32, 8, 128, 32000, 32768, 1e6f, 0},
    {"qwen2-0.5b", MODEL_QWEN2, 24, 896, 4864, 14, 2, 64, 151936, 32768, 1e6f, 0},
    {"qwen2-1.5b", MODEL_QWEN2, 28, 1536, 8960, 12, 2, 128, 151936, 32768, 1e6f, 0},
    {"qwen3-0.6b", MODEL_QWEN3, 28, 1024, 3072, 16, 8, 128, 151936, 40960, 1e6f, 0},
    {"gemma3-270m", MODEL_GEMMA3, 18, 640, 2048, 4, 1, 256, 262144, 32768, 1e6f, 512},
    {"gemma3-1b", MODEL_GEMMA3, 26, 1152, 6912, 4, 1, 256, 262144, 32768, 1e6f, 512},
    {"phi3-mini", MODEL_PHI3, 32, 3072, 8192, 32, 32, 96, 32064, 4096, 1e4f, 2047},
    {"gpt2-124m", MODEL_GPT2, 12, 768, 3072, 12, 12, 64, 50257, 1024, 0, 0},
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
            .arch = shapes[i].arch,
            .layers = shapes[i].layers,
            .width = shapes[i].width,
            .ffn = shapes[i].ffn,
            .q_heads = shapes[i].q_heads,
            .kv_heads = shapes[i].kv_heads,
            .head_dim = shapes[i].head_dim,
            .vocabulary = shapes[i].vocabulary,
            .context = shapes[i].context,
            .window = shapes[i].window,
            .rope_dims = shapes[i].arch == MODEL_GPT2 ? 0 : shapes[i].head_dim,
            .rope_base = shapes[i].rope_base,
            .norm_eps = 1e-5f,
        };
        model_config_complete(out);
        strbuf_free(&names);
        return TEMPER_OK;
    }
    const temper_status status =
        error_set(err, TEMPER_BAD_ARGUMENT, "there is no shape \"%s\"; there are %s", name,
                  strbuf_text(&names));
    strbuf_free(&names);
    return status;
}
