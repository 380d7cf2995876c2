/*
 * products_check.c - are the device's matrix units good? Every row of matmul's table that uses them
 * against the row that runs everywhere.
 */
#include <math.h>

#include "base/checked.h"
#include "base/half.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/random.h"
#include "op/op.h"
#include "op/rows.h"

/* Marks that this room keeps with a device. */
enum { MARK_CHECKED = 1, MARK_HALF_GOOD = 2 };

enum { CHECK_ROWS = 70, CHECK_COLS = 200 };

static const weight_format check_format = {LAYOUT_Q4, SCALE_F16, 32};

/* The smallest K has scales that f16 holds as subnormal numbers: a device that takes them for 0 is
 * found out. */
static const struct {
    uint32_t k;
    float scale;
} trials[] = {{32, 2e-5f}, {576, 0.01f}, {2048, 0.01f}, {8192, 0.01f}};
enum { TRIALS = sizeof trials / sizeof *trials };

typedef struct trial {
    gpu_buffer *x, *y, *scratch, *sums;
    op_weight *weight;
    float *got, *want;
} trial;

static void trial_close(trial *t)
{
    gpu_buffer_destroy(t->x);
    gpu_buffer_destroy(t->y);
    gpu_buffer_destroy(t->scratch);
    gpu_buffer_destroy(t->sums);
    op_weight_destroy(t->weight);
    mem_free(t->got);
    mem_free(t->want);
}

/* 4-bit weights with scales from `scale` to three times it, and inputs around 1. */
static temper_status trial_fill(trial *t, gpu_device *device, uint32_t k, float scale, error *err)
{
    random_state random = {.state = k};
    const uint64_t stride = weight_stride(CHECK_COLS);
    const uint64_t words = weight_plane_words(check_format, WEIGHT_DATA, k, stride);
    const uint64_t pairs = weight_plane_words(check_format, WEIGHT_SCALES, k, stride);
    uint32_t *data = mem_calloc(words, sizeof *data), *scales = mem_calloc(pairs, sizeof *scales);
    float *x = mem_calloc(CHECK_ROWS, k * sizeof *x);
    temper_status status = TEMPER_OK;
    if (data == NULL || scales == NULL || x == NULL)
        status = error_set(err, TEMPER_NO_MEMORY, "no memory to check the device");
    for (uint64_t i = 0; status == TEMPER_OK && i < words; i++)
        data[i] = (uint32_t)random_u64(&random);
    for (uint64_t i = 0; status == TEMPER_OK && i < pairs; i++) {
        const uint32_t low = f32_to_f16(scale * (float)(1 + 2 * random_unit(&random)));
        const uint32_t high = f32_to_f16(scale * (float)(1 + 2 * random_unit(&random)));
        scales[i] = low | high << 16;
    }
    for (uint64_t i = 0; status == TEMPER_OK && i < (uint64_t)CHECK_ROWS * k; i++)
        x[i] = (float)random_normal(&random);
    if (status == TEMPER_OK)
        status =
            op_weight_create(device, check_format, CHECK_COLS, k, "device check", &t->weight, err);
    if (status == TEMPER_OK)
        status = op_weight_write_rows(t->weight, 0, CHECK_COLS,
                                      (weight_planes){{data, NULL, scales}}, err);
    if (status == TEMPER_OK)
        status = gpu_write(device, t->x, 0, x, (uint64_t)CHECK_ROWS * k * 4, err);
    mem_free(data);
    mem_free(scales);
    mem_free(x);
    return status;
}

static temper_status trial_open(trial *t, gpu_device *device, const op_kernel_row *row, uint32_t k,
                                float scale, error *err)
{
    const uint64_t y_bytes = (uint64_t)CHECK_ROWS * CHECK_COLS * 4;
    const op_product_bytes bytes =
        op_product_scratch_bytes(device, row, check_format, CHECK_COLS, k, CHECK_ROWS);
    const struct {
        gpu_buffer **buffer;
        uint64_t size;
        const char *label;
    } buffers[] = {{&t->x, (uint64_t)CHECK_ROWS * k * 4, "device check x"},
                   {&t->y, y_bytes, "device check y"},
                   {&t->scratch, bytes.scratch, "device check scratch"},
                   {&t->sums, bytes.sums, "device check sums"}};
    t->got = mem_calloc(1, y_bytes);
    t->want = mem_calloc(1, y_bytes);
    if (t->got == NULL || t->want == NULL)
        return error_set(err, TEMPER_NO_MEMORY, "no memory to check the device");
    temper_status status = TEMPER_OK;
    for (uint32_t i = 0; status == TEMPER_OK && i < sizeof buffers / sizeof *buffers; i++)
        status = gpu_buffer_create(device, buffers[i].size, GPU_PURPOSE_SCRATCH, buffers[i].label,
                                   buffers[i].buffer, err);
    return status == TEMPER_OK ? trial_fill(t, device, k, scale, err) : status;
}

/* One product by the row, or with NULL as op_matmul computes it. */
static void trial_record(gpu_recorder *rec, const trial *t, const op_kernel_row *row)
{
    const op_products with = {.scratch = gpu_whole(t->scratch), .sums = gpu_whole(t->sums)};
    if (row == NULL)
        op_matmul(rec, t->weight, gpu_whole(t->x), gpu_whole(t->y), CHECK_ROWS, OP_WRITE);
    else
        op_record_product(rec, t->weight, row, &(op_prologue){0}, gpu_whole(t->x), gpu_whole(t->y),
                          CHECK_ROWS, 0, CHECK_COLS, OP_WRITE, &with);
}

static temper_status trial_run(const trial *t, gpu_device *device, const op_kernel_row *row,
                               float *out, error *err)
{
    gpu_recorder *rec = gpu_record_begin(device);
    trial_record(rec, t, row);
    gpu_record_readback(rec, gpu_whole(t->y));
    gpu_ticket ticket = {0};
    const temper_status status = gpu_submit(rec, &ticket, err);
    return status == TEMPER_OK ? gpu_wait(device, ticket, out, gpu_buffer_size(t->y), err) : status;
}

/* Largest difference under 1 % of the mean magnitude, mean difference under 0.5 % of it. */
static bool close_enough(const float *got, const float *want, uint64_t count)
{
    double size = 0, largest = 0, sum = 0;
    for (uint64_t i = 0; i < count; i++) {
        const double off = fabs((double)got[i] - (double)want[i]);
        if (!isfinite(got[i]))
            return false;
        size += fabs((double)want[i]);
        largest = fmax(largest, off);
        sum += off;
    }
    return largest < 0.01 * size / (double)count && sum < 0.005 * size;
}

temper_status op_row_agrees(gpu_device *device, const op_kernel_row *row, bool *agrees, error *err)
{
    *agrees = true;
    for (uint32_t i = 0; *agrees && i < TRIALS; i++) {
        trial t = {0};
        if (!op_tile_takes_k(row->tile, trials[i].k))
            continue;
        temper_status status = trial_open(&t, device, row, trials[i].k, trials[i].scale, err);
        if (status == TEMPER_OK)
            status = trial_run(&t, device, NULL, t.want, err);
        if (status == TEMPER_OK)
            status = trial_run(&t, device, row, t.got, err);
        if (status == TEMPER_OK)
            *agrees = close_enough(t.got, t.want, (uint64_t)CHECK_ROWS * CHECK_COLS);
        trial_close(&t);
        if (status != TEMPER_OK)
            return status;
    }
    return TEMPER_OK;
}

static bool is_tried(gpu_device *device, const op_kernel_row *row)
{
    return row->tile != NULL && op_row_runs(device, row);
}

/* Asks for the pipelines of all rows, so that they are made side by side. */
static temper_status ask(gpu_device *device, error *err)
{
    for (uint32_t i = 0; i < op_table_matmul.count; i++) {
        const op_kernel_row *row = &op_table_matmul.rows[i];
        trial t = {0};
        if (!is_tried(device, row))
            continue;
        temper_status status = trial_open(&t, device, row, trials[0].k, trials[0].scale, err);
        if (status == TEMPER_OK) {
            gpu_recorder *rec = gpu_record_prepare(device);
            trial_record(rec, &t, row);
            status = gpu_submit(rec, NULL, err);
        }
        trial_close(&t);
        if (status != TEMPER_OK)
            return status;
    }
    return TEMPER_OK;
}

/* Whether the row is good, and why not where it is not. Memory that is lacking and a device that
 * has failed are errors; a kernel that the driver does not take is a row that is no good. */
static temper_status judge(gpu_device *device, const op_kernel_row *row, bool *good, error *why,
                           error *err)
{
    const temper_status status = op_row_agrees(device, row, good, why);
    if (status == TEMPER_OK && !*good)
        error_set(why, TEMPER_INTERNAL, "the results of %s are wrong", row->name);
    if (status == TEMPER_OK)
        return TEMPER_OK;
    if (status == TEMPER_NO_MEMORY || status == TEMPER_DEVICE_MEMORY)
        return error_set(err, status, "%s", why->text);
    const temper_status device_status = gpu_device_status(device, err);
    if (device_status == TEMPER_OK)
        gpu_pipelines_wait(device, NULL); /* what it tells is told here */
    *good = false;
    return device_status;
}

temper_status op_matmul_check(gpu_device *device, bool *half, error *err)
{
    *half = (gpu_device_marks(device) & MARK_HALF_GOOD) != 0;
    if (gpu_device_marks(device) & MARK_CHECKED)
        return TEMPER_OK;
    bool any = false, good = true;
    temper_status status = ask(device, err);
    for (uint32_t i = 0; status == TEMPER_OK && good && i < op_table_matmul.count; i++) {
        const op_kernel_row *row = &op_table_matmul.rows[i];
        if (!is_tried(device, row))
            continue;
        any = true;
        error why = {0};
        status = judge(device, row, &good, &why, err);
        if (status == TEMPER_OK && !good)
            log_message(LOG_WARNING, "%s does not multiply f16 matrices (%s): products stay in f32",
                        gpu_device_adapter(device)->name, why.text);
    }
    if (status != TEMPER_OK)
        return status;
    *half = any && good;
    gpu_device_mark(device, MARK_CHECKED | (*half ? MARK_HALF_GOOD : 0u));
    return TEMPER_OK;
}
