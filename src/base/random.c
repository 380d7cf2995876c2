/*
 * random.c - Philox4x32-10 and splitmix64.
 */
#include "base/random.h"

#include <math.h>

enum { PHILOX_ROUNDS = 10 };

void philox4x32(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4])
{
    uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3];
    uint32_t k0 = key[0], k1 = key[1];

    for (int round = 0; round < PHILOX_ROUNDS; round++) {
        const uint64_t p0 = (uint64_t)0xd2511f53u * c0;
        const uint64_t p1 = (uint64_t)0xcd9e8d57u * c2;
        c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c1 = (uint32_t)p1;
        c3 = (uint32_t)p0;
        k0 += 0x9e3779b9u;
        k1 += 0xbb67ae85u;
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}

static const uint64_t step = 0x9e3779b97f4a7c15u;

uint64_t random_u64(random_state *r)
{
    uint64_t z = r->state += step;

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

void random_skip(random_state *r, uint64_t numbers)
{
    r->state += step * numbers;
}

double random_unit(random_state *r)
{
    return (double)(random_u64(r) >> 11) * 0x1p-53;
}

double random_normal(random_state *r)
{
    const double two_pi = 6.283185307179586476925;
    const double radius = sqrt(-2.0 * log(1.0 - random_unit(r)));   /* 1 - u is never 0 */

    return radius * cos(two_pi * random_unit(r));
}
