#include "ref/ref.h"

void ref_penalize(const float *logits, const uint32_t *window, uint32_t count, uint32_t vocab,
                  double repeat, double presence, double frequency, double *out)
{
    for (uint32_t t = 0; t < vocab; t++) {
        uint32_t times = 0;
        for (uint32_t i = 0; i < count; i++)
            times += window[i] == t;
        out[t] = logits[t];
        if (times > 0)
            out[t] =
                (out[t] > 0.0 ? out[t] / repeat : out[t] * repeat) - presence - frequency * times;
    }
}
