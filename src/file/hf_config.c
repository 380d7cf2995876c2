/*
 * hf_config.c - config.json to GGUF's keys.
 */
#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "file/hf_internal.h"

static const hf_family families[] = {
    {"LlamaForCausalLM", "llama", HF_LLAMA, "hidden_act", "silu", false},
    {"MistralForCausalLM", "llama", HF_LLAMA, "hidden_act", "silu", false},
    {"Qwen2ForCausalLM", "qwen2", HF_QWEN, "hidden_act", "silu", false},
    {"Qwen3ForCausalLM", "qwen3", HF_QWEN, "hidden_act", "silu", false},
    {"Gemma3ForCausalLM", "gemma3", HF_GEMMA3, "hidden_activation", "gelu_pytorch_tanh", true},
    {"Phi3ForCausalLM", "phi3", HF_PHI3, "hidden_act", "silu", false},
    {"GPT2LMHeadModel", "gpt2", HF_GPT2, "activation_function", "gelu_new", true},
};

enum { FAMILY_COUNT = sizeof families / sizeof families[0] };

typedef struct key_text {
    char text[64];
} key_text;

static key_text arch_key(const hf_directory *hf, const char *suffix)
{
    key_text key;
    snprintf(key.text, sizeof key.text, "%s.%s", hf->family->arch, suffix);
    return key;
}

static temper_status wrong(const hf_directory *hf, const char *key, const char *what, error *err)
{
    return error_set(err, TEMPER_BAD_FILE, "%s/config.json: \"%s\" %s", hf->path, key, what);
}

/* A whole number from 1 to 2^31 - 1. `fallback` (0: none) stands for null or a missing key. */
static temper_status read_count(const hf_directory *hf, const char *key, uint32_t fallback,
                                uint32_t *out, error *err)
{
    const json_t *value = json_object_get(hf->config, key);
    *out = fallback;
    if (value == NULL || json_is_null(value))
        return fallback != 0 ? TEMPER_OK : wrong(hf, key, "is missing", err);
    if (!json_is_integer(value) || json_integer_value(value) < 1 ||
        json_integer_value(value) > INT32_MAX)
        return wrong(hf, key, "is no whole number from 1 to 2147483647", err);
    *out = (uint32_t)json_integer_value(value);
    return TEMPER_OK;
}

/* A number above 0 of an object; `fallback` (0: none) stands for null or a missing key. */
static temper_status read_number(const hf_directory *hf, const json_t *object, const char *key,
                                 double fallback, double *out, error *err)
{
    const json_t *value = json_object_get(object, key);
    *out = fallback;
    if (value == NULL || json_is_null(value))
        return fallback > 0 ? TEMPER_OK : wrong(hf, key, "is missing", err);
    *out = json_number_value(value);
    if (!json_is_number(value) || !isfinite((float)*out) || !((float)*out > 0.0f))
        return wrong(hf, key, "is no number above 0", err);
    return TEMPER_OK;
}

static temper_status find_family(hf_directory *hf, error *err)
{
    const json_t *list = json_object_get(hf->config, "architectures");
    const char *name = json_string_value(json_array_get(list, 0));
    if (name == NULL)
        return wrong(hf, "architectures", "names no architecture", err);
    for (size_t i = 0; i < FAMILY_COUNT; i++)
        if (strcmp(families[i].class_name, name) == 0)
            hf->family = &families[i];
    if (hf->family != NULL)
        return TEMPER_OK;
    char known[256] = "";
    for (size_t i = 0; i < FAMILY_COUNT; i++) {
        const size_t at = strlen(known);
        snprintf(known + at, sizeof known - at, "%s%s", i == 0 ? "" : ", ", families[i].class_name);
    }
    return error_set(err, TEMPER_UNSUPPORTED,
                     "%s/config.json: the architecture is \"%.80s\"; temper reads %s", hf->path,
                     name, known);
}

/* A key whose value, where it has one, must be this number. */
static temper_status must_be(const hf_directory *hf, const char *key, double wanted, error *err)
{
    const json_t *value = json_object_get(hf->config, key);
    if (value == NULL || json_is_null(value) ||
        (json_is_number(value) && json_number_value(value) == wanted))
        return TEMPER_OK;
    return error_set(err, TEMPER_UNSUPPORTED,
                     "%s/config.json: \"%s\" is not %g, which a GGUF file of %s cannot say",
                     hf->path, key, wanted, hf->family->arch);
}

/* Gemma's layers: five that see a window, then one that sees everything. */
static temper_status check_gemma3(const hf_directory *hf, error *err)
{
    const json_t *types = json_object_get(hf->config, "layer_types");
    for (size_t i = 0; i < json_array_size(types); i++) {
        const char *type = json_string_value(json_array_get(types, i));
        const char *wanted = i % 6 == 5 ? "full_attention" : "sliding_attention";
        if (type == NULL || strcmp(type, wanted) != 0)
            return error_set(
                err, TEMPER_UNSUPPORTED,
                "%s/config.json: layer %zu is not of the type %s, which a GGUF file of "
                "gemma3 cannot say",
                hf->path, i, wanted);
    }
    if (json_is_number(json_object_get(hf->config, "final_logit_softcapping")) ||
        json_is_number(json_object_get(hf->config, "attn_logit_softcapping")))
        return error_set(err, TEMPER_UNSUPPORTED,
                         "%s/config.json: capped logits or scores, which gemma3 has not", hf->path);
    const temper_status status = must_be(hf, "sliding_window_pattern", 6, err);
    return status == TEMPER_OK ? must_be(hf, "query_pre_attn_scalar", hf->head_dim, err) : status;
}

/* What must be as temper's graphs have it. The shape is read. */
static temper_status check_graph(const hf_directory *hf, error *err)
{
    const hf_family *family = hf->family;
    const char *act = json_string_value(json_object_get(hf->config, family->activation_key));
    if (act != NULL && strcmp(act, family->activation) != 0)
        return error_set(err, TEMPER_UNSUPPORTED,
                         "%s/config.json: the activation is \"%.40s\"; %s has %s", hf->path, act,
                         family->class_name, family->activation);
    if (json_is_object(json_object_get(hf->config, "quantization_config")))
        return error_set(err, TEMPER_UNSUPPORTED,
                         "%s/config.json: the weights are quantised (\"quantization_config\"); "
                         "temper reads directories of F32, F16 and BF16",
                         hf->path);
    if (json_is_true(json_object_get(hf->config, "scale_attn_by_inverse_layer_idx")))
        return error_set(err, TEMPER_UNSUPPORTED,
                         "%s/config.json: scores are scaled layer by layer, which gpt2 has not",
                         hf->path);
    return family->kind == HF_GEMMA3 ? check_gemma3(hf, err) : TEMPER_OK;
}

/* ---- rope ------------------------------------------------------------------------------------ */

/* llama3's factors, by which the frequencies of a head are divided: 1 for waves that fit the
 * original context well, `factor` for waves longer than it, a blend between. In double;
 * transformers has the same in float. */
static temper_status add_llama3_factors(hf_directory *hf, const json_t *rope, double base,
                                        uint32_t dims, error *err)
{
    double factor, low, high, original;
    temper_status status;
    if ((status = read_number(hf, rope, "factor", 0, &factor, err)) != TEMPER_OK ||
        (status = read_number(hf, rope, "low_freq_factor", 0, &low, err)) != TEMPER_OK ||
        (status = read_number(hf, rope, "high_freq_factor", 0, &high, err)) != TEMPER_OK ||
        (status = read_number(hf, rope, "original_max_position_embeddings", 0, &original, err)) !=
            TEMPER_OK)
        return status;
    if (!(high > low))
        return wrong(hf, "high_freq_factor", "is not above low_freq_factor", err);
    const uint64_t pairs = dims / 2;
    float *factors = mem_alloc((size_t)pairs * sizeof *factors);
    if (factors == NULL)
        return error_set(err, TEMPER_NO_MEMORY, "%s: no memory left to open it", hf->path);
    for (uint64_t i = 0; i < pairs; i++) {
        const double turn = 6.283185307179586476925;
        const double wave = turn * pow(base, 2.0 * (double)i / (double)dims);
        const double smooth = (original / wave - low) / (high - low);
        double value = 1.0 / ((1.0 - smooth) / factor + smooth);
        if (wave > original / low)
            value = factor;
        if (wave < original / high)
            value = 1.0;
        factors[i] = (float)value;
    }
    return assembly_add(hf->whole, (gguf_string){"rope_freqs.weight", 17}, 1, &pairs, DTYPE_F32,
                        &(assembly_piece){.memory = factors}, err);
}

/* The keys that yarn has beside its factor, where the file gives them. */
static temper_status write_yarn(hf_directory *hf, const json_t *rope, error *err)
{
    static const struct {
        const char *from, *to;
    } rows[] = {
        {"attention_factor", "rope.scaling.yarn_attn_factor"},
        {"beta_fast", "rope.scaling.yarn_beta_fast"},
        {"beta_slow", "rope.scaling.yarn_beta_slow"},
    };
    double value;
    temper_status status =
        read_number(hf, rope, "original_max_position_embeddings", 0, &value, err);
    if (status != TEMPER_OK || value > INT32_MAX)
        return status != TEMPER_OK
                   ? status
                   : wrong(hf, "original_max_position_embeddings", "is too large", err);
    gguf_head *head = assembly_head(hf->whole);
    gguf_head_u32(head, arch_key(hf, "rope.scaling.original_context_length").text, (uint32_t)value);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        if (!json_is_number(json_object_get(rope, rows[i].from)))
            continue;
        status = read_number(hf, rope, rows[i].from, 0, &value, err);
        if (status != TEMPER_OK)
            return status;
        gguf_head_f32(head, arch_key(hf, rows[i].to).text, (float)value);
    }
    return TEMPER_OK;
}

static temper_status write_scaling(hf_directory *hf, const json_t *rope, const char *type,
                                   error *err)
{
    double factor;
    const temper_status status = read_number(hf, rope, "factor", 0, &factor, err);
    if (status != TEMPER_OK)
        return status;
    gguf_head *head = assembly_head(hf->whole);
    gguf_head_string(head, arch_key(hf, "rope.scaling.type").text, type);
    gguf_head_f32(head, arch_key(hf, "rope.scaling.factor").text, (float)factor);
    return strcmp(type, "yarn") == 0 ? write_yarn(hf, rope, err) : TEMPER_OK;
}

/* One of the two lists of long-rope as a tensor. */
static temper_status add_long_factors(hf_directory *hf, const json_t *rope, const char *key,
                                      const char *tensor, uint32_t dims, error *err)
{
    const json_t *list = json_object_get(rope, key);
    const uint64_t pairs = dims / 2;
    if (json_array_size(list) != pairs)
        return wrong(hf, key, "is no list of a number for each pair", err);
    float *factors = mem_alloc((size_t)pairs * sizeof *factors);
    if (factors == NULL)
        return error_set(err, TEMPER_NO_MEMORY, "%s: no memory left to open it", hf->path);
    for (uint64_t i = 0; i < pairs; i++)
        factors[i] = (float)json_number_value(json_array_get(list, (size_t)i));
    return assembly_add(hf->whole, (gguf_string){tensor, strlen(tensor)}, 1, &pairs, DTYPE_F32,
                        &(assembly_piece){.memory = factors}, err);
}

/* Phi3's long-rope: two lists of factors, and one on cosine and sine that the lengths give. */
static temper_status write_long_rope(hf_directory *hf, const json_t *rope, uint32_t dims,
                                     error *err)
{
    double longest, original;
    temper_status status;
    if ((status = read_number(hf, hf->config, "max_position_embeddings", 0, &longest, err)) !=
            TEMPER_OK ||
        (status = read_number(hf, hf->config, "original_max_position_embeddings", 0, &original,
                              err)) != TEMPER_OK ||
        (status = add_long_factors(hf, rope, "long_factor", "rope_factors_long.weight", dims,
                                   err)) != TEMPER_OK ||
        (status = add_long_factors(hf, rope, "short_factor", "rope_factors_short.weight", dims,
                                   err)) != TEMPER_OK)
        return status;
    const double scale = longest / original;
    const double magnitude = scale > 1.0 ? sqrt(1.0 + log(scale) / log(original)) : 1.0;
    gguf_head_f32(assembly_head(hf->whole), arch_key(hf, "rope.scaling.attn_factor").text,
                  (float)magnitude);
    return TEMPER_OK;
}

static temper_status write_rope_type(hf_directory *hf, const json_t *rope, double base,
                                     uint32_t dims, error *err)
{
    const char *type = json_string_value(json_object_get(rope, "rope_type"));
    if (type == NULL)
        type = json_string_value(json_object_get(rope, "type"));
    if (type == NULL || strcmp(type, "default") == 0 || strcmp(type, "none") == 0)
        return TEMPER_OK;
    if (strcmp(type, "llama3") == 0)
        return add_llama3_factors(hf, rope, base, dims, err);
    if (strcmp(type, "linear") == 0 || strcmp(type, "yarn") == 0)
        return write_scaling(hf, rope, type, err);
    if (hf->family->kind == HF_PHI3 && (strcmp(type, "longrope") == 0 || strcmp(type, "su") == 0))
        return write_long_rope(hf, rope, dims, err);
    return error_set(err, TEMPER_UNSUPPORTED,
                     "%s/config.json: the rope type is \"%.40s\"; temper reads default, linear, "
                     "llama3 and yarn, and longrope of phi3",
                     hf->path, type);
}

/* Phi3 turns a part of each head, and says for how many positions it was made first. */
static temper_status write_phi3_rope(const hf_directory *hf, error *err)
{
    double original;
    const temper_status status =
        read_number(hf, hf->config, "original_max_position_embeddings", 0, &original, err);
    if (status != TEMPER_OK || original > INT32_MAX)
        return status != TEMPER_OK
                   ? status
                   : wrong(hf, "original_max_position_embeddings", "is too large", err);
    gguf_head_u32(assembly_head(hf->whole),
                  arch_key(hf, "rope.scaling.original_context_length").text, (uint32_t)original);
    return TEMPER_OK;
}

/* The object that holds the rope's numbers, by either name; gemma3 may have one for each kind of
 * layer. *local is the base of layers with a window; 0: there are none. */
static temper_status find_rope(const hf_directory *hf, const json_t **rope, double *local,
                               error *err)
{
    *local = 0;
    *rope = json_object_get(hf->config, "rope_parameters");
    if (!json_is_object(*rope))
        *rope = json_object_get(hf->config, "rope_scaling");
    if (hf->family->kind != HF_GEMMA3)
        return TEMPER_OK;
    const json_t *sliding = json_object_get(*rope, "sliding_attention");
    const temper_status status =
        json_is_object(sliding)
            ? read_number(hf, sliding, "rope_theta", 10000.0, local, err)
            : read_number(hf, hf->config, "rope_local_base_freq", 10000.0, local, err);
    if (json_is_object(json_object_get(*rope, "full_attention")))
        *rope = json_object_get(*rope, "full_attention");
    return status;
}

static temper_status write_rope(hf_directory *hf, error *err)
{
    const json_t *rope = NULL;
    double base = hf->family->kind == HF_GEMMA3 ? 1e6 : 1e4, part, local = 0;
    temper_status status;
    if ((status = find_rope(hf, &rope, &local, err)) != TEMPER_OK ||
        (status = read_number(hf, hf->config, "rope_theta", base, &base, err)) != TEMPER_OK ||
        (status = read_number(hf, rope, "rope_theta", base, &base, err)) != TEMPER_OK ||
        (status = read_number(hf, hf->config, "partial_rotary_factor", 1.0, &part, err)) !=
            TEMPER_OK ||
        (status = read_number(hf, rope, "partial_rotary_factor", part, &part, err)) != TEMPER_OK)
        return status;
    if (part > 1.0 || (part != 1.0 && hf->family->kind != HF_PHI3))
        return error_set(err, TEMPER_UNSUPPORTED,
                         "%s/config.json: partial_rotary_factor is %g; %s turns whole heads",
                         hf->path, part, hf->family->class_name);
    const uint32_t dims = (uint32_t)(part * hf->head_dim);
    gguf_head *head = assembly_head(hf->whole);
    gguf_head_u32(head, arch_key(hf, "rope.dimension_count").text, dims);
    gguf_head_f32(head, arch_key(hf, "rope.freq_base").text, (float)base);
    if (local > 0)
        gguf_head_f32(head, arch_key(hf, "rope.freq_base_swa").text, (float)local);
    if (hf->family->kind == HF_PHI3 && (status = write_phi3_rope(hf, err)) != TEMPER_OK)
        return status;
    return write_rope_type(hf, rope, base, dims, err);
}

/* ---- shape ----------------------------------------------------------------------------------- */

/* The last part of the directory's path. */
static void write_name(const hf_directory *hf)
{
    size_t end = strlen(hf->path);
    while (end > 1 && hf->path[end - 1] == '/')
        end--;
    size_t begin = end;
    while (begin > 0 && hf->path[begin - 1] != '/')
        begin--;
    gguf_head_text(assembly_head(hf->whole), "general.name", hf->path + begin, end - begin);
}

/* The shape under the names that a family gives to its numbers. */
typedef struct shape_keys {
    const char *width, *layers, *heads, *ffn, *context, *eps;
} shape_keys;

static const shape_keys usual_keys = {
    "hidden_size",       "num_hidden_layers",       "num_attention_heads",
    "intermediate_size", "max_position_embeddings", "rms_norm_eps",
};

static const shape_keys gpt2_keys = {
    "n_embd", "n_layer", "n_head", "n_inner", "n_positions", "layer_norm_epsilon",
};

static temper_status read_shape(hf_directory *hf, const shape_keys *keys, uint32_t *width,
                                error *err)
{
    temper_status status;
    if ((status = read_count(hf, keys->width, 0, width, err)) != TEMPER_OK ||
        (status = read_count(hf, keys->layers, 0, &hf->layers, err)) != TEMPER_OK ||
        (status = read_count(hf, keys->heads, 0, &hf->q_heads, err)) != TEMPER_OK ||
        (status = read_count(hf, "num_key_value_heads", hf->q_heads, &hf->kv_heads, err)) !=
            TEMPER_OK ||
        (status = read_count(hf, "vocab_size", 0, &hf->vocabulary, err)) != TEMPER_OK)
        return status;
    const uint32_t usual = *width / hf->q_heads;
    if (usual == 0 && !json_is_integer(json_object_get(hf->config, "head_dim")))
        return wrong(hf, keys->heads, "is above the width", err);
    if ((status = read_count(hf, "head_dim", usual, &hf->head_dim, err)) != TEMPER_OK)
        return status;
    if (hf->head_dim % 2 != 0 || hf->head_dim > 1 << 16)
        return wrong(hf, "head_dim", "is no even number up to 65536", err);
    return TEMPER_OK;
}

/* The window of attention: phi3 always says one, 0 for none. */
static temper_status write_window(const hf_directory *hf, error *err)
{
    const json_t *window = json_object_get(hf->config, "sliding_window");
    const json_t *use = json_object_get(hf->config, "use_sliding_window");
    uint32_t positions = 0;
    if (json_is_integer(window) && !json_is_false(use)) {
        const temper_status status = read_count(hf, "sliding_window", 0, &positions, err);
        if (status != TEMPER_OK)
            return status;
    }
    if (positions > 0 || hf->family->kind == HF_PHI3)
        gguf_head_u32(assembly_head(hf->whole), arch_key(hf, "attention.sliding_window").text,
                      positions);
    return TEMPER_OK;
}

static void write_shape(const hf_directory *hf, uint32_t width, uint32_t ffn, uint32_t context,
                        double eps)
{
    const bool gpt2 = hf->family->kind == HF_GPT2;
    gguf_head *head = assembly_head(hf->whole);
    gguf_head_string(head, "general.architecture", hf->family->arch);
    gguf_head_string(head, "general.type", "model");
    write_name(hf);
    gguf_head_u32(head, "general.quantization_version", 2);
    gguf_head_u32(head, arch_key(hf, "block_count").text, hf->layers);
    gguf_head_u32(head, arch_key(hf, "context_length").text, context);
    gguf_head_u32(head, arch_key(hf, "embedding_length").text, width);
    gguf_head_u32(head, arch_key(hf, "feed_forward_length").text, ffn);
    gguf_head_u32(head, arch_key(hf, "attention.head_count").text, hf->q_heads);
    gguf_head_u32(head, arch_key(hf, "vocab_size").text, hf->vocabulary);
    gguf_head_f32(
        head,
        arch_key(hf, gpt2 ? "attention.layer_norm_epsilon" : "attention.layer_norm_rms_epsilon")
            .text,
        (float)eps);
    if (gpt2)
        return;
    gguf_head_u32(head, arch_key(hf, "attention.head_count_kv").text, hf->kv_heads);
    gguf_head_u32(head, arch_key(hf, "attention.key_length").text, hf->head_dim);
    gguf_head_u32(head, arch_key(hf, "attention.value_length").text, hf->head_dim);
}

temper_status hf_write_config(hf_directory *hf, error *err)
{
    uint32_t width = 0, ffn = 0, context = 0;
    double eps = 0;
    temper_status status = find_family(hf, err);
    if (status != TEMPER_OK)
        return status;
    const bool gpt2 = hf->family->kind == HF_GPT2;
    const shape_keys *keys = gpt2 ? &gpt2_keys : &usual_keys;
    if ((status = read_shape(hf, keys, &width, err)) != TEMPER_OK ||
        (status = check_graph(hf, err)) != TEMPER_OK)
        return status;
    /* GPT-2 says its inner width only where it is not the usual one. */
    if (width > INT32_MAX / 4)
        return wrong(hf, keys->width, "is too large", err);
    if ((status = read_count(hf, keys->ffn, gpt2 ? 4 * width : 0, &ffn, err)) != TEMPER_OK ||
        (status = read_count(hf, keys->context, 0, &context, err)) != TEMPER_OK ||
        (status = read_number(hf, hf->config, keys->eps, 0, &eps, err)) != TEMPER_OK)
        return status;
    const json_t *tied = json_object_get(hf->config, "tie_word_embeddings");
    hf->tied = json_is_boolean(tied) ? json_is_true(tied) : hf->family->tied;
    write_shape(hf, width, ffn, context, eps);
    if (gpt2)
        return TEMPER_OK;
    status = write_window(hf, err);
    return status == TEMPER_OK ? write_rope(hf, err) : status;
}
