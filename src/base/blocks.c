/*
 * blocks.c - quantised blocks taken apart.
 */
#include "base/blocks.h"

#include <assert.h>
#include <stddef.h>
#include <string.h>

/* Bit i of eight as byte i, 0 or 1. */
static uint64_t spread_bits(uint32_t eight)
{
    const uint64_t ones = 0x0101010101010101u, own_bit = 0x8040201008040201u;
    const uint64_t bits = (eight & 0xffu) * ones & own_bit;
    return (bits + 0x7f7f7f7f7f7f7f7fu) >> 7 & ones;
}

void block_codes_5(const uint8_t *nibbles, const uint8_t *fifths, uint8_t codes[BLOCK_32])
{
    const uint64_t low_nibbles = 0x0f0f0f0f0f0f0f0fu;

    for (uint32_t i = 0; i < 2; i++) {
        const uint64_t pairs = load_u64(nibbles + 8 * i);
        store_u64(codes + 8 * i, (pairs & low_nibbles) | spread_bits(fifths[i]) << 4);
        store_u64(codes + 16 + 8 * i, (pairs >> 4 & low_nibbles) | spread_bits(fifths[i + 2]) << 4);
    }
}

/* Q2_K: 16 bytes of (scale, minimum) nibbles, 64 bytes of two-bit numbers, d, dmin. */
static void read_q2_k(const uint8_t *bytes, k_block *out)
{
    const uint8_t *quants = bytes + 16;

    out->d = (uint16_t)load_u16(bytes + 80);
    out->dmin = (uint16_t)load_u16(bytes + 82);
    for (uint32_t i = 0; i < 16; i++) {
        out->scales[i] = bytes[i] & 15;
        out->minimums[i] = bytes[i] >> 4;
    }
    for (uint32_t half = 0; half < 2; half++)
        for (uint32_t part = 0; part < 4; part++)
            for (uint32_t i = 0; i < 32; i++)
                out->codes[128 * half + 32 * part + i] = quants[32 * half + i] >> (2 * part) & 3;
}

/* Q3_K: 32 bytes of third bits, 64 bytes of two-bit numbers, 12 bytes of six-bit scales, d. A third
 * bit that is not set takes 4 away; in a nibble whose zero is 8 that is 4 added to all. */
static void read_q3_k(const uint8_t *bytes, k_block *out)
{
    const uint8_t *quants = bytes + 32, *packed = bytes + 96;

    out->d = (uint16_t)load_u16(bytes + 108);
    for (uint32_t i = 0; i < 16; i++) {
        const uint32_t low = i < 8 ? packed[i] & 15u : (uint32_t)packed[i - 8] >> 4;
        const uint32_t high = (uint32_t)packed[8 + i % 4] >> (2 * (i / 4)) & 3u;
        out->scales[i] = (uint8_t)((low | high << 4) - 32);
    }
    for (uint32_t half = 0; half < 2; half++)
        for (uint32_t part = 0; part < 4; part++)
            for (uint32_t i = 0; i < 32; i++) {
                const uint32_t low = quants[32 * half + i] >> (2 * part) & 3u;
                const uint32_t third = bytes[i] >> (4 * half + part) & 1u;
                out->codes[128 * half + 32 * part + i] = (uint8_t)((low | third << 2) + 4);
            }
}

void k_scales_read(const uint8_t packed[12], uint8_t scales[8], uint8_t minimums[8])
{
    for (uint32_t i = 0; i < 4; i++) {
        scales[i] = packed[i] & 63;
        minimums[i] = packed[i + 4] & 63;
        scales[i + 4] = (uint8_t)((packed[i + 8] & 15) | packed[i] >> 6 << 4);
        minimums[i + 4] = (uint8_t)(packed[i + 8] >> 4 | packed[i + 4] >> 6 << 4);
    }
}

/* Q4_K: d, dmin, 12 bytes of scales, 128 bytes of nibbles. Q5_K: 32 bytes of fifth bits before the
 * nibbles. */
static void read_q4_k_or_q5_k(const uint8_t *bytes, const uint8_t *fifths, const uint8_t *nibbles,
                              k_block *out)
{
    out->d = (uint16_t)load_u16(bytes);
    out->dmin = (uint16_t)load_u16(bytes + 2);
    k_scales_read(bytes + 4, out->scales, out->minimums);
    for (uint32_t part = 0; part < 4; part++)
        for (uint32_t i = 0; i < 32; i++) {
            const uint32_t pair = nibbles[32 * part + i];
            const uint32_t high = fifths == NULL ? 0 : (uint32_t)fifths[i] >> (2 * part) & 3u;
            out->codes[64 * part + i] = (uint8_t)((pair & 15u) | (high & 1u) << 4);
            out->codes[64 * part + 32 + i] = (uint8_t)(pair >> 4 | high >> 1 << 4);
        }
}

/* Q6_K: 128 bytes of low nibbles, 64 bytes of high bit pairs, 16 int8 scales, d. */
static void read_q6_k(const uint8_t *bytes, k_block *out)
{
    out->d = (uint16_t)load_u16(bytes + 208);
    memcpy(out->scales, bytes + 192, 16);
    for (uint32_t half = 0; half < 2; half++) {
        const uint8_t *low = bytes + 64 * half, *high = bytes + 128 + 32 * half;
        uint8_t *codes = out->codes + 128 * half;
        for (uint32_t i = 0; i < 32; i++) {
            codes[i] = (uint8_t)((low[i] & 15) | (high[i] & 3) << 4);
            codes[i + 32] = (uint8_t)((low[i + 32] & 15) | (high[i] >> 2 & 3) << 4);
            codes[i + 64] = (uint8_t)(low[i] >> 4 | (high[i] >> 4 & 3) << 4);
            codes[i + 96] = (uint8_t)(low[i + 32] >> 4 | high[i] >> 6 << 4);
        }
    }
}

void k_block_read(dtype type, const uint8_t *bytes, k_block *out)
{
    out->dmin = 0;
    switch (type) {
    case DTYPE_Q2_K:
        out->group = 16;
        out->has_minimum = true;
        out->zero = 0;
        read_q2_k(bytes, out);
        break;
    case DTYPE_Q3_K:
        out->group = 16;
        out->has_minimum = false;
        out->zero = 8;
        read_q3_k(bytes, out);
        break;
    case DTYPE_Q4_K:
    case DTYPE_Q5_K:
        out->group = 32;
        out->has_minimum = true;
        out->zero = 0;
        read_q4_k_or_q5_k(bytes, type == DTYPE_Q5_K ? bytes + 16 : NULL,
                          bytes + (type == DTYPE_Q5_K ? 48 : 16), out);
        break;
    default:
        assert(type == DTYPE_Q6_K);
        out->group = 16;
        out->has_minimum = false;
        out->zero = 32;
        read_q6_k(bytes, out);
        break;
    }
}
