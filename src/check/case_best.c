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
    uint32_t vocab, count;
} bias_cases[] = {
    {"no pair", 100, 0},
    {"one pair", 100, 1},
    {"300 pairs", 49152, 300},
    {"ids past the vocabulary", 50, 70},
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
    uint32_t vocab, count;
} bias_run_of;

static void bias_record(gpu_recorder *rec, void *user)
{
    const bias_run_of *r = user;
    gpu_record_copy(rec, r->source, r->logits);
    op_bias_logits(rec, r->logits, r->pairs, r->vocab, r->count);
}

static void bias_run(check_context *c, uint32_t i)
{
    const uint32_t vocab = bias_cases[i].vocab, n = bias_cases[i].count;
    float *logits = check_random(c, vocab, 411);
    op_logit_bias *pairs = check_alloc(c, n + 1, sizeof *pairs);
    uint32_t *ids = check_alloc(c, n + 1, sizeof *ids);
    float *biases = check_alloc(c, n + 1, sizeof *biases);
    double *want = check_alloc(c, vocab, sizeof *want);
    if (c->status != TEMPER_OK)
        return;
    for (uint32_t p = 0; p < n; p++) {
        ids[p] = p * 157 % 50000;
        biases[p] = check_random_float(412, p) * 5.0f;
        pairs[p] = (op_logit_bias){ids[p], biases[p]};
    }
    bias_run_of r = {.vocab = vocab, .count = n};
    r.source = check_input(c, logits, (uint64_t)vocab * 4);
    r.pairs = check_input(c, pairs, (uint64_t)(n + 1) * sizeof *pairs);
    r.logits = check_output(c, (uint64_t)vocab * 4);
    const float *out = check_go(c, bias_record, &r, r.logits, n, 16.0 * n);
    ref_bias_logits(logits, ids, biases, n, vocab, want);
    check_bounds(c, out, want, vocab, 1e-6, 1e-6);
}

const check_group check_bias_logits = {"bias_logits", bias_count, bias_describe, bias_run};

/* ---- best ----------------------------------------------------------------------------------- */

static const struct {
    const char *name;
    uint32_t vocab, count, chosen;
    float levels; /* above 0: logits are whole multiples of this, so that many are equal */
} best_cases[] = {
    {"the chosen alone", 300, 0, 17, 0.0f},
    {"5 of 49152", 49152, 5, 49151, 0.0f},
    {"20 of 262144", 262144, 20, 3, 0.0f},
    {"equal logits, lowest id first", 1000, 20, 500, 0.5f},
    {"more places than tokens", 7, 10, 2, 0.0f},
    {"a chosen id past the vocabulary", 100, 3, 100, 0.0f},
    {"NaN and infinities among them", 513, 12, 9, -1.0f},
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
    uint32_t vocab, count;
} best_run_of;

static void best_record(gpu_recorder *rec, void *user)
{
    const best_run_of *r = user;
    op_best(rec, r->logits, r->chosen, r->out, r->vocab, r->count);
}

static void best_run(check_context *c, uint32_t i)
{
    const uint32_t vocab = best_cases[i].vocab, n = best_cases[i].count;
    float *logits = check_random(c, vocab, 413);
    uint32_t *ids = check_alloc(c, n + 1, sizeof *ids);
    if (c->status != TEMPER_OK)
        return;
    for (uint32_t v = 0; v < vocab && best_cases[i].levels > 0.0f; v++)
        logits[v] = floorf(logits[v] / best_cases[i].levels) * best_cases[i].levels;
    if (best_cases[i].levels < 0.0f) {
        logits[7] = NAN;
        logits[100] = INFINITY;
        for (uint32_t v = 200; v < vocab; v++)
            logits[v] = -INFINITY;
    }
    ids[0] = best_cases[i].chosen;
    ref_best(logits, vocab, n, ids + 1);
    best_run_of r = {.vocab = vocab, .count = n};
    r.logits = check_input(c, logits, (uint64_t)vocab * 4);
    r.chosen = check_input(c, ids, 4);
    r.out = check_output(c, (n + 1) * sizeof(op_scored));
    const op_scored *out = check_go(c, best_record, &r, r.out, (double)vocab * n, 4.0 * vocab * n);
    for (uint32_t p = 0; out != NULL && p <= n; p++) {
        const bool none = ids[p] >= vocab;
        const bool same =
            none ? isnan(out[p].logit) : memcmp(&out[p].logit, &logits[ids[p]], sizeof(float)) == 0;
        check_that(c, out[p].id == ids[p] && same, "place %u is id %u (%g), not %u", p, out[p].id,
                   (double)out[p].logit, ids[p]);
    }
}

const check_group check_best = {"best", best_count, best_describe, best_run};
