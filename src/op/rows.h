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

/* A tile of product_matrix.wgsl: options of that kernel, and what it costs. Of product_few.wgsl,
 * whose workgroups walk over tiles, `teams` is the most there are. */
typedef struct op_tile {
    uint32_t down, across, sub_m, sub_n, teams, units;
    bool stage_x, walks;
    uint32_t at_once; /* workgroups that a core runs at a time */
    double per_k;     /* microseconds that all of them take for each 2048 of K */
    double fixed;     /* and besides */
    double start;     /* for each 2048 of K once, before the first tile */
    double alone;     /* the share of it all that one workgroup a core takes */
} op_tile;

/* What a predicate may look at; fields that mean nothing to an op are 0. */
typedef struct op_shape {
    uint64_t rows, n, k;
    weight_format format;
    bool greedy;               /* a sampler at temperature 0 */
    uint64_t workgroup_memory; /* of the device */
    uint64_t invocations;      /* lanes a workgroup, of the device */
    bool fixed;                /* 16-bit fixed point will do for a single row */
    bool scratch;              /* there is room for inputs in f16 */
    bool half;           /* f16 operands are allowed, the device is good at them, and they hold
                            the weight */
    bool holds;          /* f16 holds the weight */
    bool half_sums;      /* the device is good at sums of f16 on matrix units */
    temper_lossy lossy;  /* what was asked for */
    uint32_t subgroup;   /* lanes, where all subgroups of the device have as many; else 0 */
    uint32_t queries;    /* of one sequence that share K and V; 0: rows are taken one by one */
    const op_tile *tile; /* op_tile_best of all this */
} op_shape;

typedef struct op_kernel_row {
    const char *name;
    const gpu_kernel *kernel;            /* kernel->needs: the features */
    uint32_t invocations;                /* lanes a workgroup */
    uint32_t workgroup_memory;           /* bytes, at most */
    bool (*fits)(const op_shape *shape); /* NULL: every shape */
    uint32_t tile_rows, tile_cols;       /* of a register tile; 0 where there is none */
    bool gpu_only;                       /* left alone on a software device: slower there */
    uint32_t lossy; /* OP_OPENED_BY what opens the row, and puts it first; 0: nothing has to */
    bool yields;    /* a lossy row that comes first only where none on matrix units with f32 sums is
                       open: those are faster, and rounded less */
    const op_tile *tile; /* of product_matrix and product_few: f16 operands; NULL: the others */
    bool (*runs)(gpu_device *device); /* what else the device must have; NULL: nothing */
    const char *why;                  /* one sentence */
} op_kernel_row;

#define OP_OPENED_BY(lossy) (1u << (lossy))

typedef struct op_table {
    const char *op;
    const op_kernel_row *rows;
    uint32_t count;
} op_table;

extern const op_table op_table_matmul, op_table_lookup, op_table_rmsnorm, op_table_silu_gate,
    op_table_add, op_table_layernorm, op_table_head_norm, op_table_gelu_gate, op_table_gelu,
    op_table_bias, op_table_add_positions, op_table_softcap, op_table_rope_store,
    op_table_attention, op_table_sample, op_table_penalize, op_table_bias_logits, op_table_best,
    op_table_nll, op_table_gather_ids;

/* All tables, in the order of a step; NULL at the end. */
extern const op_table *const op_tables[];

/* The row that computes the shape: the first that shape->lossy opens and that may; else the first
 * of the device's choices (choices.h) that may, or that only another tile keeps from it; else the
 * first of the table that may. */
const op_kernel_row *op_choose(gpu_device *device, const op_table *table, const op_shape *shape);

/* Whether a row may compute a shape on a device, or the first reason why not. */
typedef enum op_verdict {
    OP_ROW_MAY,
    OP_ROW_LACKS_FEATURE, /* kernel->needs */
    OP_ROW_LANES,         /* more than a workgroup has here */
    OP_ROW_MEMORY,        /* more than a workgroup has here */
    OP_ROW_BINDINGS,      /* more than a stage has here */
    OP_ROW_DEVICE,        /* runs() */
    OP_ROW_SOFTWARE,      /* gpu_only */
    OP_ROW_CLOSED,        /* lossy, and not asked for */
    OP_ROW_SHAPE,         /* fits() */
    OP_ROW_SLOWER,        /* fits(), only because another tile is thought faster */
    OP_ROW_YIELDS,        /* a row on matrix units is open */
} op_verdict;

/* shape NULL: whatever it is. */
op_verdict op_row_verdict(gpu_device *device, const op_kernel_row *row, const op_shape *shape);

/* True when the device can run the row, whatever the shape, and be it slowly. */
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

/* ---- work.c: gpu_record_work of the next dispatch -------------------------------------------- */

/* Of x W^T with n rows of a weight; f32 inputs and results. */
void op_record_product_work(gpu_recorder *rec, weight_format format, uint64_t n, uint64_t k,
                            uint64_t rows, op_mode mode);

/* Of attention: K and V of every position that a row sees once for a sequence. */
void op_record_attention_work(gpu_recorder *rec, const op_attention_shape *shape);

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

/* ---- what comes before a product, and matvec_fixed.c: one row in 16-bit fixed point ---------- */

typedef enum op_prologue_kind {
    OP_PROLOGUE_NONE,
    OP_PROLOGUE_RMSNORM,
    OP_PROLOGUE_SILU_GATE
} op_prologue_kind;

typedef struct op_prologue {
    op_prologue_kind kind;
    gpu_view weight; /* of the norm */
    float eps;
} op_prologue;

bool op_fixed_fits(const op_shape *shape);

/* One part of a weight, after a norm or nothing. With a gate, the only part, of an even number of
 * rows, and OP_WRITE. A lossy row has its input in bytes. */
void op_record_fixed(gpu_recorder *rec, const op_weight *w, const op_weight_part *part,
                     const op_kernel_row *row, const op_prologue *before, op_gate gate, gpu_view x,
                     gpu_view y, uint64_t column, op_mode mode);

/* ---- trial.c: is a row good on a device? ----------------------------------------------------- */

/* How far results may be off, the worst of them and all on average: shares of the mean magnitude.
 */
typedef struct op_tolerance {
    double largest, mean;
} op_tolerance;

extern const op_tolerance op_tolerance_operands; /* rounded to f16, with sums in f32 */

bool op_close_enough(const float *got, const float *want, uint64_t count, op_tolerance allowed);

/* What a trial of a row came to. status, why: of the trial; *good: whether its results agree.
 * Memory that is lacking and a device that has failed are errors; a kernel that the driver does not
 * take is a row that is no good, and `why` says why. */
temper_status op_judge(gpu_device *device, const char *row, temper_status status, bool *good,
                       error *why, error *err);

/* ---- attention: what its kernels share ------------------------------------------------------ */

enum { OP_ATTENTION_SPLITS = 64 }; /* of the positions, at most: what attention_join can join */

typedef struct op_attention_views {
    gpu_view q, k_cache, v_cache, row_info, block_table, scratch, out;
    uint32_t first_row; /* of q, row_info and out: where the shape's rows begin */
} op_attention_views;

/* Bytes of scratch that one split of this shape takes. */
uint64_t op_attention_part_bytes(const op_attention_shape *s);

/* Records a join of the splits in scratch where there are several. */
void op_record_attention_join(gpu_recorder *rec, const op_attention_views *v,
                              const op_attention_shape *s, uint32_t splits);

/* What the table is asked, and its row, for this shape; `single`: for its rows one by one. */
op_shape op_attention_question(gpu_device *device, const op_attention_shape *s, bool single);
const op_kernel_row *op_attention_row(gpu_device *device, const op_attention_shape *s, bool single);

/* False after gpu_record_fail: what no kernel can do, or a view that is too small. */
bool op_check_attention(gpu_recorder *rec, const op_attention_views *v,
                        const op_attention_shape *s);
bool op_check_rope(gpu_recorder *rec, gpu_view qkv, gpu_view turns, gpu_view row_info,
                   gpu_view q_out, const op_rope_shape *s);

/* Each file of kernels: the parts (rows times splits) that a dispatch of this shape and of shapes
 * of fewer rows and positions writes to scratch at most; asking for the pipelines; and recording,
 * which returns into how many splits the positions went: 1 means that out is written, else a join
 * must follow. */
uint64_t op_attention_row_parts(const op_attention_shape *s);
void op_prepare_attention_row(gpu_device *device, const op_attention_shape *s);
uint32_t op_record_attention_row(gpu_recorder *rec, const op_attention_views *v,
                                 const op_attention_shape *s);

/* ---- attention_matrix.c: several rows on matrix units --------------------------------------- */

bool op_attention_matrix_fits(const op_shape *shape);
uint64_t op_attention_matrix_parts(const op_attention_shape *s);
uint32_t op_record_attention_matrix(gpu_recorder *rec, const op_kernel_row *row,
                                    const op_attention_views *v, const op_attention_shape *s);

/* Whether the row computes what the rows in f32 do, with such heads and such a cache at several
 * lengths. Waits. */
temper_status op_attention_agrees(gpu_device *device, const op_kernel_row *row,
                                  const op_attention_shape *s, bool *agrees, error *err);

/* The same as op_judge takes it; a refusal is logged and goes to `why`, which may be NULL. */
temper_status op_attention_try(gpu_device *device, const op_kernel_row *row,
                               const op_attention_shape *s, bool *good, error *why, error *err);

/* ---- attention_teams.c: single rows through subgroups, with rope and store or without ------- */

bool op_teams_fits(const op_shape *shape);
uint64_t op_attention_teams_parts(const op_attention_shape *s);

/* What turns the queries and keys of a step: NULL where that is done. */
typedef struct op_turning {
    gpu_view qkv, turns;
    const op_rope_shape *rope;
} op_turning;

void op_prepare_attention_teams(gpu_device *device, const op_attention_shape *s);
uint32_t op_record_attention_teams(gpu_recorder *rec, const op_attention_views *v,
                                   const op_attention_shape *s, const op_turning *turning);

/* ---- matmul.c -------------------------------------------------------------------------------- */

/* The row that a product of `rows` rows with the weight gets, y being `width` wide. A row of the
 * table that is for one row of x may be given for a few: they then go one by one. */
const op_kernel_row *op_matmul_row(gpu_device *device, const op_weight *weight, uint32_t rows,
                                   uint64_t width, const op_products *with);

/* A product by that row, with what comes before it where the row can do it. Views are checked. */
void op_record_matmul(gpu_recorder *rec, const op_weight *weight, const op_kernel_row *row,
                      const op_prologue *before, gpu_view x, gpu_view y, uint32_t rows,
                      uint64_t column, uint64_t width, op_mode mode, const op_products *with);

/* Whether the row does what comes before the product itself. */
bool op_row_takes(const op_kernel_row *row, op_prologue_kind kind);

/* The numbers of rows to record a product for: `rows` alone or, in a recorder that only asks for
 * pipelines, all up to it for which another row of the table may be chosen. 0 after the last. */
uint32_t op_first_rows(gpu_recorder *rec, uint32_t rows);
uint32_t op_next_rows(uint32_t count, uint32_t rows);

/* Tests only: where the named row can run and its predicate accepts the shape, it is chosen, on a
 * software device too. NULL ends that. */
void op_prefer_row(const char *name);

/* How often a preferred row was chosen so far: a test that prefers one asks whether it was used. */
uint64_t op_preferred_choices(void);

/* ---- product_tiles.c: tiles on matrix units -------------------------------------------------- */

enum {
    OP_TILE_128,
    OP_TILE_64,
    OP_TILE_32,
    OP_TILE_16,
    OP_TILE_16_DEEP,
    OP_TILES,
};

extern const op_tile op_tiles[OP_TILES], op_tile_few;

uint32_t op_tile_rows(const op_tile *t);
uint32_t op_tile_cols(const op_tile *t);
uint32_t op_tile_lanes(const op_tile *t);  /* of a workgroup */
uint32_t op_tile_memory(const op_tile *t); /* bytes of workgroup memory */

/* Whether it divides K as it must, and unpacks the weight: product_few has no way for entries of
 * more than 32 bytes, which have no scales. */
bool op_tile_takes_k(const op_tile *t, uint64_t k);
bool op_tile_takes_format(const op_tile *t, weight_format format);

/* Whether the tile can compute the shape, and be it slowly. */
bool op_tile_takes(const op_tile *t, const op_shape *shape);

/* Whether K may be split into so many slices. */
bool op_tile_takes_slices(const op_tile *t, uint64_t rows, uint64_t k, uint32_t slices);

/* How product_few's kernel shares a slice of K: subgroups, steps of each, and whether they have all
 * as much to do. */
typedef struct op_few_plan {
    uint32_t teams, steps;
    bool exact;
} op_few_plan;

op_few_plan op_few_plan_of(uint64_t k, uint32_t slices);

/* How many workgroups walk over so many columns of tiles, where there are `times` of each. */
uint32_t op_few_walks(uint64_t columns, uint64_t times);

/* Into how many slices K is split where so few tiles would leave most of a device idle; 1: not. */
uint32_t op_tile_slices(const op_tile *t, uint64_t rows, uint64_t n, uint64_t k);

/* The same of a row with a tile on a device: as measured there, where it was. */
uint32_t op_row_slices(gpu_device *device, const op_kernel_row *row, weight_format format,
                       uint64_t rows, uint64_t n, uint64_t k);

/* The same of steel (product_steel.wgsl), whose tiles are 128 by 128. */
uint32_t op_steel_slices(uint64_t rows, uint64_t n, uint64_t k);

/* The fastest tile for the shape, whose own tile is not looked at; NULL where none takes it. */
const op_tile *op_tile_best(const op_shape *shape);

/* Predicates: it is this one. */
bool op_tile_fits_128(const op_shape *shape);
bool op_tile_fits_64(const op_shape *shape);
bool op_tile_fits_32(const op_shape *shape);
bool op_tile_fits_16(const op_shape *shape);
bool op_tile_fits_16_deep(const op_shape *shape);
bool op_tile_fits_few(const op_shape *shape);

/* Two to four rows are sooner done one by one. */
bool op_single_rows_fit(const op_shape *shape);

/* ---- products.c: several rows through tiles -------------------------------------------------- */

enum { OP_PRODUCT_ROWS = 8192 }; /* of x, at a time */

bool op_half_runs(gpu_device *device);
bool op_half_sums_run(gpu_device *device);
bool op_steel_fits(const op_shape *shape);

/* Whether op_record_product takes the row: it has a tile, is steel, or a lossy one for several rows
 * of x. */
bool op_row_is_product(const op_kernel_row *row);

/* All parts of the weight; rows that bind. Steel takes no prologue. */
void op_record_product(gpu_recorder *rec, const op_weight *w, const op_kernel_row *row,
                       const op_prologue *before, gpu_view x, gpu_view y, uint32_t rows,
                       uint64_t column, uint64_t width, op_mode mode, const op_products *with);

/* Its scratch. The inputs lie there in f16: OP_PRODUCT_ROWS scales in f32, then [K / 32][x_rows]
 * [32] halves. */
op_product_bytes op_product_scratch_bytes(gpu_device *device, const op_kernel_row *row,
                                          weight_format format, uint64_t n, uint64_t k,
                                          uint32_t rows);

/* The next number of rows, from 2 on, for which another choice may be made: classes of rows
 * (choices.h) and sixteens begin there. */
uint64_t op_next_class(uint64_t rows);

/* Where the largest magnitude of a row of halves lies: biased exponents of f32. Rows outside are
 * brought to `high` by a power of two. */
typedef struct op_lift {
    uint32_t low, high;
} op_lift;

extern const op_lift op_lift_operands; /* for sums in f32 */

/* For sums in f16, of so many products with elements that `largest` passes: none overflows. */
op_lift op_lift_for_sums(double largest, uint64_t count);

void op_record_product_input(gpu_recorder *rec, const op_prologue *before, op_lift lift, gpu_view x,
                             uint32_t rows, uint32_t x_rows, uint64_t k, gpu_view scratch);

/* That scratch, and what of it a kernel binds; own: bytes of halves that it needs. */
uint64_t op_halves_scratch_bytes(uint64_t rows, uint64_t k);
gpu_view op_scales_view(gpu_view scratch);
gpu_view op_halves_view(gpu_device *device, gpu_view scratch, uint64_t own);

/* Whether a row with a tile computes what op_matmul does, at several K. Waits. lossy: what opens
 * it; its sums are then off by more, and may be. */
temper_status op_row_agrees(gpu_device *device, const op_kernel_row *row, temper_lossy lossy,
                            bool *agrees, error *err);

/* ---- product_lossy.c: several rows, rounded as was asked for --------------------------------- */

/* Predicates: a few rows, and more. */
bool op_int8_fits_few(const op_shape *shape);
bool op_int8_fits(const op_shape *shape);
bool op_halves_fit_few(const op_shape *shape);
bool op_halves_fit(const op_shape *shape);

/* Whether the row is one of this file. */
bool op_row_is_lossy_product(const op_kernel_row *row);

/* As op_record_product, op_product_scratch_bytes: their parts for these rows. */
void op_record_lossy(gpu_recorder *rec, const op_weight *w, const op_kernel_row *row,
                     const op_prologue *before, gpu_view x, gpu_view y, uint32_t rows,
                     uint64_t column, uint64_t width, op_mode mode, const op_products *with);
op_product_bytes op_lossy_scratch_bytes(const op_kernel_row *row, uint64_t k, uint32_t rows);

#endif
