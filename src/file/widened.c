#include "file/widened.h"

#include <assert.h>
#include <string.h>

#include "base/checked.h"
#include "base/dtype.h"
#include "base/strbuf.h"
#include "base/widen.h"
#include "file/assembly.h"

enum {
    SHOWN_NAME_BYTES = 96,
    FILE_TYPE_F16 = 1, /* ggml's number for a file of mostly F16 */
    TYPES_END = 64     /* above the numbers of all types */
};

temper_status gguf_check_loadable(const gguf_file *file, const gguf_tensor *tensor, error *err)
{
    const dtype_info *info = dtype_find(tensor->type);
    if (info != NULL && info->loadable)
        return TEMPER_OK;
    return error_set(err, TEMPER_UNSUPPORTED, "%s: %.*s is %s%s", gguf_name(file),
                     (int)min_u64(tensor->name.length, SHOWN_NAME_BYTES), tensor->name.data,
                     dtype_name(tensor->type),
                     widen_knows(tensor->type)
                         ? ", which has no layout on the device: --widen reads it as F16, each "
                           "weight rounded"
                         : "; temper reads " DTYPE_LOADABLE_NAMES
                           ", and with --widen " WIDEN_NAMES);
}

static bool key_is(const gguf_value *value, const char *key)
{
    return value->key.length == strlen(key) && memcmp(value->key.data, key, strlen(key)) == 0;
}

/* The old keys; the alignment is the new file's own, and so is the type that most of it has. */
static void copy_keys(const gguf_file *file, gguf_head *head)
{
    for (uint64_t i = 0; i < gguf_value_count(file); i++) {
        const gguf_value *value = gguf_value_at(file, i);
        if (key_is(value, "general.file_type"))
            gguf_head_u32(head, "general.file_type", FILE_TYPE_F16);
        else if (!key_is(value, "general.alignment"))
            gguf_head_value(head, value);
    }
}

static temper_status copy_tensors(const gguf_file *file, const source *src, assembly *a, error *err)
{
    uint64_t bytes = 0;
    for (uint64_t i = 0; i < gguf_tensor_count(file); i++) {
        const gguf_tensor *t = gguf_tensor_at(file, i);
        const bool widened = widen_knows(t->type);
        const assembly_piece piece = {
            .from = src, .offset = t->offset, .widened = widened ? t->type : DTYPE_F32};
        uint64_t grown = t->bytes;
        /* A directory that passed has sizes of 64 bits; in F16 they are up to ten times that. */
        if ((widened && !checked_mul(t->elements, 2, &grown)) ||
            !checked_add(bytes, grown, &bytes) || bytes > UINT64_MAX / 2)
            return error_set(err, TEMPER_BAD_FILE, "%s: its tensors do not fit 64 bits as F16",
                             src->name);
        const temper_status status = assembly_add(a, t->name, t->dim_count, t->dims,
                                                  widened ? DTYPE_F16 : t->type, &piece, err);
        if (status != TEMPER_OK)
            return status;
    }
    return TEMPER_OK;
}

static void tell(const gguf_file *file, const temper_widen *widen)
{
    for (uint32_t type = 0; widen->tell != NULL && type < TYPES_END; type++) {
        temper_widened what = {.type = dtype_name(type)};
        strbuf name = {0};
        for (uint64_t i = 0; widen_knows(type) && i < gguf_tensor_count(file); i++) {
            const gguf_tensor *t = gguf_tensor_at(file, i);
            if (t->type != type)
                continue;
            if (what.tensors++ == 0)
                strbuf_escape(&name, t->name.data, (size_t)t->name.length);
            what.extra_bytes += 2 * t->elements - t->bytes;
        }
        what.tensor = strbuf_text(&name);
        if (what.tensors > 0)
            widen->tell(&what, widen->user);
        strbuf_free(&name);
    }
}

static bool is_any_widened(const gguf_file *file)
{
    for (uint64_t i = 0; i < gguf_tensor_count(file); i++)
        if (widen_knows(gguf_tensor_at(file, i)->type))
            return true;
    return false;
}

temper_status gguf_widen(gguf_file *file, const temper_widen *widen, gguf_file **out, error *err)
{
    assert(file != NULL && widen != NULL && out != NULL);
    assembly *a = NULL;
    source *whole = NULL;
    if (!is_any_widened(file)) {
        *out = file;
        return TEMPER_OK;
    }
    temper_status status = assembly_open(gguf_name(file), &a, err);
    if (status == TEMPER_OK) {
        copy_keys(file, assembly_head(a));
        status = copy_tensors(file, gguf_source(file), a, err);
    }
    if (status != TEMPER_OK) {
        assembly_close(a);
        gguf_close(file);
        return status;
    }
    tell(file, widen);
    status = assembly_keep(a, gguf_detach(file), err);
    if (status != TEMPER_OK) {
        assembly_close(a);
        return status;
    }
    status = assembly_finish(a, &whole, err);
    return status == TEMPER_OK ? gguf_open(whole, out, err) : status;
}
