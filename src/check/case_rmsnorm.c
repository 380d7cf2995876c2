/*
 * case_rmsnorm.c - the root-mean-square norm, written and added, with the outliers that real
 * residual streams have.
 */
#include <math.h>
#include <stdio.h>

#include "check/context.h"
#include "ref/ref.h"

enum kind { RANDOM, ADDED, OUTLIER, ZERO, NAN_ROW, INFINITE };

typedef struct norm_case {
    const char *name;
    uint32_t rows, cols;
    enum kind kind;
    float value; /* of the outlier */
    check_cost cost;
} norm_case;

static const norm_case cases[] = {
    {"1x576", 1, 576, RANDOM, 0, CHECK_QUICK},
    {"128x576", 128, 576, RANDOM, 0, CHECK_QUICK},
    {"3x1", 3, 1, RANDOM, 0, CHECK_QUICK},
    {"3x63", 3, 63, RANDOM, 0, CHECK_QUICK},
    {"3x64", 3, 64, RANDOM, 0, CHECK_QUICK},
    {"3x65", 3, 65, RANDOM, 0, CHECK_QUICK},
    {"5x2048", 5, 2048, RANDOM, 0, CHECK_QUICK},
    {"2x16384", 2, 16384, RANDOM, 0, CHECK_QUICK},
    {"70000x4, rows above 65535", 70000, 4, RANDOM, 0, CHECK_QUICK},
    {"added, 5x577", 5, 577, ADDED, 0, CHECK_QUICK},
    {"outlier of 800", 3, 576, OUTLIER, 800.0f, CHECK_QUICK},
    {"outlier of 7e4", 3, 576, OUTLIER, 7e4f, CHECK_QUICK},
    {"zeros", 3, 576, ZERO, 0, CHECK_QUICK},
    {"NaN in one row", 3, 576, NAN_ROW, 0, CHECK_QUICK},
    {"infinity in one row", 3, 576, INFINITE, 0, CHECK_QUICK},
};

static uint32_t count(void)
{
    return sizeof cases / sizeof *cases;
}

static void describe(uint32_t i, check_case *out)
{
    out->cost = cases[i].cost;
    snprintf(out->name, sizeof out->name, "%s", cases[i].name);
}

typedef struct norm_run {
    gpu_view x, weight, y;
    uint32_t rows, cols;
    bool added;
} norm_run;

static void record(gpu_recorder *rec, void *user)
{
    const norm_run *r = user;
    (r->added ? op_rmsnorm_add : op_rmsnorm)(rec, r->x, r->weight, r->y, r->rows, r->cols, 1e-5f);
}

static void run(check_context *c, uint32_t i)
{
    const norm_case *n = &cases[i];
    const uint64_t values = (uint64_t)n->rows * n->cols;
    float *x = check_random(c, values, 21), *weight = check_random(c, n->cols, 22);
    const float *before = check_random(c, values, 23);
    double *want = check_alloc(c, values, sizeof *want);
    if (c->status != TEMPER_OK)
        return;
    for (uint64_t at = 0; n->kind == ZERO && at < values; at++)
        x[at] = 0;
    if (n->kind == OUTLIER)
        x[n->cols + 17] = n->value;
    if (n->kind == NAN_ROW || n->kind == INFINITE)
        x[n->cols + 17] = n->kind == NAN_ROW ? NAN : INFINITY;
    norm_run r = {.rows = n->rows, .cols = n->cols, .added = n->kind == ADDED};
    r.x = check_input(c, x, values * 4);
    r.weight = check_input(c, weight, (uint64_t)n->cols * 4);
    r.y = r.added ? check_input(c, before, values * 4) : check_output(c, values * 4);
    const float *y = check_go(c, record, &r, r.y, 4.0 * (double)values, (double)values * 8);
    ref_rmsnorm(x, weight, n->rows, n->cols, (double)1e-5f, want);
    for (uint64_t at = 0; r.added && at < values; at++)
        want[at] += (double)before[at];
    if (n->kind == OUTLIER) {
        /* The outlier must not hide its neighbours: every element by its own size. */
        check_bounds(c, y, want, values, 1e-12, 2e-6);
        return;
    }
    check_close(c, y, want, values, 2e-6);
}

const check_group check_rmsnorm = {"rmsnorm", count, describe, run};
