/*
 * case_norms.c - the norm by mean and variance, and the norm of single heads.
 */
#include <math.h>
#include <stdio.h>

#include "check/context.h"
#include "ref/ref.h"

/* ---- layernorm ------------------------------------------------------------------------------- */

enum kind { RANDOM, FAR, OUTLIER, CONSTANT, NAN_ROW, INFINITE };

typedef struct norm_case {
    const char *name;
    uint32_t rows, cols;
    enum kind kind;
} norm_case;

static const norm_case cases[] = {
    {"1x768", 1, 768, RANDOM},
    {"128x768", 128, 768, RANDOM},
    {"3x1", 3, 1, RANDOM},
    {"3x63", 3, 63, RANDOM},
    {"3x65", 3, 65, RANDOM},
    {"2x16384", 2, 16384, RANDOM},
    {"70000x4, rows above 65535", 70000, 4, RANDOM},
    {"100 away from 0", 3, 768, FAR},
    {"outlier of 800", 3, 768, OUTLIER},
    {"a constant row", 3, 768, CONSTANT},
    {"NaN in one row", 3, 768, NAN_ROW},
    {"infinity in one row", 3, 768, INFINITE},
};

static uint32_t count(void)
{
    return sizeof cases / sizeof *cases;
}

static void describe(uint32_t i, check_case *out)
{
    snprintf(out->name, sizeof out->name, "%s", cases[i].name);
}

typedef struct norm_run {
    gpu_view x, weight, bias, y;
    uint32_t rows, cols;
} norm_run;

static void record(gpu_recorder *rec, void *user)
{
    const norm_run *r = user;
    op_layernorm(rec, r->x, r->weight, r->bias, r->y, r->rows, r->cols, 1e-5f);
}

static void spoil(const norm_case *n, float *x, uint64_t values)
{
    for (uint64_t at = 0; n->kind == FAR && at < values; at++)
        x[at] += 100;
    for (uint64_t at = n->cols; n->kind == CONSTANT && at < 2 * (uint64_t)n->cols; at++)
        x[at] = 0.375f;
    if (n->kind == OUTLIER)
        x[n->cols + 17] = 800;
    if (n->kind == NAN_ROW || n->kind == INFINITE)
        x[n->cols + 17] = n->kind == NAN_ROW ? NAN : INFINITY;
}

static void run(check_context *c, uint32_t i)
{
    const norm_case *n = &cases[i];
    const uint64_t values = (uint64_t)n->rows * n->cols;
    float *x = check_random(c, values, 24);
    const float *weight = check_random(c, n->cols, 25), *bias = check_random(c, n->cols, 26);
    double *want = check_alloc(c, values, sizeof *want);
    if (c->status != TEMPER_OK)
        return;
    spoil(n, x, values);
    norm_run r = {.rows = n->rows, .cols = n->cols};
    r.x = check_input(c, x, values * 4);
    r.weight = check_input(c, weight, (uint64_t)n->cols * 4);
    r.bias = check_input(c, bias, (uint64_t)n->cols * 4);
    r.y = check_output(c, values * 4);
    const float *y = check_go(c, record, &r, r.y, 6.0 * (double)values, 8.0 * (double)values);
    if (c->status != TEMPER_OK)
        return;
    ref_layernorm(x, weight, bias, n->rows, n->cols, (double)1e-5f, want);
    /* 100 away from 0 the mean itself is off by a few units of 8e-6, its last place. */
    check_close(c, y, want, values, n->kind == FAR ? 1e-4 : 3e-6);
}

const check_group check_layernorm = {"layernorm", count, describe, run};

/* ---- single heads ---------------------------------------------------------------------------- */

typedef struct head_case {
    const char *name;
    uint32_t rows, q_heads, kv_heads, head_dim;
    bool outlier, nan;
} head_case;

static const head_case head_cases[] = {
    {"qwen3 0.6b, one row", 1, 16, 8, 128, false, false},
    {"qwen3 0.6b, 64 rows", 64, 16, 8, 128, false, false},
    {"gemma3, D 256", 3, 4, 1, 256, false, false},
    {"D 32", 5, 4, 2, 32, false, false},
    {"D 4", 5, 3, 3, 4, false, false},
    {"D 80", 7, 9, 3, 80, false, false},
    {"70000 heads", 10000, 6, 1, 4, false, false},
    {"outlier of 800 in k", 3, 4, 2, 64, true, false},
    {"NaN in one q head", 3, 4, 2, 64, false, true},
    {"no rows", 0, 4, 2, 64, false, false},
};

static uint32_t head_count(void)
{
    return sizeof head_cases / sizeof *head_cases;
}

static void head_describe(uint32_t i, check_case *out)
{
    snprintf(out->name, sizeof out->name, "%s", head_cases[i].name);
}

typedef struct head_run {
    gpu_view qkv, weights;
    op_heads heads;
} head_run;

static void record_heads(gpu_recorder *rec, void *user)
{
    const head_run *r = user;
    op_head_norm(rec, r->qkv, r->weights, &r->heads, 1e-6f);
}

static void run_heads(check_context *c, uint32_t i)
{
    const head_case *h = &head_cases[i];
    const ref_heads heads = {h->rows, h->q_heads, h->kv_heads, h->head_dim, 0};
    const uint64_t width = (uint64_t)(h->q_heads + 2 * h->kv_heads) * h->head_dim;
    const uint64_t values = h->rows * width;
    float *qkv = check_random(c, values, 27);
    const float *weights = check_random(c, (uint64_t)h->head_dim * 2, 28);
    double *want = check_alloc(c, values, sizeof *want);
    if (c->status != TEMPER_OK)
        return;
    if (h->outlier)
        qkv[width + h->q_heads * h->head_dim + 5] = 800;
    if (h->nan)
        qkv[width + h->head_dim + 5] = NAN;
    head_run r = {.heads = {h->rows, h->q_heads, h->kv_heads, h->head_dim}};
    r.qkv = check_input(c, qkv, values * 4);
    r.weights = check_input(c, weights, (uint64_t)h->head_dim * 8);
    const float *out =
        check_go(c, record_heads, &r, r.qkv, 4.0 * (double)values, 8.0 * (double)values);
    if (c->status != TEMPER_OK)
        return;
    ref_head_norm(qkv, weights, &heads, (double)1e-6f, want);
    /* The outlier must not hide its neighbours: every element by its own size. */
    check_bounds(c, out, want, values, 1e-12, 2e-6);
}

const check_group check_head_norm = {"head_norm", head_count, head_describe, run_heads};
