/*
 * kl_stats.h - the statistics of `temper eval kl`: rows of logits go in, one after the other, what
 * llama.cpp's perplexity tool reports of them comes out.
 */
#ifndef TEMPER_CLI_KL_STATS_H
#define TEMPER_CLI_KL_STATS_H

#include <stddef.h>
#include <stdint.h>

#include "temper/temper.h"

/* What has been added up so far; zeroed at first. */
typedef struct kl_sums {
    float *kl; /* [count] of [capacity]: for the percentiles; freed with free() */
    size_t count, capacity;
    double kl_sum, kl_squares;
    double nll, nll_against;           /* of the text's tokens */
    double p_change, p_change_squares; /* of the probability of the text's tokens */
    uint64_t same_best;
} kl_sums;

typedef struct kl_result {
    double ppl, ppl_against;
    double mean, error; /* of the divergences, in nats; the standard error of the mean */
    double median, percent90, percent95, percent99, most;
    double same_best; /* share of places where both find the same token likeliest */
    double p_change,
        p_change_rms; /* probability of the text's tokens: the model's - the reference's */
} kl_result;

/* Adds a row of the reference (p) and one of the model (q), f32 [vocabulary] each, at a place where
 * the text has `id`. TEMPER_NOT_FINITE for logits that are no numbers. */
temper_status kl_add(kl_sums *sums, const float *p, const float *q, uint32_t vocabulary,
                     uint32_t id, temper_error *err);

/* Of at least one row; sorts the divergences. */
kl_result kl_summarise(kl_sums *sums);

#endif
