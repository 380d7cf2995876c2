/*
 * timing.h - how long the GPU takes for a recording.
 *
 *     check_timer *timer;
 *     check_timer_open(device, &timer, &err);
 *     check_timer_measure(timer, record, user, &time, &err);
 *     printf("%g us%s\n", time.median * 1e6, time.steady ? "" : " (the clock moved)");
 *     check_timer_close(timer);
 *
 * What is recorded runs in batches long enough for the clock, one pass a batch, by timestamps where
 * the device has them and by the host's clock where not; every figure includes what a dispatch
 * costs that waits for the one before it. Batches run between canaries (canary.h).
 */
#ifndef TEMPER_CHECK_TIMING_H
#define TEMPER_CHECK_TIMING_H

#include "check/canary.h"
#include "gpu/gpu.h"

typedef void (*check_record)(gpu_recorder *rec, void *user);

typedef struct check_time {
    double median, least; /* seconds of one recording, of the batches */
    uint32_t times;       /* recordings a batch */
    bool steady;          /* the clock was up before and after */
} check_time;

typedef struct check_timer check_timer;

/* *out keeps the device and is owned by the caller. */
temper_status check_timer_open(gpu_device *device, check_timer **out, error *err);
void check_timer_close(check_timer *timer); /* NULL is fine */

/* Times a recording that may be repeated, of at least one dispatch. */
temper_status check_timer_measure(check_timer *timer, check_record record, void *user,
                                  check_time *out, error *err);

/* The timer's own canary: to time what the timer does not record, on the same card. */
check_canary *check_timer_canary(check_timer *timer);

#endif
