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
    MOST_DEEP = 8,      /* positions whose K and V a lane holds */
    MOST_HEADS = 4,     /* query heads whose sums it holds; of more than WIDE values, half */
    WIDE = 128,
    MERGE_WORDS = 512, /* of 16 bytes, for merging */
    ENOUGH = 128,      /* workgroups that fill a large device */
    UNSPLIT = 512,     /* positions: so many take no longer than a join */
};

bool op_teams_fits(const op_shape *shape)
{
    return shape->rows == 1 && shape->subgroup >= 4 && shape->subgroup <= MOST_LANES &&
           shape->k <= (uint64_t)PIECE * min_u64(shape->subgroup, MOST_TEAM);
}

/* ---- dealing out ----------------------------------------------------------------------------- */

/* How a row is dealt to lanes, and the query heads of a KV head to workgroups. */
typedef struct team {
    uint32_t lanes;     /* of a position */
    uint32_t workgroup; /* lanes */
    uint32_t deep;      /* positions of a team in a turn: at most its lanes */
    uint32_t turn;      /* positions of a turn: they divide a block */
    uint32_t heads;     /* query heads of a workgroup */
} team;

/* one: query head a workgroup, else as many as its lanes have registers for. */
static team team_of(const op_attention_shape *s, uint32_t subgroup, bool one)
{
    const uint32_t heads = s->q_heads / s->kv_heads;
    const uint32_t most = one ? 1 : s->head_dim > WIDE ? MOST_HEADS / 2 : MOST_HEADS;
    team t = {.lanes = 1, .workgroup = subgroup, .deep = MOST_DEEP};
    while (t.lanes * PIECE < s->head_dim)
        t.lanes *= 2;
    while (t.workgroup < MOST_LANES && t.workgroup < MOST_SUBGROUPS * subgroup)
        t.workgroup *= 2;
    if (one || s->cache == OP_CACHE_F32)
        t.deep = MOST_DEEP / 2;
    const uint32_t teams = t.workgroup / t.lanes;
    t.deep = (uint32_t)min_u64(min_u64(t.deep, t.lanes), OP_CACHE_BLOCK / teams);
    t.turn = teams * t.deep;
    t.heads = ceil_div_u32(heads, ceil_div_u32(heads, most));
    return t;
}

typedef struct dealing {
    team team;
    bool one;            /* query head a workgroup */
    uint32_t head_tiles; /* workgroups of a KV head */
    uint32_t splits, split_turns;
} dealing;

static uint64_t turns_of(const op_attention_shape *s, uint32_t turn)
{
    const uint64_t turns = ceil_div(s->longest, turn);
    return s->window == 0 ? turns : min_u64(turns, ceil_div((uint64_t)s->window + turn - 1, turn));
}

/* Where there is work for few workgroups, each takes one query head: K and V are read more often,
 * from the cache of the device, and sooner through. */
static dealing deal(const op_attention_shape *s, uint32_t subgroup, uint64_t scratch_bytes)
{
    const uint32_t heads = s->q_heads / s->kv_heads;
    const uint64_t groups = (uint64_t)s->rows * s->kv_heads;
    const uint64_t seen = s->window == 0 ? s->longest : min_u64(s->longest, s->window);
    dealing d = {.team = team_of(s, subgroup, false)};
    d.head_tiles = ceil_div_u32(heads, d.team.heads);
    const bool split = seen > UNSPLIT && groups * d.head_tiles < ENOUGH;
    d.one = split ? groups * d.head_tiles * turns_of(s, d.team.turn) <= ENOUGH / 2
                  : groups * heads <= ENOUGH;
    if (d.one) {
        d.team = team_of(s, subgroup, true);
        d.head_tiles = heads;
    }
    const uint64_t turns = turns_of(s, d.team.turn);
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

static uint32_t subgroup_of(gpu_device *device)
{
    return gpu_device_adapter(device)->subgroup_max;
}

static gpu_pipeline *get_pipeline(gpu_device *device, const op_attention_shape *s, const team *t,
                                  bool turning)
{
    const uint32_t subgroup = subgroup_of(device), row = t->workgroup / subgroup * 2 * t->lanes;
    const struct kernel_attention_teams_options options = {
        .cache = s->cache,
        .rope = turning,
        .lanes = t->workgroup,
        .subgroup = subgroup,
        .team = t->lanes,
        .merged = (uint32_t)min_u64(t->heads, max_u64(MERGE_WORDS / row, 1)),
        .heads = t->heads,
        .deep = t->deep,
    };
    return kernel_attention_teams_get(device, &options);
}

/* Which one runs depends on how long the context is. */
static void prepare(gpu_device *device, const op_attention_shape *s, bool turning)
{
    for (int one = 0; one < 2; one++) {
        const team t = team_of(s, subgroup_of(device), one == 1);
        get_pipeline(device, s, &t, turning);
    }
}

void op_prepare_attention_teams(gpu_device *device, const op_attention_shape *s)
{
    prepare(device, s, false);
}

uint32_t op_record_attention_teams(gpu_recorder *rec, const op_attention_views *v,
                                   const op_attention_shape *s, const op_turning *turning)
{
    gpu_device *device = gpu_recorder_device(rec);
    const dealing d = deal(s, subgroup_of(device), v->scratch.size);
    const team *t = &d.team;
    if (gpu_recorder_prepares(rec))
        prepare(device, s, turning != NULL);
    gpu_pipeline *pipeline = get_pipeline(device, s, t, turning != NULL);
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
        .kv_heads = s->kv_heads,
        .group_heads = s->q_heads / s->kv_heads,
        .head_tiles = d.head_tiles,
        .head_dim = s->head_dim,
        .rotary = turning != NULL ? turning->rope->rotary_dim : 0,
        .splits = d.splits,
        .split_turns = d.split_turns,
        .row_words = op_cache_row_words(s->cache, s->head_dim),
        .window = s->window == 0 ? UINT32_MAX : s->window,
        .scale = s->scale,
        .softcap = s->softcap,
        .magnitude =
            turning != NULL && turning->rope->magnitude > 0.0f ? turning->rope->magnitude : 1.0f,
    };
    const uint64_t tiles = (uint64_t)d.head_tiles * s->kv_heads; /* workgroups of a split */
    const uint64_t cost = tiles * d.split_turns * t->turn * t->heads * s->head_dim * 2;
    const uint64_t most = gpu_device_limits(device)->max_workgroups;
    const uint64_t rows = min_u64(op_cut(device, s->rows, cost * d.splits, 1), most);
    const uint64_t splits = rows == 1 ? op_cut(device, d.splits, cost, 1) : d.splits;
    for (uint64_t row = 0; row < s->rows; row += rows) {
        for (uint64_t split = 0; split < d.splits; split += splits) {
            params.first_row = v->first_row + (uint32_t)row;
            params.first_part = (uint32_t)row;
            params.first_split = (uint32_t)split;
            kernel_attention_teams_dispatch(rec, pipeline, &views, &params, (uint32_t)tiles,
                                            (uint32_t)min_u64(splits, d.splits - split),
                                            (uint32_t)min_u64(rows, s->rows - row));
        }
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
