/*
 * case_matmul.c - products in every format and shape that broke someone.
 */
#include <math.h>
#include <stdio.h>

#include "base/checked.h"
#include "check/context.h"
#include "ref/ref.h"

enum kind {
    RANDOM,
    RAMP,       /* x is the golden cases' ramp */
    BIG,        /* all products 300 * 300 */
    NAN_X,      /* one NaN in x: that row */
    NAN_W,      /* one NaN in w: that column */
    INFINITE_X, /* one infinity in x */
};

typedef struct matmul_case {
    const char *name;
    const char *format;
    uint32_t rows, k, n;
    double absolute, relative; /* 0: normalised error of LIMIT */
    check_cost cost;
    enum kind kind;
    op_mode mode;
} matmul_case;

/* f32 sums of up to 8192 products, against double, over the root mean square of the result. Equal
 * products round the same way each time, so that their errors add up instead of averaging: half a
 * unit a step at worst. */
#define LIMIT 2e-5
#define LIMIT_BIG 1.2e-4

static const matmul_case cases[] = {
    /* The golden table for 4-bit weights with f32 scales. */
    {"q_proj", "q4_f32_32", 1, 2048, 2048, 1e-4, 1e-3, CHECK_NORMAL, RAMP, OP_WRITE},
    {"kv_proj", "q4_f32_32", 1, 2048, 512, 1e-4, 1e-3, CHECK_QUICK, RAMP, OP_WRITE},
    {"gate_proj", "q4_f32_32", 1, 2048, 8192, 1e-4, 1e-3, CHECK_NORMAL, RAMP, OP_WRITE},
    {"down_proj", "q4_f32_32", 1, 8192, 2048, 1e-3, 1e-2, CHECK_NORMAL, RAMP, OP_WRITE},
    {"lm_head", "q4_f32_32", 1, 2048, 128256, 1e-4, 1e-3, CHECK_HEAVY, RAMP, OP_WRITE},
    {"q_proj_4k", "q4_f32_32", 4096, 2048, 2048, 1e-4, 1e-3, CHECK_HEAVY, RAMP, OP_WRITE},
    {"kv_proj_4k", "q4_f32_32", 4096, 2048, 512, 1e-4, 1e-3, CHECK_HEAVY, RAMP, OP_WRITE},
    {"steel", "q4_f32_32", 96, 2048, 256, 1e-4, 1e-3, CHECK_NORMAL, RAMP, OP_WRITE},
    {"steel_f16", "q4_f32_32", 96, 2048, 256, 2.3e-4, 1e-3, CHECK_NORMAL, RAMP, OP_WRITE},
    {"steel_f16_edge", "q4_f32_32", 70, 1024, 136, 2.3e-4, 1e-3, CHECK_QUICK, RAMP, OP_WRITE},
    {"pwdq_gs64", "q4_f32_64", 96, 2048, 256, 2.3e-4, 1e-3, CHECK_NORMAL, RAMP, OP_WRITE},
    {"pwdq_gs8", "q4_f32_8", 96, 2048, 256, 2.3e-4, 1e-3, CHECK_NORMAL, RAMP, OP_WRITE},
    {"f16acc", "q4_f32_32", 96, 2048, 256, 2e-2, 3e-2, CHECK_NORMAL, RAMP, OP_WRITE},
    {"f16acc_down", "q4_f32_32", 128, 8192, 2048, 5e-2, 8e-2, CHECK_NORMAL, RAMP, OP_WRITE},
    {"gate_proj_pf", "q4_f32_32", 128, 2048, 8192, 1e-4, 1e-3, CHECK_NORMAL, RAMP, OP_WRITE},
    {"down_proj_pf", "q4_f32_32", 128, 8192, 2048, 1e-3, 1e-2, CHECK_NORMAL, RAMP, OP_WRITE},
    {"shmem_edge", "q4_f32_32", 130, 4096, 2056, 1e-4, 1e-3, CHECK_NORMAL, RAMP, OP_WRITE},
    /* The default model's shapes. */
    {"smollm2 qkv", "q4_min_32", 1, 576, 960, 0, 0, CHECK_QUICK, RANDOM, OP_WRITE},
    {"smollm2 out", "q4_min_32", 1, 576, 576, 0, 0, CHECK_QUICK, RANDOM, OP_ACCUMULATE},
    {"smollm2 gate_up", "q4_min_32", 1, 576, 3072, 0, 0, CHECK_QUICK, RANDOM, OP_WRITE},
    {"smollm2 down", "q4_min_32", 1, 1536, 576, 0, 0, CHECK_QUICK, RANDOM, OP_ACCUMULATE},
    {"smollm2 head", "q8_f16_32", 1, 576, 49152, 0, 0, CHECK_NORMAL, RANDOM, OP_WRITE},
    {"smollm2 gate_up of 128", "q4_min_32", 128, 576, 3072, 0, 0, CHECK_NORMAL, RANDOM, OP_WRITE},
    {"smollm2 down of 128", "q4_min_32", 128, 1536, 576, 0, 0, CHECK_NORMAL, RANDOM, OP_ACCUMULATE},
    /* Shapes that broke others. */
    {"361 rows", "q4_min_32", 361, 64, 130, 0, 0, CHECK_QUICK, RANDOM, OP_WRITE},
    {"362 rows", "q4_min_32", 362, 64, 130, 0, 0, CHECK_QUICK, RANDOM, OP_WRITE},
    {"363 rows", "q4_min_32", 363, 64, 130, 0, 0, CHECK_QUICK, RANDOM, OP_ACCUMULATE},
    {"31 rows", "q8_f16_32", 31, 96, 257, 0, 0, CHECK_QUICK, RANDOM, OP_WRITE},
    {"32 rows", "q8_f16_32", 32, 96, 257, 0, 0, CHECK_QUICK, RANDOM, OP_WRITE},
    {"33 rows", "q8_f16_32", 33, 96, 257, 0, 0, CHECK_QUICK, RANDOM, OP_WRITE},
    {"64 rows", "q8_f16_32", 64, 96, 257, 0, 0, CHECK_QUICK, RANDOM, OP_WRITE},
    {"382x10x1", "f32", 382, 10, 1, 0, 0, CHECK_QUICK, RANDOM, OP_WRITE},
    {"382x10x3", "f32", 382, 10, 3, 0, 0, CHECK_QUICK, RANDOM, OP_WRITE},
    {"4096x14x5", "f32", 4096, 14, 5, 0, 0, CHECK_QUICK, RANDOM, OP_WRITE},
    {"10x1x382", "f32", 10, 1, 382, 0, 0, CHECK_QUICK, RANDOM, OP_WRITE},
    {"10x3x382", "f32", 10, 3, 382, 0, 0, CHECK_QUICK, RANDOM, OP_WRITE},
    {"14x5x4096", "f32", 14, 5, 4096, 0, 0, CHECK_QUICK, RANDOM, OP_WRITE},
    {"1x1x1", "f32", 1, 1, 1, 0, 0, CHECK_QUICK, RANDOM, OP_WRITE},
    {"odd 1x577x65", "f16", 1, 577, 65, 0, 0, CHECK_QUICK, RANDOM, OP_WRITE},
    {"odd 6x577x65", "f16", 6, 577, 65, 0, 0, CHECK_QUICK, RANDOM, OP_WRITE},
    {"odd 1x7x300", "bf16", 1, 7, 300, 0, 0, CHECK_QUICK, RANDOM, OP_WRITE},
    {"odd 9x9x300", "bf16", 9, 9, 300, 0, 0, CHECK_QUICK, RANDOM, OP_WRITE},
    {"rows of 8", "q4_f32_8", 7, 8, 77, 0, 0, CHECK_QUICK, RANDOM, OP_WRITE},
    {"scale row of odd length", "q4_f16_32", 7, 96, 77, 0, 0, CHECK_QUICK, RANDOM, OP_WRITE},
    {"tiles above 65535", "q4_f32_8", 1, 8, 8389000, 0, 0, CHECK_NORMAL, RANDOM, OP_WRITE},
    {"rows above 65535", "f32", 262148, 3, 2, 0, 0, CHECK_QUICK, RANDOM, OP_WRITE},
    {"4096 products of 300", "f16", 1, 4096, 65, 0, 0, CHECK_QUICK, BIG, OP_WRITE},
    {"4096 products of 300, 5 rows", "f16", 5, 4096, 65, 0, 0, CHECK_QUICK, BIG, OP_WRITE},
    {"no rows", "f16", 0, 64, 64, 0, 0, CHECK_QUICK, RANDOM, OP_WRITE},
    {"NaN in x", "q4_min_32", 5, 64, 70, 0, 0, CHECK_QUICK, NAN_X, OP_WRITE},
    {"NaN in x, 1 row", "q4_f16_32", 1, 64, 70, 0, 0, CHECK_QUICK, NAN_X, OP_ACCUMULATE},
    {"NaN in w", "f16", 5, 65, 70, 0, 0, CHECK_QUICK, NAN_W, OP_WRITE},
    {"NaN in w, 1 row", "f32", 1, 65, 70, 0, 0, CHECK_QUICK, NAN_W, OP_WRITE},
    {"infinity in x", "f32", 5, 65, 70, 0, 0, CHECK_QUICK, INFINITE_X, OP_WRITE},
};
enum { NAMED = sizeof cases / sizeof *cases };

/* After the named ones: every format with one row and with five. */
static uint32_t count(void)
{
    return NAMED + 2 * check_format_count;
}

static matmul_case get(uint32_t i)
{
    if (i < NAMED)
        return cases[i];
    const check_format *format = &check_formats[(i - NAMED) / 2];
    /* Three blocks of 256 where a factor holds for one. */
    const uint32_t k = format->format.scale >= SCALE_K ? 768 : 256;
    return (matmul_case){.format = format->name, .rows = i % 2 ? 5 : 1, .k = k, .n = 131};
}

static void describe(uint32_t i, check_case *out)
{
    const matmul_case m = get(i);
    out->cost = m.cost;
    if (m.name != NULL)
        snprintf(out->name, sizeof out->name, "%s", m.name);
    else
        snprintf(out->name, sizeof out->name, "%s %ux%ux%u", m.format, m.rows, m.k, m.n);
}

typedef struct matmul_run {
    const op_weight *weight;
    gpu_view x, y;
    uint32_t rows;
    op_mode mode;
} matmul_run;

static void record(gpu_recorder *rec, void *user)
{
    const matmul_run *r = user;
    op_matmul(rec, r->weight, r->x, r->y, r->rows, r->mode);
}

static check_weight make_weight(check_context *c, const matmul_case *m)
{
    const weight_format format = *check_format_named(m->format);
    if (m->kind != BIG && m->kind != NAN_W)
        return check_make_weight(c, format, m->n, m->k, 7);
    /* f16: 300 is 0x5cb0, a NaN 0x7e01; f32 NaN in the last case. It is the third word of row 3. */
    const weight_planes planes = check_planes(c, format, m->n, m->k);
    const uint64_t stride = weight_stride(m->n);
    const uint64_t words = weight_plane_words(format, WEIGHT_DATA, m->k, stride);
    uint32_t *data = planes.plane[WEIGHT_DATA];
    if (c->status != TEMPER_OK)
        return (check_weight){0};
    for (uint64_t i = 0; i < words; i++)
        data[i] = m->kind == BIG ? 0x5cb05cb0u : 0x3c003800u + (uint32_t)(i % 7);
    if (m->kind == NAN_W)
        data[3 * (format.layout == LAYOUT_F16 ? 16 : 32) + 2] =
            format.layout == LAYOUT_F16 ? 0x7e013800u : 0x7fc00001u;
    return check_upload_weight(c, format, m->n, m->k, planes);
}

/* The reference of a large case is taken of some rows only: both ends, where tiles are cut, and
 * every sixteenth. */
static void compare(check_context *c, const matmul_case *m, const float *x, const float *w,
                    const float *start, const float *y)
{
    double *want = check_alloc(c, m->n, sizeof *want);
    const double limit = m->kind == BIG ? LIMIT_BIG : LIMIT;
    const bool all = (uint64_t)m->rows * m->k * m->n < 100000000;
    double *rows = all ? check_alloc(c, (uint64_t)m->rows * m->n, sizeof *rows) : NULL;
    if (c->status != TEMPER_OK)
        return;
    if (all) {
        ref_matmul(x, w, m->mode == OP_ACCUMULATE ? start : NULL, 0, m->rows, m->n, m->k, rows);
        if (m->absolute > 0)
            check_bounds(c, y, rows, (uint64_t)m->rows * m->n, m->absolute, m->relative);
        else
            check_close(c, y, rows, (uint64_t)m->rows * m->n, limit);
        return;
    }
    for (uint32_t r = 0; r < m->rows; r++) {
        if (r >= 5 && r + 5 < m->rows && r % 16 != 0)
            continue;
        const uint64_t at = (uint64_t)r * m->n;
        ref_matmul(x + (uint64_t)r * m->k, w, m->mode == OP_ACCUMULATE ? start + at : NULL, 0, 1,
                   m->n, m->k, want);
        if (m->absolute > 0)
            check_bounds(c, y + at, want, m->n, m->absolute, m->relative);
        else
            check_close(c, y + at, want, m->n, limit);
    }
}

static void run(check_context *c, uint32_t i)
{
    const matmul_case m = get(i);
    const check_weight w = make_weight(c, &m);
    const uint64_t xs = (uint64_t)m.rows * m.k, ys = (uint64_t)m.rows * m.n;
    float *x = m.kind == RAMP ? check_ramp(c, xs) : check_random(c, xs, 11);
    float *start = check_random(c, ys, 13);
    if (c->status != TEMPER_OK)
        return;
    for (uint64_t at = 0; m.kind == BIG && at < xs; at++)
        x[at] = 300.0f;
    if (m.kind == NAN_X || m.kind == INFINITE_X)
        x[(m.rows / 2) * m.k + 5] = m.kind == NAN_X ? NAN : INFINITY;
    matmul_run r = {.weight = w.weight, .rows = m.rows, .mode = m.mode};
    r.x = check_input(c, x, xs * 4);
    r.y = m.mode == OP_ACCUMULATE ? check_input(c, start, ys * 4) : check_output(c, ys * 4);
    if (c->status != TEMPER_OK)
        return;
    const bool time = c->time;
    c->time = false; /* accumulating again and again is timed after the comparison */
    const float *y = check_go(c, record, &r, r.y, 0, 0);
    compare(c, &m, x, w.values, start, y);
    c->time = time;
    if (time && m.rows > 0)
        check_go(c, record, &r, r.y, 2.0 * (double)xs * (double)m.n,
                 (double)(op_weight_bytes(w.weight->format, m.n, m.k) + (xs + ys) * 4));
}

const check_group check_matmul = {"matmul", count, describe, run};
