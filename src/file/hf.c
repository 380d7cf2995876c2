/*
 * hf.c - a Hugging Face directory: finding its files, and its tensors under GGUF's names.
 */
#include "file/hf.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/checked.h"
#include "base/mem.h"
#include "file/hf_internal.h"
#include "file/safetensors.h"

enum { JSON_MAX_BYTES = 1 << 28, SHARDS_MAX = 512 };

/* ---- small files ----------------------------------------------------------------------------- */

static char *path_of(const char *directory, const char *name)
{
    strbuf path = {0};
    strbuf_puts(&path, directory);
    strbuf_putc(&path, '/');
    strbuf_puts(&path, name);
    char *copy = path.failed ? NULL : mem_strdup(strbuf_text(&path));
    strbuf_free(&path);
    return copy;
}

temper_status hf_open_file(const char *directory, const char *name, source **out, error *err)
{
    char *path = path_of(directory, name);
    temper_status status = TEMPER_OK;
    *out = NULL;
    if (path == NULL)
        return error_set(err, TEMPER_NO_MEMORY, "%s: no memory left to open it", directory);
    if (access(path, F_OK) == 0 || errno != ENOENT)
        status = source_open_file(path, out, err);
    mem_free(path);
    return status;
}

temper_status hf_read_text(const hf_directory *hf, const char *name, char **out, uint64_t *length,
                           error *err)
{
    source *src = NULL;
    temper_status status = hf_open_file(hf->path, name, &src, err);
    *out = NULL;
    if (status != TEMPER_OK || src == NULL)
        return status;
    char *text = src->size > JSON_MAX_BYTES ? NULL : mem_alloc((size_t)src->size + 1);
    if (src->size > JSON_MAX_BYTES)
        status = error_set(err, TEMPER_UNSUPPORTED, "%s: larger than the limit of %d bytes",
                           src->name, JSON_MAX_BYTES);
    else if (text == NULL)
        status = error_set(err, TEMPER_NO_MEMORY, "%s: no memory left to read it", src->name);
    else
        status = source_read(src, 0, text, src->size, err);
    *length = src->size;
    source_close(src);
    if (status != TEMPER_OK) {
        mem_free(text);
        return status;
    }
    text[*length] = '\0';
    *out = text;
    return TEMPER_OK;
}

temper_status hf_read_json(const hf_directory *hf, const char *name, bool must, json_t **out,
                           error *err)
{
    char *text = NULL;
    uint64_t length = 0;
    const temper_status status = hf_read_text(hf, name, &text, &length, err);
    *out = NULL;
    if (status != TEMPER_OK)
        return status;
    if (text == NULL)
        return must ? error_set(err, TEMPER_IO, "%s: there is no %s in this directory", hf->path,
                                name)
                    : TEMPER_OK;
    json_error_t why = {0};
    json_t *value = json_loadb(text, (size_t)length, JSON_REJECT_DUPLICATES, &why);
    mem_free(text);
    if (json_is_object(value)) {
        *out = value;
        return TEMPER_OK;
    }
    json_decref(value);
    return error_set(err, TEMPER_BAD_FILE, "%s/%s: is no JSON object: line %d: %s", hf->path, name,
                     why.line, value == NULL ? why.text : "another kind of value");
}

/* ---- tensors under GGUF's names -------------------------------------------------------------- */

typedef struct new_name {
    char text[64];
    uint32_t heads; /* whose rows are reordered; 0: none are */
    bool transposed;
    bool skipped;
} new_name;

static const struct {
    const char *from, *to;
} outer_names[] = {
    {"model.embed_tokens.weight", "token_embd.weight"},
    {"model.norm.weight", "output_norm.weight"},
    {"lm_head.weight", "output.weight"},
    {"wte.weight", "token_embd.weight"},
    {"wpe.weight", "position_embd.weight"},
    {"ln_f.weight", "output_norm.weight"},
    {"ln_f.bias", "output_norm.bias"},
};

/* The first row that fits wins; kind: -1 for every family. */
static const struct {
    int kind;
    const char *from, *to;
} layer_names[] = {
    {HF_GEMMA3, "post_attention_layernorm", "post_attention_norm"},
    {HF_GEMMA3, "pre_feedforward_layernorm", "ffn_norm"},
    {HF_GEMMA3, "post_feedforward_layernorm", "post_ffw_norm"},
    {HF_PHI3, "self_attn.qkv_proj", "attn_qkv"},
    {HF_PHI3, "mlp.gate_up_proj", "ffn_up"},
    {HF_GPT2, "ln_1", "attn_norm"},
    {HF_GPT2, "attn.c_attn", "attn_qkv"},
    {HF_GPT2, "attn.c_proj", "attn_output"},
    {HF_GPT2, "ln_2", "ffn_norm"},
    {HF_GPT2, "mlp.c_fc", "ffn_up"},
    {HF_GPT2, "mlp.c_proj", "ffn_down"},
    {-1, "input_layernorm", "attn_norm"},
    {-1, "self_attn.q_proj", "attn_q"},
    {-1, "self_attn.k_proj", "attn_k"},
    {-1, "self_attn.v_proj", "attn_v"},
    {-1, "self_attn.o_proj", "attn_output"},
    {-1, "self_attn.q_norm", "attn_q_norm"},
    {-1, "self_attn.k_norm", "attn_k_norm"},
    {-1, "post_attention_layernorm", "ffn_norm"},
    {-1, "mlp.gate_proj", "ffn_gate"},
    {-1, "mlp.up_proj", "ffn_up"},
    {-1, "mlp.down_proj", "ffn_down"},
};

static bool ends_with(const char *text, const char *end)
{
    const size_t length = strlen(text), wanted = strlen(end);
    return length >= wanted && strcmp(text + length - wanted, end) == 0;
}

/* "model.layers.3.mlp.up_proj.weight" is "blk.3.ffn_up.weight". */
static bool name_in_layer(const hf_directory *hf, const char *name, new_name *out)
{
    const hf_kind kind = hf->family->kind;
    const char *before = kind == HF_GPT2 ? "h." : "model.layers.";
    char *end = NULL;
    if (strncmp(name, before, strlen(before)) != 0)
        return false;
    const char *digits = name + strlen(before);
    const unsigned long layer = strtoul(digits, &end, 10);
    if (digits[0] < '0' || digits[0] > '9' || (digits[0] == '0' && end != digits + 1) ||
        layer >= hf->layers || end[0] != '.')
        return false;
    const char *rest = end + 1;
    for (size_t i = 0; i < sizeof layer_names / sizeof layer_names[0]; i++) {
        const size_t length = strlen(layer_names[i].from);
        if ((layer_names[i].kind >= 0 && layer_names[i].kind != (int)kind) ||
            strncmp(rest, layer_names[i].from, length) != 0 ||
            (strcmp(rest + length, ".weight") != 0 && strcmp(rest + length, ".bias") != 0))
            continue;
        const char *to = layer_names[i].to;
        snprintf(out->text, sizeof out->text, "blk.%lu.%s%s", layer, to, rest + length);
        if (kind == HF_LLAMA && strcmp(to, "attn_q") == 0)
            out->heads = hf->q_heads;
        if (kind == HF_LLAMA && strcmp(to, "attn_k") == 0)
            out->heads = hf->kv_heads;
        out->transposed = kind == HF_GPT2;
        return true;
    }
    return false;
}

static temper_status find_name(const hf_directory *hf, const char *name, new_name *out, error *err)
{
    const bool gpt2 = hf->family->kind == HF_GPT2;
    *out = (new_name){0};
    /* Some files keep what the configuration says anyway, or what is no weight. */
    out->skipped =
        ends_with(name, ".rotary_emb.inv_freq") ||
        (hf->tied && strcmp(name, "lm_head.weight") == 0) ||
        (gpt2 && (ends_with(name, ".attn.bias") || ends_with(name, ".attn.masked_bias")));
    if (out->skipped)
        return TEMPER_OK;
    if (gpt2 && strncmp(name, "transformer.", 12) == 0)
        name += 12;
    for (size_t i = 0; i < sizeof outer_names / sizeof outer_names[0]; i++)
        if (strcmp(outer_names[i].from, name) == 0) {
            snprintf(out->text, sizeof out->text, "%s", outer_names[i].to);
            return TEMPER_OK;
        }
    if (name_in_layer(hf, name, out))
        return TEMPER_OK;
    return error_set(err, TEMPER_UNSUPPORTED,
                     "%s: the tensor %.120s has no place in %s as temper knows it", hf->path, name,
                     hf->family->class_name);
}

/* Norms, biases and positions: read now, as F32, in GGUF's order. */
static temper_status add_vector(const hf_directory *hf, source *src, const safetensors_tensor *t,
                                const new_name *name, error *err)
{
    const uint64_t n = t->elements, heads = name->heads;
    uint8_t *bytes = mem_alloc((size_t)t->bytes);
    float *values = mem_alloc((size_t)n * sizeof *values);
    float *ordered = mem_alloc((size_t)n * sizeof *ordered);
    temper_status status = TEMPER_OK;
    if (bytes == NULL || values == NULL || ordered == NULL)
        status =
            error_set(err, TEMPER_NO_MEMORY, "%s: no memory left for %.120s", hf->path, t->name);
    else
        status = source_read(src, t->offset, bytes, t->bytes, err);
    if (status == TEMPER_OK) {
        dtype_dequantize_row(t->type, n, bytes, values);
        const uint64_t head = heads == 0 ? 1 : n / heads;
        const float added =
            hf->family->kind == HF_GEMMA3 && ends_with(name->text, "_norm.weight") ? 1.0f : 0.0f;
        for (uint64_t i = 0; i < n; i++) {
            const uint64_t in = i % head;
            ordered[i] = values[heads == 0 ? i : i - in + in % 2 * (head / 2) + in / 2] + added;
        }
    }
    mem_free(bytes);
    mem_free(values);
    if (status != TEMPER_OK) {
        mem_free(ordered);
        return status;
    }
    const uint64_t dims[2] = {t->dims[t->dim_count - 1], t->dims[0]};
    return assembly_add(hf->whole, (gguf_string){name->text, strlen(name->text)}, t->dim_count,
                        dims, DTYPE_F32, &(assembly_piece){.memory = ordered}, err);
}

static temper_status add_tensor(hf_directory *hf, source *src, const safetensors_tensor *t,
                                error *err)
{
    new_name name;
    const temper_status status = find_name(hf, t->name, &name, err);
    if (status != TEMPER_OK || name.skipped)
        return status;
    if (!t->loadable)
        return error_set(err, TEMPER_UNSUPPORTED,
                         "%s: %.120s is %s; temper reads F32, F16 and BF16 here", src->name,
                         t->name, t->type_name);
    if (t->dim_count < 1 || t->dim_count > 2 || t->elements == 0)
        return error_set(err, TEMPER_BAD_FILE,
                         "%s: %.120s is neither a matrix nor a vector that holds anything",
                         src->name, t->name);
    if (name.heads != 0 && t->dims[0] % (2 * (uint64_t)name.heads) != 0)
        return error_set(err, TEMPER_BAD_FILE,
                         "%s: %.120s has %llu rows, which do not divide into %u heads", src->name,
                         t->name, (unsigned long long)t->dims[0], name.heads);
    if (t->dim_count == 1 || strcmp(name.text, "position_embd.weight") == 0)
        return add_vector(hf, src, t, &name, err);
    const uint64_t dims[2] = {t->dims[name.transposed ? 0 : 1], t->dims[name.transposed ? 1 : 0]};
    if (t->bytes > hf->widest_bytes) {
        hf->widest = t->type;
        hf->widest_bytes = t->bytes;
    }
    return assembly_add(
        hf->whole, (gguf_string){name.text, strlen(name.text)}, 2, dims, (uint32_t)t->type,
        &(assembly_piece){
            .from = src, .offset = t->offset, .heads = name.heads, .transposed = name.transposed},
        err);
}

/* ---- safetensors files ----------------------------------------------------------------------- */

/* All tensors of a file, or with an index those that it places there. */
static temper_status add_file(hf_directory *hf, const char *name, const json_t *map, error *err)
{
    char *path = path_of(hf->path, name);
    source *src = NULL;
    safetensors *file = NULL;
    if (path == NULL)
        return error_set(err, TEMPER_NO_MEMORY, "%s: no memory left to open it", hf->path);
    temper_status status = source_open_file(path, &src, err);
    mem_free(path);
    if (status == TEMPER_OK)
        status = assembly_keep(hf->whole, src, err);
    if (status == TEMPER_OK)
        status = safetensors_open(src, &file, err);
    for (uint64_t i = 0; status == TEMPER_OK && i < safetensors_count(file); i++) {
        const safetensors_tensor *t = safetensors_at(file, i);
        const char *place = json_string_value(json_object_get(map, t->name));
        if (map == NULL || (place != NULL && strcmp(place, name) == 0))
            status = add_tensor(hf, src, t, err);
    }
    /* What the index promises of this file is there. */
    const char *wanted;
    json_t *place;
    json_object_foreach((json_t *)(uintptr_t)map, wanted, place)
    {
        if (status == TEMPER_OK && strcmp(json_string_value(place), name) == 0 &&
            safetensors_find(file, wanted) == NULL)
            status = error_set(err, TEMPER_BAD_FILE,
                               "%s: the tensor %.120s is missing, though the index places it there",
                               src->name, wanted);
    }
    safetensors_close(file);
    return status;
}

/* The names of the shards, each once; `names` holds them in order of first mention. */
static temper_status list_shards(const hf_directory *hf, const json_t *map, const char **names,
                                 size_t *count, error *err)
{
    const char *tensor;
    json_t *place;
    json_object_foreach((json_t *)(uintptr_t)map, tensor, place)
    {
        const char *name = json_string_value(place);
        if (name == NULL || name[0] == '\0' || name[0] == '.' || strchr(name, '/') != NULL)
            return error_set(err, TEMPER_BAD_FILE,
                             "%s/model.safetensors.index.json: the file of %.120s is no plain name",
                             hf->path, tensor);
        size_t i = 0;
        while (i < *count && strcmp(names[i], name) != 0)
            i++;
        if (i == SHARDS_MAX)
            return error_set(err, TEMPER_UNSUPPORTED, "%s: more than %d safetensors files",
                             hf->path, SHARDS_MAX);
        if (i == *count)
            names[(*count)++] = name;
    }
    return TEMPER_OK;
}

static temper_status add_weights(hf_directory *hf, error *err)
{
    json_t *index = NULL;
    const char *names[SHARDS_MAX];
    size_t count = 0;
    temper_status status = hf_read_json(hf, "model.safetensors.index.json", false, &index, err);
    if (status != TEMPER_OK)
        return status;
    if (index == NULL)
        return add_file(hf, "model.safetensors", NULL, err);
    const json_t *map = json_object_get(index, "weight_map");
    status = json_is_object(map)
                 ? list_shards(hf, map, names, &count, err)
                 : error_set(err, TEMPER_BAD_FILE,
                             "%s/model.safetensors.index.json: has no \"weight_map\"", hf->path);
    for (size_t i = 0; status == TEMPER_OK && i < count; i++)
        status = add_file(hf, names[i], map, err);
    json_decref(index);
    return status;
}

/* ---- opening --------------------------------------------------------------------------------- */

static temper_status fill(hf_directory *hf, error *err)
{
    temper_status status;
    if ((status = hf_read_json(hf, "config.json", true, &hf->config, err)) != TEMPER_OK ||
        (status = hf_write_config(hf, err)) != TEMPER_OK ||
        (status = hf_read_json(hf, "tokenizer.json", true, &hf->tokenizer, err)) != TEMPER_OK ||
        (status = hf_read_json(hf, "tokenizer_config.json", false, &hf->tokenizer_config, err)) !=
            TEMPER_OK ||
        (status = hf_write_vocabulary(hf, err)) != TEMPER_OK)
        return status;
    if ((status = add_weights(hf, err)) != TEMPER_OK)
        return status;
    /* ggml's numbers for a file that is mostly of one type. */
    const uint32_t file_type = hf->widest == DTYPE_F16 ? 1 : hf->widest == DTYPE_BF16 ? 32 : 0;
    gguf_head_u32(assembly_head(hf->whole), "general.file_type", file_type);
    return TEMPER_OK;
}

temper_status hf_open(const char *directory, bool vocabulary, source **out, error *err)
{
    assert(directory != NULL && out != NULL);
    hf_directory hf = {.path = directory, .must_have_vocabulary = vocabulary};
    temper_status status = assembly_open(directory, &hf.whole, err);
    if (status != TEMPER_OK)
        return status;
    status = fill(&hf, err);
    json_decref(hf.config);
    json_decref(hf.tokenizer);
    json_decref(hf.tokenizer_config);
    if (status != TEMPER_OK) {
        assembly_close(hf.whole);
        return status;
    }
    return assembly_finish(hf.whole, out, err);
}
