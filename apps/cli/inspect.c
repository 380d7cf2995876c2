/*
 * inspect.c - `temper inspect`: what is in a model file, and the device memory that running it
 * takes.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "cli.h"

static struct inspect_options {
    uint64_t context;
    temper_kv kv;
    bool json;
} opt;

static const option inspect_options[] = {
    {"--ctx", OPTION_COUNT, &opt.context, "N", "positions of context for the memory estimate"},
    {"--json", OPTION_FLAG, &opt.json, NULL, "one JSON object: format, metadata, tensors, memory"},
    {NULL, OPTION_FLAG, NULL, NULL, NULL},
};

static const option *const tables[] = {inspect_options, cli_cache_options, cli_widen_options,
                                       cli_device_options, NULL};

/* The memory that the model takes on the device at hand, or why there is no estimate. */
typedef struct estimate {
    temper_memory_estimate memory;
    temper_error why;
    temper_device *device; /* NULL: none can be used here */
} estimate;

static json_t *value_json(const temper_file_value *value)
{
    if (value->is_array)
        return json_pack("{s:s, s:I, s:s}", "type", value->type, "count", (json_int_t)value->count,
                         "first", value->text);
    if (value->is_string)
        return cli_json_text(value->text, strlen(value->text));
    json_t *number = json_loads(value->text, JSON_DECODE_ANY, NULL);
    /* Numbers that JSON cannot write (inf, nan, past 2^63) stay text. */
    return number != NULL ? number : cli_json_text(value->text, strlen(value->text));
}

static json_t *estimate_json(const estimate *e)
{
    const temper_memory_estimate *memory = &e->memory;
    if (e->why.status != TEMPER_OK)
        return json_pack("{s:s}", "error", e->why.text);
    json_t *device = e->device == NULL ? json_null()
                                       : cli_json_text(temper_device_name(e->device),
                                                       strlen(temper_device_name(e->device)));
    return json_pack("{s:I, s:I, s:I, s:I, s:I, s:o}", "context", (json_int_t)memory->context,
                     "weights", (json_int_t)memory->weights, "cache", (json_int_t)memory->cache,
                     "scratch", (json_int_t)memory->scratch, "total", (json_int_t)memory->total,
                     "device", device);
}

static temper_status print_json(temper_file *file, const estimate *e, temper_error *err)
{
    const temper_file_info info = temper_file_get_info(file);
    json_t *values = json_object(), *tensors = json_array();
    temper_status status = TEMPER_OK;
    for (uint64_t i = 0; status == TEMPER_OK && i < info.value_count; i++) {
        temper_file_value value;
        if ((status = temper_file_get_value(file, i, &value, err)) == TEMPER_OK)
            json_object_set_new(values, value.key, value_json(&value));
    }
    for (uint64_t i = 0; status == TEMPER_OK && i < info.tensor_count; i++) {
        temper_file_tensor tensor;
        if ((status = temper_file_get_tensor(file, i, &tensor, err)) != TEMPER_OK)
            break;
        json_t *shape = json_array();
        for (uint32_t d = 0; d < tensor.dim_count; d++)
            json_array_append_new(shape, json_integer((json_int_t)tensor.dims[d]));
        json_array_append_new(
            tensors, json_pack("{s:s, s:s, s:o, s:I, s:I, s:b}", "name", tensor.name, "type",
                               tensor.type, "shape", shape, "offset", (json_int_t)tensor.offset,
                               "bytes", (json_int_t)tensor.bytes, "loadable", tensor.loadable));
    }
    json_t *all =
        json_pack("{s:s, s:s, s:I, s:I, s:I, s:o, s:o, s:o}", "format", info.format, "architecture",
                  info.architecture, "bytes", (json_int_t)info.bytes, "alignment",
                  (json_int_t)info.alignment, "parameters", (json_int_t)info.parameters, "metadata",
                  values, "tensors", tensors, "memory", estimate_json(e));
    if (status == TEMPER_OK)
        cli_print_json(all);
    else
        json_decref(all);
    return status;
}

/* Prints a value on one line: what does not fit is cut at a character's edge and marked. */
static void print_line(const char *key, const char *type, const char *text)
{
    strbuf name = {0};
    cli_one_line(&name, key, strlen(key));
    size_t length = strcspn(text, "\n");
    const bool cut = length > 80 || text[length] != '\0';
    if (length > 80)
        for (length = 80; length > 0 && ((unsigned char)text[length] & 0xc0) == 0x80;)
            length--;
    cli_print("  %-44s %-16s %.*s%s\n", strbuf_text(&name), type, (int)length, text,
              cut ? " ..." : "");
    strbuf_free(&name);
}

static void print_estimate(const estimate *e)
{
    const temper_memory_estimate *memory = &e->memory;
    char part[4][32];
    if (e->why.status != TEMPER_OK) {
        cli_print("\nno memory estimate: %s\n", e->why.text);
        return;
    }
    cli_print("\ndevice memory with a context of %u: %s (weights %s, cache %s, scratch %s)\n",
              memory->context, cli_bytes(memory->total, part[0]),
              cli_bytes(memory->weights, part[1]), cli_bytes(memory->cache, part[2]),
              cli_bytes(memory->scratch, part[3]));
    if (e->device != NULL)
        cli_print("on %s\n", temper_device_name(e->device));
    else
        cli_print("on a GPU without matrix units: no device can be used here\n");
}

static temper_status print_text(temper_file *file, const estimate *e, temper_error *err)
{
    const temper_file_info info = temper_file_get_info(file);
    char bytes[32];
    cli_print("%s, architecture %s, %llu parameters, %s\n\n", info.format,
              info.architecture[0] == '\0' ? "(none)" : info.architecture,
              (unsigned long long)info.parameters, cli_bytes(info.bytes, bytes));
    cli_print("%llu values\n", (unsigned long long)info.value_count);
    for (uint64_t i = 0; i < info.value_count; i++) {
        temper_file_value value;
        const temper_status status = temper_file_get_value(file, i, &value, err);
        if (status != TEMPER_OK)
            return status;
        char type[64];
        snprintf(type, sizeof type, value.is_array ? "%s [%llu]" : "%s", value.type,
                 (unsigned long long)value.count);
        print_line(value.key, type, value.text);
    }
    cli_print("\n%llu tensors\n", (unsigned long long)info.tensor_count);
    for (uint64_t i = 0; i < info.tensor_count; i++) {
        temper_file_tensor tensor;
        const temper_status status = temper_file_get_tensor(file, i, &tensor, err);
        if (status != TEMPER_OK)
            return status;
        char shape[96] = "";
        for (uint32_t d = 0; d < tensor.dim_count; d++) {
            const size_t at = strlen(shape);
            snprintf(shape + at, sizeof shape - at, d == 0 ? "%llu" : " x %llu",
                     (unsigned long long)tensor.dims[d]);
        }
        strbuf name = {0};
        cli_one_line(&name, tensor.name, strlen(tensor.name));
        cli_print("  %-44s %-8s %-24s %s\n", strbuf_text(&name), tensor.type, shape,
                  cli_bytes(tensor.bytes, bytes));
        strbuf_free(&name);
    }
    print_estimate(e);
    return TEMPER_OK;
}

/* Without a device there is still an estimate, unless one was asked for by name. */
static temper_status make_estimate(const temper_file *file, estimate *e, temper_error *err)
{
    temper_error no_device = {0};
    if (temper_file_get_info(file).tensor_count > 0 &&
        cli_open_device(&e->device, &no_device) != TEMPER_OK && cli_device_asked())
        return error_set(err, no_device.status, "%s", no_device.text);
    const temper_estimate_desc desc = {.device = e->device,
                                       .kv = opt.kv,
                                       .context = opt.context > UINT32_MAX ? UINT32_MAX
                                                                           : (uint32_t)opt.context};
    temper_file_estimate(file, &desc, &e->memory, &e->why);
    return TEMPER_OK;
}

int command_inspect(int argc, char **argv)
{
    if (args_want_help(argc, argv, tables))
        return args_help("temper inspect [FILE] [OPTIONS]",
                         "Shows the metadata and tensors of a GGUF file, and the memory that "
                         "running it takes on the device at hand.",
                         tables);
    const char *given = NULL;
    int usage = args_parse("inspect", argc, argv, tables, &given, 1);
    if (usage == 0)
        usage = cli_kv("inspect", &opt.kv);
    if (usage != 0)
        return usage;
    const char *path = cli_model_path(given);
    if (path == NULL)
        return EXIT_FAILED;
    temper_error err = {0};
    temper_file *file = NULL;
    estimate e = {0};
    temper_status status = temper_file_open(path, cli_widen(), &file, &err);
    if (status == TEMPER_OK)
        status = make_estimate(file, &e, &err);
    if (status == TEMPER_OK)
        status = opt.json ? print_json(file, &e, &err) : print_text(file, &e, &err);
    temper_device_release(e.device);
    temper_file_close(file);
    return status != TEMPER_OK ? cli_fail("inspect", &err) : cli_finish("inspect");
}
