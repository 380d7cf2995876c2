/*
 * case_penalize.c - penalties over windows: empty, of one token, full of one token, longer than a
 * workgroup, at an offset.
 */
#include <stdio.h>

#include "check/context.h"
#include "ref/ref.h"

typedef struct penalize_case {
    const char *name;
    uint32_t vocab, row, first, count, kinds; /* kinds: how many different tokens the window has */
    float repeat, presence, frequency;
} penalize_case;

static const penalize_case cases[] = {
    {"no window", 100, 0, 0, 0, 1, 1.5f, 0.5f, 0.25f},
    {"one token", 100, 0, 3, 1, 1, 1.5f, 0.0f, 0.0f},
    {"one token, 64 times", 1000, 0, 0, 64, 1, 1.1f, 0.3f, 0.2f},
    {"repeat alone", 1000, 0, 5, 64, 30, 1.3f, 0.0f, 0.0f},
    {"presence alone", 1000, 0, 5, 64, 30, 1.0f, 0.7f, 0.0f},
    {"frequency alone", 1000, 0, 5, 64, 30, 1.0f, 0.0f, 0.4f},
    {"negative penalties reward", 1000, 0, 5, 100, 30, 0.8f, -0.7f, -0.4f},
    {"a window of 3001", 49152, 0, 17, 3001, 900, 1.2f, 0.1f, 0.05f},
    {"ids past the vocabulary", 50, 0, 0, 200, 120, 1.2f, 0.1f, 0.05f},
    {"the third row, ids past the vocabulary", 51, 2, 9, 100, 120, 1.2f, 0.1f, 0.05f},
};

static uint32_t count(void)
{
    return sizeof cases / sizeof *cases;
}

static void describe(uint32_t i, check_case *out)
{
    snprintf(out->name, sizeof out->name, "%s", cases[i].name);
}

typedef struct penalize_run {
    gpu_view source, logits, history;
    uint32_t row, vocab;
    op_penalties penalties;
} penalize_run;

static void record(gpu_recorder *rec, void *user)
{
    const penalize_run *r = user;
    gpu_record_copy(rec, r->source, r->logits);
    op_penalize(rec, r->logits, r->history, r->row, r->vocab, &r->penalties);
}

static void run(check_context *c, uint32_t i)
{
    const penalize_case *p = &cases[i];
    const uint32_t places = p->first + p->count + 5;
    const uint64_t values = ((uint64_t)p->row + 1) * p->vocab, row0 = (uint64_t)p->row * p->vocab;
    float *logits = check_random(c, values, 401);
    uint32_t *history = check_alloc(c, places, sizeof *history);
    double *want = check_alloc(c, values, sizeof *want);
    if (c->status != TEMPER_OK)
        return;
    for (uint64_t v = 0; v < values; v++) {
        logits[v] *= 6.0f;
        want[v] = (double)logits[v];
    }
    for (uint32_t h = 0; h < places; h++)
        history[h] = check_random_word(402, h) % p->kinds * 7 % (p->vocab + p->kinds);
    penalize_run r = {.row = p->row,
                      .vocab = p->vocab,
                      .penalties = {.first = p->first,
                                    .count = p->count,
                                    .repeat = p->repeat,
                                    .presence = p->presence,
                                    .frequency = p->frequency}};
    r.source = check_input(c, logits, values * 4);
    r.history = check_input(c, history, (uint64_t)places * 4);
    r.logits = check_output(c, values * 4);
    const float *out = check_go(c, record, &r, r.logits, 8.0 * p->count, 4.0 * p->count);
    ref_penalize(logits + row0, history + p->first, p->count, p->vocab, (double)p->repeat,
                 (double)p->presence, (double)p->frequency, want + row0);
    check_bounds(c, out, want, values, 3e-6, 2e-6);
}

const check_group check_penalize = {"penalize", count, describe, run};
