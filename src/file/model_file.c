#include "file/model_file.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/checked.h"
#include "base/mem.h"
#include "base/strbuf.h"
#include "file/assembly.h"
#include "file/hf.h"
#include "file/widened.h"

enum { PARTS_MAX = 1024, PART_ENDING = 20 /* "-00001-of-00003.gguf" */ };

bool model_file_is_directory(const char *path)
{
    struct stat status;
    return stat(path, &status) == 0 && S_ISDIR(status.st_mode);
}

/* ---- joining parts --------------------------------------------------------------------------- */

/* Where a part stands: its number from 0, and how many there are (1 for a file that is not split).
 */
static temper_status read_place(const gguf_file *part, uint32_t *number, uint32_t *count,
                                error *err)
{
    bool found = false;
    *number = 0;
    *count = 1;
    temper_status status = gguf_get_u32(part, "split.count", count, &found, err);
    if (status == TEMPER_OK && *count == 0)
        *count = 1;
    if (status == TEMPER_OK && *count > 1)
        status = gguf_get_u32(part, "split.no", number, NULL, err);
    if (status != TEMPER_OK)
        return status;
    if (*count > PARTS_MAX)
        return error_set(err, TEMPER_UNSUPPORTED, "%s: one of %u parts, more than %d",
                         gguf_name(part), *count, PARTS_MAX);
    if (*number >= *count)
        return error_set(err, TEMPER_BAD_FILE, "%s: part %u (counted from 0) of %u parts",
                         gguf_name(part), *number, *count);
    return TEMPER_OK;
}

/* Puts opened parts in order; every number is there once. */
static temper_status order_parts(gguf_file **opened, uint32_t count, gguf_file **ordered,
                                 error *err)
{
    for (uint32_t i = 0; i < count; i++) {
        uint32_t number = 0, parts = 0;
        const temper_status status = read_place(opened[i], &number, &parts, err);
        if (status != TEMPER_OK)
            return status;
        if (parts != count)
            return error_set(err, TEMPER_BAD_FILE,
                             "%s: part %u of a model in %u parts, of which %u are here",
                             gguf_name(opened[i]), number + 1, parts, count);
        if (ordered[number] != NULL)
            return error_set(err, TEMPER_BAD_FILE, "%s: part %u of %u is %s already",
                             gguf_name(opened[i]), number + 1, count, gguf_name(ordered[number]));
        ordered[number] = opened[i];
    }
    return TEMPER_OK;
}

static bool key_is(const gguf_value *value, const char *key)
{
    return value->key.length == strlen(key) && memcmp(value->key.data, key, strlen(key)) == 0;
}

/* The keys of the first part; the alignment is the new file's own. */
static temper_status join_keys(const gguf_file *first, uint64_t tensors, gguf_head *head,
                               error *err)
{
    uint64_t wanted = 0;
    bool found = false;
    const temper_status status = gguf_get_u64(first, "split.tensors.count", &wanted, &found, err);
    if (status != TEMPER_OK)
        return status;
    if (found && wanted != tensors)
        return error_set(err, TEMPER_BAD_FILE,
                         "%s: the model has %llu tensors, its parts together hold %llu",
                         gguf_name(first), (unsigned long long)wanted, (unsigned long long)tensors);
    for (uint64_t i = 0; i < gguf_value_count(first); i++) {
        const gguf_value *value = gguf_value_at(first, i);
        if (!key_is(value, "split.no") && !key_is(value, "split.count") &&
            !key_is(value, "split.tensors.count") && !key_is(value, "general.alignment"))
            gguf_head_value(head, value);
    }
    return TEMPER_OK;
}

/* Adds the tensors of a part; its directory goes, its source stays with the assembly. */
static temper_status join_tensors(assembly *a, gguf_file **part, const source *src, error *err)
{
    temper_status status = TEMPER_OK;
    for (uint64_t i = 0; status == TEMPER_OK && i < gguf_tensor_count(*part); i++) {
        const gguf_tensor *t = gguf_tensor_at(*part, i);
        status = assembly_add(a, t->name, t->dim_count, t->dims, t->type,
                              &(assembly_piece){.from = src, .offset = t->offset}, err);
    }
    if (status != TEMPER_OK)
        return status;
    source *owned = gguf_detach(*part);
    *part = NULL;
    return assembly_keep(a, owned, err);
}

static temper_status join_ordered(gguf_file **ordered, source *const *sources, uint32_t count,
                                  gguf_file **out, error *err)
{
    assembly *a = NULL;
    source *whole = NULL;
    uint64_t tensors = 0;
    for (uint32_t i = 0; i < count; i++)
        tensors += gguf_tensor_count(ordered[i]);
    temper_status status = assembly_open(gguf_name(ordered[0]), &a, err);
    if (status != TEMPER_OK)
        return status;
    status = join_keys(ordered[0], tensors, assembly_head(a), err);
    for (uint32_t i = 0; status == TEMPER_OK && i < count; i++)
        status = join_tensors(a, &ordered[i], sources[i], err);
    if (status != TEMPER_OK) {
        assembly_close(a);
        return status;
    }
    status = assembly_finish(a, &whole, err);
    return status == TEMPER_OK ? gguf_open(whole, out, err) : status;
}

temper_status gguf_join(source **parts, uint32_t count, gguf_file **out, error *err)
{
    assert(parts != NULL && count > 0 && out != NULL);
    gguf_file **opened = mem_calloc(2 * (size_t)count, sizeof *opened);
    source **sources = mem_calloc(count, sizeof *sources);
    temper_status status = TEMPER_OK;
    if (opened == NULL || sources == NULL)
        status = error_set(err, TEMPER_NO_MEMORY, "%s: no memory left to open it", parts[0]->name);
    for (uint32_t i = 0; i < count; i++) {
        if (status == TEMPER_OK)
            status = gguf_open(parts[i], &opened[i], err);
        else
            source_close(parts[i]);
    }
    gguf_file **ordered = opened == NULL ? NULL : opened + count;
    if (status == TEMPER_OK)
        status = order_parts(opened, count, ordered, err);
    for (uint32_t i = 0; status == TEMPER_OK && i < count; i++)
        for (uint32_t j = 0; j < count; j++)
            if (ordered[i] == opened[j])
                sources[i] = parts[j];
    const bool in_order = status == TEMPER_OK;
    if (in_order)
        status = join_ordered(ordered, sources, count, out, err);
    /* What joining has taken over is NULL in the ordered list. */
    for (uint32_t i = 0; opened != NULL && i < count; i++)
        gguf_close(in_order ? ordered[i] : opened[i]);
    mem_free(opened);
    mem_free(sources);
    return status;
}

/* ---- paths ----------------------------------------------------------------------------------- */

/* The path of part `number` of a model, from that of one of its parts; NULL when the name is not
 * one of a part, or without memory. */
static char *path_of_part(const char *path, uint32_t number, uint32_t count)
{
    const size_t length = strlen(path);
    char ending[48];
    strbuf other = {0};
    snprintf(ending, sizeof ending, "-of-%05u.gguf", count);
    const size_t shared = strlen(ending);
    if (length < PART_ENDING || strcmp(path + length - shared, ending) != 0)
        return NULL;
    const size_t digits = length - shared;
    for (size_t i = 1; i <= 5; i++)
        if (path[digits - i] < '0' || path[digits - i] > '9')
            return NULL;
    if (path[digits - 6] != '-')
        return NULL;
    strbuf_append(&other, path, digits - 5);
    strbuf_printf(&other, "%05u%s", number + 1, ending);
    char *copy = other.failed ? NULL : mem_strdup(strbuf_text(&other));
    strbuf_free(&other);
    return copy;
}

/* Opens the parts beside an opened one. `first` is taken over. */
static temper_status open_parts(const char *path, gguf_file *first, uint32_t number, uint32_t count,
                                gguf_file **out, error *err)
{
    source **parts = mem_calloc(count, sizeof *parts);
    temper_status status = TEMPER_OK;
    uint32_t opened = 0;
    if (parts == NULL) {
        gguf_close(first);
        return error_set(err, TEMPER_NO_MEMORY, "%s: no memory left to open it", path);
    }
    parts[opened++] = gguf_detach(first);
    for (uint32_t i = 0; status == TEMPER_OK && i < count; i++) {
        if (i == number)
            continue;
        char *other = path_of_part(path, i, count);
        if (other == NULL)
            status = error_set(err, TEMPER_BAD_FILE,
                               "%s: part %u of %u of a split model, whose files must be named "
                               "NAME-%05u-of-%05u.gguf to be found",
                               parts[0]->name, number + 1, count, number + 1, count);
        else
            status = source_open_file(other, &parts[opened], err);
        if (status == TEMPER_OK)
            opened++;
        else if (other != NULL)
            error_prefix(err, "part %u of %u is missing", i + 1, count);
        mem_free(other);
    }
    if (status == TEMPER_OK)
        status = gguf_join(parts, count, out, err);
    else
        for (uint32_t i = 0; i < opened; i++)
            source_close(parts[i]);
    mem_free(parts);
    return status;
}

/* The model as it is stored. */
static temper_status open_stored(const char *path, bool vocabulary, gguf_file **out, error *err)
{
    source *src = NULL;
    gguf_file *file = NULL;
    temper_status status;
    if (model_file_is_directory(path)) {
        status = hf_open(path, vocabulary, &src, err);
        return status == TEMPER_OK ? gguf_open(src, out, err) : status;
    }
    if ((status = source_open_file(path, &src, err)) != TEMPER_OK ||
        (status = gguf_open(src, &file, err)) != TEMPER_OK)
        return status;
    uint32_t number = 0, count = 1;
    status = read_place(file, &number, &count, err);
    if (status != TEMPER_OK) {
        gguf_close(file);
        return status;
    }
    if (count > 1)
        return open_parts(path, file, number, count, out, err);
    *out = file;
    return TEMPER_OK;
}

temper_status model_file_open(const char *path, bool vocabulary, const temper_widen *widen,
                              gguf_file **out, error *err)
{
    assert(path != NULL && out != NULL);
    gguf_file *file = NULL;
    const temper_status status = open_stored(path, vocabulary, &file, err);
    if (status != TEMPER_OK)
        return status;
    if (widen != NULL)
        return gguf_widen(file, widen, out, err);
    *out = file;
    return TEMPER_OK;
}
