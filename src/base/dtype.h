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
 *
 * Scales of Q8 and Q4 lie in a second buffer, [N][K / group]:
 *
 *   SCALE_F16      value = scale * (nibble - 8), or scale * int8; two binary16 a word, a row
 *                  padded to a word
 *   SCALE_F32      the same with one f32 a word
 *   SCALE_F16_MIN  value = scale * nibble + minimum; one word a group: scale in the low half,
 *                  minimum in the high half (Q4 only)
 *
 * Repacking a file type into its layout is exact: the GPU's f32 equals the format's own definition
 * bit for bit.
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
    const char *name;       /* "Q4_1" */
    uint32_t block;         /* elements a block */
    uint32_t block_bytes;   /* bytes a block */
    bool loadable;          /* temper can bind it to a GPU layout */
} dtype_info;

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
    LAYOUT_COUNT
} layout;

typedef enum scale_kind { SCALE_NONE, SCALE_F16, SCALE_F32, SCALE_F16_MIN } scale_kind;

typedef struct weight_format {
    layout layout;
    scale_kind scale;
    uint32_t group;   /* elements under one scale; 0 for SCALE_NONE */
} weight_format;

/* The GPU format of a loadable file type (assert). The functions below take loadable types only,
 * too. */
weight_format weight_format_of(dtype type);

/* 32-bit words a row of K elements takes in the data plane and in the scale plane (0 for
 * SCALE_NONE). */
uint64_t weight_row_words(weight_format format, uint64_t k);
uint64_t weight_scale_row_words(weight_format format, uint64_t k);

/* Repacks one row of k elements (k a multiple of the type's block) from file bytes into the two
 * planes. data has weight_row_words, scales weight_scale_row_words words (NULL where that is 0). */
void weight_repack_row(dtype type, uint64_t k, const uint8_t *file_row, uint32_t *data,
                       uint32_t *scales);

/* The format's own definition: k elements of one file row as f32. The measure of exactness. */
void dtype_dequantize_row(dtype type, uint64_t k, const uint8_t *file_row, float *out);

/* The same from the GPU planes. */
void weight_dequantize_row(weight_format format, uint64_t k, const uint32_t *data,
                           const uint32_t *scales, float *out);

/* True when a file row of k elements holds a NaN or an infinity (in scales or values). */
bool dtype_row_has_nonfinite(dtype type, uint64_t k, const uint8_t *file_row);

#endif
