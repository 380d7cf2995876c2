#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/folder.h"
#include "cli.h"

#define DEFAULT_MODEL "SmolLM2-135M-Instruct-Q4_1.gguf"

device_options cli_device;

const option cli_device_options[] = {
    {"--device", OPTION_TEXT, &cli_device.device, "NAME",
     "adapter, by number or part of its name (see doctor)"},
    {"--no-feature", OPTION_TEXT, &cli_device.without, "LIST",
     "do without f16,subgroups,subgroup-matrix,..."},
    {"--limit", OPTION_LIST, &cli_device.limits, "NAME=VALUE",
     "lower a limit of the device (repeatable)"},
    {"--robust", OPTION_FLAG, &cli_device.robust, NULL, "keep the WebGPU library's bounds checks"},
    {"--exact", OPTION_FLAG, &cli_device.exact, NULL,
     "products and attention in f32 alone: neither f16 nor fixed point"},
    /* Words in the order of temper_lossy. */
    {"--lossy", OPTION_ONE_OF, &cli_device.lossy, "int8|f16-block|f16-sums",
     "round more in products: inputs to int8, or sums to f16 in blocks or all along; SPEED.md "
     "tells the error"},
    {NULL, OPTION_FLAG, NULL, NULL, NULL},
};

cache_options cli_cache = {.kv = "f32"};

const option cli_cache_options[] = {
    {"--kv", OPTION_TEXT, &cli_cache.kv, "TYPE", "type of the KV cache: f32 (default), f16 or q8"},
    {NULL, OPTION_FLAG, NULL, NULL, NULL},
};

int cli_kv(const char *command, temper_kv *out)
{
    static const struct {
        const char *name;
        temper_kv kv;
    } types[] = {{"f32", TEMPER_KV_F32}, {"f16", TEMPER_KV_F16}, {"q8", TEMPER_KV_Q8}};
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
        if (strcmp(cli_cache.kv, types[i].name) == 0) {
            *out = types[i].kv;
            return 0;
        }
    return cli_usage_error(command, "--kv is \"%.200s\"; it must be f32, f16 or q8", cli_cache.kv);
}

static bool widen_asked;

const option cli_widen_options[] = {
    {"--widen", OPTION_FLAG, &widen_asked, NULL,
     "read types without a layout (IQ1 to IQ4, MXFP4, TQ1_0, TQ2_0) as F16, each weight rounded"},
    {NULL, OPTION_FLAG, NULL, NULL, NULL},
};

static void tell_widened(const temper_widened *what, void *user)
{
    char bytes[32];
    strbuf name = {0};
    (void)user;
    cli_progress_clear();
    cli_one_line(&name, what->tensor, strlen(what->tensor));
    fprintf(stderr, "temper: %.96s", strbuf_text(&name));
    if (what->tensors > 1)
        fprintf(stderr, " and %llu more", (unsigned long long)what->tensors - 1);
    fprintf(stderr, " (%s): read as F16, each weight rounded; %s more\n", what->type,
            cli_bytes(what->extra_bytes, bytes));
    strbuf_free(&name);
}

const temper_widen *cli_widen(void)
{
    static const temper_widen widen = {.tell = tell_widened};
    return widen_asked ? &widen : NULL;
}

const char *cli_model_path(const char *given)
{
    static char path[FOLDER_PATH_BYTES];
    if (given != NULL)
        return given;
    if (folder_of_user("models/" DEFAULT_MODEL, path) && access(path, R_OK) == 0)
        return path;
    strbuf shown = {0};
    cli_one_line(&shown, path, strlen(path));
    fprintf(stderr,
            "temper: no model was named, and the default one cannot be read at\n"
            "  %s\n"
            "name a GGUF file, or run tools/setup to fetch the default model\n",
            strbuf_text(&shown));
    strbuf_free(&shown);
    return NULL;
}

const char *cli_tune_folder(void)
{
    static char path[FOLDER_PATH_BYTES];
    const char *given = getenv("TEMPER_TUNE");
    if (given != NULL)
        return given[0] != '\0' ? given : NULL;
    return folder_of_user("tune", path) ? path : NULL;
}

temper_device_desc cli_device_desc(bool tuned)
{
    return (temper_device_desc){.adapter = cli_device.device,
                                .without = cli_device.without,
                                .limits = cli_device.limits.items,
                                .limit_count = (uint32_t)cli_device.limits.count,
                                .robust = cli_device.robust,
                                .tuning = tuned ? cli_tune_folder() : NULL};
}

bool cli_device_asked(void)
{
    return cli_device.device != NULL || cli_device.without != NULL || cli_device.limits.count > 0;
}

temper_status cli_open_device(temper_device **out, temper_error *err)
{
    const temper_device_desc desc = cli_device_desc(true);
    return temper_device_open(&desc, out, err);
}

temper_lossy cli_lossy(void)
{
    return (temper_lossy)cli_device.lossy;
}

static bool show_progress(uint64_t done, uint64_t total, void *user)
{
    (void)user;
    if (done < total)
        cli_progress("loading %3u%%", (unsigned)((double)done / (double)total * 100.0));
    else
        cli_progress_clear();
    return !cli_interrupted();
}

temper_status cli_open_engine(const char *path, uint32_t max_rows, temper_engine **out,
                              temper_error *err)
{
    temper_device *device = NULL;
    temper_status status = cli_open_device(&device, err);
    if (status != TEMPER_OK)
        return status;
    const temper_engine_desc desc = {.model = path,
                                     .device = device,
                                     .max_rows = max_rows,
                                     .exact = cli_device.exact,
                                     .lossy = cli_lossy(),
                                     .widen = cli_widen(),
                                     .progress = show_progress};
    status = temper_engine_open(&desc, out, err);
    temper_device_release(device);
    cli_progress_clear();
    return status;
}

temper_status cli_open_engine_beside(const temper_engine *first, const char *path,
                                     temper_lossy lossy, temper_engine **out, temper_error *err)
{
    const temper_engine_desc desc = {.model = path,
                                     .device = temper_engine_device(first),
                                     .exact = cli_device.exact,
                                     .lossy = lossy,
                                     .widen = cli_widen(),
                                     .progress = show_progress};
    const temper_status status = temper_engine_open(&desc, out, err);
    cli_progress_clear();
    return status;
}

temper_status cli_open_vocabulary(const char *path, temper_engine **out, temper_error *err)
{
    return temper_engine_open(&(temper_engine_desc){.model = path, .vocabulary_only = true}, out,
                              err);
}

/* More than any text that a model takes; without a bound /dev/zero would take all memory. */
static const size_t most_text = (size_t)1 << 30;

static temper_status read_stream(FILE *in, const char *name, char **out, size_t *length,
                                 temper_error *err)
{
    size_t capacity = 65536, used = 0;
    char *text = malloc(capacity);
    while (text != NULL) {
        used += fread(text + used, 1, capacity - used - 1, in);
        if (used < capacity - 1 || used > most_text)
            break;
        char *larger = realloc(text, capacity * 2);
        if (larger == NULL)
            free(text);
        text = larger;
        capacity *= 2;
    }
    if (text == NULL)
        return error_set(err, TEMPER_NO_MEMORY, "%s: no memory to read it", name);
    if (ferror(in) || used > most_text) {
        const int reason = errno;
        free(text);
        return ferror(in)
                   ? error_set(err, TEMPER_IO, "%s: %s", name, strerror(reason))
                   : error_set(err, TEMPER_IO, "%s: longer than 1 GiB, which no text is", name);
    }
    text[used] = '\0';
    *out = text;
    *length = used;
    return TEMPER_OK;
}

temper_status cli_read_file(const char *path, char **out, size_t *length, temper_error *err)
{
    if (strcmp(path, "-") == 0)
        return read_stream(stdin, "standard input", out, length, err);
    strbuf name = {0};
    cli_one_line(&name, path, strlen(path));
    FILE *in = fopen(path, "rb");
    const temper_status status =
        in == NULL ? error_set(err, TEMPER_IO, "%s: %s", strbuf_text(&name), strerror(errno))
                   : read_stream(in, strbuf_text(&name), out, length, err);
    if (in != NULL)
        fclose(in);
    strbuf_free(&name);
    return status;
}
