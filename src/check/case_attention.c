/*
 * case_attention.c - causal attention over the blocked cache: known shapes, every length, windows,
 * several sequences, replays through the cache, and what must stay unseen.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "check/cache.h"
#include "check/plain_matrix.h"

enum kind {
    ROWS,    /* S rows at pos, pos + 1, ... of one sequence */
    LARGE,   /* the same with logits near 177 */
    SINGLES, /* as ROWS, each row told to be a sequence of its own */
    MIXED,   /* rows of three sequences in turn, one of them with NaN in its cache */
    NAN_V,   /* NaN in V at position `at`: rows from there on */
    NAN_K,
    NAN_PAST, /* NaN in K and V at every position before the window of the first row */
    REFUSED,
};

typedef struct attention_case {
    const char *name;
    uint32_t q_heads, kv_heads, head_dim, rows, capacity, position;
    enum kind kind;
    check_cost cost;
    uint32_t window;  /* 0: all positions */
    float softcap;    /* 0: none */
    uint32_t singles; /* so many of the first rows one by one */
} attention_case;

static const attention_case cases[] = {
    {"6,2,8,4,16,0", 6, 2, 8, 4, 16, 0, ROWS, CHECK_QUICK, 0, 0, 0},
    {"4,4,16,3,8,0", 4, 4, 16, 3, 8, 0, ROWS, CHECK_QUICK, 0, 0, 0},
    {"8,4,4,5,16,0", 8, 4, 4, 5, 16, 0, ROWS, CHECK_QUICK, 0, 0, 0},
    {"6,2,8,2,16,2", 6, 2, 8, 2, 16, 2, ROWS, CHECK_QUICK, 0, 0, 0},
    {"24,8,128,128,256,0", 24, 8, 128, 128, 256, 0, ROWS, CHECK_NORMAL, 0, 0, 0},
    {"4,4,32,4,16,0 logits near 177", 4, 4, 32, 4, 16, 0, LARGE, CHECK_QUICK, 0, 0, 0},
    {"32,8,64,1,4096,4095", 32, 8, 64, 1, 4096, 4095, ROWS, CHECK_NORMAL, 0, 0, 0},
    {"32,8,64,1,8192,8191", 32, 8, 64, 1, 8192, 8191, ROWS, CHECK_NORMAL, 0, 0, 0},
    {"32,8,64,128,512,0", 32, 8, 64, 128, 512, 0, ROWS, CHECK_NORMAL, 0, 0, 0},
    {"32,8,64,1,512,127", 32, 8, 64, 1, 512, 127, ROWS, CHECK_QUICK, 0, 0, 0},
    {"32,8,64,512,512,0", 32, 8, 64, 512, 512, 0, ROWS, CHECK_NORMAL, 0, 0, 0},
    {"32,8,64,2048,2048,0", 32, 8, 64, 2048, 2048, 0, ROWS, CHECK_HEAVY, 0, 0, 0},
    {"16,8,128,128,256,0", 16, 8, 128, 128, 256, 0, ROWS, CHECK_NORMAL, 0, 0, 0},
    {"16,8,128,17,64,31", 16, 8, 128, 17, 64, 31, ROWS, CHECK_QUICK, 0, 0, 0},
    {"D 6 is refused", 4, 4, 6, 1, 8, 0, REFUSED, CHECK_QUICK, 0, 0, 0},
    {"D 260 is refused", 4, 4, 260, 1, 8, 0, REFUSED, CHECK_QUICK, 0, 0, 0},
    {"5 heads over 2 are refused", 5, 2, 8, 1, 8, 0, REFUSED, CHECK_QUICK, 0, 0, 0},
    {"smollm2 1 at 1000", 9, 3, 64, 1, 1024, 1000, ROWS, CHECK_QUICK, 0, 0, 0},
    {"smollm2 128 at 872", 9, 3, 64, 128, 1024, 872, ROWS, CHECK_NORMAL, 0, 0, 0},
    {"D 80", 4, 2, 80, 9, 300, 250, ROWS, CHECK_QUICK, 0, 0, 0},
    {"D 192", 2, 1, 192, 5, 300, 254, ROWS, CHECK_QUICK, 0, 0, 0},
    {"D 256", 4, 1, 256, 5, 300, 254, ROWS, CHECK_QUICK, 0, 0, 0},
    {"9 heads over 1", 9, 1, 16, 5, 300, 254, ROWS, CHECK_QUICK, 0, 0, 0},
    {"32 heads over 1", 32, 1, 16, 5, 300, 254, ROWS, CHECK_QUICK, 0, 0, 0},
    {"length 255", 3, 1, 16, 1, 255, 254, ROWS, CHECK_QUICK, 0, 0, 0},
    {"length 256", 3, 1, 16, 1, 256, 255, ROWS, CHECK_QUICK, 0, 0, 0},
    {"length 257", 3, 1, 16, 1, 257, 256, ROWS, CHECK_QUICK, 0, 0, 0},
    {"length 511", 3, 1, 16, 1, 511, 510, ROWS, CHECK_QUICK, 0, 0, 0},
    {"length 512", 3, 1, 16, 1, 512, 511, ROWS, CHECK_QUICK, 0, 0, 0},
    {"length 513", 3, 1, 16, 1, 513, 512, ROWS, CHECK_QUICK, 0, 0, 0},
    {"every length 1 to 2049", 3, 1, 16, 2049, 2049, 0, ROWS, CHECK_NORMAL, 0, 0, 0},
    {"every length 1 to 2049, single rows", 3, 1, 16, 2049, 2049, 0, SINGLES, CHECK_NORMAL, 0, 0,
     0},
    {"lengths 250 to 520, single rows", 2, 2, 8, 271, 520, 249, SINGLES, CHECK_QUICK, 0, 0, 0},
    {"length 131072", 2, 1, 16, 1, 131072, 131071, ROWS, CHECK_NORMAL, 0, 0, 0},
    {"three sequences, NaN in one", 6, 2, 8, 24, 300, 255, MIXED, CHECK_QUICK, 0, 0, 0},
    {"prompts of 361", 3, 3, 8, 361, 361, 0, ROWS, CHECK_QUICK, 0, 0, 0},
    {"prompts of 362", 3, 3, 8, 362, 362, 0, ROWS, CHECK_QUICK, 0, 0, 0},
    {"prompts of 363", 3, 3, 8, 363, 363, 0, ROWS, CHECK_QUICK, 0, 0, 0},
    {"window 1", 6, 2, 16, 40, 300, 250, ROWS, CHECK_QUICK, 1, 0, 0},
    {"window 24 of 100", 4, 2, 16, 100, 100, 0, ROWS, CHECK_QUICK, 24, 0, 0},
    {"window 255 of 600", 4, 2, 16, 600, 600, 0, ROWS, CHECK_QUICK, 255, 0, 0},
    {"window 256 of 600", 4, 2, 16, 600, 600, 0, ROWS, CHECK_QUICK, 256, 0, 0},
    {"window 257 of 600", 4, 2, 16, 600, 600, 0, ROWS, CHECK_QUICK, 257, 0, 0},
    {"window past the cache", 4, 2, 16, 9, 300, 250, ROWS, CHECK_QUICK, 1 << 20, 0, 0},
    {"window 512 at 8191, D 256", 4, 1, 256, 1, 8192, 8191, NAN_PAST, CHECK_QUICK, 512, 0, 0},
    {"window 512, 128 rows at 3000", 4, 1, 64, 128, 3200, 3000, NAN_PAST, CHECK_NORMAL, 512, 0, 0},
    {"window 100, single rows", 3, 1, 16, 271, 520, 249, SINGLES, CHECK_QUICK, 100, 0, 0},
    {"window 300, three sequences, NaN in one", 6, 2, 8, 24, 900, 855, MIXED, CHECK_QUICK, 300, 0,
     0},
    {"NaN before the window", 3, 1, 16, 30, 900, 800, NAN_PAST, CHECK_QUICK, 290, 0, 0},
    {"softcap 5", 6, 2, 32, 40, 300, 250, ROWS, CHECK_QUICK, 0, 5, 0},
    {"softcap 50 of logits near 177", 4, 4, 32, 4, 16, 0, LARGE, CHECK_QUICK, 0, 50, 0},
    {"softcap 2, window 40", 6, 2, 32, 40, 300, 250, ROWS, CHECK_QUICK, 40, 2, 0},
    {"NaN in V at 258", 3, 1, 16, 12, 300, 252, NAN_V, CHECK_QUICK, 0, 0, 0},
    {"NaN in K at 258", 3, 1, 16, 12, 300, 252, NAN_K, CHECK_QUICK, 0, 0, 0},
    {"NaN in V at 258, D 64", 4, 1, 64, 12, 300, 252, NAN_V, CHECK_QUICK, 0, 0, 0},
    {"40 rows, 7 of them single", 6, 2, 16, 40, 300, 250, ROWS, CHECK_QUICK, 0, 0, 7},
    {"only single rows", 6, 2, 16, 9, 300, 250, ROWS, CHECK_QUICK, 0, 0, 9},
    {"three sequences, 8 rows single", 6, 2, 8, 24, 900, 855, MIXED, CHECK_QUICK, 300, 0, 8},
};
enum { NAMED = sizeof cases / sizeof *cases };

static const uint32_t replays[][8] = {
    {3, 1, 1, 5, 1, 1, 2},
    {111, 1, 1, 1, 57, 1, 1},
    {17, 1},
};
enum { REPLAYS = sizeof replays / sizeof *replays };

enum { CASES = NAMED + REPLAYS, ALL = CASES * OP_CACHE_TYPES };

/* What plain code in the place of matrix units computes: every case of several rows with heads of
 * up to 16 and a cache in f32, and these. Each pair of a width and a type is a pipeline, which a
 * software device compiles for seconds. */
static const struct {
    const char *name;
    op_cache_type type;
} twins[] = {
    {"32,8,64,128,512,0", OP_CACHE_F16},
    {"smollm2 128 at 872", OP_CACHE_F16},
    {"window 512, 128 rows at 3000", OP_CACHE_F16},
    {"NaN in V at 258, D 64", OP_CACHE_F16},
    {"NaN in V at 258", OP_CACHE_Q8}, /* all 16 values of the row */
    {"4,4,32,4,16,0 logits near 177", OP_CACHE_Q8},
    {"softcap 5", OP_CACHE_Q8},
    {"softcap 2, window 40", OP_CACHE_Q8},
    {"softcap 50 of logits near 177", OP_CACHE_Q8},
    {"D 80", OP_CACHE_F32},
    {"D 192", OP_CACHE_F16},
};
enum { TWINS = sizeof twins / sizeof *twins };

/* Who computes a case. */
typedef enum computer { BY_CHOICE, BY_MATRIX, BY_TWIN } computer;

typedef struct choice {
    uint32_t which; /* of cases, then of replays */
    op_cache_type type;
    computer by;
} choice;

/* Every case with a cache of every type as op_attention chooses, the named ones of several rows by
 * the row for matrix units, then some by its twin. */
enum { MOST_CHOICES = (2 * NAMED + REPLAYS) * OP_CACHE_TYPES + NAMED + TWINS };

static bool is_for_matrices(const attention_case *a)
{
    return a->kind != REFUSED && a->kind != SINGLES && a->rows > a->singles + 1;
}

static uint32_t list_choices(choice out[MOST_CHOICES])
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < ALL; i++)
        out[n++] = (choice){i % CASES, (op_cache_type)(i / CASES), BY_CHOICE};
    for (uint32_t i = 0; i < NAMED * OP_CACHE_TYPES; i++)
        if (is_for_matrices(&cases[i % NAMED]))
            out[n++] = (choice){i % NAMED, (op_cache_type)(i / NAMED), BY_MATRIX};
    for (uint32_t i = 0; i < NAMED; i++)
        if (is_for_matrices(&cases[i]) && cases[i].head_dim <= 16)
            out[n++] = (choice){i, OP_CACHE_F32, BY_TWIN};
    for (uint32_t t = 0; t < TWINS; t++)
        for (uint32_t i = 0; i < NAMED; i++)
            if (strcmp(cases[i].name, twins[t].name) == 0)
                out[n++] = (choice){i, twins[t].type, BY_TWIN};
    return n;
}

static uint32_t count(void)
{
    choice all[MOST_CHOICES];
    return list_choices(all);
}

static choice choice_of(uint32_t i)
{
    choice all[MOST_CHOICES];
    list_choices(all);
    return all[i];
}

static check_cost cost_of_twin(const attention_case *a)
{
    return a->head_dim > 64 || a->cost == CHECK_HEAVY ? CHECK_HEAVY : CHECK_NORMAL;
}

static void describe(uint32_t i, check_case *out)
{
    const choice c = choice_of(i);
    const size_t size = sizeof out->name;
    int length = 0;
    if (c.by != BY_CHOICE)
        length = snprintf(out->name, size, c.by == BY_MATRIX ? "matrix: " : "plain_attention: ");
    if (c.type != OP_CACHE_F32)
        length +=
            snprintf(out->name + length, size - (size_t)length, "%s: ", op_cache_type_name(c.type));
    if (c.which < NAMED) {
        out->cost = c.by == BY_TWIN ? cost_of_twin(&cases[c.which]) : cases[c.which].cost;
        snprintf(out->name + length, size - (size_t)length, "%s", cases[c.which].name);
        return;
    }
    const uint32_t *steps = replays[c.which - NAMED];
    length += snprintf(out->name + length, size - (size_t)length, "replay");
    for (uint32_t s = 0; s < 8 && steps[s] > 0; s++)
        length +=
            snprintf(out->name + length, size - (size_t)length, "%s%u", s ? "," : " ", steps[s]);
}

typedef struct attention_run {
    gpu_view q, k_cache, v_cache, row_info, table, scratch, out;
    op_attention_shape shape;
    const op_kernel_row *row; /* of those that are not single; NULL: as op_attention chooses */
} attention_run;

static void record(gpu_recorder *rec, void *user)
{
    const attention_run *r = user;
    op_attention_shape s = r->shape;
    if (r->row != NULL)
        s.rows = s.singles;
    op_attention(rec, r->q, r->k_cache, r->v_cache, r->row_info, r->table, r->scratch, r->out, &s);
    if (r->row == NULL)
        return;
    const op_attention_views v = {r->q,     r->k_cache, r->v_cache, r->row_info,
                                  r->table, r->scratch, r->out,     s.singles};
    s.rows = r->shape.rows - s.singles;
    op_record_attention_join(rec, &v, &s, op_record_attention_matrix(rec, r->row, &v, &s));
}

/* K or V: random up to each sequence's length, NaN in every slot that no position has yet. */
static float *fill(check_context *c, const check_cache *cache, uint32_t sequences, uint32_t length,
                   uint32_t seed, float size)
{
    float *values = check_alloc(c, cache->values, sizeof *values);
    if (values == NULL)
        return NULL;
    for (uint64_t i = 0; i < cache->values; i++)
        values[i] = NAN;
    const uint32_t d = cache->heads.head_dim;
    for (uint32_t s = 0; s < sequences; s++)
        for (uint32_t p = 0; p < length; p++)
            for (uint32_t h = 0; h < cache->heads.kv_heads; h++) {
                const uint64_t at = check_cache_at(cache, check_table_offset(cache, s), p, h);
                for (uint32_t i = 0; i < d; i++)
                    values[at + i] = size * check_random_float(seed, at + i);
            }
    return values;
}

static void run_refused(check_context *c, const attention_case *a)
{
    attention_run r = {.shape = {.rows = a->rows,
                                 .q_heads = a->q_heads,
                                 .kv_heads = a->kv_heads,
                                 .head_dim = a->head_dim,
                                 .scale = 1.0f,
                                 .longest = 1}};
    const gpu_view some = check_output(c, 65536);
    r.q = r.k_cache = r.v_cache = r.row_info = r.table = r.scratch = r.out = some;
    char word[16];
    snprintf(word, sizeof word, "%u", a->q_heads % a->kv_heads ? a->q_heads : a->head_dim);
    check_refused(c, record, &r,
                  a->q_heads % a->kv_heads ? TEMPER_BAD_ARGUMENT : TEMPER_UNSUPPORTED, word);
}

static void spoil(const attention_case *a, const check_cache *cache, float *k, float *v)
{
    if (a->kind == NAN_V || a->kind == NAN_K)
        (a->kind == NAN_V ? v
                          : k)[check_cache_at(cache, check_table_offset(cache, 0), 258, 0) + 1] =
            NAN;
    for (uint32_t p = 0; a->kind == NAN_PAST && p + a->window <= a->position; p++) {
        const uint64_t at = check_cache_at(cache, check_table_offset(cache, 0), p, 0);
        k[at + p % a->head_dim] = v[at + (p + 1) % a->head_dim] = NAN;
    }
    for (uint32_t p = 0; a->kind == MIXED && p < 3; p++)
        v[check_cache_at(cache, check_table_offset(cache, 1), 100 * p, 1) + p] = NAN;
}

/* What the device is given of K or V; `values` becomes what it reads there. */
static gpu_view keep(check_context *c, const check_cache *cache, float **values)
{
    const uint32_t *words = *values != NULL ? check_cache_encode(c, cache, *values) : NULL;
    if (words == NULL)
        return (gpu_view){0};
    *values = check_cache_decode(c, cache, words);
    return check_input(c, words, cache->bytes);
}

/* NULL, and the case is skipped, where the device cannot run it, or not with such heads. */
static const op_kernel_row *row_of(check_context *c, computer by, uint32_t head_dim)
{
    const op_kernel_row *row = by == BY_TWIN ? check_plain_attention(CHECK_PLAIN_RIGHT) : NULL;
    for (uint32_t i = 0; by == BY_MATRIX && i < op_table_attention.count; i++)
        if (strcmp(op_table_attention.rows[i].name, "matrix") == 0)
            row = &op_table_attention.rows[i];
    const op_shape shape = {.half = true,
                            .queries = 128,
                            .k = head_dim,
                            .workgroup_memory = gpu_device_limits(c->device)->max_workgroup_memory};
    if (!check_can_run(c, row) || op_attention_matrix_fits(&shape))
        return c->result->skipped ? NULL : row;
    c->result->skipped = true;
    snprintf(c->result->detail, sizeof c->result->detail, "this device cannot run %s: %u values",
             row->name, head_dim);
    return NULL;
}

/* What operands of f16 may cost, as with a cache of them; scores near 177 are off by 0.02 then. */
static void check_half(check_context *c, const float *out, const double *want, uint64_t values,
                       enum kind kind)
{
    check_bounds(c, out, want, values, kind == LARGE ? 2e-2 : 2e-3, kind == LARGE ? 4e-2 : 1e-2);
}

static void run_rows(check_context *c, const attention_case *a, op_cache_type type, computer by)
{
    const op_kernel_row *row = by != BY_CHOICE ? row_of(c, by, a->head_dim) : NULL;
    if (by != BY_CHOICE && row == NULL)
        return;
    const uint32_t sequences = a->kind == MIXED ? 3 : 1, length = a->position + a->rows / sequences;
    const ref_heads heads = {a->rows, a->q_heads, a->kv_heads, a->head_dim, 0};
    const check_cache cache = check_make_cache(c, type, heads, sequences, a->capacity, 512);
    const uint64_t values = (uint64_t)a->rows * a->q_heads * a->head_dim;
    const float scale = a->kind == LARGE ? 1.0f : 1.0f / sqrtf((float)a->head_dim);
    float *q = check_random(c, values, 71);
    float *k = fill(c, &cache, sequences, length, 72, 1.0f),
          *v = fill(c, &cache, sequences, length, 73, 1.0f);
    uint32_t *info = check_alloc(c, a->rows, 8);
    double *want = check_alloc(c, values, sizeof *want);
    if (c->status != TEMPER_OK)
        return;
    for (uint64_t i = 0; i < values; i++)
        q[i] *= 3;
    /* All of q at one size and K near 1 put q.k near 32 * 5.5. */
    for (uint64_t i = 0; a->kind == LARGE && i < values; i++)
        q[i] = 5.5f + 0.05f * q[i];
    for (uint64_t i = 0; a->kind == LARGE && i < cache.values; i++)
        k[i] = 1.0f + 0.02f * k[i];
    for (uint32_t r = 0; r < a->rows; r++) {
        info[2 * r] = a->position + r / sequences;
        info[2 * r + 1] = check_table_offset(&cache, r % sequences);
    }
    spoil(a, &cache, k, v);

    attention_run r = {.shape = {.rows = a->rows,
                                 .q_heads = a->q_heads,
                                 .kv_heads = a->kv_heads,
                                 .head_dim = a->head_dim,
                                 .scale = scale,
                                 .longest = length,
                                 .sequences = a->kind == SINGLES ? a->rows : 1,
                                 .singles = a->singles,
                                 .window = a->window,
                                 .softcap = a->softcap,
                                 .cache = type},
                       .row = row};
    r.q = check_input(c, q, values * 4);
    r.k_cache = keep(c, &cache, &k);
    r.v_cache = keep(c, &cache, &v);
    r.row_info = check_input(c, info, (uint64_t)a->rows * 8);
    r.table = check_input(c, cache.table, (uint64_t)cache.table_words * 4);
    r.scratch = check_output(c, op_attention_scratch_bytes(&r.shape));
    r.out = check_output(c, values * 4);
    double pairs = 0;
    const uint32_t most = a->window > 0 ? a->window : UINT32_MAX;
    for (uint32_t i = 0; i < a->rows; i++)
        pairs += info[2 * i] < most ? info[2 * i] + 1 : most;
    const double cached = 2.0 * length * sequences / OP_CACHE_BLOCK *
                          (double)op_cache_block_bytes(type, a->kv_heads, a->head_dim);
    const float *out = check_go(c, record, &r, r.out, 4.0 * pairs * a->q_heads * a->head_dim,
                                cached + 8.0 * (double)values);
    if (c->status != TEMPER_OK)
        return;
    const ref_scores scores = {(double)scale, a->window, (double)a->softcap};
    ref_attention(q, k, v, info, cache.table, &heads, &scores, want);
    if (row != NULL)
        check_half(c, out, want, values, a->kind);
    else
        check_bounds(c, out, want, values, a->kind == LARGE ? 1e-4 : 1e-5, 1e-3);
}

/* Steps on one cache, k and v stored on the way; against one pass over all rows. */
typedef struct replay_run {
    attention_run attention;
    gpu_view qkv, turns, q;
    op_rope_shape rope;
} replay_run;

static void record_step(gpu_recorder *rec, void *user)
{
    const replay_run *r = user;
    const attention_run *a = &r->attention;
    const op_rope_attention_views views = {
        .qkv = r->qkv,
        .turns = r->turns,
        .row_info = a->row_info,
        .block_table = a->table,
        .k_cache = a->k_cache,
        .v_cache = a->v_cache,
        .q = r->q,
        .scratch = a->scratch,
        .out = a->out,
    };
    op_rope_attention(rec, &views, &r->rope, &a->shape);
}

enum { RQ = 6, RKV = 2, RD = 16, RW = (RQ + 2 * RKV) * RD, RALL = 200 };

static void replay_reference(check_context *c, const check_cache *cache, const float *qkv,
                             const double *inv_freq, const uint32_t *info, const ref_heads *heads,
                             double *want)
{
    const uint64_t q_values = (uint64_t)heads->rows * RQ * RD;
    double *wide[3];
    float *narrow[3];
    const uint64_t sizes[3] = {q_values, cache->values, cache->values};
    for (int i = 0; i < 3; i++) {
        wide[i] = check_alloc(c, sizes[i], sizeof *wide[i]);
        narrow[i] = check_alloc(c, sizes[i], sizeof *narrow[i]);
    }
    if (c->status != TEMPER_OK)
        return;
    ref_rope_store(qkv, inv_freq, 1.0, info, cache->table, heads, wide[0], wide[1], wide[2]);
    for (int i = 0; i < 3; i++)
        for (uint64_t j = 0; j < sizes[i]; j++)
            narrow[i][j] = (float)wide[i][j];
    const ref_scores scores = {.scale = 0.25};
    ref_attention(narrow[0], narrow[1], narrow[2], info, cache->table, heads, &scores, want);
}

static void run_replay(check_context *c, const uint32_t *steps, op_cache_type type)
{
    /* The reference keeps K and V as they are: what the types lose shows here, and only here. */
    static const struct {
        double absolute, relative;
    } bounds[OP_CACHE_TYPES] = {{1e-5, 1e-3}, {2e-3, 1e-2}, {1e-2, 1e-2}};
    uint32_t rows = 0;
    for (uint32_t s = 0; s < 8 && steps[s] > 0; s++)
        rows += steps[s];
    const ref_heads heads = {rows, RQ, RKV, RD, RD};
    const check_cache cache = check_make_cache(c, type, heads, 1, RALL, 512);
    const float *qkv = check_random(c, (uint64_t)rows * RW, 81);
    double inv_freq[RD / 2];
    op_turns turns[RD / 2];
    uint32_t info[2 * RALL];
    for (uint32_t i = 0; i < RD / 2; i++) {
        inv_freq[i] = pow(1e4, -2.0 * i / RD);
        turns[i] = op_turns_of(inv_freq[i]);
    }
    for (uint32_t r = 0; r < rows; r++) {
        info[2 * r] = r;
        info[2 * r + 1] = CHECK_TABLE_GAP;
    }
    double *want = check_alloc(c, (uint64_t)rows * RQ * RD, sizeof *want);
    replay_run r = {.turns = check_input(c, turns, sizeof turns)};
    r.attention.table = check_input(c, cache.table, (uint64_t)cache.table_words * 4);
    r.attention.k_cache = check_output(c, cache.bytes);
    r.attention.v_cache = check_output(c, cache.bytes);
    if (c->status != TEMPER_OK)
        return;
    replay_reference(c, &cache, qkv, inv_freq, info, &heads, want);
    for (uint32_t s = 0, first = 0; s < 8 && steps[s] > 0; first += steps[s++]) {
        const uint32_t n = steps[s];
        r.rope = (op_rope_shape){.rows = n,
                                 .q_heads = RQ,
                                 .kv_heads = RKV,
                                 .head_dim = RD,
                                 .rotary_dim = RD,
                                 .cache = type};
        r.attention.shape = (op_attention_shape){.rows = n,
                                                 .q_heads = RQ,
                                                 .kv_heads = RKV,
                                                 .head_dim = RD,
                                                 .scale = 0.25f,
                                                 .longest = first + n,
                                                 .cache = type};
        r.qkv = check_input(c, qkv + (uint64_t)first * RW, (uint64_t)n * RW * 4);
        r.q = r.attention.q = check_output(c, (uint64_t)n * RQ * RD * 4);
        r.attention.row_info = check_input(c, info + 2 * first, (uint64_t)n * 8);
        r.attention.scratch = check_output(c, op_attention_scratch_bytes(&r.attention.shape));
        r.attention.out = check_output(c, (uint64_t)n * RQ * RD * 4);
        const bool time = c->time;
        c->time = false;
        const float *out = check_go(c, record_step, &r, r.attention.out, 0, 0);
        c->time = time;
        check_bounds(c, out, want + (uint64_t)first * RQ * RD, (uint64_t)n * RQ * RD,
                     bounds[type].absolute, bounds[type].relative);
        for (; c->buffer_count > 4; c->buffer_count--)
            gpu_buffer_destroy(c->buffers[c->buffer_count - 1]);
    }
}

static void run(check_context *c, uint32_t i)
{
    const choice of = choice_of(i);
    if (of.which >= NAMED)
        run_replay(c, replays[of.which - NAMED], of.type);
    else if (cases[of.which].kind == REFUSED)
        run_refused(c, &cases[of.which]);
    else
        run_rows(c, &cases[of.which], of.type, of.by);
}

const check_group check_attention = {"attention", count, describe, run};

/* ---- is the device good at it? --------------------------------------------------------------- */

/* The plain twin is; one that computes something else is found out, and one that no compiler takes,
 * and both leave the reason. */
static const struct {
    const char *name, *word;
    check_plain_kind kind;
} agreements[] = {
    {"a right kernel is trusted", "", CHECK_PLAIN_RIGHT},
    {"a wrong kernel is refused", "wrong", CHECK_PLAIN_WRONG},
    {"a kernel that does not compile is refused", "attention_plain_broken", CHECK_PLAIN_BROKEN},
};
enum { AGREEMENTS = sizeof agreements / sizeof *agreements };

static uint32_t agreement_count(void)
{
    return AGREEMENTS + 1;
}

static void describe_agreement(uint32_t i, check_case *out)
{
    const char *name = i < AGREEMENTS ? agreements[i].name : "what is close enough";
    snprintf(out->name, sizeof out->name, "check: %s", name);
    out->cost = i < AGREEMENTS ? CHECK_NORMAL : CHECK_QUICK;
}

/* Whether `off` at one place of a hundred values near 1 is close enough. */
static bool is_close(float off, uint32_t places)
{
    float got[100], want[100];
    for (uint32_t i = 0; i < 100; i++) {
        want[i] = i % 2 == 0 ? 1.0f : -1.0f;
        got[i] = want[i] + (i < places ? off : 0.0f);
    }
    return op_close_enough(got, want, 100, op_tolerance_operands);
}

static void run_closeness(check_context *c)
{
    check_that(c, is_close(0.0f, 100) && is_close(0.009f, 1) && is_close(0.0045f, 100),
               "what f16 loses is too much");
    check_that(c, !is_close(0.011f, 1), "one value off by 1.1 %% of their size is trusted");
    check_that(c, !is_close(0.0055f, 100), "all values off by 0.55 %% of their size are trusted");
    check_that(c, !is_close(NAN, 1) && !is_close(INFINITY, 1), "what is no number is trusted");
}

static void run_agreement(check_context *c, uint32_t i)
{
    if (i >= AGREEMENTS) {
        run_closeness(c);
        return;
    }
    const bool right = agreements[i].kind == CHECK_PLAIN_RIGHT;
    const op_attention_shape shape = {.q_heads = 8, .kv_heads = 2, .head_dim = 16};
    bool good = !right;
    error why = {0};
    if (row_of(c, BY_TWIN, shape.head_dim) == NULL)
        return;
    const op_kernel_row *row = check_plain_attention(agreements[i].kind);
    check_that(c, row != NULL, "the row is missing");
    if (row == NULL)
        return;
    c->status = op_attention_try(c->device, row, &shape, &good, &why, c->err);
    check_that(c, good == right, "%s: %s", right ? "it was refused" : "it was trusted", why.text);
    check_that(c, strstr(why.text, agreements[i].word) != NULL, "the reason is \"%s\"", why.text);
    check_that(c, right == (why.text[0] == '\0'), "there is a reason: \"%s\"", why.text);
}

const check_group check_attention_agreement = {"attention", agreement_count, describe_agreement,
                                               run_agreement};
