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
    uint32_t nan_head; /* 1 and up: that head of row 1 has a NaN; 0: none */
    float magnitude;
} rope_case;

static const rope_case cases[] = {
    {"smollm2", 9, 3, 64, 64, {0, 0, 1, 2, 255, 256, 257, 1000}, 8, 1e5, 0, 1},
    {"llama 1b, far positions",
     8,
     2,
     64,
     64,
     {0, 1, 4095, 8191, 65535, 100003, 131070, 131071},
     8,
     5e5,
     0,
     1},
    {"base 10, far positions",
     2,
     1,
     128,
     128,
     {131071, 131070, 99999, 77777, 65537, 50021, 31337, 3},
     8,
     10,
     0,
     1},
    {"heads of 4", 8, 4, 4, 4, {0, 1, 2, 3, 4, 5, 511, 512}, 8, 1e4, 0, 1},
    {"half of a head turns", 4, 2, 96, 48, {0, 7, 300, 9000}, 4, 1e4, 0, 1},
    {"nothing turns", 4, 4, 16, 0, {5, 6, 7, 8}, 4, 1e4, 0, 1},
    {"one row", 9, 3, 64, 64, {513}, 1, 1e5, 0, 1},
    {"NaN in one query", 3, 3, 8, 8, {5, 6, 7, 8}, 4, 1e4, 1, 1},
    {"NaN in one key", 3, 3, 72, 72, {5, 6, 7, 8}, 4, 1e4, 5, 1},
    {"NaN in one value", 3, 3, 72, 72, {5, 6, 7, 8}, 4, 1e4, 8, 1},
    {"heads of 20", 5, 1, 20, 20, {0, 254, 255, 256}, 4, 1e4, 0, 1},
    {"turned values grow, the others stay", 4, 2, 96, 72, {0, 7, 300, 9000}, 4, 1e4, 0, 1.19f},
};

enum { CASES = sizeof cases / sizeof *cases };

/* Every case with a cache of every type. */
static uint32_t count(void)
{
    return CASES * OP_CACHE_TYPES;
}

static op_cache_type type_of(uint32_t i)
{
    return (op_cache_type)(i / CASES);
}

static void describe(uint32_t i, check_case *out)
{
    if (type_of(i) == OP_CACHE_F32)
        snprintf(out->name, sizeof out->name, "%s", cases[i].name);
    else
        snprintf(out->name, sizeof out->name, "%s: %s", op_cache_type_name(type_of(i)),
                 cases[i % CASES].name);
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
    for (uint64_t i = 0; copy != NULL && values != NULL && i < n; i++)
        copy[i] = (double)values[i];
    return copy;
}

static void run(check_context *c, uint32_t i)
{
    const rope_case *k = &cases[i % CASES];
    const ref_heads heads = {k->rows, k->q_heads, k->kv_heads, k->head_dim, k->rotary_dim};
    uint32_t longest = 0;
    for (uint32_t r = 0; r < k->rows; r++)
        longest = k->positions[r] >= longest ? k->positions[r] + 1 : longest;
    const check_cache cache = check_make_cache(c, type_of(i), heads, 2, longest, 61);
    const uint64_t width = (uint64_t)(k->q_heads + 2 * k->kv_heads) * k->head_dim;
    const uint64_t q_values = (uint64_t)k->rows * k->q_heads * k->head_dim;
    float *qkv = check_random(c, k->rows * width, 61);
    const float *random = check_random(c, cache.values, 62);
    const uint32_t *before = random != NULL ? check_cache_encode(c, &cache, random) : NULL;
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
    if (k->nan_head > 0)
        qkv[width + (k->nan_head - 1) * k->head_dim + 3] = NAN;
    rope_run r = {.shape = {.rows = k->rows,
                            .q_heads = k->q_heads,
                            .kv_heads = k->kv_heads,
                            .head_dim = k->head_dim,
                            .rotary_dim = k->rotary_dim,
                            .magnitude = k->magnitude,
                            .cache = cache.type}};
    r.qkv = check_input(c, qkv, k->rows * width * 4);
    r.turns = check_input(c, turns, sizeof turns);
    r.row_info = check_input(c, info, k->rows * 8);
    r.table = check_input(c, cache.table, cache.table_words * 4);
    r.q_out = check_output(c, q_values * 4);
    r.k_cache = check_input(c, before, cache.bytes);
    r.v_cache = check_input(c, before, cache.bytes);
    double *q_want = check_alloc(c, q_values, sizeof *q_want);
    const float *was = check_cache_decode(c, &cache, before);
    double *k_want = untouched(c, was, cache.values), *v_want = untouched(c, was, cache.values);
    const float *q = check_go(c, record, &r, r.q_out, 3.0 * (double)(k->rows * width),
                              8.0 * (double)(k->rows * width));
    const uint32_t *k_got = check_read(c, r.k_cache), *v_got = check_read(c, r.v_cache);
    if (c->status != TEMPER_OK)
        return;
    ref_rope_store(qkv, inv_freq, (double)k->magnitude, info, cache.table, &heads, q_want, k_want,
                   v_want);
    /* Values are below 1.5, so this is the error of the angle and one rounding. */
    check_bounds(c, q, q_want, q_values, 1e-6, 1e-6);
    check_cache_stored(c, &cache, k_got, k_want, true);
    check_cache_stored(c, &cache, v_got, v_want, false);
}

const check_group check_rope_store = {"rope_store", count, describe, run};
