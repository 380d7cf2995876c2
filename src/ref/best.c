#include <math.h>
#include <stdbool.h>

#include "ref/ref.h"

void ref_bias_logits(const float *logits, const uint32_t *ids, const float *biases, uint32_t count,
                     uint32_t vocab, double *out)
{
    for (uint32_t t = 0; t < vocab; t++)
        out[t] = logits[t];
    for (uint32_t i = 0; i < count; i++)
        if (ids[i] < vocab)
            out[ids[i]] += biases[i];
}

void ref_best(const float *logits, uint32_t vocab, uint32_t count, uint32_t *ids)
{
    for (uint32_t place = 0; place < count; place++) {
        ids[place] = UINT32_MAX;
        for (uint32_t t = 0; t < vocab; t++) {
            bool taken = isnan(logits[t]);
            for (uint32_t p = 0; p < place; p++)
                taken = taken || ids[p] == t;
            if (!taken && (ids[place] == UINT32_MAX || logits[t] > logits[ids[place]]))
                ids[place] = t;
        }
    }
}
