/*
 * case_sample.c - the choice of a token: argmax and its edges, every filter against the sorted
 * twin, and whether thousands of draws follow the distribution.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check/context.h"
#include "ref/ref.h"

enum kind {
    DRAW,       /* `rows` draws of the same logits, each the twin's unless its two best are within
                   rounding */
    TIES,       /* as DRAW over logits of a few values only */
    MIXED,      /* as DRAW, each row with parameters of its own, behind places of other rows */
    BEHIND,     /* as DRAW, behind places of other rows */
    CHI_SQUARE, /* 2048 draws against the probabilities */
    EDGES,      /* NaN, infinities, ties, zeros: exact */
    REFUSED,
};

typedef struct sample_case {
    const char *name;
    uint32_t vocab;
    enum kind kind;
    double limit; /* of chi square, with `vocab` - 1 or fewer degrees of freedom */
    op_sample_params params;
    check_cost cost;
} sample_case;

static const sample_case cases[] = {
    {"argmax of 1", 1, DRAW, 0, {0, 0, 1, 0, 1, 0}, CHECK_QUICK},
    {"argmax of 255", 255, DRAW, 0, {0, 0, 1, 0, 1, 0}, CHECK_QUICK},
    {"argmax of 49152", 49152, DRAW, 0, {1e-6f, 40, 0.9f, 0.1f, 1, 0}, CHECK_QUICK},
    {"argmax of 262144", 262144, DRAW, 0, {1e-39f, 0, 1, 0, 1, 0}, CHECK_NORMAL},
    {"argmax among equals", 1000, TIES, 0, {0, 0, 1, 0, 1, 0}, CHECK_QUICK},
    {"NaN, infinities, zeros", 700, EDGES, 0, {0, 0, 1, 0, 1, 0}, CHECK_QUICK},
    {"NaN, infinities, zeros, warm", 700, EDGES, 0, {1.0f, 40, 0.9f, 0.01f, 1, 0}, CHECK_QUICK},
    {"draw of 2", 2, DRAW, 0, {1.0f, 0, 1, 0, 5, 100}, CHECK_QUICK},
    {"draw of 257", 257, DRAW, 0, {0.7f, 0, 1, 0, 0x123456789abcdef0u, 7}, CHECK_QUICK},
    {"draw of 1003, hot", 1003, DRAW, 0, {50.0f, 0, 1, 0, 6, 0xfffffff0u}, CHECK_QUICK},
    {"draw of 49152", 49152, DRAW, 0, {0.8f, 0, 1, 0, 8, 0}, CHECK_NORMAL},
    {"draw of 262144", 262144, DRAW, 0, {1.0f, 0, 1, 0, 8, 0}, CHECK_NORMAL},
    {"top-k 1", 1003, DRAW, 0, {1.0f, 1, 1, 0, 9, 0}, CHECK_QUICK},
    {"top-k 40", 1003, DRAW, 0, {1.0f, 40, 1, 0, 9, 0}, CHECK_QUICK},
    {"top-k 40 of 49152", 49152, DRAW, 0, {1.0f, 40, 1, 0, 9, 0}, CHECK_QUICK},
    {"top-k of all", 100, DRAW, 0, {1.0f, 100, 1, 0, 9, 0}, CHECK_QUICK},
    {"top-k among equals", 1000, TIES, 0, {1.0f, 40, 1, 0, 9, 0}, CHECK_QUICK},
    {"top-p 0.9", 1003, DRAW, 0, {1.0f, 0, 0.9f, 0, 10, 0}, CHECK_QUICK},
    {"top-p 0.9 of 49152", 49152, DRAW, 0, {1.0f, 0, 0.9f, 0, 10, 0}, CHECK_NORMAL},
    {"top-p 0", 1003, DRAW, 0, {1.0f, 0, 0, 0, 10, 0}, CHECK_QUICK},
    {"top-p among equals", 1000, TIES, 0, {1.0f, 0, 0.5f, 0, 10, 0}, CHECK_QUICK},
    {"min-p 0.1", 1003, DRAW, 0, {1.0f, 0, 1, 0.1f, 11, 0}, CHECK_QUICK},
    {"min-p 1", 1003, DRAW, 0, {1.0f, 0, 1, 1, 11, 0}, CHECK_QUICK},
    {"top-k 64, top-p 0.8, min-p 0.02", 1003, DRAW, 0, {1.3f, 64, 0.8f, 0.02f, 12, 0}, CHECK_QUICK},
    {"argmax of 49152, behind other rows", 49152, BEHIND, 0, {0, 0, 1, 0, 1, 0}, CHECK_QUICK},
    {"a choice for each row", 1003, MIXED, 0, {0, 0, 1, 0, 0, 0}, CHECK_QUICK},
    {"a choice for each row of 49152", 49152, MIXED, 0, {0, 0, 1, 0, 0, 0}, CHECK_NORMAL},
    /* Limits: the 99.9 % quantile of chi square with that many degrees of freedom. */
    {"distribution over 50", 50, CHI_SQUARE, 85.4, {1.0f, 0, 1, 0, 13, 0}, CHECK_QUICK},
    {"distribution over 50 at 2", 50, CHI_SQUARE, 85.4, {2.0f, 0, 1, 0, 14, 0}, CHECK_QUICK},
    {"distribution, top-k 10", 50, CHI_SQUARE, 27.9, {1.0f, 10, 1, 0, 15, 0}, CHECK_NORMAL},
    {"distribution, top-p 0.7", 50, CHI_SQUARE, 85.4, {1.0f, 0, 0.7f, 0, 16, 0}, CHECK_NORMAL},
    {"temperature NaN is refused", 10, REFUSED, 0, {NAN, 0, 1, 0, 1, 0}, CHECK_QUICK},
    {"temperature -1 is refused", 10, REFUSED, 0, {-1, 0, 1, 0, 1, 0}, CHECK_QUICK},
    {"temperature infinity is refused", 10, REFUSED, 0, {INFINITY, 0, 1, 0, 1, 0}, CHECK_QUICK},
    {"top-p NaN is refused", 10, REFUSED, 0, {1, 0, NAN, 0, 1, 0}, CHECK_QUICK},
};

static uint32_t count(void)
{
    return sizeof cases / sizeof *cases;
}

static void describe(uint32_t i, check_case *out)
{
    out->cost = cases[i].cost;
    snprintf(out->name, sizeof out->name, "%s", cases[i].name);
}

typedef struct sample_run {
    gpu_view logits, choices, scratch, ids;
    uint32_t first, rows, vocab;
    const op_sample_params *params; /* [rows] */
} sample_run;

static void record(gpu_recorder *rec, void *user)
{
    const sample_run *r = user;
    op_sample(rec, r->logits, r->choices, r->scratch, r->ids, r->first, r->rows, r->vocab,
              r->params);
}

static ref_sample_params twin_of(const op_sample_params *p)
{
    return (ref_sample_params){
        .temperature = (double)p->temperature,
        .top_p = (double)p->top_p,
        .min_p = (double)p->min_p,
        .top_k = p->top_k,
        .seed = p->seed,
        .position = p->position,
    };
}

/* rows copies of one row of logits, about normal with deviation 2. */
static float *make_logits(check_context *c, const sample_case *s, uint32_t rows)
{
    float *logits = check_alloc(c, (uint64_t)rows * s->vocab, sizeof *logits);
    if (logits == NULL)
        return NULL;
    for (uint32_t v = 0; v < s->vocab; v++) {
        float sum = 0;
        for (uint32_t i = 0; i < 6; i++)
            sum += check_random_float(91, 6 * (uint64_t)v + i);
        logits[v] = s->kind == TIES ? floorf(sum) : sum * 1.4f;
        if ((s->kind == DRAW || s->kind == MIXED || s->kind == BEHIND) && v % 97 == 96)
            logits[v] = -INFINITY;
    }
    for (uint32_t r = 1; r < rows; r++)
        memcpy(logits + (uint64_t)r * s->vocab, logits, s->vocab * sizeof *logits);
    return logits;
}

/* What row `row` of a case is drawn with. */
static op_sample_params params_of(const sample_case *s, uint32_t row)
{
    static const op_sample_params mixed[] = {
        {0, 0, 1, 0, 1, 0},
        {1.0f, 0, 1, 0, 0x123456789abcdef0u, 7},
        {0.7f, 40, 1, 0, 2, 900},
        {1.3f, 0, 0.8f, 0, 3, 5},
        {1.0f, 64, 0.9f, 0.02f, 4, 5},
        {2.0f, 0, 1, 0.1f, 5, 0xfffffff0u},
        {1e-6f, 3, 0.5f, 0.5f, 6, 1},
    };
    op_sample_params params = s->params;
    if (s->kind == MIXED)
        params = mixed[row % (sizeof mixed / sizeof *mixed)];
    params.position += row;
    return params;
}

/* The ids of `rows` rows, with `first` places before theirs that must stay as they are. */
static const uint32_t *go(check_context *c, const sample_case *s, const float *logits,
                          uint32_t rows)
{
    const uint32_t first = s->kind == MIXED || s->kind == BEHIND ? 5 : 0, places = first + rows;
    op_sample_params *params = check_alloc(c, places, sizeof *params);
    if (params == NULL)
        return NULL;
    for (uint32_t r = 0; r < rows; r++)
        params[first + r] = params_of(s, r);
    sample_run r = {.first = first, .rows = rows, .vocab = s->vocab, .params = params + first};
    r.logits = check_input(c, logits, (uint64_t)rows * s->vocab * 4);
    r.choices = check_input(c, params, places * sizeof *params);
    r.scratch = check_output(c, op_sample_scratch_bytes(rows, s->vocab));
    r.ids = check_output(c, (uint64_t)places * 4);
    const uint32_t *blank = check_read(c, r.ids);
    const uint32_t *ids = check_go(c, record, &r, r.ids, 0, 4.0 * rows * s->vocab);
    if (blank == NULL || ids == NULL)
        return NULL;
    check_same(c, ids, blank, first);
    return ids + first;
}

static void run_draw(check_context *c, const sample_case *s)
{
    const uint32_t rows = s->vocab > 10000 ? 4 : 32;
    const float *logits = make_logits(c, s, rows);
    uint8_t *keep = check_alloc(c, s->vocab, 1);
    if (c->status != TEMPER_OK)
        return;
    const uint32_t *ids = go(c, s, logits, rows);
    uint32_t close = 0;
    for (uint32_t r = 0; c->status == TEMPER_OK && r < rows; r++) {
        const op_sample_params params = params_of(s, r);
        const ref_sample_params twin = twin_of(&params);
        double margin;
        const uint32_t want = ref_sample(logits, s->vocab, &twin, keep, &margin);
        const bool cold = params.temperature <= 1e-6f;
        if (!cold && margin < 1e-4 && ids[r] != want) {
            check_that(c, ids[r] < s->vocab && keep[ids[r]], "row %u: token %u was filtered", r,
                       ids[r]);
            close++;
            continue;
        }
        check_that(c, ids[r] == want, "row %u: token %u, not %u (ahead by %g)", r, ids[r], want,
                   margin);
    }
    check_that(c, close <= rows / 16, "%u of %u draws differ by a hair", close, rows);
}

static void run_edges(check_context *c, const sample_case *s)
{
    enum { ROWS = 9 };
    const uint32_t v = s->vocab;
    float *logits = check_alloc(c, (uint64_t)ROWS * v, sizeof *logits);
    uint8_t *keep = check_alloc(c, v, 1);
    if (c->status != TEMPER_OK)
        return;
    for (uint64_t i = 0; i < (uint64_t)ROWS * v; i++)
        logits[i] = 3 * check_random_float(92, i) - 4;
    logits[0 * v + 300] = NAN;
    logits[1 * v + 699] = -NAN;
    logits[2 * v + 5] = INFINITY;
    for (uint32_t i = 0; i < v; i++) {
        logits[3 * v + i] = -INFINITY;
        logits[4 * v + i] = -INFINITY;
        logits[5 * v + i] = i % 2 ? 0.0f : -0.0f;
    }
    logits[4 * v + 511] = -1e30f; /* all but one masked */
    logits[6 * v + 0] = 3e38f;
    logits[7 * v + 699] = 3e38f;
    logits[8 * v + 1] = INFINITY;
    logits[8 * v + 2] = NAN;
    const uint32_t *ids = go(c, s, logits, ROWS);
    for (uint32_t r = 0; c->status == TEMPER_OK && r < ROWS; r++) {
        const op_sample_params params = params_of(s, r);
        const ref_sample_params twin = twin_of(&params);
        const uint32_t want = ref_sample(logits + (uint64_t)r * v, v, &twin, keep, NULL);
        check_that(c, ids[r] == want, "row %u: token %u, not %u", r, ids[r], want);
    }
}

static void run_chi_square(check_context *c, const sample_case *s)
{
    enum { DRAWS = 2048 };
    const float *logits = make_logits(c, s, DRAWS);
    uint8_t *keep = check_alloc(c, s->vocab, 1);
    uint32_t *seen = check_alloc(c, s->vocab, sizeof *seen);
    if (c->status != TEMPER_OK)
        return;
    const uint32_t *ids = go(c, s, logits, DRAWS);
    if (ids == NULL)
        return;
    const ref_sample_params twin = twin_of(&s->params);
    ref_sample_keep(logits, s->vocab, &twin, keep);
    double total = 0, chi = 0;
    for (uint32_t v = 0; v < s->vocab; v++)
        total += keep[v] ? exp((double)logits[v] / twin.temperature) : 0;
    for (uint32_t r = 0; r < DRAWS; r++) {
        check_that(c, ids[r] < s->vocab && keep[ids[r]], "draw %u: token %u was filtered", r,
                   ids[r]);
        seen[ids[r] < s->vocab ? ids[r] : 0]++;
    }
    for (uint32_t v = 0; v < s->vocab; v++)
        if (keep[v]) {
            const double expected = DRAWS * exp((double)logits[v] / twin.temperature) / total;
            chi += (seen[v] - expected) * (seen[v] - expected) / expected;
        }
    c->result->error = chi;
    c->result->limit = s->limit;
    check_that(c, chi <= s->limit, "chi square is %.1f, above %.1f", chi, s->limit);
}

static void run(check_context *c, uint32_t i)
{
    const sample_case *s = &cases[i];
    if (s->kind == EDGES)
        run_edges(c, s);
    else if (s->kind == CHI_SQUARE)
        run_chi_square(c, s);
    else if (s->kind == REFUSED) {
        sample_run r = {.rows = 1, .vocab = s->vocab, .params = &s->params};
        r.logits = check_output(c, s->vocab * 4);
        r.choices = check_output(c, sizeof s->params);
        r.scratch = check_output(c, op_sample_scratch_bytes(1, s->vocab));
        r.ids = check_output(c, 4);
        check_refused(c, record, &r, TEMPER_BAD_ARGUMENT, "sample");
    } else
        run_draw(c, s);
}

const check_group check_sample = {"sample", count, describe, run};
