/*
 * device_record.c - pipelines, recordings, submits, results, and what they cost.
 */
#include "device_common.h"

#include "base/mem.h"

enum { N = 1000 };

typedef struct fixture {
    gpu_device *device;
    gpu_buffer *x, *y;
} fixture;

/* The tests run three times: as the device is, without immediates, and with guards and checks. */
static gpu_device_desc variant;

static int set_up(void **state)
{
    static fixture f;
    float values[N];

    f = (fixture){.device = open_device(&variant)};
    f.x = new_buffer(f.device, sizeof values, "x");
    f.y = new_buffer(f.device, sizeof values, "y");
    for (int i = 0; i < N; i++)
        values[i] = (float)(i % 17 - 8);
    assert_ok(gpu_write(f.device, f.x, 0, values, sizeof values, err));
    *state = &f;
    return 0;
}

static int tear_down(void **state)
{
    fixture *f = *state;

    if (variant.guard)
        assert_ok(gpu_check_guards(f->device, err));
    assert_ok(gpu_device_status(f->device, err));
    gpu_buffer_destroy(f->x);
    gpu_buffer_destroy(f->y);
    gpu_trim(f->device);
    assert_int_equal(gpu_device_counters(f->device).live_total, 0);
    gpu_device_release(f->device);
    return 0;
}

static void expect_u32(fixture *f, gpu_buffer *buffer, uint32_t index, uint32_t wanted)
{
    uint32_t value = ~wanted;
    read_view(f->device, (gpu_view){buffer, (uint64_t)index * 4, 4}, &value);
    assert_int_equal(value, wanted);
}

/* ---- pipelines ------------------------------------------------------------------------------ */

static void test_options_reach_the_kernel(void **state)
{
    fixture *f = *state;
    const affine_values options[] = {{64, 0}, {32, 5}, {64, 4000000000u}};
    float values[N];

    for (uint32_t k = 0; k < COUNT(options); k++) {
        gpu_pipeline *pipeline = gpu_pipeline_get(f->device, &affine, &options[k]);
        assert_ptr_equal(pipeline, gpu_pipeline_get(f->device, &affine, &options[k]));
        gpu_recorder *rec = gpu_record_begin(f->device);
        assert_ptr_equal(gpu_recorder_device(rec), f->device);
        const affine_params params = {.n = N, .a = 2, .b = -1};
        gpu_record_dispatch(rec, pipeline, (gpu_view[]){gpu_whole(f->x), gpu_whole(f->y)}, &params,
                            (N + options[k].group - 1) / options[k].group, 1, 1);
        assert_ok(gpu_submit(rec, NULL, err));
        read_view(f->device, gpu_whole(f->y), values);
        for (int i = 0; i < N; i++)
            assert_float_equal(values[i], (float)(2 * (i % 17 - 8) - 1) + (float)options[k].bias,
                               0);
    }
    assert_ptr_equal(gpu_pipeline_get(f->device, &affine, NULL),
                     gpu_pipeline_get(f->device, &affine, &options[0]));
    assert_int_equal(gpu_device_counters(f->device).pipelines_created, 3);
}

static void test_the_last_dispatch_is_taken_back(void **state)
{
    fixture *f = *state;
    gpu_pipeline *pipeline = gpu_pipeline_get(f->device, &affine, NULL);
    const gpu_view views[] = {gpu_whole(f->x), gpu_whole(f->y)};
    const affine_params params[] = {{.n = N, .a = 2}, {.n = N, .a = 3}};
    const gpu_counters before = gpu_device_counters(f->device);
    float values[N];
    gpu_recorded last;

    gpu_recorder *rec = gpu_record_begin(f->device);
    assert_false(gpu_record_last(rec, &last));
    for (int i = 0; i < 2; i++) {
        gpu_record_dispatch(rec, pipeline, views, &params[i], (N + 63) / 64, 1, 1);
        assert_true(gpu_record_last(rec, &last));
        assert_ptr_equal(last.kernel, &affine);
        assert_memory_equal(last.views, views, sizeof views);
        assert_memory_equal(last.params, &params[i], sizeof params[i]);
    }
    gpu_record_drop(rec);
    assert_true(gpu_record_last(rec, &last));
    assert_memory_equal(last.params, &params[0], sizeof params[0]);
    gpu_record_drop(rec);
    assert_false(gpu_record_last(rec, &last));
    gpu_record_dispatch(rec, pipeline, views, &params[1], (N + 63) / 64, 1, 1);
    gpu_record_copy(rec, (gpu_view){f->y, 0, 4}, (gpu_view){f->x, 0, 4});
    assert_false(gpu_record_last(rec, &last));
    assert_ok(gpu_submit(rec, NULL, err));
    read_view(f->device, gpu_whole(f->y), values);
    for (int i = 0; i < N; i++)
        assert_float_equal(values[i], (float)(3 * (i % 17 - 8)), 0);
    assert_int_equal(gpu_device_counters(f->device).dispatches, before.dispatches + 1);

    rec = gpu_record_prepare(f->device);
    gpu_record_dispatch(rec, pipeline, views, &params[0], 1, 1, 1);
    assert_false(gpu_record_last(rec, &last));
    gpu_record_cancel(rec);
}

static void test_many_pipelines_at_once(void **state)
{
    fixture *f = *state;

    for (uint32_t i = 0; i < 40; i++)
        gpu_pipeline_get(f->device, &affine, &(affine_values){1 + i % 2 * 63, i});
    assert_ok(gpu_pipelines_wait(f->device, err));
    assert_int_equal(gpu_device_counters(f->device).pipelines_created, 40);
    assert_ok(gpu_pipelines_wait(f->device, err));
}

static const gpu_kernel_binding x_bindings[] = {{"x", GPU_READ_WRITE, 4}};

#define X_DECLARED "@group(0) @binding(0) var<storage, read_write> x: array<u32>;\n"

static const gpu_kernel broken_kernels[] = {
    {.name = "wrong_type",
     .binding_count = 1,
     .bindings = x_bindings,
     .source = X_DECLARED "\n\n@compute @workgroup_size(1) fn main() { x[0] = 1.5f; }\n"},
    {.name = "no_entry", .binding_count = 1, .bindings = x_bindings, .source = X_DECLARED},
    {.name = "wrong_access",
     .binding_count = 1,
     .bindings = x_bindings,
     .source = "@group(0) @binding(0) var<storage, read> x: array<u32>;\n"
               "@group(0) @binding(1) var<storage, read_write> y: array<u32>;\n"
               "@compute @workgroup_size(1) fn main() { y[0] = x[0]; }\n"},
    {.name = "too_large",
     .binding_count = 1,
     .bindings = x_bindings,
     .source = X_DECLARED "@compute @workgroup_size(4096) fn main() { x[0] = 1u; }\n"},
};

/* The compiler's message comes out with the kernel's name, and the device goes on. */
static void test_broken_kernels(void **state)
{
    fixture *f = *state;
    static const struct {
        temper_status status;
        const char *text;
    } wanted[] = {
        {TEMPER_DEVICE_ERROR, ":4:"}, /* the line, also behind a directive put on top */
        {TEMPER_DEVICE_ERROR, "entry point"},
        {TEMPER_INTERNAL, "binding 0 is x (read)"},
        {TEMPER_DEVICE_ERROR, "4096"},
    };
    for (uint32_t i = 0; i < COUNT(broken_kernels); i++) {
        gpu_pipeline *pipeline = gpu_pipeline_get(f->device, &broken_kernels[i], NULL);
        gpu_recorder *rec = gpu_record_begin(f->device);
        gpu_record_dispatch(rec, pipeline, (gpu_view[]){gpu_whole(f->x)}, NULL, 1, 1, 1);
        assert_fails(gpu_submit(rec, NULL, err), wanted[i].status, broken_kernels[i].name);
        assert_fails(gpu_pipelines_wait(f->device, err), wanted[i].status, wanted[i].text);
        assert_ok(gpu_pipelines_wait(f->device, err));
    }
    assert_ok(gpu_device_status(f->device, err));
}

static void test_prepare_creates_pipelines_only(void **state)
{
    fixture *f = *state;
    gpu_ticket ticket = {77};
    gpu_recorder *rec = gpu_record_prepare(f->device);

    gpu_record_dispatch(rec, gpu_pipeline_get(f->device, &affine, NULL), NULL, NULL, 70000, 1, 1);
    gpu_record_copy(rec, (gpu_view){0}, (gpu_view){0});
    gpu_record_clear(rec, (gpu_view){0});
    gpu_record_readback(rec, (gpu_view){0});
    assert_ok(gpu_submit(rec, &ticket, err));
    assert_int_equal(ticket.serial, 0);
    assert_ok(gpu_wait(f->device, ticket, NULL, 0, err));
    assert_ok(gpu_pipelines_wait(f->device, err));
    const gpu_counters counters = gpu_device_counters(f->device);
    assert_int_equal(counters.pipelines_created, 1);
    assert_int_equal(counters.submits, 0);
    assert_int_equal(counters.bind_groups_created, 0);

    rec = gpu_record_prepare(f->device);
    gpu_record_fail(rec, TEMPER_UNSUPPORTED, "op %s: %d", "probe", 6);
    assert_fails(gpu_submit(rec, &ticket, err), TEMPER_UNSUPPORTED, "op probe: 6");
}

/* ---- what a recording refuses --------------------------------------------------------------- */

static const gpu_kernel_binding wide_bindings[] = {
    {"x", GPU_READ, 16}, {"a", GPU_READ, 4}, {"y", GPU_READ_WRITE, 4}, {"z", GPU_READ_WRITE, 4}};

static const gpu_kernel wide = {
    .name = "wide",
    .source = "@group(0) @binding(0) var<storage, read> x: array<vec4<f32>>;\n"
              "@group(0) @binding(1) var<storage, read> a: array<f32>;\n"
              "@group(0) @binding(2) var<storage, read_write> y: array<f32>;\n"
              "@group(0) @binding(3) var<storage, read_write> z: array<f32>;\n"
              "@compute @workgroup_size(1) fn main() { y[0] = x[0].x + a[0]; z[0] = 2.0; }\n",
    .bindings = wide_bindings,
    .binding_count = COUNT(wide_bindings)};

/* Buffers by letter: x, a and y are three of 1024 bytes. */
static void test_views(void **state)
{
    fixture *f = *state;
    gpu_buffer *a = new_buffer(f->device, 1024, "alpha");
    gpu_buffer *b = new_buffer(f->device, 1024, "beta"), *c = new_buffer(f->device, 1024, "gamma");
    const uint64_t align = gpu_device_limits(f->device)->storage_alignment;
    const struct {
        gpu_view views[4];
        uint32_t x, y, z;
        const char *wrong[4]; /* parts of the text; none: accepted */
    } rows[] = {
        {{{a, 0, 16}, {a, 0, 4}, {b, 0, 4}, {c, 0, 4}}, 1, 1, 1, {NULL}},
        {{{a, 0, 1024}, {a, align, 4}, {b, 0, 1024}, {c, 0, 1024}}, 1, 1, 1, {NULL}},
        {{{a, 0, 16}, {a, 0, 4}, {b, 0, 256}, {b, 256, 256}}, 1, 1, 1, {NULL}},
        {{{a, 0, 16}, {a, 0, 4}, {b, 0, 260}, {b, 256, 256}},
         1,
         1,
         1,
         {"wide", "beta", "y (read_write) and to z (read_write)", "overlapping"}},
        {{{a, 0, 16}, {a, 0, 4}, {b, 0, 4}, {b, 0, 4}}, 1, 1, 1, {"wide", "beta", "overlapping"}},
        {{{a, 0, 16}, {b, 0, 4}, {b, 512, 4}, {c, 0, 4}},
         1,
         1,
         1,
         {"wide", "beta", "a (read) and to y (read_write)"}},
        {{{a, 0, 16}, {b, 0, 4}, {c, 0, 4}, {a, 0, 16}},
         1,
         1,
         1,
         {"wide", "alpha", "x (read) and to z (read_write)"}},
        {{{a, 0, 1028}, {a, 0, 4}, {b, 0, 4}, {c, 0, 4}},
         1,
         1,
         1,
         {"wide", "alpha", "binding x", "outside"}},
        {{{a, 1024, 4}, {a, 0, 4}, {b, 0, 4}, {c, 0, 4}}, 1, 1, 1, {"outside"}},
        {{{a, UINT64_MAX - 255, 512}, {a, 0, 4}, {b, 0, 4}, {c, 0, 4}}, 1, 1, 1, {"outside"}},
        {{{a, 256, UINT64_MAX - 100}, {a, 0, 4}, {b, 0, 4}, {c, 0, 4}}, 1, 1, 1, {"outside"}},
        {{{a, 0, 20}, {a, 0, 4}, {b, 0, 4}, {c, 0, 4}}, 1, 1, 1, {"binding x", "multiple of the "}},
        {{{a, 0, 16}, {a, 0, 6}, {b, 0, 4}, {c, 0, 4}}, 1, 1, 1, {"binding a", "multiple"}},
        {{{a, 0, 16}, {a, 4, 4}, {b, 0, 4}, {c, 0, 4}},
         1,
         1,
         1,
         {"binding a", "minStorageBufferOffsetAlignment"}},
        {{{a, 0, 16}, {a, 0, 0}, {b, 0, 4}, {c, 0, 4}}, 1, 1, 1, {"binding a", "is empty"}},
        {{{a, 0, 16}, {NULL, 0, 4}, {b, 0, 4}, {c, 0, 4}}, 1, 1, 1, {"binding a", "no buffer"}},
        {{{a, 0, 16}, {a, 0, 4}, {b, 0, 4}, {c, 0, 4}},
         65536,
         1,
         1,
         {"wide", "65536 x 1 x 1", "is 65535"}},
        {{{a, 0, 16}, {a, 0, 4}, {b, 0, 4}, {c, 0, 4}}, 1, 65536, 1, {"1 x 65536 x 1"}},
        {{{a, 0, 16}, {a, 0, 4}, {b, 0, 4}, {c, 0, 4}}, 1, 1, 65536, {"1 x 1 x 65536"}},
        /* With no workgroups nothing is done, whatever the views are: an empty tensor. */
        {{{a, 0, 0}, {NULL, 0, 4}, {b, 0, 4}, {b, 0, 4}}, 0, 1, 1, {NULL}},
        {{{a, 0, 0}, {NULL, 0, 4}, {b, 0, 4}, {b, 0, 4}}, 1, 0, 1, {NULL}},
        {{{a, 0, 0}, {NULL, 0, 4}, {b, 0, 4}, {b, 0, 4}}, 70000, 1, 0, {NULL}},
    };
    gpu_pipeline *pipeline = gpu_pipeline_get(f->device, &wide, NULL);

    for (uint32_t i = 0; i < COUNT(rows); i++) {
        gpu_ticket ticket;
        gpu_recorder *rec = gpu_record_begin(f->device);
        gpu_record_dispatch(rec, pipeline, rows[i].views, NULL, rows[i].x, rows[i].y, rows[i].z);
        if (rows[i].wrong[0] == NULL) {
            assert_ok(gpu_submit(rec, &ticket, err));
            assert_ok(gpu_wait(f->device, ticket, NULL, 0, err));
            continue;
        }
        error text = {0};
        assert_int_equal(gpu_submit(rec, &ticket, &text), TEMPER_BAD_ARGUMENT);
        assert_int_equal(ticket.serial, 0);
        for (int k = 0; k < 4 && rows[i].wrong[k] != NULL; k++)
            if (strstr(text.text, rows[i].wrong[k]) == NULL)
                fail_msg("row %u: \"%s\" lacks \"%s\"", i, text.text, rows[i].wrong[k]);
    }
    gpu_buffer_destroy(a);
    gpu_buffer_destroy(b);
    gpu_buffer_destroy(c);
}

static void test_first_failure_of_a_recording_wins(void **state)
{
    fixture *f = *state;
    gpu_pipeline *pipeline = gpu_pipeline_get(f->device, &increment, NULL);
    const uint64_t submits = gpu_device_counters(f->device).submits;
    gpu_recorder *rec = gpu_record_begin(f->device);

    gpu_record_dispatch(rec, pipeline, (gpu_view[]){gpu_whole(f->y)}, NULL, 1, 1, 1);
    gpu_record_fail(rec, TEMPER_NOT_FINITE, "first %d", 1);
    gpu_record_fail(rec, TEMPER_UNSUPPORTED, "second");
    gpu_record_dispatch(rec, pipeline, (gpu_view[]){gpu_whole(f->y)}, NULL, 65536, 1, 1);
    assert_fails(gpu_submit(rec, NULL, err), TEMPER_NOT_FINITE, "first 1");
    assert_int_equal(gpu_device_counters(f->device).submits, submits);
    /* Neither the failed nor the cancelled recording did anything. */
    rec = gpu_record_begin(f->device);
    gpu_record_dispatch(rec, pipeline, (gpu_view[]){gpu_whole(f->y)}, NULL, 1, 1, 1);
    gpu_record_cancel(rec);
    expect_u32(f, f->y, 0, 0);
}

static void test_destroyed_while_recorded(void **state)
{
    fixture *f = *state;
    gpu_buffer *gone = new_buffer(f->device, 4, "gone");
    gpu_buffer *submitted = new_buffer(f->device, 4, "submitted");
    gpu_pipeline *pipeline = gpu_pipeline_get(f->device, &increment, NULL);

    gpu_recorder *rec = gpu_record_begin(f->device);
    gpu_record_dispatch(rec, pipeline, (gpu_view[]){gpu_whole(gone)}, NULL, 1, 1, 1);
    gpu_buffer_destroy(gone);
    assert_fails(gpu_submit(rec, NULL, err), TEMPER_BAD_ARGUMENT, "\"gone\"");

    /* Work that was submitted still runs. */
    gpu_ticket ticket;
    rec = gpu_record_begin(f->device);
    gpu_record_dispatch(rec, pipeline, (gpu_view[]){gpu_whole(submitted)}, NULL, 1, 1, 1);
    gpu_record_copy(rec, gpu_whole(submitted), (gpu_view){f->y, 8, 4});
    assert_ok(gpu_submit(rec, &ticket, err));
    gpu_buffer_destroy(submitted);
    assert_ok(gpu_wait(f->device, ticket, NULL, 0, err));
    expect_u32(f, f->y, 2, 1);
    gpu_buffer_destroy(NULL);
}

/* ---- order, copies, readbacks --------------------------------------------------------------- */

static void test_order_in_a_recording(void **state)
{
    fixture *f = *state;
    gpu_pipeline *pipeline = gpu_pipeline_get(f->device, &increment, NULL);
    gpu_buffer *z = new_buffer(f->device, 16, "z");
    const gpu_view y0 = {f->y, 0, 4}, one[] = {{f->y, 0, 4}};
    uint32_t values[4] = {7, 7, 7, 7};

    /* Dispatches, copies and a clear take turns; each sees what came before. */
    gpu_recorder *rec = gpu_record_begin(f->device);
    gpu_record_dispatch(rec, pipeline, one, NULL, 1, 1, 1);
    gpu_record_dispatch(rec, pipeline, one, NULL, 1, 1, 1);
    gpu_record_copy(rec, y0, (gpu_view){z, 0, 4});
    gpu_record_dispatch(rec, pipeline, one, NULL, 1, 1, 1);
    gpu_record_copy(rec, y0, (gpu_view){z, 4, 4});
    gpu_record_clear(rec, y0);
    gpu_record_copy(rec, y0, (gpu_view){z, 8, 4});
    gpu_record_copy(rec, (gpu_view){f->y, 0, 0}, (gpu_view){z, 8, 0});
    gpu_record_dispatch(rec, pipeline, one, NULL, 1, 1, 1);
    gpu_record_copy(rec, y0, (gpu_view){z, 12, 4});
    assert_ok(gpu_submit(rec, NULL, err));
    read_view(f->device, gpu_whole(z), values);
    const uint32_t wanted[4] = {2, 3, 0, 1};
    assert_memory_equal(values, wanted, sizeof wanted);

    const gpu_view bad[][2] = {
        {{f->y, 0, 8}, {z, 0, 4}},  {{f->y, 0, 4}, {f->y, 8, 4}}, {{f->y, 2, 4}, {z, 0, 4}},
        {{f->y, 0, 4}, {z, 16, 4}}, {{f->y, 0, 6}, {z, 0, 6}},    {{f->y, 4 * N, 4}, {z, 0, 4}},
    };
    for (uint32_t i = 0; i < COUNT(bad); i++) {
        rec = gpu_record_begin(f->device);
        gpu_record_copy(rec, bad[i][0], bad[i][1]);
        assert_fails(gpu_submit(rec, NULL, err), TEMPER_BAD_ARGUMENT, "copy");
    }
    gpu_buffer_destroy(z);
}

static void test_readbacks_in_order(void **state)
{
    fixture *f = *state;
    gpu_pipeline *pipeline = gpu_pipeline_get(f->device, &poke, NULL);
    const gpu_view y[] = {gpu_whole(f->y)};
    uint32_t values[5] = {0};
    gpu_ticket ticket;

    gpu_recorder *rec = gpu_record_begin(f->device);
    for (uint32_t i = 0; i < 5; i++)
        gpu_record_dispatch(rec, pipeline, y, &(poke_params){i * 100, i + 1}, 1, 1, 1);
    gpu_record_readback(rec, (gpu_view){f->y, 1600, 4});
    gpu_record_readback(rec, (gpu_view){f->y, 0, 4});
    gpu_record_readback(rec, (gpu_view){f->y, 400, 0});
    gpu_record_readback(rec, (gpu_view){f->y, 396, 12});
    assert_ok(gpu_submit(rec, &ticket, err));
    assert_ok(gpu_wait(f->device, ticket, values, sizeof values, err));
    const uint32_t wanted[5] = {5, 1, 0, 2, 0};
    assert_memory_equal(values, wanted, sizeof wanted);

    rec = gpu_record_begin(f->device);
    for (int i = 0; i < GPU_READBACKS_PER_SUBMIT + 1; i++)
        gpu_record_readback(rec, (gpu_view){f->y, 0, 4});
    assert_fails(gpu_submit(rec, &ticket, err), TEMPER_BAD_ARGUMENT, "readbacks");
    rec = gpu_record_begin(f->device);
    gpu_record_readback(rec, (gpu_view){f->y, 4 * N, 4});
    assert_fails(gpu_submit(rec, &ticket, err), TEMPER_BAD_ARGUMENT, "\"y\"");
}

/* ---- tickets -------------------------------------------------------------------------------- */

static gpu_ticket submit_increment(fixture *f, bool read)
{
    gpu_ticket ticket;
    gpu_recorder *rec = gpu_record_begin(f->device);

    gpu_record_dispatch(rec, gpu_pipeline_get(f->device, &increment, NULL),
                        (gpu_view[]){gpu_whole(f->y)}, NULL, 1, 1, 1);
    if (read)
        gpu_record_readback(rec, (gpu_view){f->y, 0, 4});
    assert_ok(gpu_submit(rec, &ticket, err));
    assert_true(ticket.serial > 0);
    return ticket;
}

/* The data of ticket n is that of its moment, however many submits follow it. */
static void test_wait_while_later_submits_are_in_flight(void **state)
{
    fixture *f = *state;
    gpu_ticket tickets[6];
    uint32_t value = 0;

    for (uint32_t i = 0; i < 6; i++)
        tickets[i] = submit_increment(f, true);
    const uint32_t order[] = {3, 0, 5, 1};
    for (uint32_t i = 0; i < COUNT(order); i++) {
        assert_ok(gpu_wait(f->device, tickets[order[i]], &value, 4, err));
        assert_int_equal(value, order[i] + 1);
    }
    gpu_discard(f->device, tickets[2]);
    assert_ok(gpu_finish(f->device, err));
    assert_ok(gpu_wait(f->device, tickets[4], &value, 4, err));
    assert_int_equal(value, 5);

    /* Pipelined as decoding does it: the next step goes out before the last is read. */
    gpu_ticket last = submit_increment(f, true);
    for (uint32_t i = 7; i < 40; i++) {
        gpu_ticket next = submit_increment(f, true);
        assert_ok(gpu_wait(f->device, last, &value, 4, err));
        assert_int_equal(value, i);
        last = next;
    }
    gpu_discard(f->device, last);
}

static void test_wrong_tickets(void **state)
{
    fixture *f = *state;
    uint32_t value = 0;
    gpu_ticket ticket = submit_increment(f, true);

    assert_fails(gpu_wait(f->device, ticket, &value, 8, err), TEMPER_BAD_ARGUMENT, "8");
    assert_fails(gpu_wait(f->device, ticket, NULL, 0, err), TEMPER_BAD_ARGUMENT, "4 bytes back");
    assert_ok(gpu_wait(f->device, ticket, &value, 4, err));
    assert_fails(gpu_wait(f->device, ticket, &value, 4, err), TEMPER_BAD_ARGUMENT, "already");
    ticket = submit_increment(f, false);
    gpu_discard(f->device, ticket);
    gpu_discard(f->device, ticket);
    assert_fails(gpu_wait(f->device, ticket, NULL, 0, err), TEMPER_BAD_ARGUMENT, "dropped");
    assert_fails(gpu_wait(f->device, (gpu_ticket){1000}, NULL, 0, err), TEMPER_BAD_ARGUMENT,
                 "1000");
    assert_fails(gpu_wait(f->device, (gpu_ticket){0}, &value, 4, err), TEMPER_BAD_ARGUMENT, "0");
    gpu_discard(f->device, (gpu_ticket){0});
    expect_u32(f, f->y, 0, 2);
}

/* ---- writes --------------------------------------------------------------------------------- */

static void test_writes(void **state)
{
    fixture *f = *state;
    const uint32_t five = 5, nine = 9;
    gpu_recorder *rec = gpu_record_begin(f->device);

    /* Ordered before the submit of an open recording, and after those before it. */
    gpu_record_dispatch(rec, gpu_pipeline_get(f->device, &increment, NULL),
                        (gpu_view[]){gpu_whole(f->y)}, NULL, 1, 1, 1);
    assert_ok(gpu_write(f->device, f->y, 0, &five, 4, err));
    assert_ok(gpu_submit(rec, NULL, err));
    expect_u32(f, f->y, 0, 6);
    assert_ok(gpu_write(f->device, f->y, 4 * N - 4, &nine, 4, err));
    assert_ok(gpu_write(f->device, f->y, 4 * N, &nine, 0, err));
    expect_u32(f, f->y, N - 1, 9);

    const struct {
        uint64_t offset, size;
    } bad[] = {{2, 4}, {0, 2}, {4 * N, 4}, {4 * N - 4, 8}, {UINT64_MAX - 3, 8}, {0, 4 * N + 4}};
    for (uint32_t i = 0; i < COUNT(bad); i++)
        assert_fails(gpu_write(f->device, f->y, bad[i].offset, &nine, bad[i].size, err),
                     TEMPER_BAD_ARGUMENT, "\"y\"");
}

/* More than the library is given to hold at once: the pieces arrive whole and in place. */
static void test_large_writes(void **state)
{
    fixture *f = *state;
    enum { WORDS = 20 << 20 };
    gpu_buffer *big = new_buffer(f->device, (uint64_t)WORDS * 4, "big");
    uint32_t *words = malloc((size_t)WORDS * 4);

    assert_non_null(words);
    for (uint32_t i = 0; i < WORDS; i++)
        words[i] = i * 2654435761u;
    assert_ok(gpu_write(f->device, big, 0, words, (uint64_t)WORDS * 4, err));
    for (uint32_t i = 0; i < WORDS; i += 1 << 20) {
        expect_u32(f, big, i, i * 2654435761u);
        expect_u32(f, big, i + (1 << 20) - 1, (i + (1 << 20) - 1) * 2654435761u);
    }
    free(words);
    gpu_buffer_destroy(big);
}

/* Blocks in turns, several copies of each, ordered with the submits around them. */
static void uploads(fixture *f, bool mapped)
{
    enum { WORDS = 256, TURNS = 7 };
    gpu_upload *upload = NULL;
    uint32_t *block = NULL;

    const uint64_t live = gpu_device_counters(f->device).live_bytes[GPU_PURPOSE_STAGING];
    assert_ok(gpu_upload_open(f->device, WORDS * 4, mapped, &upload, err));
    for (uint32_t turn = 0; turn < TURNS; turn++) {
        assert_ok(gpu_upload_begin(upload, (void **)&block, err));
        for (uint32_t i = 0; i < WORDS; i++)
            block[i] = turn * 1000 + i;
        gpu_upload_copy(upload, 0, f->y, 4 * turn, 4);
        gpu_upload_copy(upload, 40, f->y, 4 * (N - 1 - turn), 4);
        gpu_upload_copy(upload, 4, f->x, 4 * (N - WORDS + 1), 4 * (WORDS - 1));
        assert_ok(gpu_upload_send(upload, err));
        gpu_recorder *rec = gpu_record_begin(f->device);
        gpu_record_dispatch(rec, gpu_pipeline_get(f->device, &increment, NULL),
                            (gpu_view[]){gpu_whole(f->y)}, NULL, turn + 1, 1, 1);
        assert_ok(gpu_submit(rec, NULL, err));
    }
    assert_int_equal(gpu_device_counters(f->device).live_bytes[GPU_PURPOSE_STAGING],
                     live + (mapped ? (uint64_t)2 * WORDS * 4 : 0));
    for (uint32_t turn = 0; turn < TURNS; turn++) {
        expect_u32(f, f->y, turn, turn * 1000 + TURNS - turn);
        expect_u32(f, f->y, N - 1 - turn, turn * 1000 + 10);
    }
    expect_u32(f, f->x, N - 1, (TURNS - 1) * 1000 + WORDS - 1);
    expect_u32(f, f->x, N - WORDS + 1, (TURNS - 1) * 1000 + 1);

    /* Two have begun; what was sent arrives after closing, and nothing of what was not. */
    uint32_t *next = NULL;
    assert_ok(gpu_upload_begin(upload, (void **)&block, err));
    assert_ok(gpu_upload_begin(upload, (void **)&next, err));
    assert_true(block != next);
    block[0] = 77;
    next[0] = 78;
    gpu_upload_copy(upload, 0, f->y, 0, 4);
    assert_ok(gpu_upload_send(upload, err));
    gpu_upload_close(upload);
    gpu_upload_close(NULL);
    expect_u32(f, f->y, 0, 77);
}

static void test_uploads(void **state)
{
    uploads(*state, true);
}

static void test_uploads_by_writes(void **state)
{
    uploads(*state, false);
}

/* ---- parameters ----------------------------------------------------------------------------- */

/* Every dispatch sees its own parameters, also when one recording has more than any before. */
static void test_parameters_of_many_dispatches(void **state)
{
    fixture *f = *state;
    static const uint32_t counts[] = {1, 63, 64, 65, 3, 700, 900, 2};
    gpu_pipeline *pipeline = gpu_pipeline_get(f->device, &poke, NULL);
    const gpu_view y[] = {gpu_whole(f->y)};
    uint32_t values[N];

    for (uint32_t k = 0; k < COUNT(counts); k++) {
        gpu_recorder *rec = gpu_record_begin(f->device);
        for (uint32_t i = 0; i < counts[k]; i++)
            gpu_record_dispatch(rec, pipeline, y, &(poke_params){i, 1000 * k + i + 1}, 1, 1, 1);
        assert_ok(gpu_submit(rec, NULL, err));
        if (k % 2 == 0)
            continue; /* two submits in flight share the parameter buffer */
        read_view(f->device, gpu_whole(f->y), values);
        for (uint32_t i = 0; i < counts[k]; i++)
            assert_int_equal(values[i], 1000 * k + i + 1);
        for (uint32_t i = counts[k]; i < counts[k - 1]; i++)
            assert_int_equal(values[i], 1000 * (k - 1) + i + 1);
    }
}

/* Rows of workgroups fold into two dimensions. */
static void test_more_workgroups_than_one_dimension(void **state)
{
    fixture *f = *state;
    enum { GROUPS = 65536, COLUMNS = 32768 };
    gpu_buffer *from = new_buffer(f->device, (uint64_t)GROUPS * 4, "from");
    gpu_buffer *to = new_buffer(f->device, (uint64_t)GROUPS * 4, "to");
    float last = 0;
    const affine_params params = {.n = GROUPS, .b = 3, .row = COLUMNS};

    gpu_recorder *rec = gpu_record_begin(f->device);
    gpu_record_dispatch(rec, gpu_pipeline_get(f->device, &affine, &(affine_values){1, 0}),
                        (gpu_view[]){gpu_whole(from), gpu_whole(to)}, &params, COLUMNS, 2, 1);
    assert_ok(gpu_submit(rec, NULL, err));
    read_view(f->device, (gpu_view){to, (uint64_t)(GROUPS - 1) * 4, 4}, &last);
    assert_float_equal(last, 3, 0);
    gpu_buffer_destroy(from);
    gpu_buffer_destroy(to);
}

/* ---- costs ---------------------------------------------------------------------------------- */

static void steady_step(fixture *f, gpu_ticket *previous)
{
    gpu_pipeline *pipeline = gpu_pipeline_get(f->device, &affine, NULL);
    gpu_ticket ticket;
    float value[2];
    gpu_recorder *rec = gpu_record_begin(f->device);

    for (int i = 0; i < 8; i++)
        record_affine(rec, pipeline, i % 2 == 0 ? f->x : f->y, i % 2 == 0 ? f->y : f->x,
                      (affine_params){.n = N, .a = 1});
    gpu_record_readback(rec, (gpu_view){f->x, 64, 8});
    assert_ok(gpu_submit(rec, &ticket, err));
    if (previous->serial != 0)
        assert_ok(gpu_wait(f->device, *previous, value, sizeof value, err));
    *previous = ticket;
}

static void test_steady_steps_create_nothing(void **state)
{
    fixture *f = *state;
    gpu_ticket ticket = {0};

    for (int i = 0; i < 3; i++)
        steady_step(f, &ticket);
    const gpu_counters before = gpu_device_counters(f->device);
    const uint64_t allocations = mem_allocation_count();
    for (int i = 0; i < 100; i++)
        steady_step(f, &ticket);
    const gpu_counters after = gpu_device_counters(f->device);
    assert_int_equal(after.buffers_created, before.buffers_created);
    assert_int_equal(after.bind_groups_created, before.bind_groups_created);
    assert_int_equal(after.pipelines_created, before.pipelines_created);
    assert_int_equal(after.live_total, before.live_total);
    assert_int_equal(after.dispatches, before.dispatches + 800);
    assert_int_equal(after.submits, before.submits + 100);
    assert_int_equal(after.readbacks, before.readbacks + 100);
    assert_int_equal(after.readback_bytes, before.readback_bytes + 800);
    assert_int_equal(mem_allocation_count(), allocations);
    gpu_discard(f->device, ticket);
    assert_ok(gpu_finish(f->device, err));
}

/* A bind group lives until one of its buffers goes; the next buffer, which may well lie at the same
 * address, gets its own. */
static void test_bind_groups_follow_their_buffers(void **state)
{
    fixture *f = *state;
    gpu_pipeline *pipeline = gpu_pipeline_get(f->device, &increment, NULL);

    for (int i = 0; i < 5; i++) {
        gpu_buffer *fresh = new_buffer(f->device, 4, "fresh");
        const uint64_t groups = gpu_device_counters(f->device).bind_groups_created;
        for (int k = 0; k < 2; k++) {
            gpu_recorder *rec = gpu_record_begin(f->device);
            gpu_record_dispatch(rec, pipeline, (gpu_view[]){gpu_whole(fresh)}, NULL, 1, 1, 1);
            assert_ok(gpu_submit(rec, NULL, err));
        }
        assert_int_equal(gpu_device_counters(f->device).bind_groups_created, groups + 1);
        expect_u32(f, fresh, 0, 2);
        gpu_buffer_destroy(fresh);
    }
}

/* Views that never come again do not fill the memory: the cache starts anew, unnoticed. */
static void test_bind_groups_are_bounded(void **state)
{
    fixture *f = *state;
    enum { VIEWS = 33000, PER_SUBMIT = 3000 };
    gpu_pipeline *pipeline = gpu_pipeline_get(f->device, &increment, NULL);
    gpu_buffer *large = new_buffer(f->device, (uint64_t)(VIEWS + 1) * 4, "large");
    const uint64_t host = mem_live_bytes();
    uint64_t most = 0;

    for (uint32_t i = 0; i < VIEWS;) {
        gpu_recorder *rec = gpu_record_begin(f->device);
        for (uint32_t k = 0; k < PER_SUBMIT; k++, i++)
            gpu_record_dispatch(rec, pipeline, (gpu_view[]){{large, 0, (uint64_t)(i + 1) * 4}},
                                NULL, 1, 1, 1);
        assert_ok(gpu_submit(rec, NULL, err));
        most = mem_live_bytes() > most ? mem_live_bytes() : most;
    }
    assert_int_equal(gpu_device_counters(f->device).bind_groups_created, VIEWS);
    assert_true(mem_live_bytes() < most && most > host);
    expect_u32(f, large, 0, VIEWS);
    gpu_buffer_destroy(large);
}

static void test_counters_by_purpose(void **state)
{
    fixture *f = *state;
    const uint64_t edges = variant.guard ? 512 : 0;

    for (int purpose = 0; purpose < GPU_PURPOSE_COUNT; purpose++) {
        static const struct {
            uint64_t asked, given;
        } sizes[] = {{0, 4}, {1, 4}, {4, 4}, {10, 12}, {4096, 4096}};
        for (uint32_t i = 0; i < COUNT(sizes); i++) {
            const gpu_counters before = gpu_device_counters(f->device);
            gpu_buffer *buffer = NULL;
            assert_ok(gpu_buffer_create(f->device, sizes[i].asked, (gpu_purpose)purpose, "counted",
                                        &buffer, err));
            assert_int_equal(gpu_buffer_size(buffer), sizes[i].given);
            const gpu_counters during = gpu_device_counters(f->device);
            const uint64_t real = sizes[i].given + edges;
            assert_int_equal(during.live_bytes[purpose], before.live_bytes[purpose] + real);
            assert_int_equal(during.live_total, before.live_total + real);
            assert_true(during.peak_bytes[purpose] >= during.live_bytes[purpose]);
            assert_true(during.peak_total >= during.live_total);
            assert_int_equal(during.buffers_created, before.buffers_created + 1);
            gpu_buffer_destroy(buffer);
            assert_int_equal(gpu_device_counters(f->device).live_total, before.live_total);
        }
        assert_string_not_equal(gpu_purpose_name((gpu_purpose)purpose), "unknown");
    }
}

static void test_profile(void **state)
{
    fixture *f = *state;
    gpu_profile_row rows[4];

    if (!(gpu_device_features(f->device) & GPU_FEATURE_TIMESTAMPS)) {
        assert_fails(gpu_profile(f->device, GPU_PROFILE_DISPATCHES, err), TEMPER_UNSUPPORTED,
                     "timestamps");
        print_message("no timestamps here: the profile itself is not tested\n");
        return;
    }
    assert_ok(gpu_profile(f->device, GPU_PROFILE_DISPATCHES, err));
    gpu_recorder *rec = gpu_record_begin(f->device);
    gpu_pipeline *two[] = {gpu_pipeline_get(f->device, &affine, NULL),
                           gpu_pipeline_get(f->device, &affine, &(affine_values){64, 1})};
    for (int i = 0; i < 2100; i++) /* more than one query set holds */
        record_affine(rec, two[i % 2], f->x, f->y, (affine_params){.n = N, .a = 1});
    gpu_record_dispatch(rec, gpu_pipeline_get(f->device, &increment, NULL),
                        (gpu_view[]){gpu_whole(f->y)}, NULL, 1, 1, 1);
    gpu_ticket ticket;
    assert_ok(gpu_submit(rec, &ticket, err));
    assert_ok(gpu_wait(f->device, ticket, NULL, 0, err));
    assert_int_equal(gpu_profile_take(f->device, rows, 4), 2);
    const int first = rows[0].kernel == affine.name ? 0 : 1;
    assert_string_equal(rows[first].kernel, "affine");
    assert_string_equal(rows[1 - first].kernel, "increment");
    assert_int_equal(rows[first].dispatches, 2100);
    assert_int_equal(rows[1 - first].dispatches, 1);
    assert_true(rows[0].seconds >= rows[1].seconds);
    assert_true(rows[first].seconds > 0 && rows[first].seconds < 60);
    assert_int_equal(gpu_profile_take(f->device, rows, 4), 0);

    /* Taken means taken: what comes next starts at zero. */
    const double before = rows[first].seconds;
    rec = gpu_record_begin(f->device);
    record_affine(rec, two[0], f->x, f->y, (affine_params){.n = N, .a = 1});
    assert_ok(gpu_submit(rec, NULL, err));
    assert_ok(gpu_finish(f->device, err));
    assert_int_equal(gpu_profile_take(f->device, rows, 4), 1);
    assert_int_equal(rows[0].dispatches, 1);
    assert_true(rows[0].seconds < before / 2);

    assert_ok(gpu_profile(f->device, GPU_PROFILE_OFF, err));
    gpu_discard(f->device, submit_increment(f, false));
    assert_ok(gpu_finish(f->device, err));
    assert_int_equal(gpu_profile_take(f->device, rows, 4), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
        T(test_options_reach_the_kernel),
        T(test_the_last_dispatch_is_taken_back),
        T(test_many_pipelines_at_once),
        T(test_broken_kernels),
        T(test_prepare_creates_pipelines_only),
        T(test_views),
        T(test_first_failure_of_a_recording_wins),
        T(test_destroyed_while_recorded),
        T(test_order_in_a_recording),
        T(test_readbacks_in_order),
        T(test_wait_while_later_submits_are_in_flight),
        T(test_wrong_tickets),
        T(test_writes),
        T(test_large_writes),
        T(test_uploads),
        T(test_uploads_by_writes),
        T(test_parameters_of_many_dispatches),
        T(test_more_workgroups_than_one_dimension),
        T(test_steady_steps_create_nothing),
        T(test_bind_groups_follow_their_buffers),
        T(test_bind_groups_are_bounded),
        T(test_counters_by_purpose),
        T(test_profile),
#undef T
    };
    int failed = cmocka_run_group_tests_name("as it is", tests, print_adapter, NULL);

    variant.without_features = GPU_FEATURE_IMMEDIATES;
    failed += cmocka_run_group_tests_name("without immediates", tests, NULL, NULL);
    variant.guard = true;
    variant.robust = true;
    failed += cmocka_run_group_tests_name("without immediates, guards and bounds checks on", tests,
                                          NULL, NULL);
    return failed;
}
