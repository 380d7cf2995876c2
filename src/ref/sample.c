/*
 * sample.c - the choice of a token, by sorting; and the negative log-likelihood.
 */
#include <math.h>
#include <stdlib.h>

#include "base/mem.h"
#include "base/random.h"
#include "ref/ref.h"

static int descending(const void *a, const void *b)
{
    const float x = *(const float *)a, y = *(const float *)b;
    return x < y ? 1 : x > y ? -1 : 0;
}

/* The smallest logit that top-k and top-p keep. */
static double keep_from(const float *sorted, uint32_t vocab, const ref_sample_params *p)
{
    const double highest = (double)sorted[0];
    uint32_t count = vocab;
    if (p->top_k > 0 && p->top_k < vocab)
        for (count = p->top_k; count < vocab && sorted[count] >= sorted[p->top_k - 1];)
            count++;
    if (p->top_p >= 1)
        return (double)sorted[count - 1];
    double all = 0, sum = 0;
    for (uint32_t i = 0; i < count; i++)
        all += exp((double)sorted[i] - highest);
    for (uint32_t i = 0; i < count; i++) {
        sum += exp((double)sorted[i] - highest);
        if (sum >= p->top_p * all)
            return (double)sorted[i];
    }
    return (double)sorted[count - 1];
}

uint32_t ref_sample_keep(const float *logits, uint32_t vocab, const ref_sample_params *p,
                         uint8_t *keep)
{
    float highest = -INFINITY;
    for (uint32_t v = 0; v < vocab; v++) {
        keep[v] = 0;
        if (isnan(logits[v]))
            highest = INFINITY;
        highest = logits[v] > highest ? logits[v] : highest;
    }
    float *sorted = mem_alloc(vocab * sizeof *sorted);
    if (isinf(highest) || sorted == NULL) {
        mem_free(sorted);
        for (uint32_t v = 0; v < vocab; v++)
            keep[v] = 0;
        return 0;
    }
    for (uint32_t v = 0; v < vocab; v++)
        sorted[v] = logits[v];
    qsort(sorted, vocab, sizeof *sorted, descending);
    const double from = keep_from(sorted, vocab, p);
    mem_free(sorted);
    uint32_t kept = 0;
    for (uint32_t v = 0; v < vocab; v++) {
        const double value = (double)logits[v];
        keep[v] = value >= from && exp(value - (double)highest) >= p->min_p;
        kept += keep[v];
    }
    return kept;
}

double ref_gumbel(uint64_t seed, uint32_t position, uint32_t id)
{
    const uint32_t counter[4] = {id / 4, position, 0, 0},
                   key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    uint32_t bits[4];
    philox4x32(counter, key, bits);
    return -log(-log1p(-((double)bits[id % 4] + 0.5) / 4294967296.0));
}

uint32_t ref_sample(const float *logits, uint32_t vocab, const ref_sample_params *p, uint8_t *keep,
                    double *margin)
{
    const double none = INFINITY;
    if (margin != NULL)
        *margin = none;
    if (ref_sample_keep(logits, vocab, p, keep) == 0)
        return 0xffffffffu;
    uint32_t best = 0xffffffffu;
    double best_score = -INFINITY, second = -INFINITY;
    for (uint32_t v = 0; v < vocab; v++) {
        const double noisy =
            (double)logits[v] / p->temperature + ref_gumbel(p->seed, p->position, v);
        const double score = p->temperature <= 1e-6 ? (double)logits[v] : noisy;
        if (!keep[v] && p->temperature > 1e-6)
            continue;
        if (best == 0xffffffffu || score > best_score) {
            second = best_score;
            best = v;
            best_score = score;
        } else if (score > second) {
            second = score;
        }
    }
    if (margin != NULL)
        *margin = best_score - second;
    return best;
}

void ref_nll(const float *logits, const uint32_t *targets, uint64_t rows, uint32_t vocab,
             double *out)
{
    for (uint64_t r = 0; r < rows; r++) {
        const float *row = logits + r * vocab;
        double highest = -INFINITY, sum = 0;
        for (uint32_t v = 0; v < vocab; v++)
            highest = (double)row[v] > highest ? (double)row[v] : highest;
        for (uint32_t v = 0; v < vocab; v++)
            sum += exp((double)row[v] - highest);
        out[r] = targets[r] < vocab ? log(sum) + highest - (double)row[targets[r]] : (double)NAN;
    }
}
