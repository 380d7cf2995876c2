#include "check/canary.h"

#include <assert.h>
#include <stddef.h>

/* A throttled card may stay a few percent below what it could for a moment: that is noise. */
static const double tolerance = 1.03;

/* Runs take a fraction of a millisecond each. A card that sleeps is steady too, for a while: the
 * first wait is long enough for any to wake up. */
enum {
    FIRST_IN_A_ROW = 200,
    IN_A_ROW = 3,
    MOST_RUNS = 1000,
    TURNS = 4,
};

temper_status check_canary_look(check_canary *canary, bool *up, error *err)
{
    double seconds = 0;
    *up = true;
    if (canary->run == NULL)
        return TEMPER_OK;
    const temper_status status = canary->run(canary->user, &seconds, err);
    if (status != TEMPER_OK)
        return status;
    if (canary->least <= 0 || seconds < canary->least)
        canary->least = seconds;
    *up = seconds <= canary->least * tolerance;
    return TEMPER_OK;
}

temper_status check_canary_await(check_canary *canary, bool *up, error *err)
{
    const uint32_t wanted = canary->run == NULL ? 1 : canary->woken ? IN_A_ROW : FIRST_IN_A_ROW;
    uint32_t row = 0;
    temper_status status = TEMPER_OK;
    for (uint32_t i = 0; status == TEMPER_OK && row < wanted && i < MOST_RUNS; i++) {
        const double before = canary->least;
        status = check_canary_look(canary, up, err);
        /* A run that beats all before it says that those were slow. */
        const bool better = before > 0 && canary->least * tolerance < before;
        row = *up && !better ? row + 1 : 0;
    }
    *up = row == wanted;
    canary->woken = canary->woken || status == TEMPER_OK;
    return status;
}

temper_status check_between_canaries(check_canary *canary,
                                     temper_status (*measure)(void *user, error *err), void *user,
                                     bool *steady, error *err)
{
    bool before = false, after = false;
    temper_status status = TEMPER_OK;
    assert(measure != NULL);
    for (uint32_t turn = 0; status == TEMPER_OK && turn < TURNS && !(before && after); turn++) {
        status = check_canary_await(canary, &before, err);
        if (status == TEMPER_OK)
            status = measure(user, err);
        if (status == TEMPER_OK)
            status = check_canary_look(canary, &after, err);
    }
    *steady = before && after;
    return status;
}
