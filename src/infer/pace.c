#include "infer/pace.h"

#include <assert.h>

enum { FIRST_PAUSE = 16, LONGEST_PAUSE = 256 };

/* A share to begin with, good enough to try; how much one proposal moves it; and what a trial that
 * succeeds makes of it. */
static const float at_first = 0.7f, weight = 0.125f, after_trial = 0.6f;

pace pace_begin(pace_costs costs, uint32_t most)
{
    return (pace){.costs = costs, .most = most, .right = at_first, .pause = FIRST_PAUSE};
}

/* The n with the most tokens for its cost; 0 when plain decoding has more. */
static uint32_t best_length(const pace *p)
{
    float tokens = 1.0f, chance = 1.0f, best = 1.0f;
    uint32_t length = 0;
    for (uint32_t n = 1; n <= p->most; n++) {
        chance *= p->right;
        tokens += chance;
        const float cost = 1.0f + p->costs.wait + (float)n * (p->costs.draft + p->costs.row);
        if (tokens / cost > best) {
            best = tokens / cost;
            length = n;
        }
    }
    return length;
}

uint32_t pace_length(const pace *p)
{
    if (p->rest > 0 || p->most == 0)
        return 0;
    return p->trial ? 1 : best_length(p);
}

void pace_skip(pace *p)
{
    if (p->rest > 0 && --p->rest == 0)
        p->trial = true;
}

void pace_learn(pace *p, uint32_t proposed, uint32_t accepted)
{
    assert(proposed >= 1 && accepted <= proposed);
    for (uint32_t i = 0; i < accepted; i++)
        p->right += weight * (1.0f - p->right);
    if (accepted < proposed)
        p->right -= weight * p->right;
    if (p->trial && accepted > 0) {
        p->right = p->right > after_trial ? p->right : after_trial;
        p->pause = FIRST_PAUSE;
    }
    p->trial = false;
    if (best_length(p) > 0)
        return;
    p->rest = p->pause;
    p->pause = p->pause * 2 < LONGEST_PAUSE ? p->pause * 2 : LONGEST_PAUSE;
}
