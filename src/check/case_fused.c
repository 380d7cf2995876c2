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
    bool norm;
    op_mode mode;
    bool nan;
    op_gate gate; /* with a norm: two products, f wide between them */
    uint32_t f;
} fused_case;

/* With f16 operands, see case_products.c. */
#define LIMIT_HALF 3e-3

/* 16-bit fixed point is off by up to half of 2^-15 of the largest of 32 inputs: over the root mean
 * square of inputs of these sizes about 4e-5 on average, and four times that at the worst of
 * thousands of results (1.2e-4 measured). Rows in f32 stay below 4e-6. A gate multiplies two of
 * them before another product. */
#define LIMIT 3e-4
#define LIMIT_GATED 6e-4

#define SILU OP_GATE_SILU
#define GELU OP_GATE_GELU

static const fused_case cases[] = {
    {"norm, 5 rows", "q4_min_32", NULL, 5, 576, 70, true, OP_WRITE, false, 0, 0},
    {"norm, 1 row", "q4_min_32", NULL, 1, 576, 960, true, OP_WRITE, false, 0, 0},
    {"gate, 5 rows", "q4_min_32", NULL, 5, 96, 70, true, OP_WRITE, false, SILU, 1536},
    {"gate, 1 row", "q4_min_32", NULL, 1, 576, 576, true, OP_ACCUMULATE, false, SILU, 1536},
    {"gelu gate, 3 rows", "q8_f16_32", NULL, 3, 96, 70, true, OP_WRITE, false, GELU, 576},
    {"fixed", "q4_f16_32", "fixed", 1, 2048, 200, false, OP_WRITE, false, 0, 0},
    {"fixed, K of 32", "q4_f16_32", "fixed", 1, 32, 17, false, OP_WRITE, false, 0, 0},
    {"fixed, K of 608", "q4_min_32", "fixed", 1, 608, 33, false, OP_ACCUMULATE, false, 0, 0},
    {"fixed, K of 3104", "q4_f16_32", "fixed", 1, 3104, 37, false, OP_WRITE, false, 0, 0},
    {"fixed, K of 6400", "q4_f16_32", "fixed", 1, 6400, 37, true, OP_ACCUMULATE, false, 0, 0},
    {"fixed, K of 8224", "q4_min_32", "fixed", 1, 8224, 37, false, OP_WRITE, false, 0, 0},
    {"fixed, tall", "q4_min_32", "fixed", 1, 576, 12301, false, OP_WRITE, false, 0, 0},
    {"fixed, tall, K of 1024", "q4_f16_32", "fixed", 1, 1024, 12301, true, OP_WRITE, false, 0, 0},
    {"fixed, very tall", "q4_f16_32", "fixed", 1, 1024, 24611, false, OP_WRITE, false, 0, 0},
    {"fixed, norm", "q4_f16_32", "fixed", 1, 2048, 100, true, OP_WRITE, false, 0, 0},
    {"fixed, norm, K of 608", "q4_min_32", "fixed", 1, 608, 33, true, OP_ACCUMULATE, false, 0, 0},
    {"fixed, 2 rows", "q4_f16_32", "fixed", 2, 2048, 192, false, OP_ACCUMULATE, false, 0, 0},
    {"fixed, norm, 2 rows", "q4_f16_32", "fixed", 2, 2048, 192, true, OP_WRITE, false, 0, 0},
    {"fixed, gate", "q4_f16_32", "fixed", 1, 576, 576, true, OP_ACCUMULATE, false, SILU, 1536},
    {"fixed, gate, 2 rows", "q4_f16_32", "fixed", 2, 2048, 64, true, OP_WRITE, false, SILU, 2048},
    {"fixed, gate of 32", "q4_min_32", "fixed", 1, 2048, 34, true, OP_WRITE, false, SILU, 32},
    {"fixed, gelu gate", "q8_f16_32", "fixed", 1, 640, 322, true, OP_WRITE, false, GELU, 160},
    {"fixed, tall gate", "q4_min_32", "fixed", 1, 96, 33, true, OP_WRITE, false, SILU, 6176},
    {"fixed, NaN", "q4_f16_32", "fixed", 1, 256, 40, false, OP_WRITE, true, 0, 0},
    {"fixed, NaN, norm", "q4_f16_32", "fixed", 1, 256, 40, true, OP_WRITE, true, 0, 0},
    {"fixed, NaN, gate", "q4_f16_32", "fixed", 1, 256, 40, true, OP_WRITE, true, SILU, 64},
    {"fixed, f32 scales of 64", "q4_f32_64", "fixed", 1, 512, 77, false, OP_ACCUMULATE, false, 0,
     0},
    {"fixed, groups of 128", "q4_f16_128", "fixed", 1, 768, 9, false, OP_WRITE, false, 0, 0},
    {"fixed, minima of 64", "q4_min_64", "fixed", 1, 576, 33, false, OP_WRITE, false, 0, 0},
    {"fixed, q8", "q8_f16_32", "fixed", 1, 608, 77, false, OP_WRITE, false, 0, 0},
    {"fixed, q5", "q5_f16_32", "fixed", 1, 608, 77, false, OP_WRITE, false, 0, 0},
    {"fixed, q5 with minima", "q5_min_32", "fixed", 1, 608, 77, false, OP_WRITE, false, 0, 0},
    {"fixed, q2_k", "q4_kmin_16", "fixed", 1, 768, 77, false, OP_WRITE, false, 0, 0},
    {"fixed, q3_k", "q4_k_16", "fixed", 1, 768, 77, false, OP_WRITE, false, 0, 0},
    {"fixed, q4_k", "q4_kmin_32", "fixed", 1, 768, 77, true, OP_WRITE, false, 0, 0},
    {"fixed, q5_k", "q5_kmin_32", "fixed", 1, 768, 77, false, OP_WRITE, false, 0, 0},
    {"fixed, q6_k", "q6_k_16", "fixed", 1, 2048, 77, true, OP_WRITE, false, 0, 0},
    {"fixed, q6 with f32 scales", "q6_f32_32", "fixed", 1, 608, 77, false, OP_WRITE, false, 0, 0},
    {"columns_16", "q4_f16_32", "columns_16", 1, 2048, 200, false, OP_WRITE, false, 0, 0},
    {"columns_16, q8", "q8_f16_32", "columns_16", 1, 608, 77, false, OP_ACCUMULATE, false, 0, 0},
    {"columns_16, f16", "f16", "columns_16", 1, 520, 77, false, OP_WRITE, false, 0, 0},
    {"columns_16, bf16", "bf16", "columns_16", 1, 520, 77, false, OP_WRITE, false, 0, 0},
    {"columns_16, f32", "f32", "columns_16", 1, 520, 77, false, OP_WRITE, false, 0, 0},
    {"columns_32", "q6_k_16", "columns_32", 1, 256, 4099, false, OP_WRITE, false, 0, 0},
    {"columns_64", "q5_kmin_32", "columns_64", 1, 256, 12301, false, OP_WRITE, false, 0, 0},
    {"norm, matrix_128", "q4_min_32", "matrix_128", 500, 64, 4200, true, OP_WRITE, false, 0, 0},
    {"norm, matrix_64", "q4_min_32", "matrix_64", 300, 576, 2048, true, OP_WRITE, false, 0, 0},
    {"norm, matrix_32", "q4_min_32", "matrix_32", 37, 576, 3000, true, OP_WRITE, false, 0, 0},
    {"gate, matrix_32", "q4_f16_32", "matrix_32", 37, 64, 3000, true, OP_ACCUMULATE, false, SILU,
     576},
    {"NaN, norm, matrix_32", "q4_f16_32", "matrix_32", 37, 576, 3000, true, OP_WRITE, true, 0, 0},
    {"gate, matrix_16", "q4_min_32", "matrix_16", 20, 64, 3072, true, OP_WRITE, false, SILU, 576},
    {"norm, matrix_16_deep", "f16", "matrix_16_deep", 5, 1024, 576, true, OP_WRITE, false, 0, 0},
    {"norm, matrix_few", "q4_min_32", "matrix_few", 5, 1024, 70, true, OP_WRITE, false, 0, 0},
    {"gate, matrix_few", "q4_f16_32", "matrix_few", 5, 64, 130, true, OP_ACCUMULATE, false, SILU,
     4096},
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
    const op_weight *weight; /* of the one product, or of the second */
    op_gated gated;
    gpu_view x, norm, h, before, y;
    op_products with;
} fused_run;

static void record(gpu_recorder *rec, void *user)
{
    const fused_run *r = user;
    const fused_case *f = r->of;
    gpu_record_copy(rec, r->before, r->y);
    op_prefer_row(f->row);
    if (f->gate != OP_GATE_NONE)
        op_gated_matmul(rec, r->x, &r->gated, r->y, f->rows, f->mode, &r->with);
    else if (f->norm)
        op_rmsnorm_matmul(rec, r->x, r->norm, 1e-5f, r->h, r->weight, r->y, f->rows, f->mode,
                          &r->with);
    else
        op_matmul_columns(rec, r->weight, r->x, r->y, f->rows, 0, f->n, f->mode, &r->with);
    op_prefer_row(NULL);
}

/* Doubles rounded to f32: an error far below the limits. */
static float *rounded(check_context *c, const double *wide, uint64_t count)
{
    float *out = check_alloc(c, count, sizeof *out);
    for (uint64_t i = 0; out != NULL && i < count; i++)
        out[i] = (float)wide[i];
    return out;
}

/* What the last product is of. */
static const float *inputs_of(check_context *c, const fused_case *f, const float *x,
                              const float *norm, const float *gate_up)
{
    const uint64_t rows = f->rows, most = rows * (2ull * f->f > f->k ? 2ull * f->f : f->k);
    double *wide = check_alloc(c, most, sizeof *wide);
    if (c->status != TEMPER_OK || !f->norm)
        return x;
    ref_rmsnorm(x, norm, rows, f->k, 1e-5, wide);
    x = rounded(c, wide, rows * f->k);
    if (c->status != TEMPER_OK || f->gate == OP_GATE_NONE)
        return x;
    ref_matmul(x, gate_up, NULL, 0, rows, 2ull * f->f, f->k, wide);
    const float *products = rounded(c, wide, rows * 2 * f->f);
    if (c->status == TEMPER_OK && f->gate == OP_GATE_SILU)
        ref_silu_gate(products, rows, f->f, wide);
    else if (c->status == TEMPER_OK)
        ref_gelu_gate(products, rows, f->f, wide);
    return rounded(c, wide, rows * f->f);
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
            op_matmul_scratch_bytes(c->device, weight->format, f->f > 0 ? 2 * f->f : weight->n,
                                    f->f > f->k ? f->f : f->k, f->rows, true, TEMPER_LOSSY_NONE);
        with.half = true;
        with.scratch = check_output(c, bytes.scratch > 0 ? bytes.scratch : 4);
        with.sums = check_output(c, bytes.sums > 0 ? bytes.sums : 4);
    }
    return with;
}

/* The first of two products, and what lies between them. Returns its weight's values. */
static const float *make_gated(check_context *c, const fused_case *f, fused_run *r)
{
    const weight_format format = *check_format_named(f->format);
    const uint64_t rows = f->rows;
    const check_weight gate_up = check_make_weight(c, format, 2ull * f->f, f->k, 425);
    r->gated = (op_gated){.norm = r->norm,
                          .eps = 1e-5f,
                          .gate_up = gate_up.weight,
                          .gate = f->gate,
                          .down = r->weight,
                          .h = r->h,
                          .gate_products = check_output(c, rows * 2 * f->f * 4),
                          .act = check_output(c, rows * f->f * 4)};
    return gate_up.values;
}

/* Of what a row takes, the default limit of workgroup memory leaves out the larger shapes; which of
 * the cases these are stands in tests/expected_skips.txt. */
static bool has_least_memory(const check_context *c)
{
    enum { DEFAULT_MEMORY = 16384 };
    return gpu_device_limits(c->device)->max_workgroup_memory <= DEFAULT_MEMORY;
}

static void run(check_context *c, uint32_t i)
{
    const fused_case *f = &cases[i];
    const op_kernel_row *row = find_row(f->row);
    if (row != NULL && !check_can_run(c, row))
        return;
    const bool gated = f->gate != OP_GATE_NONE;
    const uint64_t inputs = (uint64_t)f->rows * f->k, results = (uint64_t)f->rows * f->n;
    const uint64_t last_k = gated ? f->f : f->k;
    float *x = check_random(c, inputs, 421), *norm = check_random(c, f->k, 422);
    float *before = check_random(c, results, 423);
    double *want = check_alloc(c, results, sizeof *want);
    const check_weight w = check_make_weight(c, *check_format_named(f->format), f->n, last_k, 424);
    if (c->status != TEMPER_OK)
        return;
    for (uint64_t v = 0; v < inputs; v++)
        x[v] *= v % 7 == 0 ? 3.0f : 0.5f;
    if (f->nan)
        x[100 % f->k] = NAN;
    fused_run r = {.of = f, .weight = w.weight, .with = allow(c, f, w.weight)};
    r.x = check_input(c, x, inputs * 4);
    r.norm = check_input(c, norm, (uint64_t)f->k * 4);
    r.before = check_input(c, before, results * 4);
    r.h = check_output(c, inputs * 4);
    r.y = check_output(c, results * 4);
    const float *gate_up = gated ? make_gated(c, f, &r) : NULL;
    const uint64_t choices = op_preferred_choices();
    const float *out = check_go(c, record, &r, r.y, 2.0 * (double)(results * last_k),
                                (double)op_weight_bytes(w.weight->format, f->n, last_k));
    if (row != NULL && op_preferred_choices() == choices && has_least_memory(c)) {
        c->result->skipped = true;
        snprintf(c->result->detail, sizeof c->result->detail, "too little workgroup memory for %s",
                 f->row);
        return;
    }
    check_that(c, row == NULL || op_preferred_choices() > choices, "%s was not chosen", f->row);
    const float *v = inputs_of(c, f, x, norm, gate_up);
    if (c->status != TEMPER_OK)
        return;
    ref_matmul(v, w.values, f->mode == OP_ACCUMULATE ? before : NULL, 0, f->rows, f->n, last_k,
               want);
    const bool half = row != NULL && row->tile != NULL;
    check_close(c, out, want, results, half ? LIMIT_HALF : gated ? LIMIT_GATED : LIMIT);
}

const check_group check_fused = {"fused", count, describe, run};
