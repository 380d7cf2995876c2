/*
 * case_products.c - products of many rows through tiles in workgroup memory, each row of the table
 * by its name: on matrix units with f16 operands, and in f32. A row that the device lacks is
 * skipped, and says so.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/half.h"
#include "check/context.h"
#include "kernels/kernels.gen.h"
#include "op/rows.h"
#include "ref/ref.h"

enum kind {
    PLAIN,
    RAMP,     /* x is the golden cases' ramp */
    LARGE_X,  /* one row of x holds 7e4, one is about 1e-6, one is 0 */
    LARGE_W,  /* one row of W holds 1e5 and more, one is about 1e-7 (f32 weights) */
    PRODUCTS, /* every product is 300 * 300 */
    NAN_X,    /* one NaN in x: that row */
    INFINITE_X,
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

/* Each for every row. */
static const product_case cases[] = {
    {"golden 96x2048x256", "q4_f32_32", 96, 2048, 256, 2.3e-4, 1e-3, RAMP, OP_WRITE, 0, 0, 0},
    {"golden 70x1024x136", "q4_f32_32", 70, 1024, 136, 2.3e-4, 1e-3, RAMP, OP_WRITE, 0, 0, 0},
    {"golden, group 64", "q4_f32_64", 96, 2048, 256, 2.3e-4, 1e-3, RAMP, OP_WRITE, 0, 0, 0},
    {"golden, group 8", "q4_f32_8", 96, 2048, 256, 2.3e-4, 1e-3, RAMP, OP_WRITE, 0, 0, 0},
    {"whole tiles added", "q4_min_32", 128, 96, 256, 0, 0, PLAIN, OP_ACCUMULATE, 0, 0, 0},
    {"edges added", "q4_min_32", 131, 96, 259, 0, 0, PLAIN, OP_ACCUMULATE, 0, 0, 0},
    {"columns 4 to 260 of 264", "q8_f16_32", 128, 64, 256, 0, 0, PLAIN, OP_WRITE, 4, 4, 0},
    {"columns 3 to 260 of 265", "q8_f16_32", 128, 64, 257, 0, 0, PLAIN, OP_ACCUMULATE, 3, 5, 0},
    {"nine bands", "q4_f16_32", 1100, 32, 300, 0, 0, PLAIN, OP_WRITE, 0, 0, 0},
    {"rows of 7e4 and 1e-6", "q4_f16_32", 80, 256, 160, 0, 0, LARGE_X, OP_WRITE, 0, 0, 0},
    {"weights of 1e5 and 1e-7", "f32", 80, 256, 160, 0, 0, LARGE_W, OP_WRITE, 0, 0, 0},
    {"equal products", "f16", 80, 4096, 65, 0, 0, PRODUCTS, OP_WRITE, 0, 0, 0},
    {"NaN in x", "q4_min_32", 70, 64, 70, 0, 0, NAN_X, OP_WRITE, 0, 0, 0},
    {"infinity in x", "f16", 70, 64, 70, 0, 0, INFINITE_X, OP_WRITE, 0, 0, 0},
    {"two chunks", "q4_f16_32", 64, 2048, 16500, 0, 0, PLAIN, OP_WRITE, 0, 0, CHECK_HEAVY},
    {"512x2048x3072", "q4_f16_32", 512, 2048, 3072, 0, 0, PLAIN, OP_WRITE, 0, 0, CHECK_HEAVY},
    {"512x2048x2048", "q4_f16_32", 512, 2048, 2048, 0, 0, PLAIN, OP_ACCUMULATE, 0, 0, CHECK_HEAVY},
    {"512x2048x16384", "q4_f16_32", 512, 2048, 16384, 0, 0, PLAIN, OP_WRITE, 0, 0, CHECK_HEAVY},
    {"512x8192x2048", "q4_f16_32", 512, 8192, 2048, 0, 0, PLAIN, OP_ACCUMULATE, 0, 0, CHECK_HEAVY},
    {"2048x2048x8192", "q4_f16_32", 2048, 2048, 8192, 0, 0, PLAIN, OP_WRITE, 0, 0, CHECK_HEAVY},
    {"2048x2048x8192 f16", "f16", 2048, 2048, 8192, 0, 0, PLAIN, OP_WRITE, 0, 0, CHECK_HEAVY},
    {"16x2048x8192", "q4_f16_32", 16, 2048, 8192, 0, 0, PLAIN, OP_WRITE, 0, 0, CHECK_HEAVY},
    {"64x2048x8192", "q4_f16_32", 64, 2048, 8192, 0, 0, PLAIN, OP_WRITE, 0, 0, CHECK_HEAVY},
};

static const char *const row_names[] = {"half_matrix", "half_plain", "steel"};
enum {
    NAMED = sizeof cases / sizeof *cases,
    ROWS = sizeof row_names / sizeof *row_names,
};

/* After the named ones every format; all of them by each row. */
static uint32_t count(void)
{
    return ROWS * (NAMED + check_format_count);
}

static product_case get(uint32_t i)
{
    if (i < ROWS * NAMED)
        return cases[i / ROWS];
    const check_format *format = &check_formats[i / ROWS - NAMED];
    const uint32_t k = format->format.scale >= SCALE_K ? 768 : 256;
    return (product_case){
        .name = format->name, .format = format->name, .rows = 67, .k = k, .n = 131};
}

static void describe(uint32_t i, check_case *out)
{
    const product_case p = get(i);
    out->cost = p.cost;
    snprintf(out->name, sizeof out->name, "%s: %s", row_names[i % ROWS], p.name);
}

/* What product_half_matrix computes, without matrix units: so that the scales, the edges and the
 * sums around it are tested everywhere. */
static const char plain_source[] =
    "enable f16;\n"
    "struct Params { rows: u32, cols: u32, k: u32, to0: u32, pitch: u32, first_tile: u32,\n"
    "    tile_end: u32, }\n"
    "@group(0) @binding(0) var<storage, read> x: array<vec4<u32>>;\n"
    "@group(0) @binding(1) var<storage, read> w: array<vec4<u32>>;\n"
    "@group(0) @binding(2) var<storage, read_write> sums: array<f32>;\n"
    "@group(1) @binding(0) var<uniform> params: Params;\n"
    "fn wide(v: u32) -> vec2<f32> { return vec2<f32>(bitcast<vec2<f16>>(v)); }\n"
    "@compute @workgroup_size(128)\n"
    "fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,\n"
    "        @builtin(local_invocation_index) lane: u32) {\n"
    "    let tile = params.first_tile + group.y * groups.x + group.x;\n"
    "    if (tile >= params.tile_end) { return; }\n"
    "    let tiles_m = (params.rows + 127u) / 128u;\n"
    "    let c = tile / tiles_m * 128u + lane;\n"
    "    let words = params.k / 8u;\n"
    "    for (var i = 0u; i < 128u; i++) {\n"
    "        let r = tile % tiles_m * 128u + i;\n"
    "        let from_x = min(r, params.rows - 1u) * words;\n"
    "        let from_w = min(c, params.cols - 1u) * words;\n"
    "        var sum = 0.0;\n"
    "        for (var k = 0u; k < words; k++) {\n"
    "            let a = x[from_x + k];\n"
    "            let b = w[from_w + k];\n"
    "            sum += dot(wide(a.x), wide(b.x)) + dot(wide(a.y), wide(b.y)) +\n"
    "                   dot(wide(a.z), wide(b.z)) + dot(wide(a.w), wide(b.w));\n"
    "        }\n"
    "        sums[r * params.pitch + params.to0 + c] = sum;\n"
    "    }\n"
    "}\n";

/* A kernel outlives the devices that compiled it, and so do these. */
typedef struct own_row {
    gpu_kernel kernel;
    op_kernel_row row;
} own_row;

static const op_kernel_row *make_row(own_row *own, const char *source)
{
    own->kernel = kernel_product_half_matrix;
    own->kernel.name = "half_plain";
    own->kernel.source = source;
    own->kernel.needs = GPU_FEATURE_F16;
    own->row = (op_kernel_row){.name = "half_plain",
                               .kernel = &own->kernel,
                               .invocations = 128,
                               .tiles = OP_TILES_F16,
                               .tile_rows = 128,
                               .tile_cols = 128};
    return &own->row;
}

static own_row plain;

static const op_kernel_row *find_row(const char *name)
{
    if (strcmp(name, "half_plain") == 0)
        return make_row(&plain, plain_source);
    for (uint32_t i = 0; i < op_table_matmul.count; i++)
        if (strcmp(op_table_matmul.rows[i].name, name) == 0)
            return &op_table_matmul.rows[i];
    return NULL;
}

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
    op_record_product(rec, r->weight, r->row, r->x, r->y, r->of->rows, r->of->column, r->width,
                      r->of->mode, &r->with);
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
    const bool f32 = strcmp(r->row->name, "steel") == 0;
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

static void run(check_context *c, uint32_t i)
{
    const product_case p = get(i);
    product_run r = {.of = &p, .row = find_row(row_names[i % ROWS])};
    r.width = (uint64_t)p.column + p.n + p.more;
    if (!op_row_runs(c->device, r.row)) {
        c->result->skipped = true;
        snprintf(c->result->detail, sizeof c->result->detail, "this device has no row %s",
                 r.row->name);
        return;
    }
    const uint64_t xs = (uint64_t)p.rows * p.k, ys = p.rows * r.width;
    const check_weight w = make_weight(c, &p);
    float *x = p.kind == RAMP ? check_ramp(c, xs) : check_random(c, xs, 11);
    float *start = check_random(c, ys, 13);
    if (c->status != TEMPER_OK)
        return;
    shape_x(&p, x);
    r.weight = w.weight;
    r.x = check_input(c, x, xs * 4);
    r.y = check_input(c, start, ys * 4);
    const op_product_bytes bytes = op_product_scratch_bytes(c->device, r.row, p.n, p.k, p.rows);
    r.with.scratch = check_output(c, bytes.scratch);
    r.with.sums = check_output(c, bytes.sums > 0 ? bytes.sums : 4);
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

/* ---- the halves themselves ------------------------------------------------------------------- */

static uint32_t halves_count(void)
{
    return check_format_count;
}

static void describe_halves(uint32_t i, check_case *out)
{
    snprintf(out->name, sizeof out->name, "halves: %s", check_formats[i].name);
}

enum { HALVES_ROWS = 5, HALVES_COLS = 9 };

typedef struct halves_run {
    const op_weight *weight;
    gpu_view x, scratch;
} halves_run;

static void record_halves(gpu_recorder *rec, void *user)
{
    const halves_run *r = user;
    op_record_halves(rec, r->weight, r->x, HALVES_ROWS, r->scratch);
}

/* How far a half may be from an element. Rounding is off by a 2048th at most: of the element, and
 * again where its scale is no f16; with a minimum also of the product and the minimum that make it,
 * which pass the row's largest value by little. */
static double halves_bound(weight_format format, double element, double largest)
{
    const bool f16_scale = format.scale == SCALE_F16 || format.scale == SCALE_F16_MIN;
    const bool minimum = format.scale == SCALE_F16_MIN || format.scale == SCALE_K_MIN;
    const double once = (fabs(element) + (minimum ? 2 * largest : 0)) / 2048;
    return f16_scale || format.scale == SCALE_NONE ? once : 2 * once;
}

/* A row times its scale, which is a power of two, is the row. */
static void compare_halves(check_context *c, weight_format format, const uint16_t *halves,
                           float scale, const float *row, uint32_t k)
{
    int exponent = 0;
    double largest = 0;
    check_that(c, frexpf(scale, &exponent) == 0.5f, "scale %g is no power of two", (double)scale);
    for (uint32_t i = 0; i < k; i++)
        largest = fmax(largest, fabs((double)row[i]));
    for (uint32_t i = 0; i < k; i++) {
        const double got = (double)f16_to_f32(halves[i]) * (double)scale;
        const double off = fabs(got - (double)row[i]);
        check_that(c, off <= halves_bound(format, (double)row[i], largest) + (double)scale * 6e-8,
                   "element %u is %.9g, not %.9g", i, got, (double)row[i]);
    }
}

static void run_halves(check_context *c, uint32_t i)
{
    const weight_format format = check_formats[i].format;
    const uint32_t k = format.scale >= SCALE_K ? 768 : 256;
    if (!(gpu_device_features(c->device) & GPU_FEATURE_F16)) {
        c->result->skipped = true;
        snprintf(c->result->detail, sizeof c->result->detail, "this device has no f16");
        return;
    }
    const check_weight w = check_make_weight(c, format, HALVES_COLS, k, 17);
    float *x = check_random(c, (uint64_t)HALVES_ROWS * k, 19);
    if (c->status != TEMPER_OK)
        return;
    for (uint32_t j = 0; j < k; j++) {
        x[k + j] *= 7e4f;
        x[2 * k + j] *= 1e-6f;
        x[3 * k + j] = 0.0f;
    }
    halves_run r = {.weight = w.weight, .x = check_input(c, x, (uint64_t)HALVES_ROWS * k * 4)};
    const op_halves at = op_halves_of(c->device, w.weight, HALVES_ROWS);
    r.scratch = check_output(c, at.size);
    const uint8_t *out = check_go(c, record_halves, &r, r.scratch, 0, 0);
    for (uint32_t row = 0; out != NULL && row < HALVES_ROWS + HALVES_COLS; row++) {
        const bool of_x = row < HALVES_ROWS;
        const uint64_t n = of_x ? row : row - HALVES_ROWS;
        float scale;
        memcpy(&scale, out + (of_x ? at.x_scale : at.w_scale) + n * 4, sizeof scale);
        compare_halves(c, of_x ? *check_format_named("f32") : format,
                       (const uint16_t *)(out + (of_x ? at.x : at.w) + n * k * 2), scale,
                       (of_x ? x : w.values) + n * k, k);
    }
}

const check_group check_halves = {"matmul", halves_count, describe_halves, run_halves};

/* ---- what the device is trusted with --------------------------------------------------------- */

static const char *const agreement_names[] = {"check: a right kernel is trusted",
                                              "check: a wrong kernel is refused"};

static uint32_t agreement_count(void)
{
    return 2;
}

static void describe_agreement(uint32_t i, check_case *out)
{
    snprintf(out->name, sizeof out->name, "%s", agreement_names[i]);
}

/* Wrong: the first eight of K are left out, of which least is to be seen at the largest K. */
static void run_agreement(check_context *c, uint32_t i)
{
    static own_row wrong;
    static char wrong_source[sizeof plain_source];
    if (!(gpu_device_features(c->device) & GPU_FEATURE_F16)) {
        c->result->skipped = true;
        snprintf(c->result->detail, sizeof c->result->detail, "this device has no f16");
        return;
    }
    memcpy(wrong_source, plain_source, sizeof plain_source);
    char *place = strstr(wrong_source, "var k = 0u");
    check_that(c, place != NULL, "no place for the mistake");
    if (place == NULL)
        return;
    memcpy(place, "var k = 1u", 10);
    bool agrees = i == 1;
    const op_kernel_row *row =
        i == 0 ? make_row(&plain, plain_source) : make_row(&wrong, wrong_source);
    c->status = op_row_agrees(c->device, row, &agrees, c->err);
    check_that(c, agrees == (i == 0), "%s", i == 0 ? "it was refused" : "it was trusted");
}

const check_group check_agreement = {"matmul", agreement_count, describe_agreement, run_agreement};
