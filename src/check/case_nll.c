/*
 * case_nll.c - the negative log-likelihood, also of rows at the ends of f32.
 */
#include <math.h>
#include <stdio.h>

#include "check/context.h"
#include "ref/ref.h"

enum kind { RANDOM, WIDE, EDGES };

typedef struct nll_case {
    const char *name;
    uint32_t first, rows, vocab;
    enum kind kind;
} nll_case;

static const nll_case cases[] = {
    {"3x1", 0, 3, 1, RANDOM},
    {"5x255", 0, 5, 255, RANDOM},
    {"5x256", 0, 5, 256, RANDOM},
    {"5x257", 0, 5, 257, RANDOM},
    {"4x49152", 0, 4, 49152, RANDOM},
    {"1x262144", 0, 1, 262144, RANDOM},
    {"70000x3, rows above 65535", 0, 70000, 3, RANDOM},
    {"logits to 1e4", 0, 7, 1003, WIDE},
    {"NaN, infinities, targets past the end", 0, 6, 500, EDGES},
    {"5x257 behind 11 other rows", 11, 5, 257, RANDOM},
};

static uint32_t count(void)
{
    return sizeof cases / sizeof *cases;
}

static void describe(uint32_t i, check_case *out)
{
    snprintf(out->name, sizeof out->name, "%s", cases[i].name);
}

typedef struct nll_run {
    gpu_view logits, targets, out;
    uint32_t first, rows, vocab;
} nll_run;

static void record(gpu_recorder *rec, void *user)
{
    const nll_run *r = user;
    op_nll(rec, r->logits, r->targets, r->out, r->first, r->rows, r->vocab);
}

static void make_edges(float *logits, uint32_t *targets, uint32_t vocab)
{
    logits[0 * vocab + 77] = NAN;
    logits[1 * vocab + 77] = INFINITY;
    for (uint32_t v = 0; v < vocab; v++)
        logits[2 * vocab + v] = -INFINITY; /* all masked: 0 / 0 */
    logits[3 * vocab + 5] = -INFINITY;     /* a masked token is no trouble ... */
    logits[4 * vocab + 6] = -INFINITY;     /* ... but as a target it is infinitely unlikely */
    targets[4] = 6;
    targets[5] = vocab;
}

static void run(check_context *c, uint32_t i)
{
    const nll_case *n = &cases[i];
    const uint64_t values = (uint64_t)n->rows * n->vocab;
    float *logits = check_random(c, values, 95);
    uint32_t *all = check_alloc(c, n->first + n->rows, sizeof *all);
    double *want = check_alloc(c, n->rows, sizeof *want);
    if (c->status != TEMPER_OK)
        return;
    uint32_t *targets = all + n->first;
    for (uint64_t v = 0; v < values; v++)
        logits[v] *= n->kind == WIDE ? 1e4f : 8.0f;
    for (uint32_t r = 0; r < n->rows; r++)
        targets[r] = check_random_word(96, r) % n->vocab;
    if (n->kind == EDGES)
        make_edges(logits, targets, n->vocab);
    nll_run r = {.first = n->first, .rows = n->rows, .vocab = n->vocab};
    r.logits = check_input(c, logits, values * 4);
    r.targets = check_input(c, all, (uint64_t)(n->first + n->rows) * 4);
    r.out = check_output(c, (uint64_t)(n->first + n->rows) * 4);
    const float *out = check_go(c, record, &r, r.out, 4.0 * (double)values, 8.0 * (double)values);
    ref_nll(logits, targets, n->rows, n->vocab, want);
    if (out != NULL)
        check_bounds(c, out + n->first, want, n->rows, 3e-6, 2e-6);
}

const check_group check_nll = {"nll", count, describe, run};
