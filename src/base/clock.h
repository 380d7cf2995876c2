/*
 * clock.h - seconds of a clock that never goes back: for timings in results, and for how long the
 * gpu room waits. No result depends on it.
 */
#ifndef TEMPER_BASE_CLOCK_H
#define TEMPER_BASE_CLOCK_H

double clock_seconds(void);

#endif
