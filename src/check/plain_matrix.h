/*
 * plain_matrix.h - product_matrix.wgsl without matrix units: its lines about matrices replaced by
 * plain code, so that all else in it is tested on devices that have none; and its pieces alone.
 */
#ifndef TEMPER_CHECK_PLAIN_MATRIX_H
#define TEMPER_CHECK_PLAIN_MATRIX_H

#include "op/rows.h"

/* A row with one of op_tiles (rows.h); half_sums: one that options open, whose sums are f16; wrong:
 * it leaves out the first step along k, but where there is one only. NULL: the kernel's text has
 * changed, and this file must follow. Rows live as long as the program, as kernels must. */
const op_kernel_row *check_plain_row(int tile, bool half_sums, bool wrong);

/* The kernel's pieces about weights alone: a workgroup of 64 lanes takes block y of 64 rows of a
 * weight, a lane writes the 32 halves of its row to out, [K / 32][stride][32]. Bindings data,
 * high_bits, scales, out; options layout, scale, group; parameters k and stride, u32. NULL as
 * above.
 */
const gpu_kernel *check_entries_kernel(void);

#endif
