#include "kl_stats.h"

#include <math.h>
#include <stdlib.h>

#include "base/error.h"

/* What one row of logits says of the token that stands there. */
typedef struct row_view {
    double log_sum; /* log of the sum of e^logit */
    uint32_t best;  /* the likeliest token, the first among equals */
} row_view;

/* Sets *kl; both views; all in double, so that a divergence of 1e-9 is still right. */
static void compare_rows(const float *p, const float *q, uint32_t vocabulary, row_view *of_p,
                         row_view *of_q, double *kl)
{
    *of_p = *of_q = (row_view){0};
    for (uint32_t i = 1; i < vocabulary; i++) {
        of_p->best = p[i] > p[of_p->best] ? i : of_p->best;
        of_q->best = q[i] > q[of_q->best] ? i : of_q->best;
    }
    const double top_p = (double)p[of_p->best], top_q = (double)q[of_q->best];
    double sum_p = 0.0, sum_q = 0.0, mixed = 0.0;
    for (uint32_t i = 0; i < vocabulary; i++) {
        const double weight = exp((double)p[i] - top_p);
        sum_p += weight;
        mixed += weight * ((double)p[i] - (double)q[i]);
        sum_q += exp((double)q[i] - top_q);
    }
    of_p->log_sum = top_p + log(sum_p);
    of_q->log_sum = top_q + log(sum_q);
    /* Rounding alone can bring what is never negative below 0. */
    const double value = mixed / sum_p - of_p->log_sum + of_q->log_sum;
    *kl = value < 0.0 ? 0.0 : value;
}

temper_status kl_add(kl_sums *s, const float *p, const float *q, uint32_t vocabulary, uint32_t id,
                     temper_error *err)
{
    row_view of_p, of_q;
    double kl = 0.0;
    compare_rows(p, q, vocabulary, &of_p, &of_q, &kl);
    if (!isfinite(kl))
        return error_set(err, TEMPER_NOT_FINITE, "the logits of scored token %zu are not finite",
                         s->count);
    if (s->count == s->capacity) {
        const size_t capacity = s->capacity == 0 ? 4096 : s->capacity * 2;
        float *larger = realloc(s->kl, capacity * sizeof *larger);
        if (larger == NULL)
            return error_set(err, TEMPER_NO_MEMORY, "no memory for %zu divergences", capacity);
        s->kl = larger;
        s->capacity = capacity;
    }
    const double nll_p = of_p.log_sum - (double)p[id], nll_q = of_q.log_sum - (double)q[id];
    const double change = exp(-nll_q) - exp(-nll_p);
    s->kl[s->count++] = (float)kl;
    s->kl_sum += kl;
    s->kl_squares += kl * kl;
    s->nll += nll_q;
    s->nll_against += nll_p;
    s->p_change += change;
    s->p_change_squares += change * change;
    s->same_best += of_p.best == of_q.best;
    return TEMPER_OK;
}

static int by_value(const void *left, const void *right)
{
    const float a = *(const float *)left, b = *(const float *)right;
    return a < b ? -1 : a > b;
}

/* Between the two values around it, in proportion. */
static double percentile(const float *sorted, size_t count, double share)
{
    const double place = share * (double)(count - 1);
    const size_t below = (size_t)place, above = below + 1 < count ? below + 1 : below;
    const double rest = place - (double)below;
    return (double)sorted[below] * (1.0 - rest) + (double)sorted[above] * rest;
}

kl_result kl_summarise(kl_sums *s)
{
    const double n = (double)s->count, mean = s->kl_sum / n;
    const double variance = s->kl_squares / n - mean * mean;
    qsort(s->kl, s->count, sizeof *s->kl, by_value);
    return (kl_result){
        .ppl = exp(s->nll / n),
        .ppl_against = exp(s->nll_against / n),
        .mean = mean,
        .error = s->count > 1 && variance > 0.0 ? sqrt(variance / (n - 1.0)) : 0.0,
        .median = percentile(s->kl, s->count, 0.5),
        .percent90 = percentile(s->kl, s->count, 0.90),
        .percent95 = percentile(s->kl, s->count, 0.95),
        .percent99 = percentile(s->kl, s->count, 0.99),
        .most = (double)s->kl[s->count - 1],
        .same_best = (double)s->same_best / n,
        .p_change = s->p_change / n,
        .p_change_rms = sqrt(s->p_change_squares / n),
    };
}
