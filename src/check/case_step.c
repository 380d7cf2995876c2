/*
 * case_step.c - op_rope_attention: each row a sequence of its own, whose positions before its last
 * are in the cache and whose last is on its way there.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "check/cache.h"

typedef struct step_case {
    const char *name;
    uint32_t q_heads, kv_heads, head_dim, rotary_dim;
    uint32_t positions[8];
    uint32_t rows;
    uint32_t window; /* 0: all positions */
    float softcap;   /* 0: none */
    float magnitude;
} step_case;

static const step_case cases[] = {
    {"the first token", 6, 2, 16, 16, {0}, 1, 0, 0, 1},
    {"the second token", 9, 3, 64, 64, {1}, 1, 0, 0, 1},
    {"heads of 4 at 300", 8, 4, 4, 4, {300}, 1, 0, 0, 1},
    {"heads of 20 at 299", 5, 1, 20, 20, {299}, 1, 0, 0, 1},
    {"smollm2 at 1000", 9, 3, 64, 64, {1000}, 1, 0, 0, 1},
    {"llama 1b at 127", 32, 8, 64, 64, {127}, 1, 0, 0, 1},
    {"llama 1b at 4095", 32, 8, 64, 64, {4095}, 1, 0, 0, 1},
    {"llama 1b at 8191", 32, 8, 64, 64, {8191}, 1, 0, 0, 1},
    {"heads of 80 at 511", 4, 4, 80, 80, {511}, 1, 0, 0, 1},
    {"half of a head turns, 96 at 600", 4, 2, 96, 48, {600}, 1, 0, 0, 1.19f},
    {"heads of 128 at 1537", 16, 8, 128, 128, {1537}, 1, 0, 0, 1},
    {"heads of 256 at 700", 4, 1, 256, 256, {700}, 1, 0, 0, 1},
    {"heads of 192 at 255", 2, 1, 192, 192, {255}, 1, 0, 0, 1},
    {"nothing turns", 4, 4, 16, 0, {256}, 1, 0, 0, 1},
    {"7 heads on 1", 7, 1, 64, 64, {2000}, 1, 0, 0, 1},
    {"9 heads on 1", 9, 1, 16, 16, {900}, 1, 0, 0, 1},
    {"window 1", 6, 2, 16, 16, {300}, 1, 1, 0, 1},
    {"window 2", 6, 2, 16, 16, {256}, 1, 2, 0, 1},
    {"window 512 at 3000, 256", 4, 1, 256, 256, {3000}, 1, 512, 0, 1},
    {"window past the cache", 6, 2, 16, 16, {40}, 1, 1 << 20, 0, 1},
    {"softcap 5", 6, 2, 32, 32, {290}, 1, 0, 5, 1},
    {"softcap 50, window 100", 6, 2, 32, 32, {290}, 1, 100, 50, 1},
    {"eight sequences", 9, 3, 64, 64, {0, 1, 2, 255, 256, 257, 1000, 40}, 8, 0, 0, 1},
    {"six sequences of 8 heads", 8, 8, 32, 32, {511, 512, 513, 5, 3000, 1}, 6, 0, 0, 1},
    {"five sequences, window 70", 6, 2, 16, 16, {69, 70, 71, 600, 3}, 5, 70, 0, 1},
};
enum { CASES = sizeof cases / sizeof *cases };

static uint32_t count(void)
{
    return CASES * OP_CACHE_TYPES;
}

static void describe(uint32_t i, check_case *out)
{
    const op_cache_type type = (op_cache_type)(i / CASES);
    snprintf(out->name, sizeof out->name, "step, %s: %s", op_cache_type_name(type),
             cases[i % CASES].name);
}

typedef struct step_run {
    op_rope_attention_views views;
    op_rope_shape rope;
    op_attention_shape attention;
} step_run;

static void record(gpu_recorder *rec, void *user)
{
    const step_run *r = user;
    op_rope_attention(rec, &r->views, &r->rope, &r->attention);
}

/* What the case is about, as host and device have it. */
typedef struct step_data {
    ref_heads heads;
    check_cache cache;
    uint32_t info[16];
    double inv_freq[128];
    op_turns turns[128];
    const float *qkv;
    uint32_t *k, *v; /* before the step */
} step_data;

/* K or V before the step: random before each row's position, NaN from there on. */
static uint32_t *before(check_context *c, const step_data *d, uint32_t seed)
{
    const check_cache *cache = &d->cache;
    float *values = check_alloc(c, cache->values, sizeof *values);
    for (uint64_t i = 0; values != NULL && i < cache->values; i++)
        values[i] = NAN;
    for (uint32_t r = 0; values != NULL && r < d->heads.rows; r++)
        for (uint32_t p = 0; p < d->info[2 * r]; p++)
            for (uint32_t h = 0; h < d->heads.kv_heads; h++) {
                const uint64_t at = check_cache_at(cache, d->info[2 * r + 1], p, h);
                for (uint32_t i = 0; i < d->heads.head_dim; i++)
                    values[at + i] = check_random_float(seed, at + i);
            }
    return values != NULL ? check_cache_encode(c, cache, values) : NULL;
}

static void prepare(check_context *c, const step_case *k, op_cache_type type, step_data *d)
{
    uint32_t longest = 0;
    for (uint32_t r = 0; r < k->rows; r++)
        longest = k->positions[r] >= longest ? k->positions[r] + 1 : longest;
    d->heads = (ref_heads){k->rows, k->q_heads, k->kv_heads, k->head_dim, k->rotary_dim};
    d->cache = check_make_cache(c, type, d->heads, k->rows, longest, 512);
    for (uint32_t r = 0; r < k->rows; r++) {
        d->info[2 * r] = k->positions[r];
        d->info[2 * r + 1] = check_table_offset(&d->cache, r);
    }
    for (uint32_t p = 0; p < k->rotary_dim / 2; p++) {
        d->inv_freq[p] = pow(1e4, -2.0 * p / k->rotary_dim);
        d->turns[p] = op_turns_of(d->inv_freq[p]);
    }
    d->qkv = check_random(c, (uint64_t)k->rows * (k->q_heads + 2 * k->kv_heads) * k->head_dim, 91);
    d->k = before(c, d, 92);
    d->v = before(c, d, 93);
}

/* K or V after the step in f32: what was there, and each row's own, rounded as it was stored. */
static float *after(check_context *c, const step_data *d, const uint32_t *words, double *stored)
{
    float *values = check_cache_decode(c, &d->cache, words);
    for (uint32_t r = 0; values != NULL && stored != NULL && r < d->heads.rows; r++)
        for (uint32_t h = 0; h < d->heads.kv_heads; h++) {
            const uint64_t at = check_cache_at(&d->cache, d->info[2 * r + 1], d->info[2 * r], h);
            for (uint32_t i = 0; i < d->heads.head_dim; i++)
                values[at + i] = (float)stored[at + i];
            check_cache_round(&d->cache, values + at);
        }
    return values;
}

static double *widened(check_context *c, const check_cache *cache, const uint32_t *words)
{
    const float *values = check_cache_decode(c, cache, words);
    double *wide = check_alloc(c, cache->values, sizeof *wide);
    for (uint64_t i = 0; values != NULL && wide != NULL && i < cache->values; i++)
        wide[i] = (double)values[i];
    return wide;
}

static void run(check_context *c, uint32_t i)
{
    const step_case *k = &cases[i % CASES];
    step_data d = {0};
    prepare(c, k, (op_cache_type)(i / CASES), &d);
    const uint64_t q_values = (uint64_t)k->rows * k->q_heads * k->head_dim;
    if (c->status != TEMPER_OK)
        return;
    step_run r = {
        .rope = {.rows = k->rows,
                 .q_heads = k->q_heads,
                 .kv_heads = k->kv_heads,
                 .head_dim = k->head_dim,
                 .rotary_dim = k->rotary_dim,
                 .magnitude = k->magnitude,
                 .cache = d.cache.type},
        .attention = {.rows = k->rows,
                      .q_heads = k->q_heads,
                      .kv_heads = k->kv_heads,
                      .head_dim = k->head_dim,
                      .scale = 1.0f / sqrtf((float)k->head_dim),
                      .longest = d.cache.sequence_blocks * OP_CACHE_BLOCK,
                      .sequences = k->rows,
                      .window = k->window,
                      .softcap = k->softcap,
                      .cache = d.cache.type},
    };
    r.views = (op_rope_attention_views){
        .qkv = check_input(c, d.qkv, (q_values + 2ull * k->rows * k->kv_heads * k->head_dim) * 4),
        .turns = check_input(c, d.turns, sizeof d.turns),
        .row_info = check_input(c, d.info, k->rows * 8),
        .block_table = check_input(c, d.cache.table, d.cache.table_words * 4),
        .k_cache = check_input(c, d.k, d.cache.bytes),
        .v_cache = check_input(c, d.v, d.cache.bytes),
        .q = check_output(c, q_values * 4),
        .scratch = check_output(c, op_attention_scratch_bytes(&r.attention)),
        .out = check_output(c, q_values * 4),
    };
    double seen = 0;
    for (uint32_t row = 0; row < k->rows; row++)
        seen += fmin(k->positions[row] + 1.0, k->window > 0 ? (double)k->window : INFINITY);
    const double cached = 2.0 * seen / OP_CACHE_BLOCK *
                          (double)op_cache_block_bytes(d.cache.type, k->kv_heads, k->head_dim);
    const float *out = check_go(c, record, &r, r.views.out, 4.0 * seen * k->q_heads * k->head_dim,
                                cached + 8.0 * (double)q_values);
    const uint32_t *k_got = check_read(c, r.views.k_cache), *v_got = check_read(c, r.views.v_cache);
    double *k_want = widened(c, &d.cache, d.k), *v_want = widened(c, &d.cache, d.v);
    double *q_want = check_alloc(c, q_values, sizeof *q_want),
           *want = check_alloc(c, q_values, sizeof *want);
    float *q = check_alloc(c, q_values, sizeof *q);
    if (c->status != TEMPER_OK)
        return;
    ref_rope_store(d.qkv, d.inv_freq, (double)k->magnitude, d.info, d.cache.table, &d.heads, q_want,
                   k_want, v_want);
    check_cache_stored(c, &d.cache, k_got, k_want, true);
    check_cache_stored(c, &d.cache, v_got, v_want, false);
    for (uint64_t j = 0; j < q_values; j++)
        q[j] = (float)q_want[j];
    const float *keys = after(c, &d, d.k, k_want), *values = after(c, &d, d.v, v_want);
    if (c->status != TEMPER_OK)
        return;
    const ref_scores scores = {(double)r.attention.scale, k->window, (double)k->softcap};
    ref_attention(q, keys, values, d.info, d.cache.table, &d.heads, &scores, want);
    /* Drivers fold packing and unpacking of halves into nothing: the row's own k and v, of sizes up
     * to 1, may then count as they were before they were rounded, half of 2^-10 away. */
    const double own = d.cache.type == OP_CACHE_F16 ? 0x1p-11 : 1e-5;
    check_bounds(c, out, want, q_values, own, 1e-3);
}

const check_group check_step_of_attention = {"attention", count, describe, run};
