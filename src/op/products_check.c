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

/* Marks that this room keeps with a device: of what TEMPER_LOSSY_NONE allows, and shifted by twice
 * its number, of what each option opens. */
enum { MARK_CHECKED = 1, MARK_GOOD = 2 };

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
    temper_lossy lossy;
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
    const op_products with = {
        .scratch = gpu_whole(t->scratch), .sums = gpu_whole(t->sums), .lossy = t->lossy};
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

/* Rounding to f16 is off by 2e-4 on average, of operands once, of f16 sums at each of up to K
 * additions: a sum that grows as a random walk ends sqrt(K / 2) times that off, and the largest of
 * 14000 is five times as much. Twice that, beside what operands are allowed. */
static op_tolerance tolerance_for(const op_kernel_row *row, uint32_t k)
{
    const double steps = row->lossy != 0 ? k : 0;
    return (op_tolerance){op_tolerance_operands.largest + 2.5e-3 * sqrt(steps),
                          op_tolerance_operands.mean + 3e-4 * sqrt(steps)};
}

temper_status op_row_agrees(gpu_device *device, const op_kernel_row *row, temper_lossy lossy,
                            bool *agrees, error *err)
{
    *agrees = true;
    for (uint32_t i = 0; *agrees && i < TRIALS; i++) {
        trial t = {.lossy = lossy};
        if (!op_tile_takes_k(row->tile, trials[i].k))
            continue;
        temper_status status = trial_open(&t, device, row, trials[i].k, trials[i].scale, err);
        if (status == TEMPER_OK)
            status = trial_run(&t, device, NULL, t.want, err);
        if (status == TEMPER_OK)
            status = trial_run(&t, device, row, t.got, err);
        if (status == TEMPER_OK)
            *agrees = op_close_enough(t.got, t.want, (uint64_t)CHECK_ROWS * CHECK_COLS,
                                      tolerance_for(row, trials[i].k));
        trial_close(&t);
        if (status != TEMPER_OK)
            return status;
    }
    return TEMPER_OK;
}

static bool is_tried(gpu_device *device, const op_kernel_row *row, temper_lossy lossy)
{
    const uint32_t opened_by = lossy != TEMPER_LOSSY_NONE ? OP_OPENED_BY(lossy) : 0;
    return row->tile != NULL && (row->lossy & opened_by) == opened_by &&
           (row->lossy != 0) == (opened_by != 0) && op_row_runs(device, row);
}

/* Asks for the pipelines of all rows, so that they are made side by side. */
static temper_status ask(gpu_device *device, temper_lossy lossy, error *err)
{
    for (uint32_t i = 0; i < op_table_matmul.count; i++) {
        const op_kernel_row *row = &op_table_matmul.rows[i];
        trial t = {.lossy = lossy};
        if (!is_tried(device, row, lossy))
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

static void tell(gpu_device *device, temper_lossy lossy, const error *why)
{
    const char *name = gpu_device_adapter(device)->name;
    if (lossy == TEMPER_LOSSY_NONE)
        log_message(LOG_WARNING, "%s does not multiply f16 matrices (%s): products stay in f32",
                    name, why->text);
    else
        log_message(LOG_WARNING, "%s does not add f16 matrices up in f16 (%s): %s goes without",
                    name, why->text, temper_lossy_name(lossy));
}

/* Tries all rows on matrix units that are always open (TEMPER_LOSSY_NONE) or that an option opens;
 * the first time on a device. */
static temper_status check_rows(gpu_device *device, temper_lossy lossy, bool *all_good, error *err)
{
    const uint32_t shift = 2 * (uint32_t)lossy, marks = gpu_device_marks(device) >> shift;
    *all_good = (marks & MARK_GOOD) != 0;
    if (marks & MARK_CHECKED)
        return TEMPER_OK;
    bool any = false, good = true;
    temper_status status = ask(device, lossy, err);
    for (uint32_t i = 0; status == TEMPER_OK && good && i < op_table_matmul.count; i++) {
        const op_kernel_row *row = &op_table_matmul.rows[i];
        if (!is_tried(device, row, lossy))
            continue;
        any = true;
        error why = {0};
        const temper_status tried = op_row_agrees(device, row, lossy, &good, &why);
        status = op_judge(device, row->name, tried, &good, &why, err);
        if (status == TEMPER_OK && !good)
            tell(device, lossy, &why);
    }
    if (status != TEMPER_OK)
        return status;
    *all_good = any && good;
    gpu_device_mark(device, (MARK_CHECKED | (*all_good ? MARK_GOOD : 0u)) << shift);
    return TEMPER_OK;
}

temper_status op_matmul_check(gpu_device *device, bool *half, error *err)
{
    return check_rows(device, TEMPER_LOSSY_NONE, half, err);
}

temper_status op_matmul_check_lossy(gpu_device *device, temper_lossy lossy, bool *half_sums,
                                    error *err)
{
    bool runs = lossy == TEMPER_LOSSY_NONE;
    *half_sums = false;
    for (uint32_t i = 0; !runs && i < op_table_matmul.count; i++) {
        const op_kernel_row *row = &op_table_matmul.rows[i];
        runs = (row->lossy & OP_OPENED_BY(lossy)) != 0 && op_row_runs(device, row);
    }
    if (!runs)
        return error_set(err, TEMPER_UNSUPPORTED,
                         "%s runs no kernel of lossy %s: f16 or workgroups of 256 are lacking",
                         gpu_device_adapter(device)->name, temper_lossy_name(lossy));
    if (lossy != TEMPER_LOSSY_F16_SUMS)
        return TEMPER_OK;
    return check_rows(device, lossy, half_sums, err);
}
