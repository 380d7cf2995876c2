/*
 * clock.h - seconds of a clock that never goes back, for timings in results. Nothing decides by it.
 */
#ifndef TEMPER_BASE_CLOCK_H
#define TEMPER_BASE_CLOCK_H

double clock_seconds(void);

#endif
