/*
 * op_size.c - sizes that overflow something: a product of seconds, which must be several
 * dispatches, and a weight of more than 2^31 bytes. All numbers are small integers, so that every
 * sum is exact whatever kernel takes it.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "base/half.h"
#include "check/check.h"
#include "op/op.h"
#include "op/rows.h"

static const weight_format f16 = {LAYOUT_F16, SCALE_NONE, 0};

static gpu_device *open_device(void)
{
    gpu_device *device;
    error err = {0};
    if (check_open(&(temper_device_desc){0}, true, &device, &err) != TEMPER_OK)
        fail_msg("%s", err.text);
    return device;
}

static gpu_buffer *buffer_of(gpu_device *device, uint64_t bytes, const void *data)
{
    gpu_buffer *buffer = NULL;
    error err = {0};
    if (gpu_buffer_create(device, bytes, GPU_PURPOSE_SCRATCH, "b", &buffer, &err) != TEMPER_OK ||
        (data != NULL && gpu_write(device, buffer, 0, data, bytes, &err) != TEMPER_OK))
        fail_msg("%s", err.text);
    return buffer;
}

/* Writes `count` rows of the weight from one run of halves [count, k]. */
static void write_rows(op_weight *w, uint64_t row, uint64_t count, const uint16_t *halves)
{
    weight_planes planes = {{NULL}};
    error err = {0};
    const uint64_t stride = weight_stride(count);
    const uint8_t **rows = malloc(count * sizeof *rows);
    for (uint64_t i = 0; i < count; i++)
        rows[i] = (const uint8_t *)(halves + i * w->k);
    for (int p = 0; p < WEIGHT_PLANES; p++) {
        const uint64_t words = weight_plane_words(w->format, (weight_plane)p, w->k, stride);
        planes.plane[p] = words > 0 ? calloc(words, 4) : NULL;
    }
    weight_repack_rows(DTYPE_F16, w->k, count, rows, planes, stride, 0);
    assert_int_equal(op_weight_write_rows(w, row, count, planes, &err), TEMPER_OK);
    assert_int_equal(gpu_finish(w->device, &err), TEMPER_OK);
    for (int p = 0; p < WEIGHT_PLANES; p++)
        free(planes.plane[p]);
    free(rows);
}

/* W[n, k] = (n + k) % 7 - 3 and x[r, k] = (r + k) % 5 - 2: y[r, n] depends on r % 5 and n % 7. */
static void long_work_is_cut(void **state)
{
    (void)state;
    enum { N = 4096, K = 4096, TIMES = 3 };
    gpu_device *device = open_device();
    error err = {0};
    const uint64_t most = op_dispatch_work(device);
    const uint32_t rows = (uint32_t)(TIMES * most / ((uint64_t)N * K)) + 1;
    uint16_t *halves = malloc((size_t)N * K * sizeof *halves);
    float *x = malloc((size_t)rows * K * sizeof *x), *y = malloc((size_t)rows * N * sizeof *y);
    float wanted[5][7] = {{0}};
    op_weight *w = NULL;
    for (uint32_t n = 0; n < N; n++)
        for (uint32_t k = 0; k < K; k++)
            halves[(size_t)n * K + k] = f32_to_f16((float)((n + k) % 7) - 3.0f);
    for (uint32_t r = 0; r < rows; r++)
        for (uint32_t k = 0; k < K; k++)
            x[(size_t)r * K + k] = (float)((r + k) % 5) - 2.0f;
    for (uint32_t i = 0; i < 5 * 7; i++)
        for (uint32_t k = 0; k < K; k++)
            wanted[i / 7][i % 7] +=
                ((float)((i / 7 + k) % 5) - 2.0f) * ((float)((i % 7 + k) % 7) - 3.0f);

    assert_int_equal(op_weight_create(device, f16, N, K, "w", &w, &err), TEMPER_OK);
    write_rows(w, 0, N, halves);
    gpu_buffer *in = buffer_of(device, (uint64_t)rows * K * sizeof *x, x);
    gpu_buffer *out = buffer_of(device, (uint64_t)rows * N * sizeof *y, NULL);
    const uint64_t before = gpu_device_counters(device).dispatches;
    gpu_recorder *rec = gpu_record_begin(device);
    gpu_ticket ticket;
    op_matmul(rec, w, gpu_whole(in), gpu_whole(out), rows, OP_WRITE);
    gpu_record_readback(rec, gpu_whole(out));
    if (gpu_submit(rec, &ticket, &err) != TEMPER_OK ||
        gpu_wait(device, ticket, y, (uint64_t)rows * N * sizeof *y, &err) != TEMPER_OK)
        fail_msg("%s", err.text);
    assert_true(gpu_device_counters(device).dispatches - before > TIMES);
    for (size_t i = 0; i < (size_t)rows * N; i++)
        if (y[i] != wanted[i / N % 5][i % N % 7])
            fail_msg("row %zu, column %zu: %g, not %g", i / N, i % N, (double)y[i],
                     (double)wanted[i / N % 5][i % N % 7]);
    assert_int_equal(gpu_check_guards(device, &err), TEMPER_OK);
    gpu_buffer_destroy(in);
    gpu_buffer_destroy(out);
    op_weight_destroy(w);
    gpu_device_release(device);
    free(halves);
    free(x);
    free(y);
}

/* Every row holds one value, which tells its place among those around it. */
static float value_of(uint64_t row)
{
    return (float)(row % 31) + (float)(row / 8192 % 29) * 32.0f;
}

static void a_weight_above_two_gib(void **state)
{
    (void)state;
    enum { K = 512, CHUNK = 16384, IDS = 5 };
    const uint64_t n = (UINT64_C(1) << 31) / (K * sizeof(uint16_t)) + 2 * CHUNK + 2;
    gpu_device *device = open_device();
    error err = {0};
    op_weight *w = NULL;
    const uint32_t ids[IDS] = {0, (1u << 20) + 1, (1u << 21) - 1, 1u << 21, (uint32_t)n - 1};
    float ones[K];
    const uint64_t looked_up = (uint64_t)IDS * K * sizeof(float);
    const uint64_t bytes = n * sizeof(float) + looked_up;
    float *both = malloc(bytes);
    uint16_t *halves = malloc((size_t)CHUNK * K * sizeof *halves);
    if (op_weight_create(device, f16, n, K, "w", &w, &err) == TEMPER_DEVICE_MEMORY) {
        print_message("%s\n", err.text);
        gpu_device_release(device);
        free(halves);
        free(both);
        skip();
    }
    assert_non_null(w);
    assert_true(op_weight_bytes(f16, n, K) > (UINT64_C(1) << 31));
    for (uint64_t row = 0; row < n; row += CHUNK) {
        const uint64_t count = n - row < CHUNK ? n - row : CHUNK;
        for (uint64_t i = 0; i < count * K; i++)
            halves[i] = f32_to_f16(value_of(row + i / K));
        write_rows(w, row, count, halves);
    }
    for (uint32_t k = 0; k < K; k++)
        ones[k] = 1.0f;
    gpu_buffer *x = buffer_of(device, sizeof ones, ones), *id = buffer_of(device, sizeof ids, ids);
    gpu_buffer *out = buffer_of(device, n * sizeof(float), NULL);
    gpu_buffer *found = buffer_of(device, looked_up, NULL);
    gpu_recorder *rec = gpu_record_begin(device);
    gpu_ticket ticket;
    op_matmul(rec, w, gpu_whole(x), gpu_whole(out), 1, OP_WRITE);
    op_embed(rec, w, gpu_whole(id), gpu_whole(found), IDS, 1.0f);
    gpu_record_readback(rec, gpu_whole(out));
    gpu_record_readback(rec, gpu_whole(found));
    if (gpu_submit(rec, &ticket, &err) != TEMPER_OK ||
        gpu_wait(device, ticket, both, bytes, &err) != TEMPER_OK)
        fail_msg("%s", err.text);
    for (uint64_t i = 0; i < n; i++)
        if (both[i] != (float)K * value_of(i))
            fail_msg("row %llu: %g, not %g", (unsigned long long)i, (double)both[i],
                     (double)((float)K * value_of(i)));
    for (uint64_t i = 0; i < (uint64_t)IDS * K; i++)
        if (both[n + i] != value_of(ids[i / K]))
            fail_msg("row %u, looked up: %g", ids[i / K], (double)both[n + i]);
    assert_int_equal(gpu_check_guards(device, &err), TEMPER_OK);
    gpu_buffer_destroy(x);
    gpu_buffer_destroy(id);
    gpu_buffer_destroy(out);
    gpu_buffer_destroy(found);
    op_weight_destroy(w);
    gpu_device_release(device);
    free(both);
    free(halves);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(long_work_is_cut),
        cmocka_unit_test(a_weight_above_two_gib),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
