#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "base/checked.h"
#include "base/dtype.h"
#include "base/mem.h"
#include "base/strbuf.h"
#include "file/model_file.h"
#include "infer/infer.h"

enum { SHOWN_ELEMENTS = 8 };

struct temper_file {
    gguf_file *gguf;
    uint64_t bytes;
    char format[32];
    char *architecture;
    strbuf name, type, text; /* behind the views of the last call */
};

temper_status temper_file_open(const char *path, const temper_widen *widen, temper_file **out,
                               temper_error *err)
{
    assert(path != NULL && out != NULL);
    gguf_file *gguf = NULL;
    const temper_status status = model_file_open(path, false, widen, &gguf, err);
    if (status != TEMPER_OK)
        return status;
    temper_file *file = mem_calloc(1, sizeof *file);
    const gguf_string arch = model_architecture(gguf);
    strbuf text = {0};
    strbuf_escape(&text, arch.data, (size_t)arch.length);
    char *architecture = mem_strdup(strbuf_text(&text));
    strbuf_free(&text);
    if (file == NULL || architecture == NULL) {
        mem_free(file);
        mem_free(architecture);
        gguf_close(gguf);
        return error_set(err, TEMPER_NO_MEMORY, "no memory to look into %s", path);
    }
    file->gguf = gguf;
    file->bytes = gguf_file_bytes(gguf);
    file->architecture = architecture;
    if (model_file_is_directory(path))
        snprintf(file->format, sizeof file->format, "Hugging Face directory");
    else
        snprintf(file->format, sizeof file->format, "GGUF v%u", gguf_version(gguf));
    *out = file;
    return TEMPER_OK;
}

void temper_file_close(temper_file *file)
{
    if (file == NULL)
        return;
    gguf_close(file->gguf);
    mem_free(file->architecture);
    strbuf_free(&file->name);
    strbuf_free(&file->type);
    strbuf_free(&file->text);
    mem_free(file);
}

temper_file_info temper_file_get_info(const temper_file *file)
{
    assert(file != NULL);
    uint64_t parameters = 0;
    for (uint64_t i = 0; i < gguf_tensor_count(file->gguf); i++)
        parameters += gguf_tensor_at(file->gguf, i)->elements;
    return (temper_file_info){
        .format = file->format,
        .architecture = file->architecture,
        .bytes = file->bytes,
        .alignment = gguf_alignment(file->gguf),
        .parameters = parameters,
        .value_count = gguf_value_count(file->gguf),
        .tensor_count = gguf_tensor_count(file->gguf),
    };
}

/* One element as text: strings escaped, numbers as JSON writes them where they are finite. */
static void append_element(strbuf *out, const gguf_value *value, uint64_t index)
{
    switch (value->element) {
    case GGUF_STRING: {
        const gguf_string text = gguf_array_string(value, index);
        strbuf_putc(out, '"');
        strbuf_escape(out, text.data, (size_t)text.length);
        strbuf_putc(out, '"');
        break;
    }
    case GGUF_FLOAT32:
    case GGUF_FLOAT64:
        strbuf_printf(out, "%.9g", gguf_array_float(value, index));
        break;
    default:
        strbuf_printf(out, "%lld", (long long)gguf_array_int(value, index));
        break;
    }
}

static void append_value(strbuf *out, const gguf_value *value)
{
    switch (value->type) {
    case GGUF_ARRAY:
        strbuf_putc(out, '[');
        for (uint64_t i = 0; i < value->count && i < SHOWN_ELEMENTS; i++) {
            strbuf_puts(out, i == 0 ? "" : ", ");
            append_element(out, value, i);
        }
        strbuf_puts(out, value->count > SHOWN_ELEMENTS ? ", ...]" : "]");
        break;
    case GGUF_STRING:
        strbuf_escape(out, value->as.string.data, (size_t)value->as.string.length);
        break;
    case GGUF_BOOL:
        strbuf_puts(out, value->as.b ? "true" : "false");
        break;
    case GGUF_FLOAT32:
        strbuf_printf(out, "%.9g", value->as.f);
        break;
    case GGUF_FLOAT64:
        strbuf_printf(out, "%.17g", value->as.f);
        break;
    case GGUF_INT8:
    case GGUF_INT16:
    case GGUF_INT32:
    case GGUF_INT64:
        strbuf_printf(out, "%lld", (long long)value->as.i);
        break;
    default:
        strbuf_printf(out, "%llu", (unsigned long long)value->as.u);
        break;
    }
}

temper_status temper_file_get_value(temper_file *file, uint64_t index, temper_file_value *out,
                                    temper_error *err)
{
    assert(file != NULL && out != NULL && index < gguf_value_count(file->gguf));
    const gguf_value *value = gguf_value_at(file->gguf, index);
    strbuf_clear(&file->name);
    strbuf_clear(&file->type);
    strbuf_clear(&file->text);
    strbuf_escape(&file->name, value->key.data, (size_t)value->key.length);
    if (value->type == GGUF_ARRAY)
        strbuf_printf(&file->type, "array of %s", gguf_type_name(value->element));
    else
        strbuf_puts(&file->type, gguf_type_name(value->type));
    append_value(&file->text, value);
    if (file->name.failed || file->type.failed || file->text.failed)
        return error_set(err, TEMPER_NO_MEMORY, "no memory for a value of %s",
                         gguf_name(file->gguf));
    *out = (temper_file_value){
        .key = strbuf_text(&file->name),
        .type = strbuf_text(&file->type),
        .text = strbuf_text(&file->text),
        .count = value->count,
        .is_string = value->type == GGUF_STRING,
        .is_array = value->type == GGUF_ARRAY,
    };
    return TEMPER_OK;
}

temper_status temper_file_get_tensor(temper_file *file, uint64_t index, temper_file_tensor *out,
                                     temper_error *err)
{
    assert(file != NULL && out != NULL && index < gguf_tensor_count(file->gguf));
    const gguf_tensor *tensor = gguf_tensor_at(file->gguf, index);
    const dtype_info *info = dtype_find(tensor->type);
    strbuf_clear(&file->name);
    strbuf_clear(&file->type);
    strbuf_escape(&file->name, tensor->name.data, (size_t)tensor->name.length);
    strbuf_puts(&file->type, dtype_name(tensor->type));
    if (file->name.failed || file->type.failed)
        return error_set(err, TEMPER_NO_MEMORY, "no memory for a tensor of %s",
                         gguf_name(file->gguf));
    *out = (temper_file_tensor){
        .name = strbuf_text(&file->name),
        .type = strbuf_text(&file->type),
        .dim_count = tensor->dim_count,
        .offset = tensor->offset,
        .bytes = tensor->bytes,
        .loadable = info != NULL && info->loadable,
    };
    memcpy(out->dims, tensor->dims, sizeof out->dims);
    return TEMPER_OK;
}

/* The configuration of the network, with as many tokens as its tokenizer has. */
static temper_status read_config(const temper_file *file, model_config *config, error *err)
{
    if (gguf_tensor_count(file->gguf) == 0)
        return error_set(err, TEMPER_UNSUPPORTED, "%s: holds no tensors: it cannot be run",
                         gguf_name(file->gguf));
    const gguf_value *tokens = gguf_find(file->gguf, "tokenizer.ggml.tokens");
    uint64_t vocabulary = tokens != NULL && tokens->type == GGUF_ARRAY ? tokens->count : 0;
    /* A directory whose tokenizer has no place in GGUF's keys says how many there are. */
    char key[96];
    bool found = false;
    snprintf(key, sizeof key, "%.64s.vocab_size", file->architecture);
    if (tokens == NULL)
        gguf_get_u64(file->gguf, key, &vocabulary, &found, NULL);
    return model_config_read(file->gguf, (uint32_t)min_u64(vocabulary, UINT32_MAX), config, err);
}

temper_status temper_file_estimate(const temper_file *file, const temper_estimate_desc *desc,
                                   temper_memory_estimate *out, temper_error *err)
{
    assert(file != NULL && out != NULL);
    static const temper_estimate_desc defaults;
    if (desc == NULL)
        desc = &defaults;
    model_config config;
    model_memory memory;
    op_cache_type cache;
    temper_status status = infer_cache_type(desc->kv, &cache, err);
    if (status == TEMPER_OK)
        status = read_config(file, &config, err);
    if (status != TEMPER_OK)
        return status;
    const uint32_t context = desc->context > 0
                                 ? desc->context
                                 : (uint32_t)min_u64(config.context, MODEL_DEFAULT_CONTEXT);
    if (context > config.context)
        return error_set(err, TEMPER_BAD_ARGUMENT,
                         "a context of %u is more than the %u positions the model was trained for",
                         context, config.context);
    gpu_device *device = desc->device == NULL ? NULL : desc->device->gpu;
    status = model_measure(file->gguf, device, &config,
                           infer_max_rows(device, &config, false, desc->max_rows), context, &memory,
                           err);
    if (status != TEMPER_OK)
        return status;
    *out = (temper_memory_estimate){.weights = memory.weights,
                                    .cache = kv_cache_bytes(&config, context, cache),
                                    .scratch = memory.scratch,
                                    .context = context};
    out->total = out->weights + out->cache + out->scratch;
    return TEMPER_OK;
}
