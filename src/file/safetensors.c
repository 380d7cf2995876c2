#include "file/safetensors.h"

#include <assert.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/mem.h"

enum { SHOWN_NAME_BYTES = 120, LENGTH_BYTES = 8, TENSORS_MAX = 1 << 20 };

struct safetensors {
    json_t *header; /* behind the names */
    safetensors_tensor *tensors;
    uint64_t count;
    const safetensors_tensor **by_name;
};

static const struct {
    const char *name;
    uint32_t bits;
    bool loadable;
    dtype type;
} types[] = {
    {"F32", 32, true, DTYPE_F32},    {"F16", 16, true, DTYPE_F16},
    {"BF16", 16, true, DTYPE_BF16},  {"F64", 64, false, DTYPE_F64},
    {"I64", 64, false, DTYPE_I64},   {"I32", 32, false, DTYPE_I32},
    {"I16", 16, false, DTYPE_I16},   {"I8", 8, false, DTYPE_I8},
    {"U64", 64, false, DTYPE_I64},   {"U32", 32, false, DTYPE_I32},
    {"U16", 16, false, DTYPE_I16},   {"U8", 8, false, DTYPE_I8},
    {"BOOL", 8, false, DTYPE_I8},    {"F8_E4M3", 8, false, DTYPE_I8},
    {"F8_E5M2", 8, false, DTYPE_I8}, {"F8_E8M0", 8, false, DTYPE_I8},
    {"C64", 64, false, DTYPE_I64},
};

enum { TYPE_COUNT = sizeof types / sizeof types[0] };

/* ---- one tensor ------------------------------------------------------------------------------ */

static temper_status wrong(const source *src, const char *name, const char *what, error *err)
{
    return error_set(err, TEMPER_BAD_FILE, "%s: tensor '%.*s': %s", src->name, SHOWN_NAME_BYTES,
                     name, what);
}

/* A whole number of at most 63 bits. */
static bool read_number(const json_t *value, uint64_t *out)
{
    if (!json_is_integer(value) || json_integer_value(value) < 0)
        return false;
    *out = (uint64_t)json_integer_value(value);
    return true;
}

static temper_status read_shape(const source *src, const json_t *shape, safetensors_tensor *t,
                                error *err)
{
    if (!json_is_array(shape))
        return wrong(src, t->name, "\"shape\" is no list", err);
    if (json_array_size(shape) > SAFETENSORS_MAX_DIMS)
        return error_set(err, TEMPER_UNSUPPORTED,
                         "%s: tensor '%.*s' has %zu dimensions, more than %d", src->name,
                         SHOWN_NAME_BYTES, t->name, json_array_size(shape), SAFETENSORS_MAX_DIMS);
    t->dim_count = (uint32_t)json_array_size(shape);
    t->elements = 1;
    for (uint32_t i = 0; i < t->dim_count; i++)
        if (!read_number(json_array_get(shape, i), &t->dims[i]))
            return wrong(src, t->name, "a dimension is no whole number of 63 bits", err);
    /* Zeros first: a product with one of them is zero, whatever the others are. */
    for (uint32_t i = 0; i < t->dim_count; i++)
        if (t->dims[i] == 0)
            t->elements = 0;
    for (uint32_t i = 0; t->elements != 0 && i < t->dim_count; i++)
        if (!checked_mul(t->elements, t->dims[i], &t->elements))
            return wrong(src, t->name, "its shape does not fit 64 bits", err);
    return TEMPER_OK;
}

/* Begin and end in the data, whose size is known. */
static temper_status read_offsets(const source *src, const json_t *offsets, uint32_t bits,
                                  uint64_t data_bytes, safetensors_tensor *t, error *err)
{
    uint64_t end = 0, wanted = 0;
    if (!json_is_array(offsets) || json_array_size(offsets) != 2 ||
        !read_number(json_array_get(offsets, 0), &t->offset) ||
        !read_number(json_array_get(offsets, 1), &end))
        return wrong(src, t->name, "\"data_offsets\" are no two whole numbers", err);
    if (t->offset > end || end > data_bytes)
        return error_set(err, TEMPER_BAD_FILE,
                         "%s: tensor '%.*s' lies at bytes %" PRIu64 " to %" PRIu64 " of %" PRIu64
                         ": the file is damaged or incomplete",
                         src->name, SHOWN_NAME_BYTES, t->name, t->offset, end, data_bytes);
    t->bytes = end - t->offset;
    if (!checked_mul(t->elements, bits / 8, &wanted) || wanted != t->bytes)
        return error_set(err, TEMPER_BAD_FILE,
                         "%s: tensor '%.*s' has %" PRIu64 " bytes, but %" PRIu64 " elements of %s",
                         src->name, SHOWN_NAME_BYTES, t->name, t->bytes, t->elements, t->type_name);
    return TEMPER_OK;
}

static temper_status read_tensor(const source *src, const char *name, const json_t *entry,
                                 uint64_t data_bytes, safetensors_tensor *t, error *err)
{
    *t = (safetensors_tensor){.name = name};
    if (!json_is_object(entry) || json_object_size(entry) != 3)
        return wrong(src, name, "is not described by dtype, shape and data_offsets", err);
    const char *type = json_string_value(json_object_get(entry, "dtype"));
    uint32_t i = 0;
    while (type != NULL && i < TYPE_COUNT && strcmp(types[i].name, type) != 0)
        i++;
    if (type == NULL)
        return wrong(src, name, "\"dtype\" is no text", err);
    if (i == TYPE_COUNT)
        return error_set(err, TEMPER_UNSUPPORTED,
                         "%s: tensor '%.*s' is of the type %.40s, which temper does not know",
                         src->name, SHOWN_NAME_BYTES, name, type);
    t->type_name = types[i].name;
    t->loadable = types[i].loadable;
    t->type = types[i].type;
    temper_status status = read_shape(src, json_object_get(entry, "shape"), t, err);
    if (status == TEMPER_OK)
        status = read_offsets(src, json_object_get(entry, "data_offsets"), types[i].bits,
                              data_bytes, t, err);
    return status;
}

/* ---- the directory --------------------------------------------------------------------------- */

static int compare_offsets(const void *a, const void *b)
{
    const safetensors_tensor *x = a, *y = b;
    if (x->offset != y->offset)
        return x->offset < y->offset ? -1 : 1;
    return x->bytes < y->bytes ? -1 : x->bytes > y->bytes;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp((*(const safetensors_tensor *const *)a)->name,
                  (*(const safetensors_tensor *const *)b)->name);
}

static temper_status read_tensors(const source *src, uint64_t data_bytes, safetensors *file,
                                  error *err)
{
    const char *name;
    json_t *entry;
    temper_status status;
    json_object_foreach(file->header, name, entry)
    {
        if (strcmp(name, "__metadata__") == 0) {
            if (!json_is_object(entry))
                return error_set(err, TEMPER_BAD_FILE, "%s: __metadata__ is no object", src->name);
            continue;
        }
        status = read_tensor(src, name, entry, data_bytes, &file->tensors[file->count], err);
        if (status != TEMPER_OK)
            return status;
        file->count++;
    }
    if (file->count > 0)
        qsort(file->tensors, (size_t)file->count, sizeof file->tensors[0], compare_offsets);
    uint64_t end = 0;
    for (uint64_t i = 0; i < file->count; i++) {
        const safetensors_tensor *t = &file->tensors[i];
        if (t->offset != end)
            return error_set(err, TEMPER_BAD_FILE,
                             "%s: tensor '%.*s' begins at byte %" PRIu64
                             " of the data, the one before it ends at byte %" PRIu64,
                             src->name, SHOWN_NAME_BYTES, t->name, t->offset, end);
        end += t->bytes;
    }
    if (end != data_bytes)
        return error_set(err, TEMPER_BAD_FILE,
                         "%s: the tensors end at byte %" PRIu64 " of the data, which has %" PRIu64
                         " bytes",
                         src->name, end, data_bytes);
    return TEMPER_OK;
}

/* The JSON text of the header, whose length is checked against the file's. */
static temper_status read_header(source *src, json_t **out, uint64_t *data_start, error *err)
{
    uint8_t bytes[LENGTH_BYTES];
    uint64_t length = 0;
    if (src->size < LENGTH_BYTES)
        return error_set(err, TEMPER_BAD_FILE,
                         "%s: has %" PRIu64 " bytes, too few for a safetensors file", src->name,
                         src->size);
    temper_status status = source_read(src, 0, bytes, sizeof bytes, err);
    if (status != TEMPER_OK)
        return status;
    for (int i = 0; i < LENGTH_BYTES; i++)
        length |= (uint64_t)bytes[i] << (8 * i);
    if (length > SAFETENSORS_MAX_HEADER)
        return error_set(err, TEMPER_BAD_FILE,
                         "%s: a header of %" PRIu64 " bytes, more than the format's %d: is this a "
                         "safetensors file?",
                         src->name, length, SAFETENSORS_MAX_HEADER);
    if (length > src->size - LENGTH_BYTES)
        return error_set(err, TEMPER_BAD_FILE,
                         "%s: a header of %" PRIu64 " bytes, but the file has %" PRIu64
                         ": it is damaged or incomplete",
                         src->name, length, src->size);
    char *text = mem_alloc((size_t)length);
    if (text == NULL)
        return error_set(err, TEMPER_NO_MEMORY, "%s: no memory left for its header", src->name);
    status = source_read(src, LENGTH_BYTES, text, length, err);
    json_error_t why = {0};
    if (status == TEMPER_OK && (length == 0 || text[0] != '{'))
        status = error_set(err, TEMPER_BAD_FILE, "%s: its header is no JSON object", src->name);
    if (status == TEMPER_OK) {
        *out = json_loadb(text, (size_t)length, JSON_REJECT_DUPLICATES, &why);
        if (*out == NULL)
            status = error_set(err, TEMPER_BAD_FILE, "%s: its header is no JSON object: %s",
                               src->name, why.text);
    }
    mem_free(text);
    *data_start = LENGTH_BYTES + length;
    return status;
}

temper_status safetensors_open(source *src, safetensors **out, error *err)
{
    assert(src != NULL && out != NULL);
    uint64_t data_start = 0;
    safetensors *file = mem_calloc(1, sizeof *file);
    if (file == NULL)
        return error_set(err, TEMPER_NO_MEMORY, "%s: no memory left to open it", src->name);
    temper_status status = read_header(src, &file->header, &data_start, err);
    const size_t entries = json_object_size(file->header);
    if (status == TEMPER_OK && entries > TENSORS_MAX)
        status = error_set(err, TEMPER_UNSUPPORTED, "%s: %zu tensors, more than %d", src->name,
                           entries, TENSORS_MAX);
    if (status == TEMPER_OK) {
        file->tensors = mem_calloc(entries, sizeof file->tensors[0]);
        file->by_name = mem_calloc(entries, sizeof file->by_name[0]);
        status = file->tensors == NULL || file->by_name == NULL
                     ? error_set(err, TEMPER_NO_MEMORY, "%s: no memory left to open it", src->name)
                     : read_tensors(src, src->size - data_start, file, err);
    }
    if (status != TEMPER_OK) {
        safetensors_close(file);
        return status;
    }
    for (uint64_t i = 0; i < file->count; i++) {
        file->tensors[i].offset += data_start;
        file->by_name[i] = &file->tensors[i];
    }
    if (file->count > 0)
        qsort(file->by_name, (size_t)file->count, sizeof file->by_name[0], compare_names);
    *out = file;
    return TEMPER_OK;
}

void safetensors_close(safetensors *file)
{
    if (file == NULL)
        return;
    json_decref(file->header);
    mem_free(file->tensors);
    mem_free(file->by_name);
    mem_free(file);
}

uint64_t safetensors_count(const safetensors *file)
{
    return file->count;
}

const safetensors_tensor *safetensors_at(const safetensors *file, uint64_t index)
{
    assert(index < file->count);
    return &file->tensors[index];
}

const safetensors_tensor *safetensors_find(const safetensors *file, const char *name)
{
    uint64_t low = 0, high = file->count;
    while (low < high) {
        const uint64_t middle = low + (high - low) / 2;
        const int order = strcmp(name, file->by_name[middle]->name);
        if (order == 0)
            return file->by_name[middle];
        if (order < 0)
            high = middle;
        else
            low = middle + 1;
    }
    return NULL;
}
