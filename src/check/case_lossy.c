/*
 * case_lossy.c - products that round more because it was asked for: the rows that an option opens
 * are chosen by it alone, on any device, and are off by what their limits say. What is told is the
 * distance from the double reference. Bytes are held to more: to the product of the very bytes that
 * an input is rounded to.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/checked.h"
#include "check/context.h"
#include "check/plain_matrix.h"
#include "op/rows.h"
#include "ref/ref.h"

/* SIZES: rows of x are 7e4, 1e-6, 0; LARGE_W: every product is 300 * 300, and there are weights of
 * 30000; HUGE_W: of 1e5 (f32), which f16 does not hold. */
enum special { NOTHING, NAN_X, SIZES, TINY, LARGE_W, HUGE_W };

typedef struct lossy_case {
    const char *name, *format, *row; /* row: the one that must be chosen; of matrix units, and of
                                        what stands for them (plain_matrix.h), the one to record */
    temper_lossy lossy;
    uint32_t rows, k, n;
    op_mode mode;
    bool norm;
    op_gate gate; /* with a norm: two products, f wide between them */
    uint32_t f;
    uint32_t column, more; /* y is column + n + more wide; no norm, no gate */
    enum special special;
    check_cost cost;
} lossy_case;

/* A byte is off by up to half a 127th of the largest of 32, by 0.29 of that on average: of inputs
 * whose largest are three times the root mean square about 1 % of that, and 4.5 times that at the
 * worst of thousands of results. A gate multiplies two of them before another product. */
#define LIMIT_INT8 6e-2

/* Against the product of the bytes themselves: what differs is the order of f32 sums, and where an
 * input lies on the edge of two bytes, one step of one input. */
static double limit_bytes(uint64_t k)
{
    return 0.1 / sqrt((double)k);
}

/* Operands of f16 take 3e-3 (case_products.c). Rounding of an f16 sum is off by 2e-4 of it on
 * average at each of up to K additions; of a sum that grows as a random walk the end is off by
 * sqrt(K / 2) times that, the worst of thousands by five times as much, and weights that are not 0
 * on average make sums larger on the way than at the end. */
static double limit_of_halves(uint64_t k)
{
    return 3e-3 + 1e-3 * sqrt((double)k);
}

/* A sum of equal products stands still where half a step of it is more than one: those here are off
 * by 6 %. That nothing overflows is what they prove. */
#define LIMIT_LARGE_W 1e-1

#define INT8 TEMPER_LOSSY_INT8
#define BLOCK TEMPER_LOSSY_F16_BLOCK
#define SUMS TEMPER_LOSSY_F16_SUMS
#define SILU OP_GATE_SILU
#define GELU OP_GATE_GELU

/* The quick ones share few pipelines: each takes a software device's compiler seconds. */
static const lossy_case cases[] = {
    {"1 row", "q4_f16_32", "int8", INT8, 1, 2048, 200, .mode = OP_WRITE},
    {"1 row, added", "q4_min_32", "int8", INT8, 1, 608, 33, .mode = OP_ACCUMULATE},
    {"1 row, K of 32", "q8_f16_32", "int8", INT8, 1, 32, 17, .cost = CHECK_NORMAL},
    {"1 row, norm", "q4_min_32", "int8", INT8, 1, 608, 77, .norm = true},
    {"1 row, gate", "q4_f16_32", "int8", INT8, 1, 576, 64, .norm = true, .gate = SILU, .f = 512,
     .cost = CHECK_NORMAL},
    {"1 row, gelu", "q8_f16_32", "int8", INT8, 1, 576, 64, .norm = true, .gate = GELU, .f = 512,
     .cost = CHECK_NORMAL},
    {"1 row, q6_k", "q6_k_16", "int8", INT8, 1, 768, 77, .cost = CHECK_NORMAL},
    {"1 row, q2_k", "q4_kmin_16", "int8", INT8, 1, 768, 77, .cost = CHECK_NORMAL},
    {"1 row, NaN", "q4_f16_32", "int8", INT8, 1, 2048, 200, .special = NAN_X},
    {"2 rows", "q4_min_32", "int8_16", INT8, 2, 256, 64, .mode = OP_WRITE},
    {"16 rows, added", "q4_min_32", "int8_16", INT8, 16, 608, 67, .mode = OP_ACCUMULATE},
    {"5 rows, norm", "q4_min_32", "int8_16", INT8, 5, 1056, 70, .norm = true},
    {"7 rows, gate", "q4_min_32", "int8_16", INT8, 7, 576, 64, .norm = true, .gate = SILU,
     .f = 512},
    {"3 rows, gelu", "q4_min_32", "int8_16", INT8, 3, 96, 64, .norm = true, .gate = GELU, .f = 512,
     .cost = CHECK_NORMAL},
    {"9 rows of 7e4, 1e-6 and 0", "q4_min_32", "int8_16", INT8, 9, 256, 70, .special = SIZES},
    {"9 rows, tiny", "q4_min_32", "int8_16", INT8, 9, 256, 70, .special = TINY},
    {"5 rows, NaN", "q4_min_32", "int8_16", INT8, 5, 64, 70, .special = NAN_X},
    {"17 rows", "q4_min_32", "int8_64", INT8, 17, 96, 130, .mode = OP_WRITE},
    {"70 rows, added, odd columns", "q4_min_32", "int8_64", INT8, 70, 256, 131,
     .mode = OP_ACCUMULATE, .column = 3, .more = 5},
    {"131 rows, norm", "q4_min_32", "int8_64", INT8, 131, 1120, 70, .norm = true},
    {"600 rows", "q4_min_32", "int8_64", INT8, 600, 64, 70, .mode = OP_WRITE},
    {"18 rows, f16: not taken", "f16", "register_tile", INT8, 18, 64, 70, .cost = CHECK_NORMAL},
    {"18 rows, groups of 8: not taken", "q4_f32_8", "register_tile", INT8, 18, 64, 70,
     .cost = CHECK_NORMAL},
    {"2 rows", "q4_min_32", "halves_16", BLOCK, 2, 256, 64, .cost = CHECK_NORMAL},
    {"16 rows, added", "q4_min_32", "halves_16", SUMS, 16, 608, 67, .mode = OP_ACCUMULATE},
    {"5 rows, norm", "q4_min_32", "halves_16", SUMS, 5, 1056, 70, .norm = true,
     .cost = CHECK_NORMAL},
    {"5 rows, norm", "q4_min_32", "halves_16", BLOCK, 5, 1056, 70, .norm = true,
     .cost = CHECK_NORMAL},
    {"7 rows, gate", "q4_min_32", "halves_16", SUMS, 7, 576, 64, .norm = true, .gate = SILU,
     .f = 512, .cost = CHECK_NORMAL},
    {"9 rows of 7e4, 1e-6 and 0", "q4_min_32", "halves_16", SUMS, 9, 256, 70, .special = SIZES},
    {"9 rows, tiny", "q4_min_32", "halves_16", SUMS, 9, 256, 70, .special = TINY},
    {"3 rows of large products", "f16", "halves_16", SUMS, 3, 4096, 65, .special = LARGE_W,
     .cost = CHECK_NORMAL},
    {"5 rows, NaN", "q4_min_32", "halves_16", SUMS, 5, 64, 70, .special = NAN_X},
    {"70 rows, added, odd columns", "q4_min_32", "halves_64", BLOCK, 70, 256, 131,
     .mode = OP_ACCUMULATE, .column = 3, .more = 5},
    {"131 rows, norm", "q4_min_32", "halves_64", SUMS, 131, 1120, 70, .norm = true,
     .cost = CHECK_NORMAL},
    {"600 rows", "q4_min_32", "halves_64", BLOCK, 600, 64, 70, .mode = OP_WRITE},
    {"5 rows, weights of 1e5: not taken", "f32", "register_tile", SUMS, 5, 64, 70,
     .special = HUGE_W, .cost = CHECK_NORMAL},
    /* What rows on matrix units are compared with. */
    {"16x2048x8192", "q4_f16_32", "int8_16", INT8, 16, 2048, 8192, .cost = CHECK_HEAVY},
    {"16x8192x2048", "q4_f16_32", "int8_16", INT8, 16, 8192, 2048, .cost = CHECK_HEAVY},
    {"64x2048x8192", "q4_f16_32", "int8_64", INT8, 64, 2048, 8192, .cost = CHECK_HEAVY},
    {"128x2048x8192", "q4_f16_32", "int8_64", INT8, 128, 2048, 8192, .cost = CHECK_HEAVY},
    {"64x2048x8192", "q4_f16_32", "halves_64", BLOCK, 64, 2048, 8192, .cost = CHECK_HEAVY},
};
enum { NAMED = sizeof cases / sizeof *cases };

/* After them every format, by few rows. */
static bool has_bytes(weight_format f)
{
    return f.layout >= LAYOUT_Q8 && (f.scale >= SCALE_K || f.group % WEIGHT_BLOCK == 0);
}

static lossy_case format_case(const check_format *f, temper_lossy lossy)
{
    return (lossy_case){.name = f->name,
                        .format = f->name,
                        .row = lossy == INT8 ? "int8_16" : "halves_16",
                        .lossy = lossy,
                        .rows = 11,
                        .k = f->format.scale >= SCALE_K ? 768 : 640,
                        .n = 71,
                        .cost = CHECK_NORMAL};
}

/* Then every tile of matrix units, and what stands for them where there are none, with f16 sums.
 * Large ones compile for a minute without matrix units. */
static const char *const tile_names[] = {
    "matrix_sums_128", "matrix_sums_64", "matrix_sums_32", "matrix_sums_16", "matrix_sums_16_deep",
    "plain_128",       "plain_64",       "plain_32",       "plain_16",       "plain_16_deep",
};
enum { TILE_CASES = sizeof tile_names / sizeof tile_names[0] };

static lossy_case tile_case(uint32_t i)
{
    const uint32_t tile = i % OP_TILES;
    const bool deep = op_tiles[tile].units > 1, plain = i >= OP_TILES;
    return (lossy_case){.name = tile_names[i],
                        .format = "q4_min_32",
                        .row = tile_names[i],
                        .lossy = SUMS,
                        .rows = deep ? 20 : 131,
                        .k = deep ? 1024 : 96,
                        .n = deep ? 72 : 259,
                        .mode = OP_ACCUMULATE,
                        .cost = !plain               ? CHECK_QUICK
                                : tile <= OP_TILE_64 ? CHECK_HEAVY
                                                     : CHECK_NORMAL};
}

static lossy_case case_at(uint32_t i)
{
    if (i < NAMED)
        return cases[i];
    i -= NAMED;
    if (i < TILE_CASES)
        return tile_case(i);
    i -= TILE_CASES;
    for (uint32_t f = 0; f < 2 * check_format_count; f++) {
        const check_format *format = &check_formats[f / 2];
        if ((f % 2 == 1 || has_bytes(format->format)) && i-- == 0)
            return format_case(format, f % 2 == 0 ? INT8 : BLOCK);
    }
    return (lossy_case){.name = NULL};
}

static uint32_t count(void)
{
    static uint32_t all;
    while (all == 0 || case_at(all).name != NULL)
        all++;
    return all;
}

static void describe(uint32_t i, check_case *out)
{
    const lossy_case p = case_at(i);
    snprintf(out->name, sizeof out->name, "lossy %s: %s", temper_lossy_name(p.lossy), p.name);
    out->cost = p.cost;
}

/* ---- the reference --------------------------------------------------------------------------- */

/* Doubles rounded to f32: an error far below the limits. */
static float *rounded(check_context *c, const double *wide, uint64_t n)
{
    float *out = check_alloc(c, n, sizeof *out);
    for (uint64_t i = 0; out != NULL && i < n; i++)
        out[i] = (float)wide[i];
    return out;
}

/* What the kernels make of rows of inputs: bytes times a scale of 32. */
static const float *in_bytes(check_context *c, const float *x, uint64_t n)
{
    float *out = check_alloc(c, n, sizeof *out);
    for (uint64_t at = 0; out != NULL && at < n; at += WEIGHT_BLOCK) {
        float most = 0;
        bool finite = true;
        for (uint64_t i = at; i < at + WEIGHT_BLOCK; i++) {
            most = fmaxf(most, fabsf(x[i]));
            finite = finite && isfinite(x[i]);
        }
        const bool none = most < 0x1p-111f;
        const float up = none ? 0 : 127 / most, scale = none ? 0 : most / 127;
        for (uint64_t i = at; i < at + WEIGHT_BLOCK; i++)
            out[i] = finite ? nearbyintf(x[i] * up) * scale : NAN;
    }
    return out;
}

/* Rows that meet a weight: through a norm where there is one, and as bytes where `bytes`. A norm's
 * factor is one of the bytes' scale. */
static const float *meet(check_context *c, const float *x, const float *norm, uint64_t rows,
                         uint64_t k, bool bytes)
{
    double *wide = check_alloc(c, rows * k, sizeof *wide);
    float *weighed = check_alloc(c, rows * k, sizeof *weighed);
    if (c->status != TEMPER_OK || norm == NULL)
        return bytes ? in_bytes(c, x, rows * k) : x;
    ref_rmsnorm(x, norm, rows, k, 1e-5, wide);
    if (!bytes)
        return rounded(c, wide, rows * k);
    for (uint64_t i = 0; i < rows * k; i++)
        weighed[i] = x[i] * norm[i % k];
    const float *rough = in_bytes(c, weighed, rows * k);
    for (uint64_t i = 0; rough != NULL && i < rows * k; i++)
        if (weighed[i] != 0)
            wide[i] *= (double)rough[i] / (double)weighed[i];
    return rounded(c, wide, rows * k);
}

typedef struct lossy_run {
    const lossy_case *of;
    const op_kernel_row *row; /* to be recorded; NULL: the one that is chosen */
    const float *x_values, *norm_values, *gate_values, *values; /* of the weights, dequantised */
    const float *before_values;
    const op_weight *weight; /* of the one product, or of the second */
    op_gated gated;
    gpu_view x, norm, h, before, y;
    uint64_t width;
    op_products with;
} lossy_run;

static uint64_t last_k(const lossy_case *p)
{
    return p->gate != OP_GATE_NONE ? p->f : p->k;
}

/* [rows, n]; bytes: of inputs that are rounded to bytes. */
static const double *reference(check_context *c, const lossy_run *r, bool bytes)
{
    const lossy_case *p = r->of;
    const uint64_t rows = p->rows;
    double *want = check_alloc(c, rows * p->n, sizeof *want);
    double *wide = check_alloc(c, rows * 2 * (p->f + 1), sizeof *wide);
    const float *v = meet(c, r->x_values, p->norm ? r->norm_values : NULL, rows, p->k, bytes);
    if (c->status == TEMPER_OK && p->gate != OP_GATE_NONE) {
        ref_matmul(v, r->gate_values, NULL, 0, rows, 2ull * p->f, p->k, wide);
        const float *products = rounded(c, wide, rows * 2 * p->f);
        if (c->status == TEMPER_OK && p->gate == OP_GATE_SILU)
            ref_silu_gate(products, rows, p->f, wide);
        else if (c->status == TEMPER_OK)
            ref_gelu_gate(products, rows, p->f, wide);
        const float *gated = rounded(c, wide, rows * p->f);
        v = c->status == TEMPER_OK ? meet(c, gated, NULL, rows, p->f, bytes) : NULL;
    }
    if (c->status == TEMPER_OK)
        ref_matmul(v, r->values, p->mode == OP_ACCUMULATE ? r->before_values : NULL, 0, rows, p->n,
                   last_k(p), want);
    return want;
}

/* ---- one product ----------------------------------------------------------------------------- */

static void record(gpu_recorder *rec, void *user)
{
    const lossy_run *r = user;
    const lossy_case *p = r->of;
    gpu_record_copy(rec, r->before, r->y);
    if (r->row != NULL)
        op_record_product(rec, r->weight, r->row, &(op_prologue){0}, r->x, r->y, p->rows, p->column,
                          r->width, p->mode, &r->with);
    else if (p->gate != OP_GATE_NONE)
        op_gated_matmul(rec, r->x, &r->gated, r->y, p->rows, p->mode, &r->with);
    else if (p->norm)
        op_rmsnorm_matmul(rec, r->x, r->norm, 1e-5f, r->h, r->weight, r->y, p->rows, p->mode,
                          &r->with);
    else
        op_matmul_columns(rec, r->weight, r->x, r->y, p->rows, p->column, r->width, p->mode,
                          &r->with);
}

static float *make_x(check_context *c, const lossy_case *p)
{
    float *x = check_random(c, (uint64_t)p->rows * p->k, 521);
    for (uint64_t i = 0; x != NULL && i < (uint64_t)p->rows * p->k; i++) {
        const uint64_t row = i / p->k;
        x[i] *= i % 7 == 0 ? 3.0f : 0.5f;
        if (p->special == SIZES)
            x[i] *= row == 1 && i % 17 == 0 ? 7e4f : row == 2 ? 1e-6f : row == 3 ? 0.0f : 1.0f;
        if (p->special == TINY)
            x[i] *= row % 2 == 0 ? 1e-32f : 1.0f;
    }
    for (uint64_t i = 0; x != NULL && p->special == LARGE_W && i < (uint64_t)p->rows * p->k; i++)
        x[i] = 300.0f;
    if (x != NULL && p->special == NAN_X)
        x[(uint64_t)(p->rows / 2) * p->k + 5] = NAN;
    return x;
}

static check_weight make_weight(check_context *c, const lossy_case *p)
{
    const weight_format format = *check_format_named(p->format);
    if (p->special != LARGE_W && p->special != HUGE_W)
        return check_make_weight(c, format, p->n, last_k(p), 524);
    const weight_planes planes = check_planes(c, format, p->n, p->k);
    const uint64_t stride = weight_stride(p->n);
    const uint64_t words = weight_plane_words(format, WEIGHT_DATA, p->k, stride);
    const bool wide = format.layout == LAYOUT_F32;
    const float huge = 1e5f;
    uint32_t *data = planes.plane[WEIGHT_DATA], bits;
    memcpy(&bits, &huge, sizeof bits);
    for (uint64_t i = 0; c->status == TEMPER_OK && i < words; i++) {
        const uint64_t row = i / (wide ? WEIGHT_BLOCK : WEIGHT_BLOCK / 2) % stride;
        data[i] = wide ? bits : row == 7 ? 0x77537753u : 0x5cb05cb0u; /* 30000, else 300, twice */
    }
    return check_upload_weight(c, format, p->n, p->k, planes);
}

/* The first of two products, and what lies between them. */
static void make_gated(check_context *c, lossy_run *r)
{
    const lossy_case *p = r->of;
    const uint64_t rows = p->rows;
    const check_weight gate_up =
        check_make_weight(c, *check_format_named(p->format), 2ull * p->f, p->k, 525);
    r->gate_values = gate_up.values;
    r->gated = (op_gated){.norm = r->norm,
                          .eps = 1e-5f,
                          .gate_up = gate_up.weight,
                          .gate = p->gate,
                          .down = r->weight,
                          .h = r->h,
                          .gate_products = check_output(c, rows * 2 * p->f * 4),
                          .act = check_output(c, rows * p->f * 4)};
}

static void give_scratch(check_context *c, lossy_run *r)
{
    const lossy_case *p = r->of;
    const weight_format format = *check_format_named(p->format);
    const op_product_bytes bytes =
        r->row != NULL ? op_product_scratch_bytes(c->device, r->row, format, p->n, p->k, p->rows)
                       : op_matmul_scratch_bytes(c->device, format,
                                                 p->gate != OP_GATE_NONE ? 2ull * p->f : p->n,
                                                 max_u64(p->k, p->f), p->rows, false, p->lossy);
    r->with = (op_products){.fixed = true, .lossy = p->lossy};
    r->with.scratch = check_output(c, max_u64(bytes.scratch, 4));
    r->with.sums = check_output(c, max_u64(bytes.sums, 4));
}

/* Opened by the option, and by nothing else. */
static void check_choice_of_row(check_context *c, const lossy_run *r)
{
    const op_weight *w = r->of->gate != OP_GATE_NONE ? r->gated.gate_up : r->weight;
    op_products with = r->with;
    const char *name = op_matmul_row(c->device, w, r->of->rows, w->n, &with)->name;
    check_that(c, strcmp(name, r->of->row) == 0, "%s was chosen, not %s", name, r->of->row);
    with.lossy = TEMPER_LOSSY_NONE;
    check_that(c, op_matmul_row(c->device, w, r->of->rows, w->n, &with)->lossy == 0,
               "it is open to those who did not ask");
}

static double limit_for(const lossy_case *p)
{
    const double twice = p->gate != OP_GATE_NONE ? 2 : 1;
    if (strcmp(p->row, "register_tile") == 0)
        return 3e-4;
    if (p->lossy == INT8)
        return twice * LIMIT_INT8;
    return twice * limit_of_halves(p->lossy == SUMS ? p->k : WEIGHT_BLOCK);
}

/* One row of x against the product of the bytes that it was rounded to. */
static void compare_bytes(check_context *c, const lossy_case *p, uint32_t row, const float *got,
                          const double *bytes)
{
    double squares = 0, worst = 0;
    for (uint32_t n = 0; n < p->n; n++) {
        squares += bytes[n] * bytes[n];
        worst = fmax(worst, fabs((double)got[n] - bytes[n]));
    }
    const double size = sqrt(squares / p->n), bound = limit_bytes(last_k(p));
    check_that(c, !isfinite(size) || worst <= bound * size,
               "row %u: %.3g from the product of its bytes, at most %.3g", row, worst / size,
               bound);
}

/* Row by row: they differ in size. Columns beside the product's own must be as they were. */
static void compare(check_context *c, const lossy_run *r, const float *got, const float *start)
{
    const lossy_case *p = r->of;
    const bool in_bytes_too = strncmp(p->row, "int8", 4) == 0;
    const double *want = reference(c, r, false),
                 *bytes = in_bytes_too ? reference(c, r, true) : NULL;
    for (uint32_t row = 0; c->status == TEMPER_OK && row < p->rows; row++) {
        const float *own = got + row * r->width, *before = start + row * r->width;
        if (p->special == LARGE_W)
            check_bounds(c, own, want + (uint64_t)row * p->n, p->n, 1e-3, LIMIT_LARGE_W);
        else
            check_close(c, own + p->column, want + (uint64_t)row * p->n, p->n, limit_for(p));
        if (in_bytes_too)
            compare_bytes(c, p, row, own + p->column, bytes + (uint64_t)row * p->n);
        for (uint64_t n = 0; n < r->width; n++)
            if (n < p->column || n >= p->column + p->n)
                check_that(c, memcmp(&own[n], &before[n], 4) == 0, "column %llu was written",
                           (unsigned long long)n);
    }
}

static const op_kernel_row *find_row(const char *name)
{
    for (uint32_t i = 0; i < op_table_matmul.count; i++)
        if (strcmp(op_table_matmul.rows[i].name, name) == 0)
            return &op_table_matmul.rows[i];
    return NULL;
}

/* The row to be recorded, where the case names a tile. */
static const op_kernel_row *tile_row(const char *name)
{
    for (uint32_t i = 0; i < TILE_CASES; i++)
        if (strcmp(name, tile_names[i]) == 0)
            return i < OP_TILES ? find_row(name)
                                : check_plain_row((int)(i - OP_TILES), true, false);
    return NULL;
}

/* False, and the case is skipped, where the device cannot run the row. */
static bool runs(check_context *c, const op_kernel_row *row)
{
    check_that(c, row != NULL, "the row is missing");
    if (row == NULL || op_row_runs(c->device, row))
        return row != NULL;
    c->result->skipped = true;
    snprintf(c->result->detail, sizeof c->result->detail, "this device cannot run %s", row->name);
    return false;
}

static void run(check_context *c, uint32_t i)
{
    const lossy_case p = case_at(i);
    const uint64_t rows = p.rows, width = (uint64_t)p.column + p.n + p.more;
    lossy_run r = {.of = &p, .width = width, .row = tile_row(p.row)};
    if (!runs(c, r.row != NULL ? r.row : find_row(p.row)))
        return;
    float *x = make_x(c, &p), *norm = check_random(c, p.k, 522);
    float *start = check_random(c, rows * width, 523);
    float *before = check_alloc(c, rows * p.n, sizeof *before);
    const check_weight w = make_weight(c, &p);
    if (c->status != TEMPER_OK)
        return;
    for (uint64_t v = 0; v < rows * p.n; v++)
        before[v] = start[v / p.n * width + p.column + v % p.n];
    r.x_values = x;
    r.norm_values = norm;
    r.before_values = before;
    r.values = w.values;
    r.weight = w.weight;
    r.x = check_input(c, x, rows * p.k * 4);
    r.norm = check_input(c, norm, (uint64_t)p.k * 4);
    r.before = check_input(c, start, rows * width * 4);
    r.h = check_output(c, rows * p.k * 4);
    r.y = check_output(c, rows * width * 4);
    if (p.gate != OP_GATE_NONE)
        make_gated(c, &r);
    give_scratch(c, &r);
    if (c->status != TEMPER_OK)
        return;
    if (r.row == NULL)
        check_choice_of_row(c, &r);
    const float *got = check_go(c, record, &r, r.y, 2.0 * (double)(rows * p.n * last_k(&p)),
                                (double)op_weight_bytes(w.weight->format, p.n, last_k(&p)));
    if (got != NULL)
        compare(c, &r, got, start);
}

const check_group check_lossy = {"matmul", count, describe, run};
