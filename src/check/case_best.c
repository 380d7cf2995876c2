/*
 * case_best.c - biases on logits, and the largest logits with the chosen one before them.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "check/context.h"
#include "ref/ref.h"

/* ---- bias_logits ---------------------------------------------------------------------------- */

static const struct {
    const char *name;
    uint32_t vocab, row, first, count;
} bias_cases[] = {
    {"no pair", 100, 0, 0, 0},
    {"one pair", 100, 0, 0, 1},
    {"300 pairs", 49152, 0, 0, 300},
    {"ids past the vocabulary", 50, 0, 0, 70},
    {"the fourth row, pairs from the tenth on", 1003, 3, 9, 70},
};

static uint32_t bias_count(void)
{
    return sizeof bias_cases / sizeof *bias_cases;
}

static void bias_describe(uint32_t i, check_case *out)
{
    snprintf(out->name, sizeof out->name, "%s", bias_cases[i].name);
}

typedef struct bias_run_of {
    gpu_view source, logits, pairs;
    uint32_t vocab, row, first, count;
} bias_run_of;

static void bias_record(gpu_recorder *rec, void *user)
{
    const bias_run_of *r = user;
    gpu_record_copy(rec, r->source, r->logits);
    op_bias_logits(rec, r->logits, r->pairs, r->row, r->vocab, r->first, r->count);
}

static void bias_run(check_context *c, uint32_t i)
{
    const uint32_t vocab = bias_cases[i].vocab, row = bias_cases[i].row,
                   first = bias_cases[i].first, n = first + bias_cases[i].count;
    const uint64_t values = ((uint64_t)row + 1) * vocab, row0 = (uint64_t)row * vocab;
    float *logits = check_random(c, values, 411);
    op_logit_bias *pairs = check_alloc(c, n + 1, sizeof *pairs);
    uint32_t *ids = check_alloc(c, n + 1, sizeof *ids);
    float *biases = check_alloc(c, n + 1, sizeof *biases);
    double *want = check_alloc(c, values, sizeof *want);
    if (c->status != TEMPER_OK)
        return;
    for (uint32_t p = 0; p < n; p++) {
        ids[p] = p * 157 % 50000;
        biases[p] = check_random_float(412, p) * 5.0f;
        pairs[p] = (op_logit_bias){ids[p], biases[p]};
    }
    for (uint64_t v = 0; v < values; v++)
        want[v] = (double)logits[v];
    bias_run_of r = {.vocab = vocab, .row = row, .first = first, .count = n - first};
    r.source = check_input(c, logits, values * 4);
    r.pairs = check_input(c, pairs, (uint64_t)(n + 1) * sizeof *pairs);
    r.logits = check_output(c, values * 4);
    const float *out = check_go(c, bias_record, &r, r.logits, n, 16.0 * n);
    ref_bias_logits(logits + row0, ids + first, biases + first, n - first, vocab, want + row0);
    check_bounds(c, out, want, values, 1e-6, 1e-6);
}

const check_group check_bias_logits = {"bias_logits", bias_count, bias_describe, bias_run};

/* ---- best ----------------------------------------------------------------------------------- */

static const struct {
    const char *name;
    uint32_t vocab, count, chosen, first, rows;
    float levels; /* above 0: logits are whole multiples of this, so that many are equal */
} best_cases[] = {
    {"the chosen alone", 300, 0, 17, 0, 1, 0.0f},
    {"5 of 49152", 49152, 5, 49151, 0, 1, 0.0f},
    {"20 of 262144", 262144, 20, 3, 0, 1, 0.0f},
    {"equal logits, lowest id first", 1000, 20, 500, 0, 1, 0.5f},
    {"more places than tokens", 7, 10, 2, 0, 1, 0.0f},
    {"a chosen id past the vocabulary", 100, 3, 100, 0, 1, 0.0f},
    {"NaN and infinities among them", 513, 12, 9, 0, 1, -1.0f},
    {"five rows behind seven others", 1003, 9, 250, 7, 5, 0.25f},
};

static uint32_t best_count(void)
{
    return sizeof best_cases / sizeof *best_cases;
}

static void best_describe(uint32_t i, check_case *out)
{
    snprintf(out->name, sizeof out->name, "%s", best_cases[i].name);
}

typedef struct best_run_of {
    gpu_view logits, chosen, out;
    uint32_t first, rows, vocab, count;
} best_run_of;

static void best_record(gpu_recorder *rec, void *user)
{
    const best_run_of *r = user;
    op_best(rec, r->logits, r->chosen, r->out, r->first, r->rows, r->vocab, r->count);
}

/* The logits of all rows; a row's values depend on its place. */
static float *best_logits(check_context *c, uint32_t i)
{
    const uint64_t values = (uint64_t)best_cases[i].rows * best_cases[i].vocab;
    const float levels = best_cases[i].levels;
    float *logits = check_random(c, values, 413);
    for (uint64_t v = 0; logits != NULL && v < values && levels > 0.0f; v++)
        logits[v] = floorf(logits[v] / levels) * levels;
    if (logits != NULL && levels < 0.0f) {
        logits[7] = NAN;
        logits[100] = INFINITY;
        for (uint64_t v = 200; v < values; v++)
            logits[v] = -INFINITY;
    }
    return logits;
}

static void best_run(check_context *c, uint32_t i)
{
    const uint32_t vocab = best_cases[i].vocab, n = best_cases[i].count;
    const uint32_t first = best_cases[i].first, rows = best_cases[i].rows;
    float *logits = best_logits(c, i);
    uint32_t *chosen = check_alloc(c, first + rows, sizeof *chosen);
    uint32_t *ids = check_alloc(c, n + 1, sizeof *ids);
    if (c->status != TEMPER_OK)
        return;
    for (uint32_t r = 0; r < rows; r++)
        chosen[first + r] = best_cases[i].chosen + r;
    best_run_of run = {.first = first, .rows = rows, .vocab = vocab, .count = n};
    run.logits = check_input(c, logits, (uint64_t)rows * vocab * 4);
    run.chosen = check_input(c, chosen, (first + rows) * sizeof *chosen);
    run.out = check_output(c, (uint64_t)(first + rows) * (n + 1) * sizeof(op_scored));
    const op_scored *out =
        check_go(c, best_record, &run, run.out, (double)rows * vocab * n, 4.0 * rows * vocab * n);
    for (uint32_t r = 0; out != NULL && r < rows; r++) {
        const float *row = logits + (uint64_t)r * vocab;
        const op_scored *got = out + (uint64_t)(first + r) * (n + 1);
        ids[0] = chosen[first + r];
        ref_best(row, vocab, n, ids + 1);
        for (uint32_t p = 0; p <= n; p++) {
            const bool none = ids[p] >= vocab;
            const bool same = none ? isnan(got[p].logit)
                                   : memcmp(&got[p].logit, &row[ids[p]], sizeof(float)) == 0;
            check_that(c, got[p].id == ids[p] && same, "row %u: place %u is id %u (%g), not %u", r,
                       p, got[p].id, (double)got[p].logit, ids[p]);
        }
    }
}

const check_group check_best = {"best", best_count, best_describe, best_run};
