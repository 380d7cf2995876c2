/*
 * tune.c - the rows of matmul's table, timed against each other on one shape.
 */
#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/half.h"
#include "base/mem.h"
#include "check/choice.h"
#include "check/context.h"
#include "gpu/notes.h"

enum {
    MOST_COPIES = 16,
    CHUNK_BYTES = 1 << 20, /* of random bits, written again and again */
};

/* Weights that together pass the largest cache of today's cards. */
static const uint64_t enough_bytes = UINT64_C(256) << 20;

/* Sums of a row that rounds its inputs differ from f32 by these parts of the root mean square, and
 * by some more where the sum cancels. */
static const double limit_exact = 1e-3, limit_half = 2e-2;

struct check_tuner {
    gpu_device *device;
    char *folder;
    bool exact;
    check_timer *timer;
    op_choices *choices;
    const op_kernel_row *offered[OP_TILES];
    uint32_t offered_count;
};

/* What is measured: a row, and into how many slices it splits K; 0 for one without a tile. */
typedef struct candidate {
    const op_kernel_row *row;
    uint32_t slices;
} candidate;

/* One shape. */
typedef struct tuning {
    gpu_device *device;
    const check_shape *shape;
    op_weight *weights[MOST_COPIES];
    uint32_t copies, next;
    gpu_buffer *x, *y, *scratch, *sums;
    float *want, *got;
} tuning;

/* ---- random weights -------------------------------------------------------------------------- */

/* A chunk of a plane: bits as they come, or where they are numbers, numbers of a sane size. */
static void fill_chunk(uint32_t *words, weight_format format, bool scales, uint32_t seed)
{
    const bool two_level = format.scale == SCALE_K || format.scale == SCALE_K_MIN;
    const float size = scales ? (two_level ? 0.0003f : 0.02f) : 1.0f;
    const bool f32 = scales ? format.scale == SCALE_F32 : format.layout == LAYOUT_F32;
    const bool halves = scales || format.layout == LAYOUT_F16;
    for (uint32_t i = 0; i < CHUNK_BYTES / 4; i++) {
        const float low = size * (1.5f + 0.5f * check_random_float(seed, 2 * i));
        const float high = size * check_random_float(seed, 2 * i + 1);
        if (f32)
            memcpy(&words[i], scales ? &low : &high, sizeof words[i]);
        else if (halves)
            words[i] = f32_to_f16(scales ? low : high) | (uint32_t)f32_to_f16(scales ? low : -high)
                                                             << 16;
        else if (format.layout == LAYOUT_BF16)
            words[i] = f32_to_bf16(high) | (uint32_t)f32_to_bf16(-high) << 16;
        else
            words[i] = check_random_word(seed, i);
    }
}

static temper_status fill_plane(gpu_device *device, gpu_buffer *plane, const uint32_t *words,
                                error *err)
{
    const uint64_t size = plane != NULL ? gpu_buffer_size(plane) : 0;
    temper_status status = TEMPER_OK;
    for (uint64_t at = 0; status == TEMPER_OK && at < size; at += CHUNK_BYTES)
        status = gpu_write(device, plane, at, words, min_u64(CHUNK_BYTES, size - at), err);
    return status;
}

static temper_status fill_weight(gpu_device *device, const op_weight *w, uint32_t seed, error *err)
{
    uint32_t *data = mem_alloc(CHUNK_BYTES), *scales = mem_alloc(CHUNK_BYTES);
    temper_status status = TEMPER_OK;
    if (data == NULL || scales == NULL)
        status = error_set(err, TEMPER_NO_MEMORY, "no memory for random weights");
    if (status == TEMPER_OK) {
        fill_chunk(data, w->format, false, seed);
        fill_chunk(scales, w->format, true, seed + 1);
    }
    for (uint32_t i = 0; status == TEMPER_OK && i < w->part_count; i++) {
        status = fill_plane(device, w->parts[i].data, data, err);
        if (status == TEMPER_OK)
            status = fill_plane(device, w->parts[i].high, data, err);
        if (status == TEMPER_OK)
            status = fill_plane(device, w->parts[i].scales, scales, err);
    }
    mem_free(data);
    mem_free(scales);
    return status;
}

static temper_status open_weights(tuning *t, error *err)
{
    const check_shape *s = t->shape;
    const uint64_t bytes = op_weight_bytes(s->format, s->n, s->k);
    /* Many rows are bound by arithmetic: caches do not matter to them. */
    const uint64_t wanted = s->rows > 16 ? 1 : min_u64(ceil_div(enough_bytes, bytes), MOST_COPIES);
    const uint32_t copies = op_device_is_software(t->device) ? 1 : (uint32_t)wanted;
    temper_status status = TEMPER_OK;
    for (uint32_t i = 0; status == TEMPER_OK && i < copies; i++) {
        status = op_weight_create(t->device, s->format, s->n, s->k, "tuned", &t->weights[i], err);
        if (status == TEMPER_OK)
            status = fill_weight(t->device, t->weights[t->copies++], 7 * i, err);
    }
    return status;
}

/* ---- buffers --------------------------------------------------------------------------------- */

static temper_status open_x(tuning *t, error *err)
{
    const uint64_t count = t->shape->rows * t->shape->k;
    float *values = mem_calloc((size_t)count, sizeof *values);
    if (values == NULL)
        return error_set(err, TEMPER_NO_MEMORY, "no memory for random inputs");
    for (uint64_t i = 0; i < count; i++)
        values[i] = check_random_float(3, i);
    temper_status status =
        gpu_buffer_create(t->device, count * 4, GPU_PURPOSE_SCRATCH, "tuned x", &t->x, err);
    if (status == TEMPER_OK)
        status = gpu_write(t->device, t->x, 0, values, count * 4, err);
    mem_free(values);
    return status;
}

static temper_status open_tuning(tuning *t, error *err)
{
    const uint64_t values = t->shape->rows * t->shape->n;
    t->want = mem_calloc((size_t)values, sizeof *t->want);
    t->got = mem_calloc((size_t)values, sizeof *t->got);
    if (t->want == NULL || t->got == NULL)
        return error_set(err, TEMPER_NO_MEMORY, "no memory for results");
    temper_status status = open_weights(t, err);
    if (status == TEMPER_OK)
        status = open_x(t, err);
    if (status == TEMPER_OK)
        status =
            gpu_buffer_create(t->device, values * 4, GPU_PURPOSE_SCRATCH, "tuned y", &t->y, err);
    return status;
}

static void close_scratch(tuning *t)
{
    gpu_buffer_destroy(t->scratch);
    gpu_buffer_destroy(t->sums);
    t->scratch = t->sums = NULL;
}

static void close_tuning(tuning *t)
{
    op_choices_use(t->device, NULL);
    close_scratch(t);
    for (uint32_t i = 0; i < t->copies; i++)
        op_weight_destroy(t->weights[i]);
    gpu_buffer_destroy(t->x);
    gpu_buffer_destroy(t->y);
    mem_free(t->want);
    mem_free(t->got);
}

/* ---- a row ----------------------------------------------------------------------------------- */

static void record(gpu_recorder *rec, void *user)
{
    tuning *t = user;
    const check_shape *s = t->shape;
    const op_products with = {
        .scratch = t->scratch != NULL ? gpu_whole(t->scratch) : (gpu_view){0},
        .sums = t->sums != NULL ? gpu_whole(t->sums) : (gpu_view){0},
        .fixed = s->fixed,
        .half = s->half,
    };
    op_matmul_columns(rec, t->weights[t->next++ % t->copies], gpu_whole(t->x), gpu_whole(t->y),
                      (uint32_t)s->rows, 0, s->n, OP_WRITE, &with);
}

/* Makes op_choose take the row with its slices, and the scratch that it wants. */
static temper_status plant(tuning *t, const candidate *one_of, error *err)
{
    const check_shape *s = t->shape;
    op_choice choice = {.table = &op_table_matmul,
                        .n = s->n,
                        .k = s->k,
                        .format = s->format,
                        .rows = op_rows_class(s->rows),
                        .count = 1};
    op_choices *one = op_choices_new();
    choice.order[0].row = one_of->row;
    choice.order[0].slices = one_of->slices;
    if (one == NULL || !op_choices_add(one, &choice)) {
        op_choices_free(one);
        return error_set(err, TEMPER_NO_MEMORY, "no memory for a choice");
    }
    op_choices_use(t->device, one);
    close_scratch(t);
    if (!op_row_is_product(one_of->row))
        return TEMPER_OK;
    const op_product_bytes bytes = op_product_scratch_bytes(
        t->device, one_of->row, s->format, s->n, s->k, (uint32_t)s->rows);
    temper_status status =
        gpu_buffer_create(t->device, max_u64(bytes.scratch, 4), GPU_PURPOSE_SCRATCH,
                          "tuned scratch", &t->scratch, err);
    if (status == TEMPER_OK)
        status = gpu_buffer_create(t->device, max_u64(bytes.sums, 4), GPU_PURPOSE_SCRATCH,
                                   "tuned sums", &t->sums, err);
    return status;
}

static temper_status compute(tuning *t, const candidate *one, float *out, error *err)
{
    gpu_ticket ticket = {0};
    temper_status status = plant(t, one, err);
    if (status != TEMPER_OK)
        return status;
    gpu_recorder *rec = gpu_record_begin(t->device);
    gpu_record_clear(rec, gpu_whole(t->y));
    t->next = 0;
    record(rec, t);
    gpu_record_readback(rec, gpu_whole(t->y));
    status = gpu_submit(rec, &ticket, err);
    return status == TEMPER_OK ? gpu_wait(t->device, ticket, out, gpu_buffer_size(t->y), err)
                               : status;
}

static double difference(const float *got, const float *want, uint64_t count)
{
    double squares = 0, worst = 0;
    for (uint64_t i = 0; i < count; i++) {
        const double off = fabs((double)got[i] - (double)want[i]);
        squares += (double)want[i] * (double)want[i];
        if (!isnan(worst) && !(off <= worst)) /* a NaN stays */
            worst = off;
    }
    return worst / sqrt(squares / (double)count);
}

static temper_status measure_row(tuning *t, check_timer *timer, const candidate *one,
                                 check_tuned_row *out, error *err)
{
    const op_kernel_row *row = one->row;
    check_time time;
    temper_status status = compute(t, one, t->got, err);
    if (status == TEMPER_OK)
        status = check_timer_measure(timer, record, t, &time, err);
    if (status != TEMPER_OK)
        return status;
    *out = (check_tuned_row){
        .of = row,
        .row = row->name,
        .kernel = row->kernel->name,
        .slices = one->slices,
        .us = time.median * 1e6,
        .error = difference(t->got, t->want, t->shape->rows * t->shape->n),
        .steady = time.steady,
    };
    out->right = out->error <= (row->tile != NULL ? limit_half : limit_exact);
    return TEMPER_OK;
}

/* ---- all of them ----------------------------------------------------------------------------- */

static int fastest_first(const void *a, const void *b)
{
    const check_tuned_row *x = a, *y = b;
    if (x->right != y->right)
        return x->right ? -1 : 1;
    return (x->us > y->us) - (x->us < y->us);
}

static bool has_row(const op_choice *choice, const op_kernel_row *row)
{
    for (uint32_t i = 0; i < choice->count; i++)
        if (choice->order[i].row == row)
            return true;
    return false;
}

/* Of a row that was measured with several splits the fastest one stays. */
static bool keep_order(const check_shape *s, const check_tuned *tuned, op_choices *choices)
{
    op_choice choice = {.table = &op_table_matmul,
                        .n = s->n,
                        .k = s->k,
                        .format = s->format,
                        .rows = op_rows_class(s->rows)};
    for (uint32_t i = 0; i < tuned->count && tuned->rows[i].right; i++) {
        const check_tuned_row *r = &tuned->rows[i];
        if (choice.count == OP_CHOICE_ROWS || has_row(&choice, r->of))
            continue;
        choice.order[choice.count].row = r->of;
        choice.order[choice.count].slices = r->slices;
        choice.order[choice.count++].us = r->us;
    }
    return choice.count == 0 || op_choices_add(choices, &choice);
}

typedef struct candidates {
    candidate list[CHECK_TUNED_ROWS];
    uint32_t count;
    candidate before; /* what the table's own order gives */
} candidates;

/* Adds the row where it may compute the shape, with every split of K that it takes. */
static void add_row(candidates *all, gpu_device *device, const op_kernel_row *row,
                    const op_shape *shape)
{
    enum { MOST_SLICES = 8, LEFT = 1 }; /* room for the table's last row */
    const op_verdict verdict = op_row_verdict(device, row, shape);
    if (verdict != OP_ROW_MAY && verdict != OP_ROW_SLOWER)
        return;
    const uint32_t most = row->tile != NULL ? MOST_SLICES : 1;
    if (verdict == OP_ROW_MAY && all->before.row == NULL)
        all->before = (candidate){
            row,
            row->tile == NULL ? 0 : op_tile_slices(row->tile, shape->rows, shape->n, shape->k)};
    for (uint32_t slices = 1; slices <= most; slices *= 2)
        if (all->count + LEFT < CHECK_TUNED_ROWS &&
            (row->tile == NULL || op_tile_takes_slices(row->tile, shape->rows, shape->k, slices)))
            all->list[all->count++] = (candidate){row, row->tile == NULL ? 0 : slices};
}

/* The rows that may compute the shape, in the table's order: the last one always may. */
static candidates rows_that_may(const check_tuner *tuner, const check_shape *s)
{
    const op_table *table = &op_table_matmul;
    const gpu_limits *limits = gpu_device_limits(tuner->device);
    op_shape shape = {.rows = s->rows,
                      .n = s->n,
                      .k = s->k,
                      .format = s->format,
                      .workgroup_memory = limits->max_workgroup_memory,
                      .fixed = s->fixed,
                      .scratch = true,
                      .half = s->half};
    shape.tile = op_tile_best(&shape);
    candidates all = {.count = 0};
    for (uint32_t i = 0; i + 1 < table->count; i++)
        add_row(&all, tuner->device, &table->rows[i], &shape);
    const candidate last = {&table->rows[table->count - 1], 0};
    if (all.before.row == NULL)
        all.before = last;
    for (uint32_t i = 0; i < tuner->offered_count; i++)
        add_row(&all, tuner->device, tuner->offered[i], &shape);
    all.list[all.count++] = last;
    return all;
}

static temper_status measure_rows(check_tuner *tuner, const check_shape *s, check_tuned *out,
                                  error *err)
{
    const candidates all = rows_that_may(tuner, s);
    *out = (check_tuned){.before = all.before.row->name, .before_slices = all.before.slices};
    if (all.count == 1)
        return TEMPER_OK;
    tuning t = {.device = tuner->device, .shape = s};
    temper_status status = open_tuning(&t, err);
    if (status == TEMPER_OK)
        status = compute(&t, &all.list[all.count - 1], t.want, err);
    for (uint32_t i = 0; status == TEMPER_OK && i < all.count; i++)
        status = measure_row(&t, tuner->timer, &all.list[i], &out->rows[out->count++], err);
    close_tuning(&t);
    if (status != TEMPER_OK)
        return status;
    qsort(out->rows, out->count, sizeof *out->rows, fastest_first);
    return keep_order(s, out, tuner->choices)
               ? TEMPER_OK
               : error_set(err, TEMPER_NO_MEMORY, "no memory for choices of rows");
}

temper_status check_tuner_measure(check_tuner *tuner, uint64_t rows, uint64_t n, uint64_t k,
                                  const char *format, check_tuned *out, error *err)
{
    char words[3][16];
    check_shape shape = {.rows = rows, .n = n, .k = k};
    assert(rows > 0 && op_rows_class(rows) == rows);
    if (sscanf(format, "%15s %15s %15s", words[0], words[1], words[2]) != 3 ||
        !op_format_parse(words[0], words[1], words[2], &shape.format))
        return error_set(err, TEMPER_BAD_ARGUMENT, "there is no format \"%s\"", format);
    const temper_status status =
        check_shape_allow(tuner->device, tuner->exact, TEMPER_LOSSY_NONE, &shape, err);
    return status == TEMPER_OK ? measure_rows(tuner, &shape, out, err) : status;
}

/* ---- the tuner ------------------------------------------------------------------------------- */

/* The choices that are there already, or none. */
static op_choices *old_choices(gpu_device *device, const char *folder)
{
    strbuf body = {0};
    op_choices *choices = NULL;
    if (gpu_note_read(device, folder, "choices", &body, NULL) == TEMPER_OK && body.length > 0)
        op_choices_parse(strbuf_text(&body), body.length, &choices, NULL);
    strbuf_free(&body);
    return choices != NULL ? choices : op_choices_new();
}

temper_status check_tuner_open(gpu_device *device, const char *folder, bool exact,
                               check_tuner **out, error *err)
{
    check_tuner *tuner = mem_calloc(1, sizeof *tuner);
    if (tuner == NULL)
        return error_set(err, TEMPER_NO_MEMORY, "no memory for a tuner");
    tuner->device = gpu_device_retain(device);
    tuner->exact = exact;
    tuner->folder = mem_strdup(folder);
    tuner->choices = old_choices(device, folder);
    temper_status status = TEMPER_OK;
    if (tuner->folder == NULL || tuner->choices == NULL)
        status = error_set(err, TEMPER_NO_MEMORY, "no memory for a tuner");
    if (status == TEMPER_OK)
        status = check_timer_open(device, &tuner->timer, err);
    if (status != TEMPER_OK) {
        check_tuner_close(tuner);
        return status;
    }
    *out = tuner;
    return TEMPER_OK;
}

void check_tuner_close(check_tuner *tuner)
{
    if (tuner == NULL)
        return;
    check_timer_close(tuner->timer);
    op_choices_free(tuner->choices);
    gpu_device_release(tuner->device);
    mem_free(tuner->folder);
    mem_free(tuner);
}

void check_tuner_offer(check_tuner *tuner, const op_kernel_row *row)
{
    assert(tuner->offered_count < OP_TILES);
    tuner->offered[tuner->offered_count++] = row;
}

const op_choices *check_tuner_choices(const check_tuner *tuner)
{
    return tuner->choices;
}

uint32_t check_tuner_count(const check_tuner *tuner)
{
    return op_choices_count(tuner->choices);
}

temper_status check_tuner_write(const check_tuner *tuner, strbuf *path, error *err)
{
    strbuf body = {0};
    op_choices_print(tuner->choices, &body);
    gpu_note_path(tuner->device, tuner->folder, "choices", path);
    const temper_status status =
        body.failed || path->failed
            ? error_set(err, TEMPER_NO_MEMORY, "no memory for the choices")
            : gpu_note_write(tuner->device, tuner->folder, "choices", strbuf_text(&body), err);
    strbuf_free(&body);
    return status;
}
