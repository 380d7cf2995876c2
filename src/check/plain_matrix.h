/*
 * plain_matrix.h - product_matrix.wgsl, product_few.wgsl and attention_matrix.wgsl without matrix
 * units: their lines about matrices replaced by plain code, so that all else in them is tested on
 * devices that have none; and pieces of the first alone.
 */
#ifndef TEMPER_CHECK_PLAIN_MATRIX_H
#define TEMPER_CHECK_PLAIN_MATRIX_H

#include "op/rows.h"

/* A row with one of op_tiles (rows.h); half_sums: one that options open, whose sums are f16; wrong:
 * it leaves out the first step along k, but where there is one only. NULL: the kernel's text has
 * changed, and this file must follow. Rows live as long as the program, as kernels must. */
const op_kernel_row *check_plain_row(int tile, bool half_sums, bool wrong);

/* The same with op_tile_few. */
const op_kernel_row *check_plain_few(void);

/* The kernel's pieces about weights alone: a workgroup of 64 lanes takes block y of 64 rows of a
 * weight, a lane writes the 32 halves of its row to out, [K / 32][stride][32]. Bindings data,
 * high_bits, scales, out; options layout, scale, group; parameters k and stride, u32. NULL as
 * above.
 */
const gpu_kernel *check_entries_kernel(void);

/* The same of attention. Wrong: the second half of each step's positions is given no weight.
 * Broken: no compiler takes it. */
typedef enum check_plain_kind {
    CHECK_PLAIN_RIGHT,
    CHECK_PLAIN_WRONG,
    CHECK_PLAIN_BROKEN,
    CHECK_PLAIN_KINDS
} check_plain_kind;

const op_kernel_row *check_plain_attention(check_plain_kind kind);

#endif
