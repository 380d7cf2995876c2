/*
 * context.c - inputs, buffers, running and comparing for the case files.
 */
#include "check/context.h"

#include <assert.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/half.h"
#include "base/mem.h"
#include "base/random.h"

#define UNWRITTEN 0x7fdead00u /* a NaN that no op makes */

/* ---- memory and inputs ----------------------------------------------------------------------- */

void *check_alloc(check_context *c, uint64_t count, uint64_t size)
{
    if (c->status != TEMPER_OK)
        return NULL;
    assert(c->block_count < CHECK_BLOCKS);
    void *block = mem_calloc((size_t)(count ? count : 1), (size_t)size);
    if (block == NULL)
        c->status = error_set(c->err, TEMPER_NO_MEMORY, "no host memory for a case");
    else
        c->blocks[c->block_count++] = block;
    return block;
}

float *check_ramp(check_context *c, uint64_t count)
{
    float *values = check_alloc(c, count, sizeof *values);
    for (uint64_t i = 0; values != NULL && i < count; i++)
        values[i] = ((float)(i % 17) - 8.0f) / 16.0f;
    return values;
}

uint32_t check_random_word(uint32_t seed, uint64_t index)
{
    const uint32_t counter[4] = {(uint32_t)(index / 4), (uint32_t)(index >> 34), 0, 0},
                   key[2] = {seed, 0x6368656b};
    uint32_t out[4];
    philox4x32(counter, key, out);
    return out[index % 4];
}

float check_random_float(uint32_t seed, uint64_t index)
{
    return (float)((int32_t)(check_random_word(seed, index) >> 8) - (1 << 23)) / (float)(1 << 23);
}

float *check_random(check_context *c, uint64_t count, uint32_t seed)
{
    float *values = check_alloc(c, count, sizeof *values);
    for (uint64_t i = 0; values != NULL && i < count; i++)
        values[i] = check_random_float(seed, i);
    return values;
}

static gpu_view add_buffer(check_context *c, const void *bytes, uint64_t size, const char *label)
{
    const gpu_view none = {0};
    if (c->status != TEMPER_OK)
        return none;
    assert(c->buffer_count < CHECK_BUFFERS);
    gpu_buffer *buffer = NULL;
    c->status = gpu_buffer_create(c->device, size, GPU_PURPOSE_SCRATCH, label, &buffer, c->err);
    if (c->status != TEMPER_OK)
        return none;
    c->buffers[c->buffer_count++] = buffer;
    if (size > 0)
        c->status = gpu_write(c->device, buffer, 0, bytes, size, c->err);
    return c->status == TEMPER_OK ? gpu_whole(buffer) : none;
}

gpu_view check_input(check_context *c, const void *bytes, uint64_t size)
{
    return add_buffer(c, bytes, size, "input");
}

gpu_view check_output(check_context *c, uint64_t size)
{
    uint32_t *poison = mem_alloc((size_t)size);
    if (poison == NULL)
        c->status = error_set(c->err, TEMPER_NO_MEMORY, "no host memory for a case");
    for (uint64_t i = 0; poison != NULL && i < size / 4; i++)
        poison[i] = UNWRITTEN;
    const gpu_view view = add_buffer(c, poison, size, "output");
    mem_free(poison);
    return view;
}

const check_format check_formats[] = {
    {"f32", {LAYOUT_F32, SCALE_NONE, 0}},          {"f16", {LAYOUT_F16, SCALE_NONE, 0}},
    {"bf16", {LAYOUT_BF16, SCALE_NONE, 0}},        {"q8_f16_32", {LAYOUT_Q8, SCALE_F16, 32}},
    {"q4_f16_32", {LAYOUT_Q4, SCALE_F16, 32}},     {"q4_f16_64", {LAYOUT_Q4, SCALE_F16, 64}},
    {"q4_f16_128", {LAYOUT_Q4, SCALE_F16, 128}},   {"q4_min_32", {LAYOUT_Q4, SCALE_F16_MIN, 32}},
    {"q4_min_64", {LAYOUT_Q4, SCALE_F16_MIN, 64}}, {"q4_min_128", {LAYOUT_Q4, SCALE_F16_MIN, 128}},
    {"q4_f32_8", {LAYOUT_Q4, SCALE_F32, 8}},       {"q4_f32_32", {LAYOUT_Q4, SCALE_F32, 32}},
    {"q4_f32_64", {LAYOUT_Q4, SCALE_F32, 64}},     {"q4_f32_128", {LAYOUT_Q4, SCALE_F32, 128}},
    {"q5_f16_32", {LAYOUT_Q5, SCALE_F16, 32}},     {"q5_min_32", {LAYOUT_Q5, SCALE_F16_MIN, 32}},
    {"q4_kmin_16", {LAYOUT_Q4, SCALE_K_MIN, 16}},  {"q4_k_16", {LAYOUT_Q4, SCALE_K, 16}},
    {"q4_kmin_32", {LAYOUT_Q4, SCALE_K_MIN, 32}},  {"q5_kmin_32", {LAYOUT_Q5, SCALE_K_MIN, 32}},
    {"q6_k_16", {LAYOUT_Q6, SCALE_K, 16}},         {"q6_f32_32", {LAYOUT_Q6, SCALE_F32, 32}},
};
const uint32_t check_format_count = sizeof check_formats / sizeof *check_formats;

const weight_format *check_format_named(const char *name)
{
    uint32_t i = 0;
    while (i + 1 < check_format_count && strcmp(check_formats[i].name, name) != 0)
        i++;
    assert(strcmp(check_formats[i].name, name) == 0);
    return &check_formats[i].format;
}

weight_planes check_planes(check_context *c, weight_format format, uint64_t n, uint64_t k)
{
    weight_planes planes = {{NULL}};
    for (int p = 0; p < WEIGHT_PLANES; p++) {
        const uint64_t words = weight_plane_words(format, (weight_plane)p, k, weight_stride(n));
        if (words > 0)
            planes.plane[p] = check_alloc(c, words, 4);
    }
    return planes;
}

/* Rows past n and elements past k are zero bits in every plane that the loader makes. */
static void clear_padding(weight_format format, uint64_t n, uint64_t k, weight_planes planes)
{
    const uint64_t stride = weight_stride(n), in_block = k % WEIGHT_BLOCK;
    for (int p = 0; p < WEIGHT_PLANES; p++) {
        weight_table tables[WEIGHT_TABLES];
        const uint32_t count = weight_tables(format, (weight_plane)p, k, tables);
        uint8_t *at = (uint8_t *)planes.plane[p];
        for (uint32_t t = 0; t < count; t++)
            for (uint64_t line = 0; line < tables[t].lines; line++) {
                memset(at + n * tables[t].entry_bytes, 0, (stride - n) * tables[t].entry_bytes);
                at += stride * tables[t].entry_bytes;
            }
    }
    weight_table data[WEIGHT_TABLES];
    weight_tables(format, WEIGHT_DATA, k, data);
    const uint32_t words = data[0].entry_bytes / 4, each = WEIGHT_BLOCK / words;
    for (uint64_t row = 0; in_block > 0 && row < n; row++) {
        uint32_t *entry = planes.plane[WEIGHT_DATA] + ((data[0].lines - 1) * stride + row) * words;
        for (uint64_t w = ceil_div(in_block, each); w < words; w++)
            entry[w] = 0;
        if (in_block % each != 0) /* an odd number of halves */
            entry[in_block / each] &= 0xffffu;
    }
}

check_weight check_upload_weight(check_context *c, weight_format format, uint64_t n, uint64_t k,
                                 weight_planes planes)
{
    check_weight made = {0};
    made.values = check_alloc(c, n * k, sizeof *made.values);
    if (c->status != TEMPER_OK)
        return made;
    clear_padding(format, n, k, planes);
    for (uint64_t row = 0; row < n; row++)
        weight_dequantize_row(format, k, planes, weight_stride(n), row, made.values + row * k);
    assert(c->weight_count < CHECK_WEIGHTS);
    c->status = op_weight_create(c->device, format, n, k, "weight", &made.weight, c->err);
    if (c->status != TEMPER_OK)
        return made;
    c->weights[c->weight_count++] = made.weight;
    c->status = op_weight_write_rows(made.weight, 0, n, planes, c->err);
    return made;
}

static uint32_t random_data_word(weight_format format, uint64_t at, uint32_t seed)
{
    if (format.layout == LAYOUT_F32) {
        const float value = check_random_float(seed, at);
        uint32_t bits;
        memcpy(&bits, &value, sizeof bits);
        return bits;
    }
    if (format.layout == LAYOUT_F16 || format.layout == LAYOUT_BF16) {
        const float low = check_random_float(seed, 2 * at),
                    high = check_random_float(seed, 2 * at + 1);
        const bool half = format.layout == LAYOUT_F16;
        const uint32_t bits = half ? f32_to_f16(low) : f32_to_bf16(low);
        return bits | (uint32_t)(half ? f32_to_f16(high) : f32_to_bf16(high)) << 16;
    }
    return check_random_word(seed, at);
}

/* Word `at` of the scales of planes: factors and their like, but for the second table of the K
 * scales, whose integers may be any. */
static uint32_t random_scale_word(weight_format format, uint64_t factors, uint64_t at,
                                  uint32_t seed)
{
    const bool two_level = format.scale == SCALE_K || format.scale == SCALE_K_MIN;
    if (two_level && at >= factors)
        return check_random_word(seed, at);
    const float size = format.layout == LAYOUT_Q8 ? 0.00125f : two_level ? 0.0003f : 0.02f;
    const float first = size * (1.0f + 0.5f * check_random_float(seed, 2 * at));
    const float second = size * (1.0f + 0.5f * check_random_float(seed, 2 * at + 1));
    if (format.scale == SCALE_F32) {
        uint32_t bits;
        memcpy(&bits, &first, sizeof bits);
        return bits;
    }
    const float high = format.scale == SCALE_F16_MIN ? -8 * second
                       : format.scale == SCALE_K_MIN ? 8 * second
                                                     : second;
    return f32_to_f16(first) | (uint32_t)f32_to_f16(high) << 16;
}

check_weight check_make_weight(check_context *c, weight_format format, uint64_t n, uint64_t k,
                               uint32_t seed)
{
    const uint64_t stride = weight_stride(n), factors = k / SCALE_K_BLOCK * stride;
    const weight_planes planes = check_planes(c, format, n, k);
    uint32_t *const *plane = planes.plane;
    if (c->status != TEMPER_OK)
        return (check_weight){0};
    for (uint64_t i = weight_plane_words(format, WEIGHT_DATA, k, stride); i-- > 0;)
        plane[WEIGHT_DATA][i] = random_data_word(format, i, seed);
    for (uint64_t i = weight_plane_words(format, WEIGHT_HIGH, k, stride); i-- > 0;)
        plane[WEIGHT_HIGH][i] = check_random_word(seed + 500, i);
    for (uint64_t i = weight_plane_words(format, WEIGHT_SCALES, k, stride); i-- > 0;)
        plane[WEIGHT_SCALES][i] = random_scale_word(format, factors, i, seed + 1000);
    return check_upload_weight(c, format, n, k, planes);
}

/* ---- running --------------------------------------------------------------------------------- */

static void record_nothing(gpu_recorder *rec, void *user)
{
    (void)rec;
    (void)user;
}

static void submit(check_context *c, check_record record, void *user, uint32_t times, gpu_view out,
                   void *host)
{
    if (c->status != TEMPER_OK)
        return;
    const uint64_t choices = op_preferred_choices();
    gpu_recorder *rec = gpu_record_begin(c->device);
    for (uint32_t i = 0; i < times; i++)
        record(rec, user);
    if (c->only_preferred && record != record_nothing && op_preferred_choices() == choices) {
        gpu_record_cancel(rec);
        c->abandoned = true;
        c->status = TEMPER_UNSUPPORTED; /* which ends the case: check_run takes it back */
        return;
    }
    if (host != NULL)
        gpu_record_readback(rec, out);
    gpu_ticket ticket = {0};
    c->status = gpu_submit(rec, &ticket, c->err);
    if (c->status == TEMPER_OK)
        c->status = gpu_wait(c->device, ticket, host, host != NULL ? out.size : 0, c->err);
}

/* The unit that did the operations since then: the fastest that did any. */
static gpu_unit unit_since(const check_context *c, const gpu_counters *before)
{
    const gpu_counters now = gpu_device_counters(c->device);
    gpu_unit unit = GPU_UNIT_F32;
    for (uint32_t i = 0; i < GPU_UNITS; i++)
        if (now.work_operations[i] > before->work_operations[i])
            unit = (gpu_unit)i;
    return unit;
}

static void time_it(check_context *c, check_record record, void *user, double flops, double bytes)
{
    check_time time;
    const gpu_counters before = gpu_device_counters(c->device);
    c->status = check_timer_measure(c->timing->timer, record, user, &time, c->err);
    if (c->status != TEMPER_OK || !(time.median > 0))
        return;
    check_result *r = c->result;
    r->unit = unit_since(c, &before);
    r->timed = true;
    r->steady = time.steady;
    r->us = time.median * 1e6;
    r->gbps = bytes / time.median * 1e-9;
    r->tflops = flops / time.median * 1e-12;
    double operations[GPU_UNITS] = {0};
    operations[r->unit] = flops;
    if (c->timing->peak != NULL)
        r->share = check_peak_seconds(c->timing->peak, bytes, operations) / time.median;
}

void *check_go(check_context *c, check_record record, void *user, gpu_view out, double flops,
               double bytes)
{
    void *host = check_alloc(c, 1, out.size);
    submit(c, record, user, 1, out, host);
    if (c->time && c->status == TEMPER_OK)
        time_it(c, record, user, flops, bytes);
    return c->status == TEMPER_OK ? host : NULL;
}

void *check_read(check_context *c, gpu_view view)
{
    void *host = check_alloc(c, 1, view.size);
    submit(c, record_nothing, NULL, 1, view, host);
    return c->status == TEMPER_OK ? host : NULL;
}

void check_refused(check_context *c, check_record record, void *user, temper_status status,
                   const char *word)
{
    if (c->status != TEMPER_OK)
        return;
    error refusal = {0};
    gpu_recorder *rec = gpu_record_begin(c->device);
    record(rec, user);
    gpu_ticket ticket = {0};
    const temper_status got = gpu_submit(rec, &ticket, &refusal);
    check_that(c, got == status && strstr(refusal.text, word) != NULL,
               "refused as %d \"%s\", not as %d with \"%s\"", (int)got, refusal.text, (int)status,
               word);
}

/* ---- comparing ------------------------------------------------------------------------------- */

void check_that(check_context *c, bool right, const char *format, ...)
{
    if (right || !c->result->ok || c->status != TEMPER_OK)
        return;
    c->result->ok = false;
    va_list args;
    va_start(args, format);
    vsnprintf(c->result->detail, sizeof c->result->detail, format, args);
    va_end(args);
}

bool check_can_run(check_context *c, const op_kernel_row *row)
{
    check_that(c, row != NULL, "the row is missing");
    if (row != NULL && op_row_runs(c->device, row))
        return true;
    c->result->skipped = row != NULL;
    if (row != NULL)
        snprintf(c->result->detail, sizeof c->result->detail, "this device cannot run %s",
                 row->name);
    return false;
}

static void note(check_context *c, double worst, double limit, uint64_t at, double got, double want)
{
    if (worst / limit >= c->result->error / c->result->limit || c->result->limit == 0) {
        c->result->error = worst;
        c->result->limit = limit;
    }
    check_that(c, worst <= limit, "element %llu is %.9g, not %.9g", (unsigned long long)at, got,
               want);
}

/* Is one of the two not finite? Then *wrong says whether they differ; what the op never wrote is
 * always wrong. */
static bool special(float got, double want, bool *wrong)
{
    uint32_t bits;
    memcpy(&bits, &got, sizeof bits);
    *wrong = bits == UNWRITTEN || (isnan(want) ? !isnan(got) : (double)got != want);
    return !isfinite(got) || !isfinite(want);
}

void check_close(check_context *c, const float *got, const double *want, uint64_t count,
                 double limit)
{
    if (c->status != TEMPER_OK)
        return;
    double squares = 0, worst = 0;
    uint64_t finite = 0, worst_at = 0;
    for (uint64_t i = 0; i < count; i++) {
        bool wrong;
        if (special(got[i], want[i], &wrong)) {
            check_that(c, !wrong, "element %llu is %.9g, not %.9g", (unsigned long long)i,
                       (double)got[i], want[i]);
            continue;
        }
        squares += want[i] * want[i];
        finite++;
        if (fabs((double)got[i] - want[i]) > worst) {
            worst = fabs((double)got[i] - want[i]);
            worst_at = i;
        }
    }
    const double size = finite > 0 ? sqrt(squares / (double)finite) : 0;
    if (worst > 0)
        note(c, size > 0 ? worst / size : INFINITY, limit, worst_at, (double)got[worst_at],
             want[worst_at]);
    else
        note(c, 0, limit, 0, 0, 0);
}

void check_bounds(check_context *c, const float *got, const double *want, uint64_t count,
                  double absolute, double relative)
{
    if (c->status != TEMPER_OK)
        return;
    double worst = 0;
    uint64_t worst_at = 0;
    for (uint64_t i = 0; i < count; i++) {
        bool wrong;
        if (special(got[i], want[i], &wrong)) {
            check_that(c, !wrong, "element %llu is %.9g, not %.9g", (unsigned long long)i,
                       (double)got[i], want[i]);
            continue;
        }
        const double off = fabs((double)got[i] - want[i]);
        const double share =
            fmin(off / absolute, want[i] != 0 ? off / (relative * fabs(want[i])) : INFINITY);
        if (share > worst) {
            worst = share;
            worst_at = i;
        }
    }
    note(c, worst, 1, worst_at, count ? (double)got[worst_at] : 0, count ? want[worst_at] : 0);
}

static bool is_nan_word(uint32_t bits)
{
    return (bits & 0x7fffffffu) > 0x7f800000u;
}

void check_same(check_context *c, const uint32_t *got, const uint32_t *want, uint64_t count)
{
    if (c->status != TEMPER_OK)
        return;
    uint64_t different = 0, first = 0;
    for (uint64_t i = 0; i < count; i++)
        if (got[i] != want[i] &&
            !(is_nan_word(got[i]) && got[i] != UNWRITTEN && is_nan_word(want[i]))) {
            first = different++ == 0 ? i : first;
        }
    c->result->error = fmax((double)different, c->result->error);
    check_that(c, different == 0, "%llu of %llu words differ, the first is %llu: %08x, not %08x",
               (unsigned long long)different, (unsigned long long)count, (unsigned long long)first,
               different ? got[first] : 0, different ? want[first] : 0);
}
