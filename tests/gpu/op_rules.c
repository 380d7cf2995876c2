/*
 * op_rules.c - what holds for all ops: the table of kernel rows, refusals, splitting, failed
 * allocations, preparing.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "check/check.h"
#include "op/op.h"
#include "op/rows.h"

static const weight_format q4 = {LAYOUT_Q4, SCALE_F16_MIN, 32};

static gpu_device *open_device(const char *limit)
{
    const char *limits[] = {limit};
    const temper_device_desc desc = {.limits = limits, .limit_count = limit != NULL};
    gpu_device *device;
    error err = {0};
    if (check_open(&desc, true, &device, &err) != TEMPER_OK)
        fail_msg("%s", err.text);
    print_message("%s\n", gpu_device_adapter(device)->name);
    return device;
}

/* The last row of each table runs anywhere, and every row runs within WebGPU's default limits. */
static void last_rows_fit_everything(void **state)
{
    (void)state;
    for (const op_table *const *table = op_tables; *table != NULL; table++)
        for (uint32_t i = 0; i < (*table)->count; i++) {
            const op_kernel_row *row = &(*table)->rows[i];
            assert_true(strlen(row->why) > 10);
            if (i + 1 < (*table)->count)
                continue;
            assert_null(row->fits);
            assert_int_equal(row->kernel->needs, 0);
            assert_true(row->invocations <= 256 && row->workgroup_memory <= 16384);
            assert_true(row->kernel->binding_count <= 8);
        }
}

static void weights_are_refused(void **state)
{
    (void)state;
    gpu_device *device = open_device("maxStorageBufferBindingSize=65536");
    static const struct {
        weight_format format;
        uint64_t n, k;
        temper_status status;
    } wrong[] = {
        {{LAYOUT_Q4, SCALE_F16, 32}, 0, 64, TEMPER_BAD_ARGUMENT},
        {{LAYOUT_Q4, SCALE_F16, 32}, 4, 0, TEMPER_BAD_ARGUMENT},
        {{LAYOUT_Q4, SCALE_F16, 32}, 4, 48, TEMPER_BAD_ARGUMENT},
        {{LAYOUT_Q4, SCALE_NONE, 32}, 4, 64, TEMPER_BAD_ARGUMENT},
        {{LAYOUT_Q8, SCALE_F32, 32}, 4, 64, TEMPER_BAD_ARGUMENT},
        {{LAYOUT_F32, SCALE_F16, 32}, 4, 64, TEMPER_BAD_ARGUMENT},
        {{LAYOUT_Q6, SCALE_K, 32}, 4, 256, TEMPER_BAD_ARGUMENT},
        {{LAYOUT_F32, SCALE_NONE, 0}, 4, 257, TEMPER_UNSUPPORTED},
    };
    for (uint32_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        error err = {0};
        op_weight *w;
        assert_int_equal(
            op_weight_create(device, wrong[i].format, wrong[i].n, wrong[i].k, "blk.7", &w, &err),
            wrong[i].status);
        assert_null(w);
        assert_non_null(strstr(err.text, "blk.7"));
    }
    gpu_device_release(device);
}

/* Rows [row, row + count) of planes of weight_stride(n), as planes of their own. */
static weight_planes some_rows(weight_format format, uint64_t k, weight_planes from, uint64_t n,
                               uint64_t row, uint64_t count)
{
    const uint64_t stride = weight_stride(n), own = weight_stride(count);
    weight_planes out = {{NULL}};
    for (int p = 0; p < WEIGHT_PLANES; p++) {
        weight_table tables[WEIGHT_TABLES];
        const uint32_t parts = weight_tables(format, (weight_plane)p, k, tables);
        if (parts == 0)
            continue;
        out.plane[p] = calloc(weight_plane_words(format, (weight_plane)p, k, own), 4);
        const uint8_t *source = (const uint8_t *)from.plane[p];
        uint8_t *to = (uint8_t *)out.plane[p];
        assert_non_null(to);
        for (uint32_t t = 0; t < parts; t++)
            for (uint64_t line = 0; line < tables[t].lines; line++) {
                const uint32_t entry = tables[t].entry_bytes;
                memcpy(to, source + row * entry, count * entry);
                source += stride * entry;
                to += own * entry;
            }
    }
    return out;
}

/* 1000 rows, 64 of which take 18432 bytes (and 4608 of scales and fifth bits) under bindings of
 * 65536: parts of 192 rows, and the product sees one matrix. */
static void split_weight(weight_format format)
{
    enum { N = 1000, K = 576, ROWS = 3 };
    float *out[2] = {malloc(ROWS * N * 4), malloc(ROWS * N * 4)};
    uint32_t ids[ROWS] = {999, 191, 192};
    weight_planes planes = {{NULL}};
    float *x = malloc(ROWS * K * 4), *rows[2] = {malloc(ROWS * K * 4), malloc(ROWS * K * 4)};
    for (int p = 0; p < WEIGHT_PLANES; p++) {
        const uint64_t words = weight_plane_words(format, (weight_plane)p, K, weight_stride(N));
        planes.plane[p] = words > 0 ? malloc(words * 4) : NULL;
        for (uint64_t i = 0; i < words; i++)
            planes.plane[p][i] = p == WEIGHT_SCALES ? 0xb0002c00u + (uint32_t)(i % 61) * 0x00010001u
                                                    : (uint32_t)i * 2654435761u;
    }
    for (uint32_t i = 0; i < ROWS * K; i++)
        x[i] = (float)(i % 17) - 8;
    for (int tight = 0; tight < 2; tight++) {
        gpu_device *device = open_device(tight ? "maxStorageBufferBindingSize=65536" : NULL);
        error err = {0};
        op_weight *w;
        gpu_buffer *buffers[4];
        const uint64_t sizes[4] = {ROWS * K * 4, ROWS * N * 4, sizeof ids, ROWS * K * 4};
        assert_int_equal(op_weight_create(device, format, N, K, "w", &w, &err), TEMPER_OK);
        assert_int_equal(w->part_count, tight ? 6 : 1);
        /* In uneven pieces, across the edges of the parts. */
        for (uint64_t row = 0, step = 2; row < N; row += step, step = step * 2 + 2) {
            step = step > N - row ? N - row : step;
            weight_planes some = some_rows(format, K, planes, N, row, step);
            assert_int_equal(op_weight_write_rows(w, row, step, some, &err), TEMPER_OK);
            for (int p = 0; p < WEIGHT_PLANES; p++)
                free(some.plane[p]);
        }
        for (int i = 0; i < 4; i++)
            assert_int_equal(
                gpu_buffer_create(device, sizes[i], GPU_PURPOSE_SCRATCH, "b", &buffers[i], &err),
                TEMPER_OK);
        gpu_write(device, buffers[0], 0, x, sizes[0], &err);
        gpu_write(device, buffers[2], 0, ids, sizes[2], &err);
        gpu_recorder *rec = gpu_record_begin(device);
        op_matmul(rec, w, gpu_whole(buffers[0]), gpu_whole(buffers[1]), ROWS, OP_WRITE);
        op_embed(rec, w, gpu_whole(buffers[2]), gpu_whole(buffers[3]), ROWS, 1.0f);
        gpu_record_readback(rec, gpu_whole(buffers[1]));
        gpu_record_readback(rec, gpu_whole(buffers[3]));
        gpu_ticket ticket;
        char *both = malloc(sizes[1] + sizes[3]);
        if (gpu_submit(rec, &ticket, &err) != TEMPER_OK ||
            gpu_wait(device, ticket, both, sizes[1] + sizes[3], &err) != TEMPER_OK)
            fail_msg("%s", err.text);
        memcpy(out[tight], both, sizes[1]);
        memcpy(rows[tight], both + sizes[1], sizes[3]);
        free(both);
        assert_int_equal(gpu_check_guards(device, &err), TEMPER_OK);
        for (int i = 0; i < 4; i++)
            gpu_buffer_destroy(buffers[i]);
        op_weight_destroy(w);
        gpu_device_release(device);
    }
    assert_memory_equal(out[0], out[1], ROWS * N * 4);
    assert_memory_equal(rows[0], rows[1], ROWS * K * 4);
    for (int i = 0; i < 2; i++) {
        free(out[i]);
        free(rows[i]);
    }
    for (int p = 0; p < WEIGHT_PLANES; p++)
        free(planes.plane[p]);
    free(x);
}

static void weights_are_split(void **state)
{
    (void)state;
    split_weight(q4);
    split_weight((weight_format){LAYOUT_Q5, SCALE_F16_MIN, 32});
    split_weight((weight_format){LAYOUT_Q4, SCALE_F16, 32});
}

/* Whichever allocation fails, the weight is not there and nothing is left of it. */
static void failed_allocations_leave_nothing(void **state)
{
    (void)state;
    gpu_device *device = open_device("maxStorageBufferBindingSize=65536");
    const uint64_t before = gpu_device_counters(device).live_total;
    op_weight *w = NULL;
    uint64_t nth = 1;
    for (; w == NULL && nth < 100; nth++) {
        error err = {0};
        gpu_fail_allocation(device, nth);
        const temper_status status = op_weight_create(device, q4, 1000, 576, "w", &w, &err);
        assert_int_equal(status, w == NULL ? TEMPER_DEVICE_MEMORY : TEMPER_OK);
        if (w == NULL)
            assert_int_equal(gpu_device_counters(device).live_total, before);
    }
    assert_int_equal(nth, 14); /* 6 parts of two planes, then success */
    gpu_fail_allocation(device, 0);
    op_weight_destroy(w);
    assert_int_equal(gpu_device_counters(device).live_total, before);
    gpu_device_release(device);
}

static void views_too_small_are_refused(void **state)
{
    (void)state;
    gpu_device *device = open_device(NULL);
    error err = {0};
    op_weight *w;
    gpu_buffer *x, *y;
    assert_int_equal(op_weight_create(device, q4, 64, 64, "w", &w, &err), TEMPER_OK);
    assert_int_equal(gpu_buffer_create(device, 64 * 4 * 2, GPU_PURPOSE_SCRATCH, "x", &x, &err),
                     TEMPER_OK);
    assert_int_equal(gpu_buffer_create(device, 64 * 4 * 2, GPU_PURPOSE_SCRATCH, "y", &y, &err),
                     TEMPER_OK);
    gpu_recorder *rec = gpu_record_begin(device);
    op_matmul(rec, w, gpu_whole(x), gpu_whole(y), 3, OP_WRITE);
    gpu_ticket ticket;
    assert_int_equal(gpu_submit(rec, &ticket, &err), TEMPER_BAD_ARGUMENT);
    assert_non_null(strstr(err.text, "768"));
    assert_non_null(strstr(err.text, "512"));
    gpu_buffer_destroy(x);
    gpu_buffer_destroy(y);
    op_weight_destroy(w);
    gpu_device_release(device);
}

/* After preparing with one row and with many, no call creates a pipeline. */
static void preparing_creates_all_pipelines(void **state)
{
    (void)state;
    enum { HQ = 6, HKV = 2, D = 16, MOST = 64 };
    gpu_device *device = open_device(NULL);
    error err = {0};
    gpu_buffer *buffers[7];
    for (int i = 0; i < 7; i++)
        assert_int_equal(
            gpu_buffer_create(device, 1 << 20, GPU_PURPOSE_SCRATCH, "b", &buffers[i], &err),
            TEMPER_OK);
    gpu_view v[7];
    for (int i = 0; i < 7; i++)
        v[i] = gpu_whole(buffers[i]);
    op_weight *w;
    assert_int_equal(op_weight_create(device, q4, 64, 64, "w", &w, &err), TEMPER_OK);
    static const uint32_t rows[] = {1, MOST, 1, 2, 3, 5, MOST, 33};
    uint64_t pipelines = 0;
    for (uint32_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        gpu_recorder *rec = i < 2 ? gpu_record_prepare(device) : gpu_record_begin(device);
        const op_attention_shape shape = {.rows = rows[i],
                                          .q_heads = HQ,
                                          .kv_heads = HKV,
                                          .head_dim = D,
                                          .scale = 0.25f,
                                          .longest = 256,
                                          .sequences = i % 2 ? rows[i] : 1};
        op_matmul(rec, w, v[0], v[1], rows[i], i % 2 ? OP_WRITE : OP_ACCUMULATE);
        op_attention(rec, v[0], v[1], v[2], v[3], v[4], v[5], v[6], &shape);
        gpu_ticket ticket;
        if (gpu_submit(rec, &ticket, &err) != TEMPER_OK)
            fail_msg("%s", err.text);
        if (i == 1) {
            assert_int_equal(gpu_pipelines_wait(device, &err), TEMPER_OK);
            pipelines = gpu_device_counters(device).pipelines_created;
        }
    }
    assert_int_equal(gpu_finish(device, &err), TEMPER_OK);
    assert_int_equal(gpu_device_counters(device).pipelines_created, pipelines);
    op_weight_destroy(w);
    for (int i = 0; i < 7; i++)
        gpu_buffer_destroy(buffers[i]);
    gpu_device_release(device);
}

/* Whether the device runs a row on matrix units, f16 sums or f32 ones, for the shape. */
static bool matrices_take(gpu_device *device, const op_shape *shape, bool half_sums)
{
    for (uint32_t i = 0; i < op_table_matmul.count; i++) {
        const op_kernel_row *row = &op_table_matmul.rows[i];
        if (row->tile != NULL && row->tile == shape->tile && (row->lossy != 0) == half_sums &&
            op_row_runs(device, row))
            return true;
    }
    return false;
}

/* What an option opens is for devices that have nothing faster: of several rows, bytes and blocks
 * of f16 sums yield to matrices with f32 sums, and only f16 sums on matrices come before those. */
static void lossy_rows_yield_to_matrices(void **state)
{
    (void)state;
    static const uint32_t rows[] = {2, 5, 16, 17, 70, 512, 2048};
    static const struct {
        temper_lossy lossy;
        const char *few, *more;
    } options[] = {{TEMPER_LOSSY_INT8, "int8_16", "int8_64"},
                   {TEMPER_LOSSY_F16_BLOCK, "halves_16", "halves_64"},
                   {TEMPER_LOSSY_F16_SUMS, "halves_16", "halves_64"}};
    gpu_device *device = open_device(NULL);
    const bool f16 = (gpu_device_features(device) & GPU_FEATURE_F16) != 0;
    for (uint32_t i = 0; i < 3 * sizeof rows / sizeof *rows; i++) {
        op_shape shape = {.rows = rows[i / 3],
                          .n = 2048,
                          .k = 2048,
                          .format = q4,
                          .workgroup_memory = gpu_device_limits(device)->max_workgroup_memory,
                          .invocations = gpu_device_limits(device)->max_invocations,
                          .scratch = true,
                          .holds = true,
                          .half_sums = true,
                          .lossy = options[i % 3].lossy};
        const char *plain = shape.rows <= 16 ? options[i % 3].few : options[i % 3].more;
        if (shape.lossy != TEMPER_LOSSY_INT8 && !f16)
            continue;
        /* Without f16 operands, by --exact's rules or the self-check's, matrices are closed. */
        assert_string_equal(op_choose(device, &op_table_matmul, &shape)->name, plain);
        shape.half = true;
        shape.tile = op_tile_best(&shape);
        const op_kernel_row *row = op_choose(device, &op_table_matmul, &shape);
        const bool sums =
            shape.lossy == TEMPER_LOSSY_F16_SUMS && matrices_take(device, &shape, true);
        if (sums || matrices_take(device, &shape, false)) {
            assert_ptr_equal(row->tile, shape.tile);
            assert_int_equal(row->lossy != 0, sums);
        } else {
            assert_string_equal(row->name, plain);
        }
    }
    gpu_device_release(device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(last_rows_fit_everything),
        cmocka_unit_test(weights_are_refused),
        cmocka_unit_test(weights_are_split),
        cmocka_unit_test(failed_allocations_leave_nothing),
        cmocka_unit_test(views_too_small_are_refused),
        cmocka_unit_test(preparing_creates_all_pipelines),
        cmocka_unit_test(lossy_rows_yield_to_matrices),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
