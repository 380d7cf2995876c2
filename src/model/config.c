#include "model/config.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

typedef struct key_text {
    char text[192];
} key_text;

/* "llama" and "block_count" make "llama.block_count". */
static key_text arch_key(gguf_string arch, const char *suffix)
{
    key_text key;
    snprintf(key.text, sizeof key.text, "%.*s.%s", (int)(arch.length > 64 ? 64 : arch.length),
             arch.data, suffix);
    return key;
}

/* Reads a number from 1 to `limit`; `fallback` (0: none, the key must be there) stands for a
 * missing key. */
static temper_status read_count(const gguf_file *file, gguf_string arch, const char *suffix,
                                uint32_t limit, uint32_t fallback, uint32_t *out, error *err)
{
    const key_text key = arch_key(arch, suffix);
    bool found = false;
    uint32_t value = fallback;
    const temper_status status =
        gguf_get_u32(file, key.text, &value, fallback != 0 ? &found : NULL, err);
    if (status != TEMPER_OK)
        return status;
    if (value < 1 || value > limit)
        return error_set(err, TEMPER_BAD_FILE, "%s: %s is %u; temper takes 1 to %u",
                         gguf_name(file), key.text, value, limit);
    *out = value;
    return TEMPER_OK;
}

/* head_count_kv is a number, or one number a layer; temper takes the list when its numbers are
 * equal. */
static temper_status read_kv_heads(const gguf_file *file, gguf_string arch, uint32_t q_heads,
                                   uint32_t *out, error *err)
{
    const key_text key = arch_key(arch, "attention.head_count_kv");
    const gguf_value *value = gguf_find(file, key.text);
    if (value == NULL || value->type != GGUF_ARRAY)
        return read_count(file, arch, "attention.head_count_kv", MODEL_MAX_HEADS, q_heads, out,
                          err);
    if (value->element > GGUF_INT32 && value->element != GGUF_UINT64 &&
        value->element != GGUF_INT64)
        return error_set(err, TEMPER_BAD_FILE, "%s: %s is a list of %s, not of numbers",
                         gguf_name(file), key.text, gguf_type_name(value->element));
    int64_t first = 0;
    for (uint64_t i = 0; i < value->count; i++) {
        const int64_t heads = gguf_array_int(value, i);
        if (i == 0)
            first = heads;
        if (heads != first)
            return error_set(
                err, TEMPER_UNSUPPORTED,
                "%s: %s differs by layer (%lld, then %lld), which temper cannot do yet",
                gguf_name(file), key.text, (long long)first, (long long)heads);
    }
    if (first < 1 || first > MODEL_MAX_HEADS)
        return error_set(err, TEMPER_BAD_FILE, "%s: %s is %lld; temper takes 1 to %d",
                         gguf_name(file), key.text, (long long)first, MODEL_MAX_HEADS);
    *out = (uint32_t)first;
    return TEMPER_OK;
}

static temper_status read_float(const gguf_file *file, gguf_string arch, const char *suffix,
                                bool must, float fallback, float *out, error *err)
{
    const key_text key = arch_key(arch, suffix);
    bool found = false;
    float value = fallback;
    const temper_status status = gguf_get_f32(file, key.text, &value, must ? NULL : &found, err);
    if (status != TEMPER_OK)
        return status;
    if (!isfinite(value) || value <= 0.0f)
        return error_set(err, TEMPER_BAD_FILE, "%s: %s is %g; it must be a finite number above 0",
                         gguf_name(file), key.text, (double)value);
    *out = value;
    return TEMPER_OK;
}

static bool string_is(gguf_string text, const char *wanted)
{
    return text.length == strlen(wanted) && memcmp(text.data, wanted, text.length) == 0;
}

static temper_status read_rope(const gguf_file *file, gguf_string arch, model_config *c, error *err)
{
    temper_status status;
    if ((status = read_count(file, arch, "rope.dimension_count", MODEL_MAX_HEAD_DIM, c->head_dim,
                             &c->rope_dims, err)) != TEMPER_OK ||
        (status = read_float(file, arch, "rope.freq_base", false, 10000.0f, &c->rope_base, err)) !=
            TEMPER_OK)
        return status;
    if (c->rope_dims > c->head_dim || c->rope_dims % 2 != 0)
        return error_set(err, TEMPER_BAD_FILE, "%s: %u rotated dimensions do not fit heads of %u",
                         gguf_name(file), c->rope_dims, c->head_dim);

    c->rope_factor = 1.0f;
    const key_text key = arch_key(arch, "rope.scaling.type");
    gguf_string type = {0};
    bool found = false;
    if ((status = gguf_get_string(file, key.text, &type, &found, err)) != TEMPER_OK)
        return status;
    if (!found || string_is(type, "none"))
        return TEMPER_OK;
    if (!string_is(type, "linear"))
        return error_set(
            err, TEMPER_UNSUPPORTED,
            "%s: %s is \"%.*s\"; temper knows none and linear, and llama3's by rope_freqs.weight",
            gguf_name(file), key.text, (int)(type.length > 64 ? 64 : type.length), type.data);
    return read_float(file, arch, "rope.scaling.factor", true, 1.0f, &c->rope_factor, err);
}

gguf_string model_architecture(const gguf_file *file)
{
    const gguf_value *value = gguf_find(file, "general.architecture");
    if (value == NULL || value->type != GGUF_STRING)
        return (gguf_string){"", 0};
    return value->as.string;
}

static temper_status read_heads(const gguf_file *file, gguf_string arch, model_config *c,
                                error *err)
{
    temper_status status;
    if ((status = read_count(file, arch, "attention.head_count", MODEL_MAX_HEADS, 0, &c->q_heads,
                             err)) != TEMPER_OK ||
        (status = read_kv_heads(file, arch, c->q_heads, &c->kv_heads, err)) != TEMPER_OK)
        return status;
    if (c->q_heads % c->kv_heads != 0)
        return error_set(err, TEMPER_BAD_FILE,
                         "%s: %u query heads are no multiple of %u key/value heads",
                         gguf_name(file), c->q_heads, c->kv_heads);
    const bool has_length = gguf_find(file, arch_key(arch, "attention.key_length").text) != NULL;
    if (!has_length && c->width % c->q_heads != 0)
        return error_set(err, TEMPER_BAD_FILE, "%s: a width of %u does not divide into %u heads",
                         gguf_name(file), c->width, c->q_heads);
    const uint32_t usual = c->width / c->q_heads > 0 ? c->width / c->q_heads : 1;
    uint32_t value_length = 0;
    if ((status = read_count(file, arch, "attention.key_length", 1 << 20, usual, &c->head_dim,
                             err)) != TEMPER_OK ||
        (status = read_count(file, arch, "attention.value_length", 1 << 20, c->head_dim,
                             &value_length, err)) != TEMPER_OK)
        return status;
    if (value_length != c->head_dim)
        return error_set(err, TEMPER_UNSUPPORTED,
                         "%s: keys of %u and values of %u dimensions a head, which temper "
                         "cannot do yet",
                         gguf_name(file), c->head_dim, value_length);
    if (c->head_dim % 4 != 0 || c->head_dim > MODEL_MAX_HEAD_DIM)
        return error_set(err, TEMPER_UNSUPPORTED,
                         "%s: heads of %u dimensions; temper takes multiples of 4 up to %d",
                         gguf_name(file), c->head_dim, MODEL_MAX_HEAD_DIM);
    return TEMPER_OK;
}

temper_status model_config_read(const gguf_file *file, uint32_t vocabulary, model_config *out,
                                error *err)
{
    assert(file != NULL && out != NULL);
    const gguf_string arch = model_architecture(file);
    if (!string_is(arch, "llama"))
        return error_set(err, TEMPER_UNSUPPORTED,
                         "%s: the architecture is \"%.*s\"; temper runs: llama", gguf_name(file),
                         (int)(arch.length > 64 ? 64 : arch.length), arch.data);
    model_config c = {.arch = MODEL_LLAMA, .vocabulary = vocabulary};
    uint32_t experts = 0;
    bool found = false;
    temper_status status;
    if ((status = read_count(file, arch, "block_count", MODEL_MAX_LAYERS, 0, &c.layers, err)) !=
            TEMPER_OK ||
        (status = read_count(file, arch, "embedding_length", MODEL_MAX_WIDTH, 0, &c.width, err)) !=
            TEMPER_OK ||
        (status = read_count(file, arch, "feed_forward_length", MODEL_MAX_FFN, 0, &c.ffn, err)) !=
            TEMPER_OK ||
        (status = read_count(file, arch, "context_length", MODEL_MAX_CONTEXT, 0, &c.context,
                             err)) != TEMPER_OK ||
        (status = read_heads(file, arch, &c, err)) != TEMPER_OK ||
        (status = read_rope(file, arch, &c, err)) != TEMPER_OK ||
        (status = read_float(file, arch, "attention.layer_norm_rms_epsilon", true, 0, &c.norm_eps,
                             err)) != TEMPER_OK ||
        (status = gguf_get_u32(file, arch_key(arch, "expert_count").text, &experts, &found, err)) !=
            TEMPER_OK)
        return status;
    if (found && experts > 0)
        return error_set(err, TEMPER_UNSUPPORTED,
                         "%s: a mixture of %u experts, which temper cannot run yet",
                         gguf_name(file), experts);
    if (vocabulary < 1 || vocabulary > MODEL_MAX_VOCABULARY)
        return error_set(err, TEMPER_BAD_FILE, "%s: %u tokens; temper takes 1 to %d",
                         gguf_name(file), vocabulary, MODEL_MAX_VOCABULARY);
    *out = c;
    return TEMPER_OK;
}

void model_config_peek(const gguf_file *file, model_config *out)
{
    const gguf_string arch = model_architecture(file);
    *out = (model_config){0};
    const struct {
        const char *suffix;
        uint32_t *field;
    } rows[] = {
        {"block_count", &out->layers},
        {"embedding_length", &out->width},
        {"feed_forward_length", &out->ffn},
        {"context_length", &out->context},
        {"attention.head_count", &out->q_heads},
        {"attention.head_count_kv", &out->kv_heads},
        {"attention.key_length", &out->head_dim},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        bool found = false;
        gguf_get_u32(file, arch_key(arch, rows[i].suffix).text, rows[i].field, &found, NULL);
    }
    if (out->kv_heads == 0)
        out->kv_heads = out->q_heads;
    if (out->head_dim == 0 && out->q_heads > 0)
        out->head_dim = out->width / out->q_heads;
}

void model_rope_frequencies(const model_config *config, const float *factors, double *inv_freq)
{
    assert(config != NULL && inv_freq != NULL && config->rope_dims > 0);
    for (uint32_t i = 0; i < config->rope_dims / 2; i++) {
        const double exponent = -2.0 * (double)i / (double)config->rope_dims;
        double frequency = pow((double)config->rope_base, exponent) / (double)config->rope_factor;
        if (factors != NULL)
            frequency /= (double)factors[i];
        inv_freq[i] = frequency;
    }
}
