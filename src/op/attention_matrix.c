/*
 * attention_matrix.c - attention of several rows on matrix units, and whether a device is good at
 * it.
 */
#include <assert.h>
#include <math.h>

#include "base/checked.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/random.h"
#include "kernels/kernels.gen.h"
#include "op/op.h"
#include "op/rows.h"

enum {
    QUERIES = 128,   /* of a workgroup */
    STEP = 32,       /* positions */
    ENOUGH = 256,    /* workgroups that fill a large device */
    LEAST_STEPS = 8, /* of a split: fewer are through before they could be joined */
    LEAST = 16,      /* queries that share K and V: fewer leave matrices of 16 rows empty */
    SPEEDUP = 16,    /* over f32 lanes */
};

static uint32_t tiles_of_head(uint64_t head_dim)
{
    return (uint32_t)ceil_div(head_dim, 16);
}

bool op_attention_matrix_fits(const op_shape *shape)
{
    const uint64_t words = STEP * (2 * (uint64_t)tiles_of_head(shape->k) + 1) + 8 * 16 * 9;
    return shape->half && shape->queries >= LEAST && words * 16 + 64 <= shape->workgroup_memory;
}

/* ---- recording ------------------------------------------------------------------------------- */

/* The steps that a workgroup walks at most. */
static uint64_t steps_of(const op_attention_shape *s)
{
    const uint64_t steps = ceil_div(s->longest, STEP);
    const uint64_t rows = QUERIES / (s->q_heads / s->kv_heads) + 2;
    return s->window == 0 ? steps : min_u64(steps, ceil_div(s->window + rows, STEP) + 1);
}

static uint64_t tiles_of(const op_attention_shape *s)
{
    return ceil_div((uint64_t)s->rows * (s->q_heads / s->kv_heads), QUERIES) * s->kv_heads;
}

static uint64_t most_splits(uint64_t steps)
{
    return max_u64(min_u64(steps / LEAST_STEPS, OP_ATTENTION_SPLITS), 1);
}

uint64_t op_attention_matrix_parts(const op_attention_shape *s)
{
    /* Splits times tiles are at most ENOUGH, a tile has QUERIES / G rows. */
    const uint64_t rows = ceil_div(QUERIES, s->q_heads / s->kv_heads);
    const uint64_t by_tiles = ceil_div(ENOUGH, s->kv_heads) * rows;
    return max_u64(s->rows, min_u64(by_tiles, s->rows * most_splits(ceil_div(s->longest, STEP))));
}

static gpu_pipeline *get_pipeline(gpu_device *device, const op_kernel_row *row,
                                  const op_attention_shape *s)
{
    const struct kernel_attention_matrix_options options = {.tiles = tiles_of_head(s->head_dim),
                                                            .cache = s->cache};
    return gpu_pipeline_get(device, row->kernel, &options);
}

uint32_t op_record_attention_matrix(gpu_recorder *rec, const op_kernel_row *row,
                                    const op_attention_views *v, const op_attention_shape *s)
{
    gpu_device *device = gpu_recorder_device(rec);
    gpu_pipeline *pipeline = get_pipeline(device, row, s);
    const uint64_t steps = steps_of(s), tiles = tiles_of(s);
    uint64_t splits = min_u64(ENOUGH / tiles, most_splits(steps));
    splits = max_u64(min_u64(splits, v->scratch.size / op_attention_part_bytes(s)), 1);
    const uint32_t split_steps = (uint32_t)ceil_div(steps, splits);
    splits = ceil_div(steps, split_steps);
    const struct kernel_attention_matrix_views views = {
        .q = v->q,
        .k_cache = v->k_cache,
        .v_cache = v->v_cache,
        .row_info = v->row_info,
        .block_table = v->block_table,
        .out = splits == 1 ? v->out : v->scratch,
    };
    struct kernel_attention_matrix_params params = {
        .first_row = v->first_row,
        .rows = s->rows,
        .q_heads = s->q_heads,
        .kv_heads = s->kv_heads,
        .head_dim = s->head_dim,
        .splits = (uint32_t)splits,
        .split_steps = split_steps,
        .row_words = op_cache_row_words(s->cache, s->head_dim),
        .window = s->window == 0 ? UINT32_MAX : s->window,
        .scale = s->scale,
        .softcap = s->softcap,
    };
    const uint64_t all = tiles * splits;
    assert(all <= UINT32_MAX);
    const uint64_t cost = (uint64_t)split_steps * STEP * QUERIES * s->head_dim * 2 / SPEEDUP;
    const uint64_t step = op_cut(device, all, cost, 1);
    for (uint64_t tile = 0; tile < all; tile += step) {
        params.first_tile = (uint32_t)tile;
        params.tile_end = (uint32_t)min_u64(tile + step, all);
        const op_grid grid = op_fold(device, params.tile_end - params.first_tile);
        kernel_attention_matrix_dispatch(rec, pipeline, &views, &params, grid.x, grid.y, 1);
    }
    return (uint32_t)splits;
}

/* ---- is the device good at it? --------------------------------------------------------------- */

/* Rows at the end of a sequence: from its beginning, past a block of the cache, with splits, with a
 * window and capped scores. The rows before them fill whole buffers' alignments. */
static const struct {
    uint32_t before, rows, window;
    float softcap;
} trials[] = {{0, 70, 0, 0}, {192, 40, 0, 0}, {1024, 33, 0, 0}, {576, 40, 290, 5}};
enum { TRIALS = sizeof trials / sizeof *trials };

typedef struct trial {
    gpu_device *device;
    op_attention_shape shape; /* of `rows` rows; longest: all */
    uint32_t before;
    gpu_buffer *qkv, *turns, *row_info, *table, *q, *k, *v, *scratch, *out;
    float *got, *want;
} trial;

static void trial_close(trial *t)
{
    gpu_buffer *const buffers[] = {t->qkv, t->turns, t->row_info, t->table, t->q,
                                   t->k,   t->v,     t->scratch,  t->out};
    for (uint32_t i = 0; i < sizeof buffers / sizeof *buffers; i++)
        gpu_buffer_destroy(buffers[i]);
    mem_free(t->got);
    mem_free(t->want);
}

static uint64_t out_bytes(const trial *t)
{
    return (uint64_t)t->shape.rows * t->shape.q_heads * t->shape.head_dim * 4;
}

/* Queries, keys and values from a generator; positions of one sequence, blocks in order. */
static temper_status trial_fill(trial *t, error *err)
{
    const op_attention_shape *s = &t->shape;
    const uint64_t values = (uint64_t)s->longest * (s->q_heads + 2 * s->kv_heads) * s->head_dim;
    const uint32_t blocks = ceil_div_u32(s->longest, OP_CACHE_BLOCK);
    random_state random = {.state = s->longest};
    float *qkv = mem_calloc(values, sizeof *qkv);
    op_row_info *info = mem_calloc(s->longest, sizeof *info);
    uint32_t *table = mem_calloc(blocks, sizeof *table);
    temper_status status = TEMPER_OK;
    if (qkv == NULL || info == NULL || table == NULL)
        status = error_set(err, TEMPER_NO_MEMORY, "no memory to check the device");
    for (uint64_t i = 0; status == TEMPER_OK && i < values; i++)
        qkv[i] = (float)random_normal(&random);
    for (uint32_t i = 0; status == TEMPER_OK && i < s->longest; i++)
        info[i].position = i;
    for (uint32_t i = 0; status == TEMPER_OK && i < blocks; i++)
        table[i] = i;
    if (status == TEMPER_OK)
        status = gpu_write(t->device, t->qkv, 0, qkv, values * sizeof *qkv, err);
    if (status == TEMPER_OK)
        status = gpu_write(t->device, t->row_info, 0, info, s->longest * sizeof *info, err);
    if (status == TEMPER_OK)
        status = gpu_write(t->device, t->table, 0, table, blocks * sizeof *table, err);
    mem_free(qkv);
    mem_free(info);
    mem_free(table);
    return status;
}

static temper_status trial_open(trial *t, error *err)
{
    const op_attention_shape *s = &t->shape;
    op_attention_shape all = *s;
    all.rows = s->longest;
    const uint32_t blocks = ceil_div_u32(s->longest, OP_CACHE_BLOCK);
    const uint64_t q_bytes = (uint64_t)s->longest * s->q_heads * s->head_dim * 4;
    const uint64_t cache = blocks * op_cache_block_bytes(s->cache, s->kv_heads, s->head_dim);
    const struct {
        gpu_buffer **buffer;
        uint64_t bytes;
        const char *label;
    } rows[] = {
        {&t->qkv, q_bytes + (uint64_t)s->longest * 2 * s->kv_heads * s->head_dim * 4,
         "device check qkv"},
        {&t->turns, sizeof(op_turns), "device check turns"},
        {&t->row_info, s->longest * sizeof(op_row_info), "device check positions"},
        {&t->table, blocks * sizeof(uint32_t), "device check table"},
        {&t->q, q_bytes, "device check q"},
        {&t->k, cache, "device check keys"},
        {&t->v, cache, "device check values"},
        {&t->scratch, op_attention_scratch_bytes(&all), "device check scratch"},
        {&t->out, q_bytes, "device check out"},
    };
    t->got = mem_calloc(1, out_bytes(t));
    t->want = mem_calloc(1, out_bytes(t));
    if (t->got == NULL || t->want == NULL)
        return error_set(err, TEMPER_NO_MEMORY, "no memory to check the device");
    for (uint32_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const temper_status status = gpu_buffer_create(
            t->device, rows[i].bytes, GPU_PURPOSE_SCRATCH, rows[i].label, rows[i].buffer, err);
        if (status != TEMPER_OK)
            return status;
    }
    return trial_fill(t, err);
}

/* Stores all rows, then attends from the last by the row, or with NULL as op_attention does without
 * leave to round. */
static void trial_record(gpu_recorder *rec, const trial *t, const op_kernel_row *row)
{
    const op_attention_shape *s = &t->shape;
    const op_rope_shape rope = {.rows = s->longest,
                                .q_heads = s->q_heads,
                                .kv_heads = s->kv_heads,
                                .head_dim = s->head_dim,
                                .cache = s->cache};
    const op_attention_views v = {
        gpu_whole(t->q),     gpu_whole(t->k),       gpu_whole(t->v),   gpu_whole(t->row_info),
        gpu_whole(t->table), gpu_whole(t->scratch), gpu_whole(t->out), t->before};
    op_attention_shape all = *s;
    all.rows = s->longest;
    op_rope_store(rec, gpu_whole(t->qkv), gpu_whole(t->turns), v.row_info, v.block_table, v.q,
                  v.k_cache, v.v_cache, &rope);
    if (row != NULL)
        op_record_attention_join(rec, &v, s, op_record_attention_matrix(rec, row, &v, s));
    else
        op_attention(rec, v.q, v.k_cache, v.v_cache, v.row_info, v.block_table, v.scratch, v.out,
                     &all);
}

/* Asks for the pipelines of both, so that they are made side by side. */
static temper_status trial_ask(const trial *t, const op_kernel_row *row, error *err)
{
    gpu_recorder *rec = gpu_record_prepare(t->device);
    trial_record(rec, t, NULL);
    trial_record(rec, t, row);
    return gpu_submit(rec, NULL, err);
}

static temper_status trial_run(const trial *t, const op_kernel_row *row, float *out, error *err)
{
    const uint64_t skipped = (uint64_t)t->before * t->shape.q_heads * t->shape.head_dim * 4;
    const gpu_view read = {t->out, skipped, out_bytes(t)};
    gpu_recorder *rec = gpu_record_begin(t->device);
    trial_record(rec, t, row);
    gpu_record_readback(rec, read);
    gpu_ticket ticket = {0};
    const temper_status status = gpu_submit(rec, &ticket, err);
    return status == TEMPER_OK ? gpu_wait(t->device, ticket, out, read.size, err) : status;
}

temper_status op_attention_agrees(gpu_device *device, const op_kernel_row *row,
                                  const op_attention_shape *s, bool *agrees, error *err)
{
    const uint32_t group = s->q_heads / s->kv_heads, kv_heads = s->kv_heads > 2 ? 2 : s->kv_heads;
    *agrees = true;
    for (uint32_t i = 0; *agrees && i < TRIALS; i++) {
        trial t = {.device = device,
                   .before = trials[i].before,
                   .shape = {.rows = trials[i].rows,
                             .q_heads = group * kv_heads,
                             .kv_heads = kv_heads,
                             .head_dim = s->head_dim,
                             .scale = 1.0f / sqrtf((float)s->head_dim),
                             .longest = trials[i].before + trials[i].rows,
                             .window = trials[i].window,
                             .softcap = trials[i].softcap,
                             .cache = s->cache}};
        temper_status status = trial_open(&t, err);
        if (status == TEMPER_OK)
            status = trial_ask(&t, row, err);
        if (status == TEMPER_OK)
            status = trial_run(&t, NULL, t.want, err);
        if (status == TEMPER_OK)
            status = trial_run(&t, row, t.got, err);
        if (status == TEMPER_OK)
            *agrees = op_close_enough(t.got, t.want, out_bytes(&t) / 4, op_tolerance_operands);
        trial_close(&t);
        if (status != TEMPER_OK)
            return status;
    }
    return TEMPER_OK;
}

temper_status op_attention_try(gpu_device *device, const op_kernel_row *row,
                               const op_attention_shape *s, bool *good, error *why, error *err)
{
    error own = {0};
    const temper_status tried = op_attention_agrees(device, row, s, good, &own);
    const temper_status status = op_judge(device, row->name, tried, good, &own, err);
    if (status == TEMPER_OK && !*good)
        log_message(LOG_WARNING,
                    "%s does not compute attention on f16 matrices (%s): prompts stay in f32",
                    gpu_device_adapter(device)->name, own.text);
    if (why != NULL)
        *why = own;
    return status;
}

temper_status op_attention_check(gpu_device *device, const op_attention_shape *shape, bool *half,
                                 error *why, error *err)
{
    op_attention_shape s = *shape;
    s.half = true;
    s.sequences = 1;
    s.rows = QUERIES;
    const op_kernel_row *row = op_attention_row(device, &s, false);
    *half = false;
    return row->kernel == &kernel_attention_matrix
               ? op_attention_try(device, row, &s, half, why, err)
               : TEMPER_OK;
}
