/*
 * blocks.h - the insides of quantised blocks, for the files of this room that read or write them.
 *
 * File bytes are little-endian on every machine, so words are put together by value; the compilers
 * make single loads of it.
 */
#ifndef TEMPER_BASE_BLOCKS_H
#define TEMPER_BASE_BLOCKS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/dtype.h"

enum {
    BLOCK_32 = 32, /* elements a block of Q4_0, Q4_1, Q5_0, Q5_1 and Q8_0 */
    BLOCK_K = 256, /* of the K types */
};

static inline uint32_t load_u16(const uint8_t *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8;
}

static inline uint32_t load_u32(const uint8_t *p)
{
    return load_u16(p) | load_u16(p + 2) << 16;
}

static inline uint64_t load_u64(const uint8_t *p)
{
    return load_u32(p) | (uint64_t)load_u32(p + 4) << 32;
}

static inline void store_u64(uint8_t *p, uint64_t value)
{
    for (int i = 0; i < 8; i++)
        p[i] = (uint8_t)(value >> (8 * i));
}

static inline void store_u16(uint8_t *p, uint32_t value)
{
    p[0] = (uint8_t)value;
    p[1] = (uint8_t)(value >> 8);
}

static inline void store_u32(uint8_t *p, uint32_t value)
{
    store_u16(p, value);
    store_u16(p + 2, value >> 16);
}

/* The 32 five-bit numbers of a Q5_0 or Q5_1 block, in the order of the elements: 16 bytes of
 * nibbles, 4 bytes of fifth bits. */
void block_codes_5(const uint8_t *nibbles, const uint8_t *fifths, uint8_t codes[BLOCK_32]);

/* A block of a K type, unpacked. */
typedef struct k_block {
    uint16_t d, dmin; /* f16; dmin is 0 where has_minimum is false */
    uint32_t group;   /* elements under one scale: 16 or 32 */
    bool has_minimum; /* value = d s q - dmin m, s unsigned; else d s (q - zero), s an int8 */
    int zero;
    uint8_t scales[16];
    uint8_t minimums[16];
    uint8_t codes[BLOCK_K]; /* q, in the order of the elements */
} k_block;

void k_block_read(dtype type, const uint8_t *bytes, k_block *out);

/* The scales and minimums of Q4_K and Q5_K: twice eight numbers of six bits in 12 bytes. */
void k_scales_read(const uint8_t packed[12], uint8_t scales[8], uint8_t minimums[8]);

#endif
