/*
 * device_faults.c - what goes wrong: memory that ends, devices that are lost, errors that the
 * library reports late, and kernels that write where they should not. Nothing hangs, nothing
 * aborts, no data comes out after a failure, and closing works.
 */
#include "device_common.h"

#include "base/mem.h"

static gpu_ticket submit_poke(gpu_device *device, gpu_buffer *x, uint32_t value, uint64_t read)
{
    gpu_ticket ticket;
    gpu_recorder *rec = gpu_record_begin(device);

    gpu_record_dispatch(rec, gpu_pipeline_get(device, &poke, NULL), (gpu_view[]){gpu_whole(x)},
                        &(poke_params){0, value}, 1, 1, 1);
    if (read > 0)
        gpu_record_readback(rec, (gpu_view){x, 0, read});
    assert_ok(gpu_submit(rec, &ticket, err));
    return ticket;
}

/* ---- memory --------------------------------------------------------------------------------- */

/* A small program: three buffers, dispatches, a readback, and again. Returns its first failure. */
static temper_status small_program(gpu_device *device, float *result, error *err)
{
    gpu_buffer *buffers[3] = {NULL};
    temper_status status = TEMPER_OK;

    for (int i = 0; i < 3 && status == TEMPER_OK; i++)
        status = gpu_buffer_create(device, 4096, GPU_PURPOSE_SCRATCH, "program", &buffers[i], err);
    for (int step = 0; step < 2 && status == TEMPER_OK; step++) {
        gpu_ticket ticket;
        gpu_recorder *rec = gpu_record_begin(device);
        for (int i = 0; i < 3; i++)
            record_affine(rec, gpu_pipeline_get(device, &affine, NULL), buffers[i],
                          buffers[(i + 1) % 3], (affine_params){.n = 64, .a = 1, .b = 1});
        gpu_record_readback(rec, (gpu_view){buffers[0], 0, step == 0 ? 4u : 2048u});
        status = gpu_submit(rec, &ticket, err);
        float values[512];
        if (status == TEMPER_OK)
            status = gpu_wait(device, ticket, values, step == 0 ? 4u : 2048u, err);
        if (status == TEMPER_OK)
            *result = values[0];
    }
    for (int i = 0; i < 3; i++)
        gpu_buffer_destroy(buffers[i]);
    return status;
}

static void allocation_failures(uint32_t without_features, uint64_t expected)
{
    gpu_device *device = open_device(&(gpu_device_desc){.without_features = without_features});
    uint64_t n = 1;

    for (;; n++) {
        error failure = {0};
        float result = -1;
        gpu_trim(device);
        assert_int_equal(gpu_device_counters(device).live_total, 0);
        gpu_fail_allocation(device, n);
        const temper_status status = small_program(device, &result, &failure);
        gpu_fail_allocation(device, 0);
        gpu_trim(device);
        assert_int_equal(gpu_device_counters(device).live_total, 0);
        assert_ok(gpu_device_status(device, err));
        if (status == TEMPER_OK) {
            assert_float_equal(result, 6, 0);
            break;
        }
        assert_int_equal(status, TEMPER_DEVICE_MEMORY);
        assert_non_null(strstr(failure.text, "bytes"));
        assert_true(result == (n < expected ? -1.0f : 3.0f));
    }
    /* Three buffers, the two sizes of readback, and the parameters where they need a buffer. */
    assert_int_equal(n - 1, expected);
    gpu_device_release(device);
}

static void test_nth_allocation_fails(void **state)
{
    (void)state;
    gpu_device *device = open_device(NULL);
    const bool immediates = (gpu_device_features(device) & GPU_FEATURE_IMMEDIATES) != 0;

    gpu_device_release(device);
    allocation_failures(0, immediates ? 5 : 6);
    allocation_failures(GPU_FEATURE_IMMEDIATES, 6);
}

/* The same for memory of the host, opening and closing included. */
static void test_nth_host_allocation_fails(void **state)
{
    (void)state;
    const uint64_t before = mem_live_bytes();
    int failures = 0;

    for (uint64_t n = 1;; n++) {
        error failure = {0};
        float result = -1;
        gpu_device *device = NULL;

        mem_fail_at(n, 0);
        temper_status status = gpu_device_open(NULL, &device, &failure);
        if (status == TEMPER_OK)
            status = small_program(device, &result, &failure);
        mem_fail_at(0, 0);
        if (status != TEMPER_OK) {
            assert_int_equal(status, TEMPER_NO_MEMORY);
            failures++;
            if (device != NULL) { /* memory is back: the device goes on */
                assert_ok(small_program(device, &result, err));
                assert_float_equal(result, 6, 0);
            }
        }
        gpu_device_release(device);
        assert_int_equal(mem_live_bytes(), before);
        if (status == TEMPER_OK)
            break;
    }
    assert_in_range(failures, 10, 100);
}

/* ---- loss ----------------------------------------------------------------------------------- */

/* Every call on a lost device says so, and none hangs. */
static void expect_lost(gpu_device *device, gpu_buffer *x)
{
    gpu_buffer *buffer = NULL;
    gpu_ticket ticket = {5};
    uint32_t value = 0;

    assert_fails(gpu_device_status(device, err), TEMPER_DEVICE_LOST, "gpu_lose");
    assert_fails(gpu_buffer_create(device, 4, GPU_PURPOSE_SCRATCH, "y", &buffer, err),
                 TEMPER_DEVICE_LOST, "gpu_lose");
    assert_null(buffer);
    assert_fails(gpu_write(device, x, 0, &value, 4, err), TEMPER_DEVICE_LOST, "gpu_lose");
    gpu_upload *upload = NULL;
    void *block = NULL;
    assert_ok(gpu_upload_open(device, 64, true, &upload, err));
    assert_fails(gpu_upload_begin(upload, &block, err), TEMPER_DEVICE_LOST, "gpu_lose");
    gpu_upload_close(upload);
    gpu_pipeline *pipeline = gpu_pipeline_get(device, &increment, NULL);
    assert_non_null(pipeline);
    assert_fails(gpu_pipelines_wait(device, err), TEMPER_DEVICE_LOST, "gpu_lose");
    gpu_recorder *rec = gpu_record_begin(device);
    gpu_record_dispatch(rec, pipeline, (gpu_view[]){gpu_whole(x)}, NULL, 1, 1, 1);
    assert_fails(gpu_submit(rec, &ticket, err), TEMPER_DEVICE_LOST, "gpu_lose");
    assert_int_equal(ticket.serial, 0);
    assert_fails(gpu_wait(device, ticket, NULL, 0, err), TEMPER_DEVICE_LOST, "gpu_lose");
    assert_fails(gpu_finish(device, err), TEMPER_DEVICE_LOST, "gpu_lose");
    assert_fails(gpu_profile(device, GPU_PROFILE_DISPATCHES, err), TEMPER_DEVICE_LOST, "gpu_lose");
    assert_fails(gpu_check_guards(device, err), TEMPER_DEVICE_LOST, "gpu_lose");
    gpu_trim(device);
    gpu_lose(device);
}

typedef enum loss_moment {
    LOST_AT_ONCE,
    LOST_COMPILING,
    LOST_WHILE_RECORDING,
    LOST_BEFORE_WAIT,
    LOST_WITH_MANY_IN_FLIGHT,
    LOST_AFTER_WAIT,
    LOST_AND_LEFT,
    LOSS_MOMENTS
} loss_moment;

static void lose_at(loss_moment moment)
{
    gpu_device *device = open_device(&(gpu_device_desc){.guard = moment % 2 == 1});
    gpu_buffer *x = new_buffer(device, 1 << 20, "x");
    uint32_t value = 77;
    gpu_ticket ticket = {0}, later = {0};

    switch (moment) {
    case LOST_AT_ONCE:
        gpu_lose(device);
        break;
    case LOST_COMPILING:
        for (uint32_t i = 0; i < 10; i++)
            gpu_pipeline_get(device, &affine, &(affine_values){64, i});
        gpu_lose(device);
        break;
    case LOST_WHILE_RECORDING: {
        gpu_recorder *rec = gpu_record_begin(device);
        gpu_record_dispatch(rec, gpu_pipeline_get(device, &poke, NULL), (gpu_view[]){gpu_whole(x)},
                            &(poke_params){0, 1}, 1, 1, 1);
        gpu_lose(device);
        gpu_record_readback(rec, (gpu_view){x, 0, 4});
        assert_fails(gpu_submit(rec, &ticket, err), TEMPER_DEVICE_LOST, "gpu_lose");
        break;
    }
    case LOST_BEFORE_WAIT:
        ticket = submit_poke(device, x, 1, 4);
        gpu_lose(device);
        assert_fails(gpu_wait(device, ticket, &value, 4, err), TEMPER_DEVICE_LOST, "gpu_lose");
        break;
    case LOST_WITH_MANY_IN_FLIGHT:
        for (uint32_t i = 0; i < 20; i++) {
            ticket = later;
            later = submit_poke(device, x, i, i % 2 * 4);
        }
        gpu_lose(device);
        assert_fails(gpu_wait(device, later, &value, 4, err), TEMPER_DEVICE_LOST, "gpu_lose");
        assert_fails(gpu_wait(device, ticket, NULL, 0, err), TEMPER_DEVICE_LOST, "gpu_lose");
        break;
    case LOST_AFTER_WAIT:
        ticket = submit_poke(device, x, 78, 4);
        assert_ok(gpu_wait(device, ticket, &value, 4, err));
        assert_int_equal(value, 78);
        value = 77;
        gpu_lose(device);
        break;
    case LOST_AND_LEFT:
        submit_poke(device, x, 1, 4);
        gpu_lose(device);
        gpu_device_release(device);
        return;
    case LOSS_MOMENTS:
        break;
    }
    assert_int_equal(value, 77);
    expect_lost(device, x);
    gpu_buffer_destroy(x);
    assert_int_equal(gpu_device_counters(device).live_bytes[GPU_PURPOSE_SCRATCH], 0);
    gpu_device_release(device);
}

static void test_device_lost(void **state)
{
    (void)state;
    const uint64_t before = mem_live_bytes();

    for (int moment = 0; moment < LOSS_MOMENTS; moment++)
        lose_at((loss_moment)moment);
    assert_int_equal(mem_live_bytes(), before);
    /* The machine is not the device: the next one opens. */
    float result = 0;
    gpu_device *device = open_device(NULL);
    assert_ok(small_program(device, &result, err));
    gpu_device_release(device);
}

/* ---- errors that the library finds ---------------------------------------------------------- */

/* The array has a length, so a smaller view is a validation error that only the library sees. */
static const gpu_kernel fixed_size = {
    .name = "fixed_size",
    .source = "@group(0) @binding(0) var<storage, read_write> x: array<u32, 64>;\n"
              "@compute @workgroup_size(1) fn main() { x[0] = 1u; }\n",
    .bindings = poke_bindings,
    .binding_count = COUNT(poke_bindings)};

static gpu_ticket submit_invalid(gpu_device *device, gpu_buffer *small)
{
    gpu_ticket ticket;
    gpu_recorder *rec = gpu_record_begin(device);

    gpu_record_dispatch(rec, gpu_pipeline_get(device, &fixed_size, NULL),
                        (gpu_view[]){gpu_whole(small)}, NULL, 1, 1, 1);
    gpu_record_readback(rec, (gpu_view){small, 0, 4});
    assert_ok(gpu_submit(rec, &ticket, err));
    return ticket;
}

/* The failure may be known when this is submitted, or only when it is waited for. */
static temper_status read_after(gpu_device *device, gpu_buffer *x, uint32_t *value, error *err)
{
    gpu_ticket ticket;
    gpu_recorder *rec = gpu_record_begin(device);

    gpu_record_readback(rec, (gpu_view){x, 0, 4});
    const temper_status status = gpu_submit(rec, &ticket, err);
    return status != TEMPER_OK ? status : gpu_wait(device, ticket, value, 4, err);
}

static void test_errors_are_sticky(void **state)
{
    (void)state;

    /* Heard of at the wait of the submit itself, or of one that came after it. */
    for (int later = 0; later < 3; later++) {
        gpu_device *device = open_device(NULL);
        gpu_buffer *small = new_buffer(device, 16, "small"), *buffer = NULL;
        uint32_t value = 77;

        gpu_ticket good = submit_poke(device, small, 4, 4);
        assert_ok(gpu_wait(device, good, &value, 4, err));
        assert_int_equal(value, 4);
        value = 77;
        gpu_ticket ticket = submit_invalid(device, small);
        if (later == 0)
            assert_fails(gpu_wait(device, ticket, &value, 4, err), TEMPER_DEVICE_ERROR, "submit 2");
        if (later > 0)
            gpu_discard(device, ticket);
        if (later == 1)
            assert_fails(gpu_finish(device, err), TEMPER_DEVICE_ERROR, "submit 2");
        if (later == 2)
            assert_fails(read_after(device, small, &value, err), TEMPER_DEVICE_ERROR, "submit 2");
        assert_int_equal(value, 77);

        assert_fails(gpu_device_status(device, err), TEMPER_DEVICE_ERROR, "submit 2");
        assert_fails(gpu_buffer_create(device, 4, GPU_PURPOSE_SCRATCH, "y", &buffer, err),
                     TEMPER_DEVICE_ERROR, "submit 2");
        assert_fails(gpu_submit(gpu_record_begin(device), NULL, err), TEMPER_DEVICE_ERROR,
                     "submit 2");
        gpu_lose(device);
        assert_fails(gpu_device_status(device, err), TEMPER_DEVICE_LOST, "submit 2");
        gpu_buffer_destroy(small);
        gpu_device_release(device);
    }
}

/* ---- closing in the middle ------------------------------------------------------------------ */

static void test_closing_with_work_in_flight(void **state)
{
    (void)state;
    const uint64_t before = mem_live_bytes();

    for (int i = 0; i < 6; i++) {
        gpu_device *device = open_device(&(gpu_device_desc){.guard = i % 2 == 0});
        gpu_buffer *x = new_buffer(device, 1 << 16, "x");

        for (uint32_t k = 0; k < 50; k++)
            submit_poke(device, x, k, k % 3 * 4);
        for (uint32_t k = 0; k < 8; k++)
            gpu_pipeline_get(device, &affine, &(affine_values){64, k});
        gpu_recorder *rec = i % 3 == 0   ? NULL
                            : i % 3 == 1 ? gpu_record_begin(device)
                                         : gpu_record_prepare(device);
        if (rec != NULL)
            gpu_record_readback(rec, gpu_whole(x));
        gpu_device_release(device);
        assert_int_equal(mem_live_bytes(), before);
    }
}

/* ---- guards --------------------------------------------------------------------------------- */

/* Words of the two buffers; a third is not bound at all. */
enum { X_WORDS = 100, Y_WORDS = 64 };

static const gpu_kernel_binding pair_bindings[] = {{"x", GPU_READ_WRITE, 4},
                                                   {"y", GPU_READ_WRITE, 4}};

static const gpu_kernel poke_y = {
    .name = "poke_y",
    .source = "struct Params { at: u32, value: u32 }\n"
              "@group(1) @binding(0) var<uniform> params: Params;\n"
              "@group(0) @binding(0) var<storage, read_write> x: array<u32>;\n"
              "@group(0) @binding(1) var<storage, read_write> y: array<u32>;\n"
              "@compute @workgroup_size(1)\n"
              "fn main() { x[0] = x[0] + 1u; y[params.at] = params.value; }\n",
    .bindings = pair_bindings,
    .binding_count = COUNT(pair_bindings),
    .params_bytes = sizeof(poke_params)};

static void test_guards_catch_writes_outside(void **state)
{
    (void)state;
    static const struct {
        uint32_t first;   /* of the view of y, in words */
        uint32_t at;      /* of the write, in words from there */
        const char *text; /* NULL: inside */
    } rows[] = {
        {0, 0, NULL},
        {0, Y_WORDS - 1, NULL},
        {0, Y_WORDS, "0 bytes past its end"},
        {0, Y_WORDS + 1, "4 bytes past its end"},
        {0, Y_WORDS + 63, "252 bytes past its end"},
    };
    for (int robust = 0; robust < 2; robust++)
        for (uint32_t i = 0; i < COUNT(rows); i++) {
            gpu_device *device =
                open_device(&(gpu_device_desc){.robust = robust != 0, .guard = true});
            gpu_buffer *x = new_buffer(device, X_WORDS * 4, "bystander x");
            gpu_buffer *y = new_buffer(device, Y_WORDS * 4, "victim y");
            gpu_buffer *z = new_buffer(device, 4, "bystander z");

            assert_ok(gpu_check_guards(device, err));
            gpu_recorder *rec = gpu_record_begin(device);
            gpu_record_dispatch(rec, gpu_pipeline_get(device, &poke_y, NULL),
                                (gpu_view[]){gpu_whole(x), gpu_whole(y)},
                                &(poke_params){rows[i].at, 0xABCD}, 1, 1, 1);
            assert_ok(gpu_submit(rec, NULL, err));
            if (rows[i].text == NULL) {
                assert_ok(gpu_check_guards(device, err));
            } else {
                assert_fails(gpu_check_guards(device, err), TEMPER_INTERNAL, "victim y");
                assert_fails(gpu_check_guards(device, err), TEMPER_INTERNAL, rows[i].text);
                assert_fails(gpu_check_guards(device, err), TEMPER_INTERNAL, "0x0000abcd");
            }
            /* It is the buffer that is wrong, not the device. */
            assert_ok(gpu_device_status(device, err));
            gpu_buffer_destroy(y);
            assert_ok(gpu_check_guards(device, err));
            gpu_buffer_destroy(x);
            gpu_buffer_destroy(z);
            gpu_device_release(device);
        }
}

/* What is read past a buffer shows: it is not a number in any type. */
static void test_guards_poison_reads_outside(void **state)
{
    (void)state;
    gpu_device *device = open_device(&(gpu_device_desc){.guard = true});
    gpu_buffer *x = new_buffer(device, 40, "x"), *y = new_buffer(device, 64, "y");
    float values[16];

    gpu_recorder *rec = gpu_record_begin(device);
    record_affine(rec, gpu_pipeline_get(device, &affine, NULL), x, y,
                  (affine_params){.n = 16, .a = 1});
    assert_ok(gpu_submit(rec, NULL, err));
    read_view(device, gpu_whole(y), values);
    for (int i = 0; i < 16; i++)
        assert_true(i < 10 ? values[i] == 0 : values[i] != values[i]);
    assert_ok(gpu_check_guards(device, err));
    gpu_buffer_destroy(x);
    gpu_buffer_destroy(y);
    gpu_device_release(device);
}

/* A kernel that asks how long its array is gets the right answer under guards too. */
static const gpu_kernel ask_length = {
    .name = "ask_length",
    .source = "@group(0) @binding(0) var<storage, read_write> x: array<u32>;\n"
              "@compute @workgroup_size(1) fn main() { x[0] = arrayLength(&x); }\n",
    .bindings = poke_bindings,
    .binding_count = COUNT(poke_bindings)};

static void test_guards_leave_array_lengths(void **state)
{
    (void)state;
    for (int guard = 0; guard < 2; guard++) {
        gpu_device *device = open_device(&(gpu_device_desc){.guard = guard != 0});
        gpu_buffer *x = new_buffer(device, 400, "x");
        uint32_t length = 0;

        gpu_recorder *rec = gpu_record_begin(device);
        /* A kernel without the question first: the two must not share a layout. */
        gpu_record_dispatch(rec, gpu_pipeline_get(device, &increment, NULL),
                            (gpu_view[]){gpu_whole(x)}, NULL, 1, 1, 1);
        gpu_record_dispatch(rec, gpu_pipeline_get(device, &ask_length, NULL),
                            (gpu_view[]){gpu_whole(x)}, NULL, 1, 1, 1);
        assert_ok(gpu_submit(rec, NULL, err));
        read_view(device, (gpu_view){x, 0, 4}, &length);
        assert_int_equal(length, 100);
        if (guard == 0)
            assert_fails(gpu_check_guards(device, err), TEMPER_BAD_ARGUMENT, "without guards");
        gpu_buffer_destroy(x);
        gpu_device_release(device);
    }
}

/* Many buffers with edges, more than one look at them holds. */
static void test_guards_of_many_buffers(void **state)
{
    (void)state;
    enum { BUFFERS = 300, WORDS = 4 };
    gpu_device *device = open_device(&(gpu_device_desc){.guard = true});
    gpu_buffer *buffers[BUFFERS];

    for (int i = 0; i < BUFFERS; i++)
        buffers[i] = new_buffer(device, WORDS * 4, i == 7 ? "the seventh" : "another");
    assert_ok(gpu_check_guards(device, err));
    gpu_recorder *rec = gpu_record_begin(device);
    gpu_record_dispatch(rec, gpu_pipeline_get(device, &poke, NULL),
                        (gpu_view[]){gpu_whole(buffers[7])}, &(poke_params){WORDS, 0}, 1, 1, 1);
    assert_ok(gpu_submit(rec, NULL, err));
    assert_fails(gpu_check_guards(device, err), TEMPER_INTERNAL, "the seventh");
    for (int i = 0; i < BUFFERS; i++)
        gpu_buffer_destroy(buffers[i]);
    gpu_device_release(device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nth_allocation_fails),
        cmocka_unit_test(test_nth_host_allocation_fails),
        cmocka_unit_test(test_device_lost),
        cmocka_unit_test(test_errors_are_sticky),
        cmocka_unit_test(test_closing_with_work_in_flight),
        cmocka_unit_test(test_guards_catch_writes_outside),
        cmocka_unit_test(test_guards_poison_reads_outside),
        cmocka_unit_test(test_guards_leave_array_lengths),
        cmocka_unit_test(test_guards_of_many_buffers),
    };
    return cmocka_run_group_tests(tests, print_adapter, NULL);
}
