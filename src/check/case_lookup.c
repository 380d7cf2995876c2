/*
 * case_lookup.c - every format decoded bit for bit, and the embedding.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/half.h"
#include "check/context.h"
#include "ref/ref.h"

enum kind {
    DEQUANTIZE,   /* random weight of `format` */
    SLICE,        /* rows in the middle */
    ALL_HALVES,   /* all 65536 values of a 16-bit layout */
    SOME_FACTORS, /* the subnormal and some other finite f16 as factors of K scales */
    ALL_SCALES,   /* all finite f16 as scales */
    F32_BITS,     /* subnormals, infinities, NaN as they are */
    EMBED,
    EMBED_SCALED,
    EMBED_NO_TOKEN,
};

typedef struct lookup_case {
    const char *name, *format;
    enum kind kind;
    uint32_t n, k;
} lookup_case;

static const lookup_case cases[] = {
    {"dequantize rows 5 to 11", "q4_min_32", SLICE, 23, 96},
    {"every f16", "f16", ALL_HALVES, 256, 256},
    {"every bf16", "bf16", ALL_HALVES, 256, 256},
    {"every f16 scale of q4", "q4_f16_32", ALL_SCALES, 992, 2048},
    {"every f16 scale of q4 with minimum", "q4_min_32", ALL_SCALES, 992, 2048},
    {"every f16 scale of q8", "q8_f16_32", ALL_SCALES, 992, 2048},
    {"every f16 scale of q5", "q5_f16_32", ALL_SCALES, 992, 2048},
    {"every f16 scale of q5 with minimum", "q5_min_32", ALL_SCALES, 992, 2048},
    {"factors of q2_k", "q4_kmin_16", SOME_FACTORS, 512, 2048},
    {"factors of q3_k", "q4_k_16", SOME_FACTORS, 512, 2048},
    {"factors of q4_k", "q4_kmin_32", SOME_FACTORS, 512, 2048},
    {"factors of q5_k", "q5_kmin_32", SOME_FACTORS, 512, 2048},
    {"factors of q6_k", "q6_k_16", SOME_FACTORS, 512, 2048},
    {"f32 as it is", "f32", F32_BITS, 16, 33},
    {"embed q8", "q8_f16_32", EMBED, 501, 576},
    {"embed f16, odd width", "f16", EMBED, 77, 33},
    {"embed times 24", "q4_min_32", EMBED_SCALED, 77, 64},
    {"embed of no token", "q8_f16_32", EMBED_NO_TOKEN, 77, 64},
};
enum { NAMED = sizeof cases / sizeof *cases };

static uint32_t count(void)
{
    return NAMED + check_format_count;
}

static lookup_case get(uint32_t i)
{
    if (i < NAMED)
        return cases[i];
    return (lookup_case){check_formats[i - NAMED].name, check_formats[i - NAMED].name, DEQUANTIZE,
                         37, check_formats[i - NAMED].format.group ? 768 : 131};
}

static void describe(uint32_t i, check_case *out)
{
    const lookup_case l = get(i);
    snprintf(out->name, sizeof out->name, "%s%s", l.kind == DEQUANTIZE ? "dequantize " : "",
             l.name);
}

typedef struct lookup_run {
    const op_weight *weight;
    gpu_view ids, out;
    uint64_t row0;
    uint32_t rows;
    float scale;
} lookup_run;

static void record_dequantize(gpu_recorder *rec, void *user)
{
    const lookup_run *r = user;
    op_dequantize(rec, r->weight, r->row0, r->rows, r->out);
}

static void record_embed(gpu_recorder *rec, void *user)
{
    const lookup_run *r = user;
    op_embed(rec, r->weight, r->ids, r->out, r->rows, r->scale);
}

/* The i-th finite f16 of 63488. */
static uint32_t finite_half(uint64_t i)
{
    const uint32_t at = (uint32_t)(i % 63488);
    return at < 31744 ? at : 0x8000u + (at - 31744);
}

/* The i-th of the f16 that matter as factors: all subnormals of both signs, then every 41st. */
static uint32_t factor_half(uint64_t i)
{
    const uint64_t subnormals = 1024;
    if (i < 2 * subnormals)
        return finite_half(i < subnormals ? i : 31744 + i - subnormals);
    return finite_half(i * 41);
}

/* Word `at` of the K scales: factors, then scales of every value. */
static uint32_t factor_word(uint64_t factors, uint64_t at)
{
    if (at >= factors)
        return check_random_word(6, at);
    return factor_half(at) | factor_half(at * 7 + 3) << 16;
}

static check_weight special_weight(check_context *c, const lookup_case *l, weight_format format)
{
    const uint64_t stride = weight_stride(l->n), factors = l->k / SCALE_K_BLOCK * stride;
    static const uint32_t odd[] = {1,           0x80000001u, 0x007fffffu, 0x7f800000u,
                                   0xff800000u, 0x7fc01234u, 0x80000000u};
    const weight_planes planes = check_planes(c, format, l->n, l->k);
    uint32_t *const *plane = planes.plane;
    if (c->status != TEMPER_OK)
        return (check_weight){0};
    for (uint64_t i = weight_plane_words(format, WEIGHT_DATA, l->k, stride); i-- > 0;)
        plane[WEIGHT_DATA][i] = l->kind == ALL_HALVES
                                    ? (uint32_t)(2 * i) | (uint32_t)(2 * i + 1) << 16
                                : l->kind == F32_BITS ? odd[i % 7]
                                                      : check_random_word(3, i);
    for (uint64_t i = weight_plane_words(format, WEIGHT_HIGH, l->k, stride); i-- > 0;)
        plane[WEIGHT_HIGH][i] = check_random_word(4, i);
    for (uint64_t i = weight_plane_words(format, WEIGHT_SCALES, l->k, stride); i-- > 0;)
        plane[WEIGHT_SCALES][i] = l->kind == SOME_FACTORS ? factor_word(factors, i)
                                  : format.scale == SCALE_F16_MIN
                                      ? finite_half(i) | finite_half(i * 7 + 3) << 16
                                      : finite_half(2 * i) | finite_half(2 * i + 1) << 16;
    return check_upload_weight(c, format, l->n, l->k, planes);
}

static void run_dequantize(check_context *c, const lookup_case *l)
{
    const weight_format format = *check_format_named(l->format);
    const bool plain = l->kind == DEQUANTIZE || l->kind == SLICE;
    const check_weight w =
        plain ? check_make_weight(c, format, l->n, l->k, 5) : special_weight(c, l, format);
    lookup_run r = {.weight = w.weight, .rows = l->n};
    if (l->kind == SLICE) {
        r.row0 = 5;
        r.rows = 7;
    }
    const uint64_t values = (uint64_t)r.rows * l->k;
    r.out = check_output(c, values * 4);
    if (c->status != TEMPER_OK)
        return;
    const uint32_t *got = check_go(c, record_dequantize, &r, r.out, 0,
                                   (double)(op_weight_bytes(format, r.rows, l->k) + values * 4));
    check_same(c, got, (const uint32_t *)(const void *)(w.values + r.row0 * l->k), values);
}

static void run_embed(check_context *c, const lookup_case *l)
{
    enum { ROWS = 67 };
    const check_weight w = check_make_weight(c, *check_format_named(l->format), l->n, l->k, 5);
    uint32_t ids[ROWS];
    for (uint32_t i = 0; i < ROWS; i++)
        ids[i] = i == 40 ? l->n - 1 : (i * i * 31 + 7) % l->n;
    if (l->kind == EMBED_NO_TOKEN) {
        ids[3] = OP_NO_TOKEN;
        ids[4] = l->n;
        ids[ROWS - 1] = 0x80000000u;
    }
    lookup_run r = {
        .weight = w.weight, .rows = ROWS, .scale = l->kind == EMBED_SCALED ? 24.0f : 1.0f};
    r.ids = check_input(c, ids, sizeof ids);
    r.out = check_output(c, (uint64_t)ROWS * l->k * 4);
    double *want = check_alloc(c, (uint64_t)ROWS * l->k, sizeof *want);
    if (c->status != TEMPER_OK)
        return;
    const float *got = check_go(c, record_embed, &r, r.out, 0, (double)ROWS * l->k * 8);
    ref_embed(w.values, l->n, l->k, ids, ROWS, (double)r.scale, want);
    check_close(c, got, want, (uint64_t)ROWS * l->k, 1e-7);
}

static void run(check_context *c, uint32_t i)
{
    const lookup_case l = get(i);
    if (l.kind >= EMBED)
        run_embed(c, &l);
    else
        run_dequantize(c, &l);
}

const check_group check_lookup = {"lookup", count, describe, run};
