#include "check/timing.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/mem.h"
#include "kernels/kernels.gen.h"
#include "op/rows.h"

enum {
    BATCHES = 5,
    MOST_TIMES = 1024,         /* recordings a batch */
    MOST_DISPATCHES = 1 << 13, /* a batch */
    CANARY_GROUPS = 1024,
    CANARY_ROUNDS = 256,
};

struct check_timer {
    gpu_device *device;
    bool timestamps;
    double batch_seconds; /* that a batch takes at least */
    gpu_buffer *out;      /* of the canary */
    check_canary canary;
};

static uint64_t dispatches_of(const check_timer *t)
{
    return gpu_device_counters(t->device).dispatches;
}

/* GPU seconds of the passes since the last call. */
static double take_seconds(check_timer *t)
{
    const gpu_profile_event *events = NULL;
    const uint32_t count = gpu_profile_events(t->device, &events);
    uint64_t ns = 0;
    for (uint32_t i = 0; i < count; i++)
        ns += (uint64_t)(events[i].end - events[i].begin);
    gpu_profile_take(t->device, NULL, 0);
    return (double)ns * 1e-9;
}

/* Seconds of one submit of so many recordings. */
static temper_status run(check_timer *t, check_record record, void *user, uint32_t times,
                         double *seconds, error *err)
{
    temper_status status =
        t->timestamps ? gpu_profile(t->device, GPU_PROFILE_PASSES, err) : TEMPER_OK;
    if (status != TEMPER_OK)
        return status;
    gpu_recorder *rec = gpu_record_begin(t->device);
    for (uint32_t i = 0; i < times; i++)
        record(rec, user);
    gpu_ticket ticket = {0};
    const double start = clock_seconds();
    status = gpu_submit(rec, &ticket, err);
    if (status == TEMPER_OK)
        status = gpu_wait(t->device, ticket, NULL, 0, err);
    *seconds = clock_seconds() - start;
    if (!t->timestamps)
        return status;
    if (status == TEMPER_OK)
        *seconds = take_seconds(t);
    const temper_status off = gpu_profile(t->device, GPU_PROFILE_OFF, err);
    return status != TEMPER_OK ? status : off;
}

/* ---- the canary ------------------------------------------------------------------------------ */

static void record_canary(gpu_recorder *rec, void *user)
{
    const check_timer *t = user;
    const struct kernel_peak_f32_views views = {.out = gpu_whole(t->out)};
    const struct kernel_peak_f32_params params = {.rounds = CANARY_ROUNDS};
    kernel_peak_f32_dispatch(rec, kernel_peak_f32_get(t->device), &views, &params, CANARY_GROUPS, 1,
                             1);
}

static temper_status run_canary(void *user, double *seconds, error *err)
{
    return run(user, record_canary, user, 1, seconds, err);
}

temper_status check_timer_open(gpu_device *device, check_timer **out, error *err)
{
    check_timer *t = mem_calloc(1, sizeof *t);
    if (t == NULL)
        return error_set(err, TEMPER_NO_MEMORY, "no memory for a timer");
    const bool software = op_device_is_software(device);
    t->device = gpu_device_retain(device);
    t->timestamps = (gpu_device_features(device) & GPU_FEATURE_TIMESTAMPS) != 0;
    /* The host's clock sees the submit too, which must vanish in the batch. */
    t->batch_seconds = software ? 0.02 : t->timestamps ? 0.002 : 0.05;
    temper_status status = gpu_buffer_create(device, (uint64_t)CANARY_GROUPS * 256 * 4,
                                             GPU_PURPOSE_SCRATCH, "canary", &t->out, err);
    /* A CPU has no clock to speak of, and would take a second for each look at it. */
    if (!software)
        t->canary = (check_canary){.run = run_canary, .user = t};
    if (status == TEMPER_OK && !software) {
        double ignored = 0; /* the first run waits for the compiler */
        status = run_canary(t, &ignored, err);
    }
    if (status != TEMPER_OK) {
        check_timer_close(t);
        return status;
    }
    *out = t;
    return TEMPER_OK;
}

void check_timer_close(check_timer *timer)
{
    if (timer == NULL)
        return;
    gpu_buffer_destroy(timer->out);
    gpu_device_release(timer->device);
    mem_free(timer);
}

check_canary *check_timer_canary(check_timer *timer)
{
    return &timer->canary;
}

/* ---- batches --------------------------------------------------------------------------------- */

typedef struct measuring {
    check_timer *timer;
    check_record record;
    void *user;
    uint32_t times;
    double samples[BATCHES];
} measuring;

static int ascending(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static temper_status measure_batches(void *user, error *err)
{
    measuring *m = user;
    temper_status status = TEMPER_OK;
    for (uint32_t i = 0; status == TEMPER_OK && i < BATCHES; i++) {
        status = run(m->timer, m->record, m->user, m->times, &m->samples[i], err);
        m->samples[i] /= m->times;
    }
    return status;
}

/* Finds how many recordings a batch takes; the first of them wait for pipelines. */
static temper_status find_times(measuring *m, error *err)
{
    check_timer *t = m->timer;
    double seconds = 0;
    temper_status status = run(t, m->record, m->user, 1, &seconds, err);
    for (m->times = 1; status == TEMPER_OK; m->times *= 2) {
        const uint64_t started = dispatches_of(t);
        status = run(t, m->record, m->user, m->times, &seconds, err);
        if (seconds >= t->batch_seconds || m->times >= MOST_TIMES ||
            (dispatches_of(t) - started) * 2 > MOST_DISPATCHES)
            break;
    }
    return status;
}

temper_status check_timer_measure(check_timer *timer, check_record record, void *user,
                                  check_time *out, error *err)
{
    measuring m = {.timer = timer, .record = record, .user = user};
    bool steady = false;
    *out = (check_time){0};
    temper_status status = find_times(&m, err);
    if (status == TEMPER_OK)
        status = check_between_canaries(&timer->canary, measure_batches, &m, &steady, err);
    if (status != TEMPER_OK)
        return status;
    qsort(m.samples, BATCHES, sizeof *m.samples, ascending);
    *out = (check_time){m.samples[BATCHES / 2], m.samples[0], m.times, steady};
    return TEMPER_OK;
}
