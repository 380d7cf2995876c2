/*
 * dtype.h - how numbers are stored: the types that files use, and the few layouts that the GPU
 * uses.
 *
 * File types (dtype) are named as GGUF names them; a block is the smallest unit that can be read
 * alone.
 *
 * GPU layouts (layout) hold a matrix of N rows (output channels) by K columns (input channels),
 * row-major, every row starting on a 32-bit word:
 *
 *   LAYOUT_F32   one f32 a word
 *   LAYOUT_F16   two binary16 a word, element 2i in the low half; a last odd element is padded
 *                with 0
 *   LAYOUT_BF16  as LAYOUT_F16 with bfloat16
 *   LAYOUT_Q8    four int8 a word, element 4i in the lowest byte; times a scale a group of 32
 *   LAYOUT_Q4    eight nibbles a word, element 8i+j at bit 4j; times a scale a group
 *   LAYOUT_Q5    the low four bits of an element as in Q4, its fifth bit in a second plane: 32
 *                elements a word, element 32i+j at bit j
 *   LAYOUT_Q6    the same with two high bits: 16 elements a word, element 16i+j at bit 2j
 *
 * Scales of the quantised layouts lie in a buffer of their own. `zero` is 0 for Q8, else half of
 * what the bits can hold (8, 16, 32), so that the stored number less zero is signed:
 *
 *   SCALE_F16      value = scale * (q - zero); [N][K / group], two binary16 a word, a row padded
 *                  to a word
 *   SCALE_F32      the same with one f32 a word
 *   SCALE_F16_MIN  value = scale * q + minimum; one word a group: scale in the low half, minimum in
 *                  the high half
 *   SCALE_K        value = (d * s) * (q - zero): d an f16 for 256 elements, s an int8 a group. A
 *                  row is K / 256 words of factors, d in the low half, then K / group bytes of s
 *   SCALE_K_MIN    value = (d * s) * q - dmin * m: s and m 0 to 255 a group. A row is K / 256 words
 *                  of factors, d in the low half and dmin in the high half, then K / group times
 *                  two bytes, s before m
 *
 * No product of a scale and an element has more than 24 significant bits, so that each value is its
 * definition rounded once, whether or not a multiply and an add are fused.
 *
 * Repacking a file type into its layout is exact: the GPU's f32 equals the format's own definition
 * bit for bit. Types of two and three bits (Q2_K, Q3_K) are widened into nibbles.
 */
#ifndef TEMPER_BASE_DTYPE_H
#define TEMPER_BASE_DTYPE_H

#include <stdbool.h>
#include <stdint.h>

/* The values are GGUF's own type numbers. The second part is listed, measured and inspected, never
 * loaded. */
typedef enum dtype {
    DTYPE_F32 = 0,
    DTYPE_F16 = 1,
    DTYPE_Q4_0 = 2,
    DTYPE_Q4_1 = 3,
    DTYPE_Q5_0 = 6,
    DTYPE_Q5_1 = 7,
    DTYPE_Q8_0 = 8,
    DTYPE_Q2_K = 10,
    DTYPE_Q3_K = 11,
    DTYPE_Q4_K = 12,
    DTYPE_Q5_K = 13,
    DTYPE_Q6_K = 14,
    DTYPE_BF16 = 30,

    DTYPE_Q8_1 = 9,
    DTYPE_Q8_K = 15,
    DTYPE_IQ2_XXS = 16,
    DTYPE_IQ2_XS = 17,
    DTYPE_IQ3_XXS = 18,
    DTYPE_IQ1_S = 19,
    DTYPE_IQ4_NL = 20,
    DTYPE_IQ3_S = 21,
    DTYPE_IQ2_S = 22,
    DTYPE_IQ4_XS = 23,
    DTYPE_I8 = 24,
    DTYPE_I16 = 25,
    DTYPE_I32 = 26,
    DTYPE_I64 = 27,
    DTYPE_F64 = 28,
    DTYPE_IQ1_M = 29,
    DTYPE_TQ1_0 = 34,
    DTYPE_TQ2_0 = 35,
    DTYPE_MXFP4 = 39,
} dtype;

typedef struct dtype_info {
    dtype type;
    const char *name;     /* "Q4_1" */
    uint32_t block;       /* elements a block */
    uint32_t block_bytes; /* bytes a block */
    bool loadable;        /* temper can bind it to a GPU layout */
} dtype_info;

/* "F32, F16, BF16, Q4_0, ...": the loadable types, for messages. */
#define DTYPE_LOADABLE_NAMES                                                                       \
    "F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q2_K, Q3_K, Q4_K, Q5_K and Q6_K"

/* The row of a GGUF type number whose sizes are known, or NULL. */
const dtype_info *dtype_find(uint32_t gguf_type);

/* "Q4_1"; also the types that GGUF has given up ("Q4_0_8_8"); "type 77" for unknown numbers (static
 * storage; of the last form thread local, valid until the thread's next call). */
const char *dtype_name(uint32_t gguf_type);

typedef enum layout {
    LAYOUT_F32,
    LAYOUT_F16,
    LAYOUT_BF16,
    LAYOUT_Q8,
    LAYOUT_Q4,
    LAYOUT_Q5,
    LAYOUT_Q6,
    LAYOUT_COUNT
} layout;

typedef enum scale_kind {
    SCALE_NONE,
    SCALE_F16,
    SCALE_F32,
    SCALE_F16_MIN,
    SCALE_K,
    SCALE_K_MIN
} scale_kind;

enum { SCALE_K_BLOCK = 256 }; /* elements under one factor of the K scales */

typedef struct weight_format {
    layout layout;
    scale_kind scale;
    uint32_t group; /* elements under one scale; 0 for SCALE_NONE */
} weight_format;

/* Rows of a weight in host memory. high is NULL where weight_high_row_words is 0, scales where
 * weight_scale_row_words is. */
typedef struct weight_planes {
    uint32_t *data, *high, *scales;
} weight_planes;

/* The GPU format of a loadable file type (assert). The functions below take loadable types only,
 * too. */
weight_format weight_format_of(dtype type);

/* 32-bit words a row of K elements takes in the data plane, in the plane of high bits (0 but for Q5
 * and Q6) and in the scale plane (0 for SCALE_NONE). */
uint64_t weight_row_words(weight_format format, uint64_t k);
uint64_t weight_high_row_words(weight_format format, uint64_t k);
uint64_t weight_scale_row_words(weight_format format, uint64_t k);

/* The planes from row `row` on. */
weight_planes weight_planes_at(weight_format format, uint64_t k, weight_planes planes,
                               uint64_t row);

/* Repacks one row of k elements (k a multiple of the type's block) from file bytes into planes of
 * one row. */
void weight_repack_row(dtype type, uint64_t k, const uint8_t *file_row, weight_planes out);

/* The format's own definition: k elements of one file row as f32. The measure of exactness. */
void dtype_dequantize_row(dtype type, uint64_t k, const uint8_t *file_row, float *out);

/* The same from the GPU planes of one row. */
void weight_dequantize_row(weight_format format, uint64_t k, weight_planes planes, float *out);

/* True when a file row of k elements holds a NaN or an infinity (in scales or values). */
bool dtype_row_has_nonfinite(dtype type, uint64_t k, const uint8_t *file_row);

#endif
