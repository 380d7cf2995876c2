/*
 * attention.c - causal attention over the blocked cache: tiles of queries by splits of positions,
 * then a join.
 */
#include <assert.h>

#include "base/checked.h"
#include "kernels/kernels.gen.h"
#include "op/op.h"
#include "op/rows.h"

enum {
    MAX_QUERIES = 8,    /* of a tile: 1312 bytes of workgroup memory each */
    ENOUGH_TILES = 256, /* workgroups that fill a large device */
    JOIN_LANES = 256,
    JOIN_LANES_SOFTWARE = 64,
};

static bool is_single(const op_shape *shape)
{
    return shape->rows == 1;
}

static const op_kernel_row rows_of_attention[] = {
    {.name = "matrix",
     .kernel = &kernel_attention_matrix,
     .invocations = 256,
     .workgroup_memory = 20 << 10, /* with heads of 16; those of 256 take 35 KiB */
     .runs = op_half_runs,
     .fits = op_attention_matrix_fits,
     .gpu_only = true,
     .why = "many rows on matrix units: 128 queries of a KV head share K and V, f16 operands and "
            "f32 sums"},
    {.name = "teams",
     .kernel = &kernel_attention_teams,
     .invocations = 256,
     .workgroup_memory = (8 << 10) + 256,
     .fits = op_teams_fits,
     .gpu_only = true,
     .why = "a row at a time: a few lanes a position, no barrier between positions; turns and "
            "stores q, k and v on the way"},
    {.name = "row_chunks",
     .kernel = &kernel_attention_row,
     .invocations = 64,
     .workgroup_memory = MAX_QUERIES * 1536,
     .fits = is_single,
     .gpu_only = true,
     .why = "a row at a time: positions spread over many workgroups, 64 each, sums in trees"},
    {.name = "blocks",
     .kernel = &kernel_attention,
     .invocations = 64,
     .workgroup_memory = MAX_QUERIES * 1312,
     .tile_rows = MAX_QUERIES,
     .why = "three barriers a block of 256 positions, K and V once for a tile of queries, memory "
            "linear in context"},
};

const op_table op_table_attention = {"attention", rows_of_attention,
                                     sizeof rows_of_attention / sizeof *rows_of_attention};

/* How the queries of a KV head are dealt to workgroups, and the positions to splits. */
typedef struct tiling {
    uint32_t rows, heads; /* of a tile */
    uint32_t row_tiles, head_tiles;
    uint32_t splits, split_blocks;
} tiling;

static uint32_t rows_of_a_full_tile(const op_attention_shape *s)
{
    const uint32_t heads = s->q_heads / s->kv_heads;
    return heads >= MAX_QUERIES ? 1 : MAX_QUERIES / heads;
}

/* The blocks that a tile of rows in a row of positions sees at most. The kernel's last split goes
 * on where rows are further apart. */
static uint64_t blocks_of_a_tile(const op_attention_shape *s, uint32_t rows)
{
    const uint64_t blocks = ceil_div(s->longest, OP_CACHE_BLOCK);
    if (s->window == 0)
        return blocks;
    /* A stretch of n positions touches one block more than it fills when it starts inside one. */
    return min_u64(blocks, ceil_div((uint64_t)s->window + rows - 2, OP_CACHE_BLOCK) + 1);
}

static tiling make_tiling(const op_attention_shape *s, bool single)
{
    const uint32_t heads = s->q_heads / s->kv_heads;
    const uint32_t full = rows_of_a_full_tile(s), sequences = s->sequences > 1 ? s->sequences : 1;
    tiling t;
    t.head_tiles = ceil_div_u32(heads, MAX_QUERIES);
    t.heads = ceil_div_u32(heads, t.head_tiles);
    /* Rows of several sequences in one tile take a pass each: not worth it for single rows. */
    t.rows = !single && s->rows / sequences >= full ? full : 1;
    t.row_tiles = ceil_div_u32(s->rows, t.rows);
    const uint64_t tiles = (uint64_t)t.row_tiles * t.head_tiles * s->kv_heads;
    const uint64_t blocks = blocks_of_a_tile(s, t.rows);
    const uint64_t splits =
        min_u64(min_u64(blocks, OP_ATTENTION_SPLITS), max_u64(ENOUGH_TILES / tiles, 1));
    t.split_blocks = (uint32_t)ceil_div(blocks, splits);
    t.splits = (uint32_t)ceil_div(blocks, t.split_blocks);
    return t;
}

uint64_t op_attention_scratch_bytes(const op_attention_shape *s)
{
    /* rows * splits over all smaller shapes: splits are at most OP_ATTENTION_SPLITS, the blocks,
     * and ENOUGH_TILES over the tiles, of which there are at least rows * kv_heads / (rows of a
     * full tile). */
    const uint64_t blocks = ceil_div(s->longest, OP_CACHE_BLOCK);
    const uint64_t by_blocks = s->rows * min_u64(blocks, OP_ATTENTION_SPLITS);
    const uint64_t by_tiles =
        ceil_div((uint64_t)ENOUGH_TILES * rows_of_a_full_tile(s), s->kv_heads);
    const uint64_t blocks_parts = max_u64(s->rows, min_u64(by_blocks, by_tiles));
    const uint64_t others =
        max_u64(op_attention_matrix_parts(s),
                max_u64(op_attention_row_parts(s), op_attention_teams_parts(s)));
    return max_u64(blocks_parts, others) * (op_attention_part_bytes(s) / s->rows);
}

uint64_t op_attention_part_bytes(const op_attention_shape *s)
{
    return (uint64_t)s->rows * s->q_heads * ((uint64_t)s->head_dim + 4) * 4;
}

bool op_check_attention(gpu_recorder *rec, const op_attention_views *v, const op_attention_shape *s)
{
    if (s->head_dim % 4 != 0 || s->head_dim > OP_MAX_HEAD_DIM) {
        gpu_record_fail(rec, TEMPER_UNSUPPORTED,
                        "attention: heads of %u values; multiples of 4 up to %d are possible",
                        s->head_dim, (int)OP_MAX_HEAD_DIM);
        return false;
    }
    if (s->kv_heads == 0 || s->q_heads % s->kv_heads != 0 || s->longest == 0) {
        gpu_record_fail(rec, TEMPER_BAD_ARGUMENT,
                        "attention: %u query heads over %u KV heads, %u positions", s->q_heads,
                        s->kv_heads, s->longest);
        return false;
    }
    if (!(s->softcap >= 0.0f)) {
        gpu_record_fail(rec, TEMPER_BAD_ARGUMENT, "attention: scores capped at %g",
                        (double)s->softcap);
        return false;
    }
    const uint64_t bytes = (uint64_t)s->rows * s->q_heads * s->head_dim * 4;
    return op_check_view(rec, "attention", "q", v->q, bytes) &&
           op_check_view(rec, "attention", "out", v->out, bytes) &&
           op_check_view(rec, "attention", "row_info", v->row_info,
                         (uint64_t)s->rows * sizeof(op_row_info)) &&
           op_check_view(rec, "attention", "scratch", v->scratch, op_attention_scratch_bytes(s));
}

void op_record_attention_join(gpu_recorder *rec, const op_attention_views *v,
                              const op_attention_shape *s, uint32_t splits)
{
    gpu_device *device = gpu_recorder_device(rec);
    struct kernel_attention_join_options options = {
        .lanes = op_device_is_software(device) ? JOIN_LANES_SOFTWARE : JOIN_LANES,
        .quads = 1,
    };
    while (4 * options.quads < s->head_dim)
        options.quads *= 2;
    gpu_pipeline *pipeline = kernel_attention_join_get(device, &options);
    if (splits == 1)
        return; /* a longer context will need the pipeline */
    const struct kernel_attention_join_views views = {.parts = v->scratch, .out = v->out};
    const struct kernel_attention_join_params params = {
        .heads = s->rows * s->q_heads,
        .first_head = v->first_row * s->q_heads,
        .head_dim = s->head_dim,
        .splits = splits,
    };
    const op_grid grid = op_fold(device, params.heads);
    const uint64_t parts = (uint64_t)s->rows * s->q_heads * splits;
    gpu_record_work(
        rec, parts * (s->head_dim + 2) * 4 + (uint64_t)s->rows * s->q_heads * s->head_dim * 4,
        parts * s->head_dim * 2);
    kernel_attention_join_dispatch(rec, pipeline, &views, &params, grid.x, grid.y, 1);
}

static gpu_pipeline *get_pipeline(gpu_device *device, const op_attention_shape *s, const tiling *t,
                                  uint32_t rows)
{
    const struct kernel_attention_options options = {.cache = s->cache, .queries = t->heads * rows};
    return kernel_attention_get(device, &options);
}

static void record_tiles(gpu_recorder *rec, const op_attention_views *v,
                         const op_attention_shape *s, const tiling *t)
{
    gpu_device *device = gpu_recorder_device(rec);
    const struct kernel_attention_views views = {
        .q = v->q,
        .k_cache = v->k_cache,
        .v_cache = v->v_cache,
        .row_info = v->row_info,
        .block_table = v->block_table,
        .out = t->splits == 1 ? v->out : v->scratch,
    };
    gpu_pipeline *pipeline = get_pipeline(device, s, t, t->rows);
    struct kernel_attention_params params = {
        .first_row = v->first_row,
        .rows = s->rows,
        .q_heads = s->q_heads,
        .kv_heads = s->kv_heads,
        .head_dim = s->head_dim,
        .tile_rows = t->rows,
        .tile_heads = t->heads,
        .head_tiles = t->head_tiles,
        .splits = t->splits,
        .split_blocks = t->split_blocks,
        .scale = s->scale,
        .window = s->window == 0 ? UINT32_MAX : s->window,
        .softcap = s->softcap,
        .row_words = op_cache_row_words(s->cache, s->head_dim),
    };
    const uint64_t tiles = (uint64_t)t->row_tiles * t->head_tiles * s->kv_heads * t->splits;
    assert(tiles <= UINT32_MAX);
    const uint64_t positions = min_u64((uint64_t)t->split_blocks * OP_CACHE_BLOCK, s->longest);
    const uint64_t cost = (uint64_t)t->rows * t->heads * positions * s->head_dim * 2;
    const uint64_t step = op_cut(device, tiles, cost, 1);
    for (uint64_t tile = 0; tile < tiles; tile += step) {
        params.first_tile = (uint32_t)tile;
        params.tile_end = (uint32_t)min_u64(tile + step, tiles);
        const op_grid grid = op_fold(device, params.tile_end - params.first_tile);
        kernel_attention_dispatch(rec, pipeline, &views, &params, grid.x, grid.y, 1);
    }
}

op_shape op_attention_question(gpu_device *device, const op_attention_shape *s, bool single)
{
    const gpu_adapter_info *adapter = gpu_device_adapter(device);
    const bool alike = adapter->subgroup_min == adapter->subgroup_max;
    const uint32_t rows = s->rows / (s->sequences > 1 ? s->sequences : 1);
    const uint64_t queries = (uint64_t)rows * (s->q_heads / s->kv_heads);
    return (op_shape){
        .rows = make_tiling(s, single).rows,
        .queries = single || rows <= 1 ? 0 : (uint32_t)min_u64(queries, UINT32_MAX),
        .k = s->head_dim,
        .half = s->half,
        .subgroup = alike ? adapter->subgroup_max : 0,
        .workgroup_memory = gpu_device_limits(device)->max_workgroup_memory,
    };
}

const op_kernel_row *op_attention_row(gpu_device *device, const op_attention_shape *s, bool single)
{
    const op_shape by = op_attention_question(device, s, single);
    return op_choose(device, &op_table_attention, &by);
}

/* A model that reads prompts reads single rows too, and rows of many sequences those of one later:
 * all their pipelines are asked for together. */
static void prepare_others(gpu_device *device, const op_attention_shape *s)
{
    const tiling t = make_tiling(s, true);
    const op_kernel_row *row = op_attention_row(device, s, true);
    get_pipeline(device, s, &t, rows_of_a_full_tile(s));
    if (row->kernel == &kernel_attention_teams)
        op_prepare_attention_teams(device, s);
    else if (row->kernel == &kernel_attention_row)
        op_prepare_attention_row(device, s);
    else
        get_pipeline(device, s, &t, 1);
}

/* `rows` rows from `first` on, one by one or not. */
static void record_rows(gpu_recorder *rec, const op_attention_views *views,
                        const op_attention_shape *shape, uint32_t first, uint32_t rows, bool single)
{
    gpu_device *device = gpu_recorder_device(rec);
    op_attention_views v = *views;
    op_attention_shape s = *shape;
    v.first_row += first;
    s.rows = rows;
    op_record_attention_work(rec, &s);
    const op_kernel_row *row = op_attention_row(device, &s, single);
    uint32_t splits = 1;
    if (row->kernel == &kernel_attention_teams) {
        splits = op_record_attention_teams(rec, &v, &s, NULL);
    } else if (row->kernel == &kernel_attention_row) {
        splits = op_record_attention_row(rec, &v, &s);
    } else if (row->kernel == &kernel_attention_matrix) {
        splits = op_record_attention_matrix(rec, row, &v, &s);
    } else {
        const tiling t = make_tiling(&s, single);
        record_tiles(rec, &v, &s, &t);
        splits = t.splits;
    }
    op_record_attention_join(rec, &v, &s, splits);
}

void op_attention(gpu_recorder *rec, gpu_view q, gpu_view k_cache, gpu_view v_cache,
                  gpu_view row_info, gpu_view block_table, gpu_view scratch, gpu_view out,
                  const op_attention_shape *shape)
{
    op_attention_views v = {q, k_cache, v_cache, row_info, block_table, scratch, out, 0};
    if (shape->rows == 0 || shape->q_heads == 0 || shape->head_dim == 0 ||
        !op_check_attention(rec, &v, shape))
        return;
    gpu_device *device = gpu_recorder_device(rec);
    /* What is bound may be less than the scratch there is: fewer splits then. */
    v.scratch.size =
        min_u64(scratch.size, gpu_device_limits(device)->max_storage_binding / 16 * 16);
    const uint32_t singles = shape->singles < shape->rows ? shape->singles : shape->rows;
    if (shape->rows > 1)
        prepare_others(device, shape);
    if (singles > 0)
        record_rows(rec, &v, shape, 0, singles, true);
    if (shape->rows > singles)
        record_rows(rec, &v, shape, singles, shape->rows - singles, false);
}
