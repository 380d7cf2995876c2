/*
 * convert.c - making model files: a directory or a split model as one GGUF file, and a model in
 * another type.
 */
#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/checked.h"
#include "base/mem.h"
#include "base/outfile.h"
#include "base/quantize.h"
#include "file/gguf_head.h"
#include "file/model_file.h"
#include "file/widened.h"
#include "infer/infer.h"

enum { CHUNK_BYTES = 4 << 20 };

/* ---- one file of many ------------------------------------------------------------------------ */

static temper_status copy_all(source *src, outfile *out, temper_progress progress, void *user,
                              error *err)
{
    uint8_t *chunk = mem_alloc(CHUNK_BYTES);
    temper_status status = TEMPER_OK;
    if (chunk == NULL)
        status = error_set(err, TEMPER_NO_MEMORY, "no memory to copy %s", src->name);
    for (uint64_t at = 0; status == TEMPER_OK && at < src->size; at += CHUNK_BYTES) {
        const uint64_t size = min_u64(CHUNK_BYTES, src->size - at);
        status = source_read(src, at, chunk, size, err);
        if (status == TEMPER_OK)
            status = outfile_write(out, chunk, size, err);
        if (status == TEMPER_OK && progress != NULL && !progress(at + size, src->size, user))
            status = error_set(err, TEMPER_STOPPED, "converting was stopped");
    }
    mem_free(chunk);
    return status;
}

temper_status temper_convert(const char *from, const char *to, const temper_widen *widen,
                             temper_progress progress, void *user, temper_error *err)
{
    assert(from != NULL && to != NULL);
    gguf_file *file = NULL;
    outfile *out = NULL;
    temper_status status = model_file_open(from, true, widen, &file, err);
    if (status != TEMPER_OK)
        return status;
    source *src = gguf_detach(file);
    status = outfile_create(to, &out, err);
    if (status == TEMPER_OK)
        status = copy_all(src, out, progress, user, err);
    source_close(src);
    if (status != TEMPER_OK) {
        outfile_discard(out);
        return status;
    }
    return outfile_commit(out, err);
}

/* ---- another type ---------------------------------------------------------------------------- */

/* What may be asked for. `head`: the type of the matrix that makes the logits, to which 4 bits do
 * most harm; `short_rows`: for rows that are no multiple of 256; file_type: ggml's number. */
static const struct target {
    const char *name;
    dtype type, head, short_rows;
    uint32_t file_type;
} targets[] = {
    {"F16", DTYPE_F16, DTYPE_F16, DTYPE_F16, 1},
    {"Q4_0", DTYPE_Q4_0, DTYPE_Q6_K, DTYPE_Q4_0, 2},
    {"Q4_1", DTYPE_Q4_1, DTYPE_Q6_K, DTYPE_Q4_1, 3},
    {"Q8_0", DTYPE_Q8_0, DTYPE_Q8_0, DTYPE_Q8_0, 7},
    {"Q4_K", DTYPE_Q4_K, DTYPE_Q6_K, DTYPE_Q5_0, 14},
    {"Q6_K", DTYPE_Q6_K, DTYPE_Q6_K, DTYPE_Q8_0, 18},
};

enum { TARGET_COUNT = sizeof targets / sizeof targets[0] };

typedef struct conversion {
    const gguf_file *file;
    const struct target *target;
    outfile *out;
    temper_progress progress;
    void *user;
    temper_quantize_result *result;
    uint64_t done, total;
} conversion;

static bool name_is(const gguf_tensor *tensor, const char *name)
{
    return tensor->name.length == strlen(name) &&
           memcmp(tensor->name.data, name, strlen(name)) == 0;
}

static bool name_ends(const gguf_tensor *tensor, const char *end)
{
    const size_t length = strlen(end);
    return tensor->name.length >= length &&
           memcmp(tensor->name.data + tensor->name.length - length, end, length) == 0;
}

/* True for the matrix that makes the logits. */
static bool is_head(const gguf_file *file, const gguf_tensor *tensor)
{
    if (gguf_find_tensor(file, "output.weight") != NULL)
        return name_is(tensor, "output.weight");
    return name_is(tensor, "token_embd.weight");
}

/* The type a tensor gets; *fell_back when it is not the one that was asked for. */
static dtype type_of(const conversion *c, const gguf_tensor *tensor, bool *fell_back)
{
    *fell_back = false;
    if (tensor->dim_count == 1 || name_ends(tensor, "_norm.weight") ||
        name_is(tensor, "position_embd.weight"))
        return DTYPE_F32;
    const dtype wanted = is_head(c->file, tensor) ? c->target->head : c->target->type;
    dtype type = wanted;
    if (tensor->dims[0] % dtype_find((uint32_t)type)->block != 0)
        type = type == DTYPE_Q6_K ? DTYPE_Q8_0 : c->target->short_rows;
    if (tensor->dims[0] % dtype_find((uint32_t)type)->block != 0)
        type = DTYPE_F16;
    *fell_back = type != wanted;
    return type;
}

static void count_tensor(temper_quantize_result *result, const gguf_tensor *tensor, dtype type,
                         bool fell_back)
{
    const dtype_info *from = dtype_find(tensor->type);
    result->tensors++;
    if (from->block > 1 && (dtype)tensor->type != type)
        result->requantized++;
    if (!fell_back)
        return;
    if (result->fallbacks++ == 0) {
        snprintf(result->fallback_tensor, sizeof result->fallback_tensor, "%.*s",
                 (int)min_u64(tensor->name.length, sizeof result->fallback_tensor - 1),
                 tensor->name.data);
        snprintf(result->fallback_type, sizeof result->fallback_type, "%s",
                 dtype_name((uint32_t)type));
    }
}

/* The directory of the new file: the old keys, but for those that say how it is stored. */
static temper_status write_head(conversion *c, error *err)
{
    static const char *const replaced[] = {"general.file_type", "general.quantization_version",
                                           "general.alignment"};
    gguf_head head = {0};
    strbuf bytes = {0};
    temper_status status = TEMPER_OK;
    for (uint64_t i = 0; i < gguf_value_count(c->file); i++) {
        const gguf_value *value = gguf_value_at(c->file, i);
        bool drop = false;
        for (size_t k = 0; k < sizeof replaced / sizeof replaced[0]; k++)
            drop = drop || (value->key.length == strlen(replaced[k]) &&
                            memcmp(value->key.data, replaced[k], value->key.length) == 0);
        if (!drop)
            gguf_head_value(&head, value);
    }
    gguf_head_u32(&head, "general.quantization_version", 2);
    gguf_head_u32(&head, "general.file_type", c->target->file_type);
    for (uint64_t i = 0; status == TEMPER_OK && i < gguf_tensor_count(c->file); i++) {
        const gguf_tensor *tensor = gguf_tensor_at(c->file, i);
        bool fell_back = false;
        uint64_t offset = 0;
        status = gguf_check_loadable(c->file, tensor, err);
        const dtype type = type_of(c, tensor, &fell_back);
        gguf_head_tensor(&head, tensor->name, tensor->dim_count, tensor->dims, (uint32_t)type,
                         &offset);
        count_tensor(c->result, tensor, type, fell_back);
        c->total += tensor->bytes;
    }
    gguf_head_finish(&head, &bytes);
    gguf_head_free(&head);
    if (status == TEMPER_OK && bytes.failed)
        status = error_set(err, TEMPER_NO_MEMORY, "no memory for the directory of the new file");
    if (status == TEMPER_OK)
        status = outfile_write(c->out, bytes.data, bytes.length, err);
    c->result->bytes = bytes.length;
    strbuf_free(&bytes);
    return status;
}

/* Memory of a chunk of rows on the way. */
typedef struct rows_buffer {
    uint8_t *from, *to;
    float *values; /* of one row */
} rows_buffer;

static temper_status convert_rows(const conversion *c, const gguf_tensor *tensor, dtype type,
                                  uint64_t rows, const rows_buffer *b, error *err)
{
    const dtype from = (dtype)tensor->type;
    const uint64_t k = tensor->dims[0];
    const dtype_info *old = dtype_find(tensor->type), *new = dtype_find((uint32_t)type);
    for (uint64_t i = 0; i < rows; i++) {
        uint8_t *to = b->to + i * (k / new->block *new->block_bytes);
        const uint8_t *row = b->from + i * (k / old->block * old->block_bytes);
        const bool finite = !dtype_row_has_nonfinite(from, k, row);
        if (finite && from == type) {
            memcpy(to, row, (size_t)(k / new->block *new->block_bytes));
        } else if (finite) {
            dtype_dequantize_row(from, k, row, b->values);
            quantize_row(type, k, b->values, to);
        }
        if (!finite || dtype_row_has_nonfinite(type, k, to))
            return error_set(err, TEMPER_BAD_FILE, "%s: %.*s holds a value that %s%s",
                             gguf_name(c->file), (int)min_u64(tensor->name.length, 96),
                             tensor->name.data, finite ? "is too large for " : "is not finite",
                             finite ? new->name : "");
    }
    return TEMPER_OK;
}

static temper_status convert_chunks(conversion *c, const gguf_tensor *tensor, dtype type,
                                    uint64_t rows, uint64_t chunk, const rows_buffer *b, error *err)
{
    static const uint8_t zeros[GGUF_HEAD_ALIGNMENT];
    const dtype_info *new = dtype_find((uint32_t)type);
    const uint64_t old_bytes = tensor->bytes / rows;
    const uint64_t new_bytes = tensor->dims[0] / new->block *new->block_bytes;
    temper_status status = TEMPER_OK;
    for (uint64_t row = 0; status == TEMPER_OK && row < rows; row += chunk) {
        const uint64_t some = min_u64(chunk, rows - row);
        status = gguf_read_tensor(c->file, tensor, row * old_bytes, b->from, some * old_bytes, err);
        if (status == TEMPER_OK)
            status = convert_rows(c, tensor, type, some, b, err);
        if (status == TEMPER_OK)
            status = outfile_write(c->out, b->to, some * new_bytes, err);
        c->done += some * old_bytes;
        if (status == TEMPER_OK && c->progress != NULL && !c->progress(c->done, c->total, c->user))
            status = error_set(err, TEMPER_STOPPED, "quantizing was stopped");
    }
    const uint64_t padding =
        (GGUF_HEAD_ALIGNMENT - rows * new_bytes % GGUF_HEAD_ALIGNMENT) % GGUF_HEAD_ALIGNMENT;
    c->result->bytes += rows * new_bytes + padding;
    return status == TEMPER_OK ? outfile_write(c->out, zeros, padding, err) : status;
}

static temper_status convert_tensor(conversion *c, const gguf_tensor *tensor, error *err)
{
    bool fell_back = false;
    const dtype type = type_of(c, tensor, &fell_back);
    const dtype_info *new = dtype_find((uint32_t)type);
    const uint64_t k = tensor->dims[0], rows = tensor->elements / k;
    const uint64_t old_bytes = tensor->bytes / rows, new_bytes = k / new->block *new->block_bytes;
    const uint64_t chunk =
        min_u64(rows, max_u64(1, CHUNK_BYTES / max_u64(1, max_u64(old_bytes, k * sizeof(float)))));
    const rows_buffer b = {mem_alloc((size_t)(chunk * old_bytes)),
                           mem_alloc((size_t)(chunk * new_bytes)),
                           mem_alloc((size_t)k * sizeof(float))};
    const temper_status status =
        b.from == NULL || b.to == NULL || b.values == NULL
            ? error_set(err, TEMPER_NO_MEMORY, "no memory for rows of %llu values",
                        (unsigned long long)k)
            : convert_chunks(c, tensor, type, rows, chunk, &b, err);
    mem_free(b.from);
    mem_free(b.to);
    mem_free(b.values);
    return status;
}

static const struct target *find_target(const char *name)
{
    for (size_t i = 0; i < TARGET_COUNT; i++)
        if (strcmp(targets[i].name, name) == 0)
            return &targets[i];
    return NULL;
}

temper_status temper_quantize(const char *from, const char *to, const char *type,
                              const temper_widen *widen, temper_progress progress, void *user,
                              temper_quantize_result *result, temper_error *err)
{
    assert(from != NULL && to != NULL && type != NULL && result != NULL);
    gguf_file *file = NULL;
    *result = (temper_quantize_result){0};
    conversion c = {
        .target = find_target(type), .progress = progress, .user = user, .result = result};
    if (c.target == NULL)
        return error_set(
            err, TEMPER_BAD_ARGUMENT,
            "no files of the type \"%.40s\" are made; there are F16, Q4_0, Q4_1, Q8_0, "
            "Q4_K and Q6_K",
            type);
    temper_status status = model_file_open(from, true, widen, &file, err);
    if (status == TEMPER_OK && gguf_tensor_count(file) == 0)
        status = error_set(err, TEMPER_BAD_FILE, "%s: holds no tensors", gguf_name(file));
    c.file = file;
    if (status == TEMPER_OK)
        status = outfile_create(to, &c.out, err);
    if (status == TEMPER_OK)
        status = write_head(&c, err);
    for (uint64_t i = 0; status == TEMPER_OK && i < gguf_tensor_count(file); i++)
        status = convert_tensor(&c, gguf_tensor_at(file, i), err);
    gguf_close(file);
    if (status != TEMPER_OK) {
        outfile_discard(c.out);
        return status;
    }
    return outfile_commit(c.out, err);
}
