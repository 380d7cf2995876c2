/*
 * rows.h - which kernel computes an op: a table of rows per op. The first row fits whose features
 * the device has, whose limits it keeps and whose predicate accepts the shape; the last row of a
 * table fits everything, on WebGPU's default limits, without f16 and subgroups. `temper kernels
 * list` prints these tables.
 */
#ifndef TEMPER_OP_ROWS_H
#define TEMPER_OP_ROWS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/dtype.h"
#include "gpu/gpu.h"
#include "op/op.h"

/* What a predicate may look at; fields that mean nothing to an op are 0. */
typedef struct op_shape {
    uint64_t rows, n, k;
    weight_format format;
    bool greedy;   /* a sampler at temperature 0 */
    bool software; /* op_device_is_software */
} op_shape;

enum { OP_WHOLE_SUBGROUP = 16 };

typedef struct op_kernel_row {
    const char *name;
    const gpu_kernel *kernel;            /* kernel->needs: the features */
    uint32_t invocations;                /* lanes a workgroup */
    uint32_t workgroup_memory;           /* bytes, at most */
    bool (*fits)(const op_shape *shape); /* NULL: every shape */
    bool whole_subgroups;                /* a workgroup is one subgroup: all must have one size, of
                                            OP_WHOLE_SUBGROUP lanes or more */
    uint32_t tile_rows, tile_cols;       /* of a register tile; 0 where there is none */
    const char *why;                     /* one sentence */
} op_kernel_row;

typedef struct op_table {
    const char *op;
    const op_kernel_row *rows;
    uint32_t count;
} op_table;

extern const op_table op_table_matmul, op_table_lookup, op_table_rmsnorm, op_table_silu_gate,
    op_table_add, op_table_rope_store, op_table_attention, op_table_sample, op_table_penalize,
    op_table_bias_logits, op_table_best, op_table_nll;

/* All tables, in the order of a step; NULL at the end. */
extern const op_table *const op_tables[];

const op_kernel_row *op_choose(gpu_device *device, const op_table *table, const op_shape *shape);

/* True when the device can run the row, whatever the shape. */
bool op_row_runs(gpu_device *device, const op_kernel_row *row);

/* ---- what the files of this room share ------------------------------------------------------- */

/* Workgroups folded into two dimensions, each within the device's limit. */
typedef struct op_grid {
    uint32_t x, y;
} op_grid;

op_grid op_fold(gpu_device *device, uint64_t groups);

/* True for a driver that computes on the CPU. There a barrier costs as much as hundreds of
 * multiply-adds and two cores are soon busy: kernels that spread work thin lose. */
bool op_device_is_software(gpu_device *device);

/* Multiply-adds that one dispatch may take on this device: a software device gets less. */
uint64_t op_dispatch_work(gpu_device *device);

/* How many of `total` items one dispatch takes when each costs `cost` multiply-adds; a multiple of
 * `unit` unless it is all of them, at least one unit. */
uint64_t op_cut(gpu_device *device, uint64_t total, uint64_t cost, uint64_t unit);

/* How many rows of row_bytes (the largest of an op's views) fit a binding: all, or a multiple of
 * 64, so that the view of the next rows starts aligned. */
uint64_t op_rows_that_bind(gpu_device *device, uint64_t rows, uint64_t row_bytes);

/* Rows [row0, row0 + rows) of a view. A view that binds as it is stays so: its bind group serves
 * any row count. */
gpu_view op_view_rows(gpu_device *device, gpu_view view, uint64_t row0, uint64_t rows,
                      uint64_t row_bytes);

/* Fails the recording and returns false when the view is smaller than bytes. */
bool op_check_view(gpu_recorder *rec, const char *op, const char *name, gpu_view view,
                   uint64_t bytes);

/* ---- matvec.c: the product of one row, for the table of matmul ------------------------------- */

/* Columns of a workgroup by the height of the weight: enough workgroups first, then fewer reads of
 * x. */
enum { OP_MATVEC_TALL = 12288, OP_MATVEC_MIDDLE = 4096 };

bool op_matvec_fits(const op_shape *shape);
bool op_matvec_fits_middle(const op_shape *shape);
bool op_matvec_fits_tall(const op_shape *shape);

/* One part of a weight; its columns start at `column` of y. */
void op_record_matvec(gpu_recorder *rec, const op_weight *w, const op_weight_part *part,
                      const op_kernel_row *row, gpu_view x, gpu_view y, uint64_t column,
                      op_mode mode);

#endif
