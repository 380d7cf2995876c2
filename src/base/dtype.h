/*
 * dtype.h - how numbers are stored: the types that files use, and the few layouts that the GPU
 * uses.
 *
 * File types (dtype) are named as GGUF names them; a block is the smallest unit that can be read
 * alone.
 *
 * On the GPU a matrix of N rows (output channels) by K columns (input channels) lies in blocks of
 * 32 along K, so that what neighbouring rows need at one time is one run of memory. With KB =
 * ceil(K / 32) and the stride S, N rounded up to a multiple of 64, its planes are tables [lines][S]
 * of entries, an entry being what one row has there:
 *
 *   data    [KB][S]: the 32 elements of a block, in whole quadruples of words
 *             LAYOUT_F32   one f32 a word
 *             LAYOUT_F16   two binary16 a word, the even element in the low half
 *             LAYOUT_BF16  as LAYOUT_F16 with bfloat16
 *             LAYOUT_Q8    four int8 a word
 *             LAYOUT_Q4    eight nibbles a word
 *             LAYOUT_Q5, LAYOUT_Q6  the low four bits of an element as LAYOUT_Q4
 *   high    [KB][S]: the bits above the nibbles; one word of LAYOUT_Q5, two of LAYOUT_Q6
 *   scales  of the quantised layouts, see below
 *
 * Words follow the elements. Within a word the even elements come first, then the odd ones: nibbles
 * from the lowest up hold 0 2 4 6 1 3 5 7, bytes 0 2 1 3. Two neighbours are therefore 16 bits
 * apart and come out as a pair by one mask: `word & 0x000f000f` is (0, 1), `word & 0x00f000f0` (2,
 * 3), the same of word >> 8 (4, 5) and (6, 7). High bits likewise: pair t of a block, elements 2t
 * and 2t + 1, has its fifth bits at bits t and 16 + t; of six bits, word t / 8 holds the upper two
 * at 2 (t % 8) and 16 + 2 (t % 8).
 *
 * `zero` is 0 for Q8, else half of what the bits can hold (8, 16, 32), so that the stored number
 * less zero is signed. Entries of 16 bits lie two a word, the even row in the low half.
 *
 *   SCALE_F16      value = scale * (q - zero); [K / group][S] of binary16
 *   SCALE_F32      the same with f32
 *   SCALE_F16_MIN  value = scale * q + minimum; [K / group][S] of words, scale in the low half,
 *                  minimum in the high half
 *   SCALE_K        value = (d * s) * (q - zero): d an f16 for 256 elements, s an int8 for a group
 *                  of 16. [K / 256][S] of words with d in the low half, then [KB][S] of 16 bits:
 *                  the two s of a block, the first in the low byte
 *   SCALE_K_MIN    value = (d * s) * q - (dmin * m): s and m 0 to 255 a group of 16 or 32. [K /
 *                  256][S] of words with d in the low half and dmin in the high half, then [KB][S]
 *                  of 16 bits (s, m) or, for groups of 16, of words (s, m, s, m), from the lowest
 *                  byte up
 *
 * Rows from N to S are zero bits, and so are elements past K.
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
    DTYPE_NVFP4 = 40,
    DTYPE_Q1_0 = 41,
    DTYPE_Q2_0 = 42,
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

enum {
    WEIGHT_BLOCK = 32, /* elements of K that lie together */
    WEIGHT_ROWS = 64,  /* a stride is a multiple of it */
};

typedef enum weight_plane { WEIGHT_DATA, WEIGHT_HIGH, WEIGHT_SCALES, WEIGHT_PLANES } weight_plane;

/* Planes of rows in host memory, all of one stride. NULL where the format has no such plane. */
typedef struct weight_planes {
    uint32_t *plane[WEIGHT_PLANES];
} weight_planes;

/* Lines of stride entries each; the entries are 2, 4 or a multiple of 16 bytes. */
typedef struct weight_table {
    uint64_t lines;
    uint32_t entry_bytes;
} weight_table;

enum { WEIGHT_TABLES = 2 }; /* of a plane, at most */

/* The GPU format of a loadable file type (assert). */
weight_format weight_format_of(dtype type);

/* n rounded up to a multiple of WEIGHT_ROWS. */
uint64_t weight_stride(uint64_t n);

/* The tables that make a plane, one after the other; returns how many: 0 for a plane that the
 * format does not have. */
uint32_t weight_tables(weight_format format, weight_plane plane, uint64_t k,
                       weight_table tables[WEIGHT_TABLES]);

/* 32-bit words of a plane; 0 for one that the format does not have. */
uint64_t weight_plane_words(weight_format format, weight_plane plane, uint64_t k, uint64_t stride);

/* Repacks `count` rows of k elements (k a multiple of the type's block), each from the file bytes
 * at its pointer, into rows first .. first + count of the planes; first is even. Where count is
 * odd, the row after the last gets zeros for scales of 16 bits. */
void weight_repack_rows(dtype type, uint64_t k, uint64_t count, const uint8_t *const *file_rows,
                        weight_planes out, uint64_t stride, uint64_t first);

/* The format's own definition: k elements of one file row as f32. The measure of exactness. */
void dtype_dequantize_row(dtype type, uint64_t k, const uint8_t *file_row, float *out);

/* The same from one row of GPU planes. */
void weight_dequantize_row(weight_format format, uint64_t k, weight_planes planes, uint64_t stride,
                           uint64_t row, float *out);

/* Whether f16 holds rows first .. first + count of the planes well: what each row's scales allow is
 * 0 or from 2^-12 to 2^15 at the largest. Then nothing overflows, and rounding a value to f16 is
 * off by a 2048th of it or by a 8192th of its row's largest. NaN and infinity are not held. Where
 * all are held, *largest is raised to what none of their elements passes. */
bool weight_suits_f16(weight_format format, uint64_t k, weight_planes planes, uint64_t stride,
                      uint64_t first, uint64_t count, double *largest);

/* True when a file row of k elements holds a NaN or an infinity (in scales or values). */
bool dtype_row_has_nonfinite(dtype type, uint64_t k, const uint8_t *file_row);

#endif
