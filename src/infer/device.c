#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "infer/infer.h"
#include "op/choices.h"

enum { MAX_LIMITS = 32, PROFILE_ROWS = 64 };

const char *temper_version(void)
{
    return TEMPER_VERSION;
}

const char *temper_webgpu(void)
{
    return gpu_library_name();
}

void temper_free(void *memory)
{
    mem_free(memory);
}

/* "maxBufferSize=1234" into a name (copied to `name`, of `size` bytes) and a value. */
static temper_status parse_limit(const char *text, char *name, size_t size, uint64_t *value,
                                 error *err)
{
    const char *equals = strchr(text, '=');
    if (equals == NULL || equals == text || (size_t)(equals - text) >= size)
        return error_set(err, TEMPER_BAD_ARGUMENT, "the limit \"%s\" is not of the form NAME=VALUE",
                         text);
    char *end = NULL;
    errno = 0;
    const unsigned long long number = strtoull(equals + 1, &end, 10);
    if (equals[1] < '0' || equals[1] > '9' || *end != '\0' || errno != 0)
        return error_set(err, TEMPER_BAD_ARGUMENT,
                         "the limit \"%s\" needs a whole number after the =", text);
    if (number == 0)
        return error_set(err, TEMPER_BAD_ARGUMENT,
                         "the limit \"%s\": with 0 nothing can be computed", text);
    memcpy(name, text, (size_t)(equals - text));
    name[equals - text] = '\0';
    *value = number;
    return TEMPER_OK;
}

temper_status temper_device_open(const temper_device_desc *desc, temper_device **out,
                                 temper_error *err)
{
    assert(out != NULL);
    const temper_device_desc none = {0};
    if (desc == NULL)
        desc = &none;
    gpu_limit_override limits[MAX_LIMITS];
    char names[MAX_LIMITS][64];
    uint32_t without = 0;
    temper_status status = TEMPER_OK;
    if (desc->limit_count > MAX_LIMITS)
        return error_set(err, TEMPER_BAD_ARGUMENT, "%u limits; at most %d can be given",
                         desc->limit_count, MAX_LIMITS);
    if (desc->without != NULL)
        status = gpu_features_parse(desc->without, &without, err);
    for (uint32_t i = 0; status == TEMPER_OK && i < desc->limit_count; i++) {
        status = parse_limit(desc->limits[i], names[i], sizeof names[i], &limits[i].value, err);
        limits[i].name = names[i];
    }
    if (status != TEMPER_OK)
        return status;
    temper_device *device = mem_calloc(1, sizeof *device);
    if (device == NULL)
        return error_set(err, TEMPER_NO_MEMORY, "no memory for a device");
    const gpu_device_desc gpu = {.adapter = desc->adapter,
                                 .without_features = without,
                                 .limits = limits,
                                 .limit_count = desc->limit_count,
                                 .robust = desc->robust};
    status = gpu_device_open(&gpu, &device->gpu, err);
    if (status != TEMPER_OK) {
        mem_free(device);
        return status;
    }
    if (desc->tuning != NULL)
        op_choices_load(device->gpu, desc->tuning);
    atomic_init(&device->references, 1);
    atomic_flag_clear(&device->busy);
    *out = device;
    return TEMPER_OK;
}

static void describe(const gpu_adapter_info *info, uint32_t features, const gpu_limits *limits,
                     temper_adapter *out)
{
    *out = (temper_adapter){.subgroup_min = info->subgroup_min,
                            .subgroup_max = info->subgroup_max,
                            .usable = info->usable};
    memcpy(out->name, info->name, sizeof out->name);
    memcpy(out->driver, info->driver, sizeof out->driver);
    memcpy(out->backend, info->backend, sizeof out->backend);
    memcpy(out->type, info->type, sizeof out->type);
    memcpy(out->reason, info->reason, sizeof out->reason);
    for (uint32_t bit = 1; bit != 0 && bit <= features; bit <<= 1) {
        const size_t at = strlen(out->features);
        if ((features & bit) != 0)
            snprintf(out->features + at, sizeof out->features - at, "%s%s", at == 0 ? "" : ",",
                     gpu_feature_name((gpu_feature)bit));
    }
#define X(field, web_name, initial, higher)                                                        \
    out->limits[out->limit_count++] = (temper_limit){web_name, limits->field};
    GPU_LIMIT_TABLE(X)
#undef X
}

temper_status temper_adapters(temper_adapter *rows, uint32_t capacity, uint32_t *count,
                              temper_error *err)
{
    assert(count != NULL && (rows != NULL || capacity == 0));
    gpu_adapter_info *list = mem_calloc(capacity, sizeof *list);
    if (list == NULL)
        return error_set(err, TEMPER_NO_MEMORY, "no memory for a list of adapters");
    const temper_status status = gpu_adapters(list, capacity, count, err);
    for (uint32_t i = 0; status == TEMPER_OK && i < *count && i < capacity; i++)
        describe(&list[i], list[i].features, &list[i].limits, &rows[i]);
    mem_free(list);
    return status;
}

void temper_device_describe(const temper_device *device, temper_adapter *out)
{
    assert(device != NULL && out != NULL);
    describe(gpu_device_adapter(device->gpu), gpu_device_features(device->gpu),
             gpu_device_limits(device->gpu), out);
}

temper_device *temper_device_retain(temper_device *device)
{
    assert(device != NULL);
    atomic_fetch_add(&device->references, 1);
    return device;
}

void temper_device_release(temper_device *device)
{
    if (device == NULL || atomic_fetch_sub(&device->references, 1) != 1)
        return;
    gpu_device_release(device->gpu);
    mem_free(device);
}

temper_device_stats temper_device_get_stats(const temper_device *device)
{
    assert(device != NULL);
    const gpu_counters c = gpu_device_counters(device->gpu);
    return (temper_device_stats){
        .live_bytes = c.live_total,
        .peak_bytes = c.peak_total,
        .weight_bytes = c.live_bytes[GPU_PURPOSE_WEIGHTS],
        .cache_bytes = c.live_bytes[GPU_PURPOSE_CACHE],
        .scratch_bytes = c.live_bytes[GPU_PURPOSE_SCRATCH],
        .dispatches = c.dispatches,
        .submits = c.submits,
        .readbacks = c.readbacks,
        .buffers_created = c.buffers_created,
        .bind_groups_created = c.bind_groups_created,
        .pipelines_created = c.pipelines_created,
        .work_bytes = c.work_bytes,
        .work_operations = {c.work_operations[GPU_UNIT_F32], c.work_operations[GPU_UNIT_DOT4],
                            c.work_operations[GPU_UNIT_MATRIX]},
    };
}

/* The same units under two names: the public header knows nothing of the rooms. */
static_assert(TEMPER_UNIT_F32 == (int)GPU_UNIT_F32 && TEMPER_UNIT_DOT4 == (int)GPU_UNIT_DOT4 &&
                  TEMPER_UNIT_MATRIX == (int)GPU_UNIT_MATRIX && TEMPER_UNITS == (int)GPU_UNITS,
              "temper_unit and gpu_unit differ");

temper_status temper_device_profile(temper_device *device, bool on, temper_error *err)
{
    assert(device != NULL);
    const temper_status status = infer_enter(device, err);
    if (status != TEMPER_OK)
        return status;
    const temper_status switched =
        gpu_profile(device->gpu, on ? GPU_PROFILE_DISPATCHES : GPU_PROFILE_OFF, err);
    infer_leave(device);
    return switched;
}

uint32_t temper_device_profile_events(temper_device *device, temper_profile_event *events,
                                      uint32_t capacity)
{
    assert(device != NULL && (events != NULL || capacity == 0));
    const gpu_profile_event *list = NULL;
    const uint32_t count = gpu_profile_events(device->gpu, &list);
    for (uint32_t i = 0; i < count && i < capacity; i++)
        events[i] = (temper_profile_event){
            .kernel = list[i].kernel,
            .submit = list[i].submit,
            .submitted = list[i].submitted,
            .begin = (double)list[i].begin * 1e-9,
            .end = (double)list[i].end * 1e-9,
            .bytes = list[i].bytes,
            .operations = list[i].operations,
        };
    return count;
}

uint32_t temper_device_profile_take(temper_device *device, temper_profile_row *rows,
                                    uint32_t capacity)
{
    assert(device != NULL && (rows != NULL || capacity == 0));
    gpu_profile_row list[PROFILE_ROWS];
    const uint32_t most = capacity < PROFILE_ROWS ? capacity : PROFILE_ROWS;
    const uint32_t count = gpu_profile_take(device->gpu, list, most);
    for (uint32_t i = 0; i < count && i < most; i++)
        rows[i] = (temper_profile_row){
            .kernel = list[i].kernel,
            .unit = (temper_unit)list[i].unit,
            .dispatches = list[i].dispatches,
            .seconds = list[i].seconds,
            .bytes = list[i].bytes,
            .operations = list[i].operations,
        };
    return count;
}

const char *temper_device_name(const temper_device *device)
{
    assert(device != NULL);
    return gpu_device_adapter(device->gpu)->name;
}

temper_status infer_enter(temper_device *device, error *err)
{
    if (atomic_flag_test_and_set(&device->busy))
        return error_set(err, TEMPER_BUSY, "the device is in use by another call");
    const temper_status status = gpu_device_status(device->gpu, err);
    if (status != TEMPER_OK)
        atomic_flag_clear(&device->busy);
    return status;
}

void infer_leave(temper_device *device)
{
    atomic_flag_clear(&device->busy);
}
