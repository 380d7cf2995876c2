/*
 * case_elementwise.c - the gate and the sum.
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

static void gate_run(check_context *c, uint32_t i)
{
    const size_case *g = &gate_cases[i];
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
    const float *out = check_go(c, record_gate, &r, r.out, 5.0 * (double)n, 12.0 * (double)n);
    ref_silu_gate(gate_up, g->rows, g->f, want);
    check_bounds(c, out, want, n, 1e-20, 2e-5); /* exp of WGSL: 3 + 2 |x| units in the last place */
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
const check_group check_add = {"add", add_count, add_describe, add_run};
