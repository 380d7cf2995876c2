/*
 * case_rope.c - rotary positions to 131071 against the double angle, and where k and v land in the
 * cache.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "check/cache.h"

typedef struct rope_case {
    const char *name;
    uint32_t q_heads, kv_heads, head_dim, rotary_dim;
    uint32_t positions[8]; /* one row each, of two sequences in turn */
    uint32_t rows;
    double base;
    bool nan;
    float magnitude;
} rope_case;

static const rope_case cases[] = {
    {"smollm2", 9, 3, 64, 64, {0, 0, 1, 2, 255, 256, 257, 1000}, 8, 1e5, false, 1},
    {"llama 1b, far positions",
     8,
     2,
     64,
     64,
     {0, 1, 4095, 8191, 65535, 100003, 131070, 131071},
     8,
     5e5,
     false,
     1},
    {"base 10, far positions",
     2,
     1,
     128,
     128,
     {131071, 131070, 99999, 77777, 65537, 50021, 31337, 3},
     8,
     10,
     false,
     1},
    {"heads of 4", 8, 4, 4, 4, {0, 1, 2, 3, 4, 5, 511, 512}, 8, 1e4, false, 1},
    {"half of a head turns", 4, 2, 96, 48, {0, 7, 300, 9000}, 4, 1e4, false, 1},
    {"nothing turns", 4, 4, 16, 0, {5, 6, 7, 8}, 4, 1e4, false, 1},
    {"one row", 9, 3, 64, 64, {513}, 1, 1e5, false, 1},
    {"NaN in one value", 3, 3, 8, 8, {5, 6, 7, 8}, 4, 1e4, true, 1},
    {"turned values grow, the others stay", 4, 2, 96, 72, {0, 7, 300, 9000}, 4, 1e4, false, 1.19f},
};

static uint32_t count(void)
{
    return sizeof cases / sizeof *cases;
}

static void describe(uint32_t i, check_case *out)
{
    snprintf(out->name, sizeof out->name, "%s", cases[i].name);
}

typedef struct rope_run {
    gpu_view qkv, turns, row_info, table, q_out, k_cache, v_cache;
    op_rope_shape shape;
} rope_run;

static void record(gpu_recorder *rec, void *user)
{
    const rope_run *r = user;
    op_rope_store(rec, r->qkv, r->turns, r->row_info, r->table, r->q_out, r->k_cache, r->v_cache,
                  &r->shape);
}

/* Positions that no row has must be as they were. */
static double *untouched(check_context *c, const float *values, uint64_t n)
{
    double *copy = check_alloc(c, n, sizeof *copy);
    for (uint64_t i = 0; copy != NULL && i < n; i++)
        copy[i] = (double)values[i];
    return copy;
}

static void run(check_context *c, uint32_t i)
{
    const rope_case *k = &cases[i];
    const ref_heads heads = {k->rows, k->q_heads, k->kv_heads, k->head_dim, k->rotary_dim};
    uint32_t longest = 0;
    for (uint32_t r = 0; r < k->rows; r++)
        longest = k->positions[r] >= longest ? k->positions[r] + 1 : longest;
    const check_cache cache = check_make_cache(c, heads, 2, longest, 61);
    const uint64_t width = (uint64_t)(k->q_heads + 2 * k->kv_heads) * k->head_dim;
    const uint64_t q_values = (uint64_t)k->rows * k->q_heads * k->head_dim;
    float *qkv = check_random(c, k->rows * width, 61);
    const float *before = check_random(c, cache.values, 62);
    double inv_freq[128];
    op_turns turns[128] = {{0, 0}};
    uint32_t info[16];
    for (uint32_t p = 0; p < k->rotary_dim / 2; p++) {
        inv_freq[p] = pow(k->base, -2.0 * p / k->rotary_dim);
        turns[p] = op_turns_of(inv_freq[p]);
    }
    for (uint32_t r = 0; r < k->rows; r++) {
        info[2 * r] = k->positions[r];
        info[2 * r + 1] = check_table_offset(&cache, r % 2);
    }
    if (c->status != TEMPER_OK)
        return;
    if (k->nan)
        qkv[width + 3] = NAN;
    rope_run r = {.shape = {.rows = k->rows,
                            .q_heads = k->q_heads,
                            .kv_heads = k->kv_heads,
                            .head_dim = k->head_dim,
                            .rotary_dim = k->rotary_dim,
                            .magnitude = k->magnitude}};
    r.qkv = check_input(c, qkv, k->rows * width * 4);
    r.turns = check_input(c, turns, sizeof turns);
    r.row_info = check_input(c, info, k->rows * 8);
    r.table = check_input(c, cache.table, cache.table_words * 4);
    r.q_out = check_output(c, q_values * 4);
    r.k_cache = check_input(c, before, cache.values * 4);
    r.v_cache = check_input(c, before, cache.values * 4);
    double *q_want = check_alloc(c, q_values, sizeof *q_want);
    double *k_want = untouched(c, before, cache.values),
           *v_want = untouched(c, before, cache.values);
    const float *q = check_go(c, record, &r, r.q_out, 3.0 * (double)(k->rows * width),
                              8.0 * (double)(k->rows * width));
    const float *k_got = check_read(c, r.k_cache), *v_got = check_read(c, r.v_cache);
    if (c->status != TEMPER_OK)
        return;
    ref_rope_store(qkv, inv_freq, (double)k->magnitude, info, cache.table, &heads, q_want, k_want,
                   v_want);
    /* Values are below 1.5, so this is the error of the angle and one rounding. */
    check_bounds(c, q, q_want, q_values, 1e-6, 1e-6);
    check_bounds(c, k_got, k_want, cache.values, 1e-6, 1e-6);
    check_bounds(c, v_got, v_want, cache.values, 1e-30, 1e-9);
}

const check_group check_rope_store = {"rope_store", count, describe, run};
