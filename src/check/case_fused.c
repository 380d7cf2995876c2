/*
 * case_fused.c - products with a norm or a gate before them, by the rows of the table that do it in
 * one dispatch and by the others.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "check/context.h"
#include "op/rows.h"
#include "ref/ref.h"

typedef struct fused_case {
    const char *name, *format, *row; /* row: the one to be preferred, NULL: as it comes */
    uint32_t rows, k, n;
    op_prologue_kind kind;
    op_mode mode;
    bool nan;
} fused_case;

/* With f16 operands, see case_products.c. */
#define LIMIT_HALF 3e-3

/* 16-bit fixed point is off by up to half of 2^-15 of the largest of 32 inputs: over the root mean
 * square of inputs of these sizes about 4e-5 on average, and four times that at the worst of
 * thousands of results (1.2e-4 measured). Rows in f32 stay below 4e-6. */
#define LIMIT 3e-4

static const fused_case cases[] = {
    {"norm, 5 rows", "q4_min_32", NULL, 5, 576, 70, OP_PROLOGUE_RMSNORM, OP_WRITE, false},
    {"norm, 1 row", "q4_min_32", NULL, 1, 576, 960, OP_PROLOGUE_RMSNORM, OP_WRITE, false},
    {"gate, 5 rows", "q4_min_32", NULL, 5, 1536, 70, OP_PROLOGUE_SILU_GATE, OP_WRITE, false},
    {"gate, 1 row", "q4_min_32", NULL, 1, 1536, 576, OP_PROLOGUE_SILU_GATE, OP_ACCUMULATE, false},
    {"plain, staged_1", "q4_f16_32", "staged_1", 1, 2048, 200, OP_PROLOGUE_NONE, OP_WRITE, false},
    {"plain, staged_1, f32 scales", "q4_f32_64", "staged_1", 1, 512, 77, OP_PROLOGUE_NONE,
     OP_ACCUMULATE, false},
    {"plain, staged_1, group 128", "q4_f16_128", "staged_1", 1, 768, 9, OP_PROLOGUE_NONE, OP_WRITE,
     false},
    {"plain, staged_1, K of 32", "q4_f16_32", "staged_1", 1, 32, 17, OP_PROLOGUE_NONE, OP_WRITE,
     false},
    {"plain, staged_1, minima", "q4_min_32", "staged_1", 1, 576, 961, OP_PROLOGUE_NONE, OP_WRITE,
     false},
    {"plain, staged_2", "q4_f16_32", "staged_2", 1, 576, 4097, OP_PROLOGUE_NONE, OP_WRITE, false},
    {"plain, staged_4", "q4_min_32", "staged_4", 1, 576, 12301, OP_PROLOGUE_NONE, OP_WRITE, false},
    {"norm, staged_1", "q4_f16_32", "staged_1", 1, 2048, 100, OP_PROLOGUE_RMSNORM, OP_WRITE, false},
    {"norm, staged_1, odd", "q4_min_32", "staged_1", 1, 608, 33, OP_PROLOGUE_RMSNORM, OP_ACCUMULATE,
     false},
    {"gate, staged_1", "q4_f16_32", "staged_1", 1, 1536, 576, OP_PROLOGUE_SILU_GATE, OP_ACCUMULATE,
     false},
    {"NaN, staged_1", "q4_f16_32", "staged_1", 1, 256, 40, OP_PROLOGUE_NONE, OP_WRITE, true},
    {"NaN, norm, staged_1", "q4_f16_32", "staged_1", 1, 256, 40, OP_PROLOGUE_RMSNORM, OP_WRITE,
     true},
    {"plain, columns_16", "q4_f16_32", "columns_16", 1, 2048, 200, OP_PROLOGUE_NONE, OP_WRITE,
     false},
    {"plain, columns_16, q8", "q8_f16_32", "columns_16", 1, 608, 77, OP_PROLOGUE_NONE,
     OP_ACCUMULATE, false},
    {"plain, columns_16, f16", "f16", "columns_16", 1, 520, 77, OP_PROLOGUE_NONE, OP_WRITE, false},
    {"plain, columns_16, bf16", "bf16", "columns_16", 1, 520, 77, OP_PROLOGUE_NONE, OP_WRITE,
     false},
    {"plain, columns_16, f32", "f32", "columns_16", 1, 520, 77, OP_PROLOGUE_NONE, OP_WRITE, false},
    {"norm, staged_1, 2 rows", "q4_f16_32", "staged_1", 2, 2048, 200, OP_PROLOGUE_RMSNORM, OP_WRITE,
     false},
    {"gate, staged_1, 2 rows", "q4_min_32", "staged_1", 2, 1536, 576, OP_PROLOGUE_SILU_GATE,
     OP_ACCUMULATE, false},
    {"plain, staged_1, 2 rows", "q4_f16_32", "staged_1", 2, 2048, 200, OP_PROLOGUE_NONE,
     OP_ACCUMULATE, false},
    {"norm, matrix_128", "q4_min_32", "matrix_128", 500, 64, 4200, OP_PROLOGUE_RMSNORM, OP_WRITE,
     false},
    {"norm, matrix_64", "q4_min_32", "matrix_64", 300, 576, 2048, OP_PROLOGUE_RMSNORM, OP_WRITE,
     false},
    {"norm, matrix_32", "q4_min_32", "matrix_32", 37, 576, 3000, OP_PROLOGUE_RMSNORM, OP_WRITE,
     false},
    {"gate, matrix_32", "q4_f16_32", "matrix_32", 37, 576, 3000, OP_PROLOGUE_SILU_GATE,
     OP_ACCUMULATE, false},
    {"NaN, norm, matrix_32", "q4_f16_32", "matrix_32", 37, 576, 3000, OP_PROLOGUE_RMSNORM, OP_WRITE,
     true},
    {"gate, matrix_16", "q4_min_32", "matrix_16", 5, 576, 130, OP_PROLOGUE_SILU_GATE, OP_WRITE,
     false},
    {"norm, matrix_16_deep", "q4_min_32", "matrix_16_deep", 5, 1024, 70, OP_PROLOGUE_RMSNORM,
     OP_WRITE, false},
    {"plain, columns_32", "q6_k_16", "columns_32", 1, 256, 4099, OP_PROLOGUE_NONE, OP_WRITE, false},
    {"plain, columns_64", "q5_kmin_32", "columns_64", 1, 256, 12301, OP_PROLOGUE_NONE, OP_WRITE,
     false},
};

static uint32_t count(void)
{
    return sizeof cases / sizeof *cases;
}

static void describe(uint32_t i, check_case *out)
{
    snprintf(out->name, sizeof out->name, "%s", cases[i].name);
}

typedef struct fused_run {
    const fused_case *of;
    const op_weight *weight;
    gpu_view x, norm, scratch, before, y;
    op_products with;
} fused_run;

static void record(gpu_recorder *rec, void *user)
{
    const fused_run *r = user;
    const fused_case *f = r->of;
    gpu_record_copy(rec, r->before, r->y);
    op_prefer_row(f->row);
    if (f->kind == OP_PROLOGUE_RMSNORM)
        op_rmsnorm_matmul(rec, r->x, r->norm, 1e-5f, r->scratch, r->weight, r->y, f->rows, f->mode,
                          &r->with);
    else if (f->kind == OP_PROLOGUE_SILU_GATE)
        op_silu_gate_matmul(rec, r->x, r->scratch, r->weight, r->y, f->rows, f->mode, &r->with);
    else
        op_matmul_columns(rec, r->weight, r->x, r->y, f->rows, 0, f->n, f->mode, &r->with);
    op_prefer_row(NULL);
}

/* What the product is of, in double rounded to f32: its own error is far below the limit. */
static float *prepared(check_context *c, const fused_case *f, const float *x, const float *norm)
{
    const uint64_t values = (uint64_t)f->rows * f->k;
    double *wide = check_alloc(c, values, sizeof *wide);
    float *out = check_alloc(c, values, sizeof *out);
    if (c->status != TEMPER_OK)
        return NULL;
    if (f->kind == OP_PROLOGUE_RMSNORM)
        ref_rmsnorm(x, norm, f->rows, f->k, 1e-5, wide);
    else if (f->kind == OP_PROLOGUE_SILU_GATE)
        ref_silu_gate(x, f->rows, f->k, wide);
    for (uint64_t i = 0; i < values; i++)
        out[i] = f->kind == OP_PROLOGUE_NONE ? x[i] : (float)wide[i];
    return out;
}

static const op_kernel_row *find_row(const char *name)
{
    for (uint32_t i = 0; name != NULL && i < op_table_matmul.count; i++)
        if (strcmp(op_table_matmul.rows[i].name, name) == 0)
            return &op_table_matmul.rows[i];
    return NULL;
}

/* A case of a row may use what only a caller's leave opens. */
static op_products allow(check_context *c, const fused_case *f, const op_weight *weight)
{
    op_products with = {.fixed = f->row != NULL};
    if (f->row != NULL && f->rows > 1) {
        const op_product_bytes bytes =
            op_matmul_scratch_bytes(c->device, weight->format, weight->n, weight->k, f->rows);
        with.half = true;
        with.scratch = check_output(c, bytes.scratch > 0 ? bytes.scratch : 4);
        with.sums = check_output(c, bytes.sums > 0 ? bytes.sums : 4);
    }
    return with;
}

static void run(check_context *c, uint32_t i)
{
    const fused_case *f = &cases[i];
    const op_kernel_row *row = find_row(f->row);
    if (row != NULL && !op_row_runs(c->device, row)) {
        c->result->skipped = true;
        snprintf(c->result->detail, sizeof c->result->detail, "this device cannot run %s", f->row);
        return;
    }
    const uint64_t width = f->kind == OP_PROLOGUE_SILU_GATE ? 2ull * f->k : f->k;
    const uint64_t results = (uint64_t)f->rows * f->n;
    float *x = check_random(c, f->rows * width, 421), *norm = check_random(c, f->k, 422);
    float *before = check_random(c, results, 423);
    double *want = check_alloc(c, results, sizeof *want);
    const check_weight w = check_make_weight(c, *check_format_named(f->format), f->n, f->k, 424);
    if (c->status != TEMPER_OK)
        return;
    for (uint64_t v = 0; v < f->rows * width; v++)
        x[v] *= v % 7 == 0 ? 3.0f : 0.5f;
    if (f->nan)
        x[100] = NAN;
    fused_run r = {.of = f, .weight = w.weight, .with = allow(c, f, w.weight)};
    r.x = check_input(c, x, f->rows * width * 4);
    r.norm = check_input(c, norm, (uint64_t)f->k * 4);
    r.before = check_input(c, before, results * 4);
    r.scratch = check_output(c, (uint64_t)f->rows * f->k * 4);
    r.y = check_output(c, results * 4);
    const uint64_t choices = op_preferred_choices();
    const float *out = check_go(c, record, &r, r.y, 2.0 * (double)(results * f->k), 0);
    check_that(c, row == NULL || op_preferred_choices() > choices, "%s was not chosen", f->row);
    const float *v = prepared(c, f, x, norm);
    if (c->status != TEMPER_OK)
        return;
    ref_matmul(v, w.values, f->mode == OP_ACCUMULATE ? before : NULL, 0, f->rows, f->n, f->k, want);
    const bool half = row != NULL && row->tile != NULL;
    check_close(c, out, want, results, half ? LIMIT_HALF : LIMIT);
}

const check_group check_fused = {"fused", count, describe, run};
