/*
 * widen.h - types of files that have no layout on the GPU: what their blocks mean, and the binary16
 * numbers that stand in for them where a user asks for it.
 *
 * These are the types of one to four bits whose values come from tables (IQ1_S ... IQ4_XS, MXFP4)
 * and those of two to four values (Q1_0, Q2_0, TQ1_0, TQ2_0). Each value is its definition's
 * exactly in f32: no product needs more than 24 bits. Taken to f16 it is rounded once, to nearest
 * even: the one exception to the rule that no weight is rounded, which is why it happens on request
 * only.
 */
#ifndef TEMPER_BASE_WIDEN_H
#define TEMPER_BASE_WIDEN_H

#include <stdbool.h>
#include <stdint.h>

#include "base/dtype.h"

/* "IQ1_S, IQ1_M, ...": the types below, for messages. */
#define WIDEN_NAMES                                                                                \
    "Q1_0, Q2_0, IQ1_S, IQ1_M, IQ2_XXS, IQ2_XS, IQ2_S, IQ3_XXS, IQ3_S, IQ4_NL, IQ4_XS, MXFP4, "    \
    "TQ1_0 and TQ2_0"

enum { WIDEN_BLOCK_MAX = 256 }; /* elements a block of any of them */

/* True for the types that the functions below take. */
bool widen_knows(uint32_t gguf_type);

/* The format's own definition: k elements (whole blocks) of a file's row as f32. Factors that are
 * not finite give values that are not. */
void widen_to_f32(dtype type, uint64_t k, const uint8_t *file_row, float *out);

/* The same as binary16, little-endian, 2 k bytes; false when a value is not finite, or so large
 * that f16 would make it infinite. */
bool widen_to_f16(dtype type, uint64_t k, const uint8_t *file_row, uint8_t *out);

#endif
