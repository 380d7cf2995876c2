/*
 * half.c - binary16 and bfloat16 by their bits, so that no rounding mode and no compiler flag
 * matters.
 */
#include "base/half.h"

#include <string.h>

static uint32_t bits_of(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    return bits;
}

static float float_of(uint32_t bits)
{
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

float f16_to_f32(uint16_t h)
{
    const uint32_t sign = (uint32_t)(h & 0x8000u) << 16;
    uint32_t exponent = (h >> 10) & 0x1fu;
    uint32_t fraction = h & 0x3ffu;

    if (exponent == 0x1f)   /* infinity, or a NaN with its payload */
        return float_of(sign | 0x7f800000u | fraction << 13);
    if (exponent == 0) {
        if (fraction == 0)
            return float_of(sign);
        /* A subnormal half is a normal float: move its first one up to the implicit place. */
        exponent = 1;
        while ((fraction & 0x400u) == 0) {
            fraction <<= 1;
            exponent--;   /* wraps below zero and comes back with the bias */
        }
        fraction &= 0x3ffu;
    }
    return float_of(sign | (exponent + (127 - 15)) << 23 | fraction << 13);
}

uint16_t f32_to_f16(float f)
{
    const uint32_t bits = bits_of(f);
    const uint32_t sign = (bits >> 16) & 0x8000u;
    const uint32_t magnitude = bits & 0x7fffffffu;

    if (magnitude > 0x7f800000u) {
        /* The payload's high bits are kept; one that lies in the low bits alone must not become
         * infinity. */
        const uint32_t payload = (magnitude >> 13) & 0x3ffu;
        return (uint16_t)(sign | 0x7c00u | (payload != 0 ? payload : 0x200u));
    }
    if (magnitude >= 0x477ff000u)   /* 65520 and above round to infinity */
        return (uint16_t)(sign | 0x7c00u);
    if (magnitude < 0x33000000u)    /* below 2^-25 rounds to zero */
        return (uint16_t)sign;

    const uint32_t exponent = magnitude >> 23;
    uint32_t value, dropped;   /* the result before rounding, and how many bits it loses */
    uint32_t kept;
    if (exponent < 127 - 14) {
        kept = (magnitude & 0x7fffffu) | 0x800000u;
        dropped = 13 + (127 - 14) - exponent;
        value = kept >> dropped;
    } else {
        kept = magnitude - ((127u - 15u) << 23);
        dropped = 13;
        value = kept >> dropped;
    }
    /* To nearest, ties to even; a carry out of the fraction correctly raises the exponent. */
    const uint32_t rest = kept & ((1u << dropped) - 1);
    const uint32_t half = 1u << (dropped - 1);
    if (rest > half || (rest == half && (value & 1) != 0))
        value++;
    return (uint16_t)(sign | value);
}

float bf16_to_f32(uint16_t h)
{
    return float_of((uint32_t)h << 16);
}

uint16_t f32_to_bf16(float f)
{
    const uint32_t bits = bits_of(f);

    if ((bits & 0x7fffffffu) > 0x7f800000u) {
        const uint32_t kept = bits >> 16;
        return (uint16_t)((kept & 0x7fu) != 0 ? kept : kept | 0x40u);
    }
    return (uint16_t)((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}
