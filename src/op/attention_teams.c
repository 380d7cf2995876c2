/*
 * attention_teams.c - attention of single rows through subgroups: a decode step, in one dispatch
 * with the rotation before it and the way into the cache where each row is a sequence of its own.
 */
#include <assert.h>

#include "base/checked.h"
#include "kernels/kernels.gen.h"
#include "op/op.h"
#include "op/rows.h"

enum {
    MOST_LANES = 256,
    MOST_SUBGROUPS = 8, /* of a workgroup: what is merged in its memory */
    PIECE = 8,          /* values of a lane */
    MOST_TEAM = 32,     /* lanes of a position */
    WIDE = 16,          /* lanes of a subgroup that is not narrow */
    MERGE_WORDS = 512,  /* of 16 bytes, for merging */
    ENOUGH = 128,       /* workgroups that fill a large device */
    TURNS_UNSPLIT = 4,  /* of positions: so many take no longer than a join */
};

/* How a row of head_dim values is dealt to lanes. */
typedef struct team {
    uint32_t lanes;     /* of a position */
    uint32_t workgroup; /* lanes */
    uint32_t deep;      /* positions of a team in a turn */
    uint32_t turn;      /* positions of a turn: they divide a block */
} team;

static team team_of(uint32_t head_dim, uint32_t subgroup, op_cache_type cache)
{
    const uint32_t pieces = ceil_div_u32(head_dim, PIECE);
    team t = {.lanes = 1, .workgroup = subgroup};
    while (t.lanes < pieces && t.lanes < subgroup && t.lanes < MOST_TEAM)
        t.lanes *= 2;
    while (t.workgroup < MOST_LANES && t.workgroup < MOST_SUBGROUPS * subgroup)
        t.workgroup *= 2;
    /* K and V of a turn are in registers: 8 words a lane of halves or bytes, and of f32 twice 4.
     * Where subgroups are narrow, lanes have fewer registers. */
    const uint32_t wide = subgroup < WIDE ? 2 : 8, teams = t.workgroup / t.lanes;
    t.deep = cache == OP_CACHE_F32 ? wide / 2 : wide;
    while (teams * t.deep > OP_CACHE_BLOCK)
        t.deep /= 2;
    t.turn = teams * t.deep;
    return t;
}

bool op_teams_fits(const op_shape *shape)
{
    return shape->rows == 1 && shape->subgroup >= 4 && shape->subgroup <= MOST_LANES &&
           shape->k <= (uint64_t)PIECE * min_u64(shape->subgroup, MOST_TEAM);
}

/* ---- dealing out ----------------------------------------------------------------------------- */

typedef struct dealing {
    uint32_t heads, head_tiles; /* query heads of a workgroup; workgroups of a KV head */
    uint32_t splits, split_turns;
} dealing;

/* The query heads of a KV head that a workgroup takes at most: their sums are in registers. */
static dealing deal_heads(const op_attention_shape *s, const team *t)
{
    const bool narrow = t->workgroup < WIDE * MOST_SUBGROUPS;
    const uint32_t most = s->head_dim > 128 || narrow ? 2 : 4, heads = s->q_heads / s->kv_heads;
    dealing d = {.head_tiles = ceil_div_u32(heads, most)};
    d.heads = ceil_div_u32(heads, d.head_tiles);
    return d;
}

static uint64_t turns_of(const op_attention_shape *s, uint32_t turn)
{
    const uint64_t turns = ceil_div(s->longest, turn);
    return s->window == 0 ? turns : min_u64(turns, ceil_div((uint64_t)s->window + turn - 1, turn));
}

/* Where there is work for few workgroups, each takes one query head: K and V are read more often,
 * from the cache of the device, and sooner through. */
static dealing deal(const op_attention_shape *s, const team *t, uint64_t scratch_bytes)
{
    dealing d = deal_heads(s, t);
    const uint64_t turns = turns_of(s, t->turn), groups = (uint64_t)s->rows * s->kv_heads;
    const bool split = turns > TURNS_UNSPLIT && groups * d.head_tiles < ENOUGH;
    if (split ? groups * d.head_tiles * turns <= ENOUGH / 2
              : (uint64_t)s->rows * s->q_heads <= ENOUGH) {
        d.heads = 1;
        d.head_tiles = s->q_heads / s->kv_heads;
    }
    uint64_t splits = 1;
    if (split)
        splits = min_u64(min_u64(turns, OP_ATTENTION_SPLITS),
                         max_u64(ENOUGH / (groups * d.head_tiles), 1));
    splits = max_u64(min_u64(splits, scratch_bytes / op_attention_part_bytes(s)), 1);
    d.split_turns = (uint32_t)ceil_div(turns, splits);
    d.splits = (uint32_t)ceil_div(turns, d.split_turns);
    return d;
}

uint64_t op_attention_teams_parts(const op_attention_shape *s)
{
    return max_u64(s->rows, ceil_div(ENOUGH, s->kv_heads));
}

/* ---- recording ------------------------------------------------------------------------------- */

static gpu_pipeline *get_pipeline(gpu_device *device, const op_attention_shape *s, const team *t,
                                  uint32_t heads, bool turning)
{
    const uint32_t subgroup = gpu_device_adapter(device)->subgroup_max;
    const uint32_t row = t->workgroup / subgroup * 2 * t->lanes;
    const struct kernel_attention_teams_options options = {
        .cache = s->cache,
        .rope = turning,
        .lanes = t->workgroup,
        .subgroup = subgroup,
        .team = t->lanes,
        .merged = (uint32_t)min_u64(heads, max_u64(MERGE_WORDS / row, 1)),
        .heads = heads,
        .deep = t->deep,
    };
    return kernel_attention_teams_get(device, &options);
}

typedef struct pipelines {
    gpu_pipeline *one, *several; /* query heads of a workgroup */
} pipelines;

/* Both are asked for each time: which one runs depends on how long the context is. */
static pipelines get_pipelines(gpu_device *device, const op_attention_shape *s, const team *t,
                               bool turning)
{
    return (pipelines){get_pipeline(device, s, t, 1, turning),
                       get_pipeline(device, s, t, deal_heads(s, t).heads, turning)};
}

static team team_on(gpu_device *device, const op_attention_shape *s)
{
    return team_of(s->head_dim, gpu_device_adapter(device)->subgroup_max, s->cache);
}

void op_prepare_attention_teams(gpu_device *device, const op_attention_shape *s)
{
    const team t = team_on(device, s);
    get_pipelines(device, s, &t, false);
}

uint32_t op_record_attention_teams(gpu_recorder *rec, const op_attention_views *v,
                                   const op_attention_shape *s, const op_turning *turning)
{
    gpu_device *device = gpu_recorder_device(rec);
    const team t = team_on(device, s);
    const dealing d = deal(s, &t, v->scratch.size);
    const pipelines p = get_pipelines(device, s, &t, turning != NULL);
    const struct kernel_attention_teams_views views = {
        .qkv = turning != NULL ? turning->qkv : v->q,
        .turns = turning != NULL ? turning->turns : v->row_info,
        .row_info = v->row_info,
        .block_table = v->block_table,
        .k_cache = v->k_cache,
        .v_cache = v->v_cache,
        .out = d.splits == 1 ? v->out : v->scratch,
    };
    struct kernel_attention_teams_params params = {
        .first_row = v->first_row,
        .q_heads = s->q_heads,
        .kv_heads = s->kv_heads,
        .head_dim = s->head_dim,
        .rotary = turning != NULL ? turning->rope->rotary_dim : 0,
        .head_tiles = d.head_tiles,
        .splits = d.splits,
        .split_turns = d.split_turns,
        .row_words = op_cache_row_words(s->cache, s->head_dim),
        .window = s->window == 0 ? UINT32_MAX : s->window,
        .scale = s->scale,
        .softcap = s->softcap,
        .magnitude =
            turning != NULL && turning->rope->magnitude > 0.0f ? turning->rope->magnitude : 1.0f,
    };
    const uint64_t tiles = (uint64_t)s->rows * d.head_tiles * s->kv_heads * d.splits;
    assert(tiles <= UINT32_MAX);
    const uint64_t cost = (uint64_t)d.split_turns * t.turn * d.heads * s->head_dim * 2;
    const uint64_t step = op_cut(device, tiles, cost, 1);
    for (uint64_t tile = 0; tile < tiles; tile += step) {
        params.first_tile = (uint32_t)tile;
        params.tile_end = (uint32_t)min_u64(tile + step, tiles);
        const op_grid grid = op_fold(device, params.tile_end - params.first_tile);
        kernel_attention_teams_dispatch(rec, d.heads == 1 ? p.one : p.several, &views, &params,
                                        grid.x, grid.y, 1);
    }
    return d.splits;
}

/* ---- with the rotation ----------------------------------------------------------------------- */

void op_rope_attention(gpu_recorder *rec, const op_rope_attention_views *views,
                       const op_rope_shape *rope, const op_attention_shape *s)
{
    assert(rope->rows == s->rows && rope->q_heads == s->q_heads && rope->kv_heads == s->kv_heads &&
           rope->head_dim == s->head_dim && rope->cache == s->cache);
    gpu_device *device = gpu_recorder_device(rec);
    const bool alone = s->rows == 1 || s->sequences == s->rows;
    if (!alone || op_attention_row(device, s, true)->kernel != &kernel_attention_teams) {
        op_rope_store(rec, views->qkv, views->turns, views->row_info, views->block_table, views->q,
                      views->k_cache, views->v_cache, rope);
        op_attention(rec, views->q, views->k_cache, views->v_cache, views->row_info,
                     views->block_table, views->scratch, views->out, s);
        return;
    }
    op_attention_views v = {.q = views->q,
                            .k_cache = views->k_cache,
                            .v_cache = views->v_cache,
                            .row_info = views->row_info,
                            .block_table = views->block_table,
                            .scratch = views->scratch,
                            .out = views->out};
    if (!op_check_rope(rec, views->qkv, views->turns, views->row_info, views->q, rope) ||
        !op_check_attention(rec, &v, s))
        return;
    v.scratch.size =
        min_u64(v.scratch.size, gpu_device_limits(device)->max_storage_binding / 16 * 16);
    const op_turning turning = {views->qkv, views->turns, rope};
    op_record_attention_work(rec, s);
    const uint32_t splits = op_record_attention_teams(rec, &v, s, &turning);
    op_record_attention_join(rec, &v, s, splits);
}
