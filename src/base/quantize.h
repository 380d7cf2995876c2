/*
 * quantize.h - from f32 to the types of files: how `temper quantize` and `temper convert` write.
 *
 * F16 and BF16 round to nearest even. Q4_0, Q4_1, Q5_0, Q5_1 and Q8_0 are the reference rounding of
 * ggml: bit for bit what the gguf package writes. Q4_K and Q6_K have no such definition: scales and
 * minimums are searched for the smallest squared error, weighted by the size of the values, and the
 * numbers are rounded again under the scales as they will be stored.
 */
#ifndef TEMPER_BASE_QUANTIZE_H
#define TEMPER_BASE_QUANTIZE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/dtype.h"

/* True for the types that quantize_row writes. */
bool quantize_knows(dtype type);

/* Writes k finite values (k a multiple of the type's block) as one file row. Values that an f16 or
 * a scale cannot hold become infinite there: dtype_row_has_nonfinite tells. */
void quantize_row(dtype type, uint64_t k, const float *values, uint8_t *file_row);

#endif
