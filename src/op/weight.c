/*
 * weight.c - weights on the device: up to three planes, split by rows where a binding or a buffer
 * is too small for all.
 */
#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "base/checked.h"
#include "base/mem.h"
#include "op/op.h"

static bool format_is_possible(weight_format format, uint64_t k)
{
    const bool grouped = format.group >= 8 && format.group % 8 == 0 && k % format.group == 0;
    switch (format.layout) {
    case LAYOUT_F32:
    case LAYOUT_F16:
    case LAYOUT_BF16:
        return format.scale == SCALE_NONE;
    case LAYOUT_Q8:
        return format.scale == SCALE_F16 && grouped;
    case LAYOUT_Q4:
    case LAYOUT_Q5:
    case LAYOUT_Q6:
        if (format.scale == SCALE_K || format.scale == SCALE_K_MIN)
            return (format.group == 16 || (format.group == 32 && format.scale == SCALE_K_MIN)) &&
                   k % SCALE_K_BLOCK == 0;
        return format.scale != SCALE_NONE && grouped && (format.layout == LAYOUT_Q4 || k % 32 == 0);
    case LAYOUT_COUNT:
        break;
    }
    return false;
}

uint64_t op_weight_bytes(weight_format format, uint64_t n, uint64_t k)
{
    uint64_t words = 0;
    for (int p = 0; p < WEIGHT_PLANES; p++)
        words += weight_plane_words(format, (weight_plane)p, k, weight_stride(n));
    return 4 * words;
}

static temper_status create_part(op_weight *w, uint64_t row0, uint64_t rows, error *err)
{
    op_weight_part *part = &w->parts[w->part_count++];
    gpu_buffer **planes[WEIGHT_PLANES] = {&part->data, &part->high, &part->scales};
    temper_status status = TEMPER_OK;
    *part = (op_weight_part){.row0 = row0, .rows = rows, .stride = weight_stride(rows)};
    for (int p = 0; status == TEMPER_OK && p < WEIGHT_PLANES; p++) {
        const uint64_t words = weight_plane_words(w->format, (weight_plane)p, w->k, part->stride);
        if (words > 0)
            status = gpu_buffer_create(w->device, words * 4, GPU_PURPOSE_WEIGHTS, w->label,
                                       planes[p], err);
    }
    return status;
}

/* Bytes of the largest plane of the fewest rows there can be. */
static uint64_t least_bytes(weight_format format, uint64_t k)
{
    uint64_t most = 0;
    for (int p = 0; p < WEIGHT_PLANES; p++)
        most = max_u64(most, 4 * weight_plane_words(format, (weight_plane)p, k, WEIGHT_ROWS));
    return most;
}

static temper_status check(weight_format format, uint64_t n, uint64_t k, const char *label,
                           error *err)
{
    if (n == 0 || k == 0 || n > UINT32_MAX || k > INT32_MAX || !format_is_possible(format, k))
        return error_set(err, TEMPER_BAD_ARGUMENT,
                         "%s: no weight of %" PRIu64 " rows by %" PRIu64
                         " columns in layout %d with scales %d of %u",
                         label, n, k, (int)format.layout, (int)format.scale, format.group);
    return TEMPER_OK;
}

/* A weight with room for so many parts, and none yet. */
static temper_status outline(weight_format format, uint64_t n, uint64_t k, const char *label,
                             uint64_t parts, op_weight **out, error *err)
{
    op_weight *w = mem_calloc(1, sizeof *w + (size_t)parts * sizeof w->parts[0]);
    char *copy = mem_strdup(label);
    if (w == NULL || copy == NULL) {
        mem_free(w);
        mem_free(copy);
        return error_set(err, TEMPER_NO_MEMORY, "%s: no host memory for a weight", label);
    }
    w->format = format;
    w->n = n;
    w->k = k;
    w->label = copy;
    *out = w;
    return TEMPER_OK;
}

temper_status op_weight_outline(weight_format format, uint64_t n, uint64_t k, const char *label,
                                op_weight **out, error *err)
{
    const temper_status status = check(format, n, k, label, err);
    return status == TEMPER_OK ? outline(format, n, k, label, 0, out, err) : status;
}

temper_status op_weight_create(gpu_device *device, weight_format format, uint64_t n, uint64_t k,
                               const char *label, op_weight **out, error *err)
{
    *out = NULL;
    temper_status status = check(format, n, k, label, err);
    if (status != TEMPER_OK)
        return status;
    const gpu_limits *limits = gpu_device_limits(device);
    const uint64_t most = min_u64(limits->max_storage_binding, limits->max_buffer_size);
    const uint64_t least = least_bytes(format, k);
    const uint64_t part_rows = most / least * WEIGHT_ROWS;
    if (part_rows == 0)
        return error_set(err, TEMPER_UNSUPPORTED,
                         "%s: %d rows take %" PRIu64 " bytes, the device binds %" PRIu64 " at most",
                         label, WEIGHT_ROWS, least, most);
    const uint64_t parts = ceil_div(n, part_rows);
    op_weight *w = NULL;
    status = outline(format, n, k, label, parts, &w, err);
    if (status != TEMPER_OK)
        return status;
    w->device = gpu_device_retain(device);
    w->halves = true;
    for (uint64_t row0 = 0; row0 < n; row0 += part_rows) {
        status = create_part(w, row0, min_u64(part_rows, n - row0), err);
        if (status != TEMPER_OK) {
            op_weight_destroy(w);
            return status;
        }
    }
    assert(w->part_count == parts);
    *out = w;
    return TEMPER_OK;
}

/* Where a plane of rows comes from: memory of the host, or bytes from `at` on of an upload. */
typedef struct origin {
    const uint8_t *bytes;
    gpu_upload *upload; /* NULL: memory */
    uint64_t at;
} origin;

static temper_status put(const op_weight *w, gpu_buffer *to, uint64_t offset, const origin *from,
                         uint64_t at, uint64_t bytes, error *err)
{
    if (from->upload == NULL)
        return gpu_write(w->device, to, offset, from->bytes + at, bytes, err);
    gpu_upload_copy(from->upload, from->at + at, to, offset, bytes);
    return TEMPER_OK;
}

/* Rows [begin, end) of a plane of the part, which are rows from `first` on where they come from. */
static temper_status write_plane(const op_weight *w, const op_weight_part *part, weight_plane which,
                                 uint64_t begin, uint64_t end, const origin *from, uint64_t stride,
                                 uint64_t first, error *err)
{
    gpu_buffer *const buffers[WEIGHT_PLANES] = {part->data, part->high, part->scales};
    gpu_buffer *buffer = buffers[which];
    const uint64_t words = weight_plane_words(w->format, which, w->k, stride);
    if (stride == part->stride && end - begin == stride) /* rows past the end stay zero */
        return words == 0 ? TEMPER_OK : put(w, buffer, 0, from, 0, words * 4, err);

    weight_table tables[WEIGHT_TABLES];
    const uint32_t count = weight_tables(w->format, which, w->k, tables);
    uint64_t at = 0, to = 0;
    for (uint32_t t = 0; t < count; t++) {
        const uint64_t entry = tables[t].entry_bytes;
        const uint64_t bytes = ceil_div((end - begin) * entry, 4) * 4;
        for (uint64_t line = 0; line < tables[t].lines; line++) {
            const temper_status status = put(w, buffer, to + (begin - part->row0) * entry, from,
                                             at + first * entry, bytes, err);
            if (status != TEMPER_OK)
                return status;
            to += part->stride * entry;
            at += stride * entry;
        }
    }
    return TEMPER_OK;
}

static temper_status write_rows(op_weight *w, uint64_t row0, uint64_t rows,
                                const origin from[WEIGHT_PLANES], error *err)
{
    assert(row0 <= w->n && rows <= w->n - row0);
    assert(row0 % 2 == 0 && (rows % 2 == 0 || row0 + rows == w->n));
    const uint64_t stride = weight_stride(rows);
    for (uint32_t i = 0; i < w->part_count; i++) {
        const op_weight_part *part = &w->parts[i];
        const uint64_t begin = max_u64(row0, part->row0);
        const uint64_t end = min_u64(row0 + rows, part->row0 + part->rows);
        for (int p = 0; begin < end && p < WEIGHT_PLANES; p++) {
            const temper_status status = write_plane(w, part, (weight_plane)p, begin, end, &from[p],
                                                     stride, begin - row0, err);
            if (status != TEMPER_OK)
                return status;
        }
    }
    return TEMPER_OK;
}

temper_status op_weight_write_rows(op_weight *w, uint64_t row0, uint64_t rows, weight_planes planes,
                                   error *err)
{
    const uint64_t stride = weight_stride(rows);
    origin from[WEIGHT_PLANES];
    for (int p = 0; p < WEIGHT_PLANES; p++) {
        assert((planes.plane[p] != NULL) ==
               (weight_plane_words(w->format, (weight_plane)p, w->k, stride) != 0));
        from[p] = (origin){.bytes = (const uint8_t *)planes.plane[p]};
    }
    w->halves =
        w->halves && weight_suits_f16(w->format, w->k, planes, stride, 0, rows, &w->largest);
    return write_rows(w, row0, rows, from, err);
}

void op_weight_upload_rows(op_weight *w, uint64_t row0, uint64_t rows, gpu_upload *upload,
                           double largest)
{
    origin from[WEIGHT_PLANES];
    uint64_t at = 0;
    for (int p = 0; p < WEIGHT_PLANES; p++) {
        from[p] = (origin){.upload = upload, .at = at};
        at += 4 * weight_plane_words(w->format, (weight_plane)p, w->k, weight_stride(rows));
    }
    w->halves = w->halves && largest < INFINITY;
    w->largest = fmax(w->largest, largest);
    const temper_status status = write_rows(w, row0, rows, from, NULL);
    assert(status == TEMPER_OK);
    (void)status;
}

void op_weight_destroy(op_weight *w)
{
    if (w == NULL)
        return;
    for (uint32_t i = 0; i < w->part_count; i++) {
        gpu_buffer_destroy(w->parts[i].data);
        gpu_buffer_destroy(w->parts[i].high);
        gpu_buffer_destroy(w->parts[i].scales);
    }
    mem_free((char *)(uintptr_t)w->label);
    gpu_device_release(w->device);
    mem_free(w);
}
