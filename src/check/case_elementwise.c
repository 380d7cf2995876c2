/*
 * case_elementwise.c - gates, gelu, sums, learned positions, caps.
 */
#include <math.h>
#include <stdio.h>

#include "check/context.h"
#include "ref/ref.h"

typedef struct size_case {
    const char *name;
    uint32_t rows, f;
    bool extreme;
} size_case;

static const size_case gate_cases[] = {
    {"1x1536", 1, 1536, false},
    {"128x1536", 128, 1536, false},
    {"3x1", 3, 1, false},
    {"5x67", 5, 67, false},
    {"1100x4096, groups above 65535", 1100, 4096, false},
    {"-50 to 50, infinities, NaN, 1e4", 3, 1000, true},
};

static const size_case add_cases[] = {
    {"576", 1, 576, false},
    {"1", 1, 1, false},
    {"65", 1, 65, false},
    {"4194309, groups above 65535", 1, 4194309, false},
    {"infinities and NaN", 3, 1000, true},
    {"nothing", 0, 0, false},
};

static uint32_t gate_count(void)
{
    return sizeof gate_cases / sizeof *gate_cases;
}

static uint32_t add_count(void)
{
    return sizeof add_cases / sizeof *add_cases;
}

static void gate_describe(uint32_t i, check_case *out)
{
    snprintf(out->name, sizeof out->name, "%s", gate_cases[i].name);
}

static void add_describe(uint32_t i, check_case *out)
{
    snprintf(out->name, sizeof out->name, "%s", add_cases[i].name);
}

typedef struct element_run {
    gpu_view a, b, out;
    uint32_t rows, f;
} element_run;

static void record_gate(gpu_recorder *rec, void *user)
{
    const element_run *r = user;
    op_silu_gate(rec, r->a, r->out, r->rows, r->f);
}

static void record_gelu_gate(gpu_recorder *rec, void *user)
{
    const element_run *r = user;
    op_gelu_gate(rec, r->a, r->out, r->rows, r->f);
}

static void record_gelu(gpu_recorder *rec, void *user)
{
    const element_run *r = user;
    op_gelu(rec, r->a, r->out, (uint64_t)r->rows * r->f);
}

static void record_bias(gpu_recorder *rec, void *user)
{
    const element_run *r = user;
    op_bias(rec, r->out, r->b, r->rows, r->f);
}

static void record_softcap(gpu_recorder *rec, void *user)
{
    const element_run *r = user;
    op_softcap(rec, r->out, (uint64_t)r->rows * r->f, 30.0f);
}

static void record_add(gpu_recorder *rec, void *user)
{
    const element_run *r = user;
    op_add(rec, r->a, r->b, r->out, (uint64_t)r->rows * r->f);
}

/* A sweep over -50 .. 50 with the values that end in infinity and NaN in between. */
static void make_extreme(float *x, uint64_t n)
{
    static const float special[] = {INFINITY, -INFINITY, NAN,     1e4f,  -1e4f,
                                    0.0f,     -88.7f,    -104.0f, 88.7f, -3e38f};
    for (uint64_t i = 0; i < n; i++)
        x[i] = -50.0f + 100.0f * (float)i / (float)n;
    for (uint32_t i = 0; i < sizeof special / sizeof *special; i++)
        x[100 + 31 * i] = special[i];
}

static void run_gate(check_context *c, const size_case *g, check_record record,
                     void (*reference)(const float *gate_up, uint64_t rows, uint64_t f,
                                       double *out))
{
    const uint64_t n = (uint64_t)g->rows * g->f;
    float *gate_up = check_random(c, 2 * n, 31);
    double *want = check_alloc(c, n, sizeof *want);
    if (c->status != TEMPER_OK)
        return;
    for (uint64_t at = 0; at < 2 * n; at++)
        gate_up[at] *= 6;
    if (g->extreme)
        make_extreme(gate_up, g->f);
    element_run r = {.rows = g->rows, .f = g->f};
    r.a = check_input(c, gate_up, 2 * n * 4);
    r.out = check_output(c, n * 4);
    const float *out = check_go(c, record, &r, r.out, 5.0 * (double)n, 12.0 * (double)n);
    if (c->status != TEMPER_OK)
        return;
    reference(gate_up, g->rows, g->f, want);
    check_bounds(c, out, want, n, 1e-20, 2e-5); /* exp of WGSL: 3 + 2 |x| units in the last place */
}

static void gate_run(check_context *c, uint32_t i)
{
    run_gate(c, &gate_cases[i], record_gate, ref_silu_gate);
}

static void gelu_gate_run(check_context *c, uint32_t i)
{
    run_gate(c, &gate_cases[i], record_gelu_gate, ref_gelu_gate);
}

/* x of a case: six times what check_random gives, or the extremes. */
static float *make_x(check_context *c, const size_case *s)
{
    const uint64_t n = (uint64_t)s->rows * s->f;
    float *x = check_random(c, n, 33);
    for (uint64_t at = 0; x != NULL && at < n; at++)
        x[at] *= 6;
    if (x != NULL && s->extreme)
        make_extreme(x, s->f);
    return x;
}

static void gelu_run(check_context *c, uint32_t i)
{
    const size_case *g = &add_cases[i];
    const uint64_t n = (uint64_t)g->rows * g->f;
    const float *x = make_x(c, g);
    double *want = check_alloc(c, n, sizeof *want);
    element_run r = {.rows = g->rows, .f = g->f};
    r.a = check_input(c, x, n * 4);
    r.out = check_output(c, n * 4);
    const float *out = check_go(c, record_gelu, &r, r.out, 8.0 * (double)n, 8.0 * (double)n);
    if (c->status != TEMPER_OK)
        return;
    ref_gelu(x, n, want);
    check_bounds(c, out, want, n, 1e-20, 2e-5); /* as the gate */
}

static void bias_run(check_context *c, uint32_t i)
{
    const size_case *b = &gate_cases[i];
    const uint64_t n = (uint64_t)b->rows * b->f;
    const float *y = make_x(c, b), *bias = check_random(c, b->f, 34);
    double *want = check_alloc(c, n, sizeof *want);
    element_run r = {.rows = b->rows, .f = b->f};
    r.out = check_input(c, y, n * 4);
    r.b = check_input(c, bias, (uint64_t)b->f * 4);
    const float *out = check_go(c, record_bias, &r, r.out, (double)n, 8.0 * (double)n);
    if (c->status != TEMPER_OK)
        return;
    ref_bias(y, bias, b->rows, b->f, want);
    check_bounds(c, out, want, n, 1e-30, 1e-7);
}

static void softcap_run(check_context *c, uint32_t i)
{
    const size_case *s = &add_cases[i];
    const uint64_t n = (uint64_t)s->rows * s->f;
    const float *x = make_x(c, s);
    double *want = check_alloc(c, n, sizeof *want);
    element_run r = {.rows = s->rows, .f = s->f};
    r.out = check_input(c, x, n * 4);
    const float *out = check_go(c, record_softcap, &r, r.out, 8.0 * (double)n, 8.0 * (double)n);
    if (c->status != TEMPER_OK)
        return;
    ref_softcap(x, n, 30.0, want);
    check_bounds(c, out, want, n, 1e-5, 2e-6); /* 3e-7 of the cap */
}

/* ---- learned positions ----------------------------------------------------------------------- */

typedef struct position_case {
    const char *name;
    uint32_t rows, cols, positions;
    uint32_t first; /* position of the first row; the others count on, each third twice */
    bool nan;
} position_case;

static const position_case position_cases[] = {
    {"1x768 at 1023", 1, 768, 1024, 1023, false}, {"128x768 at 0", 128, 768, 1024, 0, false},
    {"5x67 at 3", 5, 67, 40, 3, false},           {"3x1", 3, 1, 3, 0, false},
    {"past the table", 9, 65, 20, 16, false},     {"NaN in one value", 5, 64, 20, 3, true},
};

static uint32_t position_count(void)
{
    return sizeof position_cases / sizeof *position_cases;
}

static void position_describe(uint32_t i, check_case *out)
{
    snprintf(out->name, sizeof out->name, "%s", position_cases[i].name);
}

typedef struct position_run {
    gpu_view x, table, info;
    uint32_t rows, cols, positions;
} position_run;

static void record_positions(gpu_recorder *rec, void *user)
{
    const position_run *r = user;
    op_add_positions(rec, r->x, r->table, r->info, r->rows, r->cols, r->positions);
}

static void run_positions(check_context *c, uint32_t i)
{
    const position_case *p = &position_cases[i];
    const uint64_t n = (uint64_t)p->rows * p->cols, size = (uint64_t)p->positions * p->cols;
    const float *x = check_random(c, n, 35);
    float *table = check_random(c, size, 36);
    uint32_t *info = check_alloc(c, p->rows, 8);
    double *want = check_alloc(c, n, sizeof *want);
    if (c->status != TEMPER_OK)
        return;
    for (uint32_t row = 0; row < p->rows; row++) {
        info[2 * row] = p->first + row - row / 3;
        info[2 * row + 1] = 77 + row;
    }
    if (p->nan)
        table[(uint64_t)(p->first + 1) * p->cols + 7] = NAN;
    position_run r = {.rows = p->rows, .cols = p->cols, .positions = p->positions};
    r.x = check_input(c, x, n * 4);
    r.table = check_input(c, table, size * 4);
    r.info = check_input(c, info, (uint64_t)p->rows * 8);
    const float *out = check_go(c, record_positions, &r, r.x, (double)n, 12.0 * (double)n);
    if (c->status != TEMPER_OK)
        return;
    ref_add_positions(x, table, info, p->rows, p->cols, p->positions, want);
    check_bounds(c, out, want, n, 1e-30, 1e-7);
}

static void add_run(check_context *c, uint32_t i)
{
    const size_case *a = &add_cases[i];
    const uint64_t n = (uint64_t)a->rows * a->f;
    float *x = check_random(c, n, 41), *y = check_random(c, n, 42);
    double *want = check_alloc(c, n, sizeof *want);
    if (c->status != TEMPER_OK)
        return;
    if (a->extreme)
        make_extreme(x, a->f);
    element_run r = {.rows = a->rows, .f = a->f};
    r.a = check_input(c, x, n * 4);
    r.b = check_input(c, y, n * 4);
    r.out = check_output(c, n * 4);
    const float *out = check_go(c, record_add, &r, r.out, (double)n, 12.0 * (double)n);
    ref_add(x, y, n, want);
    check_bounds(c, out, want, n, 1e-30, 1e-7);
}

const check_group check_silu_gate = {"silu_gate", gate_count, gate_describe, gate_run};
const check_group check_gelu_gate = {"gelu_gate", gate_count, gate_describe, gelu_gate_run};
const check_group check_gelu = {"gelu", add_count, add_describe, gelu_run};
const check_group check_add = {"add", add_count, add_describe, add_run};
const check_group check_bias = {"bias", gate_count, gate_describe, bias_run};
const check_group check_softcap = {"softcap", add_count, add_describe, softcap_run};
const check_group check_add_positions = {"add_positions", position_count, position_describe,
                                         run_positions};
