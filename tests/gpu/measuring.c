/*
 * measuring.c - what is measured on a device and what is done with it: work and units, single
 * dispatches and passes, timing, the peak, notes, and rows in the order that was measured. No
 * figure is compared with another: only that it is there, and what follows from it.
 */
#include "gpu/device_common.h"

#include <math.h>
#include <sys/stat.h>
#include <unistd.h>

#include "check/check.h"
#include "check/choice.h"
#include "check/plain_matrix.h"
#include "gpu/notes.h"
#include "gpu/pool.h"
#include "kernels/kernels.gen.h"

static char folder[] = "/tmp/temper-measuring-XXXXXX";
static gpu_device *device;

static gpu_device *open_masked(const char *without, bool robust)
{
    const temper_device_desc desc = {.without = without, .robust = robust};
    gpu_device *opened = NULL;
    assert_ok(check_open(&desc, false, &opened, err));
    return opened;
}

static int set_up(void **state)
{
    (void)state;
    error err = {0};
    if (mkdtemp(folder) == NULL || check_open(&(temper_device_desc){0}, false, &device, &err) != 0)
        return -1;
    print_message("on %s\n", gpu_device_adapter(device)->name);
    return 0;
}

static void forget_note(const gpu_device *of, const char *kind)
{
    strbuf path = {0};
    gpu_note_path(of, folder, kind, &path);
    unlink(strbuf_text(&path));
    strbuf_free(&path);
}

static int tear_down(void **state)
{
    (void)state;
    forget_note(device, "note");
    forget_note(device, "peak");
    forget_note(device, "choices");
    gpu_device_release(device);
    return rmdir(folder);
}

/* ---- work ------------------------------------------------------------------------------------ */

typedef struct product {
    op_weight *weight;
    gpu_buffer *x, *y;
    uint32_t rows;
} product;

enum { N = 192, K = 128, MOST_ROWS = 8 };

static product open_product(gpu_device *on)
{
    product p = {.rows = 1};
    assert_ok(
        op_weight_create(on, (weight_format){LAYOUT_Q4, SCALE_F16, 32}, N, K, "w", &p.weight, err));
    assert_ok(gpu_buffer_create(on, MOST_ROWS * K * 4, GPU_PURPOSE_SCRATCH, "x", &p.x, err));
    assert_ok(gpu_buffer_create(on, MOST_ROWS * N * 4, GPU_PURPOSE_SCRATCH, "y", &p.y, err));
    return p;
}

static void close_product(product *p)
{
    op_weight_destroy(p->weight);
    gpu_buffer_destroy(p->x);
    gpu_buffer_destroy(p->y);
}

static void record_product(gpu_recorder *rec, void *user)
{
    const product *p = user;
    op_matmul(rec, p->weight, gpu_whole(p->x), gpu_whole(p->y), p->rows, OP_WRITE);
}

static void run(gpu_device *on, check_record record, void *user)
{
    gpu_ticket ticket = {0};
    gpu_recorder *rec = gpu_record_begin(on);
    record(rec, user);
    assert_ok(gpu_submit(rec, &ticket, err));
    assert_ok(gpu_wait(on, ticket, NULL, 0, err));
}

static void work_is_counted(void **state)
{
    (void)state;
    product p = open_product(device);
    for (p.rows = 1; p.rows <= MOST_ROWS; p.rows += 7) {
        const gpu_counters before = gpu_device_counters(device);
        run(device, record_product, &p);
        const gpu_counters after = gpu_device_counters(device);
        uint64_t operations = 0;
        for (int unit = 0; unit < GPU_UNITS; unit++)
            operations += after.work_operations[unit] - before.work_operations[unit];
        assert_int_equal(operations, 2 * N * K * p.rows);
        assert_int_equal(after.work_bytes - before.work_bytes,
                         op_weight_bytes(p.weight->format, N, K) + p.rows * (N + K) * 4);
    }
    close_product(&p);
}

/* What is said of one dispatch is not said of the next one. */
static void record_twice(gpu_recorder *rec, void *user)
{
    const product *p = user;
    const struct kernel_peak_f32_views views = {.out = gpu_whole(p->y)};
    const struct kernel_peak_f32_params params = {.rounds = 1};
    gpu_record_work(rec, 7, 11);
    kernel_peak_f32_dispatch(rec, kernel_peak_f32_get(device), &views, &params, 1, 1, 1);
    kernel_peak_f32_dispatch(rec, kernel_peak_f32_get(device), &views, &params, 1, 1, 1);
}

static void work_belongs_to_the_next_dispatch(void **state)
{
    (void)state;
    product p = open_product(device);
    const gpu_counters before = gpu_device_counters(device);
    run(device, record_twice, &p);
    const gpu_counters after = gpu_device_counters(device);
    assert_int_equal(after.work_bytes - before.work_bytes, 7);
    assert_int_equal(after.work_operations[GPU_UNIT_F32] - before.work_operations[GPU_UNIT_F32],
                     11);
    assert_int_equal(after.dispatches - before.dispatches, 2);
    close_product(&p);
}

static void units_are_seen_in_the_source(void **state)
{
    (void)state;
    assert_int_equal(gpu_kernel_unit(&kernel_peak_f32), GPU_UNIT_F32);
    assert_int_equal(gpu_kernel_unit(&kernel_peak_dot4), GPU_UNIT_DOT4);
    assert_int_equal(gpu_kernel_unit(&kernel_peak_matrix), GPU_UNIT_MATRIX);
    assert_int_equal(gpu_kernel_unit(&kernel_add), GPU_UNIT_F32);
    const gpu_kernel comment = {.source = "// dot4I8Packed is not called here\n"};
    assert_int_equal(gpu_kernel_unit(&comment), GPU_UNIT_F32);
}

/* ---- single dispatches ----------------------------------------------------------------------- */

static void dispatches_have_their_times(void **state)
{
    (void)state;
    const gpu_profile_event *events = NULL;
    gpu_profile_row row;
    if (!(gpu_device_features(device) & GPU_FEATURE_TIMESTAMPS)) {
        assert_fails(gpu_profile(device, GPU_PROFILE_PASSES, err), TEMPER_UNSUPPORTED,
                     "timestamps");
        print_message("no timestamps here: single dispatches are not looked at\n");
        return;
    }
    product p = open_product(device);
    run(device, record_twice, &p);
    assert_ok(gpu_profile(device, GPU_PROFILE_DISPATCHES, err));
    run(device, record_twice, &p);
    run(device, record_twice, &p);
    assert_int_equal(gpu_profile_events(device, &events), 4);
    for (uint32_t i = 0; i < 4; i++) {
        assert_string_equal(events[i].kernel, "peak_f32");
        assert_true(events[i].end > events[i].begin);
        assert_int_equal(events[i].submit, events[0].submit + i / 2);
        assert_int_equal(events[i].bytes, i % 2 == 0 ? 7 : 0);
        assert_int_equal(events[i].operations, i % 2 == 0 ? 11 : 0);
        assert_true(i == 0 || events[i].begin >= events[i - 1].begin);
        assert_true(events[i].submitted >= events[0].submitted);
    }
    assert_int_equal(gpu_profile_take(device, &row, 1), 1);
    assert_int_equal(row.dispatches, 4);
    assert_int_equal(row.bytes, 14);
    assert_int_equal(row.operations, 22);
    assert_int_equal(row.unit, GPU_UNIT_F32);
    assert_int_equal(gpu_profile_events(device, &events), 0);

    /* A recording of dispatches alone is one pass. */
    assert_ok(gpu_profile(device, GPU_PROFILE_PASSES, err));
    run(device, record_twice, &p);
    assert_int_equal(gpu_profile_events(device, &events), 1);
    assert_true(events[0].end > events[0].begin);
    assert_ok(gpu_profile(device, GPU_PROFILE_OFF, err));
    gpu_profile_take(device, NULL, 0);
    close_product(&p);
}

/* ---- timing ---------------------------------------------------------------------------------- */

static void recordings_are_timed(void **state)
{
    (void)state;
    static const char *const without[] = {NULL, "timestamps"};
    for (size_t i = 0; i < COUNT(without); i++) {
        gpu_device *on = open_masked(without[i], false);
        check_timer *timer = NULL;
        check_time time;
        product p = open_product(on);
        assert_ok(check_timer_open(on, &timer, err));
        assert_ok(check_timer_measure(timer, record_product, &p, &time, err));
        assert_true(time.least > 0 && time.median >= time.least && time.median < 60);
        assert_true(time.times >= 1);
        check_timer_close(timer);
        close_product(&p);
        gpu_device_release(on);
    }
}

static void record_wrongly(gpu_recorder *rec, void *user)
{
    product *p = user;
    op_matmul(rec, p->weight, gpu_whole(p->x), gpu_whole(p->y), 100, OP_WRITE);
}

static void a_recording_that_fails_has_no_time(void **state)
{
    (void)state;
    check_timer *timer = NULL;
    check_time time;
    product p = open_product(device);
    assert_ok(check_timer_open(device, &timer, err));
    assert_fails(check_timer_measure(timer, record_wrongly, &p, &time, err), TEMPER_BAD_ARGUMENT,
                 "matmul");
    /* And the timer is as good as before. */
    assert_ok(check_timer_measure(timer, record_product, &p, &time, err));
    assert_true(time.median > 0);
    check_timer_close(timer);
    close_product(&p);
}

static uint32_t case_named(const char *pattern)
{
    for (uint32_t i = 0; i < check_case_count(); i++) {
        const check_case c = check_case_at(i);
        if (check_matches(&c, pattern))
            return i;
    }
    fail_msg("no case %s", pattern);
    return 0;
}

static void cases_are_timed_with_their_share(void **state)
{
    (void)state;
    const check_peak peak = {1e9, {1e9, 1e9, 1e9}, true};
    check_timing timing = {.peak = &peak};
    check_result r;
    const uint32_t index = case_named("add/576");
    assert_ok(check_timer_open(device, &timing.timer, err));
    assert_ok(check_run(device, index, &timing, &r, err));
    assert_true(r.ok && r.timed);
    assert_true(r.us > 0 && r.gbps > 0 && r.tflops >= 0);
    assert_int_equal(r.unit, GPU_UNIT_F32);
    /* 12 bytes an element at 1 GB/s; an addition each at 1 GFLOP/s takes less. */
    assert_true(fabs(r.share - r.gbps) < 1e-6 * r.gbps);
    timing.peak = NULL;
    assert_ok(check_run(device, index, &timing, &r, err));
    assert_true(r.timed && !(r.share > 0));
    assert_ok(check_run(device, index, NULL, &r, err));
    assert_true(r.ok && !r.timed && !(r.us > 0));
    check_timer_close(timing.timer);
}

/* ---- notes ----------------------------------------------------------------------------------- */

static const char body[] = "one 1\ntwo 2\n";

static void write_file(const char *path, const char *text, size_t length)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(text, 1, length, file), length);
    fclose(file);
}

static void notes_are_of_one_device(void **state)
{
    (void)state;
    strbuf read = {0}, path = {0}, other = {0};
    assert_ok(gpu_note_read(device, folder, "note", &read, err));
    assert_int_equal(read.length, 0);
    assert_ok(gpu_note_write(device, folder, "note", body, err));
    assert_ok(gpu_note_read(device, folder, "note", &read, err));
    assert_string_equal(strbuf_text(&read), body);
    strbuf_clear(&read);
    assert_ok(gpu_note_read(device, folder, "other", &read, err));
    assert_int_equal(read.length, 0);

    /* The same adapter, opened otherwise, is another device: with bounds checks, under a mask. */
    gpu_device *robust = open_masked(NULL, true), *masked = open_masked("f16", false);
    gpu_note_path(device, folder, "note", &path);
    gpu_note_path(robust, folder, "note", &other);
    assert_string_not_equal(strbuf_text(&path), strbuf_text(&other));
    if (gpu_device_features(device) & GPU_FEATURE_F16) {
        assert_ok(gpu_note_read(masked, folder, "note", &read, err));
        assert_int_equal(read.length, 0);
    }
    /* A note under its name that is not its own. */
    size_t length = 0;
    FILE *file = fopen(strbuf_text(&path), "rb");
    char bytes[4096];
    assert_non_null(file);
    length = fread(bytes, 1, sizeof bytes, file);
    fclose(file);
    write_file(strbuf_text(&other), bytes, length);
    assert_fails(gpu_note_read(robust, folder, "note", &read, err), TEMPER_BAD_FILE,
                 "not written for this device");
    unlink(strbuf_text(&other));
    gpu_device_release(robust);
    gpu_device_release(masked);
    strbuf_free(&read);
    strbuf_free(&path);
    strbuf_free(&other);
}

static void damaged_notes_are_refused(void **state)
{
    (void)state;
    strbuf read = {0}, path = {0}, head = {0};
    gpu_note_path(device, folder, "note", &path);
    assert_ok(gpu_note_write(device, folder, "note", body, err));
    char bytes[4096];
    FILE *file = fopen(strbuf_text(&path), "rb");
    assert_non_null(file);
    const size_t length = fread(bytes, 1, sizeof bytes, file);
    fclose(file);
    for (size_t i = 0; i < length; i += i + 16 < length ? 7 : 1) {
        write_file(strbuf_text(&path), bytes, i);
        assert_fails(gpu_note_read(device, folder, "note", &read, err), TEMPER_BAD_FILE,
                     strbuf_text(&path));
    }
    write_file(strbuf_text(&path), bytes, length);
    assert_ok(gpu_note_read(device, folder, "note", &read, err));
    assert_string_equal(strbuf_text(&read), body);
    strbuf_clear(&read);

    bytes[length - 6] = '\0';
    write_file(strbuf_text(&path), bytes, length);
    assert_fails(gpu_note_read(device, folder, "note", &read, err), TEMPER_BAD_FILE, "damaged");
    assert_int_equal(truncate(strbuf_text(&path), 2 << 20), 0);
    assert_fails(gpu_note_read(device, folder, "note", &read, err), TEMPER_BAD_FILE, "bytes");
    unlink(strbuf_text(&path));
    assert_int_equal(mkdir(strbuf_text(&path), 0700), 0);
    assert_fails(gpu_note_read(device, folder, "note", &read, err), TEMPER_IO, "directory");
    assert_fails(gpu_note_write(device, folder, "note", body, err), TEMPER_IO, "directory");
    assert_int_equal(rmdir(strbuf_text(&path)), 0);

    /* A folder that is a file. */
    write_file(strbuf_text(&path), "x", 1);
    assert_fails(gpu_note_write(device, strbuf_text(&path), "note", body, err), TEMPER_IO,
                 strbuf_text(&path));
    unlink(strbuf_text(&path));
    strbuf_free(&read);
    strbuf_free(&path);
    strbuf_free(&head);
}

/* ---- the peak -------------------------------------------------------------------------------- */

static void the_peak_is_measured_once(void **state)
{
    (void)state;
    check_peak first, second, third;
    strbuf path = {0};
    assert_ok(check_peak_get(device, folder, false, &first, err));
    assert_true(first.read_bytes > 1e6 && first.operations[GPU_UNIT_F32] > 1e6 &&
                first.operations[GPU_UNIT_DOT4] > 1e6);
    const bool matrices = (gpu_device_features(device) & GPU_FEATURE_SUBGROUP_MATRIX) != 0;
    assert_true(matrices || !(first.operations[GPU_UNIT_MATRIX] > 0));
    /* From its note: to the digits that are written there. */
    assert_ok(check_peak_get(device, folder, false, &second, err));
    assert_true(fabs(second.read_bytes - first.read_bytes) < 1e-5 * first.read_bytes);
    /* A planted one is believed, a damaged one is measured anew and replaced. */
    assert_ok(gpu_note_write(device, folder, "peak",
                             "read 123456\nf32 234567\ndot4 345678\nmatrix 0\nsteady 1\n", err));
    assert_ok(check_peak_get(device, folder, false, &third, err));
    assert_true(fabs(third.read_bytes - 123456) < 0.5);
    gpu_note_path(device, folder, "peak", &path);
    assert_int_equal(truncate(strbuf_text(&path), 100), 0);
    assert_ok(check_peak_get(device, folder, false, &third, err));
    assert_true(third.read_bytes > 1e6);
    strbuf body_of = {0};
    assert_ok(gpu_note_read(device, folder, "peak", &body_of, err));
    assert_true(check_peak_parse(strbuf_text(&body_of), &third));
    strbuf_free(&body_of);
    strbuf_free(&path);
}

static void a_small_device_has_no_peak(void **state)
{
    (void)state;
    const char *limits[] = {"maxComputeInvocationsPerWorkgroup=128"};
    const temper_device_desc desc = {.limits = limits, .limit_count = 1};
    gpu_device *small = NULL;
    check_peak peak;
    assert_ok(check_open(&desc, false, &small, err));
    assert_fails(check_peak_measure(small, &peak, err), TEMPER_UNSUPPORTED, "256 lanes");
    gpu_device_release(small);
}

/* ---- rows in the order that was measured ----------------------------------------------------- */

static const op_shape one_row_of_q4 = {
    .rows = 1, .n = N, .k = K, .format = {LAYOUT_Q4, SCALE_F16, 32}};

static op_choice choice_for(const op_shape *shape)
{
    return (op_choice){.table = &op_table_matmul,
                       .n = shape->n,
                       .k = shape->k,
                       .format = shape->format,
                       .rows = op_rows_class(shape->rows)};
}

static void use(gpu_device *on, const op_choice *choice)
{
    op_choices *choices = op_choices_new();
    assert_true(choices != NULL && op_choices_add(choices, choice));
    op_choices_use(on, choices);
}

static void a_choice_reorders_what_may(void **state)
{
    (void)state;
    const op_table *table = &op_table_matmul;
    const op_kernel_row *last = &table->rows[table->count - 1];
    const op_kernel_row *usual = op_choose(device, table, &one_row_of_q4);
    assert_ptr_not_equal(usual, last);
    op_choice choice = choice_for(&one_row_of_q4);
    choice.order[0].row = last;
    choice.count = 1;
    use(device, &choice);
    assert_ptr_equal(op_choose(device, table, &one_row_of_q4), last);
    /* Another shape, another number of rows: as ever. */
    op_shape other = one_row_of_q4;
    other.n++;
    assert_ptr_equal(op_choose(device, table, &other), usual);

    /* Rows that may not, first in a choice, are passed over: for a feature, the shape, software. */
    uint32_t forbidden = 0;
    choice.count = 0;
    for (uint32_t i = 0; i < table->count && choice.count + 1 < OP_CHOICE_ROWS; i++)
        if (op_row_verdict(device, &table->rows[i], &one_row_of_q4) != OP_ROW_MAY) {
            choice.order[choice.count++].row = &table->rows[i];
            forbidden++;
        }
    assert_true(forbidden >= 1);
    choice.order[choice.count++].row = last;
    use(device, &choice);
    assert_ptr_equal(op_choose(device, table, &one_row_of_q4), last);
    choice.count--;
    use(device, &choice);
    assert_ptr_equal(op_choose(device, table, &one_row_of_q4), usual);
    op_choices_use(device, NULL);
    assert_ptr_equal(op_choose(device, table, &one_row_of_q4), usual);
}

/* ---- tiles ----------------------------------------------------------------------------------- */

/* Sixteen rows of a product with a tall weight, as a device with matrix units is asked for it. */
static op_shape tiled_shape(void)
{
    op_shape shape = {.rows = 16,
                      .n = 64,
                      .k = 2048,
                      .format = {LAYOUT_Q4, SCALE_F16, 32},
                      .workgroup_memory = 1 << 16,
                      .scratch = true,
                      .half = true};
    shape.tile = op_tile_best(&shape);
    return shape;
}

/* Rows as those of matmul's table, with a kernel that needs nothing: they are chosen, not run. */
static op_kernel_row tile_row(const op_tile *tile, bool (*fits)(const op_shape *shape))
{
    op_kernel_row row = *check_plain_few();
    row.kernel = op_table_matmul.rows[op_table_matmul.count - 1].kernel;
    row.workgroup_memory = 0;
    row.tile = tile;
    row.fits = fits;
    return row;
}

/* The cost model takes one tile; a choice another one, under the same verdict. */
static void a_choice_takes_another_tile(void **state)
{
    (void)state;
    const op_kernel_row last = op_table_matmul.rows[op_table_matmul.count - 1];
    const op_kernel_row rows[] = {tile_row(&op_tiles[OP_TILE_32], op_tile_fits_32),
                                  tile_row(&op_tiles[OP_TILE_16], op_tile_fits_16),
                                  tile_row(&op_tile_few, op_tile_fits_few),
                                  tile_row(&op_tiles[OP_TILE_16_DEEP], op_tile_fits_16_deep), last};
    enum { DEEP = 3, LAST = 4 };
    const op_table table = {"matmul", rows, COUNT(rows)};
    op_shape shape = tiled_shape();
    const op_kernel_row *usual = op_choose(device, &table, &shape);
    assert_ptr_equal(usual->tile, shape.tile);
    for (uint32_t i = 0; i + 1 < COUNT(rows); i++) {
        const op_verdict wanted = &rows[i] == usual ? OP_ROW_MAY : OP_ROW_SLOWER;
        op_choice choice = choice_for(&shape);
        choice.table = &table;
        choice.order[0].row = &rows[i];
        choice.count = 1;
        use(device, &choice);
        assert_int_equal(op_row_verdict(device, &rows[i], &shape), wanted);
        assert_ptr_equal(op_choose(device, &table, &shape), &rows[i]);
        /* What no tile takes: f16 operands that the self-check closed, no room, too little memory
         * of a workgroup, an odd K, and a K that this tile does not divide. */
        const op_shape others[] = {
            {.rows = 16, .n = 64, .k = 2048, .workgroup_memory = 1 << 16, .scratch = true},
            {.rows = 16, .n = 64, .k = 2048, .workgroup_memory = 1 << 16, .half = true},
            {.rows = 16, .n = 64, .k = 2048, .scratch = true, .half = true},
            {.rows = 16,
             .n = 64,
             .k = 2040,
             .workgroup_memory = 1 << 16,
             .scratch = true,
             .half = true},
        };
        for (uint32_t o = 0; o < COUNT(others); o++) {
            op_shape other = others[o];
            other.format = shape.format;
            other.tile = op_tile_best(&other);
            choice.k = other.k;
            use(device, &choice);
            assert_int_equal(op_row_verdict(device, &rows[i], &other), OP_ROW_SHAPE);
            assert_ptr_equal(op_choose(device, &table, &other), &rows[LAST]);
        }
    }
    shape.k = 2048 + 32;
    shape.tile = op_tile_best(&shape);
    assert_int_equal(op_row_verdict(device, &rows[DEEP], &shape), OP_ROW_SHAPE);
    op_choices_use(device, NULL);
}

/* A split that was measured is taken where the tile allows it, and there is scratch for it. */
static void a_choice_splits_k(void **state)
{
    (void)state;
    const op_kernel_row *row = check_plain_row(OP_TILE_16, false, false);
    const op_kernel_row *deep = check_plain_row(OP_TILE_16_DEEP, false, false);
    const op_shape shape = tiled_shape();
    const weight_format f = shape.format;
    const uint32_t usual = op_row_slices(device, row, f, 16, 64, 2048);
    const uint64_t sums = op_product_scratch_bytes(device, row, f, 64, 2048, 16).sums;
    static const uint32_t slices[][2] = {{1, 1}, {2, 2}, {4, 4}, {8, 0}, {0, 0}, {1024, 0}};
    assert_int_equal(usual, op_tile_slices(row->tile, 16, 64, 2048));
    for (uint32_t i = 0; i < COUNT(slices); i++) {
        const uint32_t wanted = slices[i][1] > 0 ? slices[i][1] : usual;
        op_choice choice = choice_for(&shape);
        choice.order[0].row = row;
        choice.order[0].slices = slices[i][0];
        choice.order[1].row = deep;
        choice.order[1].slices = 2; /* which this tile never does */
        choice.count = 2;
        use(device, &choice);
        assert_int_equal(op_row_slices(device, row, f, 16, 64, 2048), wanted);
        assert_int_equal(op_row_slices(device, row, f, 9, 64, 2048), wanted);
        assert_int_equal(op_row_slices(device, deep, f, 16, 64, 2048), 1);
        assert_int_equal(op_row_slices(device, row, f, 16, 64, 4096),
                         op_tile_slices(row->tile, 16, 64, 4096));
        const uint64_t own = op_product_scratch_bytes(device, row, f, 64, 2048, 16).sums;
        assert_true(own >= (uint64_t)16 * wanted * 128 * 4 && (wanted != usual || own == sums));
        /* A class of few rows counts too, where more rows need less. */
        choice.rows = 8;
        use(device, &choice);
        const op_product_bytes few = op_product_scratch_bytes(device, row, f, 64, 2048, 16);
        assert_true(few.sums >= (uint64_t)8 * wanted * 128 * 4);
    }
    op_choices_use(device, NULL);
}

/* Every tile that is there, each split of K: the same product, and the fastest stays. */
static void a_tuner_measures_tiles(void **state)
{
    (void)state;
    check_tuner *tuner = NULL;
    check_tuned tuned;
    uint32_t splits = 0, deep = 0;
    const op_kernel_row *row = check_plain_row(OP_TILE_16, false, false);
    const bool runs = op_row_runs(device, row); /* f16 in shaders */
    forget_note(device, "choices");
    assert_ok(check_tuner_open(device, folder, false, &tuner, err));
    check_tuner_offer(tuner, row);
    check_tuner_offer(tuner, check_plain_row(OP_TILE_16_DEEP, false, false));
    assert_ok(check_tuner_measure(tuner, 16, 64, 2048, "q4 f16 32", &tuned, err));
    for (uint32_t i = 0; i < tuned.count; i++) {
        const check_tuned_row *r = &tuned.rows[i];
        if (!r->right)
            fail_msg("%s in %u slices is off by %g", r->row, r->slices, r->error);
        assert_true(r->us > 0 && (r->slices > 0) == (r->of->tile != NULL));
        splits += r->of == row ? 1u << r->slices : 0;
        deep += r->of != row && r->slices == 1;
    }
    assert_int_equal(splits, runs ? 1 << 1 | 1 << 2 | 1 << 4 : 0); /* each once */
    assert_int_equal(deep, runs);

    assert_int_equal(check_tuner_count(tuner), tuned.count > 0);
    const op_choice none = {.count = 0};
    const op_choice *kept = tuned.count > 0 ? op_choices_at(check_tuner_choices(tuner), 0) : &none;
    assert_true(kept->order[0].row == tuned.rows[0].of &&
                kept->order[0].slices == tuned.rows[0].slices);
    for (uint32_t i = 0; i < kept->count; i++) {
        double least = INFINITY;
        for (uint32_t r = 0; r < tuned.count; r++)
            least = tuned.rows[r].of == kept->order[i].row ? fmin(least, tuned.rows[r].us) : least;
        assert_true(kept->order[i].us == least);
        for (uint32_t other = 0; other < i; other++)
            assert_ptr_not_equal(kept->order[other].row, kept->order[i].row);
    }
    check_tuner_close(tuner);
}

static void a_tuner_keeps_what_it_measured(void **state)
{
    (void)state;
    check_tuner *tuner = NULL;
    check_tuned tuned;
    strbuf path = {0};
    forget_note(device, "choices");
    assert_ok(check_tuner_open(device, folder, false, &tuner, err));
    assert_int_equal(check_tuner_count(tuner), 0);
    assert_ok(check_tuner_measure(tuner, 1, N, K, "q4 f16 32", &tuned, err));
    assert_true(tuned.count >= 2);
    for (uint32_t i = 0; i < tuned.count; i++) {
        assert_true(tuned.rows[i].right && tuned.rows[i].us > 0);
        assert_true(i == 0 || tuned.rows[i].us >= tuned.rows[i - 1].us);
    }
    assert_int_equal(check_tuner_count(tuner), 1);
    for (uint32_t f = 0; f < 4; f++) { /* formats whose random bits are made in other ways */
        static const char *const formats[] = {"f16 none 0", "f32 none 0", "q8 f16 32",
                                              "q4 f16_min 32"};
        assert_ok(check_tuner_measure(tuner, 1, 64, 64, formats[f], &tuned, err));
        for (uint32_t i = 0; i < tuned.count; i++)
            assert_true(tuned.rows[i].right);
    }
    assert_fails(check_tuner_measure(tuner, 1, N, K, "q4 f16", &tuned, err), TEMPER_BAD_ARGUMENT,
                 "q4 f16");
    const uint32_t count = check_tuner_count(tuner);
    assert_ok(check_tuner_write(tuner, &path, err));
    check_tuner_close(tuner);
    assert_null(op_choices_of(device));

    /* A device that is opened with the folder has them; another tuner goes on from there. */
    const temper_device_desc desc = {.tuning = folder};
    gpu_device *tuned_device = NULL;
    assert_ok(check_open(&desc, false, &tuned_device, err));
    assert_int_equal(op_choices_count(op_choices_of(tuned_device)), count);
    gpu_device_release(tuned_device);
    assert_ok(check_tuner_open(device, folder, false, &tuner, err));
    assert_int_equal(check_tuner_count(tuner), count);
    check_tuner_close(tuner);

    /* What is damaged is as good as nothing. */
    assert_int_equal(truncate(strbuf_text(&path), 50), 0);
    assert_ok(check_open(&desc, false, &tuned_device, err));
    assert_null(op_choices_of(tuned_device));
    gpu_device_release(tuned_device);
    strbuf_free(&path);
}

/* ---- the buffers of a pool ------------------------------------------------------------------- */

static void a_pool_is_filled_or_says_why_not(void **state)
{
    (void)state;
    const uint64_t before = gpu_device_counters(device).live_total;
    gpu_pool pool = {0};
    const uint32_t a = gpu_pool_take(&pool, 4096, 1), b = gpu_pool_take(&pool, 4096, 2),
                   c = gpu_pool_take(&pool, 4096, 1);
    gpu_fail_allocation(device, 2);
    assert_fails(gpu_pool_fill(&pool, device, err), TEMPER_DEVICE_MEMORY, "");
    gpu_fail_allocation(device, 0);
    assert_ok(gpu_pool_fill(&pool, device, err));
    assert_ptr_equal(gpu_pool_buffer(&pool, a), gpu_pool_buffer(&pool, b));
    assert_ptr_not_equal(gpu_pool_buffer(&pool, a), gpu_pool_buffer(&pool, c));
    assert_int_equal(gpu_buffer_size(gpu_pool_buffer(&pool, c)), 4096);
    assert_int_equal(gpu_device_counters(device).live_total - before, gpu_pool_bytes(&pool));
    gpu_pool_give(&pool, c, 1);
    assert_int_equal(gpu_device_counters(device).live_total - before, 4096);
    gpu_pool_close(&pool);
    assert_int_equal(gpu_device_counters(device).live_total, before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(work_is_counted),
        cmocka_unit_test(work_belongs_to_the_next_dispatch),
        cmocka_unit_test(units_are_seen_in_the_source),
        cmocka_unit_test(dispatches_have_their_times),
        cmocka_unit_test(recordings_are_timed),
        cmocka_unit_test(a_recording_that_fails_has_no_time),
        cmocka_unit_test(cases_are_timed_with_their_share),
        cmocka_unit_test(notes_are_of_one_device),
        cmocka_unit_test(damaged_notes_are_refused),
        cmocka_unit_test(the_peak_is_measured_once),
        cmocka_unit_test(a_small_device_has_no_peak),
        cmocka_unit_test(a_choice_reorders_what_may),
        cmocka_unit_test(a_choice_takes_another_tile),
        cmocka_unit_test(a_choice_splits_k),
        cmocka_unit_test(a_tuner_measures_tiles),
        cmocka_unit_test(a_tuner_keeps_what_it_measured),
        cmocka_unit_test(a_pool_is_filled_or_says_why_not),
    };
    return cmocka_run_group_tests_name("gpu_measuring", tests, set_up, tear_down);
}
