/*
 * checked.h - arithmetic on sizes that come from files: every step says whether it fitted.
 */
#ifndef TEMPER_BASE_CHECKED_H
#define TEMPER_BASE_CHECKED_H

#include <stdbool.h>
#include <stdint.h>

/* *out = a + b; false (and *out untouched) when the sum does not fit 64 bits. */
static inline bool checked_add(uint64_t a, uint64_t b, uint64_t *out)
{
    if (b > UINT64_MAX - a)
        return false;
    *out = a + b;
    return true;
}

/* *out = a * b; false (and *out untouched) when the product does not fit 64 bits. */
static inline bool checked_mul(uint64_t a, uint64_t b, uint64_t *out)
{
    if (a != 0 && b > UINT64_MAX / a)
        return false;
    *out = a * b;
    return true;
}

/* *out = a rounded up to a multiple of `to` (to > 0); false when it does not fit. */
static inline bool checked_round_up(uint64_t a, uint64_t to, uint64_t *out)
{
    const uint64_t rest = a % to;
    return checked_add(a, rest == 0 ? 0 : to - rest, out);
}

static inline uint64_t ceil_div(uint64_t a, uint64_t b)
{
    return a / b + (a % b != 0);
}

static inline uint32_t ceil_div_u32(uint32_t a, uint32_t b)
{
    return a / b + (a % b != 0);
}

static inline uint64_t min_u64(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static inline uint64_t max_u64(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

#endif
