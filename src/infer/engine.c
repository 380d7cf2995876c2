#include <assert.h>
#include <string.h>

#include "base/checked.h"
#include "base/clock.h"
#include "base/mem.h"
#include "file/hf.h"
#include "file/model_file.h"
#include "infer/infer.h"
#include "model/shapes.h"
#include "op/rows.h"

/* A string of the file as an owned NUL-terminated copy; "" where the key is missing or no string.
 */
static char *copy_string(const gguf_file *file, const char *key)
{
    const gguf_value *value = gguf_find(file, key);
    if (value == NULL || value->type != GGUF_STRING)
        return mem_strdup("");
    return mem_strndup(value->as.string.data, (size_t)value->as.string.length);
}

static temper_status open_chat(temper_engine *engine, const gguf_file *file, error *err)
{
    const gguf_value *value = gguf_find(file, "tokenizer.chat_template");
    if (value == NULL || value->type != GGUF_STRING)
        return TEMPER_OK;
    char *texts[2] = {NULL, NULL};
    const int32_t ids[2] = {tokenizer_bos(engine->tok), tokenizer_eos(engine->tok)};
    temper_status status = TEMPER_OK;
    for (int i = 0; i < 2; i++) {
        size_t length = 0;
        const char *piece = ids[i] == TOKEN_NONE
                                ? ""
                                : tokenizer_piece(engine->tok, (uint32_t)ids[i], true, &length);
        texts[i] = mem_strndup(piece, length);
        if (texts[i] == NULL)
            status = error_set(err, TEMPER_NO_MEMORY, "no memory for the chat template");
    }
    /* A template that cannot be read stops a chat, not the model: temper_chat reports it. */
    if (status == TEMPER_OK)
        chat_template_open(value->as.string.data, (size_t)value->as.string.length, texts[0],
                           texts[1], &engine->chat, &engine->chat_failure);
    mem_free(texts[0]);
    mem_free(texts[1]);
    return status;
}

static const char *products_of(const model *net)
{
    if (net == NULL)
        return "f32";
    const op_products *allowed = &net->scratch.allowed;
    if (allowed->lossy == TEMPER_LOSSY_INT8)
        return "int8";
    return allowed->half || allowed->lossy != TEMPER_LOSSY_NONE ? "f16" : "f32";
}

/* What the network alone says. */
static void fill_info(temper_engine *engine, const model_config *c)
{
    engine->info = (temper_model_info){
        .architecture = engine->architecture,
        .name = engine->name,
        .tokenizer = "",
        .layers = c->layers,
        .width = c->width,
        .ffn = c->ffn,
        .q_heads = c->q_heads,
        .kv_heads = c->kv_heads,
        .head_dim = c->head_dim,
        .vocabulary = c->vocabulary,
        .context = c->context,
        .load_seconds = engine->load_seconds,
        .load_host_bytes = engine->load_host_bytes,
        .products = products_of(engine->net),
        .lossy = engine->net != NULL ? engine->net->scratch.allowed.lossy : TEMPER_LOSSY_NONE,
        .default_context = (uint32_t)min_u64(c->context, MODEL_DEFAULT_CONTEXT),
        .bos = TOKEN_NONE,
        .eos = TOKEN_NONE,
    };
}

/* Weights are read, unpacked and laid out for matrix units once a step, and more rows fill a large
 * card: llama-1b's prompts of 2048 run 1.3 times as fast in one step as in four (SPEED.md). Where a
 * CPU computes, or a GPU without matrix units, a step of so many rows would keep the device busy
 * for long. */
uint32_t infer_step_rows(bool software, bool matrices, const model_config *config)
{
    const op_product_bytes none = {0, 0};
    if (software)
        return INFER_SOFTWARE_ROWS;
    uint32_t rows = matrices ? INFER_MATRIX_ROWS : INFER_DEFAULT_ROWS;
    while (rows > INFER_DEFAULT_ROWS &&
           scratch_bytes(NULL, config, rows, 1, none) > INFER_STEP_BYTES)
        rows /= 2;
    return rows;
}

uint32_t infer_max_rows(gpu_device *device, const model_config *config, bool exact, uint32_t wanted)
{
    if (wanted > 0)
        return wanted;
    if (device == NULL)
        return infer_step_rows(false, false, config);
    const bool matrices =
        !exact && (gpu_device_features(device) & GPU_FEATURE_SUBGROUP_MATRIX) != 0;
    return infer_step_rows(op_device_is_software(device), matrices, config);
}

/* Takes the caller's device or opens the best one, and begins a call on it. */
static temper_status enter_device(temper_engine *engine, const temper_engine_desc *desc,
                                  const model_config *config, uint32_t *max_rows, error *err)
{
    if (desc->max_rows > INFER_MAX_ROWS)
        return error_set(err, TEMPER_BAD_ARGUMENT, "max_rows is %u; it must be 1 to %d",
                         desc->max_rows, INFER_MAX_ROWS);
    temper_status status = TEMPER_OK;
    if (desc->device != NULL)
        engine->device = temper_device_retain(desc->device);
    else
        status = temper_device_open(NULL, &engine->device, err);
    if (status != TEMPER_OK)
        return status;
    *max_rows = infer_max_rows(engine->device->gpu, config, desc->exact, desc->max_rows);
    return infer_enter(engine->device, err);
}

static temper_status open_network(temper_engine *engine, const gguf_file *file,
                                  const temper_engine_desc *desc, model_config *config, error *err)
{
    uint32_t max_rows = 0;
    if (gguf_tensor_count(file) == 0)
        return error_set(err, TEMPER_BAD_FILE,
                         "%s: holds a vocabulary and no tensors: it can be tokenized with, not run",
                         gguf_name(file));
    temper_status status = model_config_read(file, tokenizer_size(engine->tok), config, err);
    if (status == TEMPER_OK)
        status = enter_device(engine, desc, config, &max_rows, err);
    if (status != TEMPER_OK)
        return status;
    const uint64_t live = mem_live_bytes();
    const double start = clock_seconds();
    mem_reset_peak();
    status = model_open(file, engine->device->gpu, config, max_rows, desc->progress, desc->user,
                        &engine->net, err);
    engine->load_seconds = clock_seconds() - start;
    /* Uploads are in memory of the host that the device maps. */
    engine->load_host_bytes =
        mem_peak_bytes() - live +
        gpu_device_counters(engine->device->gpu).peak_bytes[GPU_PURPOSE_STAGING];
    if (status == TEMPER_OK)
        status = model_choose_products(engine->net, desc->exact, desc->lossy, err);
    infer_leave(engine->device);
    return status;
}

/* A directory's tokenizer comes from its own files, which say more than GGUF's keys can. */
static temper_status open_tokenizer(temper_engine *engine, const gguf_file *file, const char *path,
                                    error *err)
{
    if (!model_file_is_directory(path))
        return tokenizer_open(file, &engine->tok, err);
    tokenizer_files files = {0};
    const struct {
        const char *name;
        source **src;
    } rows[] = {
        {"tokenizer.json", &files.tokenizer},
        {"tokenizer_config.json", &files.tokenizer_config},
        {"config.json", &files.config},
        {"generation_config.json", &files.generation_config},
    };
    temper_status status = TEMPER_OK;
    for (size_t i = 0; status == TEMPER_OK && i < sizeof rows / sizeof rows[0]; i++)
        status = hf_open_file(path, rows[i].name, rows[i].src, err);
    if (status == TEMPER_OK)
        status = tokenizer_open_json(&files, &engine->tok, err);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        source_close(*rows[i].src);
    return status;
}

/* Everything of the engine that comes from the opened file. */
static temper_status open_parts(temper_engine *engine, const gguf_file *file,
                                const temper_engine_desc *desc, error *err)
{
    const gguf_string arch = model_architecture(file);
    engine->architecture = mem_strndup(arch.data, (size_t)arch.length);
    engine->name = copy_string(file, "general.name");
    if (engine->architecture == NULL || engine->name == NULL)
        return error_set(err, TEMPER_NO_MEMORY, "no memory for an engine");
    temper_status status = open_tokenizer(engine, file, desc->model, err);
    if (status == TEMPER_OK)
        status = open_chat(engine, file, err);
    model_config config = {0};
    if (status == TEMPER_OK && desc->vocabulary_only)
        model_config_peek(file, &config);
    else if (status == TEMPER_OK)
        status = open_network(engine, file, desc, &config, err);
    if (status != TEMPER_OK)
        return status;
    fill_info(engine, &config);
    for (uint64_t i = 0; i < gguf_tensor_count(file); i++)
        engine->info.parameters += gguf_tensor_at(file, i)->elements;
    engine->info.file_bytes = gguf_file_bytes(file);
    engine->info.tokenizer = tokenizer_kind(engine->tok);
    engine->info.vocabulary = tokenizer_size(engine->tok);
    engine->info.bos = tokenizer_bos(engine->tok);
    engine->info.eos = tokenizer_eos(engine->tok);
    engine->info.adds_bos = tokenizer_adds_bos(engine->tok);
    engine->info.has_chat_template = gguf_find(file, "tokenizer.chat_template") != NULL;
    return TEMPER_OK;
}

static temper_status open_file(temper_engine *engine, const temper_engine_desc *desc, error *err)
{
    gguf_file *file = NULL;
    temper_status status = model_file_open(desc->model, false, desc->widen, &file, err);
    if (status == TEMPER_OK)
        status = open_parts(engine, file, desc, err);
    gguf_close(file);
    return status;
}

temper_status infer_shape_type(const char *name, dtype *out, error *err)
{
    const char *wanted = name == NULL ? "Q4_0" : name;
    for (uint32_t type = 0; type <= DTYPE_BF16; type++) {
        const dtype_info *info = dtype_find(type);
        if (info != NULL && info->loadable && strcmp(wanted, info->name) == 0) {
            *out = (dtype)type;
            return TEMPER_OK;
        }
    }
    return error_set(err, TEMPER_BAD_ARGUMENT,
                     "random weights of type \"%s\" are not made; there are " DTYPE_LOADABLE_NAMES,
                     wanted);
}

/* A network of random weights in a known shape. */
static temper_status open_shape(temper_engine *engine, const temper_engine_desc *desc, error *err)
{
    dtype type = DTYPE_Q4_0;
    model_config config;
    uint32_t max_rows = 0;
    temper_status status = infer_shape_type(desc->shape_type, &type, err);
    if (status == TEMPER_OK)
        status = model_shape_find(desc->shape, &config, err);
    if (status == TEMPER_OK)
        status = enter_device(engine, desc, &config, &max_rows, err);
    if (status != TEMPER_OK)
        return status;
    status = model_open_random(engine->device->gpu, &config, type, max_rows, &engine->net, err);
    if (status == TEMPER_OK)
        status = model_choose_products(engine->net, desc->exact, desc->lossy, err);
    infer_leave(engine->device);
    engine->architecture = status == TEMPER_OK ? mem_strdup(model_arch_name(config.arch)) : NULL;
    engine->name = mem_strdup(desc->shape);
    if (status == TEMPER_OK && (engine->architecture == NULL || engine->name == NULL))
        status = error_set(err, TEMPER_NO_MEMORY, "no memory for an engine");
    fill_info(engine, &config);
    return status;
}

temper_status temper_engine_open(const temper_engine_desc *desc, temper_engine **out,
                                 temper_error *err)
{
    assert(out != NULL);
    if (desc == NULL || (desc->model == NULL) == (desc->shape == NULL))
        return error_set(err, TEMPER_BAD_ARGUMENT, "temper_engine_open needs a model or a shape");
    if (temper_lossy_name(desc->lossy) == NULL)
        return error_set(err, TEMPER_BAD_ARGUMENT, "lossy is %d, which is no member of its enum",
                         (int)desc->lossy);
    if (desc->exact && desc->lossy != TEMPER_LOSSY_NONE)
        return error_set(err, TEMPER_BAD_ARGUMENT, "products are exact or %s, not both",
                         temper_lossy_name(desc->lossy));
    temper_engine *engine = mem_calloc(1, sizeof *engine);
    if (engine == NULL)
        return error_set(err, TEMPER_NO_MEMORY, "no memory for an engine");
    atomic_init(&engine->references, 1);
    const temper_status status =
        desc->model != NULL ? open_file(engine, desc, err) : open_shape(engine, desc, err);
    if (status != TEMPER_OK) {
        temper_engine_close(engine);
        return status;
    }
    *out = engine;
    return TEMPER_OK;
}

temper_engine *infer_engine_retain(temper_engine *engine)
{
    atomic_fetch_add(&engine->references, 1);
    return engine;
}

void temper_engine_close(temper_engine *engine)
{
    if (engine == NULL || atomic_fetch_sub(&engine->references, 1) != 1)
        return;
    model_close(engine->net);
    temper_device_release(engine->device);
    chat_template_close(engine->chat);
    tokenizer_close(engine->tok);
    mem_free(engine->architecture);
    mem_free(engine->name);
    mem_free(engine);
}

const temper_model_info *temper_engine_info(const temper_engine *engine)
{
    assert(engine != NULL);
    return &engine->info;
}

temper_device *temper_engine_device(const temper_engine *engine)
{
    assert(engine != NULL);
    return engine->device;
}

/* ---- text ----------------------------------------------------------------------------------- */

temper_status temper_tokenize(const temper_engine *engine, const char *text, size_t length,
                              uint32_t flags, temper_tokens *out, temper_error *err)
{
    assert(engine != NULL && out != NULL && (text != NULL || length == 0));
    if (engine->tok == NULL)
        return error_set(err, TEMPER_UNSUPPORTED, "a random shape has no tokenizer");
    const bool has_bos = tokenizer_bos(engine->tok) != TOKEN_NONE;
    const bool asked = (flags & TEMPER_ADD_BOS) != 0;
    const bool automatic = (flags & TEMPER_AUTO_BOS) != 0 && tokenizer_adds_bos(engine->tok);
    if (asked && !has_bos)
        return error_set(err, TEMPER_BAD_ARGUMENT, "this vocabulary has no BOS token");
    token_list list = {0};
    const temper_status status = tokenizer_encode_prompt(
        engine->tok, text, length == SIZE_MAX ? strlen(text) : length,
        (flags & TEMPER_PARSE_SPECIAL) != 0, has_bos && (asked || automatic), &list, err);
    if (status != TEMPER_OK) {
        token_list_free(&list);
        return status;
    }
    *out = (temper_tokens){list.ids, list.count};
    return TEMPER_OK;
}

const char *temper_piece(const temper_engine *engine, uint32_t id, size_t *length)
{
    assert(engine != NULL && length != NULL);
    *length = 0;
    if (engine->tok == NULL || id >= tokenizer_size(engine->tok))
        return NULL;
    return tokenizer_piece(engine->tok, id, true, length);
}

bool temper_ends(const temper_engine *engine, uint32_t id)
{
    assert(engine != NULL);
    return engine->tok != NULL && id < tokenizer_size(engine->tok) &&
           tokenizer_ends(engine->tok, id);
}

temper_status temper_chat(const temper_engine *engine, const temper_message *messages, size_t count,
                          temper_tokens *out, temper_error *err)
{
    assert(engine != NULL && out != NULL && (messages != NULL || count == 0));
    if (engine->chat_failure.status != TEMPER_OK)
        return error_set(err, engine->chat_failure.status, "%s", engine->chat_failure.text);
    if (engine->chat == NULL)
        return error_set(
            err, TEMPER_UNSUPPORTED,
            "the model file has no chat template: give the whole text yourself with --raw");
    chat_message *list = mem_calloc(count, sizeof *list);
    if (list == NULL)
        return error_set(err, TEMPER_NO_MEMORY, "no memory for %zu messages", count);
    for (size_t i = 0; i < count; i++)
        list[i] = (chat_message){messages[i].role, messages[i].content};
    strbuf text = {0};
    temper_status status = chat_template_render(engine->chat, list, count, true, &text, err);
    mem_free(list);
    if (status == TEMPER_OK)
        status = temper_tokenize(engine, strbuf_text(&text), text.length,
                                 TEMPER_AUTO_BOS | TEMPER_PARSE_SPECIAL, out, err);
    strbuf_free(&text);
    return status;
}
