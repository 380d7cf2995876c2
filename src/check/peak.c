#include "check/peak.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/log.h"
#include "gpu/notes.h"
#include "kernels/kernels.gen.h"
#include "op/rows.h"

enum {
    LANES = 256,
    GROUPS = 4224, /* four times what a large card holds at once */
    GROUPS_SOFTWARE = 64,
    READ_GROUPS_SOFTWARE = 1024, /* it reads in the order of the groups: each takes a short run */
    LEAST_ROUNDS = 16,
    MOST_ROUNDS = 1 << 16,
    MATRIX_VALUES = 2048, /* that a workgroup of peak_matrix writes */
    MATRIX_SUBGROUP = 32,
};

/* Operations of a lane, or of a subgroup, in a turn of each kernel's loop. */
static const double f32_operations = 64, dot4_operations = 128, matrix_operations = 65536;

static const char *const unit_names[GPU_UNITS] = {
    [GPU_UNIT_F32] = "f32", [GPU_UNIT_DOT4] = "dot4", [GPU_UNIT_MATRIX] = "matrix"};

const char *check_unit_name(gpu_unit unit)
{
    assert(unit < GPU_UNITS);
    return unit_names[unit];
}

/* ---- measuring ------------------------------------------------------------------------------- */

typedef struct peak_run {
    gpu_device *device;
    gpu_unit unit;
    gpu_buffer *x, *out;
    uint32_t groups, rounds;
} peak_run;

static void record_rounds(gpu_recorder *rec, void *user)
{
    const peak_run *r = user;
    const gpu_view out = gpu_whole(r->out);
    if (r->unit == GPU_UNIT_F32)
        kernel_peak_f32_dispatch(
            rec, kernel_peak_f32_get(r->device), &(struct kernel_peak_f32_views){.out = out},
            &(struct kernel_peak_f32_params){.rounds = r->rounds}, r->groups, 1, 1);
    else if (r->unit == GPU_UNIT_DOT4)
        kernel_peak_dot4_dispatch(
            rec, kernel_peak_dot4_get(r->device), &(struct kernel_peak_dot4_views){.out = out},
            &(struct kernel_peak_dot4_params){.rounds = r->rounds}, r->groups, 1, 1);
    else
        kernel_peak_matrix_dispatch(
            rec, kernel_peak_matrix_get(r->device), &(struct kernel_peak_matrix_views){.out = out},
            &(struct kernel_peak_matrix_params){.rounds = r->rounds}, r->groups, 1, 1);
}

static double operations_of(const peak_run *r)
{
    const double turns = (double)r->groups * r->rounds;
    switch (r->unit) {
    case GPU_UNIT_F32:
        return turns * LANES * f32_operations;
    case GPU_UNIT_DOT4:
        return turns * LANES * dot4_operations;
    default:
        return turns * LANES / MATRIX_SUBGROUP * matrix_operations;
    }
}

/* Doubles the rounds until a dispatch takes long enough for its start and end to vanish in it. */
static temper_status measure_unit(check_timer *timer, peak_run *r, check_peak *out, error *err)
{
    const double enough = op_device_is_software(r->device) ? 0.05 : 0.002;
    for (r->rounds = LEAST_ROUNDS; r->rounds <= MOST_ROUNDS; r->rounds *= 2) {
        check_time time;
        const temper_status status = check_timer_measure(timer, record_rounds, r, &time, err);
        if (status != TEMPER_OK)
            return status;
        if (time.least > 0)
            out->operations[r->unit] =
                fmax(out->operations[r->unit], operations_of(r) / time.least);
        out->steady = out->steady && time.steady;
        if (time.least >= enough)
            break;
    }
    return TEMPER_OK;
}

static void record_read(gpu_recorder *rec, void *user)
{
    const peak_run *r = user;
    const struct kernel_peak_read_views views = {.x = gpu_whole(r->x), .out = gpu_whole(r->out)};
    const struct kernel_peak_read_params params = {.quads = (uint32_t)(gpu_buffer_size(r->x) / 16)};
    kernel_peak_read_dispatch(rec, kernel_peak_read_get(r->device), &views, &params, r->groups, 1,
                              1);
}

/* A buffer that no cache holds: a gigabyte where the device has it, else half of that and so on. */
static temper_status open_source(peak_run *r, error *err)
{
    const gpu_limits *limits = gpu_device_limits(r->device);
    const uint64_t turn = (uint64_t)r->groups * LANES * 4 * 16;
    const uint64_t most = op_device_is_software(r->device) ? 64 << 20 : 1 << 30;
    uint64_t bytes = min_u64(most, min_u64(limits->max_storage_binding, limits->max_buffer_size));
    temper_status status = TEMPER_DEVICE_MEMORY;
    for (; status == TEMPER_DEVICE_MEMORY && bytes >= turn; bytes /= 2) {
        error again = {0};
        status = gpu_buffer_create(r->device, bytes / turn * turn, GPU_PURPOSE_SCRATCH, "peak",
                                   &r->x, &again);
        if (status != TEMPER_OK && (status != TEMPER_DEVICE_MEMORY || bytes / 2 < turn))
            return error_set(err, status, "%s", again.text);
    }
    if (r->x == NULL)
        return error_set(err, TEMPER_UNSUPPORTED,
                         "a buffer of %llu bytes, which the device's limits forbid, is needed to "
                         "measure its bandwidth",
                         (unsigned long long)turn);
    return TEMPER_OK;
}

static temper_status measure_read(check_timer *timer, peak_run *r, check_peak *out, error *err)
{
    check_time time;
    const uint32_t groups = r->groups;
    if (op_device_is_software(r->device))
        r->groups = READ_GROUPS_SOFTWARE;
    temper_status status = open_source(r, err);
    if (status == TEMPER_OK)
        status = check_timer_measure(timer, record_read, r, &time, err);
    if (status == TEMPER_OK && time.least > 0)
        out->read_bytes = (double)gpu_buffer_size(r->x) / time.least;
    if (status == TEMPER_OK)
        out->steady = out->steady && time.steady;
    r->groups = groups;
    return status;
}

/* True when peak_matrix computes on this device. */
static bool has_matrices(gpu_device *device)
{
    return (kernel_peak_matrix.needs & ~gpu_device_features(device)) == 0 && op_half_runs(device);
}

static temper_status measure_all(check_timer *timer, peak_run *r, check_peak *out, error *err)
{
    temper_status status = measure_read(timer, r, out, err);
    for (uint32_t unit = 0; status == TEMPER_OK && unit < GPU_UNITS; unit++) {
        r->unit = (gpu_unit)unit;
        if (r->unit != GPU_UNIT_MATRIX || has_matrices(r->device))
            status = measure_unit(timer, r, out, err);
    }
    if (status == TEMPER_OK && !(out->read_bytes > 0 && out->operations[GPU_UNIT_F32] > 0))
        status = error_set(err, TEMPER_DEVICE_ERROR, "the device %s tells no times",
                           gpu_device_adapter(r->device)->name);
    return status;
}

temper_status check_peak_measure(gpu_device *device, check_peak *out, error *err)
{
    const gpu_limits *limits = gpu_device_limits(device);
    check_timer *timer = NULL;
    peak_run r = {.device = device};
    *out = (check_peak){.steady = true};
    if (limits->max_invocations < LANES || limits->max_workgroup_x < LANES)
        return error_set(err, TEMPER_UNSUPPORTED,
                         "the peak of a device is measured with %d lanes a workgroup, which its "
                         "limits forbid",
                         (int)LANES);
    r.groups = op_device_is_software(device) ? GROUPS_SOFTWARE : GROUPS;
    temper_status status = gpu_buffer_create(device, (uint64_t)r.groups * MATRIX_VALUES * 4,
                                             GPU_PURPOSE_SCRATCH, "peak results", &r.out, err);
    if (status == TEMPER_OK)
        status = check_timer_open(device, &timer, err);
    if (status == TEMPER_OK)
        status = measure_all(timer, &r, out, err);
    check_timer_close(timer);
    gpu_buffer_destroy(r.x);
    gpu_buffer_destroy(r.out);
    return status;
}

/* ---- notes ----------------------------------------------------------------------------------- */

void check_peak_print(const check_peak *peak, strbuf *out)
{
    strbuf_printf(out, "read %.6e\n", peak->read_bytes);
    for (uint32_t unit = 0; unit < GPU_UNITS; unit++)
        strbuf_printf(out, "%s %.6e\n", unit_names[unit], peak->operations[unit]);
    strbuf_printf(out, "steady %d\n", peak->steady);
}

/* A line "NAME NUMBER", the number not below `least`; moves *at behind it. */
static bool take_number(const char **at, const char *name, double least, double *out)
{
    const size_t length = strlen(name);
    char *end = NULL;
    if (strncmp(*at, name, length) != 0 || (*at)[length] != ' ' || (*at)[length + 1] < '0' ||
        (*at)[length + 1] > '9')
        return false;
    *out = strtod(*at + length + 1, &end);
    if (*end != '\n' || !isfinite(*out) || *out < least)
        return false;
    *at = end + 1;
    return true;
}

bool check_peak_parse(const char *text, check_peak *out)
{
    double steady = 0;
    bool right = take_number(&text, "read", 1.0, &out->read_bytes);
    for (uint32_t unit = 0; unit < GPU_UNITS; unit++)
        right = right && take_number(&text, unit_names[unit], unit == GPU_UNIT_F32 ? 1.0 : 0.0,
                                     &out->operations[unit]);
    right = right && take_number(&text, "steady", 0.0, &steady) && *text == '\0';
    out->steady = steady > 0;
    return right;
}

static temper_status measure_and_note(gpu_device *device, const char *folder, check_peak *out,
                                      error *err)
{
    strbuf body = {0};
    error why = {0};
    const temper_status status = check_peak_measure(device, out, err);
    if (status != TEMPER_OK || folder == NULL)
        return status;
    check_peak_print(out, &body);
    if (body.failed)
        error_set(&why, TEMPER_NO_MEMORY, "no memory");
    if (!body.failed &&
        gpu_note_write(device, folder, "peak", strbuf_text(&body), &why) == TEMPER_OK)
        error_clear(&why);
    if (why.status != TEMPER_OK)
        log_message(LOG_WARNING, "the peak of this device is not kept: %s", why.text);
    strbuf_free(&body);
    return TEMPER_OK;
}

temper_status check_peak_get(gpu_device *device, const char *folder, bool fresh, check_peak *out,
                             error *err)
{
    strbuf body = {0};
    error why = {0};
    bool found = false;
    if (folder != NULL && !fresh) {
        temper_status status = gpu_note_read(device, folder, "peak", &body, &why);
        found = status == TEMPER_OK && body.length > 0;
        if (found && !check_peak_parse(strbuf_text(&body), out)) {
            status = error_set(&why, TEMPER_BAD_FILE, "the note is damaged");
            found = false;
        }
        if (status != TEMPER_OK)
            log_message(LOG_WARNING, "the peak of this device is measured anew: %s", why.text);
    }
    strbuf_free(&body);
    return found ? TEMPER_OK : measure_and_note(device, folder, out, err);
}

double check_peak_seconds(const check_peak *peak, double bytes, const double operations[GPU_UNITS])
{
    double computing = 0;
    for (uint32_t unit = 0; unit < GPU_UNITS; unit++)
        if (peak->operations[unit] > 0)
            computing += operations[unit] / peak->operations[unit];
    return fmax(peak->read_bytes > 0 ? bytes / peak->read_bytes : 0, computing);
}
