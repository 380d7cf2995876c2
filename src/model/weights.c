#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/checked.h"
#include "base/dtype.h"
#include "base/mem.h"
#include "base/random.h"
#include "file/widened.h"
#include "model/weights_internal.h"
#include "op/rows.h"

static temper_status open_loader(const gguf_file *file, weights_loader **out, error *err)
{
    weights_loader *loader = mem_calloc(1, sizeof *loader);
    if (loader == NULL)
        return error_set(err, TEMPER_NO_MEMORY, "no memory to load %s", gguf_name(file));
    loader->file = file;
    loader->used = mem_calloc((size_t)gguf_tensor_count(file), sizeof *loader->used);
    if (loader->used == NULL) {
        weights_close(loader);
        return error_set(err, TEMPER_NO_MEMORY, "no memory to load %s", gguf_name(file));
    }
    for (uint64_t i = 0; i < gguf_tensor_count(file); i++)
        loader->total += gguf_tensor_at(file, i)->bytes;
    *out = loader;
    return TEMPER_OK;
}

temper_status weights_open(const gguf_file *file, gpu_device *device, weights_progress progress,
                           void *user, weights_loader **out, error *err)
{
    assert(file != NULL && device != NULL && out != NULL);
    const temper_status status = open_loader(file, out, err);
    if (status != TEMPER_OK)
        return status;
    (*out)->device = device;
    (*out)->mapped = !op_device_is_software(device);
    (*out)->progress = progress;
    (*out)->user = user;
    return TEMPER_OK;
}

temper_status weights_open_measured(const gguf_file *file, uint64_t *measured, weights_loader **out,
                                    error *err)
{
    assert(file != NULL && measured != NULL && out != NULL);
    const temper_status status = open_loader(file, out, err);
    if (status == TEMPER_OK)
        (*out)->measured = measured;
    return status;
}

void weights_close(weights_loader *loader)
{
    if (loader == NULL)
        return;
    gpu_upload_close(loader->upload);
    crew_close(loader->crew);
    mem_free(loader->memory);
    mem_free(loader->used);
    mem_free(loader);
}

temper_status weights_finish(weights_loader *loader, error *err)
{
    temper_status status = weights_flush(loader, err);
    if (status == TEMPER_OK && loader->measured == NULL)
        status = gpu_finish(loader->device, err);
    if (status != TEMPER_OK || loader->file == NULL)
        return status;
    for (uint64_t i = 0; i < gguf_tensor_count(loader->file); i++) {
        const gguf_tensor *tensor = gguf_tensor_at(loader->file, i);
        if (!loader->used[i])
            return error_set(
                err, TEMPER_UNSUPPORTED,
                "%s: the tensor %.*s has no place in this architecture as temper knows it",
                gguf_name(loader->file), (int)min_u64(tensor->name.length, 96), tensor->name.data);
    }
    return TEMPER_OK;
}

bool weights_has(const weights_loader *loader, const char *name)
{
    /* The optional tensors of a graph are not part of a random network. */
    return loader->file != NULL && gguf_find_tensor(loader->file, name) != NULL;
}

bool weights_go_together(const weights_loader *loader, const char *const *names,
                         const uint64_t *rows, uint32_t count)
{
    for (uint32_t i = 0; loader->file != NULL && i < count; i++) {
        const gguf_tensor *first = gguf_find_tensor(loader->file, names[0]);
        const gguf_tensor *tensor = gguf_find_tensor(loader->file, names[i]);
        if (first == NULL || tensor == NULL || tensor->type != first->type ||
            (rows[i] % 2 != 0 && i + 1 < count))
            return false;
    }
    return true;
}

/* Finds a tensor whose type can be loaded and marks it as used. */
static temper_status find(weights_loader *loader, const char *name, const gguf_tensor **out,
                          error *err)
{
    const gguf_tensor *tensor = gguf_find_tensor(loader->file, name);
    if (tensor == NULL)
        return error_set(err, TEMPER_BAD_FILE, "%s: the tensor %s is missing",
                         gguf_name(loader->file), name);
    const temper_status status = gguf_check_loadable(loader->file, tensor, err);
    if (status != TEMPER_OK)
        return status;
    for (uint64_t i = 0; i < gguf_tensor_count(loader->file); i++)
        if (gguf_tensor_at(loader->file, i) == tensor)
            loader->used[i] = true;
    *out = tensor;
    return TEMPER_OK;
}

static temper_status wrong_shape(const weights_loader *loader, const gguf_tensor *tensor,
                                 const char *wanted, error *err)
{
    char shape[128];
    int at = 0;
    for (uint32_t i = 0; i < tensor->dim_count; i++)
        at += snprintf(shape + at, sizeof shape - (size_t)at, "%s%llu", i == 0 ? "" : ", ",
                       (unsigned long long)tensor->dims[i]);
    return error_set(err, TEMPER_BAD_FILE,
                     "%s: %.*s has the shape [%s], the configuration wants %s",
                     gguf_name(loader->file), (int)min_u64(tensor->name.length, 96),
                     tensor->name.data, shape, wanted);
}

temper_status weights_report(weights_loader *loader, uint64_t bytes, error *err)
{
    loader->done += bytes;
    if (loader->progress != NULL && !loader->progress(loader->done, loader->total, loader->user))
        return error_set(err, TEMPER_STOPPED, "%s: loading was stopped", gguf_name(loader->file));
    return TEMPER_OK;
}

void weights_map_uploads(weights_loader *loader, bool mapped)
{
    assert(loader->upload == NULL);
    loader->mapped = mapped;
}

uint64_t weights_order_row(weights_order order, uint64_t row)
{
    const uint64_t in_head = order.heads > 0 ? row % order.head_dim : 0;
    if (row >= (uint64_t)order.heads * order.head_dim || in_head >= order.rotary)
        return row;
    const uint64_t half = order.rotary / 2, first = row - in_head;
    return first + (in_head < half ? 2 * in_head : 2 * (in_head - half) + 1);
}

/* ---- tensors --------------------------------------------------------------------------------- */

/* Padded: the file may hold more rows than asked for in the last tensor. */
static temper_status load_matrix(weights_loader *loader, const char *const *names,
                                 const uint64_t *rows, const weights_order *orders, uint32_t count,
                                 uint64_t k, bool padded, op_weight **out, error *err)
{
    assert(loader != NULL && count > 0 && k > 0 && out != NULL);
    const gguf_tensor *tensor = NULL;
    uint64_t n = 0;
    temper_status status = TEMPER_OK;
    if (loader->file == NULL) {
        for (uint32_t i = 0; i < count; i++)
            n += rows[i];
        return weights_random_matrix(loader, names[0], n, k, out, err);
    }
    for (uint32_t i = 0; i < count; i++) {
        if ((status = find(loader, names[i], &tensor, err)) != TEMPER_OK)
            return status;
        const bool more = padded && i + 1 == count;
        if (tensor->dim_count > 2 || tensor->dims[0] != k || tensor->dims[1] < rows[i] ||
            (tensor->dims[1] > rows[i] && !more)) {
            char wanted[64];
            snprintf(wanted, sizeof wanted, "[%llu, %llu]", (unsigned long long)k,
                     (unsigned long long)rows[i]);
            return wrong_shape(loader, tensor, wanted, err);
        }
        n += rows[i];
    }
    assert(weights_go_together(loader, names, rows, count));
    op_weight *weight = NULL;
    const weight_format format = weight_format_of((dtype)tensor->type);
    if (loader->measured != NULL)
        return op_weight_outline(format, n, k, names[0], out, err);
    status = op_weight_create(loader->device, format, n, k, names[0], &weight, err);
    uint64_t to = 0;
    for (uint32_t i = 0; status == TEMPER_OK && i < count; i++) {
        const weights_order order = orders != NULL ? orders[i] : (weights_order){0};
        status = weights_load_rows(loader, gguf_find_tensor(loader->file, names[i]), rows[i], order,
                                   weight, to, err);
        to += rows[i];
    }
    if (status != TEMPER_OK) {
        op_weight_destroy(weight);
        return status;
    }
    *out = weight;
    return TEMPER_OK;
}

temper_status weights_matrix(weights_loader *loader, const char *const *names, const uint64_t *rows,
                             const weights_order *orders, uint32_t count, uint64_t k,
                             op_weight **out, error *err)
{
    return load_matrix(loader, names, rows, orders, count, k, false, out, err);
}

temper_status weights_vocabulary(weights_loader *loader, const char *name, uint64_t rows,
                                 uint64_t k, op_weight **out, error *err)
{
    return load_matrix(loader, &name, &rows, NULL, 1, k, true, out, err);
}

temper_status weights_host_vector(weights_loader *loader, const char *name, uint64_t n, float *out,
                                  error *err)
{
    if (loader->file == NULL) {
        random_state r = {n};
        for (uint64_t i = 0; i < n; i++)
            out[i] = (float)(0.75 + 0.5 * random_unit(&r));
        return TEMPER_OK;
    }
    const gguf_tensor *tensor = NULL;
    temper_status status = find(loader, name, &tensor, err);
    if (status != TEMPER_OK)
        return status;
    if (tensor->elements != n || tensor->dims[0] != n) {
        char wanted[32];
        snprintf(wanted, sizeof wanted, "[%llu]", (unsigned long long)n);
        return wrong_shape(loader, tensor, wanted, err);
    }
    uint8_t *bytes = mem_alloc((size_t)tensor->bytes);
    if (bytes == NULL)
        return error_set(err, TEMPER_NO_MEMORY, "no memory for %s", name);
    status = gguf_read_tensor(loader->file, tensor, 0, bytes, tensor->bytes, err);
    if (status == TEMPER_OK) {
        dtype_dequantize_row((dtype)tensor->type, n, bytes, out);
        status = weights_report(loader, tensor->bytes, err);
    }
    mem_free(bytes);
    for (uint64_t i = 0; status == TEMPER_OK && i < n; i++)
        if (!isfinite(out[i]))
            status = error_set(err, TEMPER_BAD_FILE, "%s: value %llu of %s is not finite",
                               gguf_name(loader->file), (unsigned long long)i, name);
    return status;
}

temper_status weights_buffer(weights_loader *loader, const char *label, const void *values,
                             uint64_t bytes, gpu_buffer **out, error *err)
{
    assert(loader != NULL && bytes > 0 && bytes % 4 == 0 && out != NULL);
    if (loader->measured != NULL) {
        *loader->measured += bytes;
        return TEMPER_OK;
    }
    gpu_buffer *buffer = NULL;
    temper_status status =
        gpu_buffer_create(loader->device, bytes, GPU_PURPOSE_WEIGHTS, label, &buffer, err);
    if (status == TEMPER_OK && values != NULL)
        status = gpu_write(loader->device, buffer, 0, values, bytes, err);
    if (status != TEMPER_OK) {
        gpu_buffer_destroy(buffer);
        return status;
    }
    *out = buffer;
    return TEMPER_OK;
}

temper_status weights_vector(weights_loader *loader, const char *name, uint64_t n, gpu_buffer **out,
                             error *err)
{
    assert(loader != NULL && n > 0 && out != NULL);
    float *values = mem_alloc((size_t)n * sizeof *values);
    if (values == NULL)
        return error_set(err, TEMPER_NO_MEMORY, "no memory for %s", name);
    temper_status status = weights_host_vector(loader, name, n, values, err);
    if (status == TEMPER_OK)
        status = weights_buffer(loader, name, values, n * sizeof *values, out, err);
    mem_free(values);
    return status;
}
