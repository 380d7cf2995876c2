/*
 * buffer.c - buffers, what they cost, and writes to them.
 */
#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "base/checked.h"
#include "base/mem.h"
#include "gpu/gpu_internal.h"

/* ---- what was allocated --------------------------------------------------------------------- */

static void count_alloc(gpu_counters *counters, gpu_purpose purpose, uint64_t bytes)
{
    counters->live_bytes[purpose] += bytes;
    counters->live_total += bytes;
    counters->peak_bytes[purpose] =
        max_u64(counters->peak_bytes[purpose], counters->live_bytes[purpose]);
    counters->peak_total = max_u64(counters->peak_total, counters->live_total);
    counters->buffers_created++;
}

static void count_free(gpu_counters *counters, gpu_purpose purpose, uint64_t bytes)
{
    assert(counters->live_bytes[purpose] >= bytes);
    counters->live_bytes[purpose] -= bytes;
    counters->live_total -= bytes;
}

/* ---- creation ------------------------------------------------------------------------------- */

typedef struct scope_answer {
    bool arrived;
    WGPUErrorType type;
    char message[GPU_MESSAGE_BYTES];
} scope_answer;

static void on_scope(WGPUPopErrorScopeStatus status, WGPUErrorType type, WGPUStringView message,
                     void *user, void *unused)
{
    (void)unused;
    scope_answer *answer = user;
    answer->type = status == WGPUPopErrorScopeStatus_Success ? type : WGPUErrorType_NoError;
    if (answer->type != WGPUErrorType_NoError)
        gpu_message(answer->message, sizeof answer->message, message);
    answer->arrived = true;
}

static void pop_scope(gpu_device *device, scope_answer *answer)
{
    const WGPUPopErrorScopeCallbackInfo callback = {.mode = WGPUCallbackMode_AllowProcessEvents,
                                                    .callback = on_scope, .userdata1 = answer};
    const WGPUFuture future = wgpuDevicePopErrorScope(device->handle, callback);

    while (!gpu_await(device, future, &answer->arrived) && !answer->arrived)
        wgpuInstanceProcessEvents(device->instance);
}

/* Asks the library for the memory and learns at once whether it was there. */
static temper_status create_handle(gpu_device *device, uint64_t bytes, WGPUBufferUsage usage,
                                   const char *label, WGPUBuffer *out, error *err)
{
    scope_answer memory = {0}, validation = {0};
    const WGPUBufferDescriptor desc = {.label = gpu_text(label), .usage = usage, .size = bytes};

    if (device->fail_allocation > 0 && --device->fail_allocation == 0)
        return error_set(err, TEMPER_DEVICE_MEMORY,
                         "buffer \"%s\" of %" PRIu64 " bytes: a failure was asked for", label,
                         bytes);

    wgpuDevicePushErrorScope(device->handle, WGPUErrorFilter_Validation);
    wgpuDevicePushErrorScope(device->handle, WGPUErrorFilter_OutOfMemory);
    WGPUBuffer handle = wgpuDeviceCreateBuffer(device->handle, &desc);
    pop_scope(device, &memory);
    pop_scope(device, &validation);

    temper_status status = gpu_device_status(device, err);
    if (status == TEMPER_OK && memory.type != WGPUErrorType_NoError)
        status = error_set(err, TEMPER_DEVICE_MEMORY,
                           "buffer \"%s\" of %" PRIu64 " bytes: the device's memory is exhausted "
                           "(%" PRIu64 " bytes are in use here): %s",
                           label, bytes, device->counters.live_total, memory.message);
    else if (status == TEMPER_OK && (validation.type != WGPUErrorType_NoError || handle == NULL))
        status = error_set(err, TEMPER_DEVICE_ERROR, "buffer \"%s\" of %" PRIu64 " bytes: %s",
                           label, bytes, validation.message);
    if (status != TEMPER_OK && handle != NULL) {
        wgpuBufferRelease(handle);
        handle = NULL;
    }
    *out = handle;
    return status;
}

static temper_status create(gpu_device *device, uint64_t size, uint64_t edge, gpu_purpose purpose,
                            WGPUBufferUsage usage, const char *label, gpu_buffer **out, error *err)
{
    uint64_t rounded, real;

    *out = NULL;
    temper_status status = gpu_device_status(device, err);
    if (status != TEMPER_OK)
        return status;
    if (!checked_round_up(max_u64(size, 4), 4, &rounded) ||
        rounded > device->limits.max_buffer_size || !checked_add(rounded, 2 * edge, &real))
        return error_set(err, TEMPER_UNSUPPORTED,
                         "buffer \"%s\" of %" PRIu64 " bytes is larger than this device's "
                         "maxBufferSize of %" PRIu64, label, size, device->limits.max_buffer_size);

    const size_t label_bytes = strlen(label) + 1;
    gpu_buffer *buffer = mem_calloc(1, sizeof *buffer + label_bytes);
    if (buffer == NULL)
        return error_set(err, TEMPER_NO_MEMORY, "no host memory for buffer \"%s\"", label);
    status = create_handle(device, real, usage, label, &buffer->handle, err);
    if (status != TEMPER_OK) {
        mem_free(buffer);
        return status;
    }
    memcpy(buffer->label, label, label_bytes);
    buffer->device = device;
    buffer->size = rounded;
    buffer->base = edge;
    buffer->real_size = real;
    buffer->purpose = purpose;
    buffer->next = device->buffers;
    if (device->buffers != NULL)
        device->buffers->previous = buffer;
    device->buffers = buffer;
    count_alloc(&device->counters, purpose, real);
    *out = buffer;
    return TEMPER_OK;
}

temper_status gpu_buffer_create_as(gpu_device *device, uint64_t size, gpu_purpose purpose,
                                   WGPUBufferUsage usage, const char *label, gpu_buffer **out,
                                   error *err)
{
    return create(device, size, 0, purpose, usage, label, out, err);
}

temper_status gpu_buffer_create(gpu_device *device, uint64_t size, gpu_purpose purpose,
                                const char *label, gpu_buffer **out, error *err)
{
    assert(device != NULL && label != NULL && out != NULL && purpose < GPU_PURPOSE_COUNT);
    /* The caller's bytes start at a multiple of the alignment, so that offsets stay aligned. */
    const uint64_t edge =
        device->guard ? max_u64(GPU_GUARD_BYTES, device->limits.storage_alignment) : 0;
    const temper_status status =
        create(device, size, edge, purpose,
               WGPUBufferUsage_Storage | WGPUBufferUsage_CopySrc | WGPUBufferUsage_CopyDst, label,
               out, err);

    if (status == TEMPER_OK && edge > 0)
        gpu_guard_poison(*out);
    return status;
}

void gpu_buffer_destroy(gpu_buffer *buffer)
{
    if (buffer == NULL)
        return;
    gpu_device *device = buffer->device;

    if (device->recorder.open && buffer->recorded == device->recorder.number)
        gpu_record_fail(&device->recorder, TEMPER_BAD_ARGUMENT,
                        "buffer \"%s\" was destroyed while a recording uses it", buffer->label);
    if (buffer->bind_groups > 0)
        gpu_bind_groups_forget(device, buffer);
    if (buffer->previous != NULL)
        buffer->previous->next = buffer->next;
    else
        device->buffers = buffer->next;
    if (buffer->next != NULL)
        buffer->next->previous = buffer->previous;
    count_free(&device->counters, buffer->purpose, buffer->real_size);
    wgpuBufferDestroy(buffer->handle);
    wgpuBufferRelease(buffer->handle);
    mem_free(buffer);
}

uint64_t gpu_buffer_size(const gpu_buffer *buffer)
{
    return buffer->size;
}

const char *gpu_buffer_label(const gpu_buffer *buffer)
{
    return buffer->label;
}

gpu_view gpu_whole(gpu_buffer *buffer)
{
    assert(buffer != NULL);
    return (gpu_view){buffer, 0, buffer->size};
}

/* ---- writes --------------------------------------------------------------------------------- */

temper_status gpu_write(gpu_device *device, gpu_buffer *buffer, uint64_t offset, const void *bytes,
                        uint64_t size, error *err)
{
    /* The library copies what is written into memory of its own until the GPU has taken it. */
    enum { PIECE = 16 << 20, UNSUBMITTED_MAX = 64 << 20 };
    const uint8_t *from = bytes;
    uint64_t end;

    assert(buffer->device == device && (bytes != NULL || size == 0));
    const temper_status status = gpu_device_status(device, err);
    if (status != TEMPER_OK)
        return status;
    if (offset % 4 != 0 || size % 4 != 0 || !checked_add(offset, size, &end) || end > buffer->size)
        return error_set(err, TEMPER_BAD_ARGUMENT,
                         "write of %" PRIu64 " bytes at %" PRIu64 " to buffer \"%s\" of %" PRIu64
                         " bytes: not inside, or no multiple of 4",
                         size, offset, buffer->label, buffer->size);

    for (uint64_t done = 0; done < size;) {
        const uint64_t piece = min_u64(size - done, PIECE);
        wgpuQueueWriteBuffer(device->queue, buffer->handle, buffer->base + offset + done,
                             from + done, (size_t)piece);
        done += piece;
        device->unsubmitted += piece;
        if (device->unsubmitted >= UNSUBMITTED_MAX) {
            wgpuQueueSubmit(device->queue, 0, NULL);
            gpu_await_queue(device);
            device->unsubmitted = 0;
        }
    }
    return gpu_device_status(device, err);
}

void gpu_trim(gpu_device *device)
{
    /* What is in flight holds its readback buffer until it is done. */
    if (!device->closing)
        gpu_finish(device, NULL);
    gpu_bind_groups_clear(device);
    gpu_staging_trim(device);
    if (device->params_group != NULL)
        wgpuBindGroupRelease(device->params_group);
    device->params_group = NULL;
    gpu_buffer_destroy(device->params_buffer);
    device->params_buffer = NULL;
    device->params_slots = 0;
    mem_free(device->params_host);
    device->params_host = NULL;
}
