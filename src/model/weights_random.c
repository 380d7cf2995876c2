/*
 * weights_random.c - weights of no file. One block of rows is made and copied to all of a matrix:
 * random numbers for billions of weights would take minutes. Its words come from one sequence of
 * numbers, of which the members of a crew take slices.
 */
#include <assert.h>
#include <math.h>
#include <string.h>

#include "base/checked.h"
#include "base/half.h"
#include "base/mem.h"
#include "base/random.h"
#include "model/weights_internal.h"
#include "op/rows.h"

enum {
    RANDOM_BLOCK_BYTES = 16 << 20, /* what the values are depends on it */
    SLICE_WORDS = 1 << 14,
};

/* The block. */
typedef struct job {
    weight_format format;
    uint64_t k, rows;
    weight_planes planes; /* in memory of the host, one after the other */
    uint64_t words[WEIGHT_PLANES];
    uint64_t slices[WEIGHT_PLANES]; /* of SLICE_WORDS, the last one less */
    random_state seed;
    double largest[CREW_MOST]; /* of each member's slices, as in weights_bench */
} job;

/* ---- values ---------------------------------------------------------------------------------- */

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

/* Numbers that a word of a plane takes. */
static uint64_t numbers_a_word(weight_format format, int plane)
{
    if (format.scale == SCALE_NONE)
        return format.layout == LAYOUT_F32 ? 2 : 4;
    if (plane != WEIGHT_SCALES)
        return 1;
    return format.scale == SCALE_F16_MIN || format.scale == SCALE_K_MIN ? 1 : 2;
}

/* ---- a block --------------------------------------------------------------------------------- */

static void fill_slice(uint64_t part, uint32_t member, void *user)
{
    /* Uniform integers of -8 to 7 have a deviation of 4.6, of -128 to 127 one of 74. */
    static const double deviations[LAYOUT_COUNT] = {
        [LAYOUT_Q8] = 74.0, [LAYOUT_Q4] = 4.6, [LAYOUT_Q5] = 9.2, [LAYOUT_Q6] = 18.5};
    static const double middles[LAYOUT_COUNT] = {[LAYOUT_Q4] = 7.5, [LAYOUT_Q5] = 15.5};
    const job *j = user;
    const weight_format format = j->format;
    const double deviation = 1.0 / sqrt((double)j->k);
    random_state r = j->seed;
    int p = 0;
    (void)member;
    for (; part >= j->slices[p]; part -= j->slices[p++])
        random_skip(&r, j->words[p] * numbers_a_word(format, p));
    const uint64_t first = part * SLICE_WORDS;
    const uint64_t words = min_u64(SLICE_WORDS, j->words[p] - first);
    uint32_t *out = j->planes.plane[p] + first;
    random_skip(&r, first * numbers_a_word(format, p));
    if (format.scale == SCALE_NONE) {
        random_plain(format.layout, deviation, out, words, &r);
    } else if (p == WEIGHT_SCALES) {
        const uint64_t factors = j->k / SCALE_K_BLOCK * weight_stride(j->rows);
        random_scales(format, deviation / deviations[format.layout], middles[format.layout], out,
                      words, factors - min_u64(factors, first), &r);
    } else {
        for (uint64_t i = 0; i < words; i++)
            out[i] = (uint32_t)random_u64(&r);
    }
}

static void check_slice(uint64_t part, uint32_t member, void *user)
{
    job *j = user;
    const uint64_t first = part * WEIGHT_ROWS;
    double *largest = &j->largest[member];
    if (!weight_suits_f16(j->format, j->k, j->planes, weight_stride(j->rows), first,
                          min_u64(WEIGHT_ROWS, j->rows - first), largest))
        *largest = INFINITY;
}

/* Makes the block in `memory`, which has room for it. */
static void make_block(job *j, crew *members, uint32_t *memory)
{
    uint64_t slices = 0;
    for (int p = 0; p < WEIGHT_PLANES; p++) {
        j->planes.plane[p] = memory;
        j->words[p] = weight_plane_words(j->format, (weight_plane)p, j->k, weight_stride(j->rows));
        j->slices[p] = ceil_div(j->words[p], SLICE_WORDS);
        memory += j->words[p];
        slices += j->slices[p];
    }
    crew_run(members, slices, fill_slice, j);
    crew_run(members, ceil_div(j->rows, WEIGHT_ROWS), check_slice, j);
}

static double largest_of(const job *j)
{
    double largest = 0.0;
    for (uint32_t i = 0; i < CREW_MOST; i++)
        largest = fmax(largest, j->largest[i]);
    return largest;
}

/* Queues `count` times `rows` rows from row `to` of the weight on: each time the first words of the
 * block's planes. */
static temper_status send(const job *j, gpu_upload *upload, op_weight *weight, uint64_t to,
                          uint64_t rows, uint64_t count, error *err)
{
    void *block = NULL;
    temper_status status = gpu_upload_begin(upload, &block, err);
    if (status != TEMPER_OK)
        return status;
    uint8_t *at = block;
    for (int p = 0; p < WEIGHT_PLANES; p++) {
        const size_t bytes =
            (size_t)(4 * weight_plane_words(j->format, (weight_plane)p, j->k, weight_stride(rows)));
        memcpy(at, j->planes.plane[p], bytes);
        at += bytes;
    }
    for (uint64_t i = 0; i < count; i++)
        op_weight_upload_rows(weight, to + i * rows, rows, upload, largest_of(j));
    return gpu_upload_send(upload, err);
}

static temper_status fill(weights_loader *loader, op_weight *weight, uint64_t rows, error *err)
{
    const uint64_t n = weight->n, bytes = op_weight_bytes(weight->format, rows, weight->k);
    job j = {.format = weight->format, .k = weight->k, .rows = rows};
    temper_status status = weights_prepare(loader, bytes, err);
    if (status != TEMPER_OK)
        return status;
    uint32_t *memory = mem_alloc((size_t)bytes);
    if (memory == NULL)
        return error_set(err, TEMPER_NO_MEMORY, "no memory for random weights");
    j.seed.state = n * 31 + weight->k;
    make_block(&j, loader->crew, memory);
    status = send(&j, loader->upload, weight, 0, rows, n / rows, err);
    if (status == TEMPER_OK && n % rows != 0)
        status = send(&j, loader->upload, weight, n - n % rows, n % rows, 1, err);
    mem_free(memory);
    return status;
}

temper_status weights_random_matrix(weights_loader *loader, const char *label, uint64_t n,
                                    uint64_t k, op_weight **out, error *err)
{
    const weight_format format = weight_format_of(loader->random_type);
    const uint64_t least = op_weight_bytes(format, WEIGHT_ROWS, k);
    const uint64_t rows = min_u64(n, max_u64(1, RANDOM_BLOCK_BYTES / least) * WEIGHT_ROWS);
    op_weight *weight = NULL;
    temper_status status = op_weight_create(loader->device, format, n, k, label, &weight, err);
    if (status == TEMPER_OK)
        status = fill(loader, weight, rows, err);
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
    *loader = (weights_loader){
        .device = device, .random_type = type, .mapped = !op_device_is_software(device)};
    *out = loader;
    return TEMPER_OK;
}
