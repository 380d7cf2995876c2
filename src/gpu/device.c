/*
 * device.c - opening and closing a device, its first failure, and waiting for the library.
 */
#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/checked.h"
#include "base/log.h"
#include "base/mem.h"
#include "gpu/library.h"

/* ---- the first failure ---------------------------------------------------------------------- */

void gpu_device_fail(gpu_device *device, temper_status status, const char *format, ...)
{
    char text[ERROR_TEXT_BYTES];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    pthread_mutex_lock(&device->failure_lock);
    error_set(&device->failure, status, "%s", text);
    pthread_mutex_unlock(&device->failure_lock);
}

void gpu_device_fail_by_library(gpu_device *device, WGPUErrorType type, const char *where,
                                WGPUStringView message)
{
    char text[GPU_MESSAGE_BYTES];

    gpu_message(text, sizeof text, message);
    if (type == WGPUErrorType_OutOfMemory)
        gpu_device_fail(device, TEMPER_DEVICE_MEMORY, "%s: out of device memory: %s", where, text);
    else
        gpu_device_fail(device, TEMPER_DEVICE_ERROR, "%s: %s: %s", where,
                        type == WGPUErrorType_Validation ? "validation" : "internal error", text);
}

bool gpu_device_lost(gpu_device *device)
{
    pthread_mutex_lock(&device->failure_lock);
    const bool lost = device->lost;
    pthread_mutex_unlock(&device->failure_lock);
    return lost;
}

uint32_t gpu_device_marks(const gpu_device *device)
{
    assert(device != NULL);
    return device->marks;
}

void gpu_device_mark(gpu_device *device, uint32_t bits)
{
    assert(device != NULL);
    device->marks |= bits;
}

void gpu_device_keep(gpu_device *device, void *thing, void (*release)(void *thing))
{
    assert(device != NULL && release != NULL);
    if (device->kept != NULL)
        device->release_kept(device->kept);
    device->kept = thing;
    device->release_kept = release;
}

void *gpu_device_kept(const gpu_device *device)
{
    assert(device != NULL);
    return device->kept;
}

temper_status gpu_device_status(gpu_device *device, error *err)
{
    assert(device != NULL);
    pthread_mutex_lock(&device->failure_lock);
    const error failure = device->failure;
    const bool lost = device->lost;
    pthread_mutex_unlock(&device->failure_lock);

    if (failure.status == TEMPER_OK)
        return TEMPER_OK;
    if (lost && failure.status != TEMPER_DEVICE_LOST)
        return error_set(err, TEMPER_DEVICE_LOST, "the device was lost after: %s", failure.text);
    return error_set(err, failure.status, "%s", failure.text);
}

static void on_lost(WGPUDevice const *handle, WGPUDeviceLostReason reason, WGPUStringView message,
                    void *user, void *unused)
{
    (void)handle;
    (void)unused;
    gpu_device *device = user;
    char text[GPU_MESSAGE_BYTES];

    /* Before the device exists the request's own callback reports; at closing nobody asks. */
    if (device->closing || reason == WGPUDeviceLostReason_FailedCreation ||
        reason == WGPUDeviceLostReason_CallbackCancelled)
        return;
    gpu_message(text, sizeof text, message);
    gpu_device_fail(device, TEMPER_DEVICE_LOST, "the device %s was lost: %s", device->info.name,
                    text);
    pthread_mutex_lock(&device->failure_lock);
    device->lost = true;
    pthread_mutex_unlock(&device->failure_lock);
}

static void on_uncaptured(WGPUDevice const *handle, WGPUErrorType type, WGPUStringView message,
                          void *user, void *unused)
{
    (void)handle;
    (void)unused;
    gpu_device *device = user;

    if (!device->closing)
        gpu_device_fail_by_library(device, type, "outside a submit", message);
}

/* ---- waiting -------------------------------------------------------------------------------- */

bool gpu_await(gpu_device *device, WGPUFuture future, const bool *arrived)
{
    enum { GRACE = 20 };
    int waits_after_loss = 0;

    while (!*arrived) {
        if (!library_wait(device, future, arrived)) {
            gpu_device_fail(device, TEMPER_DEVICE_ERROR, "the WebGPU library refused to wait");
            return *arrived;
        }
        /* A lost device ends every wait; should a callback not come after all, stop asking. */
        if (!*arrived && gpu_device_lost(device)) {
            wgpuInstanceProcessEvents(device->instance);
            if (++waits_after_loss > GRACE)
                return *arrived;
        }
    }
    return true;
}

static void on_work_done(WGPUQueueWorkDoneStatus status, WGPUStringView message, void *user,
                         void *unused)
{
    (void)status;
    (void)message;
    (void)unused;
    *(bool *)user = true;
}

void gpu_await_queue(gpu_device *device)
{
    bool arrived = false;
    const WGPUQueueWorkDoneCallbackInfo callback = {.mode = WGPUCallbackMode_AllowProcessEvents,
                                                    .callback = on_work_done,
                                                    .userdata1 = &arrived};
    const WGPUFuture future = wgpuQueueOnSubmittedWorkDone(device->queue, callback);

    /* The callback writes to this stack frame, so it must have run before the frame ends. */
    while (!gpu_await(device, future, &arrived) && !arrived)
        wgpuInstanceProcessEvents(device->instance);
}

/* ---- opening -------------------------------------------------------------------------------- */

typedef struct device_answer {
    WGPUDevice handle;
    bool arrived;
    char message[GPU_MESSAGE_BYTES];
} device_answer;

static void on_device(WGPURequestDeviceStatus status, WGPUDevice handle, WGPUStringView message,
                      void *user, void *unused)
{
    (void)unused;
    device_answer *answer = user;
    answer->handle = status == WGPURequestDeviceStatus_Success ? handle : NULL;
    if (answer->handle == NULL)
        gpu_message(answer->message, sizeof answer->message, message);
    answer->arrived = true;
}

/* What is asked of the library: as enforced, but nothing worse than its defaults (it would be
 * raised to them anyway), and room for the poisoned edges. */
static WGPULimits required_limits(const gpu_device *device)
{
    const gpu_limits *own = &device->limits;
    const gpu_limits *offered = &device->info.limits;
    const uint64_t edges = device->guard ? 4096 : 0;
    WGPULimits limits = WGPU_LIMITS_INIT;

    limits.maxBufferSize =
        min_u64(max_u64(own->max_buffer_size, 268435456) + edges, offered->max_buffer_size);
    limits.maxStorageBufferBindingSize =
        min_u64(max_u64(own->max_storage_binding, 134217728) + edges, offered->max_storage_binding);
    limits.maxStorageBuffersPerShaderStage = (uint32_t)max_u64(own->max_storage_buffers, 8);
    limits.maxComputeWorkgroupStorageSize = (uint32_t)max_u64(own->max_workgroup_memory, 16384);
    limits.maxComputeInvocationsPerWorkgroup = (uint32_t)max_u64(own->max_invocations, 256);
    limits.maxComputeWorkgroupSizeX = (uint32_t)max_u64(own->max_workgroup_x, 256);
    limits.maxComputeWorkgroupSizeY = (uint32_t)max_u64(own->max_workgroup_y, 256);
    limits.maxComputeWorkgroupSizeZ = (uint32_t)max_u64(own->max_workgroup_z, 64);
    limits.maxComputeWorkgroupsPerDimension = (uint32_t)max_u64(own->max_workgroups, 65535);
    limits.minStorageBufferOffsetAlignment = (uint32_t)min_u64(own->storage_alignment, 256);
    limits.minUniformBufferOffsetAlignment = (uint32_t)min_u64(own->uniform_alignment, 256);
    if (device->features & GPU_FEATURE_IMMEDIATES)
        limits.maxImmediateSize = GPU_PARAMS_BYTES;
    return limits;
}

static temper_status request_device(gpu_device *device, error *err)
{
    WGPUFeatureName features[LIBRARY_FEATURES_MAX];
    const WGPULimits limits = required_limits(device);
    const size_t feature_count = library_feature_names(device->features, features);
    const WGPUDeviceDescriptor desc = {
        .nextInChain = library_device_chain(device->robust),
        .label = gpu_text("temper"),
        .requiredFeatureCount = feature_count,
        .requiredFeatures = features,
        .requiredLimits = &limits,
        .deviceLostCallbackInfo = {.mode = WGPUCallbackMode_AllowSpontaneous, .callback = on_lost,
                                   .userdata1 = device},
        .uncapturedErrorCallbackInfo = {.callback = on_uncaptured, .userdata1 = device},
    };
    device_answer answer = {0};
    const WGPURequestDeviceCallbackInfo callback = {
        .mode = WGPUCallbackMode_AllowProcessEvents, .callback = on_device, .userdata1 = &answer};

    wgpuAdapterRequestDevice(device->adapter, &desc, callback);
    while (!answer.arrived)
        wgpuInstanceProcessEvents(device->instance);
    if (answer.handle == NULL)
        return error_set(err, TEMPER_NO_DEVICE, "the adapter %s gives no device: %s",
                         device->info.name, answer.message);
    device->bound_max = limits.maxStorageBufferBindingSize;
    device->handle = answer.handle;
    device->queue = wgpuDeviceGetQueue(answer.handle);
    return TEMPER_OK;
}

/* True when a limit on workgroups is worse than the adapter's. The library enforces none below
 * WebGPU's defaults, wgpu-native none at all on sizes that are overrides. */
static bool must_measure(const gpu_limits *limits, const gpu_limits *offered)
{
    return limits->max_workgroup_memory < offered->max_workgroup_memory ||
           limits->max_invocations < offered->max_invocations ||
           limits->max_workgroup_x < offered->max_workgroup_x ||
           limits->max_workgroup_y < offered->max_workgroup_y ||
           limits->max_workgroup_z < offered->max_workgroup_z;
}

/* Moves what the device needs out of the list, which then closes without it. */
static temper_status open_from(gpu_adapter_list *list, const gpu_device_desc *desc,
                               gpu_device *device, error *err)
{
    const gpu_adapter *chosen = gpu_adapter_choose(list, desc->adapter, err);
    if (chosen == NULL)
        return err != NULL ? err->status : TEMPER_NO_DEVICE;

    device->info = chosen->info;
    device->features = chosen->info.features & ~desc->without_features;
    /* Matrices of subgroups are nothing without subgroups. */
    if (!(device->features & GPU_FEATURE_SUBGROUPS))
        device->features &= ~(uint32_t)GPU_FEATURE_SUBGROUP_MATRIX;
    device->robust = desc->robust;
    device->guard = desc->guard;
    const temper_status status = gpu_limits_resolve(&chosen->info, desc, &device->limits, err);
    if (status != TEMPER_OK)
        return status;
    device->measure = must_measure(&device->limits, &chosen->info.limits);
    device->adapter = chosen->handle;
    wgpuAdapterAddRef(device->adapter);
    device->instance = list->instance;
    wgpuInstanceAddRef(device->instance);
    return request_device(device, err);
}

temper_status gpu_device_open(const gpu_device_desc *desc, gpu_device **out, error *err)
{
    static const gpu_device_desc defaults = {0};
    error local = {0};
    assert(out != NULL);
    assert(desc == NULL || desc->limits != NULL || desc->limit_count == 0);

    *out = NULL;
    gpu_device *device = mem_calloc(1, sizeof *device);
    gpu_adapter_list *list = mem_calloc(1, sizeof *list);
    if (device != NULL)
        device->no_memory = gpu_pipeline_stand_in(device);
    if (device == NULL || device->no_memory == NULL || list == NULL) {
        if (device != NULL)
            mem_free(device->no_memory);
        mem_free(device);
        mem_free(list);
        return error_set(err, TEMPER_NO_MEMORY, "no memory for a device");
    }
    pthread_mutex_init(&device->failure_lock, NULL);
    atomic_init(&device->references, 1);
    device->recorder.device = device;

    temper_status status = gpu_adapter_list_open(list, &local);
    if (status == TEMPER_OK)
        status = open_from(list, desc != NULL ? desc : &defaults, device, &local);
    gpu_adapter_list_close(list);
    mem_free(list);
    if (status != TEMPER_OK) {
        gpu_device_release(device);
        return error_set(err, status, "%s", local.text);
    }
    *out = device;
    return TEMPER_OK;
}

/* ---- closing -------------------------------------------------------------------------------- */

gpu_device *gpu_device_retain(gpu_device *device)
{
    assert(device != NULL);
    atomic_fetch_add(&device->references, 1);
    return device;
}

static void report_left_buffers(const gpu_device *device)
{
    uint32_t count = 0;
    const gpu_buffer *first = NULL;

    for (const gpu_buffer *buffer = device->buffers; buffer != NULL; buffer = buffer->next)
        if (buffer->purpose != GPU_PURPOSE_STAGING) {
            first = buffer;
            count++;
        }
    if (count > 0)
        log_message(LOG_WARNING, "the device closes with %u buffers alive, \"%s\" among them",
                    count, first->label);
}

static void close_device(gpu_device *device)
{
    if (device->handle != NULL) {
        /* Compilers on other threads and callbacks still to come point into this device: let the
         * first end and the others run before anything is freed. Drivers, too, are happier to be
         * closed when they have nothing to do. */
        gpu_pipelines_wait(device, NULL);
        if (!gpu_device_lost(device)) {
            wgpuQueueSubmit(device->queue, 0, NULL);
            gpu_await_queue(device);
        }
        device->closing = true;
        if (device->recorder.open)
            gpu_record_cancel(&device->recorder);
        wgpuDeviceDestroy(device->handle);
        device->lost = true;
        gpu_submissions_close(device);
        gpu_trim(device);
        gpu_pipelines_close(device);
        report_left_buffers(device);
        while (device->buffers != NULL)
            gpu_buffer_destroy(device->buffers);
        wgpuQueueRelease(device->queue);
        library_release_device(device);
    }
    if (device->adapter != NULL)
        wgpuAdapterRelease(device->adapter);
    if (device->instance != NULL) {
        wgpuInstanceProcessEvents(device->instance);
        wgpuInstanceRelease(device->instance);
    }
    gpu_recorder_free(&device->recorder);
    gpu_profile_close(device);
    if (device->kept != NULL)
        device->release_kept(device->kept);
    mem_free(device->no_memory);
    pthread_mutex_destroy(&device->failure_lock);
    mem_free(device);
}

void gpu_device_release(gpu_device *device)
{
    if (device != NULL && atomic_fetch_sub(&device->references, 1) == 1)
        close_device(device);
    library_release_due();
}

/* ---- asking --------------------------------------------------------------------------------- */

const gpu_adapter_info *gpu_device_adapter(const gpu_device *device)
{
    return &device->info;
}

uint32_t gpu_device_features(const gpu_device *device)
{
    return device->features;
}

const gpu_limits *gpu_device_limits(const gpu_device *device)
{
    return &device->limits;
}

bool gpu_device_robust(const gpu_device *device)
{
    return device->robust;
}

gpu_counters gpu_device_counters(const gpu_device *device)
{
    return device->counters;
}

void gpu_device_reset_peak(gpu_device *device)
{
    memcpy(device->counters.peak_bytes, device->counters.live_bytes,
           sizeof device->counters.peak_bytes);
    device->counters.peak_total = device->counters.live_total;
}

void gpu_fail_allocation(gpu_device *device, uint64_t nth)
{
    device->fail_allocation = nth;
}

void gpu_lose(gpu_device *device)
{
    library_lose(device);
}
