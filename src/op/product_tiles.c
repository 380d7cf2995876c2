/*
 * product_tiles.c - the tiles of product_matrix.wgsl and product_few.wgsl, and which of them suits
 * a product.
 *
 * The microseconds are of one H200 (lab/RESULTS.md). Another device has other ones; what is chosen
 * by them is chosen by how many workgroups there are, and that holds for any device of its size.
 */
#include <assert.h>

#include "base/checked.h"
#include "kernels/kernels.gen.h"
#include "op/choices.h"
#include "op/op.h"
#include "op/rows.h"

enum {
    CORES = 132,      /* that run workgroups side by side */
    BAND = 8,         /* rows of tiles in a band, as in the kernel */
    ROWS_UNIT = 16,   /* every tile is a multiple of so many rows */
    LEAST_SHARE = 16, /* blocks of 32 along k that a slice has at least */
    MOST_SLICES = 8,
    LEAST_COLS = 32,
    STEEL_TILE = 128,
    MOST_K = 1 << 17, /* inputs of one tile of rows bind everywhere */
    MOST_SINGLE_ROWS = 4,
    FEW_STEPS = 4, /* of product_few, at most */
    FEW_TEAMS = 8, /* of several steps; a single one is done by as many as it takes, if they are
                      not more than the tile's */
};

const op_tile op_tiles[OP_TILES] = {
    [OP_TILE_128] = {.down = 4,
                     .across = 4,
                     .sub_m = 2,
                     .sub_n = 2,
                     .teams = 1,
                     .units = 1,
                     .stage_x = true,
                     .at_once = 2,
                     .per_k = 50,
                     .fixed = 7,
                     .alone = 0.7},
    [OP_TILE_64] = {.down = 2,
                    .across = 4,
                    .sub_m = 2,
                    .sub_n = 2,
                    .teams = 2,
                    .units = 1,
                    .stage_x = true,
                    .at_once = 1,
                    .per_k = 20.2,
                    .fixed = 2.6,
                    .alone = 1},
    [OP_TILE_32] = {.down = 2,
                    .across = 2,
                    .sub_m = 1,
                    .sub_n = 2,
                    .teams = 4,
                    .units = 1,
                    .stage_x = true,
                    .at_once = 1,
                    .per_k = 8.5,
                    .fixed = 1.3,
                    .alone = 1},
    [OP_TILE_16] = {.down = 1,
                    .across = 2,
                    .sub_m = 1,
                    .sub_n = 1,
                    .teams = 8,
                    .units = 1,
                    .stage_x = false,
                    .at_once = 2,
                    .per_k = 7.8,
                    .fixed = 0.7,
                    .alone = 0.82},
    [OP_TILE_16_DEEP] = {.down = 1,
                         .across = 1,
                         .sub_m = 1,
                         .sub_n = 1,
                         .teams = 8,
                         .units = 4,
                         .stage_x = false,
                         .at_once = 1,
                         .per_k = 3.4,
                         .fixed = 1.2,
                         .alone = 1},
};

/* Words of all K that a subgroup has are under way at once, and x stays in registers. */
const op_tile op_tile_few = {.down = 1,
                             .across = 1,
                             .sub_m = 1,
                             .sub_n = 1,
                             .teams = 10,
                             .units = 2,
                             .stage_x = false,
                             .walks = true,
                             .at_once = 2,
                             .per_k = 1.9,
                             .fixed = 0.5,
                             .start = 3.2,
                             .alone = 0.55};

static const op_tile *tile_at(int i)
{
    return i < OP_TILES ? &op_tiles[i] : &op_tile_few;
}

uint32_t op_tile_rows(const op_tile *t)
{
    return 16 * t->down * t->sub_m;
}

uint32_t op_tile_cols(const op_tile *t)
{
    return 16 * t->across * t->sub_n;
}

uint32_t op_tile_lanes(const op_tile *t)
{
    return 32 * t->sub_m * t->sub_n * t->teams;
}

uint32_t op_tile_memory(const op_tile *t)
{
    const uint32_t rows = (t->stage_x ? op_tile_rows(t) : 0) + op_tile_cols(t);
    const uint32_t stage = rows * (4 * t->units + 1);
    const uint32_t strips = t->sub_m * t->sub_n * 16 * (4 * t->across + 1);
    return 16 * t->teams * (stage > strips ? stage : strips);
}

/* ---- what a product takes ------------------------------------------------------------------- */

/* Microseconds of a join of `slices` sums: a dispatch, and bytes that are in the cache. */
static double join_us(uint64_t rows, uint64_t n, uint32_t slices)
{
    return slices > 1 ? 3.4 + (double)(rows * n * 4 * (slices + 2)) / 6e6 : 0;
}

/* Rows count in sixteens, so that what is chosen changes there and nowhere else. */
static double tile_us(const op_tile *t, uint64_t some_rows, uint64_t n, uint64_t k, uint32_t slices)
{
    const uint64_t rows = ceil_div(some_rows, ROWS_UNIT) * ROWS_UNIT;
    const uint64_t groups = ceil_div(rows, op_tile_rows(t)) * ceil_div(n, op_tile_cols(t)) * slices;
    const uint64_t waves = ceil_div(groups, (uint64_t)CORES * t->at_once);
    const double share = (double)k / (2048.0 * slices);
    const double all = (double)waves * (t->per_k * share + t->fixed) + t->start * share;
    return 2.5 + all * (groups <= CORES ? t->alone : 1) + join_us(rows, n, slices);
}

/* Blocks along k that a workgroup of product_few has at most. */
static uint64_t most_share(const op_tile *t)
{
    return (uint64_t)FEW_TEAMS * t->units * FEW_STEPS;
}

bool op_tile_takes_k(const op_tile *t, uint64_t k)
{
    if (t->walks)
        return k % 32 == 0 && k <= (uint64_t)MOST_SLICES * most_share(t) * 32;
    return k % (t->units == 1 ? 32 : 32ull * t->units * t->teams) == 0;
}

bool op_tile_takes_format(const op_tile *t, weight_format format)
{
    return !t->walks || format.scale != SCALE_NONE;
}

bool op_tile_takes_slices(const op_tile *t, uint64_t rows, uint64_t k, uint32_t slices)
{
    const bool many = slices > 1 && slices <= MOST_SLICES && k / 32 / slices >= LEAST_SHARE;
    if (t->walks)
        return (slices == 1 || many) && ceil_div(k / 32, slices) <= most_share(t);
    return slices == 1 || (many && t->units == 1 && rows <= (uint64_t)BAND * op_tile_rows(t));
}

uint32_t op_tile_slices(const op_tile *t, uint64_t rows, uint64_t n, uint64_t k)
{
    uint32_t best = 0;
    for (uint32_t slices = 1; slices <= MOST_SLICES; slices *= 2)
        if (op_tile_takes_slices(t, rows, k, slices) &&
            (best == 0 || tile_us(t, rows, n, k, slices) < tile_us(t, rows, n, k, best)))
            best = slices;
    return best > 0 ? best : 1;
}

op_few_plan op_few_plan_of(uint64_t k, uint32_t slices)
{
    const op_tile *t = &op_tile_few;
    const uint64_t blocks = k / 32, share = ceil_div(blocks, slices);
    const bool once = share <= (uint64_t)t->teams * t->units;
    const uint64_t steps = once ? 1 : ceil_div(share, (uint64_t)FEW_TEAMS * t->units);
    const uint64_t teams = max_u64(2, ceil_div(share, steps * t->units));
    assert(steps <= FEW_STEPS);
    return (op_few_plan){(uint32_t)teams, (uint32_t)steps,
                         share * slices == blocks && teams * steps * t->units == share};
}

uint32_t op_few_walks(uint64_t columns, uint64_t times)
{
    /* Where many cores would have one tile and many two, all of them have one workgroup. */
    const uint64_t all = columns * times, most = (uint64_t)CORES * op_tile_few.at_once;
    const uint64_t places = 4 * all <= 3 * most ? CORES : most;
    return (uint32_t)ceil_div(columns, ceil_div(all, places));
}

/* As tile_us, of what the kernel took there. A core runs two tiles in little less time than one
 * after the other, and the two that follow them come to the same core: what is left for a last wave
 * does not spread. */
static double steel_us(uint64_t rows, uint64_t n, uint64_t k, uint32_t slices)
{
    const double per_k = 478, fixed = 14, alone = 0.57;
    const uint64_t groups = ceil_div(rows, STEEL_TILE) * ceil_div(n, STEEL_TILE) * slices;
    const uint64_t waves = ceil_div(groups, (uint64_t)2 * CORES);
    const double wave = per_k * (double)k / (2048.0 * slices) + fixed;
    return (double)waves * wave * (groups <= CORES ? alone : 1) + join_us(rows, n, slices);
}

uint32_t op_steel_slices(uint64_t rows, uint64_t n, uint64_t k)
{
    uint32_t best = 1;
    for (uint32_t slices = 2; slices <= MOST_SLICES && k / 32 / slices >= LEAST_SHARE; slices *= 2)
        if (steel_us(rows, n, k, slices) < steel_us(rows, n, k, best))
            best = slices;
    return best;
}

/* The tile that takes least, and in *us how long; NULL where none takes the shape. */
static const op_tile *best_tile(const op_shape *shape, double *us)
{
    const op_tile *best = NULL;
    for (int i = 0; i <= OP_TILES; i++) {
        const op_tile *t = tile_at(i);
        if (!op_tile_takes_k(t, shape->k) || !op_tile_takes_format(t, shape->format) ||
            op_tile_memory(t) > shape->workgroup_memory)
            continue;
        const uint32_t slices = op_tile_slices(t, shape->rows, shape->n, shape->k);
        const double own = tile_us(t, shape->rows, shape->n, shape->k, slices);
        if (best == NULL || own < *us) {
            best = t;
            *us = own;
        }
    }
    return best;
}

static bool half_takes(const op_shape *shape)
{
    return shape->scratch && shape->half && shape->rows >= 2 && shape->n >= LEAST_COLS &&
           shape->k % 32 == 0 && shape->k <= MOST_K;
}

bool op_tile_takes(const op_tile *t, const op_shape *shape)
{
    return half_takes(shape) && op_tile_takes_k(t, shape->k) &&
           op_tile_takes_format(t, shape->format) && op_tile_memory(t) <= shape->workgroup_memory;
}

uint32_t op_row_slices(gpu_device *device, const op_kernel_row *row, weight_format format,
                       uint64_t rows, uint64_t n, uint64_t k)
{
    const op_shape shape = {.rows = rows, .n = n, .k = k, .format = format};
    const op_choice *choice = op_choices_find(op_choices_of(device), &op_table_matmul, &shape);
    for (uint32_t i = 0; choice != NULL && i < choice->count; i++)
        if (choice->order[i].row == row &&
            op_tile_takes_slices(row->tile, rows, k, choice->order[i].slices))
            return choice->order[i].slices;
    return op_tile_slices(row->tile, rows, n, k);
}

uint64_t op_next_class(uint64_t rows)
{
    return rows < ROWS_UNIT ? op_rows_class(rows + 1) : (rows / ROWS_UNIT + 1) * ROWS_UNIT;
}

const op_tile *op_tile_best(const op_shape *shape)
{
    double us = 0;
    return half_takes(shape) ? best_tile(shape, &us) : NULL;
}

/* ---- predicates of the table ----------------------------------------------------------------- */

bool op_tile_fits_128(const op_shape *shape)
{
    return shape->tile == &op_tiles[OP_TILE_128];
}

bool op_tile_fits_64(const op_shape *shape)
{
    return shape->tile == &op_tiles[OP_TILE_64];
}

bool op_tile_fits_32(const op_shape *shape)
{
    return shape->tile == &op_tiles[OP_TILE_32];
}

bool op_tile_fits_16(const op_shape *shape)
{
    return shape->tile == &op_tiles[OP_TILE_16];
}

bool op_tile_fits_16_deep(const op_shape *shape)
{
    return shape->tile == &op_tiles[OP_TILE_16_DEEP];
}

bool op_tile_fits_few(const op_shape *shape)
{
    return shape->tile == &op_tile_few;
}

uint32_t op_first_rows(gpu_recorder *rec, uint32_t rows)
{
    return gpu_recorder_prepares(rec) && rows > 1 ? 2 : rows;
}

uint32_t op_next_rows(uint32_t count, uint32_t rows)
{
    if (count >= rows)
        return 0;
    /* Above 256 rows there are no choices but among tiles of 64 and more, or those of a device's
     * own for powers of two. */
    const uint64_t next = count < MOST_SINGLE_ROWS ? count + 1
                          : count < 256            ? op_next_class(count)
                                                   : (count / 64 + 1) * 64;
    return (uint32_t)min_u64(next, rows);
}

bool op_single_rows_fit(const op_shape *shape)
{
    op_shape one = *shape;
    one.rows = 1;
    if (shape->rows < 2 || shape->rows > MOST_SINGLE_ROWS || !op_fixed_fits(&one))
        return false;
    /* A dispatch with its latencies, and the weight at 4.3 TB/s; tiles want their inputs in f16. */
    const uint64_t bytes = op_weight_bytes(shape->format, shape->n, shape->k);
    const double row_us = 3.3 + (double)bytes / 4.3e6, input_us = 2.8;
    double us = 0;
    return half_takes(shape) && best_tile(shape, &us) != NULL &&
           (double)shape->rows * row_us < us + input_us;
}
