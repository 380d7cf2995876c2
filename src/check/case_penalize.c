/*
 * case_penalize.c - penalties over windows: empty, of one token, full of one token, longer than a
 * workgroup, at an offset.
 */
#include <stdio.h>

#include "check/context.h"
#include "ref/ref.h"

typedef struct penalize_case {
    const char *name;
    uint32_t vocab, first, count, kinds; /* kinds: how many different tokens the window has */
    float repeat, presence, frequency;
} penalize_case;

static const penalize_case cases[] = {
    {"no window", 100, 0, 0, 1, 1.5f, 0.5f, 0.25f},
    {"one token", 100, 3, 1, 1, 1.5f, 0.0f, 0.0f},
    {"one token, 64 times", 1000, 0, 64, 1, 1.1f, 0.3f, 0.2f},
    {"repeat alone", 1000, 5, 64, 30, 1.3f, 0.0f, 0.0f},
    {"presence alone", 1000, 5, 64, 30, 1.0f, 0.7f, 0.0f},
    {"frequency alone", 1000, 5, 64, 30, 1.0f, 0.0f, 0.4f},
    {"negative penalties reward", 1000, 5, 100, 30, 0.8f, -0.7f, -0.4f},
    {"a window of 3001", 49152, 17, 3001, 900, 1.2f, 0.1f, 0.05f},
    {"ids past the vocabulary", 50, 0, 200, 120, 1.2f, 0.1f, 0.05f},
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
    uint32_t vocab;
    op_penalties penalties;
} penalize_run;

static void record(gpu_recorder *rec, void *user)
{
    const penalize_run *r = user;
    gpu_record_copy(rec, r->source, r->logits);
    op_penalize(rec, r->logits, r->history, r->vocab, &r->penalties);
}

static void run(check_context *c, uint32_t i)
{
    const penalize_case *p = &cases[i];
    const uint32_t places = p->first + p->count + 5;
    float *logits = check_random(c, p->vocab, 401);
    uint32_t *history = check_alloc(c, places, sizeof *history);
    double *want = check_alloc(c, p->vocab, sizeof *want);
    if (c->status != TEMPER_OK)
        return;
    for (uint32_t v = 0; v < p->vocab; v++)
        logits[v] *= 6.0f;
    for (uint32_t h = 0; h < places; h++)
        history[h] = check_random_word(402, h) % p->kinds * 7 % (p->vocab + p->kinds);
    penalize_run r = {.vocab = p->vocab,
                      .penalties = {.first = p->first,
                                    .count = p->count,
                                    .repeat = p->repeat,
                                    .presence = p->presence,
                                    .frequency = p->frequency}};
    r.source = check_input(c, logits, (uint64_t)p->vocab * 4);
    r.history = check_input(c, history, (uint64_t)places * 4);
    r.logits = check_output(c, (uint64_t)p->vocab * 4);
    const float *out = check_go(c, record, &r, r.logits, 8.0 * p->count, 4.0 * p->count);
    ref_penalize(logits, history + p->first, p->count, p->vocab, (double)p->repeat,
                 (double)p->presence, (double)p->frequency, want);
    check_bounds(c, out, want, p->vocab, 3e-6, 2e-6);
}

const check_group check_penalize = {"penalize", count, describe, run};
