/*
 * case_products.c - products of several rows through tiles in workgroup memory, each row of the
 * table by its name: on matrix units with f16 operands, the same without matrix units
 * (plain_matrix.h), and in f32. A row that the device lacks is skipped, and says so.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/half.h"
#include "check/context.h"
#include "check/plain_matrix.h"
#include "kernels/kernels.gen.h"
#include "op/rows.h"
#include "ref/ref.h"

enum kind {
    PLAIN,
    RAMP,     /* x is the golden cases' ramp */
    LARGE_X,  /* one row of x holds 7e4, one is about 1e-6, one is 0 */
    LARGE_W,  /* one row of W holds 1e5 and more, one is about 1e-7 (f32 weights; in f32 alone) */
    PRODUCTS, /* every product is 300 * 300 */
    NAN_X,    /* one NaN in x: that row */
    INFINITE_X,
    SLICED, /* so few tiles that K is split */
};

typedef struct product_case {
    const char *name, *format;
    uint32_t rows, k, n;
    double absolute, relative; /* 0: normalised error of the row's limit */
    enum kind kind;
    op_mode mode;
    uint32_t column, more; /* y is column + n + more wide */
    check_cost cost;
} product_case;

/* An operand rounded to f16 is off by 1.4e-4 of itself (root mean square), a product of two by
 * 2e-4, and so is a sum of many; six times that is the worst of 100000, and more where a sum is of
 * few. The golden table's bound on f16 tiles is 2.3e-4 absolute; with weights as large as these
 * rounding them alone gives 7e-4, so that f16 rows are held to the normalised limit there too. */
#define LIMIT_HALF 3e-3
#define LIMIT_F32 2e-5
#define LIMIT_EQUAL 1.2e-4 /* equal products round the same way each time */

/* Each for every row of row_names that it can be for. The first are the golden table's. */
static const product_case cases[] = {
    {"steel", "q4_f32_32", 96, 2048, 256, 1e-4, 1e-3, RAMP, OP_WRITE, 0, 0, CHECK_NORMAL},
    {"steel_f16_edge", "q4_f32_32", 70, 1024, 136, 2.3e-4, 1e-3, RAMP, OP_WRITE, 0, 0, 0},
    {"pwdq_gs64", "q4_f32_64", 96, 2048, 256, 2.3e-4, 1e-3, RAMP, OP_WRITE, 0, 0, CHECK_NORMAL},
    {"pwdq_gs8", "q4_f32_8", 96, 2048, 256, 2.3e-4, 1e-3, RAMP, OP_WRITE, 0, 0, CHECK_NORMAL},
    {"gate_proj_pf", "q4_f32_32", 128, 2048, 8192, 1e-4, 1e-3, RAMP, OP_WRITE, 0, 0, CHECK_HEAVY},
    {"down_proj_pf", "q4_f32_32", 128, 8192, 2048, 1e-3, 1e-2, RAMP, OP_WRITE, 0, 0, CHECK_HEAVY},
    {"shmem_edge", "q4_f32_32", 130, 4096, 2056, 1e-4, 1e-3, RAMP, OP_WRITE, 0, 0, CHECK_HEAVY},
    {"q_proj_4k", "q4_f32_32", 4096, 2048, 2048, 1e-4, 1e-3, RAMP, OP_WRITE, 0, 0, CHECK_HEAVY},
    {"kv_proj_4k", "q4_f32_32", 4096, 2048, 512, 1e-4, 1e-3, RAMP, OP_WRITE, 0, 0, CHECK_HEAVY},
    {"whole tiles added", "q4_min_32", 128, 96, 256, 0, 0, PLAIN, OP_ACCUMULATE, 0, 0, 0},
    {"edges added", "q4_min_32", 131, 96, 259, 0, 0, PLAIN, OP_ACCUMULATE, 0, 0, 0},
    {"K of 18 blocks", "q4_min_32", 20, 576, 100, 0, 0, PLAIN, OP_WRITE, 0, 0, 0},
    {"K of 32 blocks, added", "q4_min_32", 19, 1024, 71, 0, 0, PLAIN, OP_ACCUMULATE, 0, 0, 0},
    {"columns 4 to 260 of 264", "q4_min_32", 128, 64, 256, 0, 0, PLAIN, OP_WRITE, 4, 4, 0},
    {"columns 3 to 260 of 265", "q4_min_32", 128, 64, 257, 0, 0, PLAIN, OP_ACCUMULATE, 3, 5, 0},
    {"nine bands", "q4_min_32", 1100, 96, 300, 0, 0, PLAIN, OP_WRITE, 0, 0, 0},
    {"slices of K", "q4_min_32", 20, 4160, 72, 0, 0, SLICED, OP_WRITE, 0, 0, 0},
    {"slices of K added, odd", "q4_min_32", 23, 4160, 71, 0, 0, SLICED, OP_ACCUMULATE, 1, 1, 0},
    {"K of 48 blocks", "q4_min_32", 3, 1536, 24, 0, 0, PLAIN, OP_WRITE, 0, 0, 0},
    {"K of 64 blocks, added", "q4_min_32", 16, 2048, 40, 0, 0, PLAIN, OP_ACCUMULATE, 0, 0, 0},
    {"many columns", "q4_min_32", 16, 96, 4520, 0, 0, PLAIN, OP_WRITE, 0, 0, 0},
    {"rows of 7e4 and 1e-6", "q4_min_32", 80, 256, 160, 0, 0, LARGE_X, OP_WRITE, 0, 0, 0},
    {"weights of 1e5 and 1e-7", "f32", 80, 256, 160, 0, 0, LARGE_W, OP_WRITE, 0, 0, 0},
    {"equal products", "f16", 80, 4096, 65, 0, 0, PRODUCTS, OP_WRITE, 0, 0, CHECK_NORMAL},
    {"NaN in x", "q4_min_32", 70, 64, 70, 0, 0, NAN_X, OP_WRITE, 0, 0, 0},
    {"infinity in x", "f16", 70, 64, 70, 0, 0, INFINITE_X, OP_WRITE, 0, 0, 0},
    {"16x2048x2048", "q4_f16_32", 16, 2048, 2048, 0, 0, PLAIN, OP_WRITE, 0, 0, CHECK_HEAVY},
    {"16x2048x8192", "q4_f16_32", 16, 2048, 8192, 0, 0, PLAIN, OP_WRITE, 0, 0, CHECK_HEAVY},
    {"16x8192x2048", "q4_f16_32", 16, 8192, 2048, 0, 0, PLAIN, OP_ACCUMULATE, 0, 0, CHECK_HEAVY},
    {"64x2048x8192", "q4_f16_32", 64, 2048, 8192, 0, 0, PLAIN, OP_WRITE, 0, 0, CHECK_HEAVY},
    {"128x2048x2048", "q4_f16_32", 128, 2048, 2048, 0, 0, PLAIN, OP_ACCUMULATE, 0, 0, CHECK_HEAVY},
    {"128x2048x8192", "q4_f16_32", 128, 2048, 8192, 0, 0, PLAIN, OP_WRITE, 0, 0, CHECK_HEAVY},
    {"512x2048x3072", "q4_f16_32", 512, 2048, 3072, 0, 0, PLAIN, OP_WRITE, 0, 0, CHECK_HEAVY},
    {"512x2048x2048", "q4_f16_32", 512, 2048, 2048, 0, 0, PLAIN, OP_ACCUMULATE, 0, 0, CHECK_HEAVY},
    {"512x2048x16384", "q4_f16_32", 512, 2048, 16384, 0, 0, PLAIN, OP_WRITE, 0, 0, CHECK_HEAVY},
    {"512x8192x2048", "q4_f16_32", 512, 8192, 2048, 0, 0, PLAIN, OP_ACCUMULATE, 0, 0, CHECK_HEAVY},
    {"2048x2048x8192", "q4_f16_32", 2048, 2048, 8192, 0, 0, PLAIN, OP_WRITE, 0, 0, CHECK_HEAVY},
    {"2048x2048x8192 minimum", "q4_min_32", 2048, 2048, 8192, 0, 0, PLAIN, OP_WRITE, 0, 0,
     CHECK_HEAVY},
    {"2048x2048x8192 q8", "q8_f16_32", 2048, 2048, 8192, 0, 0, PLAIN, OP_WRITE, 0, 0, CHECK_HEAVY},
    {"2048x2048x8192 q6_k", "q6_k_16", 2048, 2048, 8192, 0, 0, PLAIN, OP_WRITE, 0, 0, CHECK_HEAVY},
    {"2048x2048x8192 f16", "f16", 2048, 2048, 8192, 0, 0, PLAIN, OP_WRITE, 0, 0, CHECK_HEAVY},
};
enum { NAMED = sizeof cases / sizeof *cases };

/* Rows of the table, and the tiles that are tried without matrix units; in the order of op_tiles
 * both. Then rows that are not of product_matrix. */
static const char *const row_names[] = {
    "matrix_128", "matrix_64",  "matrix_32", "matrix_16", "matrix_16_deep",
    "plain_128",  "plain_64",   "plain_32",  "plain_16",  "plain_16_deep",
    "steel",      "matrix_few", "plain_few",
};
enum {
    ROWS = sizeof row_names / sizeof *row_names,
    STEEL = 2 * OP_TILES,
    FEW,
    PLAIN_FEW,
};

static const op_kernel_row *find_row(const char *name)
{
    for (uint32_t i = 0; i < op_table_matmul.count; i++)
        if (strcmp(op_table_matmul.rows[i].name, name) == 0)
            return &op_table_matmul.rows[i];
    return NULL;
}

static const op_kernel_row *row_at(uint32_t i)
{
    if (i < OP_TILES || i == STEEL || i == FEW)
        return find_row(row_names[i]);
    if (i == PLAIN_FEW)
        return check_plain_few();
    return check_plain_row((int)i - OP_TILES, false, false);
}

/* ---- the list ------------------------------------------------------------------------------- */

static bool is_plain(uint32_t row)
{
    return (row >= OP_TILES && row < STEEL) || row == PLAIN_FEW;
}

/* Large tiles without matrix units compile for a minute, and have no lines that small ones lack. */
static bool is_slow(uint32_t row)
{
    return row == OP_TILES + OP_TILE_128 || row == OP_TILES + OP_TILE_64;
}

static const op_tile *tile_of(uint32_t row)
{
    return row == STEEL ? NULL : row > STEEL ? &op_tile_few : &op_tiles[row % OP_TILES];
}

/* After the named cases every format. */
static product_case case_at(uint32_t i, uint32_t row)
{
    if (i < NAMED)
        return cases[i];
    const check_format *format = &check_formats[i - NAMED];
    const bool deep = row < STEEL && tile_of(row)->units > 1;
    const uint32_t k = deep ? 1024 : format->format.scale >= SCALE_K ? 768 : 256;
    return (product_case){
        .name = format->name, .format = format->name, .rows = 35, .k = k, .n = 131};
}

/* Whether the case is one for the row. */
static bool is_for(const product_case *p, uint32_t row)
{
    if (row == STEEL)
        return true;
    const op_tile *t = tile_of(row);
    /* Without matrix units each format is a pipeline more, and many seconds of compiling: one with
     * scales, and one without, which is staged in another way. */
    if (is_plain(row) && ((uint64_t)p->rows * p->k * p->n > 12000000 ||
                          (strcmp(p->format, "q4_min_32") != 0 && strcmp(p->name, "f16") != 0)))
        return false;
    if (is_slow(row) && strcmp(p->name, "edges added") != 0)
        return false;
    return op_tile_takes_k(t, p->k) && op_tile_takes_format(t, *check_format_named(p->format)) &&
           p->kind != LARGE_W && (p->kind != SLICED || t->units == 1 || t->walks);
}

/* Case and row of entry i: each case by every row that it is for. */
static product_case get(uint32_t i, uint32_t *row)
{
    for (uint32_t c = 0; c < NAMED + check_format_count; c++)
        for (*row = 0; *row < ROWS; ++*row) {
            const product_case p = case_at(c, *row);
            if (is_for(&p, *row) && i-- == 0)
                return p;
        }
    return (product_case){.name = NULL};
}

static uint32_t count(void)
{
    static uint32_t all;
    for (uint32_t row; all == 0 || get(all, &row).name != NULL;)
        all++;
    return all;
}

static void describe(uint32_t i, check_case *out)
{
    uint32_t row;
    const product_case p = get(i, &row);
    /* On a software device each format of these is a pipeline more, and seconds of compiling. */
    const bool compiles = is_plain(row) || (row == STEEL && strcmp(p.format, "q4_min_32") != 0);
    out->cost = is_slow(row)                        ? CHECK_HEAVY
                : p.cost == CHECK_QUICK && compiles ? CHECK_NORMAL
                                                    : p.cost;
    snprintf(out->name, sizeof out->name, "%s: %s", row_names[row], p.name);
}

/* ---- one product ----------------------------------------------------------------------------- */

typedef struct product_run {
    const product_case *of;
    const op_weight *weight;
    const op_kernel_row *row;
    gpu_view x, y;
    op_products with;
    uint64_t width;
} product_run;

static void record(gpu_recorder *rec, void *user)
{
    const product_run *r = user;
    op_record_product(rec, r->weight, r->row, &(op_prologue){0}, r->x, r->y, r->of->rows,
                      r->of->column, r->width, r->of->mode, &r->with);
}

static check_weight make_weight(check_context *c, const product_case *p)
{
    const weight_format format = *check_format_named(p->format);
    if (p->kind != LARGE_W && p->kind != PRODUCTS)
        return check_make_weight(c, format, p->n, p->k, 7);
    const weight_planes planes = check_planes(c, format, p->n, p->k);
    const uint64_t stride = weight_stride(p->n);
    const uint64_t words = weight_plane_words(format, WEIGHT_DATA, p->k, stride);
    uint32_t *data = planes.plane[WEIGHT_DATA];
    for (uint64_t i = 0; c->status == TEMPER_OK && i < words; i++) {
        const uint64_t row = i / WEIGHT_BLOCK % stride; /* of f32 */
        const float size = row == 3 ? 1e5f : row == 5 ? 1e-7f : 1.0f;
        const float v = size * (1.0f + check_random_float(8, i));
        if (p->kind == PRODUCTS)
            data[i] = 0x5cb05cb0u; /* 300, twice */
        else
            memcpy(&data[i], &v, sizeof v);
    }
    return check_upload_weight(c, format, p->n, p->k, planes);
}

static void shape_x(const product_case *p, float *x)
{
    const uint64_t at = (uint64_t)(p->rows / 2) * p->k;
    for (uint64_t i = 0; p->kind == PRODUCTS && i < (uint64_t)p->rows * p->k; i++)
        x[i] = 300.0f;
    for (uint32_t i = 0; p->kind == LARGE_X && i < p->k; i++) {
        x[at + i] *= i % 17 == 0 ? 7e4f : 1.0f;
        x[at + p->k + i] *= 1e-6f;
        x[at + 2 * p->k + i] = 0.0f;
    }
    if (p->kind == NAN_X || p->kind == INFINITE_X)
        x[at + 5] = p->kind == NAN_X ? NAN : INFINITY;
}

/* Row by row, because rows differ in size; of large cases the rows where tiles begin and end.
 * Columns beside the product's own must be as they were. */
static void compare(check_context *c, const product_run *r, const float *x, const float *w,
                    const float *start, const float *y)
{
    const product_case *p = r->of;
    double *want = check_alloc(c, r->width, sizeof *want);
    float *before = check_alloc(c, p->n, sizeof *before);
    const bool f32 = r->row->tile == NULL;
    double limit = f32 ? LIMIT_F32 : LIMIT_HALF;
    const bool all = (uint64_t)p->rows * p->k * p->n < 100000000;
    if (p->kind == PRODUCTS)
        limit = LIMIT_EQUAL;
    for (uint32_t i = 0; c->status == TEMPER_OK && i < p->rows; i++) {
        const float *old = start + i * r->width, *got = y + i * r->width;
        if (!all && i % 64 > 1 && i % 64 < 63 && i + 1 < p->rows)
            continue;
        if (!all && i > 130 && i + 2 < p->rows)
            continue;
        memcpy(before, old + p->column, p->n * sizeof *before);
        ref_matmul(x + (uint64_t)i * p->k, w, p->mode == OP_ACCUMULATE ? before : NULL, 0, 1, p->n,
                   p->k, want);
        if (p->kind == LARGE_W) {
            /* Each column by its own size. */
            for (uint32_t n = 0; n < p->n; n++) {
                const double size = n == 3 ? 1e5 : n == 5 ? 1e-7 : 1.0;
                check_bounds(c, got + p->column + n, want + n, 1, limit * size * sqrt(p->k), limit);
            }
        } else if (f32 && p->absolute > 0) {
            check_bounds(c, got + p->column, want, p->n, p->absolute, p->relative);
        } else {
            check_close(c, got + p->column, want, p->n, limit);
        }
        for (uint64_t n = 0; n < r->width; n++)
            if (n < p->column || n >= p->column + p->n)
                check_that(c, memcmp(&got[n], &old[n], 4) == 0, "column %llu was written",
                           (unsigned long long)n);
    }
}

static void give_scratch(check_context *c, op_products *with, const op_kernel_row *row,
                         const op_weight *w, uint32_t rows)
{
    const op_product_bytes bytes =
        op_product_scratch_bytes(c->device, row, w->format, w->n, w->k, rows);
    if (bytes.scratch > 0)
        with->scratch = check_output(c, bytes.scratch);
    if (bytes.sums > 0)
        with->sums = check_output(c, bytes.sums);
}

static void run(check_context *c, uint32_t i)
{
    uint32_t row;
    const product_case p = get(i, &row);
    product_run r = {.of = &p, .row = row_at(row)};
    r.width = (uint64_t)p.column + p.n + p.more;
    if (!check_can_run(c, r.row))
        return;
    const uint64_t xs = (uint64_t)p.rows * p.k, ys = p.rows * r.width;
    const check_weight w = make_weight(c, &p);
    float *x = p.kind == RAMP ? check_ramp(c, xs) : check_random(c, xs, 11);
    float *start = check_random(c, ys, 13);
    if (c->status != TEMPER_OK)
        return;
    shape_x(&p, x);
    check_that(c, w.weight->halves == (p.kind != LARGE_W), "f16 %s hold the weight",
               w.weight->halves ? "is thought to" : "is thought not to");
    const op_products all = {
        .scratch = {.buffer = w.weight->parts[0].data}, .fixed = true, .half = true};
    if (p.kind == LARGE_W)
        check_that(c, op_matmul_row(c->device, w.weight, p.rows, p.n, &all)->tile == NULL,
                   "f16 would be used");
    if (p.kind == SLICED)
        check_that(c,
                   (r.row->tile != NULL ? op_tile_slices(r.row->tile, p.rows, p.n, p.k)
                                        : op_steel_slices(p.rows, p.n, p.k)) > 1,
                   "K is not split");
    r.weight = w.weight;
    r.x = check_input(c, x, xs * 4);
    r.y = check_input(c, start, ys * 4);
    give_scratch(c, &r.with, r.row, w.weight, p.rows);
    const bool time = c->time;
    c->time = false; /* accumulating again and again is timed after the comparison */
    const float *y = check_go(c, record, &r, r.y, 0, 0);
    if (y != NULL)
        compare(c, &r, x, w.values, start, y);
    c->time = time;
    if (time)
        check_go(c, record, &r, r.y, 2.0 * (double)xs * (double)p.n,
                 (double)(op_weight_bytes(w.weight->format, p.n, p.k) + (xs + ys) * 4));
}

const check_group check_products = {"matmul", count, describe, run};

/* ---- every number of rows -------------------------------------------------------------------- */

enum { EDGES_MOST = 130, EDGES_K = 1024, EDGES_N = 68, EDGES_ALIGNMENT = 64 };

static const op_kernel_row *edge_row(uint32_t i)
{
    static const uint32_t others[] = {OP_TILES + OP_TILE_16, STEEL, FEW, PLAIN_FEW};
    return row_at(i < OP_TILES ? i : others[i - OP_TILES]);
}

static uint32_t edges_count(void)
{
    return OP_TILES + 4;
}

static void describe_edges(uint32_t i, check_case *out)
{
    const op_kernel_row *row = edge_row(i);
    snprintf(out->name, sizeof out->name, "%s: 1 to 130 rows", row != NULL ? row->name : "?");
    out->cost = CHECK_NORMAL;
}

/* Where the result of so many rows begins: one after another, with room between them. */
static uint64_t edges_start(uint32_t rows)
{
    uint64_t at = 0;
    for (uint32_t r = 1; r < rows; r++)
        at += (r * EDGES_N / EDGES_ALIGNMENT + 1) * EDGES_ALIGNMENT;
    return at;
}

static void record_edges(gpu_recorder *rec, void *user)
{
    const product_run *r = user;
    for (uint32_t rows = 1; rows <= EDGES_MOST; rows++) {
        const gpu_view y = {r->y.buffer, r->y.offset + edges_start(rows) * 4,
                            (uint64_t)rows * EDGES_N * 4};
        op_record_product(rec, r->weight, r->row, &(op_prologue){0}, r->x, y, rows, 0, EDGES_N,
                          OP_WRITE, &r->with);
    }
}

static void run_edges(check_context *c, uint32_t i)
{
    product_run r = {.row = edge_row(i)};
    if (!check_can_run(c, r.row))
        return;
    const uint64_t xs = (uint64_t)EDGES_MOST * EDGES_K;
    const check_weight w =
        check_make_weight(c, *check_format_named("q4_min_32"), EDGES_N, EDGES_K, 7);
    float *x = check_random(c, xs, 11);
    double *want = check_alloc(c, (uint64_t)EDGES_MOST * EDGES_N, sizeof *want);
    if (c->status != TEMPER_OK)
        return;
    r.weight = w.weight;
    r.x = check_input(c, x, xs * 4);
    r.y = check_output(c, edges_start(EDGES_MOST + 1) * 4);
    give_scratch(c, &r.with, r.row, w.weight, EDGES_MOST);
    const float *y = check_go(c, record_edges, &r, r.y, 0, 0);
    ref_matmul(x, w.values, NULL, 0, EDGES_MOST, EDGES_N, EDGES_K, want);
    for (uint32_t rows = 1; y != NULL && rows <= EDGES_MOST; rows++) {
        const float *got = y + edges_start(rows);
        check_close(c, got, want, (uint64_t)rows * EDGES_N,
                    r.row->tile == NULL ? LIMIT_F32 : LIMIT_HALF);
        for (uint64_t at = (uint64_t)rows * EDGES_N; got + at < y + edges_start(rows + 1); at++)
            check_that(c, isnan(got[at]), "%u rows: more was written", rows);
    }
}

const check_group check_product_edges = {"matmul", edges_count, describe_edges, run_edges};

/* ---- the halves themselves ------------------------------------------------------------------- */

enum { HALVES_ROWS = 5, HALVES_X_ROWS = 16, HALVES_COLS = 9 };

static const char *const prologue_names[] = {"inputs", "inputs of a norm", "inputs of a gate"};

typedef struct halves_run {
    op_prologue before;
    uint32_t k;
    const op_weight *weight;
    const op_kernel_row *row;
    gpu_view x, y, sums;
    op_products with;
    uint32_t slices;
    bool accumulate, joined;
} halves_run;

/* The inputs by each prologue, of rows that fit a workgroup's registers and longer ones; entries of
 * every format; the same by way of each small tile. */
enum { PROLOGUES = 3, SIZES = 2, JOINS = 3, SMALL_TILES = 4 };
enum { JOINED = SIZES * PROLOGUES, INPUTS = JOINED + JOINS };
static const uint32_t input_sizes[SIZES] = {256, 9216};
static const struct {
    uint32_t k, slices;
    bool accumulate, taken; /* taken: together with the norm */
} joins[JOINS] = {{256, 5, true, true}, {2080, 2, false, true}, {9216, 4, true, false}};

/* Row and format of identity i: each format by every small tile that unpacks it. NULL past the
 * last. */
static const op_kernel_row *small_row(uint32_t i, const check_format **format)
{
    static const uint32_t small[SMALL_TILES] = {OP_TILE_32, OP_TILE_16, OP_TILE_16_DEEP, FEW};
    for (uint32_t f = 0; f < check_format_count; f++)
        for (uint32_t t = 0; t < SMALL_TILES; t++) {
            *format = &check_formats[f];
            if (op_tile_takes_format(tile_of(small[t]), (*format)->format) && i-- == 0)
                return row_at(small[t]);
        }
    return NULL;
}

static uint32_t halves_count(void)
{
    const check_format *format;
    uint32_t identities = 0;
    while (small_row(identities, &format) != NULL)
        identities++;
    return INPUTS + check_format_count + identities;
}

static void describe_halves(uint32_t i, check_case *out)
{
    if (i < JOINED) {
        snprintf(out->name, sizeof out->name, "halves: %s, K of %u", prologue_names[i % PROLOGUES],
                 input_sizes[i / PROLOGUES]);
        return;
    }
    if (i < INPUTS) {
        snprintf(out->name, sizeof out->name, "halves: a norm of %u slices, K of %u",
                 joins[i - JOINED].slices, joins[i - JOINED].k);
        return;
    }
    i -= INPUTS;
    if (i < check_format_count) {
        snprintf(out->name, sizeof out->name, "halves: %s", check_formats[i].name);
        out->cost = CHECK_NORMAL;
        return;
    }
    i -= check_format_count;
    const check_format *format = NULL;
    const op_kernel_row *row = small_row(i, &format);
    snprintf(out->name, sizeof out->name, "%s: halves of %s", row->name, format->name);
}

static void record_inputs(gpu_recorder *rec, void *user)
{
    const halves_run *r = user;
    op_record_product_input(rec, &r->before, op_lift_operands, r->x, HALVES_ROWS, HALVES_X_ROWS,
                            r->k, r->with.scratch);
}

/* Halves times their row's scale, which is a power of two, are the row, each rounded once at the
 * row's size. In f32 before that a norm or a gate is off by 2^-21 of itself. */
static void compare_inputs(check_context *c, uint32_t size, const uint8_t *out, const double *want)
{
    for (uint32_t row = 0; out != NULL && row < HALVES_ROWS; row++) {
        int exponent = 0;
        float scale;
        memcpy(&scale, out + row * 4, sizeof scale);
        check_that(c, frexpf(scale, &exponent) == 0.5f, "scale %g is no power of two",
                   (double)scale);
        for (uint32_t k = 0; k < size; k++) {
            const uint64_t at = ((uint64_t)(k / 32) * HALVES_X_ROWS + row) * 32 + k % 32;
            uint16_t half;
            memcpy(&half, out + OP_PRODUCT_ROWS * 4 + at * 2, sizeof half);
            const double got = (double)f16_to_f32(half) * (double)scale;
            const double right = want[row * size + k];
            check_that(c, fabs(got - right) <= fabs(right) / 2047 + (double)scale * 6e-8,
                       "element %u of row %u is %.9g, not %.9g", k, row, got, right);
        }
    }
}

static void run_inputs(check_context *c, op_prologue_kind kind, uint32_t k)
{
    const uint64_t width = kind == OP_PROLOGUE_SILU_GATE ? 2ull * k : k;
    float *x = check_random(c, HALVES_ROWS * width, 19), *norm = check_random(c, k, 20);
    double *want = check_alloc(c, (uint64_t)HALVES_ROWS * k, sizeof *want);
    if (c->status != TEMPER_OK)
        return;
    for (uint64_t i = 0; i < width; i++) {
        x[width + i] *= 7e4f;
        x[2 * width + i] *= 1e-6f;
        x[3 * width + i] = 0.0f;
    }
    halves_run r = {.before = {.kind = kind, .eps = 1e-5f}, .k = k};
    r.x = check_input(c, x, HALVES_ROWS * width * 4);
    r.before.weight = check_input(c, norm, k * 4ull);
    r.with.scratch = check_output(c, OP_PRODUCT_ROWS * 4 + HALVES_X_ROWS * k * 2);
    if (kind == OP_PROLOGUE_RMSNORM)
        ref_rmsnorm(x, norm, HALVES_ROWS, k, 1e-5, want);
    else if (kind == OP_PROLOGUE_SILU_GATE)
        ref_silu_gate(x, HALVES_ROWS, k, want);
    for (uint64_t i = 0; kind == OP_PROLOGUE_NONE && i < (uint64_t)HALVES_ROWS * k; i++)
        want[i] = (double)x[i];
    compare_inputs(c, k, check_go(c, record_inputs, &r, r.with.scratch, 0, 0), want);
}

static void record_joined(gpu_recorder *rec, void *user)
{
    halves_run *r = user;
    gpu_device *device = gpu_recorder_device(rec);
    const struct kernel_product_join_views views = {.sums = r->sums, .y = r->x};
    const struct kernel_product_join_params params = {.rows = HALVES_ROWS,
                                                      .cols = r->k,
                                                      .pitch = r->k,
                                                      .slices = r->slices,
                                                      .y_cols = r->k,
                                                      .accumulate = r->accumulate};
    enum { LANES = 256 };
    gpu_pipeline *pipeline =
        kernel_product_join_get(device, &(struct kernel_product_join_options){.lanes = LANES});
    gpu_recorded last;
    kernel_product_join_dispatch(rec, pipeline, &views, &params,
                                 HALVES_ROWS * ((r->k + LANES - 1) / LANES), 1, 1);
    record_inputs(rec, user);
    if (gpu_record_last(rec, &last))
        r->joined = last.kernel == &kernel_product_join_input;
}

/* Rows that slices of a product and what was there make, after a norm; then the rows themselves. */
static void run_joined(check_context *c, uint32_t i)
{
    const uint32_t k = joins[i].k, slices = joins[i].slices;
    const uint64_t all = (uint64_t)HALVES_ROWS * k;
    float *x = check_random(c, all, 19), *sums = check_random(c, slices * all, 21);
    float *norm = check_random(c, k, 20), *v = check_alloc(c, all, sizeof *v);
    double *want = check_alloc(c, all, sizeof *want);
    if (c->status != TEMPER_OK)
        return;
    for (uint64_t at = 0; at < all; at++) {
        v[at] = joins[i].accumulate ? x[at] : 0.0f;
        for (uint32_t s = 0; s < slices; s++)
            v[at] += sums[s * all + at];
    }
    halves_run r = {.before = {.kind = OP_PROLOGUE_RMSNORM, .eps = 1e-5f},
                    .k = k,
                    .slices = slices,
                    .accumulate = joins[i].accumulate};
    r.sums = check_input(c, sums, slices * all * 4);
    r.before.weight = check_input(c, norm, k * 4ull);
    r.with.scratch = check_output(c, OP_PRODUCT_ROWS * 4 + HALVES_X_ROWS * k * 2);
    r.x = check_input(c, x, all * 4);
    ref_rmsnorm(v, norm, HALVES_ROWS, k, 1e-5, want);
    compare_inputs(c, k, check_go(c, record_joined, &r, r.with.scratch, 0, 0), want);
    check_that(c, r.joined == joins[i].taken, "the join was %staken along", r.joined ? "" : "not ");
    r.x = check_input(c, x, all * 4);
    const float *y = check_go(c, record_joined, &r, r.x, 0, 0);
    for (uint64_t at = 0; y != NULL && at < all; at++)
        check_that(c, y[at] == v[at], "element %llu is %.9g, not %.9g", (unsigned long long)at,
                   (double)y[at], (double)v[at]);
}

/* How far a half may be from an element. Rounding is off by a 2048th at most: of the element, and
 * again where its scale is no f16; with a minimum also of the product and the minimum that make it,
 * which pass the row's largest value by little. */
static double halves_bound(weight_format format, double element, double largest)
{
    const bool f16_scale = format.scale == SCALE_F16 || format.scale == SCALE_F16_MIN;
    const bool minimum = format.scale == SCALE_F16_MIN || format.scale == SCALE_K_MIN;
    const double once = (fabs(element) + (minimum ? 2 * largest : 0)) / 2048;
    return (f16_scale || format.scale == SCALE_NONE ? once : 2 * once) + 6e-8;
}

static void compare_row(check_context *c, weight_format format, uint32_t n, const double *got,
                        const float *right, uint32_t k)
{
    double largest = 0;
    for (uint32_t i = 0; i < k; i++)
        largest = fmax(largest, fabs((double)right[i]));
    for (uint32_t i = 0; i < k; i++)
        check_that(
            c, fabs(got[i] - (double)right[i]) <= halves_bound(format, (double)right[i], largest),
            "element %u of row %u is %.9g, not %.9g", i, n, got[i], (double)right[i]);
}

static void record_entries(gpu_recorder *rec, void *user)
{
    const halves_run *r = user;
    const weight_format format = r->weight->format;
    const op_weight_part *part = &r->weight->parts[0];
    const uint32_t options[] = {(uint32_t)format.layout, (uint32_t)format.scale,
                                format.group ? format.group : 8};
    gpu_pipeline *pipeline =
        gpu_pipeline_get(gpu_recorder_device(rec), check_entries_kernel(), options);
    const gpu_view data = gpu_whole(part->data);
    const gpu_view views[] = {data, part->high != NULL ? gpu_whole(part->high) : data,
                              part->scales != NULL ? gpu_whole(part->scales) : data, r->y};
    const uint32_t params[] = {(uint32_t)r->weight->k, (uint32_t)part->stride};
    gpu_record_dispatch(rec, pipeline, views, params, (uint32_t)part->stride / 64,
                        (uint32_t)r->weight->k / 32, 1);
}

static void run_entries(check_context *c, weight_format format)
{
    const uint32_t k = format.scale >= SCALE_K ? 768 : 256;
    const uint64_t stride = weight_stride(HALVES_COLS);
    check_that(c, check_entries_kernel() != NULL, "the kernel's text has changed");
    const check_weight w = check_make_weight(c, format, HALVES_COLS, k, 17);
    double *row = check_alloc(c, k, sizeof *row);
    if (c->status != TEMPER_OK || !c->result->ok)
        return;
    halves_run r = {.weight = w.weight, .y = check_output(c, k * stride * 2)};
    const uint16_t *halves = check_go(c, record_entries, &r, r.y, 0, 0);
    for (uint32_t n = 0; halves != NULL && n < HALVES_COLS; n++) {
        for (uint32_t i = 0; i < k; i++)
            row[i] = (double)f16_to_f32(halves[(i / 32 * stride + n) * 32 + i % 32]);
        compare_row(c, format, n, row, w.values + (uint64_t)n * k, k);
    }
}

static void record_identity(gpu_recorder *rec, void *user)
{
    const halves_run *r = user;
    op_record_product(rec, r->weight, r->row, &(op_prologue){0}, r->x, r->y, (uint32_t)r->weight->k,
                      0, HALVES_COLS, OP_WRITE, &r->with);
}

/* The weight times the identity: each result is one half. */
static void run_identity(check_context *c, const op_kernel_row *row_of, weight_format format)
{
    halves_run r = {.row = row_of};
    if (!check_can_run(c, r.row))
        return;
    const uint32_t k = r.row->tile->units > 1 ? 1024 : format.scale >= SCALE_K ? 768 : 256;
    const check_weight w = check_make_weight(c, format, HALVES_COLS, k, 17);
    float *x = check_alloc(c, (uint64_t)k * k, sizeof *x);
    double *row = check_alloc(c, k, sizeof *row);
    if (c->status != TEMPER_OK)
        return;
    for (uint64_t d = 0; d < k; d++)
        x[d * k + d] = 1.0f;
    r.weight = w.weight;
    r.x = check_input(c, x, (uint64_t)k * k * 4);
    r.y = check_output(c, (uint64_t)k * HALVES_COLS * 4);
    give_scratch(c, &r.with, r.row, w.weight, k);
    const float *got = check_go(c, record_identity, &r, r.y, 0, 0);
    for (uint32_t n = 0; got != NULL && n < HALVES_COLS; n++) {
        for (uint32_t d = 0; d < k; d++)
            row[d] = (double)got[d * HALVES_COLS + n];
        compare_row(c, format, n, row, w.values + (uint64_t)n * k, k);
    }
}

static void run_halves(check_context *c, uint32_t i)
{
    if (i >= INPUTS + check_format_count) {
        const check_format *format = NULL;
        const op_kernel_row *row = small_row(i - INPUTS - check_format_count, &format);
        run_identity(c, row, format->format);
        return;
    }
    if (!(gpu_device_features(c->device) & GPU_FEATURE_F16)) {
        c->result->skipped = true;
        snprintf(c->result->detail, sizeof c->result->detail, "this device has no f16");
    } else if (i < JOINED) {
        run_inputs(c, (op_prologue_kind)(i % PROLOGUES), input_sizes[i / PROLOGUES]);
    } else if (i < INPUTS) {
        run_joined(c, i - JOINED);
    } else {
        run_entries(c, check_formats[i - INPUTS].format);
    }
}

const check_group check_halves = {"matmul", halves_count, describe_halves, run_halves};

/* ---- what the device is trusted with --------------------------------------------------------- */

static const temper_lossy agreement_lossy[] = {TEMPER_LOSSY_NONE, TEMPER_LOSSY_F16_SUMS};
enum { AGREEMENTS = 2 * sizeof agreement_lossy / sizeof agreement_lossy[0] };

static uint32_t agreement_count(void)
{
    return AGREEMENTS;
}

static void describe_agreement(uint32_t i, check_case *out)
{
    const temper_lossy lossy = agreement_lossy[i / 2];
    snprintf(out->name, sizeof out->name, "%s%s%scheck: a %s",
             lossy != TEMPER_LOSSY_NONE ? "lossy " : "", temper_lossy_name(lossy),
             lossy != TEMPER_LOSSY_NONE ? ": " : "",
             i % 2 == 0 ? "right kernel is trusted" : "wrong kernel is refused");
    out->cost = CHECK_NORMAL;
}

/* Wrong: what is left out is least to be seen at the largest K. */
static void run_agreement(check_context *c, uint32_t i)
{
    const temper_lossy lossy = agreement_lossy[i / 2];
    const bool wrong = i % 2 == 1;
    const op_kernel_row *row = check_plain_row(OP_TILE_16, lossy != TEMPER_LOSSY_NONE, wrong);
    bool agrees = wrong;
    if (!check_can_run(c, row))
        return;
    c->status = op_row_agrees(c->device, row, lossy, &agrees, c->err);
    check_that(c, agrees != wrong, "%s", wrong ? "it was trusted" : "it was refused");
}

const check_group check_agreement = {"matmul", agreement_count, describe_agreement, run_agreement};
