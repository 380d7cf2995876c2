/*
 * weight.c - weights on the device: up to three planes, split by rows where a binding or a buffer
 * is too small for all.
 */
#include <assert.h>
#include <inttypes.h>
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
            return (format.group == 16 || format.group == 32) && k % SCALE_K_BLOCK == 0;
        return format.scale != SCALE_NONE && grouped && (format.layout == LAYOUT_Q4 || k % 32 == 0);
    case LAYOUT_COUNT:
        break;
    }
    return false;
}

uint64_t op_weight_bytes(weight_format format, uint64_t n, uint64_t k)
{
    return 4 * n *
           (weight_row_words(format, k) + weight_high_row_words(format, k) +
            weight_scale_row_words(format, k));
}

/* One plane of a part, where the format has it. */
static temper_status create_plane(const op_weight *w, uint64_t rows, uint64_t row_words,
                                  gpu_buffer **out, error *err)
{
    if (row_words == 0)
        return TEMPER_OK;
    return gpu_buffer_create(w->device, rows * row_words * 4, GPU_PURPOSE_WEIGHTS, w->label, out,
                             err);
}

static temper_status create_part(op_weight *w, uint64_t row0, uint64_t rows, error *err)
{
    op_weight_part *part = &w->parts[w->part_count++];
    *part = (op_weight_part){.row0 = row0, .rows = rows};
    temper_status status;
    if ((status = create_plane(w, rows, weight_row_words(w->format, w->k), &part->data, err)) !=
            TEMPER_OK ||
        (status = create_plane(w, rows, weight_high_row_words(w->format, w->k), &part->high,
                               err)) != TEMPER_OK)
        return status;
    return create_plane(w, rows, weight_scale_row_words(w->format, w->k), &part->scales, err);
}

temper_status op_weight_create(gpu_device *device, weight_format format, uint64_t n, uint64_t k,
                               const char *label, op_weight **out, error *err)
{
    *out = NULL;
    if (n == 0 || k == 0 || n > UINT32_MAX || k > INT32_MAX || !format_is_possible(format, k))
        return error_set(err, TEMPER_BAD_ARGUMENT,
                         "%s: no weight of %" PRIu64 " rows by %" PRIu64
                         " columns in layout %d with scales %d of %u",
                         label, n, k, (int)format.layout, (int)format.scale, format.group);
    const gpu_limits *limits = gpu_device_limits(device);
    const uint64_t most = min_u64(limits->max_storage_binding, limits->max_buffer_size);
    const uint64_t row_bytes =
        4 * max_u64(weight_row_words(format, k), weight_scale_row_words(format, k));
    const uint64_t part_rows = min_u64(most / row_bytes, n);
    if (part_rows == 0)
        return error_set(err, TEMPER_UNSUPPORTED,
                         "%s: one row takes %" PRIu64 " bytes, the device binds %" PRIu64
                         " at most",
                         label, row_bytes, most);
    const uint64_t parts = ceil_div(n, part_rows);
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
    w->device = gpu_device_retain(device);
    for (uint64_t row0 = 0; row0 < n; row0 += part_rows) {
        const temper_status status = create_part(w, row0, min_u64(part_rows, n - row0), err);
        if (status != TEMPER_OK) {
            op_weight_destroy(w);
            return status;
        }
    }
    assert(w->part_count == parts);
    *out = w;
    return TEMPER_OK;
}

/* Rows [begin, end) of one plane, `words` a row; `first` is the part's first row. */
static temper_status write_plane(const op_weight *w, gpu_buffer *plane, uint64_t first,
                                 uint64_t begin, uint64_t end, uint64_t words, const uint32_t *from,
                                 error *err)
{
    if (plane == NULL)
        return TEMPER_OK;
    return gpu_write(w->device, plane, (begin - first) * words * 4, from, (end - begin) * words * 4,
                     err);
}

temper_status op_weight_write_rows(op_weight *w, uint64_t row0, uint64_t rows, weight_planes planes,
                                   error *err)
{
    assert(row0 <= w->n && rows <= w->n - row0);
    assert((planes.scales != NULL) == (w->format.scale != SCALE_NONE));
    assert((planes.high != NULL) == (weight_high_row_words(w->format, w->k) != 0));
    for (uint32_t i = 0; i < w->part_count; i++) {
        const op_weight_part *part = &w->parts[i];
        const uint64_t begin = max_u64(row0, part->row0), first = part->row0;
        const uint64_t end = min_u64(row0 + rows, part->row0 + part->rows);
        if (begin >= end)
            continue;
        const weight_planes from = weight_planes_at(w->format, w->k, planes, begin - row0);
        temper_status status;
        if ((status = write_plane(w, part->data, first, begin, end,
                                  weight_row_words(w->format, w->k), from.data, err)) !=
                TEMPER_OK ||
            (status = write_plane(w, part->high, first, begin, end,
                                  weight_high_row_words(w->format, w->k), from.high, err)) !=
                TEMPER_OK ||
            (status = write_plane(w, part->scales, first, begin, end,
                                  weight_scale_row_words(w->format, w->k), from.scales, err)) !=
                TEMPER_OK)
            return status;
    }
    return TEMPER_OK;
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
