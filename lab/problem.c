/*
 * problem.c - see problem.h.
 */
#include "problem.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/half.h"

enum { HEADS = 32, KV_HEADS = 8, HEAD_DIM = 64 };

enum fill_kind {
    FILL_HASH, FILL_SCALES, FILL_F16, FILL_F32, FILL_F16_PAIRS, FILL_POISON, FILL_ONE
};
enum { SEED_W = 1, SEED_S = 2, SEED_X = 3, SEED_B = 4 };

static const char *const pool_names[POOL_COUNT] = {
    "dims", "w4", "s",  "x32", "xh", "xp",   "q8x",  "q8m",
    "q16x", "q16m", "bh", "b32", "th",   "y",   "c1",  "c2", "kv", "one", "b8", "b8s", "w8s",
};

char *read_text_file(const char *path)
{
    FILE *f = fopen(path, "rb");
    if (f == NULL)
        return NULL;
    fseek(f, 0, SEEK_END);
    const long size = ftell(f);
    rewind(f);
    char *bytes = calloc(1, (size_t)size + 1);
    if (bytes != NULL && fread(bytes, 1, (size_t)size, f) != (size_t)size) {
        free(bytes);
        bytes = NULL;
    }
    fclose(f);
    return bytes;
}

/* ---- the values ----------------------------------------------------------------------------- */

static uint32_t hash(uint64_t index, uint32_t seed)
{
    uint32_t h = (uint32_t)index * 747796405u + seed * 2891336453u + 1u;
    h = (h ^ h >> 16) * 0x7feb352du;
    h = (h ^ h >> 15) * 0x846ca68bu;
    return h ^ h >> 16;
}

static double value(uint64_t index, uint32_t seed)
{
    return ((double)(hash(index, seed) & 2047) - 1024) / 1024;
}

static double scale_value(uint64_t half)
{
    const uint32_t h = hash(half / 2, SEED_S);
    const uint32_t bits = 0x2000 | ((half & 1 ? h >> 10 : h) & 0x3ff);
    return (double)f16_to_f32((uint16_t)bits);
}

static uint64_t round_up(uint64_t bytes)
{
    return (bytes + 255) / 256 * 256;
}

static double weight4(const vars *v, shape s, int64_t copy, int64_t n, int64_t k)
{
    const int64_t words = s.k / 8, rows = vars_get(v, "il", 1), unit = vars_get(v, "w", 4);
    const bool blocks = vars_get(v, "kb", 0) != 0;
    int64_t word = blocks ? (k / 32 * s.n + n) * 4 + k % 32 / 8 : n * words + k / 8;
    if (rows > 1)
        word = ((n / rows * (words / unit) + k / 8 / unit) * rows + n % rows) * unit + k / 8 % unit;
    const uint64_t base = (uint64_t)copy * (round_up((uint64_t)(s.n * s.k / 2)) / 4);
    const uint32_t bits = hash(base + (uint64_t)word, SEED_W);
    const int64_t e = k % 8;
    const int shift = (int)(vars_get(v, "order", 0) ? e / 2 * 4 + e % 2 * 16 : e * 4);
    const bool by_group = blocks || vars_get(v, "sl", 0) == 1;
    const int64_t group = by_group ? k / 32 * s.n + n : n * (s.k / 32) + k / 32;
    const uint64_t scales = (uint64_t)copy * (round_up((uint64_t)(s.n * s.k / 16)) / 2);
    return scale_value(scales + (uint64_t)group) * ((double)(bits >> shift & 15) - 8);
}

static double reference(const char *ref, const vars *v, shape s, int64_t copy, int64_t m, int64_t n)
{
    double sum = 0;
    const bool q4 = strcmp(ref, "q4") == 0, kn = strcmp(ref, "kn") == 0;
    const bool blocks = vars_get(v, "kb", 0) != 0;
    const int64_t x_rows = vars_get(v, "xrows", s.m);
    const int64_t share = s.k / vars_get(v, "parts", 1), part = m / s.m;
    m %= s.m;
    for (int64_t k = part * share; k < (part + 1) * share; k++) {
        const int64_t x_at = blocks ? (k / 32 * x_rows + m) * 32 + k % 32 : m * s.k + k;
        const int64_t w_at = blocks ? (k / 32 * s.n + n) * 32 + k % 32 : n * s.k + k;
        const double x = value((uint64_t)x_at, SEED_X);
        const double w = q4 ? weight4(v, s, copy, n, k)
                            : value((uint64_t)(kn ? k * s.n + n : w_at), SEED_B);
        sum += x * w;
    }
    return sum;
}

/* One element of a chunk's attention: head and chunk in `row`, its own softmax. */
static double attend(const vars *v, shape s, int64_t copy, int64_t row, int64_t d)
{
    const int64_t chunks = vars_get(v, "chunks", 1), chunk = s.k / chunks;
    const int64_t head = row / chunks, kv = head / (HEADS / KV_HEADS);
    const int64_t base = copy * 2 * KV_HEADS * s.k * HEAD_DIM;
    double sum = 0, weights = 0;
    for (int64_t p = row % chunks * chunk; p < (row % chunks + 1) * chunk; p++) {
        const int64_t at = base + (kv * s.k + p) * HEAD_DIM;
        double score = 0;
        for (int64_t i = 0; i < HEAD_DIM; i++)
            score += value((uint64_t)(head * HEAD_DIM + i), SEED_X) *
                     value((uint64_t)(at + i), SEED_B);
        const double weight = exp(score / 8);
        weights += weight;
        sum += weight * value((uint64_t)(at + KV_HEADS * s.k * HEAD_DIM + d), SEED_B);
    }
    return sum / weights;
}

/* One element of causal attention: row m, column = head and dimension. */
static double prefill(shape s, int64_t m, int64_t column)
{
    const int64_t head = column / HEAD_DIM, d = column % HEAD_DIM, kv = head / (HEADS / KV_HEADS);
    double sum = 0, weights = 0;
    for (int64_t p = 0; p <= m; p++) {
        const int64_t at = (kv * s.k + p) * HEAD_DIM;
        double score = 0;
        for (int64_t i = 0; i < HEAD_DIM; i++)
            score += value((uint64_t)((m * HEADS + head) * HEAD_DIM + i), SEED_X) *
                     value((uint64_t)(at + i), SEED_B);
        const double weight = exp(score / 8);
        weights += weight;
        sum += weight * value((uint64_t)(at + KV_HEADS * s.k * HEAD_DIM + d), SEED_B);
    }
    return sum / weights;
}

/* One element of the chunks' outputs joined; the table's sums are stored less 2. */
static double join(shape s, int64_t head, int64_t d)
{
    double sum = 0, all = 0;
    for (int64_t c = head * s.k; c < (head + 1) * s.k; c++) {
        const double factor =
            (value((uint64_t)(2 * c + 1), SEED_X) + 2) * exp(value((uint64_t)(2 * c), SEED_X));
        sum += factor * value((uint64_t)(c * HEAD_DIM + d), SEED_B);
        all += factor;
    }
    return sum / all;
}

/* ---- buffers -------------------------------------------------------------------------------- */

static pool *find_pool(problem *p, const char *name)
{
    for (int i = 0; i < POOL_COUNT; i++)
        if (strcmp(p->pools[i].name, name) == 0)
            return &p->pools[i];
    return NULL;
}

static void fill(problem *p, WGPUBuffer buffer, uint64_t size, enum fill_kind kind, uint32_t seed)
{
    const uint32_t words = (uint32_t)(size / 4);
    const uint32_t groups = (words + 255) / 256;
    const uint32_t params[4] = {words, kind, seed, groups < 32768 ? groups : 32768};
    bench_write(p->b, p->fill_params, 0, params, sizeof params);
    const bench_binding bindings[2] = {{p->fill_params, 0, 16}, {buffer, 0, size}};
    WGPUBindGroup group = bench_group(p->b, &p->fill, bindings, 2);
    const bench_step step = {p->fill.handle, group, params[3],
                             (groups + params[3] - 1) / params[3]};
    bench_run(p->b, &step, 1);
    wgpuBindGroupRelease(group);
}

/* x as integers, `unit` elements a row of the scale table; two bytes an element where `wide`. */
static void fill_integers(problem *p, WGPUBuffer data, WGPUBuffer table, int64_t elements,
                          int64_t unit, bool wide)
{
    uint8_t *bytes = calloc((size_t)elements, wide ? 2 : 1);
    float *rows = calloc((size_t)(elements / unit) * 2, sizeof *rows);
    for (int64_t u = 0; u < elements / unit; u++) {
        const int64_t first = u * unit;
        double largest = 1e-9, sum = 0;
        for (int64_t i = 0; i < unit; i++)
            largest = fmax(largest, fabs(value((uint64_t)(first + i), SEED_X)));
        const double scale = (double)(float)(largest / (wide ? 32512 : 127));
        for (int64_t i = 0; i < unit; i++) {
            const int q = (int)lround(value((uint64_t)(first + i), SEED_X) / scale);
            const int low = ((q + 128) & 255) - 128;
            const int64_t eight = (first + i) / 8, at = i % 8 / 2 + i % 2 * 4;
            sum += q;
            if (wide) {
                bytes[eight * 16 + at] = (uint8_t)((q - low) / 256);
                bytes[eight * 16 + 8 + at] = (uint8_t)low;
            } else {
                bytes[eight * 8 + at] = (uint8_t)q;
            }
        }
        rows[2 * u] = (float)scale;
        rows[2 * u + 1] = (float)(scale * sum * 8);
    }
    bench_write(p->b, data, 0, bytes, (size_t)elements * (wide ? 2 : 1));
    bench_write(p->b, table, 0, rows, (size_t)(elements / unit) * 2 * sizeof *rows);
    free(bytes);
    free(rows);
}

/* x in bytes, in blocks along k; a scale for a row of each `span` elements. */
static void fill_bytes(problem *p, WGPUBuffer data, WGPUBuffer table, shape s, int64_t span)
{
    int8_t *bytes = calloc((size_t)(s.m * s.k), 1);
    float *scales = calloc((size_t)(s.m * (s.k / span)), sizeof *scales);
    for (int64_t g = 0; g < s.k / span; g++)
        for (int64_t m = 0; m < s.m; m++) {
            double largest = 1e-9;
            for (int64_t k = g * span; k < (g + 1) * span; k++)
                largest = fmax(largest, fabs(value((uint64_t)((k / 32 * s.m + m) * 32 + k % 32),
                                                   SEED_X)));
            const float scale = (float)(largest / 127);
            for (int64_t k = g * span; k < (g + 1) * span; k++) {
                const int64_t eight = (k / 32 * s.m + m) * 32 + k % 32 / 8 * 8, e = k % 8;
                bytes[eight + e / 4 * 4 + e % 2 * 2 + e % 4 / 2] =
                    (int8_t)lround(value((uint64_t)(eight + e), SEED_X) / (double)scale);
            }
            scales[g * s.m + m] = scale;
        }
    bench_write(p->b, data, 0, bytes, (size_t)(s.m * s.k));
    bench_write(p->b, table, 0, scales, (size_t)(s.m * (s.k / span)) * sizeof *scales);
    free(bytes);
    free(scales);
}

/* What a byte of a 4-bit weight is worth: a block's own scale, or where several share one 8 / 127 of
 * the largest. */
static void fill_byte_scales(problem *p, WGPUBuffer table, shape s, int64_t span)
{
    float *scales = calloc((size_t)(s.n * (s.k / span)), sizeof *scales);
    for (int64_t g = 0; g < s.k / span; g++)
        for (int64_t n = 0; n < s.n; n++) {
            double largest = 0;
            for (int64_t kb = g * span / 32; kb < (g + 1) * span / 32; kb++)
                largest = fmax(largest, scale_value((uint64_t)(kb * s.n + n)));
            scales[g * s.n + n] = (float)(span == 32 ? largest : largest * 8 / 127);
        }
    bench_write(p->b, table, 0, scales, (size_t)(s.n * (s.k / span)) * sizeof *scales);
    free(scales);
}

static void fill_pool(problem *p, const char *name, WGPUBuffer buffer, uint64_t size)
{
    static const struct {
        const char *name;
        enum fill_kind kind;
        uint32_t seed;
    } rows[] = {
        {"w4", FILL_HASH, SEED_W},       {"s", FILL_SCALES, SEED_S}, {"x32", FILL_F32, SEED_X},
        {"xh", FILL_F16, SEED_X},        {"bh", FILL_F16, SEED_B},   {"b32", FILL_F32, SEED_B},
        {"xp", FILL_F16_PAIRS, SEED_X},  {"th", FILL_F16, SEED_B},   {"c1", FILL_HASH, SEED_W},
        {"c2", FILL_HASH, SEED_W},       {"y", FILL_POISON, 0},     {"kv", FILL_F16, SEED_B},
        {"one", FILL_ONE, 0},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (strcmp(rows[i].name, name) == 0)
            fill(p, buffer, size, rows[i].kind, rows[i].seed);
}

static uint64_t pool_bytes(const problem *p, const char *name, const vars *v, shape s,
                           int64_t copies)
{
    const int64_t unit = vars_get(v, "w", 4) * 8;
    const struct {
        const char *name;
        int64_t bytes;
    } rows[] = {
        {"dims", 256}, {"one", s.m * 4},
        {"w4", copies * (int64_t)round_up((uint64_t)(s.n * s.k / 2))},
        {"s", copies * (int64_t)round_up((uint64_t)(s.n * s.k / 16))},
        {"x32", (s.m < 64 ? 64 : s.m) * s.k * 4}, {"xp", s.m * s.k * 2},
        {"xh", (s.m + 127) / 128 * 128 * (s.k > 2048 ? s.k : 2048) * 2},
        {"q8x", s.m * s.k}, {"q8m", s.m * s.k / unit * 8},
        {"q16x", s.m * s.k * 2}, {"q16m", s.m * s.k / unit * 8},
        {"b8", s.m * s.k}, {"b8s", s.m * s.k / 8}, {"w8s", s.n * s.k / 8},
        {"bh", s.n * s.k * 2}, {"b32", s.n * s.k * 4}, {"th", s.n * s.k * 2},
        {"y", s.m * s.n * vars_get(v, "chunks", 1) * 4},
        {"kv", copies * 2 * KV_HEADS * s.k * HEAD_DIM * 2}, {"c1", p->big}, {"c2", p->big},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (strcmp(rows[i].name, name) == 0)
            return round_up((uint64_t)rows[i].bytes);
    return 0;
}

int64_t problem_copies(const vars *v, shape s)
{
    const int64_t bytes = s.n * s.k / 2 + 1, target = vars_get(v, "spread", 160) * 1000000;
    const int64_t wanted = s.m > 64 ? 1 : (target + bytes - 1) / bytes;
    const int64_t copies = vars_get(v, "copies", wanted < 64 ? wanted : 64);
    return copies > 0 ? copies : 1;
}

bool problem_bind(problem *p, const char *name, const vars *v, shape s, int64_t copy,
                  bench_binding *out)
{
    pool *found = find_pool(p, name);
    const int64_t copies = problem_copies(v, s);
    const uint64_t size = found != NULL ? pool_bytes(p, name, v, s, copies) : 0;
    if (size == 0)
        return false;
    if (size > found->size) {
        if (found->buffer != NULL)
            wgpuBufferDestroy(found->buffer);
        const bool uniform = strcmp(name, "dims") == 0;
        found->buffer = bench_buffer(p->b, size, uniform ? WGPUBufferUsage_Uniform
                                                         : WGPUBufferUsage_Storage);
        found->size = size;
        fill_pool(p, name, found->buffer, size);
    }
    if (strcmp(name, "dims") == 0) {
        const uint32_t dims[4] = {(uint32_t)s.m, (uint32_t)s.n, (uint32_t)s.k,
                                  (uint32_t)vars_get(v, "split", 1)};
        bench_write(p->b, found->buffer, 0, dims, sizeof dims);
    }
    const bool q8 = strcmp(name, "q8x") == 0;
    if (copy == 0 && (q8 || strcmp(name, "q16x") == 0)) {
        bench_binding table;
        if (!problem_bind(p, q8 ? "q8m" : "q16m", v, s, 0, &table))
            return false;
        fill_integers(p, found->buffer, table.buffer, s.m * s.k, vars_get(v, "w", 4) * 8, !q8);
    }
    if (copy == 0 && strcmp(name, "b8") == 0) {
        bench_binding table;
        if (!problem_bind(p, "b8s", v, s, 0, &table))
            return false;
        fill_bytes(p, found->buffer, table.buffer, s, vars_get(v, "span", 32));
    }
    if (copy == 0 && strcmp(name, "w8s") == 0)
        fill_byte_scales(p, found->buffer, s, vars_get(v, "span", 32));
    *out = (bench_binding){found->buffer, 0, size};
    if (strcmp(name, "w4") == 0 || strcmp(name, "s") == 0 || strcmp(name, "kv") == 0) {
        out->size = size / (uint64_t)copies;
        out->offset = (uint64_t)copy * out->size;
    }
    return true;
}

/* ---- checking ------------------------------------------------------------------------------- */

static const char *result_pool(const char *ref)
{
    return strcmp(ref, "unpack") == 0 ? "th" : "y";
}

void problem_poison(problem *p, const char *ref)
{
    const pool *y = find_pool(p, result_pool(ref));
    if (y->buffer != NULL)
        fill(p, y->buffer, y->size, FILL_POISON, 0);
}

/* Corners first, then anywhere. */
static void sample(int i, int64_t rows, int64_t columns, int64_t *row, int64_t *column)
{
    *row = i & 1 ? rows - 1 : 0;
    *column = i & 2 ? columns - 1 : 0;
    if (i >= 4) {
        *row = hash((uint64_t)i, 91) % rows;
        *column = hash((uint64_t)i, 92) % columns;
    }
}

static double one_value(const char *ref, const vars *v, shape s, int64_t copy, int64_t row,
                        int64_t column)
{
    if (strcmp(ref, "unpack") == 0)
        return weight4(v, s, copy, row, column);
    if (strcmp(ref, "attend") == 0)
        return attend(v, s, copy, row, column);
    if (strcmp(ref, "join") == 0)
        return join(s, row, column);
    if (strcmp(ref, "prefill") == 0)
        return prefill(s, row, column);
    return reference(ref, v, s, copy, row, column);
}

/* The references of the samples; the last few sets are kept, as one problem has many candidates. */
static const double *expectations(const char *ref, const vars *v, shape s, int64_t copy,
                                  int64_t rows, int64_t columns)
{
    enum { KEPT = 8 };
    static struct {
        char key[160];
        double values[SAMPLES];
    } sets[KEPT];
    static int oldest;
    const int64_t rows_apart = vars_get(v, "il", 1);
    const int64_t parts[] = {
        s.m, s.n, s.k, copy, vars_get(v, "order", 0), vars_get(v, "sl", 0) == 1, rows_apart,
        rows_apart > 1 ? vars_get(v, "w", 4) : 0, vars_get(v, "chunks", 1), vars_get(v, "kb", 0),
        vars_get(v, "xrows", s.m),
    };
    char key[160];
    int used = snprintf(key, sizeof key, "%s", ref);

    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        used += snprintf(key + used, sizeof key - (size_t)used, " %" PRId64, parts[i]);
    for (int i = 0; i < KEPT; i++)
        if (strcmp(sets[i].key, key) == 0)
            return sets[i].values;
    const int at = oldest++ % KEPT;
    snprintf(sets[at].key, sizeof sets[at].key, "%s", key);
    for (int i = 0; i < SAMPLES; i++) {
        int64_t row, column;
        sample(i, rows, columns, &row, &column);
        sets[at].values[i] = one_value(ref, v, s, copy, row, column);
    }
    return sets[at].values;
}

static void run_once(problem *p, const bench_pipeline *pipeline, const bench_binding *bindings,
                     uint32_t x)
{
    WGPUBindGroup group = bench_group(p->b, pipeline, bindings, 3);
    const bench_step step = {pipeline->handle, group, x, 1};
    bench_run(p->b, &step, 1);
    wgpuBindGroupRelease(group);
}

double problem_error(problem *p, const char *ref, const vars *v, shape s, int64_t copy)
{
    const bool unpack = strcmp(ref, "unpack") == 0;
    const bool attends = strcmp(ref, "attend") == 0 || strcmp(ref, "join") == 0;
    const pool *y = find_pool(p, result_pool(ref));
    const int64_t rows = unpack    ? s.n
                         : attends ? HEADS * vars_get(v, "chunks", 1)
                                   : s.m * vars_get(v, "parts", 1);
    const int64_t columns = unpack ? s.k : attends ? HEAD_DIM : s.n;
    const uint32_t words = (uint32_t)(rows * columns / (unpack ? 2 : 1));
    uint32_t at[SAMPLES], got[SAMPLES], params[4] = {words, 0, 0, 0};
    int64_t row, column;

    for (int i = 0; i < SAMPLES; i++) {
        sample(i, rows, columns, &row, &column);
        at[i] = (uint32_t)((row * columns + column) / (unpack ? 2 : 1));
    }
    bench_write(p->b, p->sample_at, 0, at, sizeof at);
    bench_write(p->b, p->untouched, 0, (const uint32_t[4]){0}, 16);
    run_once(p, &p->gather, (bench_binding[]){{p->sample_at, 0, sizeof at}, {y->buffer, 0, y->size},
                                              {p->sample_out, 0, sizeof got}}, 1);
    bench_write(p->b, p->fill_params, 0, params, sizeof params);
    run_once(p, &p->count, (bench_binding[]){{p->fill_params, 0, 16}, {y->buffer, 0, y->size},
                                             {p->untouched, 0, 16}}, 1024);
    if (!bench_read(p->b, p->sample_out, 0, got, sizeof got) ||
        !bench_read(p->b, p->untouched, 0, params, sizeof params) || params[0] != 0)
        return INFINITY;

    const double *expected_values = expectations(ref, v, s, copy, rows, columns);
    double worst = 0, squares = 0;
    for (int i = 0; i < SAMPLES; i++) {
        sample(i, rows, columns, &row, &column);
        const double expected = expected_values[i];
        float single;
        memcpy(&single, &got[i], sizeof single);
        if (unpack)
            single = f16_to_f32((uint16_t)(column & 1 ? got[i] >> 16 : got[i] & 0xffff));
        const double error = fabs((double)single - expected);
        if (!(error <= worst))
            worst = isnan(error) ? INFINITY : error;
        squares += expected * expected;
    }
    return worst / sqrt(squares / SAMPLES);
}

/* ---- opening -------------------------------------------------------------------------------- */

static bool load(problem *p, bench_pipeline *pipeline, const char *folder, const char *name)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s.wgsl", folder, name);
    char *source = read_text_file(path);
    if (source == NULL)
        return false;
    bench_pipeline_start(p->b, pipeline, name, source);
    bench_pipeline_wait(p->b, pipeline);
    if (pipeline->handle == NULL)
        fprintf(stderr, "sweep: %s: %s\n", name, pipeline->message);
    free(source);
    return pipeline->handle != NULL;
}

const char *problem_open(problem *p, bench *b, const char *folder, int64_t big)
{
    *p = (problem){.b = b, .big = big};
    for (int i = 0; i < POOL_COUNT; i++)
        p->pools[i].name = pool_names[i];
    if (!load(p, &p->fill, folder, "fill") || !load(p, &p->gather, folder, "gather") ||
        !load(p, &p->count, folder, "untouched"))
        return "the helper kernels could not be made";
    p->fill_params = bench_buffer(b, 256, WGPUBufferUsage_Uniform);
    p->sample_at = bench_buffer(b, SAMPLES * 4, WGPUBufferUsage_Storage);
    p->sample_out = bench_buffer(b, SAMPLES * 4, WGPUBufferUsage_Storage);
    p->untouched = bench_buffer(b, 256, WGPUBufferUsage_Storage);
    return NULL;
}
