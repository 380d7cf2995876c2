/*
 * half.h - 16-bit floats on the host. IEEE 754 binary16 and bfloat16, exact both ways: widening is
 * exact, narrowing rounds to nearest even; NaN stays NaN, infinities stay.
 */
#ifndef TEMPER_BASE_HALF_H
#define TEMPER_BASE_HALF_H

#include <stdint.h>

float f16_to_f32(uint16_t h);
uint16_t f32_to_f16(float f);
float bf16_to_f32(uint16_t h);
uint16_t f32_to_bf16(float f);

#endif
