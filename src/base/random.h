/*
 * random.h - the counter-based generator used on the host and in WGSL, so that a text depends on
 * seed and position alone. Philox4x32-10: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as
 * easy as 1, 2, 3", SC 2011.
 */
#ifndef TEMPER_BASE_RANDOM_H
#define TEMPER_BASE_RANDOM_H

#include <stdint.h>

/* out[4] = philox4x32-10(counter[4], key[2]). */
void philox4x32(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]);

/* A small sequential generator for tests and shuffles (splitmix64). */
typedef struct random_state {
    uint64_t state;
} random_state;

uint64_t random_u64(random_state *r);
void random_skip(random_state *r, uint64_t numbers); /* as if random_u64 had given so many */
double random_unit(random_state *r);   /* uniform in [0, 1) with 53 bits */
double random_normal(random_state *r); /* standard normal, Box-Muller: two numbers */

#endif
