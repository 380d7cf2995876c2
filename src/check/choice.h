/*
 * choice.h - which row of its table computes an op on a shape, and why; and measuring which is the
 * fastest.
 */
#ifndef TEMPER_CHECK_CHOICE_H
#define TEMPER_CHECK_CHOICE_H

#include "base/dtype.h"
#include "check/timing.h"
#include "op/choices.h"

/* A product of so many rows with a weight [n, k], as the ops meet it in a model. */
typedef struct check_shape {
    uint64_t rows, n, k;
    weight_format format;
    bool fixed, half, half_sums; /* what op_products allows */
    temper_lossy lossy;
    bool attention;   /* on f16 matrices: of `rows` rows of one sequence, four heads of 64 to a KV
                         head, a cache in f32 */
    char attention_why[160]; /* why not, where the device has such matrices */
} check_shape;

/* "M,N,K,TYPE" with a type of files ("Q4_0"). TEMPER_BAD_ARGUMENT says what is wrong. */
temper_status check_shape_parse(const char *text, check_shape *out, error *err);

/* Lets the shape use what the device may: 16-bit fixed point, and f16 operands where they pass
 * the self-check against f32 (which computes, the first time on a device), and what `lossy` opens.
 * With `exact` nothing; both together are refused. */
temper_status check_shape_allow(gpu_device *device, bool exact, temper_lossy lossy,
                                check_shape *shape, error *err);

/* The same for attention on matrix units, with a self-check of its own. */
temper_status check_shape_allow_attention(gpu_device *device, bool exact, check_shape *shape,
                                          error *err);

typedef struct check_choice {
    const char *op, *row, *kernel;
    bool chosen;
    char reason[200]; /* one sentence without a dot */
} check_choice;

/* Row i of all tables, in order, before the shape; false past the last. */
bool check_choice_at(gpu_device *device, const check_shape *shape, uint32_t i, check_choice *out);

/* The same for rows before any shape: why a row does not run on the device, "" when it does. */
void check_row_reason(gpu_device *device, uint32_t i, char *reason, size_t size);

/* ---- tuning ---------------------------------------------------------------------------------- */

/* One row of matmul's table on a shape. */
typedef struct check_tuned_row {
    const op_kernel_row *of;
    const char *row, *kernel;
    uint32_t slices; /* of K, of a row with a tile; else 0 */
    double us;
    double error;       /* largest difference from the table's last row over the root mean square */
    bool right, steady; /* the error is within the row's limit; the clock stayed up */
} check_tuned_row;

enum { CHECK_TUNED_ROWS = 40 };

typedef struct check_tuned {
    check_tuned_row rows[CHECK_TUNED_ROWS]; /* the fastest first, wrong ones last */
    uint32_t count;
    const char *before;     /* the row that the table's own order gives, ... */
    uint32_t before_slices; /* ... and its slices */
} check_tuned;

typedef struct check_tuner check_tuner;

/* *out keeps the device, whose own choices it replaces while it measures. The choices that are kept
 * in `folder` for this device are its beginning; those that cannot be used are forgotten. `exact`:
 * as for check_shape_allow. */
temper_status check_tuner_open(gpu_device *device, const char *folder, bool exact,
                               check_tuner **out, error *err);
void check_tuner_close(check_tuner *tuner); /* NULL is fine */

/* Measures every row that may compute so many rows (a power of two) times a weight [n, k], each on
 * the same random weights (several copies in turn, so that no cache holds them), compares them, and
 * keeps the order of those that are right. A row with a tile is measured with each split of K that
 * it takes, whichever tile is thought fastest; its best one is kept. format: "q4 f16 32". A row
 * without a rival is not measured: count is 0 then. */
temper_status check_tuner_measure(check_tuner *tuner, uint64_t rows, uint64_t n, uint64_t k,
                                  const char *format, check_tuned *out, error *err);

/* Tests only: a row that is measured besides those of the table. */
void check_tuner_offer(check_tuner *tuner, const op_kernel_row *row);
const op_choices *check_tuner_choices(const check_tuner *tuner);

/* How many choices there are, old ones too, and their place in the folder. */
uint32_t check_tuner_count(const check_tuner *tuner);
temper_status check_tuner_write(const check_tuner *tuner, strbuf *path, error *err);

#endif
