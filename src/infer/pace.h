/*
 * pace.h - how many tokens it pays to propose: a small model of what a pass costs and how often
 * proposals are right.
 *
 * With a share a of proposals right, a pass that checks n of them brings 1 + a + ... + a^n tokens
 * and costs 1 + wait + n (draft + row) passes of one row; the n with the most tokens for the cost
 * is taken (Leviathan, Kalman, Matias, "Fast inference from transformers via speculative decoding",
 * 2023). Where even one proposal does not pay, proposing rests for a while, and for twice as long
 * each time a trial fails again: bad proposals cost little in the end. Everything follows from what
 * was right so far, nothing from a clock: a seed gives the same text again.
 */
#ifndef TEMPER_INFER_PACE_H
#define TEMPER_INFER_PACE_H

#include <stdbool.h>
#include <stdint.h>

/* What things cost, in passes of one row. */
typedef struct pace_costs {
    float wait;  /* the host must have read all tokens before it can propose */
    float row;   /* one more row in a pass */
    float draft; /* a pass of the draft model; 0 where proposals are looked up */
} pace_costs;

typedef struct pace {
    pace_costs costs;
    uint32_t most;  /* proposals at once */
    float right;    /* the running share of proposals that were right */
    uint32_t rest;  /* passes to go before a trial */
    uint32_t pause; /* passes that the next rest takes */
    bool trial;     /* a rest has ended: one proposal decides */
} pace;

pace pace_begin(pace_costs costs, uint32_t most);

/* Proposals that the next pass should check, 0 to most. */
uint32_t pace_length(const pace *p);

/* A pass without proposals has run. */
void pace_skip(pace *p);

/* A pass has checked `proposed` of them, and the first `accepted` were right. */
void pace_learn(pace *p, uint32_t proposed, uint32_t accepted);

#endif
