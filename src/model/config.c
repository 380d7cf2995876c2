#include "model/config.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/strbuf.h"

static const char *const arch_names[MODEL_ARCHES] = {
    [MODEL_LLAMA] = "llama",   [MODEL_QWEN2] = "qwen2", [MODEL_QWEN3] = "qwen3",
    [MODEL_GEMMA3] = "gemma3", [MODEL_PHI3] = "phi3",   [MODEL_GPT2] = "gpt2",
};

const char *model_arch_name(model_arch arch)
{
    assert(arch < MODEL_ARCHES);
    return arch_names[arch];
}

static bool text_is(const char *data, uint64_t length, const char *wanted)
{
    return length == strlen(wanted) && memcmp(data, wanted, (size_t)length) == 0;
}

bool model_arch_find(const char *name, uint64_t length, model_arch *out)
{
    for (uint32_t i = 0; i < MODEL_ARCHES; i++)
        if (text_is(name, length, arch_names[i])) {
            *out = (model_arch)i;
            return true;
        }
    return false;
}

gguf_string model_architecture(const gguf_file *file)
{
    const gguf_value *value = gguf_find(file, "general.architecture");
    if (value == NULL || value->type != GGUF_STRING)
        return (gguf_string){"", 0};
    return value->as.string;
}

/* ---- reading keys ---------------------------------------------------------------------------- */

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

/* Reads key after key; after the first failure nothing more is read. */
typedef struct key_reader {
    const gguf_file *file;
    gguf_string arch;
    temper_status status;
    error *err;
} key_reader;

static bool has_key(const key_reader *r, const char *suffix)
{
    return gguf_find(r->file, arch_key(r->arch, suffix).text) != NULL;
}

/* A number from `least` to `most`; a missing key leaves *out alone, where `must` does not say that
 * it has to be there. */
static void read_u32(key_reader *r, const char *suffix, bool must, uint32_t least, uint32_t most,
                     uint32_t *out)
{
    const key_text key = arch_key(r->arch, suffix);
    bool found = true;
    uint32_t value = 0;
    if (r->status != TEMPER_OK)
        return;
    r->status = gguf_get_u32(r->file, key.text, &value, must ? NULL : &found, r->err);
    if (r->status != TEMPER_OK || !found)
        return;
    if (value < least || value > most) {
        r->status = error_set(r->err, TEMPER_BAD_FILE, "%s: %s is %u; temper takes %u to %u",
                              gguf_name(r->file), key.text, value, least, most);
        return;
    }
    *out = value;
}

/* The same of a finite number above 0. */
static void read_f32(key_reader *r, const char *suffix, bool must, float *out)
{
    const key_text key = arch_key(r->arch, suffix);
    bool found = true;
    float value = 0;
    if (r->status != TEMPER_OK)
        return;
    r->status = gguf_get_f32(r->file, key.text, &value, must ? NULL : &found, r->err);
    if (r->status != TEMPER_OK || !found)
        return;
    if (!isfinite(value) || value <= 0.0f) {
        r->status =
            error_set(r->err, TEMPER_BAD_FILE, "%s: %s is %g; it must be a finite number above 0",
                      gguf_name(r->file), key.text, (double)value);
        return;
    }
    *out = value;
}

/* A key that temper has no meaning for must be missing or 0. */
static void refuse_key(key_reader *r, const char *suffix, const char *what)
{
    const key_text key = arch_key(r->arch, suffix);
    const gguf_value *value = gguf_find(r->file, key.text);
    if (r->status != TEMPER_OK || value == NULL)
        return;
    const bool is_float = value->type == GGUF_FLOAT32 || value->type == GGUF_FLOAT64;
    if (is_float ? value->as.f == 0.0 : value->type != GGUF_ARRAY && value->as.u == 0)
        return;
    r->status = error_set(r->err, TEMPER_UNSUPPORTED, "%s: %s: %s, which temper cannot do yet",
                          gguf_name(r->file), key.text, what);
}

static bool is_integer_list(const gguf_value *value)
{
    return value != NULL && value->type == GGUF_ARRAY &&
           (value->element <= GGUF_INT32 || value->element == GGUF_UINT64 ||
            value->element == GGUF_INT64 || value->element == GGUF_BOOL);
}

/* ---- heads ----------------------------------------------------------------------------------- */

/* head_count_kv is a number, or one number a layer; temper takes the list when its numbers are
 * equal. */
static void read_kv_heads(key_reader *r, model_config *c)
{
    const key_text key = arch_key(r->arch, "attention.head_count_kv");
    const gguf_value *value = gguf_find(r->file, key.text);
    c->kv_heads = c->q_heads;
    if (value == NULL || value->type != GGUF_ARRAY) {
        read_u32(r, "attention.head_count_kv", false, 1, MODEL_MAX_HEADS, &c->kv_heads);
        return;
    }
    if (r->status != TEMPER_OK)
        return;
    if (!is_integer_list(value)) {
        r->status = error_set(r->err, TEMPER_BAD_FILE, "%s: %s is a list of %s, not of numbers",
                              gguf_name(r->file), key.text, gguf_type_name(value->element));
        return;
    }
    const int64_t first = value->count > 0 ? gguf_array_int(value, 0) : 0;
    for (uint64_t i = 0; r->status == TEMPER_OK && i < value->count; i++)
        if (gguf_array_int(value, i) != first)
            r->status =
                error_set(r->err, TEMPER_UNSUPPORTED,
                          "%s: %s differs by layer (%lld, then %lld), which temper cannot do yet",
                          gguf_name(r->file), key.text, (long long)first,
                          (long long)gguf_array_int(value, i));
    if (r->status == TEMPER_OK && (first < 1 || first > MODEL_MAX_HEADS))
        r->status = error_set(r->err, TEMPER_BAD_FILE, "%s: %s is %lld; temper takes 1 to %d",
                              gguf_name(r->file), key.text, (long long)first, MODEL_MAX_HEADS);
    c->kv_heads = (uint32_t)first;
}

static void read_heads(key_reader *r, model_config *c)
{
    read_u32(r, "attention.head_count", true, 1, MODEL_MAX_HEADS, &c->q_heads);
    read_kv_heads(r, c);
    if (r->status != TEMPER_OK)
        return;
    if (c->q_heads % c->kv_heads != 0) {
        r->status = error_set(r->err, TEMPER_BAD_FILE,
                              "%s: %u query heads are no multiple of %u key/value heads",
                              gguf_name(r->file), c->q_heads, c->kv_heads);
        return;
    }
    if (!has_key(r, "attention.key_length") && c->width % c->q_heads != 0) {
        r->status =
            error_set(r->err, TEMPER_BAD_FILE, "%s: a width of %u does not divide into %u heads",
                      gguf_name(r->file), c->width, c->q_heads);
        return;
    }
    c->head_dim = c->width / c->q_heads > 0 ? c->width / c->q_heads : 1;
    read_u32(r, "attention.key_length", false, 1, 1 << 20, &c->head_dim);
    uint32_t value_length = c->head_dim;
    read_u32(r, "attention.value_length", false, 1, 1 << 20, &value_length);
    if (r->status != TEMPER_OK)
        return;
    if (value_length != c->head_dim)
        r->status = error_set(r->err, TEMPER_UNSUPPORTED,
                              "%s: keys of %u and values of %u dimensions a head, which temper "
                              "cannot do yet",
                              gguf_name(r->file), c->head_dim, value_length);
    else if (c->head_dim % 4 != 0 || c->head_dim > MODEL_MAX_HEAD_DIM)
        r->status = error_set(r->err, TEMPER_UNSUPPORTED,
                              "%s: heads of %u dimensions; temper takes multiples of 4 up to %d",
                              gguf_name(r->file), c->head_dim, MODEL_MAX_HEAD_DIM);
}

/* ---- windows --------------------------------------------------------------------------------- */

/* sliding_window_pattern is a period, or a list of what each layer is: 1 for a window. The list
 * must be a period, too. */
static void read_pattern(key_reader *r, model_config *c)
{
    const key_text key = arch_key(r->arch, "attention.sliding_window_pattern");
    const gguf_value *list = gguf_find(r->file, key.text);
    if (!is_integer_list(list)) {
        read_u32(r, "attention.sliding_window_pattern", false, 0, MODEL_MAX_LAYERS,
                 &c->global_period);
        return;
    }
    if (r->status != TEMPER_OK)
        return;
    uint64_t first_global = 0;
    while (first_global < list->count && gguf_array_int(list, first_global) != 0)
        first_global++;
    /* A period past the last layer makes all of them local. */
    c->global_period =
        (uint32_t)(first_global < MODEL_MAX_LAYERS ? first_global : MODEL_MAX_LAYERS);
    c->global_period++;
    for (uint64_t i = 0; i < list->count && i < c->layers; i++)
        if ((gguf_array_int(list, i) != 0) != ((i + 1) % c->global_period != 0)) {
            r->status = error_set(r->err, TEMPER_UNSUPPORTED,
                                  "%s: %s is no period, which temper cannot do yet (layer %llu)",
                                  gguf_name(r->file), key.text, (unsigned long long)i);
            return;
        }
}

bool model_layer_is_local(const model_config *c, uint32_t layer)
{
    return c->window > 0 && (c->global_period == 0 || (layer + 1) % c->global_period != 0);
}

/* ---- rope ------------------------------------------------------------------------------------ */

static void read_scaling(key_reader *r, model_config *c)
{
    static const struct {
        const char *name;
        model_rope_scaling scaling;
    } kinds[] = {{"none", ROPE_PLAIN},
                 {"linear", ROPE_LINEAR},
                 {"yarn", ROPE_YARN},
                 {"longrope", ROPE_LONG}};
    const bool old_key = has_key(r, "rope.scale_linear") && !has_key(r, "rope.scaling.factor");
    const char *factor = old_key ? "rope.scale_linear" : "rope.scaling.factor";
    const key_text key = arch_key(r->arch, "rope.scaling.type");
    gguf_string type = {"", 0};
    bool found = false;
    /* A factor alone is linear. */
    c->rope_scaling = has_key(r, factor) ? ROPE_LINEAR : ROPE_PLAIN;
    if (gguf_find_tensor(r->file, "rope_factors_long.weight") != NULL)
        c->rope_scaling = ROPE_LONG;
    if (r->status == TEMPER_OK)
        r->status = gguf_get_string(r->file, key.text, &type, &found, r->err);
    if (r->status != TEMPER_OK)
        return;
    bool known = !found;
    for (uint32_t i = 0; found && i < sizeof kinds / sizeof kinds[0]; i++)
        if (text_is(type.data, type.length, kinds[i].name)) {
            c->rope_scaling = kinds[i].scaling;
            known = true;
        }
    if (!known)
        r->status = error_set(
            r->err, TEMPER_UNSUPPORTED,
            "%s: %s is \"%.*s\"; temper knows none, linear, yarn and longrope, and llama3's by "
            "rope_freqs.weight",
            gguf_name(r->file), key.text, (int)(type.length > 64 ? 64 : type.length), type.data);
    c->rope_factor = 1.0f;
    if (c->rope_scaling == ROPE_LINEAR || c->rope_scaling == ROPE_YARN)
        read_f32(r, factor, true, &c->rope_factor);
}

static void read_rope(key_reader *r, model_config *c)
{
    float given_magnitude = 1.0f;
    if (c->arch == MODEL_GPT2)
        return;
    c->rope_dims = c->head_dim;
    c->rope_base = 10000.0f;
    c->rope_original = c->context;
    read_u32(r, "rope.dimension_count", false, 1, MODEL_MAX_HEAD_DIM, &c->rope_dims);
    read_f32(r, "rope.freq_base", false, &c->rope_base);
    read_f32(r, "rope.freq_base_swa", false, &c->rope_local_base);
    read_scaling(r, c);
    read_u32(r, "rope.scaling.original_context_length", false, 1, MODEL_MAX_CONTEXT,
             &c->rope_original);
    read_f32(r, "rope.scaling.yarn_beta_fast", false, &c->yarn_fast);
    read_f32(r, "rope.scaling.yarn_beta_slow", false, &c->yarn_slow);
    read_f32(r, "rope.scaling.yarn_ext_factor", false, &c->yarn_extrapolation);
    read_f32(r, "rope.scaling.yarn_attn_factor", false, &c->rope_magnitude);
    read_f32(r, "rope.scaling.attn_factor", false, &given_magnitude);
    refuse_key(r, "rope.scaling.yarn_log_multiplier", "a magnitude by dimensions");
    if (r->status == TEMPER_OK && (c->rope_dims > c->head_dim || c->rope_dims % 2 != 0))
        r->status =
            error_set(r->err, TEMPER_BAD_FILE, "%s: %u rotated dimensions do not fit heads of %u",
                      gguf_name(r->file), c->rope_dims, c->head_dim);
    model_config_complete(c);
    c->rope_magnitude *= given_magnitude;
}

/* ---- the whole ------------------------------------------------------------------------------- */

static temper_status unknown_architecture(const gguf_file *file, gguf_string arch, error *err)
{
    strbuf names = {0};
    for (uint32_t i = 0; i < MODEL_ARCHES; i++)
        strbuf_printf(&names, "%s%s", i == 0 ? "" : ", ", arch_names[i]);
    const temper_status status =
        error_set(err, TEMPER_UNSUPPORTED, "%s: the architecture is \"%.*s\"; temper runs: %s",
                  gguf_name(file), (int)(arch.length > 64 ? 64 : arch.length), arch.data,
                  strbuf_text(&names));
    strbuf_free(&names);
    return status;
}

temper_status model_config_read(const gguf_file *file, uint32_t vocabulary, model_config *out,
                                error *err)
{
    assert(file != NULL && out != NULL);
    const gguf_string arch = model_architecture(file);
    model_config c = {.vocabulary = vocabulary};
    if (!model_arch_find(arch.data, arch.length, &c.arch))
        return unknown_architecture(file, arch, err);
    key_reader r = {.file = file, .arch = arch, .err = err};
    read_u32(&r, "block_count", true, 1, MODEL_MAX_LAYERS, &c.layers);
    read_u32(&r, "embedding_length", true, 1, MODEL_MAX_WIDTH, &c.width);
    read_u32(&r, "feed_forward_length", true, 1, MODEL_MAX_FFN, &c.ffn);
    read_u32(&r, "context_length", true, 1, MODEL_MAX_CONTEXT, &c.context);
    read_f32(&r,
             c.arch == MODEL_GPT2 ? "attention.layer_norm_epsilon"
                                  : "attention.layer_norm_rms_epsilon",
             true, &c.norm_eps);
    read_heads(&r, &c);
    read_f32(&r, "attention.scale", false, &c.attention_scale);
    read_f32(&r, "attn_logit_softcapping", false, &c.attention_softcap);
    read_f32(&r, "final_logit_softcapping", false, &c.logit_softcap);
    read_u32(&r, "attention.sliding_window", false, 0, UINT32_MAX, &c.window);
    read_pattern(&r, &c);
    read_rope(&r, &c);
    refuse_key(&r, "expert_count", "a mixture of experts");
    if (r.status != TEMPER_OK)
        return r.status;
    if (vocabulary < 1 || vocabulary > MODEL_MAX_VOCABULARY)
        return error_set(err, TEMPER_BAD_FILE, "%s: %u tokens; temper takes 1 to %d",
                         gguf_name(file), vocabulary, MODEL_MAX_VOCABULARY);
    model_config_complete(&c);
    *out = c;
    return TEMPER_OK;
}

/* Gemma 3 of 27B divides by the root of width / heads, the smaller ones by that of head_dim; a GGUF
 * file says so by its 62 layers only. */
static float usual_attention_scale(const model_config *c)
{
    const bool large_gemma = c->arch == MODEL_GEMMA3 && c->layers == 62;
    return 1.0f / sqrtf(large_gemma ? (float)c->width / (float)c->q_heads : (float)c->head_dim);
}

static void complete(float *value, float usual)
{
    if (*value == 0.0f)
        *value = usual;
}

void model_config_complete(model_config *c)
{
    const bool gemma = c->arch == MODEL_GEMMA3;
    const bool stretched = c->rope_scaling == ROPE_YARN && c->rope_factor > 1.0f;
    complete(&c->embedding_scale, gemma ? sqrtf((float)c->width) : 1.0f);
    complete(&c->attention_scale, usual_attention_scale(c));
    if (gemma && c->window > 0 && c->global_period == 0)
        c->global_period = 6;
    if (c->arch != MODEL_LLAMA)
        c->rope_halves = true;
    complete(&c->rope_local_base, gemma ? 10000.0f : 0.0f);
    complete(&c->rope_factor, 1.0f);
    if (c->rope_original == 0)
        c->rope_original = c->context;
    complete(&c->yarn_fast, 32.0f);
    complete(&c->yarn_slow, 1.0f);
    complete(&c->yarn_extrapolation, 1.0f);
    /* Peng et al., "YaRN: Efficient Context Window Extension of Large Language Models", 2023. */
    complete(&c->rope_magnitude, stretched ? 1.0f + 0.1f * logf(c->rope_factor) : 1.0f);
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

/* ---- frequencies ----------------------------------------------------------------------------- */

/* The pair, as a real number, that makes `turns` turns over the original context. */
static double pair_of_turns(const model_config *c, double turns)
{
    return (double)c->rope_dims *
           log((double)c->rope_original / (turns * 6.283185307179586476925286766559)) /
           (2.0 * log((double)c->rope_base));
}

/* yarn: the share of pair i that keeps its frequency: 1 for fast pairs, 0 for slow ones, a ramp
 * between. */
static double yarn_kept(const model_config *c, uint32_t pair)
{
    const double low = fmax(floor(pair_of_turns(c, (double)c->yarn_fast)), 0.0);
    const double high =
        fmin(ceil(pair_of_turns(c, (double)c->yarn_slow)), (double)c->rope_dims - 1.0);
    const double ramp = ((double)pair - low) / fmax(high - low, 0.001);
    return (1.0 - fmin(fmax(ramp, 0.0), 1.0)) * (double)c->yarn_extrapolation;
}

void model_rope_frequencies(const model_config *c, bool local, const float *factors,
                            double *inv_freq)
{
    assert(c != NULL && inv_freq != NULL && (!local || c->rope_local_base > 0.0f));
    const double base = (double)(local ? c->rope_local_base : c->rope_base);
    for (uint32_t i = 0; i < c->rope_dims / 2; i++) {
        inv_freq[i] = pow(base, -2.0 * (double)i / (double)c->rope_dims);
        if (local)
            continue;
        if (c->rope_scaling == ROPE_LINEAR)
            inv_freq[i] /= (double)c->rope_factor;
        if (c->rope_scaling == ROPE_YARN) {
            const double kept = yarn_kept(c, i);
            inv_freq[i] *= kept + (1.0 - kept) / (double)c->rope_factor;
        }
        if (factors != NULL)
            inv_freq[i] /= (double)factors[i];
    }
}
