#include "gpu/notes.h"

#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include "base/folder.h"
#include "base/mem.h"
#include "base/outfile.h"
#include "base/source.h"

enum { MOST_BYTES = 1 << 20 };

static const char last_line[] = "end\n";

/* A name of the driver's on one line. */
static void put_name(strbuf *out, const char *key, const char *name)
{
    strbuf escaped = {0};
    strbuf_escape(&escaped, name, strlen(name));
    strbuf_printf(out, "%s ", key);
    for (size_t i = 0; i < escaped.length; i++)
        strbuf_putc(out, escaped.data[i] == '\n' ? ' ' : escaped.data[i]);
    strbuf_putc(out, '\n');
    out->failed |= escaped.failed;
    strbuf_free(&escaped);
}

void gpu_note_identity(const gpu_device *device, strbuf *out)
{
    const gpu_adapter_info *info = gpu_device_adapter(device);
    const gpu_limits *limits = gpu_device_limits(device);
    put_name(out, "adapter", info->name);
    put_name(out, "driver", info->driver);
    put_name(out, "backend", info->backend);
    strbuf_printf(out, "subgroups %" PRIu32 " %" PRIu32 "\n", info->subgroup_min,
                  info->subgroup_max);
    for (uint32_t bit = 1; bit != 0 && bit <= gpu_device_features(device); bit <<= 1)
        if (gpu_device_features(device) & bit)
            strbuf_printf(out, "feature %s\n", gpu_feature_name((gpu_feature)bit));
#define X(field, name, initial, higher) strbuf_printf(out, name " %" PRIu64 "\n", limits->field);
    GPU_LIMIT_TABLE(X)
#undef X
    strbuf_printf(out, "bounds checks %s\n", gpu_device_robust(device) ? "on" : "off");
}

static void put_head(const gpu_device *device, const char *kind, strbuf *out)
{
    strbuf_printf(out, "temper %s 1\n", kind);
    gpu_note_identity(device, out);
}

void gpu_note_path(const gpu_device *device, const char *folder, const char *kind, strbuf *out)
{
    strbuf identity = {0};
    uint64_t hash = UINT64_C(14695981039346656037);
    gpu_note_identity(device, &identity);
    for (size_t i = 0; i < identity.length; i++)
        hash = (hash ^ (uint8_t)identity.data[i]) * UINT64_C(1099511628211);
    strbuf_printf(out, "%s/%s-%016" PRIx64 ".txt", folder, kind, hash);
    out->failed |= identity.failed;
    strbuf_free(&identity);
}

/* The whole file as text. */
static temper_status read_all(const char *path, strbuf *out, error *err)
{
    source *src = NULL;
    temper_status status = source_open_file(path, &src, err);
    if (status != TEMPER_OK)
        return status;
    if (src->size > MOST_BYTES)
        status = error_set(err, TEMPER_BAD_FILE, "%s: has %" PRIu64 " bytes, which no note has",
                           src->name, src->size);
    char *bytes = status == TEMPER_OK ? mem_alloc((size_t)src->size) : NULL;
    if (status == TEMPER_OK && bytes == NULL)
        status = error_set(err, TEMPER_NO_MEMORY, "%s: no memory to read it", src->name);
    if (status == TEMPER_OK)
        status = source_read(src, 0, bytes, src->size, err);
    if (status == TEMPER_OK)
        strbuf_append(out, bytes, (size_t)src->size);
    mem_free(bytes);
    source_close(src);
    return status;
}

static temper_status take_body(const gpu_device *device, const char *path, const char *kind,
                               const strbuf *text, strbuf *body, error *err)
{
    const size_t last = sizeof last_line - 1;
    const char *all = strbuf_text(text);
    strbuf head = {0};
    put_head(device, kind, &head);
    temper_status status = TEMPER_OK;
    if (head.failed || text->failed)
        status = error_set(err, TEMPER_NO_MEMORY, "%s: no memory to read it", path);
    else if (text->length < head.length || memcmp(all, strbuf_text(&head), head.length) != 0)
        status =
            error_set(err, TEMPER_BAD_FILE,
                      "%s: was not written for this device, this driver and these limits", path);
    else if (text->length < head.length + last || memchr(all, '\0', text->length) != NULL ||
             memcmp(all + text->length - last, last_line, last) != 0 ||
             all[text->length - last - 1] != '\n')
        status = error_set(err, TEMPER_BAD_FILE, "%s: is cut or damaged", path);
    else
        strbuf_append(body, all + head.length, text->length - head.length - last);
    strbuf_free(&head);
    return status;
}

temper_status gpu_note_read(const gpu_device *device, const char *folder, const char *kind,
                            strbuf *body, error *err)
{
    strbuf path = {0}, text = {0};
    temper_status status = TEMPER_OK;
    gpu_note_path(device, folder, kind, &path);
    if (path.failed)
        status = error_set(err, TEMPER_NO_MEMORY, "no memory for a path");
    const bool there = status == TEMPER_OK && access(strbuf_text(&path), F_OK) == 0;
    if (there)
        status = read_all(strbuf_text(&path), &text, err);
    if (there && status == TEMPER_OK)
        status = take_body(device, strbuf_text(&path), kind, &text, body, err);
    strbuf_free(&path);
    strbuf_free(&text);
    return status;
}

temper_status gpu_note_write(const gpu_device *device, const char *folder, const char *kind,
                             const char *body, error *err)
{
    strbuf path = {0}, text = {0};
    outfile *out = NULL;
    gpu_note_path(device, folder, kind, &path);
    put_head(device, kind, &text);
    strbuf_puts(&text, body);
    strbuf_puts(&text, last_line);
    temper_status status = TEMPER_OK;
    if (path.failed || text.failed)
        status = error_set(err, TEMPER_NO_MEMORY, "no memory for a note");
    if (status == TEMPER_OK)
        status = folder_make(folder, err);
    if (status == TEMPER_OK)
        status = outfile_create(strbuf_text(&path), &out, err);
    if (status == TEMPER_OK)
        status = outfile_write(out, text.data, text.length, err);
    if (status == TEMPER_OK)
        status = outfile_commit(out, err);
    else
        outfile_discard(out);
    strbuf_free(&path);
    strbuf_free(&text);
    return status;
}
