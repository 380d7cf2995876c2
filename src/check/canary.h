/*
 * canary.h - is the card's clock up? A card that waits, for a compiler or for its host, falls to a
 * fraction of its clock and takes milliseconds to come back: what is timed then looks several times
 * slower than it is. A canary is a fixed amount of arithmetic; when it takes its least time, the
 * clock is up. So each figure is measured between two canaries that both do.
 *
 * Nothing here looks at a clock: the canary tells how long it took.
 */
#ifndef TEMPER_CHECK_CANARY_H
#define TEMPER_CHECK_CANARY_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

typedef struct check_canary {
    /* Runs it once. NULL: the clock counts as up (a device without one, such as a CPU). */
    temper_status (*run)(void *user, double *seconds, error *err);
    void *user;
    double least; /* seconds, of all runs; 0 before the first */
    bool woken;   /* it has been waited for once */
} check_canary;

/* One run: *up when it took at most 3 % more than the least so far. */
temper_status check_canary_look(check_canary *canary, bool *up, error *err);

/* Runs it until it is up several times in a row; *up is false when that was not so within some
 * hundred runs (a card that is throttled, or shared). The first wait is a long one. */
temper_status check_canary_await(check_canary *canary, bool *up, error *err);

/* Calls `measure` between two looks, up to four times, until both find the clock up; *steady is
 * whether they did the last time. Its figures are those of the last call. */
temper_status check_between_canaries(check_canary *canary,
                                     temper_status (*measure)(void *user, error *err), void *user,
                                     bool *steady, error *err);

#endif
