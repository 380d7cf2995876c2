#include "model/weights.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/checked.h"
#include "base/dtype.h"
#include "base/half.h"
#include "base/mem.h"
#include "base/random.h"
#include "file/widened.h"

struct weights_loader {
    const gguf_file *file; /* NULL: random weights of this type */
    dtype random_type;
    gpu_device *device;
    weights_progress progress;
    void *user;
    bool *used;           /* [tensors] */
    uint64_t done, total; /* bytes of the file */
    uint64_t in_flight;   /* bytes handed to the device since the last wait */
    uint64_t *measured;   /* NULL, or where the bytes of buffers go that are not made: no device */
};

/* Host memory of one chunk of rows: the file's bytes, where each row of the weight begins in them,
 * and the planes of the GPU's layout. */
typedef struct staging {
    uint8_t *file_rows;
    const uint8_t **sources;
    weight_planes planes;
} staging;

static void staging_free(staging *s)
{
    mem_free(s->file_rows);
    mem_free(s->sources);
    for (int p = 0; p < WEIGHT_PLANES; p++)
        mem_free(s->planes.plane[p]);
}

/* Planes of so many rows; false when there is no memory for one of them. */
static bool planes_alloc(weight_format format, uint64_t k, uint64_t rows, weight_planes *out)
{
    bool all = true;
    for (int p = 0; p < WEIGHT_PLANES; p++) {
        const uint64_t words = weight_plane_words(format, (weight_plane)p, k, weight_stride(rows));
        if (words > 0)
            out->plane[p] = mem_alloc((size_t)(words * sizeof(uint32_t)));
        all = all && (words == 0 || out->plane[p] != NULL);
    }
    return all;
}

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
    mem_free(loader->used);
    mem_free(loader);
}

temper_status weights_finish(weights_loader *loader, error *err)
{
    const temper_status status =
        loader->measured != NULL ? TEMPER_OK : gpu_finish(loader->device, err);
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

static temper_status report(weights_loader *loader, uint64_t bytes, error *err)
{
    loader->done += bytes;
    if (loader->progress != NULL && !loader->progress(loader->done, loader->total, loader->user))
        return error_set(err, TEMPER_STOPPED, "%s: loading was stopped", gguf_name(loader->file));
    return TEMPER_OK;
}

uint64_t weights_order_row(weights_order order, uint64_t row)
{
    const uint64_t in_head = order.heads > 0 ? row % order.head_dim : 0;
    if (row >= (uint64_t)order.heads * order.head_dim || in_head >= order.rotary)
        return row;
    const uint64_t half = order.rotary / 2, first = row - in_head;
    return first + (in_head < half ? 2 * in_head : 2 * (in_head - half) + 1);
}

/* Reads `rows` rows at `row` (whole heads, where there is an order), checks and repacks them, and
 * queues them as rows `to` of the weight. */
static temper_status load_chunk(weights_loader *loader, const gguf_tensor *tensor, uint64_t row,
                                uint64_t rows, weights_order order, const staging *s,
                                op_weight *weight, uint64_t to, error *err)
{
    const dtype type = (dtype)tensor->type;
    const dtype_info *info = dtype_find(type);
    const uint64_t row_bytes = weight->k / info->block * info->block_bytes;
    temper_status status = gguf_read_tensor(loader->file, tensor, row * row_bytes, s->file_rows,
                                            rows * row_bytes, err);
    if (status != TEMPER_OK)
        return status;
    for (uint64_t i = 0; i < rows; i++) {
        const uint8_t *from = s->file_rows + i * row_bytes;
        if (dtype_row_has_nonfinite(type, weight->k, from))
            return error_set(err, TEMPER_BAD_FILE,
                             "%s: row %llu of %.*s holds a value that is not finite",
                             gguf_name(loader->file), (unsigned long long)(row + i),
                             (int)min_u64(tensor->name.length, 96), tensor->name.data);
        s->sources[weights_order_row(order, row + i) - row] = from;
    }
    weight_repack_rows(type, weight->k, rows, s->sources, s->planes, weight_stride(rows), 0);
    status = op_weight_write_rows(weight, to, rows, s->planes, err);
    if (status != TEMPER_OK)
        return status;
    loader->in_flight += op_weight_bytes(weight->format, rows, weight->k);
    if (loader->in_flight > WEIGHTS_IN_FLIGHT_BYTES) {
        loader->in_flight = 0;
        status = gpu_finish(loader->device, err);
    }
    return status == TEMPER_OK ? report(loader, rows * row_bytes, err) : status;
}

/* Streams the first `rows` rows of a tensor into the weight from row `to` on. */
static temper_status load_rows(weights_loader *loader, const gguf_tensor *tensor, uint64_t rows,
                               weights_order order, op_weight *weight, uint64_t to, error *err)
{
    const dtype_info *info = dtype_find(tensor->type);
    const uint64_t row_bytes = weight->k / info->block * info->block_bytes;
    const uint64_t unit = order.heads > 0 ? 2 * order.head_dim : WEIGHT_ROWS;
    const uint64_t chunk =
        min_u64(rows, max_u64(1, WEIGHTS_STAGING_BYTES / row_bytes / unit) * unit);
    staging s = {.file_rows = mem_alloc((size_t)(chunk * row_bytes)),
                 .sources = mem_alloc((size_t)(chunk * sizeof *s.sources))};
    temper_status status = TEMPER_OK;
    if (!planes_alloc(weight->format, weight->k, chunk, &s.planes) || s.file_rows == NULL ||
        s.sources == NULL)
        status = error_set(err, TEMPER_NO_MEMORY, "no memory for %llu bytes of staging",
                           (unsigned long long)(chunk * row_bytes +
                                                op_weight_bytes(weight->format, chunk, weight->k)));
    for (uint64_t row = 0; status == TEMPER_OK && row < rows; row += chunk)
        status = load_chunk(loader, tensor, row, min_u64(chunk, rows - row), order, &s, weight,
                            to + row, err);
    staging_free(&s);
    return status;
}

/* ---- random weights -------------------------------------------------------------------------- */

static void random_plain(layout of, double deviation, uint32_t *data, uint64_t words,
                         random_state *r)
{
    for (uint64_t i = 0; i < words; i++) {
        const float first = (float)(random_normal(r) * deviation);
        if (of == LAYOUT_F32) {
            memcpy(&data[i], &first, sizeof first);
            continue;
        }
        const float second = (float)(random_normal(r) * deviation);
        data[i] = of == LAYOUT_F16 ? f32_to_f16(first) | (uint32_t)f32_to_f16(second) << 16
                                   : f32_to_bf16(first) | (uint32_t)f32_to_bf16(second) << 16;
    }
}

/* Scales around `unit`, and with a minimum what makes the numbers' middle 0. The integers of the K
 * scales are all 64. */
static void random_scales(weight_format format, double unit, double middle, uint32_t *scales,
                          uint64_t words, uint64_t factors, random_state *r)
{
    const bool two_level = format.scale == SCALE_K || format.scale == SCALE_K_MIN;
    for (uint64_t i = 0; i < words; i++) {
        const double scale = unit * (0.75 + 0.5 * random_unit(r)) / (two_level ? 64 : 1);
        const double high = format.scale == SCALE_F16_MIN ? -middle * scale
                            : format.scale == SCALE_K_MIN ? middle * scale
                                                          : unit * (0.75 + 0.5 * random_unit(r));
        scales[i] = f32_to_f16((float)scale) | (uint32_t)f32_to_f16((float)high) << 16;
        if (two_level && i >= factors)
            scales[i] = 0x40404040u;
    }
}

/* Fills the planes of one chunk: values of standard deviation 1 / sqrt(k), so that a product keeps
 * the size of its input. */
static void random_planes(weight_format format, uint64_t k, uint64_t stride, weight_planes planes,
                          random_state *r)
{
    /* Uniform integers of -8 to 7 have a deviation of 4.6, of -128 to 127 one of 74. */
    static const double deviations[LAYOUT_COUNT] = {
        [LAYOUT_Q8] = 74.0, [LAYOUT_Q4] = 4.6, [LAYOUT_Q5] = 9.2, [LAYOUT_Q6] = 18.5};
    static const double middles[LAYOUT_COUNT] = {[LAYOUT_Q4] = 7.5, [LAYOUT_Q5] = 15.5};
    const double deviation = 1.0 / sqrt((double)k);
    uint64_t words[WEIGHT_PLANES];
    for (int p = 0; p < WEIGHT_PLANES; p++)
        words[p] = weight_plane_words(format, (weight_plane)p, k, stride);
    if (format.scale == SCALE_NONE) {
        random_plain(format.layout, deviation, planes.plane[WEIGHT_DATA], words[WEIGHT_DATA], r);
        return;
    }
    for (int p = WEIGHT_DATA; p <= WEIGHT_HIGH; p++)
        for (uint64_t i = 0; i < words[p]; i++)
            planes.plane[p][i] = (uint32_t)random_u64(r);
    random_scales(format, deviation / deviations[format.layout], middles[format.layout],
                  planes.plane[WEIGHT_SCALES], words[WEIGHT_SCALES], k / SCALE_K_BLOCK * stride, r);
}

static temper_status random_matrix(weights_loader *loader, const char *label, uint64_t n,
                                   uint64_t k, op_weight **out, error *err)
{
    const weight_format format = weight_format_of(loader->random_type);
    const uint64_t least = op_weight_bytes(format, WEIGHT_ROWS, k);
    const uint64_t chunk = min_u64(n, max_u64(1, WEIGHTS_STAGING_BYTES / least) * WEIGHT_ROWS);
    random_state r = {n * 31 + k};
    op_weight *weight = NULL;
    staging s = {0};
    temper_status status = TEMPER_OK;
    if (!planes_alloc(format, k, chunk, &s.planes))
        status = error_set(err, TEMPER_NO_MEMORY, "no memory for random weights");
    else
        random_planes(format, k, weight_stride(chunk), s.planes, &r);
    if (status == TEMPER_OK)
        status = op_weight_create(loader->device, format, n, k, label, &weight, err);
    /* One chunk is written again and again: random numbers for billions of weights would take
     * minutes. */
    for (uint64_t row = 0; status == TEMPER_OK && row < n; row += chunk)
        status = op_weight_write_rows(weight, row, min_u64(chunk, n - row), s.planes, err);
    staging_free(&s);
    if (status == TEMPER_OK)
        status = gpu_finish(loader->device, err);
    if (status != TEMPER_OK) {
        op_weight_destroy(weight);
        return status;
    }
    *out = weight;
    return TEMPER_OK;
}

temper_status weights_open_random(gpu_device *device, dtype type, weights_loader **out, error *err)
{
    assert(device != NULL && out != NULL);
    const dtype_info *info = dtype_find((uint32_t)type);
    if (info == NULL || !info->loadable)
        return error_set(err, TEMPER_UNSUPPORTED, "random weights of type %s are not made",
                         dtype_name((uint32_t)type));
    weights_loader *loader = mem_calloc(1, sizeof *loader);
    if (loader == NULL)
        return error_set(err, TEMPER_NO_MEMORY, "no memory for random weights");
    *loader = (weights_loader){.device = device, .random_type = type};
    *out = loader;
    return TEMPER_OK;
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
        return random_matrix(loader, names[0], n, k, out, err);
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
        status = load_rows(loader, gguf_find_tensor(loader->file, names[i]), rows[i], order, weight,
                           to, err);
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
        status = report(loader, tensor->bytes, err);
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
